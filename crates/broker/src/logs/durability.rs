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

use super::{Logs, key_of};

impl Logs {
    /// To be called before a partition obeys `durability=page-cache`, and after it obeys `fsync`.
    pub fn note_durability(&self, partition: &Arc<Partition>, durability: Durability) {
        match durability {
            Durability::PageCache => self.enter_or_tell(partition, false),
            Durability::Fsync => {
                self.becoming_synced.lock().push(Arc::downgrade(partition));
                self.enter_synced();
            }
        }
    }

    /// Enters the partitions of which everything that counts is synced by now.
    pub(super) fn enter_synced(&self) {
        let waiting = std::mem::take(&mut *self.becoming_synced.lock());
        for partition in waiting.iter().filter_map(Weak::upgrade) {
            if partition.settings().durability != Durability::Fsync {
                continue;
            }
            let synced = partition.with_log(|log| log.synced_below());
            match synced >= partition.high_watermark() {
                true => self.enter_or_tell(&partition, true),
                false => self.becoming_synced.lock().push(Arc::downgrade(&partition)),
            }
        }
    }

    fn enter_or_tell(&self, partition: &Partition, fsync: bool) {
        if let Err(cause) = self.enter_durability(partition, fsync) {
            error!(partition = %partition.topic_partition(), %cause, fsync, "the change of durability is not in the journal: the next start expects the one before");
        }
    }

    fn enter_durability(&self, partition: &Partition, fsync: bool) -> Result<(), StorageError> {
        let key = key_of(partition);
        self.directory_of(partition).journal()?.commit_with(|state| {
            let known = state.partitions.get(&key).map(|known| &known.opened);
            let changed = known.filter(|known| known.fsync != fsync);
            let opened = changed.map(|known| Fact::Opened(Opened { fsync, ..known.clone() }));
            opened.map(|fact| Entry::Of(key, fact)).into_iter().collect()
        })
    }
}
