//! Closing files of logs when few more may be opened. On a thread of its own: requests are put off while
//! nothing can be opened, and no chore may hold that up.

use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use storage::Log;
use storage::disk::reserve;
use tracing::error;

use super::chores::each;
use crate::server::Server;
use crate::vital;

/// How soon files are closed that waited for their sync.
const SYNCED_LOOK: Duration = Duration::from_millis(50);

/// The thread, and how to end it.
pub struct Files {
    calls: Arc<Calls>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is called for.
#[derive(Debug, Default)]
struct Calls {
    called: Mutex<Called>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Called {
    stop: bool,
    is_short: bool,
}

impl Calls {
    fn call(&self, change: impl FnOnce(&mut Called)) {
        change(&mut self.called.lock());
        self.changed.notify_all();
    }

    /// Waits until files are scarce, at most `patience` if one is given; false if the thread is to end.
    fn wait(&self, patience: Option<Duration>) -> bool {
        let mut called = self.called.lock();
        while !called.stop && !called.is_short {
            match patience {
                Some(patience) if self.changed.wait_for(&mut called, patience).timed_out() => break,
                Some(_) => {}
                None => self.changed.wait(&mut called),
            }
        }
        called.is_short = false;
        !called.stop
    }
}

/// Woken when files get scarce.
impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.call(|called| called.is_short = true);
    }
}

impl Files {
    /// Starts the thread. It ends when it is stopped, or called when `server` is gone.
    pub fn start(server: &Arc<Server>) -> std::io::Result<Files> {
        let calls = Arc::new(Calls::default());
        let (called, server) = (Arc::clone(&calls), Arc::downgrade(server));
        let thread = std::thread::Builder::new()
            .name("files".to_owned())
            .stack_size(512 * 1024)
            .spawn(move || vital::thread("files", || run(&called, &server)))?;
        Ok(Files { calls, thread: Some(thread) })
    }

    /// Ends the thread.
    pub fn stop(&mut self) {
        self.calls.call(|called| called.stop = true);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            error!("the thread that closes files had panicked");
        }
    }
}

fn run(calls: &Arc<Calls>, server: &Weak<Server>) {
    let mut patience = None;
    reserve::on_shortage(Waker::from(Arc::clone(calls)));
    while calls.wait(patience) {
        let Some(server) = server.upgrade() else { return };
        close_files(&server);
        // Before the look: what is opened behind it calls.
        reserve::on_shortage(Waker::from(Arc::clone(calls)));
        patience = reserve::is_short().then_some(SYNCED_LOOK);
    }
}

/// Closes files of logs until there is room for others: first those that were not used since the last
/// look, then all that are synced. What is not synced is synced first, to be closed at the next look.
fn close_files(server: &Arc<Server>) {
    let release = |release: fn(&mut Log)| {
        each(server, |partition| partition.release_files_in_need(release));
    };
    release(Log::release_idle_files);
    if !reserve::is_short() {
        return;
    }
    each(server, |partition| {
        // What is not synced is open.
        if partition.may_hold_files() {
            partition.request_sync();
        }
        Ok(())
    });
    release(Log::release_files);
}
