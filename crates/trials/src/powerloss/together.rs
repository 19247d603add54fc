//! All brokers of a cluster lose power at the same moment, under load, and come back.
//!
//! With `durability=fsync` the producers go on over the failure: what they send again must not be there twice. A second
//! kind of failure also takes one broker's disk: its data folder is empty when the power is back, and must be
//! filled again. With `page-cache` acknowledged records must be missing, and the cluster must serve all the same. After
//! each failure all replicas hold the same bytes.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use peer::highwater::Cluster;
use peer::process;

use super::Arguments;
use crate::ledger::{self, Verdict, Writing};
use crate::replicas;
use crate::volume::{self, Volume};

/// The topics and how many partitions each has.
const TOPICS: [(&str, i32); 2] = [("one", 1), ("many", 9)];
/// Small segments, so that names are made as well as bytes written.
const SMALL: [(&str, &str); 1] = [("internal.segment.bytes", "1000000")];
/// How long the brokers may take until all replicas are in sync again.
const RECOVERY: Duration = Duration::from_secs(120);
/// How long producers try when they are to go on over the failure.
const LASTING: Duration = Duration::from_secs(120);
/// How long they try otherwise.
const BRIEF: Duration = Duration::from_secs(2);
/// Records that must be acknowledged before the power may fail, and once it is back.
const SOME: u64 = 200;

/// What fails besides the power, and what was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Acknowledged is what is synced.
    Synced,
    /// The same, and one broker's disk is gone.
    Emptied,
    /// Acknowledged is what the page cache has.
    Cached,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Synced, Kind::Emptied, Kind::Cached];

    fn durability(self) -> &'static str {
        match self {
            Kind::Synced | Kind::Emptied => "fsync",
            Kind::Cached => "page-cache",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Kind::Synced => "durability=fsync",
            Kind::Emptied => "durability=fsync, one disk gone",
            Kind::Cached => "durability=page-cache",
        }
    }
}

/// Fails the power of all brokers, in each kind.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut tolls = Vec::new();
    for kind in Kind::ALL {
        tolls.push((kind, fail_power(arguments, kind)?));
    }
    for (kind, toll) in tolls {
        let words = kind.words();
        ensure!(toll.acknowledged > 0, "{words}: nothing was acknowledged");
        match kind {
            Kind::Synced | Kind::Emptied => {
                ensure!(toll.is_clean(), "{words}: the promise is broken: {toll}");
            }
            Kind::Cached => {
                ensure!(toll.lost > 0, "{words} lost nothing: the trial does not bite");
            }
        }
    }
    Ok(())
}

fn fail_power(arguments: &Arguments, kind: Kind) -> Result<Verdict> {
    let mut random = fastrand::Rng::with_seed(arguments.seed);
    let (words, mut toll) = (kind.words(), Verdict::default());
    for round in 1..=arguments.rounds {
        let after = Duration::from_millis(random.u64(500..4_000));
        let failure = Failure { arguments, kind, round, after };
        let verdict = failure.happens().with_context(|| format!("{words}, round {round}"))?;
        toll.absorb(&verdict);
    }
    println!("powerloss: {} brokers, {words}: {toll}", arguments.brokers);
    Ok(toll)
}

/// One failure of the power.
struct Failure<'a> {
    arguments: &'a Arguments,
    kind: Kind,
    round: u64,
    /// How long the load has run when it happens.
    after: Duration,
}

impl Failure<'_> {
    fn happens(&self) -> Result<Verdict> {
        let count = self.arguments.brokers;
        let volumes = (0..count).map(|_| Volume::make()).collect::<Result<Vec<_>>>()?;
        let folders: Vec<_> = volumes.iter().map(|volume| volume.path().to_owned()).collect();
        let settings = [("durability", self.kind.durability())];
        let mut cluster = Cluster::new(&self.arguments.binary, &folders, &settings)?;
        cluster.start_all()?;
        let lines = replicas::create_topics(&cluster.bootstrap(), &TOPICS, count, &SMALL)?;
        replicas::wait_until_all_in_sync(&mut cluster, &lines, RECOVERY)?;
        let (goes_on, patience) = match self.kind {
            Kind::Synced | Kind::Emptied => (true, LASTING),
            Kind::Cached => (false, BRIEF),
        };
        let writing = Writing::begin(&cluster.bootstrap(), lines.clone(), patience);
        writing.wait_for_more(SOME)?;
        thread::sleep(self.after);
        cut(&mut cluster, &volumes)?;
        let before = writing.acknowledged();
        let (mut writing, mut ledger) = (Some(writing), None);
        if !goes_on {
            ledger = writing.take().map(Writing::finish).transpose()?;
        }
        volumes.iter().try_for_each(Volume::mount_again)?;
        let emptied = (self.round as usize - 1) % count;
        if self.kind == Kind::Emptied {
            volumes[emptied].empty()?;
        }
        let began = Instant::now();
        cluster.start_all()?;
        let serve = began.elapsed();
        let in_sync = serve + replicas::wait_until_all_in_sync(&mut cluster, &lines, RECOVERY)?;
        if let Some(writing) = writing {
            writing.wait_for_more(SOME)?;
            ledger = Some(writing.finish()?);
        }
        let ledger = ledger.context("the producers ended once")?;
        let verdict = ledger.judge(&ledger::read_back(&cluster.bootstrap(), &lines)?);
        cluster.stop()?;
        let size_bytes = replicas::compare(&cluster, &lines)?;
        println!(
            "powerloss: {count} brokers, {} round {}{}: power failed after {:?} and {before} records; all serve after {serve:.1?}, in sync after {in_sync:.1?}; {verdict}; {size_bytes} bytes alike",
            self.kind.words(),
            self.round,
            if self.kind == Kind::Emptied {
                format!(" of broker {}", emptied + 1)
            } else {
                String::new()
            },
            self.after,
        );
        if let Some((count, why)) = ledger.failures().filter(|_| goes_on) {
            bail!("{count} records were given up though the brokers came back, the first: {why}");
        }
        Ok(verdict)
    }
}

/// Takes the power from all brokers: they stand still, then their file systems end where they are, then they are gone.
fn cut(cluster: &mut Cluster, volumes: &[Volume]) -> Result<()> {
    let pids = (0..cluster.count()).filter_map(|index| cluster.pid(index)).collect::<Vec<_>>();
    process::pause_processes(&pids)?;
    volume::fail_power(&volumes.iter().collect::<Vec<_>>())?;
    (0..cluster.count()).try_for_each(|index| cluster.kill(index))
}
