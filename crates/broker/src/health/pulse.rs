//! A thread that checks once a second whether the control and data threads run: it spawns a small
//! task on each runtime and counts the seconds in which the task did not run.

use std::fs;
use std::io;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use serving::health::pulse::ThreadPulse;
use tokio::runtime::Handle;
use tracing::{error, info};

use super::{HealthState, SharedHealth};

/// One tick of [`ThreadPulse`].
const TICK: Duration = Duration::from_secs(1);
/// State letter of a thread in `/proc` that waits for a device.
const WAITS_FOR_DEVICE: &str = "D";
/// Threads of the data runtime have this name.
const DATA_THREAD: &str = "data";
/// Bytes of stack of the thread.
const STACK_BYTES: usize = 128 * 1024;

/// One group of threads.
struct ThreadGroup {
    name: &'static str,
    runtime: Handle,
    pulse: ThreadPulse,
    /// Whether the task of the last tick ran.
    ran: Arc<AtomicBool>,
}

impl ThreadGroup {
    fn new(name: &'static str, runtime: Handle) -> ThreadGroup {
        let ran = Arc::new(AtomicBool::new(true));
        ThreadGroup { name, runtime, pulse: ThreadPulse::default(), ran }
    }

    /// Counts a tick. Returns whether the group is stalled.
    fn count_tick(&mut self) -> bool {
        let ran = self.ran.swap(false, Ordering::AcqRel);
        let was_stalled = self.pulse.is_stalled();
        self.pulse.count_tick(ran, !ran && waits_for_disk(self.name));
        if ran {
            let ran = Arc::clone(&self.ran);
            self.runtime.spawn(async move { ran.store(true, Ordering::Release) });
        }
        let (threads, is_stalled) = (self.name, self.pulse.is_stalled());
        match (was_stalled, is_stalled) {
            (false, true) => error!(threads, "threads have not run for 10 s: /livez returns 503"),
            (true, false) => info!(threads, "threads run again"),
            _ => {}
        }
        is_stalled
    }
}

/// Whether a thread of this group waits for a device. The control runtime runs on the thread that
/// started the process, and on any thread that is not named like a data thread in other programs.
fn waits_for_disk(group: &str) -> bool {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return false };
    let is_waiting = |stat: String| {
        // "TID (NAME) STATE …"; a name may contain spaces and brackets.
        let (before, after) = stat.rsplit_once(") ")?;
        let name = before.split_once(" (")?.1;
        let is_of_group = (name == DATA_THREAD) == (group == DATA_THREAD);
        Some(is_of_group && after.starts_with(WAITS_FOR_DEVICE))
    };
    let stats = threads.flatten().filter_map(|it| fs::read_to_string(it.path().join("stat")).ok());
    stats.filter_map(is_waiting).any(|waits| waits)
}

/// Starts the thread. It ends when the returned sender or the state is dropped. Errors: the system
/// refuses a thread.
pub fn watch_threads(
    state: &SharedHealth,
    control: Handle,
    data: Handle,
) -> io::Result<mpsc::Sender<()>> {
    let state: Weak<HealthState> = Arc::downgrade(state);
    let (ender, ended) = mpsc::channel();
    let thread = std::thread::Builder::new().name("pulse".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(move || {
        let mut control = ThreadGroup::new("control", control);
        let mut data = ThreadGroup::new(DATA_THREAD, data);
        while ended.recv_timeout(TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
            let Some(state) = state.upgrade() else { return };
            state.control_stalled.store(control.count_tick(), Ordering::Relaxed);
            state.data_stalled.store(data.count_tick(), Ordering::Relaxed);
        }
    })?;
    Ok(ender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serving::health::pulse::STALL_TICKS;
    use std::sync::mpsc::channel;

    #[test]
    fn a_runtime_whose_only_thread_is_blocked_is_stalled_until_it_runs() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let mut group = ThreadGroup::new("control", runtime.handle().clone());
        let (release, blocked) = channel::<()>();
        let (entered, is_blocked) = channel();
        runtime.spawn(async move {
            entered.send(()).unwrap();
            let _ = blocked.recv();
        });
        is_blocked.recv().unwrap();
        let ticks = (0..=STALL_TICKS).map(|_| group.count_tick()).collect::<Vec<_>>();
        assert!(!ticks[STALL_TICKS as usize - 1] && ticks[STALL_TICKS as usize], "{ticks:?}");
        drop(release);
        while !group.ran.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        assert!(!group.count_tick());
    }
}
