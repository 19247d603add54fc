//! One of two log directories of a broker hangs. The partitions of the other directory, the Kafka port and the health pages go
//! on for as long as the fault lasts.

use std::collections::BTreeSet;

use super::copies::recorded_mark;
use super::health::{FreezableVolume, Node, codes, expected, http_of, until_named};
use super::lost_disks::{Started, add_directory, kept_in};
use super::replication::{
    all_acknowledged, described, kept, wait_for_all_in_sync, wait_for_in_sync,
};
use super::*;

const PARTITIONS: usize = 12;
/// Marks that are recorded one after the other while a directory hangs: more than can be under way when it begins to hang.
const LATER_MARKS: usize = 5;

/// A producer of one number in one partition of `kept`.
fn produce_one(bootstrap: &str, partition: usize, number: usize) -> Child {
    let mut command = Command::new(HIGHWATER);
    command.args(["produce", "kept", "-p", &partition.to_string(), "-b", bootstrap]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{number}\n").as_bytes()).unwrap();
    child
}

/// Produces one number in each of these partitions, from `first` on, by a process for each. All must be acknowledged. Returns the
/// next number.
fn produce_in(bootstrap: &str, partitions: impl IntoIterator<Item = usize>, first: usize) -> usize {
    let numbered = partitions.into_iter().zip(first..);
    let producers: Vec<Child> =
        numbered.map(|(partition, number)| produce_one(bootstrap, partition, number)).collect();
    let next = first + producers.len();
    producers.into_iter().for_each(all_acknowledged);
    next
}

/// Starts a producer of one number in each of these partitions, from `first` on.
fn begin_in(bootstrap: &str, partitions: &BTreeSet<usize>, first: usize) -> Vec<(u32, Child)> {
    let numbered = partitions.iter().copied().zip(first..);
    let producers = numbered
        .map(|(partition, number)| (number as u32, produce_one(bootstrap, partition, number)));
    producers.collect()
}

/// Waits for these producers. All numbers below `end` must be in the topic, once each; those of producers that gave up may be.
fn assert_kept(bootstrap: &str, end: usize, producers: Vec<(u32, Child)>) {
    let given_up: BTreeSet<u32> = producers
        .into_iter()
        .filter_map(|(number, child)| {
            let output = child.wait_with_output().unwrap();
            (!output.status.success()).then_some(number)
        })
        .collect();
    let produced: BTreeSet<u32> = (0..end as u32).collect();
    let missing = &produced - &kept(bootstrap);
    assert!(missing.is_subset(&given_up), "missing: {missing:?}, given up: {given_up:?}");
}

/// Three brokers with `kept`. The second one has a second log directory in a volume.
struct TwoDirectories {
    up: Up,
    second: Broker,
    /// The process of the second broker.
    started: Started,
    /// Partitions in the second directory, and in the first one.
    hung: BTreeSet<usize>,
    healthy: BTreeSet<usize>,
}

impl TwoDirectories {
    fn start(folder: &Path, volume: &FreezableVolume, keys: &[&str]) -> TwoDirectories {
        let sets: Vec<&str> = keys.iter().flat_map(|set| ["--set", set]).collect();
        let mut up = Up::of(folder, 3, &sets);
        let second = up.brokers[1].clone();
        second.signal(Signal::TERM);
        up.says("broker 2");
        let hung_folder = volume.path().join("second directory");
        add_directory(&second.folder, &hung_folder);
        let started = Started::of(&second.folder, folder.with_file_name("reports"));
        wait_until("the second broker is back", || {
            let listed = try_run(&second.address, "cluster info");
            listed.status.success() && String::from_utf8_lossy(&listed.stdout).lines().count() == 4
        });
        up.run(&format!("topic create kept -p {PARTITIONS} -r 3"));
        wait_for_all_in_sync(&up.bootstrap, "kept");
        let (hung, healthy) = (kept_in(hung_folder.to_str().unwrap()), kept_in(&second.folder));
        TwoDirectories { up, second, started, hung, healthy }
    }
}

fn until_reported(log: &dyn Fn() -> String, words: &str) {
    wait_until(words, || log().contains(words));
}

#[test]
fn a_hung_directory_of_one_broker_stops_no_partition_of_a_cluster() {
    let (place, folder) = place();
    let Some(volume) = FreezableVolume::mount(place.path()) else {
        eprintln!("skipped: this user may not mount and freeze a file system");
        return;
    };
    // Neither a session nor a lag ends while the test runs: the broker stays unfenced and in its ISRs, but for sick disks.
    let patient = [
        "broker.session.timeout.ms=2000000",
        "replica.lag.time.max.ms=2000000",
        "highwater.suspect.after.ms=0",
        "highwater.mark.interval.ms=200",
    ];
    let TwoDirectories { up, second, started, hung, healthy } =
        TwoDirectories::start(&folder, &volume, &patient);
    let mut next = produce_in(&up.bootstrap, 0..PARTITIONS, 0);
    let led = |partitions: &BTreeSet<usize>| {
        let rows = described(&up.bootstrap, "kept").unwrap();
        partitions.iter().filter(|partition| rows[**partition].0 == 2).count()
    };
    assert!(led(&hung) > 0 && led(&healthy) > 0, "it leads in both: {hung:?}, {healthy:?}");

    let frozen = volume.freeze().unwrap();
    // Writes that hang hold as many data threads as there are, and the fetchers.
    let producers = begin_in(&up.bootstrap, &hung, next);
    next += producers.len();
    until_reported(&|| started.said(), "a write hangs");
    let http = http_of(Path::new(&second.folder));
    assert!(until_named(&http, "log_directory_hung").names("log_directory_hung"));
    // By new connections to the broker itself, more of them than it has threads.
    for _ in 0..3 {
        next = produce_in(&second.address, healthy.iter().copied(), next);
        assert_eq!(codes(&http), expected(200, 200, 200, "degraded"));
    }
    next = produce_in(&up.bootstrap, 0..PARTITIONS, next);
    let leads = |partition: &usize| described(&second.address, "kept").unwrap()[*partition].0 == 2;
    assert!(healthy.iter().any(leads), "the broker still leads in its healthy directory");
    assert!(!hung.iter().any(leads), "others lead in the hung one");
    // The journal of the healthy directory is synced and its mark raised: that of the hung one stays. Marks from before the freeze
    // may be recorded now; each of these is raised after the one before.
    let mark = || recorded_mark(&up.brokers[0].folder, 2);
    for _ in 0..LATER_MARKS {
        let before = mark();
        wait_until("a later mark of the healthy directory is recorded", || {
            next = produce_in(&second.address, healthy.iter().copied(), next);
            mark() > before
        });
    }
    drop(frozen);
    wait_for_in_sync(&up.bootstrap, "kept", 3);
    assert_kept(&second.address, next, producers);
    drop(started);
    up.stop();
}

#[test]
fn leaderships_in_a_healthy_directory_return_while_another_one_is_on_probation() {
    let (place, folder) = place();
    let Some(volume) = FreezableVolume::mount(place.path()) else {
        eprintln!("skipped: this user may not mount and freeze a file system");
        return;
    };
    let keys = ["leader.imbalance.check.interval.seconds=1"];
    let TwoDirectories { up, started, hung, healthy, .. } =
        TwoDirectories::start(&folder, &volume, &keys);
    // The first broker is asked: the second one is paused below.
    let asked = &up.brokers[0].address;
    let led = |partitions: &BTreeSet<usize>| {
        let rows = described(asked, "kept").unwrap();
        partitions.iter().copied().filter(|at| rows[*at].0 == 2).collect::<BTreeSet<usize>>()
    };
    wait_until("it leads in both directories", || {
        !led(&hung).is_empty() && !led(&healthy).is_empty()
    });
    let preferred = led(&healthy);
    let frozen = volume.freeze().unwrap();
    let producers = begin_in(&up.bootstrap, &hung, 0);
    wait_until("others lead in the hung directory", || led(&hung).is_empty());
    drop(frozen);
    let on_probation = Instant::now();
    started.pause();
    wait_until("others lead in both", || led(&healthy).is_empty());
    started.resume();
    wait_for_in_sync(asked, "kept", 3);
    wait_until("leaderships return", || led(&healthy) == preferred);
    // It takes the others back after five minutes.
    if on_probation.elapsed() < Duration::from_secs(240) {
        assert_eq!(led(&hung), BTreeSet::new());
    }
    assert_kept(asked, producers.len(), producers);
    drop(started);
    up.stop();
}

#[test]
fn a_hung_directory_of_a_single_broker_stops_no_partition_of_its_other_directory() {
    let place = tempfile::tempdir().unwrap();
    let Some(volume) = FreezableVolume::mount(place.path()) else {
        eprintln!("skipped: this user may not mount and freeze a file system");
        return;
    };
    let folder = place.path().join("node");
    let (here, there) = (folder.join("a"), volume.path().join("b"));
    let dirs = format!("{},{}", here.display(), there.display());
    let metadata = here.display().to_string();
    let keys = [
        ("log.dirs", &*dirs),
        ("metadata.log.dir", &*metadata),
        ("log.initial.task.delay.ms", "0"),
        ("log.flush.offset.checkpoint.interval.ms", "200"),
    ];
    let node = Node::start(&folder, None, &keys);
    run(&node.address, &format!("topic create kept -p {PARTITIONS}"));
    let mut next = produce_in(&node.address, 0..PARTITIONS, 0);
    let (hung, healthy) = (kept_in(there.to_str().unwrap()), kept_in(here.to_str().unwrap()));
    let frozen = volume.freeze().unwrap();
    let producers = begin_in(&node.address, &hung, next);
    next += producers.len();
    until_reported(&|| node.log(), "a write hangs");
    for _ in 0..3 {
        next = produce_in(&node.address, healthy.iter().copied(), next);
        // Its description has the ends of the hung logs, too, and waits for them.
        run(&node.address, "topic list");
    }
    for partition in &healthy {
        run(&node.address, &format!("consume kept --partition {partition} --from start --count 4"));
    }
    // Checkpoints of the healthy directory go on, and so does the watch of its free room, which makes the ballast.
    let checkpoints = || fs::read_to_string(here.join("recovery-point-offset-checkpoint")).unwrap();
    for _ in 0..2 {
        let before = checkpoints();
        next = produce_in(&node.address, healthy.iter().copied(), next);
        wait_until("a later checkpoint", || checkpoints() != before);
    }
    let ballast = here.join("highwater-ballast");
    wait_until("a ballast", || ballast.exists());
    fs::remove_file(&ballast).unwrap();
    wait_until("another ballast", || ballast.exists());
    drop(frozen);
    assert_kept(&node.address, next, producers);
}
