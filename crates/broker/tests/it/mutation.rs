//! Requests recorded from Kafka's own code, as they are and with bytes flipped, and batches with
//! bytes flipped under a right checksum: whatever comes of them, no thread of the broker panics and
//! it goes on.

use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::Compression;
use model::batch::write_checksum;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use wire::ApiKey;

use crate::fixture::*;
use crate::hostile::raw_frame;

/// Broken variants of each recorded request.
const VARIANTS: usize = 2;

/// Panics of the broker's own threads since [`count_panics`].
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(set_hook);
}

fn set_hook() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // A test's own thread is named after its path.
        if !std::thread::current().name().is_some_and(|name| name.contains("::")) {
            PANICS.fetch_add(1, Ordering::SeqCst);
        }
        before(panic);
    }));
}

/// The recorded requests of an API: version and message.
fn recorded(api: ApiKey) -> Vec<(i16, Vec<u8>)> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/testdata/golden");
    let file = golden.join(format!("{}.txt", snake_case(api.name())));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    text.lines().filter(|line| line.starts_with("request ")).map(parse).collect()
}

fn parse(line: &str) -> (i16, Vec<u8>) {
    let mut words = line.split(' ').skip(1);
    let version = words.next().unwrap().parse().unwrap();
    let hex = words.nth(1).unwrap();
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (version, (0..hex.len()).step_by(2).map(byte).collect())
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// Flips one to four bytes.
fn mutate(message: &mut [u8], random: &mut fastrand::Rng) {
    if message.is_empty() {
        return;
    }
    for _ in 0..random.usize(1..=4) {
        let at = random.usize(..message.len());
        message[at] ^= random.u8(1..);
    }
}

/// Sends it on a connection of its own, which the broker then closes.
async fn send(broker: &Broker, frame: &[u8]) {
    let mut conn = broker.connect().await;
    let _ = conn.stream.write_all(frame).await;
    let _ = conn.stream.shutdown().await;
    let mut answer = Vec::new();
    let read = timeout(PATIENCE, conn.stream.read_to_end(&mut answer)).await;
    read.expect("the connection ends").ok();
}

#[tokio::test]
async fn flipped_bytes_in_any_request_leave_the_broker_alive() {
    count_panics();
    let broker = Broker::start(&[]).await;
    let mut random = fastrand::Rng::with_seed(2026);
    let mut sent = 0;
    for advertised in broker::advertised() {
        for (version, message) in recorded(advertised.api) {
            send(&broker, &raw_frame(advertised.api, version, &message)).await;
            for _ in 0..VARIANTS {
                let mut broken = message.clone();
                mutate(&mut broken, &mut random);
                send(&broker, &raw_frame(advertised.api, version, &broken)).await;
                sent += 1;
            }
            assert_eq!(PANICS.load(Ordering::SeqCst), 0, "{} {version}", advertised.api);
        }
        broker.assert_serves().await;
    }
    assert!(sent > 500, "only {sent} requests were recorded");
    broker.stop().await;
}

/// Topics that look at batches in different ways.
const TOPICS: [(&str, &[(&str, &str)]); 5] = [
    ("plain", &[]),
    ("compacted", &[("cleanup.policy", "compact")]),
    ("stamped", &[("message.timestamp.type", "LogAppendTime")]),
    ("anew", &[("compression.type", "lz4")]),
    ("expanded", &[("compression.type", "uncompressed"), ("internal.segment.bytes", "2000")]),
];
/// Broken variants of a batch for each topic and codec.
const BROKEN_BATCHES: usize = 150;
/// What the checksum covers begins here.
const COVERED_FROM: usize = 21;

fn broken_batch(codec: Compression, random: &mut fastrand::Rng) -> Vec<u8> {
    let mut batch = compressed(builder(&["one", "two", "three"]), codec);
    // Half of the time in the header, where each byte means something.
    let until = if random.bool() { model::batch::HEADER_BYTES } else { batch.len() };
    mutate(&mut batch[COVERED_FROM..until], random);
    write_checksum(&mut batch);
    batch
}

#[tokio::test]
async fn flipped_bytes_in_batches_with_a_right_checksum_do_no_harm() {
    count_panics();
    // A flipped timestamp rolls a segment: there is something to clean at any time. It may be one of long ago, and
    // retention must not take away what is read here, however long the test takes.
    let settings = [("log.cleaner.backoff.ms", "10"), ("log.retention.ms", "-1")];
    let broker = Broker::start(&settings).await;
    let mut random = fastrand::Rng::with_seed(11);
    let mut conn = broker.connect().await;
    for (topic, configs) in TOPICS {
        conn.create_topic(topic, configs).await;
        for codec in [Compression::None, Compression::Zstd, Compression::Snappy] {
            for _ in 0..BROKEN_BATCHES {
                conn.produce(topic, broken_batch(codec, &mut random)).await;
            }
        }
        assert_eq!(PANICS.load(Ordering::SeqCst), 0, "{topic}");
        for timestamp in [-3, 0, now_ms(), now_ms() + 1_000_000, i64::MAX] {
            conn.call(&list_offsets(topic, timestamp), 11).await;
        }
        conn.append(topic, batch(&["still served"])).await;
        assert_readable(&mut conn, topic).await;
    }
    let broker = broker.restart().await;
    let mut conn = broker.connect().await;
    for (topic, _) in TOPICS {
        assert_readable(&mut conn, topic).await;
    }
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
    broker.stop().await;
}

fn list_offsets(topic: &str, timestamp: i64) -> wire::ListOffsetsRequest {
    let partition = wire::list_offsets::ListOffsetsPartition {
        current_leader_epoch: -1,
        timestamp,
        ..Default::default()
    };
    wire::ListOffsetsRequest {
        replica_id: -1,
        topics: vec![wire::list_offsets::ListOffsetsTopic {
            name: topic.to_owned(),
            partitions: vec![partition],
        }],
        ..Default::default()
    }
}

/// From the start to the end, batch follows batch; only what a cleaner took away may be missing.
async fn assert_readable(conn: &mut Conn, topic: &str) {
    let cleaned = topic == "compacted";
    let end = conn.end_offset(topic).await;
    assert!(end > 0);
    let mut next = 0;
    while next < end {
        let fetched = conn.fetch(topic, next).await;
        let found = headers(&fetched);
        assert!(!found.is_empty(), "{topic}: nothing at {next}");
        for header in found {
            let base = header.base_offset.0;
            assert!(base == next || cleaned && base > next, "{topic}: {base} where {next} was due");
            next = header.next_offset().0;
        }
    }
    assert_eq!(next, end);
}
