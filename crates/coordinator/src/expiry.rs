//! Retention (KIP-211): offsets that nobody needs any more expire, and groups without members and
//! without offsets go.
//!
//! An offset expires a retention time after the group became empty; without a group, after it was
//! stored; in a stable group whose subscriptions are known, after it was stored, if nobody reads
//! its topic any more. A time that the client gave goes before all that.

use model::Timestamp;

use crate::GroupId;
use crate::group::{Group, GroupState};
use crate::records::CommittedOffset;
use crate::shard::Shard;
use crate::timers::TimerKey;

impl Shard {
    /// Looks through all groups, and sets the time for the next look.
    pub(crate) fn retain(&mut self) {
        let groups: Vec<GroupId> = self.groups.keys().cloned().collect();
        groups.iter().for_each(|id| self.retain_group(id));
        assert!(!self.timers.is_set(&TimerKey::Retention), "it has just fired");
        let interval_ms = self.config.offsets_retention_check_interval_ms;
        self.timers.set(TimerKey::Retention, self.now.plus_ms(interval_ms));
    }

    fn retain_group(&mut self, id: &GroupId) {
        let (now, retention_ms) = (self.now, self.config.offsets_retention_ms);
        let group = &self.groups[id];
        let topics = self.durable.offsets(id).map(|(partition, _)| partition.topic.clone());
        let read = group.subscribed_among(topics.collect());
        let records = self.offset_tombstones(id, |partition, value| {
            !read.contains(&partition.topic) && group.expires(value, now, retention_ms)
        });
        // What is on its way may be taken back, and then be all there is of the group.
        let may_go = group.state == GroupState::Empty
            && group.pending_members.is_empty()
            && self.outbox.is_settled(id);
        assert!(records.len() <= self.durable.offsets(id).count());
        let all_expire = records.len() == self.durable.offsets(id).count();
        if may_go && all_expire {
            self.forget_group(id, false);
        } else if !records.is_empty() {
            self.write(&records, None);
            self.settle_offsets(id);
        }
    }
}

impl Group {
    /// Whether an offset of a topic that no member reads has expired.
    fn expires(&self, value: &CommittedOffset, now: Timestamp, retention_ms: i64) -> bool {
        let kept_from = match (&self.protocol_type, self.state) {
            (None, _) => value.commit_timestamp,
            (Some(_), GroupState::Empty) => self.state_timestamp.unwrap_or(value.commit_timestamp),
            (Some(_), GroupState::Stable)
                if self.is_consumer_group() && self.knows_subscriptions() =>
            {
                value.commit_timestamp
            }
            (Some(_), _) => return false,
        };
        match value.expire_timestamp {
            Some(expire_timestamp) => now >= expire_timestamp,
            None => now.ms_since(kept_from) >= retention_ms,
        }
    }
}
