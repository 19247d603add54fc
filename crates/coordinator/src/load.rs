//! From records to a shard, when this broker becomes the leader of the partition. Until it has
//! finished, the host answers COORDINATOR_LOAD_IN_PROGRESS; there is no shard that it could ask.

use model::{Offset, ProducerId, Timestamp};

use crate::durable::Durable;
use crate::event::Effects;
use crate::group::Group;
use crate::outbox::Outbox;
use crate::pending::PendingOffsets;
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
    /// Offsets committed in transactions that no marker has ended yet.
    pending: PendingOffsets,
}

impl Loader {
    /// Panics if the configuration is not valid.
    pub fn new(config: GroupConfig) -> Loader {
        config.assert_valid();
        Loader { config, durable: Durable::default(), pending: PendingOffsets::default() }
    }

    /// Learns one record. Kinds of records that are not of classic groups are skipped.
    ///
    /// An error says that the record cannot be understood; the loader is as it was before, and the
    /// host decides whether to go on without the record.
    pub fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), RecordError> {
        self.replay_at(Offset(i64::MAX), None, key, value)
    }

    /// Learns the record at the log offset `at`; `transaction` is the producer of a transactional batch.
    /// An offset committed in a transaction counts once [`Loader::end_transaction`] commits it. A tombstone
    /// counts at once, as in Kafka.
    pub fn replay_at(
        &mut self,
        at: Offset,
        transaction: Option<ProducerId>,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), RecordError> {
        match (Record::decode(key, value)?, transaction) {
            (
                Some(Record::OffsetCommit { group, partition, value: Some(value) }),
                Some(producer),
            ) => {
                self.pending.add(producer, at, group, partition, value);
            }
            (Some(record), _) => self.apply(at, &record),
            (None, _) => {}
        }
        Ok(())
    }

    /// Learns that a marker ended the transaction of `producer`. Without a transaction nothing changes.
    pub fn end_transaction(&mut self, producer: ProducerId, is_committed: bool) {
        let ended = self.pending.end(producer);
        if is_committed {
            ended.iter().for_each(|(at, record)| self.apply(*at, record));
        }
    }

    fn apply(&mut self, at: Offset, record: &Record) {
        if let Record::OffsetCommit { group, partition, .. } = record {
            self.pending.outdate(group, partition, at);
        }
        self.durable.replay(record);
    }

    /// The shard, once all records are read. Offsets of transactions that are still open do not count: this
    /// broker has no coordinator that could end them, and adoption ends those of other clusters. Members of stable groups have a session from now on.
    /// The effects are those of groups that are larger than is allowed now: they rebalance. `lend` returns the loans
    /// for the bytes that members and groups take.
    pub fn finish(
        self,
        now: Timestamp,
        lend: impl FnMut(LoanFor, usize) -> Lent,
    ) -> (Shard, Effects) {
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
        shard.borrow_memory(lend);
        let interval_ms = shard.config.offsets_retention_check_interval_ms;
        let first = now.plus_ms(interval_ms).max(shard.config.expiry_from);
        shard.timers.set(TimerKey::Retention, first);
        let mut effects = Effects::default();
        shard.outbox.drain(&mut effects);
        (shard, effects)
    }
}

/// The use of a loan to a restored group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoanFor {
    /// Members, their ids and assignments.
    Members,
    /// Committed offsets.
    Offsets,
    /// Metadata of committed offsets, which [`LoanFor::Offsets`] covers as well.
    OffsetMetadata,
}

impl Shard {
    fn borrow_memory(&mut self, mut lend: impl FnMut(LoanFor, usize) -> Lent) {
        for (id, group) in &mut self.groups {
            group.borrow_memory(id.as_str(), &mut |bytes| lend(LoanFor::Members, bytes));
            if self.durable.has_offsets(id) {
                group.lent_offsets = lend(LoanFor::Offsets, 0);
                group.lent_metadata = lend(LoanFor::OffsetMetadata, 0);
            }
        }
        self.settle_all_offsets();
    }

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
