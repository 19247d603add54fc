//! Readers in processes of their own, which are told what to do by lines and tell what they see by lines.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use peer::process::{self, Guarded};
use perf::web::{EventParser, WebError};
use tokio::sync::watch;
use tokio::time::sleep;

use super::reader::{self, Known};
use super::{GATEWAYS, TOPICS};

/// One of so many stops reading when it is told to.
const STUCK_PART: usize = 10;
/// How long a reader waits, at most, before it tries the next gateway behind one that let it not in.
const AGAIN_MAX: Duration = Duration::from_millis(500);
/// A stream that ends sooner was sent away: it is not begun again at once.
const SHORT: Duration = Duration::from_secs(1);
/// How long a process of readers may take to end.
const END_LIMIT: Duration = Duration::from_secs(30);
/// Bounds of the times that are counted: each a twentieth above the one before, from a tenth of a millisecond on.
const BUCKETS: usize = 320;

/// What all readers look like.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sight {
    /// Readers with a stream.
    pub(super) open: usize,
    /// The least number of `news` that comes next to somebody who reads.
    pub(super) news_min: u64,
    /// Of `flood`, to one of those who may be stuck, whether or not it is.
    pub(super) flood_min: u64,
    /// Times since the last look between being written and being read, by those who read: microseconds.
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
    events: u64,
    /// How often a stream was begun, and how often that failed.
    begun: u64,
    failed: u64,
    pub(super) gaps: u64,
    pub(super) said_gaps: u64,
    pub(super) repeats: u64,
    /// The first thing that was wrong.
    pub(super) words: String,
}

impl fmt::Display for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |us: u64| us as f64 / 1000.0;
        write!(
            f,
            "{} open, {} events read, p50 {:.1}, p99 {:.1}, longest {:.1} ms; streams begun {}, tries that failed {}; left out {}, twice {}",
            self.open,
            self.events,
            ms(self.p50_us),
            ms(self.p99_us),
            ms(self.max_us),
            self.begun,
            self.failed,
            self.gaps,
            self.repeats
        )?;
        if self.words.is_empty() { Ok(()) } else { write!(f, " ({})", self.words) }
    }
}

/// Times by size.
struct Times([AtomicU64; BUCKETS]);

fn bound_us(bucket: usize) -> f64 {
    100.0 * 1.05f64.powi(bucket as i32)
}

impl Times {
    fn note(&self, us: u64) {
        let bucket = ((us.max(100) as f64 / 100.0).ln() / 1.05f64.ln()).ceil() as usize;
        self.0[bucket.min(BUCKETS - 1)].fetch_add(1, Relaxed);
    }

    fn take(&self) -> Vec<u64> {
        self.0.iter().map(|count| count.swap(0, Relaxed)).collect()
    }
}

/// The time below which this share of the counts lies, microseconds.
fn quantile_us(counts: &[u64], share: f64) -> u64 {
    let all: u64 = counts.iter().sum();
    let wanted = (all as f64 * share).ceil() as u64;
    let mut seen = 0;
    let found = counts.iter().position(|count| {
        seen += count;
        seen >= wanted && wanted > 0
    });
    found.map_or(0, |bucket| bound_us(bucket) as u64)
}

/// What the readers of a process share.
struct Common {
    gateways: Vec<String>,
    stuck: watch::Receiver<bool>,
    times: Times,
    open: AtomicUsize,
    begun: AtomicU64,
    failed: AtomicU64,
    known: Vec<Mutex<Known>>,
}

/// The main of a process of readers: `count` of them, the first of which is the one of number `first` among all.
pub fn serve(gateways: &[String], first: usize, count: usize) -> Result<()> {
    let (tell, stuck) = watch::channel(false);
    let common = Arc::new(Common {
        gateways: gateways.to_vec(),
        stuck,
        times: Times(std::array::from_fn(|_| AtomicU64::new(0))),
        open: AtomicUsize::new(0),
        begun: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        known: (first..first + count)
            .map(|number| Mutex::new(Known::new(may_be_stuck(number))))
            .collect(),
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    for at in 0..count {
        let (common, number) = (Arc::clone(&common), first + at);
        runtime.spawn(async move { read(&common, at, number).await });
    }
    let (mut out, input) = (std::io::stdout(), std::io::stdin());
    for line in input.lock().lines() {
        match line?.as_str() {
            "stuck" => drop(tell.send_replace(true)),
            "go on" => drop(tell.send_replace(false)),
            "look" => {
                writeln!(out, "{}", common.line(first))?;
                out.flush()?;
            }
            _ => break,
        }
    }
    runtime.shutdown_background();
    Ok(())
}

/// Whether the reader of this number stops reading when it is told to.
fn may_be_stuck(number: usize) -> bool {
    number.is_multiple_of(STUCK_PART)
}

/// Reads for ever: on one gateway, and when that is gone on the next.
async fn read(common: &Common, at: usize, number: usize) {
    let may_be_stuck = may_be_stuck(number);
    let topics = if may_be_stuck { TOPICS.join(",") } else { TOPICS[0].to_owned() };
    let (mut parser, mut gateway) = (EventParser::default(), number % GATEWAYS);
    loop {
        let (mut is_open, began) = (false, Instant::now());
        let ended =
            stream(common, at, gateway, may_be_stuck, &topics, &mut parser, &mut is_open).await;
        if is_open {
            common.open.fetch_sub(1, Relaxed);
        } else {
            common.failed.fetch_add(1, Relaxed);
        }
        drop(ended);
        // What had come of an event that is not whole comes again.
        let id = parser.id().to_vec();
        parser = EventParser::at(id);
        gateway = (gateway + 1) % common.gateways.len();
        // At once where a stream breaks off, as all of a gateway's do when it is killed.
        if !is_open || began.elapsed() < SHORT {
            sleep(AGAIN_MAX.mul_f64(fastrand::f64())).await;
        }
    }
}

async fn stream(
    common: &Common,
    at: usize,
    gateway: usize,
    may_be_stuck: bool,
    topics: &str,
    parser: &mut EventParser,
    is_open: &mut bool,
) -> Result<(), WebError> {
    let address = &common.gateways[gateway];
    let request = reader::request(address, topics, parser.id());
    let mut connection = reader::open(address).await?;
    let mut reading = reader::begin(&mut connection, &request).await?;
    *is_open = true;
    common.open.fetch_add(1, Relaxed);
    common.begun.fetch_add(1, Relaxed);
    let mut stuck = common.stuck.clone();
    loop {
        if may_be_stuck {
            // The sender is in the main thread to the end.
            let _ = stuck.wait_for(|stuck| !*stuck).await;
        }
        let (mut failed, now_us) = (Ok(()), now_us());
        let more = reading.piece(|bytes| {
            let mut known = common.known[at].lock().expect("no code under it panics");
            failed = reader::take(parser, &mut known, bytes, |written_us| {
                if !may_be_stuck {
                    common.times.note(self::now_us().max(now_us).saturating_sub(written_us));
                }
            });
        });
        let more = more.await?;
        failed?;
        if !more {
            return Ok(());
        }
    }
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as u64
}

impl Common {
    /// What is seen of these readers, in a line.
    fn line(&self, first: usize) -> String {
        let (mut news_min, mut flood_min) = (u64::MAX, u64::MAX);
        let mut sum = [0; 3];
        let (mut words, is_stuck) = (String::new(), *self.stuck.borrow());
        for (at, known) in self.known.iter().enumerate() {
            let known = known.lock().expect("no code under it panics");
            let may_be_stuck = may_be_stuck(first + at);
            if !(may_be_stuck && is_stuck) {
                news_min = news_min.min(known.next(0));
            }
            if may_be_stuck {
                flood_min = flood_min.min(known.next(1));
            }
            for (sum, of) in sum.iter_mut().zip([known.gaps, known.said_gaps, known.repeats]) {
                *sum += of;
            }
            if words.is_empty() {
                words.clone_from(&known.words);
            }
        }
        let numbers = [
            self.open.load(Relaxed) as u64,
            news_min,
            flood_min,
            self.begun.load(Relaxed),
            self.failed.load(Relaxed),
            sum[0],
            sum[1],
            sum[2],
        ];
        let text =
            |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        format!(
            "{};{};{}",
            text(&numbers),
            text(&self.times.take()),
            words.replace(['\n', ';'], " ")
        )
    }
}

/// All readers, as the trial sees them.
pub(super) struct Crowd(Vec<Process>);

struct Process {
    process: Guarded,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Crowd {
    /// Starts so many readers, in as many processes as there are gateways.
    pub(super) fn start(readers: usize, gateways: &[String]) -> Result<Crowd> {
        let own = std::env::current_exe()?;
        let (mut processes, mut first) = (Vec::new(), 0);
        for at in 0..GATEWAYS {
            let count = readers / GATEWAYS + usize::from(at < readers % GATEWAYS);
            let mut command = process::command(&own);
            command.args([
                "herd-readers",
                "--first",
                &first.to_string(),
                "--count",
                &count.to_string(),
            ]);
            command.args(gateways).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut process = Guarded::spawn(&mut command)?;
            let input = process.child().stdin.take().context("its input was piped")?;
            let output = process.child().stdout.take().context("its output was piped")?;
            processes.push(Process { process, input, output: BufReader::new(output) });
            first += count;
        }
        Ok(Crowd(processes))
    }

    /// Tells all of them.
    pub(super) fn tell(&mut self, word: &str) -> Result<()> {
        for process in &mut self.0 {
            writeln!(process.input, "{word}")?;
            process.input.flush()?;
        }
        Ok(())
    }

    /// What is seen of all; times are those since the last look.
    pub(super) fn look(&mut self) -> Result<Sight> {
        self.tell("look")?;
        let mut all = Sight { news_min: u64::MAX, flood_min: u64::MAX, ..Sight::default() };
        let mut times = vec![0; BUCKETS];
        for process in &mut self.0 {
            let mut line = String::new();
            ensure!(process.output.read_line(&mut line)? > 0, "a process of readers has ended");
            all.add(&line, &mut times).with_context(|| format!("readers said {line:?}"))?;
        }
        all.events = times.iter().sum();
        [all.p50_us, all.p99_us, all.max_us] =
            [0.5, 0.99, 1.0].map(|share| quantile_us(&times, share));
        Ok(all)
    }

    /// Ends them.
    pub(super) fn stop(self) -> Result<()> {
        for Process { mut process, input, .. } in self.0 {
            drop(input);
            ensure!(process.wait(END_LIMIT)?.is_some(), "readers do not end");
        }
        Ok(())
    }
}

impl Sight {
    fn add(&mut self, line: &str, times: &mut [u64]) -> Result<()> {
        let mut parts = line.trim_end().splitn(3, ';');
        let numbers = |part: Option<&str>| -> Result<Vec<u64>> {
            let part = part.context("a part is missing")?;
            part.split(' ').map(|word| Ok(word.parse()?)).collect()
        };
        let [open, news, flood, begun, failed, gaps, said_gaps, repeats] =
            numbers(parts.next())?[..]
        else {
            anyhow::bail!("eight numbers were expected");
        };
        self.open += usize::try_from(open)?;
        self.news_min = self.news_min.min(news);
        self.flood_min = self.flood_min.min(flood);
        self.begun += begun;
        self.failed += failed;
        self.gaps += gaps;
        self.said_gaps += said_gaps;
        self.repeats += repeats;
        for (sum, count) in times.iter_mut().zip(numbers(parts.next())?) {
            *sum += count;
        }
        if self.words.is_empty() {
            parts.next().unwrap_or_default().clone_into(&mut self.words);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_within_a_twentieth() {
        let times = Times(std::array::from_fn(|_| AtomicU64::new(0)));
        for ms in 1..=1000 {
            times.note(ms * 1000);
        }
        let counts = times.take();
        for (share, ms) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = quantile_us(&counts, share) as f64 / 1000.0;
            assert!((ms..ms * 1.06).contains(&found), "{share}: {found}");
        }
        assert_eq!(quantile_us(&times.take(), 0.5), 0, "taken");
    }

    #[test]
    fn what_processes_see_is_put_together() {
        let (mut sight, mut times) =
            (Sight { news_min: u64::MAX, flood_min: u64::MAX, ..Sight::default() }, [0; 2]);
        sight.add("3 10 5 3 0 0 0 0;1 2;\n", &mut times).unwrap();
        sight.add("4 9 7 5 1 1 0 2;0 3;8 came, 7 was next\n", &mut times).unwrap();
        assert_eq!((sight.open, sight.news_min, sight.flood_min, sight.begun), (7, 9, 5, 8));
        assert_eq!((sight.failed, sight.gaps, sight.repeats, times), (1, 1, 2, [1, 5]));
        assert_eq!(sight.words, "8 came, 7 was next");
        assert!(sight.add("3 10", &mut times).is_err());
    }
}
