//! A connection that is alone: the data threads have served no other for a while. Its thread may wait for a device itself,
//! instead of waking another thread for that and being woken by it: two wake-ups cost as much as a small sync.
//!
//! Nobody is to wait for a device because somebody else's bytes go there. So a data thread does this only while it has nobody
//! else to serve, only one does at a time, and there must be another data thread. What that thread cannot know is
//! that the sockets are watched by nobody, for the runtime leaves them to whichever thread was idle last: after [`TICK`] at the
//! latest it is told ([`Watcher`]), and serves what comes meanwhile. See `docs/decisions/0037`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tracing::error;

use crate::vital;

/// How long no other connection must have been served.
const QUIET: Duration = Duration::from_millis(10);
/// A wait that has lasted between one and two of these is told to another data thread.
const TICK: Duration = Duration::from_millis(1);
/// Ticks without a wait after which the watcher sleeps until the next one.
const IDLE_TICKS_MAX: u32 = 4;
/// Bytes of stack of the watcher's thread.
const STACK_BYTES: usize = 128 * 1024;

/// Which connection was served last, and by whom waits are watched.
#[derive(Debug)]
pub struct Lone {
    began: Instant,
    numbered: AtomicU64,
    /// Number of the connection that was served last.
    last: AtomicU64,
    /// Since when no other was, in microseconds from `began`.
    since_us: AtomicU64,
    /// `None`: there is one data thread, and nobody could take over.
    watcher: Option<Watcher>,
}

impl Lone {
    /// For a runtime with so many threads. Starts the watcher if there are several.
    pub fn start(data: &Handle, threads: usize) -> io::Result<Lone> {
        let watcher = (threads > 1).then(|| Watcher::start(data)).transpose()?;
        Ok(Lone {
            began: Instant::now(),
            numbered: AtomicU64::new(0),
            last: AtomicU64::new(0),
            since_us: AtomicU64::new(0),
            watcher,
        })
    }

    /// A number for a new connection.
    pub fn number(&self) -> u64 {
        self.numbered.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A data thread serves this connection now.
    pub fn served(&self, connection: u64, now: Instant) {
        if self.last.load(Ordering::Relaxed) != connection {
            self.last.store(connection, Ordering::Relaxed);
            self.since_us.store(self.us(now), Ordering::Relaxed);
        }
    }

    /// Whether no other connection was served for a while, and a thread that serves this one may wait for a device.
    pub fn is_alone(&self, connection: u64, now: Instant) -> bool {
        let since_us = self.since_us.load(Ordering::Relaxed);
        self.watcher.is_some()
            && self.last.load(Ordering::Relaxed) == connection
            && self.us(now).saturating_sub(since_us) >= QUIET.as_micros() as u64
    }

    /// Does `wait` on this thread, which belongs to the runtime, unless another one waits like that; then returns `None`.
    pub fn wait<T>(&self, wait: impl FnOnce() -> T) -> Option<T> {
        let watch = &self.watcher.as_ref()?.watch;
        if !watch.begin() {
            return None;
        }
        let waited = wait();
        watch.end();
        Some(waited)
    }

    fn us(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_micros() as u64
    }
}

/// Sees to it that the sockets are watched while a data thread waits for a device for long: it gives the runtime a task that
/// does nothing. A thread that is idle takes it, and then the watch over the sockets.
#[derive(Debug)]
struct Watcher {
    watch: Arc<Watch>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    fn start(data: &Handle) -> io::Result<Watcher> {
        let watch = Arc::new(Watch::default());
        let (watched, data) = (Arc::clone(&watch), data.clone());
        let builder = std::thread::Builder::new().name("data-watch".to_owned());
        let thread = builder.stack_size(STACK_BYTES).spawn(move || {
            vital::thread("watch over waiting data threads", || watched.run(&data));
        })?;
        let _ = watch.thread.set(thread.thread().clone());
        Ok(Watcher { watch, thread: Some(thread) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.watch.stopping.store(true, Ordering::Release);
        let thread = self.thread.take().expect("it is taken here only");
        thread.thread().unpark();
        if thread.join().is_err() {
            error!("the watcher of the data threads had panicked");
        }
    }
}

/// What the watcher sees of the threads that wait.
#[derive(Debug, Default)]
struct Watch {
    /// Counts begins and ends: odd while a thread waits.
    count: AtomicU64,
    /// Whether the watcher sleeps until it is woken.
    asleep: AtomicBool,
    stopping: AtomicBool,
    thread: std::sync::OnceLock<Thread>,
}

impl Watch {
    /// Whether this thread is the one that waits.
    fn begin(&self) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        let is_free = count.is_multiple_of(2);
        // In one order with `asleep`: either the watcher sees the wait, or it is woken.
        if !is_free
            || self
                .count
                .compare_exchange(count, count + 1, Ordering::SeqCst, Ordering::Relaxed)
                .is_err()
        {
            return false;
        }
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.thread.get().inspect(|thread| thread.unpark());
        }
        true
    }

    fn end(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    fn run(&self, data: &Handle) {
        let (mut seen, mut idle_ticks) = (0, 0);
        while !self.stopping.load(Ordering::Acquire) {
            let count = self.count.load(Ordering::SeqCst);
            idle_ticks = if count == seen { idle_ticks + 1 } else { 0 };
            if count % 2 == 1 && idle_ticks == 1 {
                data.spawn(std::future::ready(()));
            }
            seen = count;
            if idle_ticks < IDLE_TICKS_MAX {
                std::thread::park_timeout(TICK);
                continue;
            }
            // While a thread waits there is nothing to be seen before it ends, and another begins.
            self.asleep.store(true, Ordering::SeqCst);
            if self.count.load(Ordering::SeqCst) == seen {
                std::thread::park();
            }
            self.asleep.store(false, Ordering::SeqCst);
            idle_ticks = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::*;

    /// How long anything may take on a machine that is busy with much else.
    const PATIENCE: Duration = Duration::from_secs(40);

    fn runtime(threads: usize) -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(threads).enable_all().build().unwrap()
    }

    #[test]
    fn a_connection_is_alone_when_no_other_was_served_for_a_while() {
        let runtime = runtime(2);
        let lone = Lone::start(runtime.handle(), 2).unwrap();
        let (one, other, now) = (lone.number(), lone.number(), Instant::now());
        lone.served(one, now);
        assert!(!lone.is_alone(one, now));
        lone.served(one, now + QUIET);
        assert!(lone.is_alone(one, now + QUIET));
        lone.served(other, now + QUIET);
        assert!(!lone.is_alone(one, now + QUIET) && !lone.is_alone(other, now + QUIET));
        lone.served(one, now + QUIET * 2);
        assert!(!lone.is_alone(one, now + QUIET * 2));
        assert!(lone.is_alone(one, now + QUIET * 3));
    }

    #[test]
    fn the_only_data_thread_never_waits() {
        let runtime = runtime(1);
        let lone = Lone::start(runtime.handle(), 1).unwrap();
        let now = Instant::now();
        lone.served(1, now);
        assert!(!lone.is_alone(1, now + QUIET * 2));
        assert_eq!(lone.wait(|| ()), None);
    }

    #[test]
    fn only_one_thread_waits() {
        let runtime = runtime(2);
        let lone = Lone::start(runtime.handle(), 2).unwrap();
        assert_eq!(lone.wait(|| lone.wait(|| ())), Some(None));
        assert_eq!(lone.wait(|| 1), Some(1));
    }

    /// The thread that is woken by the sockets waits until a byte of another socket was served, again and again: nobody
    /// serves it unless the watch over the sockets is taken over.
    #[test]
    fn sockets_are_served_while_a_data_thread_waits() {
        let runtime = runtime(2);
        let lone = Arc::new(Lone::start(runtime.handle(), 2).unwrap());
        let _inside = runtime.enter();
        let (mut to_waiting, mut waiting) = UnixStream::pair().unwrap();
        let (mut to_served, mut served) = UnixStream::pair().unwrap();
        let (served_now, was_served) = mpsc::channel();
        let (waits_now, is_waiting) = mpsc::channel();
        runtime.spawn(async move {
            while served.read_u8().await.is_ok() {
                let _ = served_now.send(());
            }
        });
        let task = runtime.spawn(async move {
            let mut rounds = 0;
            while waiting.read_u8().await.is_ok() {
                let waited = lone.wait(|| {
                    let _ = waits_now.send(());
                    was_served.recv_timeout(PATIENCE)
                });
                waited.unwrap().expect("the other socket is served");
                rounds += 1;
            }
            rounds
        });
        for _ in 0..20 {
            runtime.block_on(to_waiting.write_u8(1)).unwrap();
            is_waiting.recv_timeout(PATIENCE).unwrap();
            runtime.block_on(to_served.write_u8(1)).unwrap();
        }
        drop(to_waiting);
        assert_eq!(runtime.block_on(task).unwrap(), 20);
    }
}
