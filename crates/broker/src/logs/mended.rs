//! Partitions that a person had mended without records that are lost (`highwater log mend`). In a cluster such a replica is not what it
//! is counted for: where another broker has everything it is copied anew. Otherwise what is left of it is all that there is, and counts
//! as complete from then on.

use storage::journal::{Entry, Fact, Key, Opened, PartitionState, Refused};
use tracing::{info, warn};

use super::{Logs, LogsError};

impl Logs {
    /// Partitions of which this was not decided yet.
    pub fn mended(&self) -> Vec<Key> {
        let journals = self.directories.iter().filter_map(|directory| directory.journal().ok());
        let keys = journals.flat_map(|journal| {
            journal.with_state(|state| {
                let undecided = state.partitions.iter().filter(|(_, known)| is_undecided(known));
                undecided.map(|(key, _)| *key).collect::<Vec<_>>()
            })
        });
        keys.collect()
    }

    /// Decides it, durably: those that are to be copied anew are refused until that is done.
    pub fn settle_mended(&self, is_copied_anew: impl Fn(&Key) -> bool) -> Result<(), LogsError> {
        for directory in &self.directories {
            let Ok(journal) = directory.journal() else { continue };
            let entries: Vec<Entry> = journal.with_state(|state| {
                let undecided = state.partitions.iter().filter(|(_, known)| is_undecided(known));
                undecided.map(|(key, known)| decided(*key, known, is_copied_anew(key))).collect()
            });
            if !entries.is_empty() {
                journal.commit(&entries)?;
            }
        }
        Ok(())
    }
}

fn is_undecided(known: &PartitionState) -> bool {
    known.opened.mended && known.refused.is_none() && known.deleted.is_none()
}

fn decided(key: Key, known: &PartitionState, is_copied_anew: bool) -> Entry {
    let (topic, partition) = (&known.opened.topic, key.partition);
    if is_copied_anew {
        warn!(%topic, %partition, "the partition was mended without records that are lost, and other brokers have them: it is copied anew");
        let reason = "it was mended without records that are lost, and other brokers have them";
        return Entry::Of(key, Fact::Refused(Refused { offset: None, reason: reason.into() }));
    }
    info!(%topic, %partition, "the partition was mended: what is left of it counts as complete from now on");
    Entry::Of(key, Fact::Opened(Opened { mended: false, ..known.opened.clone() }))
}
