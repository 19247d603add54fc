//! Log directories that are copied while their brokers run, and restored.

use super::health::{cluster_health, codes, expected, get, http_of, until_named};
use super::lost_disks::{NOT_DATA, Started, copy_running};
use super::quorum::controller;
use super::replication::{
    all_acknowledged, described, kept, produce, wait_for_all_in_sync, wait_for_in_sync,
};
use super::*;

/// Folder of the metadata log. The test never restores it: a voter must not forget its vote.
const METADATA: &str = "__cluster_metadata-0";

/// Entries of a broker's folder that the tests neither copy nor restore.
const NOT_COPIED: [&str; 3] = [METADATA, NOT_DATA[0], NOT_DATA[1]];

fn is_data(name: &std::ffi::OsStr) -> bool {
    NOT_COPIED.iter().all(|other| name != *other)
}

/// Replaces the data of a stopped broker by a copy.
fn put_back(copy: &Path, folder: &str) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            _ if !is_data(&entry.file_name()) => {}
            true => fs::remove_dir_all(entry.path()).unwrap(),
            false => fs::remove_file(entry.path()).unwrap(),
        }
    }
    copy_running(copy, Path::new(folder), &NOT_COPIED);
}

#[test]
fn a_copy_of_a_running_broker_is_not_elected_when_an_intact_replica_returns() {
    let (place, folder) = place();
    let mut up = Up::of(&folder, 3, &[]);
    up.run("topic create kept -p 6 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    wait_for_all_in_sync(&up.bootstrap, "kept");
    let brokers = up.brokers.clone();
    let copied = place.path().join("copy");
    copy_running(Path::new(&brokers[2].folder), &copied, &NOT_COPIED);
    all_acknowledged(produce(&up.bootstrap, 300..600));
    up.signal(Signal::KILL);
    up.process.wait().unwrap();
    wait_until("all brokers are dead", || {
        brokers.iter().all(|broker| !procfs::is_running(broker.pid))
    });
    put_back(&copied, &brokers[2].folder);

    let start = |number: usize| {
        let reports = place.path().join(format!("reports of {number}"));
        Started::of(&brokers[number - 1].folder, reports)
    };
    let rest = format!("{},{}", brokers[1].address, brokers[2].address);
    // The broker with the copy comes first, and one that has everything a moment later.
    let (third, second) = (start(3), start(2));
    wait_until("all partitions have a leader", || {
        described(&rest, "kept").is_some_and(|rows| rows.iter().all(|(leader, _)| *leader > 0))
    });
    wait_for_in_sync(&rest, "kept", 2);
    assert_eq!(kept(&rest), (0..600).collect(), "{}", third.said());
    let first = start(1);
    wait_for_all_in_sync(&rest, "kept");
    assert_eq!(kept(&rest), (0..600).collect());
    drop((first, second, third));
}

/// The newest mark of a broker's log directory that the metadata in this folder has; 0 for none.
pub(super) fn recorded_mark(folder: &str, broker: i32) -> u64 {
    let before = format!("{{\"broker\":{broker},\"directory\":\"");
    let mark = |rest: &str| -> Option<u64> {
        let (_, mark) = rest.split_once("\",\"mark\":")?;
        let end = mark.find('}')?;
        mark[..end].parse().ok()
    };
    let files = fs::read_dir(Path::new(folder).join(METADATA)).unwrap();
    let text = |file: std::io::Result<fs::DirEntry>| {
        let bytes = fs::read(file.unwrap().path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let of_file = |text: String| text.split(&before).skip(1).filter_map(mark).max();
    files.map(text).filter_map(of_file).max().unwrap_or(0)
}

/// Writes numbers from `from` on until the metadata has recorded several later marks of brokers 2 and 3; the first number that was not
/// written.
fn write_past_marks(up: &Up, from: u32) -> u32 {
    let mut next = from;
    for _ in 0..6 {
        let before = [2, 3].map(|broker| recorded_mark(&up.brokers[0].folder, broker));
        all_acknowledged(produce(&up.bootstrap, next..next + 50));
        next += 50;
        wait_until("later marks are recorded", || {
            let now = [2, 3].map(|broker| recorded_mark(&up.brokers[0].folder, broker));
            now.iter().zip(before).all(|(now, before)| *now > before)
        });
    }
    next
}

/// Creates `kept` with one partition on these brokers.
pub(super) fn create_on(bootstrap: &str, brokers: &[i32], min_in_sync: &str) {
    create_partitions_on(bootstrap, 1, brokers, min_in_sync);
}

/// Creates `kept` with so many partitions, each on these brokers.
pub(super) fn create_partitions_on(
    bootstrap: &str,
    partitions: usize,
    brokers: &[i32],
    min_in_sync: &str,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let topic = client::admin::NewTopic {
        name: "kept".to_owned(),
        assignments: vec![brokers.to_vec(); partitions],
        configs: vec![("min.insync.replicas".to_owned(), min_in_sync.to_owned())],
        ..client::admin::NewTopic::default()
    };
    runtime.block_on(async {
        let cluster = client::Cluster::connect(client::ClusterConfig::new(bootstrap)).await;
        let created = client::Admin::new(cluster.unwrap()).create_topics(&[topic], false).await;
        assert!(created.unwrap().iter().all(|(_, created)| created.is_ok()));
    });
}

/// Three dead brokers of a cluster whose topic is on brokers 3 and 2, and copies of these two, whose marks are below the recorded ones.
struct Outage {
    place: tempfile::TempDir,
    brokers: Vec<Broker>,
    /// Copies of brokers 2 and 3.
    copies: [std::path::PathBuf; 2],
    /// Numbers below these are in the copies of brokers 2 and 3, and in the intact directories.
    ends: (u32, u32),
}

impl Outage {
    fn begin() -> Outage {
        let (place, folder) = place();
        let keys = ["highwater.mark.interval.ms=200", "highwater.election.wait.ms=0"];
        let mut up = Up::of(&folder, 3, &["--set", keys[0], "--set", keys[1]]);
        create_on(&up.bootstrap, &[3, 2], "2");
        all_acknowledged(produce(&up.bootstrap, 0..300));
        wait_for_in_sync(&up.bootstrap, "kept", 2);
        let copies = [2, 3].map(|number| place.path().join(format!("copy of {number}")));
        copy_running(Path::new(&up.brokers[2].folder), &copies[1], &NOT_COPIED);
        let later = write_past_marks(&up, 300);
        copy_running(Path::new(&up.brokers[1].folder), &copies[0], &NOT_COPIED);
        let all = write_past_marks(&up, later);
        let brokers = up.brokers.clone();
        up.signal(Signal::KILL);
        up.process.wait().unwrap();
        wait_until("all brokers are dead", || {
            brokers.iter().all(|broker| !procfs::is_running(broker.pid))
        });
        Outage { place, brokers, copies, ends: (later, all) }
    }

    fn start(&self, number: usize) -> Started {
        let reports = self.place.path().join(format!("reports of {number}"));
        Started::of(&self.brokers[number - 1].folder, reports)
    }

    fn wait_until_serving(&self, numbers: &[usize]) {
        for number in numbers {
            let http = http_of(Path::new(&self.brokers[number - 1].folder));
            wait_until("the broker serves", || {
                codes(&http).is_some_and(|(_, ready, ..)| ready == 200)
            });
        }
    }
}

#[test]
fn a_copy_that_is_recognised_leads_nothing_until_an_intact_replica_returns() {
    let outage = Outage::begin();
    let brokers = &outage.brokers;
    put_back(&outage.copies[1], &brokers[2].folder);
    let rest = format!("{},{}", brokers[0].address, brokers[2].address);
    let (first, third) = (outage.start(1), outage.start(3));
    outage.wait_until_serving(&[1, 3]);
    let http = http_of(Path::new(&brokers[2].folder));
    let health = until_named(&http, "log_directory_copied");
    assert_eq!(health.code, 200);
    assert_eq!(codes(&http), expected(200, 200, 200, "degraded"));
    let (code, text) = cluster_health(&rest);
    assert!(code == 1 && text.contains("broker 3: log_directory_copied"), "{text}");
    // The next process registers with a greater mark, and its replicas have not caught up either.
    drop(third);
    let third = outage.start(3);
    outage.wait_until_serving(&[1, 3]);
    until_named(&http, "log_directory_copied");
    assert!(described(&rest, "kept").is_none_or(|rows| rows[0].0 < 0), "{}", third.said());
    let second = outage.start(2);
    wait_for_in_sync(&rest, "kept", 2);
    assert_eq!(kept(&rest), (0..outage.ends.1).collect(), "{}", third.said());
    wait_until("no directory is named as a copy any more", || {
        !cluster_health(&rest).1.contains("log_directory_copied")
    });
    let properties = Path::new(&brokers[2].folder).join("meta.properties");
    wait_until("the note about the copy is removed", || {
        // The broker replaces the file by renaming another one over it.
        fs::read_to_string(&properties).is_ok_and(|text| !text.contains("highwater.restored.copy"))
    });
    drop((first, second, third));
}

#[test]
fn the_longest_of_several_copies_is_named_and_elected_uncleanly() {
    let outage = Outage::begin();
    let brokers = &outage.brokers;
    for number in [2, 3] {
        put_back(&outage.copies[number - 2], &brokers[number - 1].folder);
    }
    let started = [1, 2, 3].map(|number| outage.start(number));
    outage.wait_until_serving(&[1, 2, 3]);
    let all: Vec<&str> = brokers.iter().map(|broker| broker.address.as_str()).collect();
    let all = all.join(",");
    wait_until("health names the longest replica", || {
        let (code, text) = cluster_health(&all);
        let named = "complete_replicas_lost: kept-0: no complete replica is left; of those that answer, broker 2 has";
        code == 1 && text.contains(named)
    });
    let names_it = |number: &usize| {
        let http = http_of(Path::new(&brokers[number - 1].folder));
        get(&http, "/healthz").is_some_and(|answer| answer.names("complete_replicas_lost"))
    };
    wait_until("the active controller alone names it", || {
        (1..=3).filter(names_it).eq([controller(&all) as usize])
    });
    for broker in brokers {
        let found = codes(&http_of(Path::new(&broker.folder))).unwrap();
        assert_eq!((found.0, found.1, found.2), (200, 200, 200), "{}", broker.folder);
    }
    run(&all, "cluster elect --unclean kept:0");
    wait_until("the partition has a leader", || {
        described(&all, "kept").is_some_and(|rows| rows[0].0 > 0)
    });
    assert_eq!(described(&all, "kept").unwrap()[0].0, 2);
    let found = kept(&all);
    assert!(found.len() >= outage.ends.0 as usize, "{}: {:?}", found.len(), outage.ends);
    assert_eq!(found, (0..found.len() as u32).collect());
    wait_for_in_sync(&all, "kept", 2);
    drop(started);
}

#[test]
fn a_follower_keeps_committed_records_that_a_copy_in_the_lead_lacks() {
    let (place, folder) = place();
    // No mark is raised: nothing distinguishes the copy from the directory itself.
    let mut up = Up::of(&folder, 3, &["--set", "highwater.mark.interval.ms=600000"]);
    create_on(&up.bootstrap, &[3, 2], "1");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    wait_for_in_sync(&up.bootstrap, "kept", 2);
    let copied = place.path().join("copy");
    copy_running(Path::new(&up.brokers[2].folder), &copied, &NOT_COPIED);
    all_acknowledged(produce(&up.bootstrap, 300..600));
    let brokers = up.brokers.clone();
    // A clean stop writes the highest committed offset down.
    brokers[1].signal(Signal::TERM);
    up.says("broker 2");
    wait_for_in_sync(&brokers[2].address, "kept", 1);
    up.signal(Signal::KILL);
    up.process.wait().unwrap();
    wait_until("all brokers are dead", || {
        brokers.iter().all(|broker| !procfs::is_running(broker.pid))
    });
    put_back(&copied, &brokers[2].folder);

    let start = |number: usize| {
        let reports = place.path().join(format!("reports of {number}"));
        Started::of(&brokers[number - 1].folder, reports)
    };
    let started = [1, 2, 3].map(start);
    let all: Vec<&str> = brokers.iter().map(|broker| broker.address.as_str()).collect();
    let all = all.join(",");
    // Faults F06 and F11: the leader lacks acknowledged records.
    let http = http_of(Path::new(&brokers[1].folder));
    let answer = until_named(&http, "truncation_refused");
    assert_eq!((answer.code, answer.status()), (200, "degraded"), "{answer:?}");
    assert_eq!(codes(&http), expected(200, 200, 200, "degraded"));
    let (code, text) = cluster_health(&all);
    let named = "broker 2: truncation_refused: kept-0: leader 3 lacks committed records from";
    assert!(code == 1 && text.contains(named), "{text}");
    assert!(kept(&all).len() < 600, "the leader is the copy");
    // An operator gives the records up.
    run(&all, "cluster elect --unclean kept:0");
    wait_for_in_sync(&all, "kept", 2);
    wait_until("health names nothing any more", || {
        get(&http, "/healthz").is_some_and(|answer| !answer.names("truncation_refused"))
    });
    drop(started);
}
