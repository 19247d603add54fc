//! Removing what was deleted: on a thread of its own, because a large file goes piece by piece, with pauses, so that
//! freeing it holds up nobody's sync. The pauses are shorter the more of the free space the waiting files would be:
//! a broker that is written to faster than it frees would fill its disk with what was deleted long ago.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing::error;

use crate::server::Server;
use crate::vital;

/// How often something is looked for that may be removed.
const LOOK: Duration = Duration::from_secs(1);
/// How long to wait behind each piece at most: some 160 MB are freed a second.
const PAUSE: Duration = Duration::from_millis(25);
/// The part of the free space from which on there are no pauses: one in this many bytes waits to be freed.
const URGENT_PART: u64 = 2;

/// The thread, and how to end it.
pub struct Removal {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Stop {
    is_wanted: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Waits; false if the thread is to end.
    fn wait(&self, duration: Duration) -> bool {
        let mut is_wanted = self.is_wanted.lock();
        if !*is_wanted && !duration.is_zero() {
            self.changed.wait_for(&mut is_wanted, duration);
        }
        !*is_wanted
    }
}

impl Removal {
    /// Starts the thread. It ends when `server` is dropped, too.
    pub fn start(server: &Arc<Server>) -> std::io::Result<Removal> {
        let stop = Arc::new(Stop::default());
        let (stopping, server) = (Arc::clone(&stop), Arc::downgrade(server));
        let thread = std::thread::Builder::new()
            .name("removal".to_owned())
            .stack_size(256 * 1024)
            .spawn(move || vital::thread("removal", || run(&stopping, &server)))?;
        Ok(Removal { stop, thread: Some(thread) })
    }

    /// Ends the thread. What is half removed goes after the next start.
    pub fn stop(&mut self) {
        *self.stop.is_wanted.lock() = true;
        self.stop.changed.notify_all();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            error!("the thread that removes files had panicked");
        }
    }
}

fn run(stop: &Stop, server: &Weak<Server>) {
    while stop.wait(LOOK) {
        let Some(server) = server.upgrade() else { return };
        server.logs.empty_trash(&mut |pause| stop.wait(pause));
    }
}

/// How long to wait behind each piece while `waiting` bytes may be freed and `usable` more may be written to the volume;
/// `None` where the system does not tell. What one topic leaves on a disk with room shortens them hardly: they are what keeps
/// the syncs of others short.
pub(super) fn pause(waiting: u64, usable: Option<u64>) -> Duration {
    let Some(usable) = usable else { return PAUSE };
    let urgent = (usable / URGENT_PART).max(1);
    PAUSE.mul_f64(1.0 - (waiting as f64 / urgent as f64).min(1.0).powi(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_waits_beside_what_is_free_the_shorter_are_the_pauses() {
        const GIB: u64 = 1 << 30;
        assert_eq!(pause(100 * GIB, None), PAUSE);
        assert_eq!(pause(0, Some(40 * GIB)), PAUSE);
        assert_eq!(pause(5 * GIB, Some(40 * GIB)), PAUSE * 15 / 16);
        assert_eq!(pause(10 * GIB, Some(40 * GIB)), PAUSE * 3 / 4);
        for (waiting, usable) in [(20 * GIB, 40 * GIB), (21 * GIB, 40 * GIB), (1, 0), (GIB, 3)] {
            assert_eq!(pause(waiting, Some(usable)), Duration::ZERO, "{waiting} of {usable}");
        }
    }
}
