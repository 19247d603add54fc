//! Removing what was deleted: on a thread of its own, because a large file goes piece by piece, with pauses, so that
//! freeing it holds up nobody's sync.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing::error;

use crate::server::Server;
use crate::vital;

/// How often something is looked for that may be removed.
const LOOK: Duration = Duration::from_secs(1);
/// How long to wait behind each piece: some 160 MB are freed a second.
const PAUSE: Duration = Duration::from_millis(25);

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
        if !*is_wanted {
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
        server.logs.empty_trash(&mut || stop.wait(PAUSE));
    }
}
