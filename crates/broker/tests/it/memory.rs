//! What hostile or many peers may cost in memory. These tests measure the process, so each runs
//! while no other broker of this binary does.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use model::{Compression, ErrorCode, Timestamp, record::BatchBuilder};

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use wire::CreateTopicsRequest;
use wire::create_topics::CreatableTopic;

use crate::fixture::*;
use crate::hostile::enormous_arrays;
use crate::pools::{store_offsets, wait_until_full};
use crate::strangers::send_what_is_taken;

const MIB: u64 = 1 << 20;

/// The most memory that the process has had resident since some moment.
struct Peak {
    before_bytes: u64,
}

impl Peak {
    fn begin() -> Peak {
        // Makes the kernel forget the peak so far.
        std::fs::write("/proc/self/clear_refs", "5").expect("a process may reset its own peak");
        Peak { before_bytes: status_bytes("VmRSS:") }
    }

    fn growth_bytes(&self) -> u64 {
        let growth = status_bytes("VmHWM:").saturating_sub(self.before_bytes);
        eprintln!("grew by {} KiB", growth / 1024);
        growth
    }
}

fn status_bytes(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn sizes_that_peers_only_claim_cost_nothing() {
    let broker = Broker::start_alone(&[]).await;
    broker.assert_serves().await;
    let peak = Peak::begin();
    for frame in enormous_arrays() {
        let mut conn = broker.connect().await;
        conn.write(&frame).await;
        conn.assert_closed().await;
    }
    // Beyond the limit, and at it: 100 MiB announced by forty peers, of which none sends any.
    let mut silent = Vec::new();
    for _ in 0..40 {
        let mut conn = broker.connect().await;
        conn.write(&0x7fff_ffffi32.to_be_bytes()).await;
        conn.assert_closed().await;
        let mut conn = broker.connect().await;
        conn.write(&(100i32 << 20).to_be_bytes()).await;
        silent.push(conn);
    }
    broker.assert_serves().await;
    let growth = peak.growth_bytes();
    assert!(growth < 64 * MIB, "grew by {} MiB", growth / MIB);
    drop(silent);
    broker.stop().await;
}

#[tokio::test]
async fn a_client_that_never_reads_costs_little_and_disturbs_nobody() {
    let broker = Broker::start_alone(&[]).await;
    let mut other = broker.connect().await;
    other.create_topic("large", &[]).await;
    let value = "x".repeat(500_000);
    for _ in 0..40 {
        other.append("large", batch(&[&value])).await;
    }
    let peak = Peak::begin();
    let mut deaf = broker.connect().await;
    let mut requests = Vec::new();
    for correlation in 0..200 {
        requests.extend(frame_of(&fetch_request("large", 0), FETCH, correlation));
        // Small answers are copied, so these would hold memory.
        requests.extend(frame_of(&wire::ApiVersionsRequest::default(), 0, correlation));
    }
    deaf.write(&requests).await;
    for round in 0..50 {
        assert_eq!(other.append("large", batch(&["meanwhile"])).await, 40 + round);
    }
    assert_eq!(headers(&other.fetch_at_most("large", 80, 1000).await)[0].base_offset.0, 80);
    let growth = peak.growth_bytes();
    assert!(growth < 64 * MIB, "grew by {} MiB", growth / MIB);
    // It could still read: the first answer is there.
    let mut first = [0; 4];
    deaf.stream.peek(&mut first).await.unwrap();
    assert!(i32::from_be_bytes(first) > 19_000_000);
    drop(deaf);
    broker.stop().await;
}

#[tokio::test]
async fn large_answers_that_no_client_reads_are_built_in_turn() {
    const CLIENTS: usize = 60;
    // The kernel keeps little of an answer.
    let small = ("socket.send.buffer.bytes", "65536");
    let broker = Broker::start_alone(&[small, ("http.listener", "127.0.0.1:0")]).await;
    let mut other = broker.connect().await;
    other.create_topic_of("shared", 100, &[]).await;
    let fetch = store_offsets(&mut other, 7).await;
    let answer_bytes = {
        other.send(&fetch, 8).await;
        other.receive_frame().await.expect("the broker answers").len()
    };
    assert!(answer_bytes > 2_800_000, "{answer_bytes} bytes");
    let peak = Peak::begin();
    let mut deaf = Vec::new();
    for _ in 0..CLIENTS {
        let mut conn = Conn::open_from(Ipv4Addr::new(127, 0, 0, 2).into(), broker.address()).await;
        conn.send(&fetch, 8).await;
        deaf.push(conn);
    }
    wait_until_full(&broker, "answer").await;
    // Its address holds nothing: it comes first when one of the others has lost its answer.
    other.send(&fetch, 8).await;
    let answer = timeout(Duration::from_secs(120), other.receive_frame_or_wait()).await;
    assert_eq!(answer.expect("an answer").expect("the connection is open").len(), answer_bytes);
    let growth = peak.growth_bytes();
    let unbounded = (CLIENTS * answer_bytes) as u64;
    assert!(growth < 110 * MIB && growth < unbounded, "grew by {} MiB", growth / MIB);
    drop(deaf);
    broker.stop().await;
}

#[tokio::test]
async fn decisions_of_connections_that_ended_stay_charged() {
    const CLIENTS: usize = 6_000;
    /// Connections that are open at a time.
    const OPEN: usize = 8;
    let broker = Broker::start_alone(&[]).await;
    let mut other = broker.connect().await;
    let topic = |n: usize| CreatableTopic {
        name: format!("validated-{n}"),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let topics = (0..1_000).map(topic).collect();
    let validate = CreateTopicsRequest { topics, timeout_ms: 10_000, validate_only: true };
    let (peak, mut open) = (Peak::begin(), VecDeque::new());
    for _ in 0..CLIENTS {
        let mut conn = Conn::open_from(Ipv4Addr::new(127, 0, 0, 2).into(), broker.address()).await;
        conn.send(&validate, 7).await;
        open.push_back(conn);
        if open.len() > OPEN {
            open.pop_front();
        }
    }
    other.send(&validate, 7).await;
    let answer = timeout(Duration::from_secs(120), other.receive_frame_or_wait()).await;
    answer.expect("an answer").expect("the connection is open");
    let growth = peak.growth_bytes();
    assert!(growth < 110 * MIB, "grew by {} MiB", growth / MIB);
    broker.stop().await;
}

/// Growth of the process, in bytes, while the broker serves a request with a long list, and the bytes that the broker charges
/// for it: its frame, its decoded form, three times as much for the answer, and `more`.
async fn growth_and_charge<R: wire::Request>(
    broker: &Broker,
    request: R,
    version: i16,
    more: usize,
) -> (u64, u64) {
    let frame = frame_of(&request, version, 1);
    drop(request);
    let head = wire::frame::RequestHead::parse(&frame[4..]).unwrap();
    let mut reader = wire::Reader::new(&frame[4 + head.body_from..]);
    drop(R::decode(&mut reader, version).unwrap());
    let charged = frame.len() + 4 * reader.spent_bytes() + more;
    let mut conn = broker.connect().await;
    heap::release_unused();
    let peak = Peak::begin();
    conn.write(&frame).await;
    let answer = timeout(Duration::from_secs(120), conn.receive_frame_or_wait()).await;
    let answer = answer.expect("an answer").expect("the connection is open");
    // The client's own buffer, which is in this process.
    (peak.growth_bytes().saturating_sub(answer.len() as u64), charged as u64)
}

#[tokio::test]
async fn long_lists_take_at_most_the_memory_that_they_are_charged() {
    const ITEMS: usize = 100_000;
    /// Free memory that the allocator keeps, and buffers that grow.
    const SLACK: u64 = 24 * MIB;
    let broker = Broker::start_alone(&[]).await;
    broker.assert_serves().await;
    let name = |n: usize| format!("t{n}");
    let topic = |n: usize| CreatableTopic {
        name: name(n),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let create = |count: usize| CreateTopicsRequest {
        topics: (0..count).map(topic).collect(),
        timeout_ms: 10_000,
        validate_only: true,
    };
    let grown = |n| wire::create_partitions::CreatePartitionsTopic {
        name: name(n),
        count: 2,
        assignments: None,
    };
    let altered = |n| wire::alter_configs::AlterConfigsResource {
        resource_type: 2,
        resource_name: name(n),
        configs: Vec::new(),
    };
    let changed = |n| wire::incremental_alter_configs::AlterConfigsResource {
        resource_type: 2,
        resource_name: name(n),
        configs: Vec::new(),
    };
    let topics = |n| (0..ITEMS).map(n).collect();
    // Configurations of the topics that are created, and the decision of a thousand.
    let more = (10_000 * (3 << 10)) + (4 << 20);
    let measured = [
        ("CreateTopics", growth_and_charge(&broker, create(10_000), 7, more).await),
        ("CreateTopics, too many", growth_and_charge(&broker, create(20_000), 7, more).await),
        (
            "CreatePartitions",
            growth_and_charge(
                &broker,
                wire::CreatePartitionsRequest {
                    topics: (0..ITEMS).map(grown).collect(),
                    timeout_ms: 1_000,
                    validate_only: true,
                },
                3,
                0,
            )
            .await,
        ),
        (
            "DeleteTopics",
            growth_and_charge(
                &broker,
                wire::DeleteTopicsRequest {
                    topic_names: topics(name),
                    timeout_ms: 1_000,
                    ..Default::default()
                },
                5,
                0,
            )
            .await,
        ),
        (
            "AlterConfigs",
            growth_and_charge(
                &broker,
                wire::AlterConfigsRequest {
                    resources: (0..ITEMS).map(altered).collect(),
                    validate_only: true,
                },
                2,
                0,
            )
            .await,
        ),
        (
            "IncrementalAlterConfigs",
            growth_and_charge(
                &broker,
                wire::IncrementalAlterConfigsRequest {
                    resources: (0..ITEMS).map(changed).collect(),
                    validate_only: true,
                },
                1,
                0,
            )
            .await,
        ),
        (
            "CreateAcls",
            growth_and_charge(
                &broker,
                wire::CreateAclsRequest {
                    creations: vec![wire::create_acls::AclCreation::default(); ITEMS],
                },
                3,
                0,
            )
            .await,
        ),
        (
            "DeleteGroups",
            growth_and_charge(
                &broker,
                wire::DeleteGroupsRequest { groups_names: topics(name) },
                2,
                0,
            )
            .await,
        ),
    ];
    for (api, (growth, charged)) in &measured {
        eprintln!("{api}: grew by {} KiB, {} charged", growth / 1024, charged / 1024);
    }
    for (api, (growth, charged)) in measured {
        assert!(growth <= charged + SLACK, "{api}: {growth} bytes, {charged} charged");
    }
    broker.stop().await;
}

/// Unread answers of large requests hold the memory of answers: small answers to the same address wait for none.
#[tokio::test]
async fn small_answers_wait_for_no_unread_answers_of_their_address() {
    let small = ("socket.send.buffer.bytes", "65536");
    let broker = Broker::start_alone(&[small, ("http.listener", "127.0.0.1:0")]).await;
    let mut other = broker.connect().await;
    // Its answer is reserved with 2.6 MB.
    other.create_topic_of("large", 27_000, &[]).await;
    let large = wire::MetadataRequest { topics: None, ..Default::default() };
    let hog = Ipv4Addr::new(127, 0, 0, 2).into();
    let mut deaf = Vec::new();
    for _ in 0..50 {
        let mut conn = Conn::open_from(hog, broker.address()).await;
        conn.send(&large, 12).await;
        deaf.push(conn);
    }
    let unknown = wire::metadata::MetadataRequestTopic {
        name: Some("unknown".to_owned()),
        ..Default::default()
    };
    let unknown = wire::MetadataRequest {
        topics: Some(vec![unknown]),
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    let mut slowest = Duration::ZERO;
    let filled = broker.metric("highwater_answer_memory_bytes");
    eprintln!("{} bytes of answers", filled.await);
    for _ in 0..50 {
        let mut conn = Conn::open_from(hog, broker.address()).await;
        let began = Instant::now();
        conn.call(&unknown, 12).await;
        slowest = slowest.max(began.elapsed());
    }
    eprintln!("the slowest answer came after {slowest:?}");
    // Unread answers are still held: none had to go for a small one.
    assert!(broker.metric("highwater_answer_memory_bytes").await > 0.0);
    drop(deaf);
    broker.stop().await;
}

/// A request for metadata of very many names, of a few MiB; decoded it takes many times as much.
fn decoded_monster() -> Vec<u8> {
    let topic = |n: usize| wire::metadata::MetadataRequestTopic {
        name: Some(format!("{n:x}")),
        ..Default::default()
    };
    let topics = Some((0..500_000).map(topic).collect());
    frame_of(&wire::MetadataRequest { topics, ..Default::default() }, 4, 1)
}

#[tokio::test]
async fn requests_behind_a_long_poll_are_not_decoded() {
    let broker = Broker::start_alone(&[]).await;
    let mut other = broker.connect().await;
    other.create_topic("long", &[]).await;
    let mut fetch = fetch_request("long", 0);
    (fetch.min_bytes, fetch.max_wait_ms) = (1, FOREVER_MS);
    let (poll, monster) = (frame_of(&fetch, FETCH, 1), decoded_monster());
    let peak = Peak::begin();
    let mut conns = Vec::new();
    for _ in 0..3 {
        let mut conn = broker.connect().await;
        conn.write(&poll).await;
        // One is taken in, and waits; of the others only the sockets take some.
        conn.write(&monster).await;
        for _ in 0..4 {
            send_what_is_taken(&mut conn, &monster).await;
        }
        conns.push(conn);
    }
    other.append("long", batch(&["meanwhile"])).await;
    let growth = peak.growth_bytes();
    assert!(growth < 64 * MIB, "grew by {} MiB", growth / MIB);
    broker.stop().await;
}

/// Frames of 100 MiB that never become whole fill the memory of requests; a large request of another client has its turn.
#[tokio::test]
async fn a_large_request_is_decoded_within_the_bound_that_frames_fill() {
    let broker = Broker::start_alone(&[("http.listener", "127.0.0.1:0")]).await;
    let mut other = broker.connect().await;
    let topic = |n: usize| wire::metadata::MetadataRequestTopic {
        name: Some(format!("{:02x}", n % 256)),
        ..Default::default()
    };
    let large = wire::MetadataRequest {
        topics: Some((0..600_000).map(topic).collect()),
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    let large = frame_of(&large, 4, 1);
    let peak = Peak::begin();
    let mut dripping = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let mut conn = broker.connect().await;
        conn.write(&(100i32 << 20).to_be_bytes()).await;
        dripping.spawn(async move {
            let piece = vec![0; 64 << 10];
            // Less than 100 MiB. The broker closes the connection of one frame at least.
            for _ in 0..1_599 {
                if conn.stream.write_all(&piece).await.is_err() {
                    return;
                }
            }
            std::future::pending::<()>().await;
        });
    }
    let deadline = Instant::now() + PATIENCE;
    while broker.metric("highwater_request_memory_bytes").await < (90 * MIB) as f64 {
        assert!(Instant::now() < deadline, "frames do not fill their memory");
    }
    other.write(&large).await;
    let answer = timeout(Duration::from_secs(120), other.receive_frame_or_wait()).await;
    answer.expect("an answer").expect("the connection is open");
    let growth = peak.growth_bytes();
    assert!(growth < 150 * MIB, "grew by {} MiB", growth / MIB);
    dripping.abort_all();
    broker.stop().await;
}

#[tokio::test]
async fn a_large_fetch_leaves_nothing_behind() {
    let broker = Broker::start_alone(&[]).await;
    let mut topics = fetch_request("many", 0);
    // Topics without partitions are decoded, and nothing is answered for them.
    let none = wire::fetch::FetchTopic { topic: "x".to_owned(), ..Default::default() };
    topics.topics = vec![none; 4000];
    let frame = frame_of(&topics, FETCH, 1);
    let mut monsters = fetch_request("many", 0);
    monsters.topics[0].partitions = (0..600_000).map(|index| fetch_partition(index, 0)).collect();
    let monster = frame_of(&monsters, FETCH, 1);
    let peak = Peak::begin();
    let mut conns = Vec::new();
    for _ in 0..5 {
        let mut conn = broker.connect().await;
        conn.write(&frame).await;
        conn.receive::<wire::FetchRequest>(FETCH, 1).await;
        let mut refused = broker.connect().await;
        refused.write(&monster).await;
        refused.assert_closed().await;
        conns.push(conn);
    }
    let growth = peak.growth_bytes();
    // One frame of 20 MiB after the other is buffered.
    assert!(growth < 64 * MIB, "grew by {} MiB", growth / MIB);
    broker.stop().await;
}

#[tokio::test]
async fn two_thousand_idle_connections_cost_less_than_fifty_kib_each() {
    const COUNT: u64 = 2000;
    raise_open_files();
    let broker = Broker::start_alone(&[]).await;
    broker.assert_serves().await;
    let before = status_bytes("VmRSS:");
    let mut idle = Vec::new();
    for _ in 0..COUNT {
        let mut conn = broker.connect().await;
        conn.call(&wire::ApiVersionsRequest::default(), 0).await;
        idle.push(conn);
    }
    let each = status_bytes("VmRSS:").saturating_sub(before) / COUNT;
    eprintln!("{each} bytes a connection");
    assert!(each < 50 * 1024, "{each} bytes a connection, the client's side included");
    // All of them are still served.
    for conn in idle.iter_mut().step_by(100) {
        conn.call(&wire::ApiVersionsRequest::default(), 0).await;
    }
    drop(idle);
    broker.stop().await;
}

/// Both ends of every connection are in this process.
fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("a process may use all that it is given");
}

#[tokio::test]
async fn a_compressed_bomb_is_refused_quickly_and_with_little_memory() {
    let broker = Broker::start_alone(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("bombed", &[("cleanup.policy", "compact")]).await;
    conn.create_topic("recompressed", &[("compression.type", "lz4")]).await;
    let bomb = bomb();
    assert!(bomb.len() < 200_000, "{} bytes are sent", bomb.len());
    for topic in ["bombed", "recompressed"] {
        let peak = Peak::begin();
        let began = Instant::now();
        let answer = conn.produce(topic, bomb.clone()).await;
        let took = began.elapsed();
        eprintln!("{topic}: {took:?} {answer:?}");
        assert_ne!(answer.error(), ErrorCode::None, "{topic}");
        assert!(took < PATIENCE, "{topic}: {took:?}");
        let growth = peak.growth_bytes();
        assert!(growth < 150 * MIB, "{topic}: grew by {} MiB", growth / MIB);
        assert_eq!(conn.end_offset(topic).await, 0);
    }
    broker.assert_serves().await;
    broker.stop().await;
}

/// One record of half a GiB of zeros.
fn bomb() -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.add(Timestamp(now_ms()), Some(b"key"), Some(&vec![0; 1 << 29]));
    compressed(builder, Compression::Zstd)
}
