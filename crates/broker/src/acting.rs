//! How far this broker is with acting upon the metadata that it has, for whoever must know whether it gets on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use node::standstill::Place;
use storage::disk::progress::{self, Progress};

/// How far it is.
#[derive(Debug, Default)]
pub struct Acting {
    /// Index of the newest metadata by which this broker leads, follows and answers. Moves before what was deleted is gone from
    /// the disk: only the next metadata waits for that.
    serves: AtomicU64,
    /// What the threads that act upon metadata have begun on disks.
    progress: Arc<Progress>,
    /// Whether it was found not to get on.
    held_up: AtomicBool,
}

impl Acting {
    /// Does what acting upon metadata takes, on this thread.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let _counting = progress::count(Some(Arc::clone(&self.progress)));
        work()
    }

    /// The broker goes by the metadata up to this index from now on.
    pub fn serves(&self, index: u64) {
        self.serves.store(index, Ordering::Release);
    }

    /// Index of the newest metadata that the broker has acted upon.
    pub fn acted_upon(&self) -> u64 {
        self.serves.load(Ordering::Acquire)
    }

    /// Where it is with `known` as the newest metadata.
    pub fn place(&self, known: Option<u64>) -> Place {
        Place { known: known.unwrap_or(0), acted: self.acted_upon(), steps: self.progress.begun() }
    }

    /// Whether it was found not to get on: metadata waits, and the broker does nothing about it.
    pub fn is_held_up(&self) -> bool {
        self.held_up.load(Ordering::Relaxed)
    }

    /// It is found not to get on, or to get on again. Whether that is new.
    pub fn set_held_up(&self, held_up: bool) -> bool {
        self.held_up.swap(held_up, Ordering::Relaxed) != held_up
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use model::Moment;
    use node::standstill::Standstill;
    use storage::disk::{Disk, GatedDisk, OpenMode, SimDisk};

    use super::*;

    /// How long anything may take on a machine that is busy with much else.
    const PATIENCE: Duration = Duration::from_secs(40);

    #[test]
    fn a_disk_that_hangs_holds_it_up_and_one_that_is_slow_does_not() {
        let disk = GatedDisk::new(Arc::new(SimDisk::new()));
        let file = disk.open(Path::new("f"), OpenMode::Create).unwrap();
        let acting = Arc::new(Acting::default());
        let mut standstill = Standstill::new(Duration::from_secs(9));
        let mut at = Moment::START;
        let mut look = || {
            at = at.plus(Duration::from_secs(2));
            standstill.look(at, acting.place(Some(1)))
        };
        // One sync at a time, each of which takes as long as a look.
        for _ in 0..20 {
            acting.run(|| file.sync().unwrap());
            assert!(!look());
        }
        disk.close(Path::new("f"));
        let (acts, hangs) = (Arc::clone(&acting), Arc::clone(&file));
        let thread = std::thread::spawn(move || {
            acts.run(|| hangs.sync().unwrap());
            acts.serves(1);
        });
        assert!(disk.wait_for(1, PATIENCE));
        let looks: Vec<bool> = (0..7).map(|_| look()).collect();
        assert_eq!(looks, [false, false, false, false, true, true, true]);
        disk.open_gate();
        thread.join().unwrap();
        assert!(!look());
    }
}
