//! How long a single voter takes to its first committed decision, new and started again, and what
//! it costs while nothing is asked of it. On the real disk: `QUORUM_BENCH_DIR`, or the system's
//! directory for temporary files.

use metadata::decide::{CreateCluster, CreateTopics, NewTopic, RegisterBroker};
use metadata::{Request, Response};
use model::{BrokerId, Uuid};
use quorum::{NoTransport, Quorum, QuorumConfig};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::disk::RealDisk;

const CLUSTER: &str = "AAAAAAAAAAAAAAAAAAAAAA";
const RUNS: usize = 15;

async fn start(dir: &Path) -> Quorum {
    let dir = dir.join("__cluster_metadata-0");
    let config = QuorumConfig::new(BrokerId(1), CLUSTER, dir);
    Quorum::start(config, Arc::new(RealDisk), Arc::new(NoTransport)).await.expect("it starts")
}

fn cluster() -> Request {
    Request::CreateCluster(CreateCluster { cluster_id: CLUSTER.into(), features: Vec::new() })
}

fn register() -> Request {
    Request::RegisterBroker(RegisterBroker {
        broker: BrokerId(1),
        incarnation: Uuid::from_random([7; 16]),
        cluster_id: CLUSTER.into(),
        endpoints: Vec::new(),
        rack: None,
        log_dirs: Vec::new(),
        clean: true,
        fenced: false,
        earlier_incarnation_alive: false,
    })
}

fn topics(from: u64, count: u64) -> Request {
    let topic = |i: u64| {
        let mut id = [1; 16];
        id[..8].copy_from_slice(&i.to_be_bytes());
        NewTopic {
            name: format!("topic-{i}"),
            id: Uuid(id),
            partitions: 1,
            replication_factor: 1,
            ..NewTopic::default()
        }
    };
    let topics = (from..from + count).map(topic).collect();
    Request::CreateTopics(CreateTopics { topics, validate_only: false })
}

fn median(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    (times[times.len() / 2], times[times.len() - 1])
}

fn sync_time(dir: &Path) -> Duration {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(dir.join("probe")).expect("it can be written");
    let times = (0..RUNS).map(|i| {
        let started = Instant::now();
        file.write_all_at(&[1; 512], i as u64 * 512).expect("it can be written");
        file.sync_data().expect("it can be synced");
        started.elapsed()
    });
    median(times.collect()).0
}

/// Processor time of this process, in seconds.
fn processor_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux tells");
    let nanoseconds = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    nanoseconds.sum::<f64>() / 1e9
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let base = std::env::var_os("QUORUM_BENCH_DIR").map_or_else(std::env::temp_dir, Into::into);
    let folder = || tempfile::tempdir_in(&base).expect("a temporary folder");
    let probe = folder();
    println!("one fdatasync: {:?} (median)", sync_time(probe.path()));

    let (mut fresh, mut again) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let folder = folder();
        runtime.block_on(async {
            let started = Instant::now();
            let quorum = start(folder.path()).await;
            let (made, registered) =
                tokio::join!(quorum.propose(cluster()), quorum.propose(register()));
            assert!(made.is_ok() && matches!(registered, Ok(Response::RegisterBroker(Ok(_)))));
            fresh.push(started.elapsed());
            quorum.stop().await.expect("it stops");
            let started = Instant::now();
            let quorum = start(folder.path()).await;
            quorum.propose(register()).await.expect("it decides");
            again.push(started.elapsed());
            quorum.stop().await.expect("it stops");
        });
    }
    println!("new folder to first commit (median, worst): {:?}", median(fresh));
    println!("started again to first commit (median, worst): {:?}", median(again));

    let folder = folder();
    runtime.block_on(async {
        let quorum = start(folder.path()).await;
        quorum.propose(cluster()).await.expect("it decides");
        quorum.propose(register()).await.expect("it decides");
        let started = Instant::now();
        for i in 0..1000 {
            quorum.propose(topics(i, 1)).await.expect("it decides");
        }
        println!("1,000 topics one by one: {:?}", started.elapsed());
        let started = Instant::now();
        quorum.propose(topics(1000, 9000)).await.expect("it decides");
        println!("9,000 topics at once: {:?}", started.elapsed());
        quorum.stop().await.expect("it stops");
        let (before, started) = (processor_seconds(), Instant::now());
        let quorum = start(folder.path()).await;
        let busy = (processor_seconds() - before) * 1e3;
        println!("started with 10,000 topics: {:?}, {busy:.1} ms of it busy", started.elapsed());
        assert_eq!(quorum.image().topic_count(), 10_000);
        let (before, started) = (processor_seconds(), Instant::now());
        tokio::time::sleep(Duration::from_secs(5)).await;
        let share = (processor_seconds() - before) / started.elapsed().as_secs_f64();
        println!("idle: {:.4} % of a core", share * 100.0);
        quorum.stop().await.expect("it stops");
    });
}
