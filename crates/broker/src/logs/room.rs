//! Room on a log directory's volume. A directory without room is *read only*: appends are refused, reads,
//! DeleteRecords and DeleteTopics are served, and when there is room again it takes appends, without a
//! restart.
//!
//! Deleting needs room itself: the metadata log and checkpoints grow before any file goes. So a file of
//! 16 MiB, the ballast, lies in each directory and is removed when the volume is full. Other programs may take that room; the
//! journal and the metadata log have a ballast of their own for that ([`storage::disk::ballast`]).
//!
//! A write that finds no room is no failed disk: what of it was written has been cut off, and the log is
//! as it was. A *sync* that finds none is final, as every failed sync is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use partition::{Partition, PartitionError};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use storage::disk::EssentialBallast;
use tracing::{debug, info, warn};

use super::directory::volume_bytes;
use super::{Directory, Logs};

/// The ballast's name in a log directory.
const BALLAST: &str = "highwater-ballast";
/// Bytes of the ballast on a large volume.
const BALLAST_BYTES_MAX: u64 = 16 << 20;
/// On a small one it takes at most this part.
const BALLAST_SHARE: u64 = 32;

/// Whether a directory has room, and the ballast that makes some.
#[derive(Debug)]
pub struct Room {
    ballast: PathBuf,
    is_full: AtomicBool,
}

impl Room {
    /// Of the directory at `path`, which is taken to have room until it is looked at.
    pub fn of(path: &Path) -> Room {
        Room { ballast: path.join(BALLAST), is_full: AtomicBool::new(false) }
    }

    /// Whether appends are refused.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// What is to be done on a volume of `total` bytes of which `free` may be written.
    fn look(&self, total: u64, free: u64) -> Option<Change> {
        let ballast = BALLAST_BYTES_MAX.min(total / BALLAST_SHARE);
        match self.is_full() {
            false if free < ballast / 2 => Some(Change::Fill),
            // The ballast comes back, and twice as much is left.
            true if free >= 3 * ballast => Some(Change::Reopen { ballast }),
            false if free >= 3 * ballast && !self.ballast.exists() => {
                Some(Change::Ballast { ballast })
            }
            _ => None,
        }
    }

    /// Takes room for later. Failing to is no failure: then there is no ballast.
    fn make_ballast(&self, bytes: u64) {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let made = rustix::fs::open(&self.ballast, flags, Mode::from_raw_mode(0o640))
            .and_then(|file| rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes));
        if let Err(error) = made {
            debug!(path = %self.ballast.display(), %error, "no room can be set aside");
            self.drop_ballast();
        }
    }

    fn drop_ballast(&self) {
        match std::fs::remove_file(&self.ballast) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                warn!(path = %self.ballast.display(), %error, "cannot remove the ballast");
            }
            _ => {}
        }
    }
}

/// What a look at the volume says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Hardly anything is left.
    Fill,
    /// There is room again; for a ballast of so many bytes too.
    Reopen { ballast: u64 },
    /// There is room for a ballast of so many bytes, and none lies there.
    Ballast { ballast: u64 },
}

impl Logs {
    /// There was no room for a write to `partition`: its directory takes no more appends until there is.
    pub fn fill(&self, partition: &Partition) {
        let directory = self.directory_of(partition);
        self.close_to_appends(directory);
    }

    /// Checks the free room of a directory's volume. `report` gets the results of partitions that give zeros back on a full
    /// one.
    pub fn look_for_room(
        &self,
        at: usize,
        report: impl Fn(&Arc<Partition>, Result<(), PartitionError>),
    ) {
        let directory = &self.directories[at];
        if directory.is_offline() {
            return;
        }
        let Ok((total, free)) = directory.volume_bytes() else { return };
        if !directory.room.is_full() {
            self.fill_essential_ballast(directory.path());
        }
        match directory.room.look(total as u64, free as u64) {
            Some(Change::Fill) => self.close_to_appends(directory),
            Some(Change::Reopen { ballast }) => {
                directory.room.make_ballast(ballast);
                directory.room.is_full.store(false, Ordering::Release);
                self.set_writable(directory, true);
                info!(directory = %directory.path().display(), "there is room again: appends are taken");
            }
            Some(Change::Ballast { ballast }) => directory.room.make_ballast(ballast),
            None => {}
        }
        self.give_back_zeros(directory, &report);
    }

    /// Fills the essential ballast in `folder` up to its size, if the volume has three times that free. An error is logged only:
    /// the directory serves without ballast.
    pub(super) fn fill_essential_ballast(&self, folder: &Path) {
        let Ok((total, free)) = volume_bytes(folder) else { return };
        let bytes = EssentialBallast::bytes(total as u64);
        if (free as u64) < 3 * bytes {
            return;
        }
        if let Err(error) = EssentialBallast::of(folder).fill(&*self.disk, bytes) {
            debug!(folder = %folder.display(), %error, "no room can be set aside for essential files");
        }
    }

    /// Records have a better use for what room is left than zeros ahead of them.
    pub(super) fn give_back_zeros(
        &self,
        directory: &Directory,
        report: &impl Fn(&Arc<Partition>, Result<(), PartitionError>),
    ) {
        if directory.room.is_full() && directory.sync_queue().held().ahead_bytes() > 0 {
            self.members_in(directory).for_each(|member| report(&member, member.give_back_ahead()));
        }
    }

    fn close_to_appends(&self, directory: &Directory) {
        if directory.room.is_full.swap(true, Ordering::AcqRel) {
            return;
        }
        directory.room.drop_ballast();
        self.set_writable(directory, false);
        warn!(
            directory = %directory.path().display(),
            "the disk is full: appends are refused until there is room. Delete topics or records, or \
             make the volume larger"
        );
    }

    fn set_writable(&self, directory: &Directory, writable: bool) {
        self.members_in(directory).for_each(|member| member.set_writable(writable));
    }

    fn members_in(&self, directory: &Directory) -> impl Iterator<Item = Arc<Partition>> {
        let here = move |(at, member): (usize, Arc<Partition>)| {
            std::ptr::eq(&raw const self.directories[at], directory).then_some(member)
        };
        self.members().into_iter().filter_map(here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_directory_fills_and_takes_appends_again_only_with_room_to_spare() {
        let dir = tempfile::tempdir().unwrap();
        let room = Room::of(dir.path());
        let total = 10_000 * MIB;
        assert_eq!(room.look(total, 40 * MIB), None, "too little to set any aside");
        assert_eq!(room.look(total, 48 * MIB), Some(Change::Ballast { ballast: 16 * MIB }));
        room.make_ballast(64 * 1024);
        assert_eq!(std::fs::metadata(dir.path().join(BALLAST)).unwrap().len(), 64 * 1024);
        assert_eq!(room.look(total, 48 * MIB), None);
        assert_eq!(room.look(total, 8 * MIB), None);
        assert_eq!(room.look(total, 8 * MIB - 1), Some(Change::Fill));
        room.is_full.store(true, Ordering::Release);
        room.drop_ballast();
        assert!(!dir.path().join(BALLAST).exists());
        // What the ballast gave back does not make it writable.
        assert_eq!(room.look(total, 24 * MIB), None);
        assert_eq!(room.look(total, 48 * MIB), Some(Change::Reopen { ballast: 16 * MIB }));
    }
}
