//! A process that the system refuses descriptors, whatever it counts itself: its limit is lowered while it
//! runs, and connections take the rest.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use model::ErrorCode;

use super::client::{Conn, batch, fetch_of, produce_to};
use super::server::Server;

const PATIENCE: Duration = Duration::from_secs(300);
/// Partitions that have no file yet when the descriptors are gone.
const UNWRITTEN: i32 = 20;
/// What a record takes: a segment of 1 MiB holds few.
const RECORD_BYTES: usize = 60_000;

/// Of a partition: how many batches were acknowledged, and how many more may be there, for nobody said so in time.
struct Sent {
    topic: &'static str,
    index: i32,
    acknowledged: usize,
    unknown: usize,
}

fn produce_one(conn: &mut Conn, topic: &str, index: i32) -> ErrorCode {
    let mut request = produce_to(topic, index, batch(1, RECORD_BYTES));
    // So long it waits for a file at most.
    request.timeout_ms = 200;
    conn.call(&request, 9).responses[0].partition_responses[0].error()
}

/// How many batches a partition hands out, from its start to its end.
fn count_batches(conn: &mut Conn, topic: &str, index: i32) -> usize {
    let (mut offset, mut count) = (0, 0);
    loop {
        let mut fetch = fetch_of(topic, index, offset, 30_000);
        fetch.min_bytes = 0;
        let answer = conn.call(&fetch, 12);
        let partition = &answer.responses[0].partitions[0];
        assert_eq!(partition.error(), ErrorCode::None, "{topic} {index}");
        let bytes = partition.records.clone().unwrap_or_default();
        let before = count;
        for found in model::batch::Batches::new(&bytes) {
            offset = found.expect("whole batches").0.next_offset().0;
            count += 1;
        }
        if count == before {
            assert_eq!(partition.high_watermark, offset, "{topic} {index}");
            return count;
        }
    }
}

fn assert_all_is_there(server: &Server, sent: &[Sent]) {
    let mut conn = Conn::open(server.address);
    for Sent { topic, index, acknowledged, unknown } in sent {
        let found = count_batches(&mut conn, topic, *index);
        // What was refused is not there either.
        let right = *acknowledged..=acknowledged + unknown;
        assert!(right.contains(&found), "{topic} {index}: {found}, not {right:?}");
    }
}

#[test]
fn what_the_system_refuses_waits_or_is_refused_and_takes_nothing_offline() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let often = ["log.initial.task.delay.ms=50", "log.flush.offset.checkpoint.interval.ms=200"];
    let small = ["--set", "log.segment.bytes=1048576", "--set", often[0], "--set", often[1]];
    let server = Server::start_in(&data, &small, None);
    let mut conn = Conn::open(server.address);
    conn.create_topic("rolled");
    conn.create_partitions("unwritten", UNWRITTEN);
    assert_eq!(produce_one(&mut conn, "rolled", 0), ErrorCode::None);
    let of = |topic, index, acknowledged| Sent { topic, index, acknowledged, unknown: 0 };
    let mut sent = vec![of("rolled", 0, 1)];
    sent.extend((0..UNWRITTEN).map(|index| of("unwritten", index, 0)));
    // None above those that it has now; connections take the numbers in between.
    let max = server.descriptors().into_iter().max().expect("it has some") + 1;
    server.limit_descriptors(max);
    let mut crowd = Vec::new();
    let crowded = Instant::now();
    while (server.descriptors().len() as u64) < max {
        assert!(crowded.elapsed() < PATIENCE, "{:?} of {max}", server.descriptors());
        crowd.extend(TcpStream::connect(server.address));
        std::thread::sleep(Duration::from_millis(1));
    }
    // What must not fail has descriptors of its own.
    conn.create_topic("made-without-any");
    let (mut refused, mut served) = (0, 0);
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end || served + refused < 20 {
        for Sent { topic, index, acknowledged, unknown } in &mut sent {
            match produce_one(&mut conn, topic, *index) {
                ErrorCode::None => (served, *acknowledged) = (served + 1, *acknowledged + 1),
                ErrorCode::RequestTimedOut => *unknown += 1,
                error => {
                    assert_eq!(error, ErrorCode::KafkaStorageError, "{topic} {index}");
                    refused += 1;
                }
            }
        }
    }
    eprintln!("without descriptors {served} requests were served, {refused} refused");
    assert!(refused > 0, "the system refused nothing");
    drop(crowd);
    server.limit_descriptors(max + 1000);
    let relieved = Instant::now();
    for Sent { topic, index, acknowledged, unknown } in &mut sent {
        loop {
            match produce_one(&mut conn, topic, *index) {
                ErrorCode::None => break,
                ErrorCode::RequestTimedOut => *unknown += 1,
                _ => {}
            }
            assert!(relieved.elapsed() < PATIENCE, "{topic} {index}: {}", server.output());
        }
        *acknowledged += 1;
    }
    assert_all_is_there(&server, &sent);
    let (output, seconds) = (server.output(), crowded.elapsed().as_secs() as usize);
    assert!(!output.contains("offline"), "{output}");
    // Whatever cannot be done for lack of a descriptor is told, and not without end.
    let lines = output.lines().filter(|line| line.contains("WARN") || line.contains("ERROR"));
    assert!(lines.count() <= 40 * (seconds + 2), "in {seconds} s: {output}");
    drop(conn);
    server.stop(PATIENCE);
    assert_all_is_there(&Server::start_in(&data, &small, None), &sent);
}
