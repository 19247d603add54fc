//! What a restart shall not lose: how far groups were behind over a day, in a file that is written anew every five minutes and at
//! a stop.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use serving::lag::history::History;
use serving::lag::kept::{from_bytes, to_bytes};
use tracing::warn;

use crate::snapshot::Snapshot;

const FILE: &str = "lag.bin";

/// The file, if there is a folder for it; locked while it is written, because a stop may come in the middle of that.
#[derive(Debug, Clone)]
pub(super) struct Kept(Option<Arc<Mutex<PathBuf>>>);

impl Kept {
    pub(super) fn within(dir: Option<&Path>) -> Kept {
        Kept(dir.map(|dir| Arc::new(Mutex::new(dir.join(FILE)))))
    }

    fn path(&self) -> Option<MutexGuard<'_, PathBuf>> {
        self.0.as_ref().map(|path| path.lock().expect("no code under it panics"))
    }

    /// What an earlier console has written; nothing of a file that is damaged.
    pub(super) fn read(&self) -> Vec<(String, History)> {
        let Some(path) = self.path() else { return Vec::new() };
        let read = match fs::read(&*path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => Err(error.to_string()),
            Ok(bytes) => from_bytes(&bytes).map_err(|error| error.to_string()),
        };
        read.unwrap_or_else(|error| {
            warn!(file = %path.display(), %error, "the history of groups' lag cannot be read, and begins anew");
            Vec::new()
        })
    }

    /// Writes the histories of a look. A crash leaves the file of before, or the new one.
    pub(super) fn write(&self, snapshot: &Snapshot) {
        let Some(path) = self.path() else { return };
        let groups: Vec<_> =
            snapshot.groups.values().map(|group| (group.id.as_str(), group.history())).collect();
        let begun: Vec<(&str, &History)> = groups
            .iter()
            .map(|(id, history)| (*id, &**history))
            .filter(|(_, history)| history.is_begun())
            .collect();
        let bytes = to_bytes(begun.into_iter());
        drop(groups);
        if let Err(error) = replace(&path, &bytes) {
            warn!(file = %path.display(), %error, "the history of groups' lag cannot be written");
        }
    }

    /// The same, where nothing is held up by the disk.
    pub(super) async fn write_aside(&self, snapshot: &Arc<Snapshot>) {
        if self.0.is_none() {
            return;
        }
        let (kept, snapshot) = (self.clone(), Arc::clone(snapshot));
        // A panic there was told by the runtime already.
        let _ = tokio::task::spawn_blocking(move || kept.write(&snapshot)).await;
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = File::create(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::GroupView;
    use serving::lag::history::Lag;

    fn snapshot() -> Snapshot {
        let mut history = History::default();
        history.note(1_700_000_000_000, Lag { records: 5, ms: 50 });
        let group = |history| GroupView {
            id: "g".to_owned(),
            kind: String::new(),
            state: String::new(),
            coordinator: 1,
            rows: Ok(Vec::new()),
            history: Arc::new(std::sync::Mutex::new(history)),
        };
        let groups =
            [("g".to_owned(), group(history)), ("new".to_owned(), group(History::default()))];
        Snapshot { groups: groups.into_iter().collect(), ..Snapshot::default() }
    }

    #[test]
    fn a_file_that_is_damaged_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let kept = Kept::within(Some(dir.path()));
        assert!(kept.read().is_empty(), "there is none yet");
        kept.write(&snapshot());
        let read = kept.read();
        assert_eq!(read.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["g"]);
        let path = dir.path().join(FILE);
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert!(kept.read().is_empty());
        kept.write(&snapshot());
        assert_eq!(kept.read().len(), 1, "the next one is good again");
    }

    #[test]
    fn a_folder_that_is_gone_holds_nothing_up() {
        let dir = tempfile::tempdir().unwrap();
        let kept = Kept::within(Some(&dir.path().join("not-there")));
        kept.write(&snapshot());
        assert!(kept.read().is_empty());
    }
}
