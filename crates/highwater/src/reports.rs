//! Reports that cost little however many there are: at most ten a second of each kind (a hundred of level
//! DEBUG or TRACE, which a client can set), then their count, through a bounded queue to a thread that writes them. No thread that reports waits for a
//! terminal or a pipe that nobody reads; only an error waits a moment to be written, for the process
//! may be about to end.
//!
//! A kind is the place in the program that reports.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::{Event, Level, Metadata, Subscriber, warn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Layer};

use crate::blocked_signals::BlockedSignals;

/// Lines of one kind that are written in a second.
const PER_SECOND: u32 = 10;
/// The same of level DEBUG or TRACE. Clients of the Kafka port may set these levels, and each request is a line.
const DEBUG_PER_SECOND: u32 = 100;
/// Lines that wait to be written; further ones are lost, and counted.
const QUEUE: usize = 4096;
/// How long an error waits to be written.
const ERROR_PATIENCE: Duration = Duration::from_millis(200);
/// How often counts of what was left out are told.
const TELL: Duration = Duration::from_secs(1);

/// What was reported of one kind in the present second.
struct Kind {
    since: Instant,
    count: u32,
    left_out: u64,
    place: &'static Metadata<'static>,
}

/// Leaves out what is too much. Cheap to clone.
#[derive(Clone, Default)]
pub struct Bound {
    kinds: Arc<Mutex<HashMap<usize, Kind>>>,
}

impl Bound {
    fn allows(&self, place: &'static Metadata<'static>, now: Instant) -> bool {
        let per_second = if *place.level() > Level::INFO { DEBUG_PER_SECOND } else { PER_SECOND };
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let key = std::ptr::from_ref(place) as usize;
        let kind = kinds.entry(key).or_insert(Kind { since: now, count: 0, left_out: 0, place });
        if now.duration_since(kind.since) >= Duration::from_secs(1) {
            (kind.since, kind.count) = (now, 0);
        }
        kind.count += 1;
        let allowed = kind.count <= per_second;
        kind.left_out += u64::from(!allowed);
        allowed
    }

    /// Takes the counts of what was left out.
    fn take_left_out(&self) -> Vec<(&'static Metadata<'static>, u64)> {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = kinds.values_mut().filter(|kind| kind.left_out > 0);
        counts.map(|kind| (kind.place, std::mem::take(&mut kind.left_out))).collect()
    }

    #[cfg(test)]
    fn forget_counts(&self) {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn tell_left_out(&self) {
        for (place, lines) in self.take_left_out() {
            let at = format!("{}:{}", place.file().unwrap_or("?"), place.line().unwrap_or(0));
            warn!(lines, at, "more lines of one kind were left out");
        }
    }
}

impl<S: Subscriber> Layer<S> for Bound {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.allows(event.metadata(), Instant::now())
    }
}

/// Where lines go: a queue that a thread empties. Cheap to clone.
#[derive(Clone)]
pub struct Queue {
    sender: SyncSender<Vec<u8>>,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    queued: AtomicU64,
    written: Mutex<u64>,
    more: Condvar,
    lost: AtomicU64,
    /// Whether waiting was in vain the last time.
    stuck: AtomicBool,
}

impl Queue {
    /// Starts the thread that writes to `out`, and tells what `bound` leaves out.
    pub fn start(out: impl Write + Send + 'static, bound: Bound) -> Queue {
        let (sender, receiver) = sync_channel(QUEUE);
        let progress = Arc::new(Progress::default());
        let writing = Arc::clone(&progress);
        let thread = std::thread::Builder::new().name("reports".to_owned());
        let _blocked = BlockedSignals::begin();
        if let Err(error) = thread.spawn(move || write_all(&receiver, out, &writing, &bound)) {
            eprintln!("no thread for reports can be started: {error}");
        }
        Queue { sender, progress }
    }

    fn push(&self, line: Vec<u8>) {
        match self.sender.try_send(line) {
            Ok(()) => {
                self.progress.queued.fetch_add(1, Ordering::SeqCst);
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.progress.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Waits until all that was queued is written, but no longer than `patience`.
    pub fn wait(&self, patience: Duration) {
        let wanted = self.progress.queued.load(Ordering::SeqCst);
        let written = self.progress.written.lock().unwrap_or_else(PoisonError::into_inner);
        let waited =
            self.progress.more.wait_timeout_while(written, patience, |written| *written < wanted);
        let in_vain = waited.is_ok_and(|(_, result)| result.timed_out());
        self.progress.stuck.store(in_vain, Ordering::Relaxed);
    }
}

fn write_all(
    receiver: &Receiver<Vec<u8>>,
    mut out: impl Write,
    progress: &Progress,
    bound: &Bound,
) {
    let mut told = Instant::now();
    loop {
        match receiver.recv_timeout(TELL) {
            Ok(line) => {
                // Nobody can be told that nobody can be told.
                let _ = out.write_all(&line);
                *progress.written.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                progress.stuck.store(false, Ordering::Relaxed);
                progress.more.notify_all();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if told.elapsed() >= TELL {
            told = Instant::now();
            bound.tell_left_out();
            let lost = progress.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                warn!(lines = lost, "lines were lost: they came faster than they could be written");
            }
        }
    }
}

/// One line on its way into the queue.
pub struct Line {
    queue: Queue,
    is_error: bool,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.queue.push(bytes.to_vec());
        if self.is_error && !self.queue.progress.stuck.load(Ordering::Relaxed) {
            self.queue.wait(ERROR_PATIENCE);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { queue: self.clone(), is_error: false }
    }

    fn make_writer_for(&'a self, place: &Metadata<'_>) -> Line {
        Line { queue: self.clone(), is_error: *place.level() == Level::ERROR }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tracing::{debug, info};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Collects what is written; the writing may be held up.
    #[derive(Clone, Default)]
    struct Out {
        text: Arc<Mutex<Vec<u8>>>,
        held: Arc<Mutex<()>>,
    }

    impl Write for Out {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _held = self.held.lock();
            self.text.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn reporting(out: &Out) -> (Queue, Bound, impl Subscriber + Send + Sync) {
        // The thread tells of another one, so that the test sees what is left out.
        let (queue, bound) = (Queue::start(out.clone(), Bound::default()), Bound::default());
        let lines = tracing_subscriber::fmt::layer().with_writer(queue.clone()).with_ansi(false);
        (queue, bound.clone(), tracing_subscriber::registry().with(bound).with(lines))
    }

    #[test]
    fn of_each_kind_so_many_a_second_are_written_and_the_rest_is_counted() {
        let out = Out::default();
        let (queue, bound, subscriber) = reporting(&out);
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..1000 {
                info!(number, "refused");
                debug!(number, "looked for");
            }
            info!("another kind");
            bound.tell_left_out();
        });
        queue.wait(Duration::from_secs(30));
        let text = String::from_utf8(out.text.lock().unwrap().clone()).unwrap();
        let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
        // A slow machine may take more than a second for a thousand.
        assert!((10..200).contains(&count("refused")), "{text}");
        assert!((100..1000).contains(&count("looked for")), "{text}");
        assert_eq!(count("another kind"), 1);
        assert!(count("left out") == 2 && text.contains("lines=9"), "{text}");
    }

    #[test]
    fn who_reports_does_not_wait_for_a_pipe_that_nobody_reads() {
        let out = Out::default();
        let held = out.held.lock().unwrap();
        let (queue, bound, subscriber) = reporting(&out);
        let (done, is_done) = mpsc::channel();
        let reporter = std::thread::spawn(move || {
            tracing::subscriber::with_default(subscriber, || {
                // The limit would leave most of them out.
                for number in 0..2 * QUEUE {
                    bound.forget_counts();
                    debug!(number, "a line");
                }
                // The first error waits a moment, the others know that it is in vain.
                (0..1000).for_each(|number| tracing::error!(number, "an error"));
            });
            done.send(()).unwrap();
        });
        let finished = is_done.recv_timeout(Duration::from_secs(60));
        drop(held);
        reporter.join().unwrap();
        assert!(finished.is_ok(), "the reporter waited");
        queue.wait(Duration::from_secs(30));
        assert!(out.text.lock().unwrap().len() > QUEUE, "what was queued is written in the end");
    }
}
