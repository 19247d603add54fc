//! Loss of power, for real: an ext4 file system on a loop device is shut down under load without flushing its journal, so that
//! everything is gone that was not synced; then it is mounted again, a broker is started on what is left, and every record
//! that was acknowledged is looked for. The broker is stopped just before, as a power failure stops it: it acknowledges nothing
//! that the file system told it while this was being shut down.
//!
//! With `durability=fsync` none may be missing. With `page-cache` some must be: if none were, the trial would not bite.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use client::admin::NewTopic;
use client::{Admin, Cluster, ClusterConfig};
use peer::highwater::{self, Server};
use peer::procfs;
use perf::load::{self, ProduceLoad, ProduceReport, Sizes, Stop};
use perf::stamp::Verdict;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::requests::{self, PATIENCE, runtime};

/// Size of the file system. Sparse: only what is written takes room.
const IMAGE_BYTES: u64 = 1 << 30;
/// `EXT4_IOC_SHUTDOWN` with `EXT4_GOING_FLAGS_NOLOGFLUSH`: from here on the file system writes nothing, its journal neither.
/// Python, because a program without unsafe code has no way to make this call.
const SHUTDOWN: &str = "import fcntl, os, struct, sys\n\
    fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))\n";
/// The topics and how many partitions each has.
const TOPICS: [(&str, i32); 2] = [("one", 1), ("many", 9)];
/// How long reading back waits for a record.
const IDLE: Duration = Duration::from_secs(3);

/// What to do.
#[derive(clap::Args)]
pub struct Arguments {
    /// The program
    #[arg(long)]
    binary: PathBuf,
    /// Power failures for each durability
    #[arg(long, default_value_t = 10)]
    rounds: u64,
    /// Decides when the power fails
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What came of all power failures with one durability.
#[derive(Debug, Default)]
struct Toll {
    acknowledged: u64,
    lost: u64,
    damaged: u64,
    twice: u64,
}

/// Fails the power, with both durabilities.
pub fn run(arguments: &Arguments) -> Result<()> {
    if let Some(lacking) = lacking() {
        println!("powerloss: skipped, it needs {lacking}");
        return Ok(());
    }
    let synced = fail_power(arguments, "fsync")?;
    let cached = fail_power(arguments, "page-cache")?;
    ensure!(synced.acknowledged > 0, "nothing was acknowledged");
    ensure!(synced.lost + synced.damaged == 0, "durability=fsync lost acknowledged records");
    ensure!(cached.lost > 0, "durability=page-cache lost nothing: the trial does not bite");
    ensure!(synced.twice == 0, "idempotent producers' records are there twice");
    Ok(())
}

/// What this machine lacks for the trial.
fn lacking() -> Option<&'static str> {
    let lacks = |program: &str| !peer::process::is_installed(program);
    if !rustix::process::geteuid().is_root() {
        return Some("root, to mount a file system");
    }
    if lacks("mkfs.ext4") || lacks("mount") {
        return Some("mkfs.ext4 and mount");
    }
    if lacks("python3") {
        return Some("python3");
    }
    (!Path::new("/dev/loop-control").exists()).then_some("loop devices")
}

fn fail_power(arguments: &Arguments, durability: &str) -> Result<Toll> {
    let mut random = fastrand::Rng::with_seed(arguments.seed);
    let mut toll = Toll::default();
    for round in 1..=arguments.rounds {
        let after = Duration::from_millis(random.u64(500..4_000));
        let (report, verdict) = one_failure(&arguments.binary, durability, round as u32, after)
            .with_context(|| format!("durability={durability}, round {round}"))?;
        println!(
            "powerloss: durability={durability} round {round}: power failed after {after:?}, {} acknowledged, {} lost, {} damaged, {} twice",
            report.acknowledged, verdict.lost, verdict.damaged, verdict.duplicated
        );
        toll.acknowledged += report.acknowledged;
        toll.lost += verdict.lost;
        toll.damaged += verdict.damaged;
        toll.twice += verdict.duplicated;
    }
    println!("powerloss: durability={durability}: {toll:?}");
    Ok(toll)
}

fn one_failure(
    binary: &Path,
    durability: &str,
    run: u32,
    after: Duration,
) -> Result<(ProduceReport, Verdict)> {
    let volume = Volume::make()?;
    let server = start(binary, &volume, durability)?;
    create_topics(&server.bootstrap())?;
    let stop = Stop::default();
    let load = load_of(&server.bootstrap(), run);
    let loading = thread::spawn({
        let stop = stop.clone();
        move || load::produce(&load, &stop)
    });
    let is_over = || loading.is_finished();
    runtime()?.block_on(load_begins(&server.bootstrap(), is_over))?;
    let began = Instant::now();
    thread::sleep(after);
    stop_still(server.pid())?;
    volume.fail_power()?;
    server.kill()?;
    stop.stop();
    let report = loading.join().map_err(|_| anyhow::anyhow!("the load panicked"))?;
    let report = report.with_context(|| format!("the load failed within {:?}", began.elapsed()))?;
    volume.mount_again()?;
    let server = start(binary, &volume, durability)?;
    let verdict = load::verify(&server.bootstrap(), &report.acknowledgements, IDLE)?;
    server.stop()?;
    Ok((report, verdict))
}

/// Stops a process where it is. A sync that is under way when the file system is shut down may succeed though nothing of
/// it lasts: ext4 notes the place of the data behind the write, and whoever waits is not told that it could
/// not. Where the power fails nobody is left to believe that.
fn stop_still(pid: u32) -> Result<()> {
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw).context("no id of a process")?;
    kill_process(id, Signal::STOP)?;
    let deadline = Instant::now() + PATIENCE;
    while !procfs::stands_still(pid)? {
        ensure!(Instant::now() < deadline, "the broker is not stopped within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn start(binary: &Path, volume: &Volume, durability: &str) -> Result<Server> {
    let settings = [("durability", durability)];
    highwater::start(binary, &volume.mount.join("data"), 0, &settings)
}

fn create_topics(bootstrap: &str) -> Result<()> {
    runtime()?.block_on(async {
        let admin = Admin::new(Cluster::connect(ClusterConfig::new(bootstrap)).await?);
        let small = ("internal.segment.bytes".to_owned(), "1000000".to_owned());
        let topics: Vec<NewTopic> = TOPICS
            .iter()
            .map(|(name, partitions)| NewTopic {
                configs: vec![small.clone()],
                ..NewTopic::new(name, *partitions, 1)
            })
            .collect();
        for made in admin.create_topics(&topics, false).await? {
            made.1?;
        }
        Ok(())
    })
}

/// Waits until the first record is there for consumers, or the load is over.
async fn load_begins(bootstrap: &str, is_over: impl Fn() -> bool) -> Result<()> {
    let (connection, deadline) = (requests::connect(bootstrap).await?, Instant::now() + PATIENCE);
    let (topic, partition) = (TOPICS[0].0, 0);
    while !is_over() {
        let end = requests::list_offset(&connection, topic, partition, -1).await?;
        if end.is_ok_and(|end| end > 0) {
            break;
        }
        ensure!(Instant::now() < deadline, "nothing is written within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn load_of(bootstrap: &str, run: u32) -> ProduceLoad {
    let mut load = ProduceLoad {
        topics: TOPICS.iter().map(|(name, _)| (*name).to_owned()).collect(),
        producers: 2,
        sizes: Sizes::Mix(vec![(0.9, 120), (0.1, 3_000)]),
        time: Duration::from_secs(30),
        stamp: Some(run),
        ..ProduceLoad::new(bootstrap, TOPICS[0].0)
    };
    // The broker answers no more once the power has failed.
    load.producer.request_timeout = Duration::from_secs(1);
    load.producer.delivery_timeout = Duration::from_secs(2);
    load.producer.block_max = Duration::from_secs(1);
    load.producer.buffer_bytes = 1 << 20;
    load
}

/// An ext4 file system in a file; unmounted when dropped.
struct Volume {
    folder: TempDir,
    mount: PathBuf,
}

impl Volume {
    fn make() -> Result<Volume> {
        let folder = tempfile::Builder::new().prefix("highwater-volume-").tempdir()?;
        let image = folder.path().join("image");
        std::fs::File::create(&image)?.set_len(IMAGE_BYTES)?;
        command("mkfs.ext4", &["-q", "-F", &text(&image)])?;
        let mount = folder.path().join("mount");
        std::fs::create_dir(&mount)?;
        let volume = Volume { folder, mount };
        volume.mount()?;
        Ok(volume)
    }

    fn mount(&self) -> Result<()> {
        let image = self.folder.path().join("image");
        command("mount", &["-o", "loop", &text(&image), &text(&self.mount)])
    }

    fn fail_power(&self) -> Result<()> {
        command("python3", &["-c", SHUTDOWN, &text(&self.mount)])
    }

    fn mount_again(&self) -> Result<()> {
        command("umount", &[&text(&self.mount)])?;
        self.mount()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _unmounted = command("umount", &["-l", &text(&self.mount)]);
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn command(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output()?;
    if !output.status.success() {
        bail!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
