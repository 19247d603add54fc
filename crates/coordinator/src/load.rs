//! From records to a shard, when this broker becomes the leader of the partition. Until it has
//! finished, the host answers COORDINATOR_LOAD_IN_PROGRESS; there is no shard that it could ask.

use model::Timestamp;

use crate::durable::Durable;
use crate::event::Effects;
use crate::group::Group;
use crate::outbox::Outbox;
use crate::records::{Record, RecordError};
use crate::request::Lent;
use crate::shard::Shard;
use crate::timers::{TimerKey, Timers};
use crate::{GroupConfig, GroupId};

/// Reads a partition's records, from its log start to its log end, in order.
#[derive(Debug)]
pub struct Loader {
    config: GroupConfig,
    durable: Durable,
}

impl Loader {
    /// Panics if the configuration is not valid.
    pub fn new(config: GroupConfig) -> Loader {
        config.assert_valid();
        Loader { config, durable: Durable::default() }
    }

    /// Learns one record. Kinds of records that are not of classic groups are skipped.
    ///
    /// An error says that the record cannot be understood; the loader is as it was before, and the
    /// host decides whether to go on without the record.
    pub fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), RecordError> {
        if let Some(record) = Record::decode(key, value)? {
            self.durable.replay(&record);
        }
        Ok(())
    }

    /// The shard, once all records are read. Members of stable groups have a session from now on.
    /// The effects are those of groups that are larger than is allowed now: they rebalance. `lend` is asked for
    /// the bytes that each member's subscription and each group's assignment take from now on.
    pub fn finish(self, now: Timestamp, mut lend: impl FnMut(usize) -> Lent) -> (Shard, Effects) {
        let mut shard = Shard {
            config: self.config,
            now,
            durable: self.durable,
            groups: Default::default(),
            timers: Timers::default(),
            outbox: Outbox::new(),
        };
        for id in shard.durable.group_ids() {
            shard.restore(&id);
        }
        shard.groups.values_mut().for_each(|group| group.borrow_memory(&mut lend));
        let interval_ms = shard.config.offsets_retention_check_interval_ms;
        let first = now.plus_ms(interval_ms).max(shard.config.expiry_from);
        shard.timers.set(TimerKey::Retention, first);
        let mut effects = Effects::default();
        shard.outbox.drain(&mut effects);
        (shard, effects)
    }
}

impl Shard {
    /// Makes the soft state of a group that only records know.
    fn restore(&mut self, id: &GroupId) {
        let group = self.durable.group(id).map_or_else(Group::new, Group::restored);
        let members: Vec<_> = group.members.keys().cloned().collect();
        let before = self.groups.insert(id.clone(), group);
        assert!(before.is_none(), "a group is restored only where there is none");
        members.iter().for_each(|member| self.restart_session(id, member));
        if members.len() > self.config.group_size_max {
            self.prepare_rebalance(id, "the group is larger than group.max.size");
        }
    }
}
