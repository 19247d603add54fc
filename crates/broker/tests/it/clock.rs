//! A start whose clock is far ahead of the last time that the log directory noted: nothing expires by
//! time until a person had time to set the clock.

use std::path::Path;
use std::sync::Arc;

use broker::RunningBroker;
use model::{BrokerEpoch, Timestamp};
use storage::disk::RealDisk;
use storage::journal::{Entry, Fact, Journal};
use tokio::time::timeout;

use crate::fixture::{Broker, Conn, PATIENCE, fetch_request, now_ms, run, timed};

const HOUR_MS: i64 = 60 * 60 * 1000;

/// Lets the journal say that the last stop, and every checkpoint, was that long ago.
fn stopped_before(dir: &Path, hours: i64) {
    let journal = Journal::open(Arc::new(RealDisk), dir, true).unwrap().unwrap();
    let then = Timestamp(now_ms() - hours * HOUR_MS);
    let state = journal.with_state(Clone::clone);
    let mut entries = Vec::new();
    for (key, known) in &state.partitions {
        let checkpoint = known.checkpoint.unwrap();
        let checkpoint = storage::journal::Checkpoint { at: then, ..checkpoint };
        entries.push(Entry::Of(*key, Fact::Checkpoint(checkpoint)));
    }
    journal.close(&entries, state.broker_epoch.unwrap_or(BrokerEpoch(1)), then).unwrap();
}

/// The first offset that can be read.
async fn start_of(conn: &mut Conn, topic: &str, end: i64) -> i64 {
    // Parks for a moment at the end of the log, and is answered when its start moves.
    let request = wire::FetchRequest { max_wait_ms: 20, min_bytes: 1, ..fetch_request(topic, end) };
    conn.call(&request, 12).await.responses[0].partitions[0].log_start_offset
}

async fn until_deleted(conn: &mut Conn, topic: &str, end: i64) {
    let deleted = async { while start_of(conn, topic, end).await != end {} };
    timeout(PATIENCE, deleted).await.expect("retention deletes the records");
}

async fn connected(running: &RunningBroker) -> Conn {
    Conn::open(running.listeners()[0]).await
}

#[tokio::test]
async fn a_clock_far_ahead_expires_nothing_by_time() {
    // However long this takes, retention looks at nothing yet.
    let broker = Broker::start(&[("log.initial.task.delay.ms", "3600000")]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("aged", &[("retention.ms", "3600000")]).await;
    conn.create_topic("large", &[("retention.ms", "-1"), ("retention.bytes", "0")]).await;
    // By the clock they are too old, by the last time that was noted they are not.
    let written = now_ms() - 30 * HOUR_MS;
    for topic in ["aged", "large"] {
        conn.append(topic, timed(&[written, written]).finish()).await;
    }
    drop(conn);
    let stopped = broker.stop_and_keep().await;
    let dir = stopped.dir.path();
    let settings = [("log.initial.task.delay.ms", "0"), ("log.retention.check.interval.ms", "20")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    stopped_before(dir, 40);

    let running = run(dir, &settings).await.unwrap();
    let mut conn = connected(&running).await;
    // What is too large goes, so retention has looked at all topics.
    until_deleted(&mut conn, "large", 2).await;
    assert_eq!(start_of(&mut conn, "aged", 2).await, 0);
    drop(conn);
    running.stop().await;

    // The stop noted the time: it is believed from then on.
    let running = run(dir, &settings).await.unwrap();
    let mut conn = connected(&running).await;
    until_deleted(&mut conn, "aged", 2).await;
    drop(conn);
    running.stop().await;
}
