//! The whole of telemetry against a broker that is made of numbers: what is shown, and over HTTP.

use std::sync::Arc;
use std::time::Duration;

use metrics::Sources;
use serving::health::{self, BrokerHealth};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use wire::ApiKey;

use super::*;
use crate::counters::{Counters, Durations, Election, Fencing, Shrink, TopicCounters};

/// How long anything may take on a machine that is busy with much else.
const PATIENCE: Duration = Duration::from_secs(40);

/// A broker made of numbers.
struct Numbers {
    counters: Counters,
    topics: Vec<TopicFacts>,
    health: BrokerHealth,
}

impl Observed for Numbers {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn cluster(&self) -> ClusterFacts {
        let member = |id, votes, heard_s: Option<u64>| MemberFacts {
            id,
            votes,
            log_end_offset: 80 + i64::from(id),
            heard_ago: heard_s.map(Duration::from_secs),
        };
        let broker = |id: i32| BrokerFacts { id, address: format!("10.0.0.{id}:9092") };
        ClusterFacts {
            cluster_id: "AAAAAAAAAAAAAAAAAAAAAA".to_owned(),
            node_id: 1,
            is_controller: true,
            brokers: vec![broker(1), broker(2)],
            fenced_broker_count: 1,
            registered: vec![(1, false), (2, false), (3, true)],
            suspicions: 5,
            disk_moves: 4,
            leaderships_in_doubt: true,
            refused_in_doubt: 6,
            acknowledgements: vec![(2, Duration::from_millis(42))],
            broker_epoch: 17,
            quorum: QuorumFacts {
                leader: 1,
                leader_epoch: 4,
                log_end_offset: 90,
                applied_offset: 88,
                members: vec![member(1, true, Some(0)), member(4, false, None)],
            },
            followers: vec![FollowerFacts {
                id: 2,
                partitions: 2,
                out_of_sync: 1,
                lag_max: 31,
                behind: Duration::from_millis(2500),
            }],
        }
    }

    fn topics(&self) -> Vec<TopicFacts> {
        self.topics.clone()
    }

    fn groups(&self, depth: Depth) -> Vec<GroupFacts> {
        let offset = |partition, offset, high_watermark| CommittedOffset {
            topic: "orders".into(),
            partition,
            offset,
            high_watermark,
            behind: high_watermark.map(|_| Duration::from_millis(2500)),
        };
        let offsets = vec![offset(0, 90, Some(100)), offset(1, 7, Some(5)), offset(2, 3, None)];
        let lags = [(Arc::from("orders"), 10)].into();
        let offsets = if depth == Depth::All { offsets } else { Vec::new() };
        // A group's name may hold anything.
        let behind = Some(Duration::from_secs(3));
        vec![GroupFacts { name: "a \"b\"\\\n".to_owned(), member_count: 2, lags, behind, offsets }]
    }

    fn directory_syncs(&self) -> Vec<(String, Arc<Durations>)> {
        let syncs = Durations::default();
        syncs.observe(Duration::from_millis(3));
        vec![("/data/1".to_owned(), Arc::new(syncs)), ("/data/2".to_owned(), Arc::default())]
    }

    fn directory_volumes(&self) -> Vec<VolumeFacts> {
        let directory = "/data/1".to_owned();
        vec![VolumeFacts {
            directory,
            total_bytes: 100_000,
            free_bytes: 40_000,
            oldest_operation: Duration::from_millis(750),
            is_sick: true,
        }]
    }

    fn requests(&self) -> RequestFacts {
        RequestFacts {
            frame_bytes: 65_536,
            frame_bytes_max: 128 << 20,
            decoded_bytes: 4096,
            decoded_bytes_max: 64 << 20,
            answer_bytes: 2_097_152,
            answer_bytes_max: 48 << 20,
            member_bytes: 8192,
            member_bytes_max: 32 << 20,
            offset_bytes: 12_288,
            offset_bytes_max: 64 << 20,
            slow_frames: 1,
            fetch_sessions: 2,
            fetch_session_partitions: 20,
        }
    }

    fn data_threads(&self) -> Option<ThreadTimes> {
        Some(ThreadTimes { count: 2, busy: Duration::ZERO })
    }

    fn is_started(&self) -> bool {
        true
    }

    fn stalled_threads(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn health(&self) -> BrokerHealth {
        self.health.clone()
    }
}

fn partition(index: i32, leader: i32, in_sync: &[i32]) -> PartitionFacts {
    PartitionFacts {
        index,
        leader,
        replicas: vec![1, 2],
        in_sync: in_sync.to_vec(),
        eligible: usize::from(index == 1),
        in_sync_min: 2,
        local: (index == 0).then_some(LocalReplica {
            log_start_offset: 10,
            log_end_offset: 101,
            high_watermark: 100,
            size_bytes: 4096,
            segment_count: 2,
        }),
    }
}

fn numbers(facts: &health::BrokerFacts) -> Telemetry {
    let counters = Counters::default();
    counters.connections_accepted.add(5);
    counters.connections_closed.add(2);
    counters.bytes_received.add(1000);
    let produce = counters.api(ApiKey::Produce);
    produce.requests.add(3);
    for us in [100, 110, 120] {
        produce.durations.observe(Duration::from_micros(us));
    }
    counters.syncs.observe(Duration::from_millis(2));
    counters.cluster.elections.count(Election::Unclean);
    counters.cluster.unclean_seen.add(1);
    counters.cluster.fencings.count(Fencing::Session);
    counters.cluster.shrinks.count(Shrink::Lag);
    counters.cluster.rounds.add(7);
    counters.cluster.metadata_changed_ms.set(1_500);
    let of_topic = TopicCounters::default();
    of_topic.records_in.add(42);
    of_topic.bytes_in.add(4200);
    let partitions = vec![partition(0, 1, &[1, 2]), partition(1, 1, &[1]), partition(2, -1, &[])];
    let topics =
        vec![TopicFacts { name: "orders".into(), counters: Arc::new(of_topic), partitions }];
    let health = BrokerHealth::of(facts);
    Telemetry::new(Arc::new(Numbers { counters, topics, health }), Sources::default())
}

/// Without what differs from one process to the next.
fn stable(text: &str) -> String {
    let process = |line: &&str| !line.contains(" process_") && !line.starts_with("process_");
    text.lines().filter(process).map(|line| format!("{line}\n")).collect()
}

/// `UPDATE=1` writes the files anew.
fn check(found: &str, path: &str, expected: &str) {
    if std::env::var_os("UPDATE").is_some() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/telemetry/");
        std::fs::write(format!("{dir}{path}"), found).unwrap();
    } else {
        assert_eq!(found, expected, "{path}");
    }
}

#[test]
fn all_metrics_stand_under_the_names_that_dashboards_know() {
    let found = stable(&numbers(&health::BrokerFacts::well()).metrics(Depth::All));
    check(&found, "testdata/metrics.txt", include_str!("testdata/metrics.txt"));
}

#[test]
fn public_metrics_do_not_grow_with_the_topics() {
    let found = stable(&numbers(&health::BrokerFacts::well()).metrics(Depth::Public));
    assert!(!found.contains("{topic=") && !found.contains("partition=\""));
    check(&found, "testdata/public_metrics.txt", include_str!("testdata/public_metrics.txt"));
}

/// Every metric, as `docs/metrics.md` lists them: `UPDATE=1` writes the list anew.
#[test]
fn every_metric_is_listed_in_the_documentation() {
    let found = numbers(&health::BrokerFacts::well()).metrics(Depth::All);
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    metrics::documented::check(&found, std::path::Path::new(page), "metric");
}

/// One request over a connection of its own; the whole answer.
async fn get(address: std::net::SocketAddr, path: &str) -> String {
    try_get(address, path).await.unwrap()
}

/// As [`get`], where the connection may be closed instead.
async fn try_get(address: std::net::SocketAddr, path: &str) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn metrics_and_health_are_served_until_the_stop() {
    let stray = health::BrokerFacts {
        stray_folders: vec![("gone-0".to_owned(), "no topic".to_owned())],
        ..health::BrokerFacts::well()
    };
    let damaged = health::BrokerFacts {
        refused_partitions: vec![("t-0".to_owned(), "input/output error".to_owned())],
        ..health::BrokerFacts::well()
    };
    for (facts, status, body) in [
        (health::BrokerFacts::well(), "HTTP/1.1 200 OK", r#"{"status":"ok"}"#),
        (
            stray,
            "HTTP/1.1 200 OK",
            r#"{"reasons":[{"detail":"gone-0: no topic","reason":"stray_folder"}],"status":"degraded"}"#,
        ),
        (
            damaged,
            "HTTP/1.1 503 Service Unavailable",
            r#"{"reasons":[{"detail":"t-0: input/output error","reason":"partition_refused"}],"status":"unavailable"}"#,
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let second = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let also = second.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let doors = vec![Door::new(listener, 10), Door::new(second, 10)];
        let serving = tokio::spawn(serve(doors, numbers(&facts), stopped));
        for path in ["/healthz", "/readyz", "/livez", "/metrics"] {
            assert!(!get(also, path).await.starts_with("HTTP/1.1 404"), "{path}");
        }
        let health = get(address, "/healthz").await;
        assert!(health.starts_with(status), "{health}");
        let found: serde_json::Value =
            serde_json::from_str(health.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert_eq!(found, serde_json::from_str::<serde_json::Value>(body).unwrap());
        let metrics = get(address, "/metrics").await;
        assert!(metrics.contains("content-type: application/openmetrics-text"), "{metrics}");
        assert!(metrics.ends_with("# EOF\n"), "{metrics}");
        assert!(metrics.contains("\nkafka_log_log_size{topic=\"orders\",partition=\"0\"} 4096"));
        assert!(get(address, "/public_metrics").await.contains("\nkafka_brokers 2"));
        assert!(get(address, "/nothing").await.starts_with("HTTP/1.1 404"));
        stop.send(true).unwrap();
        serving.await.unwrap().unwrap();
    }
}

/// A port with room for two that waits half a second for a header.
async fn narrow() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let door = Door::new(listener, 2).with_header_max(Duration::from_millis(500));
    let (never, stopped) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        let _never = never;
        serve(vec![door], numbers(&health::BrokerFacts::well()), stopped).await
    });
    address
}

#[tokio::test]
async fn who_drips_a_header_is_put_out_and_makes_room() {
    let address = narrow().await;
    let mut slow = Vec::new();
    for _ in 0..2 {
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
        slow.push(connection);
    }
    // There is no room for a third: the connection is closed without an answer.
    let mut third = TcpStream::connect(address).await.unwrap();
    let mut answer = Vec::new();
    let _ = third.read_to_end(&mut answer).await;
    assert!(answer.is_empty());
    for mut connection in slow {
        let mut answer = Vec::new();
        // Bytes come all the time, and the header never ends.
        loop {
            let drip = connection.write_all(b"a: b\r\n").await;
            let read =
                tokio::time::timeout(Duration::from_millis(50), connection.read_buf(&mut answer));
            match (drip, read.await) {
                (Err(_), _) | (_, Ok(Ok(0) | Err(_))) => break,
                _ => {}
            }
        }
    }
    // Who does not get his header out for half a second, be it that he stands still, is put out as well.
    let served = async {
        while !try_get(address, "/healthz").await.is_ok_and(|all| all.starts_with("HTTP/1.1 200")) {
        }
    };
    tokio::time::timeout(PATIENCE, served).await.expect("there is room again");
}

#[tokio::test]
async fn many_looks_at_once_are_one_look() {
    let worker = worker::Worker::start("looks", {
        let looks = std::sync::atomic::AtomicU32::new(0);
        move |question: u32| (question, looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst))
    });
    let worker = worker.unwrap();
    let asked: Vec<_> = (0..50)
        .map(|number| {
            let worker = worker.clone();
            tokio::spawn(async move { worker.ask(number % 2).await })
        })
        .collect();
    let mut looks = std::collections::BTreeSet::new();
    for (number, found) in asked.into_iter().enumerate() {
        let (question, look) = found.await.unwrap().expect("fifty may wait");
        assert_eq!(question, number as u32 % 2);
        looks.insert(look);
    }
    assert!(looks.len() < 10, "{} looks for fifty questions", looks.len());
}
