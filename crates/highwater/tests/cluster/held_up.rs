//! A broker whose disk hangs while a topic is made there: it lives, and does not act upon the cluster's metadata any more. Others
//! lead instead of it, and it comes back when the disk does.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use client::{Connection, ConnectionConfig};
use wire::CreateTopicsRequest;
use wire::create_topics::CreatableTopic;

use super::health::{codes, expected, get, http_of, until_named};
use super::missing_directory::metadata_records;
use super::replication::{all_acknowledged, described, kept, produce, wait_for_all_in_sync};
use super::*;

/// A file of which the first read waits until somebody writes, as a read from a disk that hangs does.
struct Hanging {
    path: std::path::PathBuf,
}

impl Hanging {
    fn make(path: std::path::PathBuf) -> Hanging {
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        Hanging { path }
    }

    /// Gives it up under its name, and ends a read that waits: there is nothing. Fails if none waits.
    fn let_go(self, aside: &Path) -> std::io::Result<()> {
        fs::rename(&self.path, aside).unwrap();
        let without_waiting = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap();
        OpenOptions::new().write(true).custom_flags(without_waiting).open(aside).map(drop)
    }
}

/// The folder of a partition that was begun and holds no record yet, whose next opening hangs.
fn folder_that_hangs(broker: &Broker, partition: &str) -> Hanging {
    let folder = Path::new(&broker.folder).join(partition);
    fs::create_dir(&folder).unwrap();
    File::create(folder.join("00000000000000000000.log")).unwrap();
    Hanging::make(folder.join("leader-epoch-checkpoint"))
}

fn leads(bootstrap: &str, topic: &str, broker: i64) -> Option<bool> {
    described(bootstrap, topic).map(|rows| rows.iter().any(|(leader, _)| *leader == broker))
}

#[test]
fn a_broker_that_is_held_up_by_its_disk_is_fenced_and_comes_back_with_the_disk() {
    let (place, folder) = place();
    let quick = [
        "broker.session.timeout.ms=5000",
        "replica.lag.time.max.ms=5000",
        "broker.heartbeat.interval.ms=200",
    ];
    let up = Up::of(&folder, 3, &quick.map(|set| ["--set", set]).concat());
    let others = up.brokers[0].address.clone();
    up.run("topic create kept -p 3 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    wait_for_all_in_sync(&up.bootstrap, "kept");
    let second = up.brokers[1].clone();

    let partitions = ["stuck-0", "stuck-1", "stuck-2"];
    let hanging = partitions.map(|partition| folder_that_hangs(&second, partition));
    run(&others, "topic create stuck -p 3 -r 1");
    wait_until("it leads nothing that others can lead", || {
        leads(&others, "kept", 2) == Some(false)
    });
    assert!(procfs::is_running(second.pid));
    let reports = || fs::read_to_string(Path::new(&second.folder).join("broker.log")).unwrap();
    assert!(reports().contains("does not act upon the cluster's metadata"), "{}", reports());
    all_acknowledged(produce(&others, 300..600));
    assert_eq!(kept(&others), (0..600).collect());
    assert_eq!(try_run(&others, "cluster health").status.code(), Some(1), "it stays fenced");
    let http = http_of(Path::new(&second.folder));
    let answer = until_named(&http, "fenced");
    assert!(answer.names("metadata_held_up"), "{answer:?}");
    assert_eq!(codes(&http), expected(200, 503, 503, "unavailable"));

    let place = place.path();
    let read = hanging.into_iter().enumerate();
    let read = read.map(|(at, it)| it.let_go(&place.join(at.to_string())));
    assert_eq!(read.filter(Result::is_ok).count(), 1, "one of the partitions is there");
    wait_for_all_in_sync(&others, "kept");
    wait_until("it leads what it was given", || leads(&others, "stuck", 2) == Some(true));
    assert!(reports().contains("this broker serves again"), "{}", reports());
    wait_until("health names nothing any more", || {
        get(&http, "/healthz").is_some_and(|answer| answer.status() == "ok")
    });
    all_acknowledged(produce(&second.address, 600..700));
    assert_eq!(kept(&second.address), (0..700).collect());
    up.stop();
}

/// Creates a topic of one partition; whether the broker answered that it did.
async fn create_one(address: String, name: String) -> bool {
    let patient = ConnectionConfig {
        connect_timeout: LIMIT,
        request_timeout: 2 * LIMIT,
        ..ConnectionConfig::default()
    };
    let topic =
        CreatableTopic { name, num_partitions: 1, replication_factor: 1, ..Default::default() };
    let timeout_ms = i32::try_from(LIMIT.as_millis()).unwrap();
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms, ..Default::default() };
    let Ok(connection) = Connection::open(&address, &patient).await else { return false };
    let created = connection.call(&request).await;
    created.is_ok_and(|it| it.topics[0].error() == model::ErrorCode::None)
}

/// Decision 0064: at most 256 requests wait for a decision at a time. An answer also waits until the broker has acted upon the
/// decision, which a hung disk delays for as long as it hangs.
#[test]
fn decisions_return_their_places_while_the_disk_of_the_broker_hangs() {
    const CLIENTS: usize = 300;
    let (place, folder) = place();
    let up = Up::of(&folder, 1, &["--set", "replica.lag.time.max.ms=2000000"]);
    let broker = up.brokers[0].clone();
    let hanging = folder_that_hangs(&broker, "stuck-0");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let created = Arc::new(AtomicUsize::new(0));
    let create = |name: String| {
        let (address, created) = (broker.address.clone(), Arc::clone(&created));
        runtime.spawn(async move {
            let is_created = create_one(address, name).await;
            created.fetch_add(usize::from(is_created), Ordering::Relaxed);
        })
    };
    let decided = || -> BTreeSet<String> {
        let records = metadata_records(&broker.folder).into_iter();
        let topics = records.filter(|(kind, _)| kind.starts_with("topic-created"));
        topics.map(|(_, record)| record["name"].as_str().unwrap().to_owned()).collect()
    };
    let mut clients = vec![create("stuck".to_owned())];
    wait_until("the first topic is decided", || decided().contains("stuck"));
    clients.extend((0..CLIENTS).map(|number| create(format!("later-{number}"))));
    wait_until("all topics are decided", || {
        decided().iter().filter(|name| name.starts_with("later-")).count() == CLIENTS
    });
    assert_eq!(created.load(Ordering::Relaxed), 0, "no answer before the broker has acted");

    hanging.let_go(&place.path().join("aside")).expect("the opening waits");
    for client in clients {
        runtime.block_on(client).unwrap();
    }
    assert_eq!(created.load(Ordering::Relaxed), CLIENTS + 1);
    up.stop();
}
