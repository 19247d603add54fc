//! Directories that were away: this broker has them, and did not have them when it was registered last.
//!
//! While one is away, its replicas may be made anew in another directory. So when it comes back, what it has is not what
//! the metadata counts: where another directory has the replica as well, that one is it, and the older one is put aside. Where
//! none has, the broker cannot answer for the replica, and says so before it registers with the directory.

use model::{TopicPartition, Uuid};
use storage::StorageError;
use storage::journal::{Key, State};
use tracing::warn;

use super::Logs;
use super::directory::Directory;

impl Logs {
    /// Whether a directory that can be used was registered last, of those with these ids.
    pub fn has_any_of(&self, registered: &[Uuid]) -> bool {
        self.usable().any(|directory| registered.contains(&directory.id()))
    }

    /// Whether all directories that were registered last can be used.
    pub fn has_all_of(&self, registered: &[Uuid]) -> bool {
        registered.iter().all(|id| self.usable().any(|directory| directory.id() == *id))
    }

    /// Whether directories know partitions that were not registered last.
    pub fn has_away(&self, registered: &[Uuid]) -> bool {
        !self.known_away(registered).is_empty()
    }

    /// The partitions that only directories know that were not registered last.
    pub fn away(&self, registered: &[Uuid]) -> Vec<Key> {
        let away = self.known_away(registered).into_iter().map(|(_, key, _)| key);
        away.filter(|key| !self.is_in(registered, key)).collect()
    }

    /// Puts aside what directories that were not registered last have of partitions that are in others. It is kept until a
    /// person removes it. A crash in between leaves the rest for the next start.
    pub fn put_aside_outdated(&self, registered: &[Uuid]) -> Result<(), StorageError> {
        let outdated = self.known_away(registered).into_iter();
        for (directory, key, name) in outdated.filter(|(_, key, _)| self.is_in(registered, key)) {
            let reason = "put aside: its directory was away, and another one has the partition";
            let kept = self.put_aside(directory, &key, &name, reason)?;
            warn!(partition = %name, kept = %kept.display(), "the log directory was away when the broker was registered last, and another one has the partition: what was in this one is put aside and kept");
        }
        Ok(())
    }

    fn usable(&self) -> impl Iterator<Item = &Directory> {
        self.directories().filter(|directory| !directory.is_offline())
    }

    fn is_in(&self, registered: &[Uuid], key: &Key) -> bool {
        let mut here = self.directories().filter(|it| registered.contains(&it.id()));
        here.any(|directory| directory.partition(key).is_some())
    }

    fn known_away(&self, registered: &[Uuid]) -> Vec<(&Directory, Key, TopicPartition)> {
        let mut known = Vec::new();
        // Without a registration there was nothing that could have been away from it.
        let away =
            self.usable().filter(|it| !registered.is_empty() && !registered.contains(&it.id()));
        for directory in away {
            let Ok(journal) = directory.journal() else { continue };
            journal.with_state(|state| {
                let live = state.partitions.iter().filter(|(_, state)| state.deleted.is_none());
                known.extend(live.map(|(key, state)| (directory, *key, State::name(*key, state))));
            });
        }
        known
    }
}
