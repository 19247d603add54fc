//! A topic's `durability` changes while the broker runs: what the next start is to expect of its records.
//!
//! The journal may say that a partition is synced only when everything below its high watermark is: from
//! then on no record is deleted, and so no log start entered, above what the device has. That it is no
//! longer synced must be durable before the first record is acknowledged from the page cache.

use std::sync::{Arc, Weak};

use model::Durability;
use partition::Partition;
use storage::StorageError;
use storage::journal::{Entry, Fact, Opened};
use tracing::error;

use super::keeping::is_here;
use super::{Logs, key_of};

impl Logs {
    /// To be called before a partition obeys `durability=page-cache`, and after it obeys `fsync`. What cannot be entered at once is
    /// entered later ([`Logs::sync_journal`]).
    pub fn note_durability(&self, partition: &Arc<Partition>, durability: Durability) {
        let change = (Arc::downgrade(partition), durability);
        let mut becoming = self.becoming.lock();
        becoming.retain(|(other, _)| !other.ptr_eq(&change.0));
        becoming.push(change.clone());
        drop(becoming);
        self.enter_each_durability(vec![change], true);
    }

    /// Enters the changes in one directory that hold by now: that a partition is synced only once everything of it is that counts.
    pub(super) fn enter_durabilities(&self, directory: usize) {
        let mut waiting = self.becoming.lock().clone();
        waiting.retain(|(weak, _)| {
            let partition = weak.upgrade();
            partition.is_none_or(|it| self.directory_number(&it).unwrap_or(0) == directory)
        });
        self.enter_each_durability(waiting, false);
    }

    /// `is_told`: a failure is reported.
    fn enter_each_durability(&self, waiting: Vec<(Weak<Partition>, Durability)>, is_told: bool) {
        for (weak, durability) in waiting {
            let is_left = weak
                .upgrade()
                .is_some_and(|it| !self.is_durability_entered(&it, durability, is_told));
            if !is_left {
                let is_it = |(other, wanted): &(Weak<Partition>, Durability)| {
                    other.ptr_eq(&weak) && *wanted == durability
                };
                self.becoming.lock().retain(|change| !is_it(change));
            }
        }
    }

    /// Whether nothing is left to be entered about a change of durability.
    fn is_durability_entered(
        &self,
        partition: &Partition,
        durability: Durability,
        is_told: bool,
    ) -> bool {
        if durability == Durability::Fsync {
            if partition.settings().durability != Durability::Fsync {
                return true;
            }
            let synced = partition.with_log(|log| log.synced_below());
            if synced < partition.high_watermark() {
                return false;
            }
        }
        let fsync = durability == Durability::Fsync;
        let Err(cause) = self.enter_durability(partition, fsync) else { return true };
        let name = partition.topic_partition();
        let is_tried_again = cause.is_full() || cause.lacks_resources();
        if is_told || !is_tried_again {
            error!(partition = %name, %cause, fsync, is_tried_again, "the change of durability is not in the journal: a start expects the one before");
        }
        !is_tried_again
    }

    fn enter_durability(&self, partition: &Partition, fsync: bool) -> Result<(), StorageError> {
        let key = key_of(partition);
        self.directory_of(partition).journal()?.commit_with(|state| {
            let known = state.partitions.get(&key).filter(|_| is_here(partition));
            let known = known.map(|known| &known.opened);
            let changed = known.filter(|known| known.fsync != fsync);
            let opened = changed.map(|known| Fact::Opened(Opened { fsync, ..known.clone() }));
            opened.map(|fact| Entry::Of(key, fact)).into_iter().collect()
        })
    }
}
