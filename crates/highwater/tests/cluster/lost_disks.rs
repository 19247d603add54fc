//! What becomes of a cluster whose brokers lose their disks: the folder of one is emptied while it, or everything, is
//! stopped. Nothing acknowledged is lost, the empty one is refilled, and it votes again.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use client::{Admin, Cluster, ClusterConfig};
use model::ErrorCode;
use wire::DescribeLogDirsRequest;

use super::copies::recorded_mark;
use super::health::{cluster_health, codes, expected, http_of, until_named};
use super::hints::{block_on, open};
use super::replication::{all_acknowledged, kept, produce, wait_for_all_in_sync, wait_for_in_sync};
use super::*;

/// What of a broker's folder is not its disk.
pub(super) const NOT_DATA: [&str; 2] = ["server.properties", "broker.log"];

/// Moves everything that a stopped broker has stored to another folder.
pub(super) fn take_away(folder: &str, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if NOT_DATA.iter().all(|name| entry.file_name() != *name) {
            fs::rename(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// Puts back what was taken away.
fn put_back(from: &Path, folder: &str) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::rename(entry.path(), Path::new(folder).join(entry.file_name())).unwrap();
    }
}

/// Copies a folder with all that is in it.
pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// Copies a folder of a running broker, without entries of these names. A file that disappears meanwhile is left out.
pub(super) fn copy_running(from: &Path, to: &Path, without: &[&str]) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type() {
            _ if without.iter().any(|name| entry.file_name() == *name) => {}
            Ok(kind) if kind.is_dir() => copy_running(&entry.path(), &to, without),
            _ => drop(fs::copy(entry.path(), to)),
        }
    }
}

/// A broker that was started by hand; what it reports is in a file. It is killed at the end.
pub(super) struct Started {
    process: Child,
    reports: PathBuf,
}

impl Started {
    pub(super) fn of(folder: &str, reports: PathBuf) -> Started {
        let file = File::create(&reports).unwrap();
        let mut command = Command::new(HIGHWATER);
        command.arg("start").arg(Path::new(folder).join("server.properties"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        Started { process: command.spawn().unwrap(), reports }
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    pub(super) fn pause(&self) {
        pause_processes(&[self.process.id()]).unwrap();
    }

    pub(super) fn resume(&self) {
        resume_process(self.process.id()).unwrap();
    }

    /// Stops the broker as systems do; its exit code.
    pub(super) fn terminate(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.process.wait().unwrap().code()
    }

    /// Exit code of a broker that has ended.
    pub(super) fn exit_code(&mut self) -> Option<i32> {
        self.process.try_wait().unwrap()?.code()
    }

    fn reported(&self, words: &str) -> bool {
        self.said().contains(words)
    }

    pub(super) fn said(&self) -> String {
        fs::read_to_string(&self.reports).unwrap()
    }

    pub(super) fn wait_for_report(&self, words: &str) {
        let deadline = Instant::now() + LIMIT;
        while !self.reported(words) {
            assert!(Instant::now() < deadline, "no {words:?} in\n{}", self.said());
            std::thread::yield_now();
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The voters that have everything, and the members that do not vote, as the leader at one of these addresses says.
fn members(addresses: &[String]) -> Option<(BTreeSet<i32>, Vec<i32>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    addresses.iter().find_map(|address| {
        runtime.block_on(async {
            let call_timeout = Duration::from_secs(1);
            let config = ClusterConfig { call_timeout, ..ClusterConfig::new(address) };
            let admin = Admin::new(Cluster::connect(config).await.ok()?);
            let described = admin.describe_quorum().await.ok()?;
            let partition = described.topics.first()?.partitions.first()?;
            // A voter that is gone is listed, and has not caught up.
            let caught_up =
                partition.current_voters.iter().filter(|v| v.last_caught_up_timestamp > 0);
            let voters: BTreeSet<i32> = caught_up.map(|voter| voter.replica_id).collect();
            let all = voters.len() == partition.current_voters.len();
            let observers = partition.observers.iter().map(|o| o.replica_id).collect();
            all.then_some((voters, observers))
        })
    })
}

pub(super) fn wait_for_all_votes(addresses: &[String]) {
    wait_until("each of the three votes and has everything", || {
        members(addresses) == Some((BTreeSet::from([1, 2, 3]), Vec::new()))
    });
}

#[test]
fn a_voter_whose_disk_was_lost_is_refilled_and_votes_again() {
    let (place, folder) = place();
    let mut up = Up::of(&folder, 3, &[]);
    let (addresses, bootstrap) = (up.addresses(), up.bootstrap.clone());
    up.run("topic create kept -p 3 -r 3");
    all_acknowledged(produce(&bootstrap, 0..300));
    wait_for_all_in_sync(&bootstrap, "kept");

    // The one that would begin a new cluster, if any did.
    let first = up.brokers[0].clone();
    first.signal(Signal::KILL);
    up.says("broker 1");
    let old = place.path().join("old disk");
    take_away(&first.folder, &old);
    all_acknowledged(produce(&bootstrap, 300..600));
    // Twice in a row: the second time whatever it had got by then is lost as well.
    let reports = place.path().join("reports");
    let started = Started::of(&first.folder, reports.clone());
    wait_until("the metadata has begun to arrive", || {
        Path::new(&first.folder).join("__cluster_metadata-0/vote").exists()
    });
    started.kill();
    take_away(&first.folder, &place.path().join("another disk"));
    let started = Started::of(&first.folder, reports.clone());
    wait_for_all_in_sync(&bootstrap, "kept");
    wait_for_all_votes(&addresses);
    assert!(!started.reported("made a new cluster"));

    // Without another one it is needed, for votes and for records.
    up.brokers[1].signal(Signal::KILL);
    up.says("broker 2");
    all_acknowledged(produce(&bootstrap, 600..900));
    assert_eq!(kept(&bootstrap), (0..900).collect());
    let second = Started::of(&up.brokers[1].folder, place.path().join("reports of 2"));
    wait_for_all_in_sync(&bootstrap, "kept");

    // The first disk is found again, and takes the place of the one that came instead.
    started.kill();
    take_away(&first.folder, &place.path().join("a third disk"));
    put_back(&old, &first.folder);
    let started = Started::of(&first.folder, reports);
    wait_for_all_in_sync(&bootstrap, "kept");
    wait_for_all_votes(&addresses);
    assert_eq!(kept(&bootstrap), (0..900).collect());
    drop((started, second));
    up.stop();
}

#[test]
fn a_disk_that_is_lost_while_everything_is_stopped_is_refilled() {
    let (place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    up.run("topic create kept -p 3 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    let first = up.brokers[0].clone();
    up.stop();
    let reports = folder.join("broker-1/broker.log");
    let founded = || fs::read_to_string(&reports).unwrap().matches("made a new cluster").count();
    let founded_before = founded();
    take_away(&first.folder, &place.path().join("old disk"));
    let up = Up::of(&folder, 3, &[]);
    wait_for_all_in_sync(&up.bootstrap, "kept");
    wait_for_all_votes(&up.addresses());
    assert_eq!(kept(&up.bootstrap), (0..300).collect());
    assert_eq!(founded(), founded_before);
    all_acknowledged(produce(&up.bootstrap, 300..400));
    assert_eq!(kept(&up.bootstrap), (0..400).collect());
    up.stop();
}

/// The folder lacks what was acknowledged since, and says that its last stop was clean, as it was.
#[test]
fn a_folder_that_was_put_back_from_an_earlier_stop_leads_nothing() {
    let (place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    up.run("topic create kept -p 3 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    wait_for_all_in_sync(&up.bootstrap, "kept");
    let brokers = up.brokers.clone();
    up.stop();
    let backup = place.path().join("backup");
    copy(Path::new(&brokers[0].folder), &backup);

    let mut up = Up::of(&folder, 3, &[]);
    let bootstrap = up.bootstrap.clone();
    all_acknowledged(produce(&bootstrap, 300..600));
    wait_for_all_in_sync(&bootstrap, "kept");
    // The first one stops last: whoever else is in sync or eligible, this one is.
    for number in [3, 2] {
        up.brokers[number - 1].signal(Signal::TERM);
        up.says(&format!("broker {number}"));
    }
    up.stop();
    let stopped = place.path().join("stopped");
    take_away(&brokers[0].folder, &stopped);
    for name in NOT_DATA {
        let _ = fs::remove_file(backup.join(name));
    }
    // What it promised as a voter it remembers.
    fs::remove_dir_all(backup.join("__cluster_metadata-0")).unwrap();
    copy(&backup, Path::new(&brokers[0].folder));
    let metadata = Path::new(&brokers[0].folder).join("__cluster_metadata-0");
    fs::rename(stopped.join("__cluster_metadata-0"), metadata).unwrap();

    let start = |number: usize| {
        let reports = place.path().join(format!("reports of {number}"));
        Started::of(&brokers[number - 1].folder, reports)
    };
    let (first, second) = (start(1), start(2));
    wait_for_in_sync(&bootstrap, "kept", 2);
    assert_eq!(kept(&bootstrap), (0..600).collect(), "{}", first.said());
    let third = start(3);
    wait_for_all_in_sync(&bootstrap, "kept");
    assert_eq!(kept(&bootstrap), (0..600).collect());
    drop((first, second, third));
}

/// Cuts bytes off the first log file of a partition's folder, and returns what is left of it.
fn damage(folder: &Path) -> Vec<u8> {
    let path = folder.join("00000000000000000000.log");
    let whole = fs::read(&path).unwrap();
    let left = whole[..whole.len() / 2].to_vec();
    fs::write(&path, &left).unwrap();
    left
}

/// Produces a number in each partition of a topic, beginning with this one.
pub(super) fn produce_in_each(bootstrap: &str, topic: &str, partitions: usize, first: usize) {
    for partition in 0..partitions {
        let mut producing = Command::new(HIGHWATER);
        producing.args(["produce", topic, "-p", &partition.to_string(), "-b", bootstrap]);
        producing.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut producing = producing.spawn().unwrap();
        let record = format!("{}\n", first + partition);
        producing.stdin.take().unwrap().write_all(record.as_bytes()).unwrap();
        all_acknowledged(producing);
    }
}

/// Folders in `folder` whose name begins so.
pub(super) fn folders(folder: &str, begin: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let named = entries.filter(|e| e.file_name().to_str().unwrap().starts_with(begin));
    named.map(|entry| entry.path()).collect()
}

#[test]
fn a_damaged_replica_is_put_aside_and_copied_anew_unless_it_is_the_only_one() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    up.run("topic create kept -p 1 -r 3");
    up.run("topic create single -p 3 -r 1");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    produce_in_each(&up.bootstrap, "single", 3, 0);
    wait_for_all_in_sync(&up.bootstrap, "kept");
    let first = up.brokers[0].clone();
    up.stop();
    let left = damage(&Path::new(&first.folder).join("kept-0"));
    let singles = folders(&first.folder, "single-");
    let [single] = &singles[..] else { panic!("one of three: {singles:?}") };
    let only = damage(single);

    let up = Up::of(&folder, 3, &[]);
    wait_for_all_in_sync(&up.bootstrap, "kept");
    assert_eq!(kept(&up.bootstrap), (0..300).collect());
    let aside = folders(&first.folder, "kept-0.");
    let [aside] = &aside[..] else { panic!("it is kept once: {aside:?}") };
    assert_eq!(fs::read(aside.join("00000000000000000000.log")).unwrap(), left);
    assert_eq!(folders(&first.folder, "single-"), singles);
    assert_eq!(fs::read(single.join("00000000000000000000.log")).unwrap(), only);
    // What was copied is enough.
    up.brokers[1].signal(Signal::KILL);
    up.brokers[2].signal(Signal::KILL);
    drop(up);
    let up = Up::of(&folder, 3, &[]);
    wait_for_all_in_sync(&up.bootstrap, "kept");
    assert_eq!(kept(&up.bootstrap), (0..300).collect());
    assert_eq!(folders(&first.folder, "kept-0.").len(), 1, "nothing is put aside again");
    up.stop();
}

#[test]
fn without_a_majority_that_has_its_disks_no_new_cluster_is_made() {
    let (place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    up.run("topic create kept -p 3 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    let (brokers, bootstrap, addresses) =
        (up.brokers.clone(), up.bootstrap.clone(), up.addresses());
    up.stop();
    let disk = |number: usize| place.path().join(format!("disk {number}"));
    for number in [1, 2] {
        take_away(&brokers[number - 1].folder, &disk(number));
    }
    let start = |number: usize| {
        let reports = place.path().join(format!("reports of {number}"));
        Started::of(&brokers[number - 1].folder, reports)
    };
    // Two that are empty are two of three, and know nothing of a third.
    let (first, second) = (start(1), start(2));
    for started in [&first, &second] {
        started.wait_for_report("a new cluster needs all of its 3 voters");
    }
    let third = start(3);
    for started in [&first, &second, &third] {
        started.wait_for_report("never restore a copy");
        assert!(!started.reported("made a new cluster"));
    }
    // It is done.
    second.kill();
    take_away(&brokers[1].folder, &place.path().join("empty disk"));
    put_back(&disk(2), &brokers[1].folder);
    let second = start(2);
    wait_for_all_in_sync(&bootstrap, "kept");
    wait_for_all_votes(&addresses);
    assert_eq!(kept(&bootstrap), (0..300).collect());
    drop((first, second, third));
}

/// The brokers in sync of each partition of a topic, and its leader.
fn replicas_in_sync(bootstrap: &str, topic: &str) -> Vec<(i64, Vec<i64>)> {
    let rows = run(bootstrap, &format!("topic describe {topic} --format json"));
    let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
    let row = |row: &serde_json::Value| {
        let in_sync = row["in_sync"].as_array().unwrap().iter();
        (row["leader"].as_i64().unwrap(), in_sync.map(|id| id.as_i64().unwrap()).collect())
    };
    rows.as_array().unwrap().iter().map(row).collect()
}

/// One of two log directories of a broker is gone while the broker runs: its replicas leave the in-sync replicas, those in the
/// other directory stay, and what is acknowledged is kept.
#[test]
fn a_log_directory_that_fails_at_run_time_is_told_to_the_controller() {
    let (place, folder) = place();
    let mut up = Up::of(&folder, 3, &["--set", "replica.lag.time.max.ms=3000"]);
    let first = up.brokers[0].clone();
    first.signal(Signal::TERM);
    up.says("broker 1");
    let second = place.path().join("second disk");
    let file = Path::new(&first.folder).join("server.properties");
    let more = |line: &str| match line.strip_prefix("log.dirs=") {
        Some(dirs) => format!("log.dirs={dirs},{}\n", second.display()),
        None => format!("{line}\n"),
    };
    let properties: String = fs::read_to_string(&file).unwrap().lines().map(more).collect();
    assert!(properties.contains("second disk"), "{properties}");
    fs::write(&file, properties).unwrap();
    let reports = place.path().join("reports");
    let started = Started::of(&first.folder, reports.clone());
    wait_until("the first broker is back", || {
        let listed = try_run(&first.address, "cluster info");
        listed.status.success() && String::from_utf8_lossy(&listed.stdout).lines().count() == 4
    });
    up.run("topic create kept -p 4 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    wait_for_all_in_sync(&up.bootstrap, "kept");
    let number = |folder: PathBuf| {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        name.strip_prefix("kept-").unwrap().parse::<usize>().unwrap()
    };
    let gone: BTreeSet<usize> =
        folders(second.to_str().unwrap(), "kept-").into_iter().map(number).collect();
    assert!(!gone.is_empty() && gone.len() < 4, "they are in both directories: {gone:?}");

    fs::rename(&second, place.path().join("lost disk")).unwrap();
    // Before any operation on it finds that out.
    started.wait_for_report("the folder is gone");
    produce_in_each(&up.bootstrap, "kept", 4, 300);
    wait_until("the replicas on the disk are out of sync, and the others in sync", || {
        let partitions = replicas_in_sync(&up.bootstrap, "kept");
        partitions.into_iter().enumerate().all(|(number, (leader, in_sync))| {
            let is_gone = gone.contains(&number);
            is_gone != in_sync.contains(&1) && !(is_gone && leader == 1)
        })
    });
    assert_eq!(kept(&up.bootstrap), (0..304).collect());
    assert!(!started.reported("records that were committed are cut"), "{}", started.said());

    // The disk is there again.
    started.kill();
    fs::rename(place.path().join("lost disk"), &second).unwrap();
    let _started = Started::of(&first.folder, reports);
    wait_for_all_in_sync(&up.bootstrap, "kept");
    assert_eq!(kept(&up.bootstrap), (0..304).collect());
    up.stop();
}

/// Gives a stopped broker a second log directory.
pub(super) fn add_directory(broker: &str, second: &Path) {
    let file = Path::new(broker).join("server.properties");
    let more = |line: &str| match line.strip_prefix("log.dirs=") {
        Some(dirs) => format!("log.dirs={dirs},{}\n", second.display()),
        None => format!("{line}\n"),
    };
    let properties: String = fs::read_to_string(&file).unwrap().lines().map(more).collect();
    assert!(properties.contains(second.to_str().unwrap()), "{properties}");
    fs::write(&file, properties).unwrap();
}

/// Numbers of the partitions of `kept` with a folder here.
pub(super) fn kept_in(folder: &str) -> BTreeSet<usize> {
    let number = |folder: PathBuf| {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        name.strip_prefix("kept-").unwrap().parse().unwrap()
    };
    folders(folder, "kept-").into_iter().map(number).collect()
}

/// Waits until broker 1 is in sync in the partitions of `kept` that are not `gone`, and in no other one.
fn wait_for_others_in_sync(bootstrap: &str, gone: &BTreeSet<usize>) {
    wait_until("missing replicas are out of sync, and the others in sync", || {
        let partitions = replicas_in_sync(bootstrap, "kept");
        partitions.into_iter().enumerate().all(|(number, (leader, in_sync))| {
            let is_gone = gone.contains(&number);
            is_gone != in_sync.contains(&1) && !(is_gone && leader == 1)
        })
    });
}

/// One of two log directories is not mounted when the broker starts: the broker serves the other one, copies nothing, and uses
/// the replicas again when the disk is back. When the disk stays away for long, other directories get copies.
#[test]
fn a_broker_starts_without_a_log_directory_whose_disk_is_missing() {
    let (place, folder) = place();
    let mut up = Up::of(&folder, 3, &[]);
    let first = up.brokers[0].clone();
    let (second, lost) = (place.path().join("second disk"), place.path().join("lost disk"));
    let (own, other) = (first.folder.clone(), second.to_str().unwrap().to_owned());
    first.signal(Signal::TERM);
    up.says("broker 1");
    add_directory(&own, &second);
    let reports = place.path().join("reports");
    let start = || Started::of(&own, reports.clone());
    let started = start();
    wait_until("the first broker is back", || {
        let listed = try_run(&first.address, "cluster info");
        listed.status.success() && String::from_utf8_lossy(&listed.stdout).lines().count() == 4
    });
    up.run("topic create kept -p 6 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    wait_for_all_in_sync(&up.bootstrap, "kept");
    let (gone, here) = (kept_in(&other), kept_in(&own));
    assert!(!gone.is_empty() && !here.is_empty(), "they are in both: {gone:?}, {here:?}");
    started.kill();
    fs::rename(&second, &lost).unwrap();

    // The second start finds a folder that the first one made.
    for number in [300u32, 306] {
        let started = start();
        started.wait_for_report("log directory is missing and its folder is empty");
        wait_for_others_in_sync(&up.bootstrap, &gone);
        produce_in_each(&up.bootstrap, "kept", 6, number as usize);
        assert_eq!(kept(&up.bootstrap), (0..number + 6).collect());
        wait_until("health names the missing directory", || {
            let health = try_run(&first.address, "cluster health");
            String::from_utf8_lossy(&health.stdout).contains("is missing")
        });
        started.kill();
        assert_eq!((kept_in(&own), kept_in(&other)), (here.clone(), BTreeSet::new()));
    }

    // The disk is mounted: the replicas there are used again.
    fs::remove_dir_all(&second).unwrap();
    fs::rename(&lost, &second).unwrap();
    let started = start();
    wait_for_all_in_sync(&up.bootstrap, "kept");
    assert_eq!((kept_in(&own), kept_in(&other)), (here.clone(), gone.clone()));
    assert_eq!(folders(&other, "kept-").len(), gone.len(), "none was put aside");
    started.kill();

    // It is away for longer than a copy waits.
    fs::rename(&second, &lost).unwrap();
    let file = Path::new(&own).join("server.properties");
    let soon = "\nhighwater.missing.directory.copy.after.ms=1\n";
    fs::write(&file, fs::read_to_string(&file).unwrap() + soon).unwrap();
    let _started = start();
    wait_until("the other directory has copies", || kept_in(&own).len() == 6);
    wait_for_all_in_sync(&up.bootstrap, "kept");
    assert_eq!(kept(&up.bootstrap), (0..312).collect());
    up.stop();
}

/// The log directories of a broker, each with its error code (DescribeLogDirs).
fn directory_errors(address: &str) -> Vec<(String, ErrorCode)> {
    let request = DescribeLogDirsRequest::default();
    let answer = block_on(async { open(address).await.call_version(&request, 4).await.unwrap() });
    answer.results.iter().map(|it| (it.log_dir.clone(), it.error())).collect()
}

/// Log directories of a broker without an error.
fn online_directories(address: &str) -> usize {
    directory_errors(address).iter().filter(|(_, error)| *error == ErrorCode::None).count()
}

/// While a directory is away the marks of the other one rise. The directory comes back with its earlier mark, and does not count as a copy.
#[test]
fn marks_that_rise_while_a_directory_is_away_make_it_no_copy() {
    let (place, folder) = place();
    let mut up = Up::of(&folder, 3, &["--set", "highwater.mark.interval.ms=200"]);
    let first = up.brokers[0].clone();
    let (second, lost) = (place.path().join("second disk"), place.path().join("lost disk"));
    let (own, other) = (first.folder.clone(), second.to_str().unwrap().to_owned());
    first.signal(Signal::TERM);
    up.says("broker 1");
    add_directory(&own, &second);
    let http = http_of(Path::new(&own));
    let start = || {
        let started = Started::of(&own, place.path().join("reports"));
        wait_until("the broker serves", || codes(&http).is_some_and(|(_, ready, ..)| ready == 200));
        started
    };
    let started = start();
    up.run("topic create kept -p 6 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    wait_for_all_in_sync(&up.bootstrap, "kept");
    let (gone, here) = (kept_in(&other), kept_in(&own));
    assert!(!gone.is_empty() && !here.is_empty(), "they are in both: {gone:?}, {here:?}");
    let mut next = 300;
    let mut raise_marks = || {
        let before = recorded_mark(&up.brokers[1].folder, 1);
        wait_until("a later mark of the broker is recorded", || {
            produce_in_each(&up.bootstrap, "kept", 6, next);
            next += 6;
            recorded_mark(&up.brokers[1].folder, 1) > before
        });
    };
    raise_marks();
    assert_eq!(online_directories(&first.address), 2);
    started.kill();
    fs::rename(&second, &lost).unwrap();

    // F11: the disk is not mounted.
    let started = start();
    let answer = until_named(&http, "log_directory_offline");
    assert_eq!((answer.code, answer.status()), (200, "degraded"), "{answer:?}");
    assert_eq!(codes(&http), expected(200, 200, 200, "degraded"));
    let (exit, text) = cluster_health(&up.bootstrap);
    let named = format!("broker 1: log_directory_offline: {other}: ");
    assert!(exit == 1 && text.contains(&named) && text.contains("is missing"), "{text}");
    // Kafka lists a directory that is offline, with this code and nothing else.
    let errors = directory_errors(&first.address);
    assert!(errors.contains(&(other.clone(), ErrorCode::KafkaStorageError)), "{errors:?}");
    assert_eq!(online_directories(&first.address), 1);
    wait_for_others_in_sync(&up.bootstrap, &gone);
    for _ in 0..3 {
        raise_marks();
    }
    started.kill();

    fs::remove_dir_all(&second).unwrap();
    fs::rename(&lost, &second).unwrap();
    let started = start();
    wait_for_all_in_sync(&up.bootstrap, "kept");
    assert!(!started.reported("put back from a copy"), "{}", started.said());
    assert_eq!(codes(&http), expected(200, 200, 200, "ok"));
    assert_eq!(online_directories(&first.address), 2);
    assert_eq!((kept_in(&own), kept_in(&other)), (here, gone));
    assert_eq!(kept(&up.bootstrap), (0..next as u32).collect());
    started.kill();
    up.stop();
}
