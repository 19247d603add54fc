//! Writes that hang, by log directory: appends to such a directory wait or are refused, and threads in reserve serve.
//!
//! The rule is `node::disks::append_admission`. A thread of its own observes the directories: the control thread may wait for a
//! device.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use node::disks::append_admission;
use partition::AppendAdmission;
use tracing::{info, warn};

use crate::cluster::SickDisks;
use crate::logs::Logs;
use crate::network::reserve_threads::ReserveThreads;

/// Time between two observations.
const OBSERVED_EVERY: Duration = Duration::from_millis(100);
/// Time between two observations from which the later one is late.
const OBSERVED_LATE: Duration = Duration::from_millis(250);
/// Bytes of stack of the thread.
const STACK_BYTES: usize = 128 * 1024;

/// Starts the thread. It ends when the returned sender is dropped.
///
/// # Errors
/// The system refuses a thread.
pub fn watch(
    logs: Arc<Logs>,
    disks: Arc<SickDisks>,
    mut reserve: ReserveThreads,
) -> io::Result<mpsc::Sender<()>> {
    let (ender, ended) = mpsc::channel();
    let thread = std::thread::Builder::new().name("hung-writes".to_owned());
    thread.stack_size(STACK_BYTES).spawn(move || {
        let mut observed_at = Instant::now();
        while ended.recv_timeout(OBSERVED_EVERY) == Err(RecvTimeoutError::Timeout) {
            // The process stood still, and its writes with it.
            let is_late = observed_at.elapsed() > OBSERVED_LATE;
            observed_at = Instant::now();
            if is_late {
                continue;
            }
            match observe(&logs, &disks) {
                true => reserve.release(),
                false => reserve.keep(),
            }
        }
    })?;
    Ok(ender)
}

/// Sets the admission of each directory. Returns whether writes hang in one.
fn observe(logs: &Logs, disks: &SickDisks) -> bool {
    let has_others = logs.directories().filter(|it| !it.is_offline()).count() > 1;
    let mut hangs = false;
    for (at, directory) in logs.directories().enumerate() {
        let age = disks.oldest_write(at);
        let admission = append_admission(age, has_others);
        let is_admitted = admission == AppendAdmission::Admitted;
        let was_admitted =
            directory.sync_queue().set_admission(admission) == AppendAdmission::Admitted;
        let (directory, age_ms) = (directory.path().display(), age.as_millis() as u64);
        match (was_admitted, is_admitted) {
            (true, false) => {
                warn!(%directory, age_ms, "a write hangs: appends to this log directory wait until it ends");
            }
            (false, true) => info!(%directory, "writes end again: appends are admitted"),
            _ => {}
        }
        hangs |= !is_admitted;
    }
    hangs
}
