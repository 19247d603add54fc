//! What this broker knows beforehand of a shard that another broker leads: its committed records, replayed as they are
//! copied, so that a coordinator that moves here has only the last of them to read.
//!
//! What is replayed is below the high watermark, and stays so whoever leads next; where that does not hold, because
//! committed records were cut after an unclean election or the log is copied anew, the standby begins again from nothing.
//! A standby that cannot read its log gives up: the shard is loaded from the log's first record then, and says what is
//! wrong with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use coordinator::{GroupConfig, Loader};
use model::Offset;
use parking_lot::Mutex;
use partition::{Isolation, Partition};
use tracing::debug;

use crate::read_log::{self, Range};

/// The standby of one partition.
pub(super) struct Standby {
    partition: Arc<Partition>,
    config: GroupConfig,
    /// Locked while the log is read.
    state: Mutex<State>,
    /// The smallest offset that the log was cut to since that was looked at; [`i64::MAX`] without a cut.
    cut_to: AtomicI64,
}

/// How far a standby is.
enum State {
    /// Everything below this offset is replayed.
    Replayed(Box<Loader>, Offset),
    /// It was taken, or its log cannot be read.
    Over,
}

impl Standby {
    pub(super) fn new(partition: Arc<Partition>, config: GroupConfig) -> Standby {
        let state = Mutex::new(begun(&partition, &config));
        Standby { partition, config, state, cut_to: AtomicI64::new(i64::MAX) }
    }

    /// Whether it is that of this very partition, and of use: one that reads at this moment is. Does not wait for it.
    pub(super) fn is_of(&self, partition: &Arc<Partition>) -> bool {
        let is_of_use = || {
            let state = self.state.try_lock();
            state.is_none_or(|state| matches!(*state, State::Replayed(..)))
        };
        Arc::ptr_eq(&self.partition, partition) && is_of_use()
    }

    /// Replays what was committed since. Reads the disk.
    pub(super) fn advance(&self) {
        let mut state = self.state.lock();
        if !self.holds(&state) {
            *state = begun(&self.partition, &self.config);
        }
        let State::Replayed(loader, up_to) = &mut *state else { return };
        if self.partition.high_watermark() <= *up_to {
            return;
        }
        let range = Range { from: Some(*up_to), isolation: Isolation::Committed, any_role: true };
        let read = read_log::for_each_entry(&self.partition, range, |entry| {
            read_log::replay_entry(loader, entry)
        });
        match read {
            Ok(end) => *up_to = end,
            Err(cause) => {
                let partition = self.partition.topic_partition();
                debug!(%partition, %cause, "groups are not read ahead of their coordinator's move");
                *state = State::Over;
            }
        }
    }

    /// The log was cut to this offset, or is about to be: what was replayed from there on counts no more. Does not wait.
    pub(super) fn was_cut(&self, to: Offset) {
        self.cut_to.fetch_min(to.0, Ordering::AcqRel);
    }

    /// Hands over what is replayed, if it is of use: the rest of the log begins at the offset.
    pub(super) fn take(&self) -> Option<(Loader, Offset)> {
        let mut state = self.state.lock();
        let holds = self.holds(&state);
        match std::mem::replace(&mut *state, State::Over) {
            State::Replayed(loader, up_to) if holds => Some((*loader, up_to)),
            State::Replayed(..) | State::Over => None,
        }
    }

    /// Whether the log still has what was replayed, and what follows: not where it was cut below, or begins behind.
    fn holds(&self, state: &State) -> bool {
        let cut_to = self.cut_to.swap(i64::MAX, Ordering::AcqRel);
        let State::Replayed(_, up_to) = state else { return true };
        let (start, end) =
            self.partition.with_log(|log| (log.log_start_offset(), log.log_end_offset()));
        up_to.0 <= cut_to && (start..=end).contains(up_to)
    }
}

fn begun(partition: &Partition, config: &GroupConfig) -> State {
    let start = partition.with_log(storage::Log::log_start_offset);
    State::Replayed(Box::new(Loader::new(config.clone())), start)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use coordinator::GroupId;
    use model::Durability;

    use super::super::tests::fixture::{NOW, append, partition_with, store};
    use super::*;

    fn standby(partition: &Arc<Partition>) -> Standby {
        Standby::new(Arc::clone(partition), GroupConfig::default())
    }

    fn groups(loader: Loader) -> BTreeSet<GroupId> {
        loader.finish(NOW, |_, _| Default::default()).0.durable().group_ids()
    }

    #[test]
    fn the_next_coordinator_begins_behind_what_was_read_ahead() {
        let partition = partition_with(Durability::PageCache);
        let standby = standby(&partition);
        store(&partition, "first");
        standby.advance();
        let end = store(&partition, "second");
        standby.advance();
        store(&partition, "third");
        let (loader, from) = standby.take().unwrap();
        assert_eq!(from, end, "the third is left to be read");
        assert_eq!(groups(loader), ["first".into(), "second".into()].into());
        assert!(standby.take().is_none() && !standby.is_of(&partition), "it was taken");
    }

    #[test]
    fn what_is_committed_while_it_is_read_is_left_for_the_next_time() {
        let partition = partition_with(Durability::PageCache);
        let end = store(&partition, "first");
        let range = Range { from: None, isolation: Isolation::Committed, any_role: true };
        let mut count = 0;
        let read = read_log::for_each_entry(&partition, range, |_| {
            count += 1;
            store(&partition, "meanwhile");
            Ok::<_, String>(())
        });
        assert_eq!((read.unwrap(), count), (end, 1));
    }

    #[test]
    fn only_committed_records_are_read_ahead() {
        let partition = partition_with(Durability::Fsync);
        let standby = standby(&partition);
        store(&partition, "not synced");
        standby.advance();
        let (loader, from) = standby.take().unwrap();
        assert_eq!((from, groups(loader)), (Offset(0), BTreeSet::new()));
    }

    #[test]
    fn records_that_were_taken_back_are_not_kept() {
        let partition = partition_with(Durability::PageCache);
        let standby = standby(&partition);
        let end = store(&partition, "first");
        standby.advance();
        standby.was_cut(end);
        assert!(standby.is_of(&partition));
        standby.was_cut(Offset(0));
        standby.advance();
        let (loader, from) = standby.take().unwrap();
        assert_eq!((from, groups(loader)), (end, ["first".into()].into()));
        let cut_since = self::standby(&partition);
        cut_since.advance();
        cut_since.was_cut(Offset(0));
        assert!(cut_since.take().is_none());
    }

    #[test]
    fn a_log_that_begins_behind_what_was_read_ahead_is_read_from_its_beginning() {
        let partition = partition_with(Durability::PageCache);
        let (late, begun_anew) = (standby(&partition), standby(&partition));
        store(&partition, "first");
        let end = store(&partition, "second");
        partition.maintain(|log, _| log.delete_records_before(Offset(1))).unwrap();
        assert!(late.take().is_none());
        begun_anew.advance();
        let (loader, from) = begun_anew.take().unwrap();
        assert_eq!((from, groups(loader)), (end, ["second".into()].into()));
    }

    #[test]
    fn a_log_that_cannot_be_read_is_left_to_its_next_coordinator() {
        let partition = partition_with(Durability::PageCache);
        let standby = standby(&partition);
        store(&partition, "first");
        // The key of a stored position without what must follow.
        append(&partition, &[0, 1], Some(b"value"));
        standby.advance();
        assert!(standby.take().is_none());
    }
}
