//! An idempotent producer with several batches in flight, the first of which is refused. Raw requests: a client sends the
//! refused batch again before the next one.

use std::time::{Duration, Instant};

use client::Connection;
use model::record::BatchBuilder;
use model::{ErrorCode, ProducerEpoch, ProducerId, Sequence, Timestamp};
use rustix::process::Signal;
use wire::ProduceRequest;
use wire::produce::{PartitionProduceData, TopicProduceData};

use super::hints::{block_on, create, open, until_led};
use super::quorum::controller;
use super::{LIMIT, Up, place};

/// A version that names topics by name.
const PRODUCE: i16 = 9;
/// Less than the time for which a broker keeps a refused sequence.
const ROUND_MAX: Duration = Duration::from_secs(4);

/// Time-out of an ordinary batch, in milliseconds.
const ORDINARY_MS: i32 = 60_000;
/// Time-out of a batch that may be appended just before `min.insync.replicas` rises: it is committed when that falls again.
const UNDECIDED_MS: i32 = 1_000;

/// Sends a batch of one record with `acks=all`.
async fn send(at: &Connection, batch: BatchBuilder, timeout_ms: i32) -> ErrorCode {
    let mut batch = batch;
    batch.add(Timestamp(1), None, Some(b"value"));
    let records = Some(batch.finish().into());
    let request = ProduceRequest {
        acks: -1,
        timeout_ms,
        topic_data: vec![TopicProduceData {
            name: "few".to_owned(),
            partition_data: vec![PartitionProduceData { index: 0, records }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = at.call_version(&request, PRODUCE).await.unwrap();
    answer.responses[0].partition_responses[0].error()
}

/// Changes `min.insync.replicas`, and waits until the leader answers batches of no producer with `answer`.
async fn require(up: &Up, at: &Connection, in_sync: usize, answer: ErrorCode) {
    up.run(&format!("config set --topic few min.insync.replicas={in_sync}"));
    let deadline = Instant::now() + LIMIT;
    while send(at, BatchBuilder::new(), UNDECIDED_MS).await != answer {
        assert!(Instant::now() < deadline, "min.insync.replicas={in_sync} does not take effect");
    }
}

#[test]
fn a_batch_behind_a_refused_one_is_refused_with_the_same_error() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    let deciding = controller(&up.bootstrap);
    let others: Vec<i32> = (1..=3).filter(|id| *id != deciding).collect();
    let (leader, follower) = (others[0], others[1]);
    let address = up.brokers[leader as usize - 1].address.clone();
    block_on(async {
        let at = open(&address).await;
        create(&at, "few", &[leader, follower]).await;
        up.brokers[follower as usize - 1].signal(Signal::KILL);
        until_led(&address, "few", |(_, _, isr)| *isr == [leader]).await;
        let deadline = Instant::now() + LIMIT;
        // A round that took too long on a busy machine shows nothing, and is made again by another producer.
        for producer in 1.. {
            let batch = |sequence| {
                let id = ProducerId(producer);
                BatchBuilder::new().producer(id, ProducerEpoch(0), Sequence(sequence))
            };
            require(&up, &at, 1, ErrorCode::None).await;
            assert_eq!(send(&at, batch(0), ORDINARY_MS).await, ErrorCode::None);
            require(&up, &at, 2, ErrorCode::NotEnoughReplicas).await;
            let began = Instant::now();
            assert_eq!(send(&at, batch(1), ORDINARY_MS).await, ErrorCode::NotEnoughReplicas);
            require(&up, &at, 1, ErrorCode::None).await;
            let behind = send(&at, batch(2), ORDINARY_MS).await;
            if began.elapsed() > ROUND_MAX {
                assert!(Instant::now() < deadline, "no round in {ROUND_MAX:?}");
                continue;
            }
            assert_eq!(behind, ErrorCode::NotEnoughReplicas);
            assert_eq!(send(&at, batch(1), ORDINARY_MS).await, ErrorCode::None);
            assert_eq!(send(&at, batch(2), ORDINARY_MS).await, ErrorCode::None);
            assert_eq!(
                send(&at, batch(4), ORDINARY_MS).await,
                ErrorCode::OutOfOrderSequenceNumber,
                "a gap"
            );
            return;
        }
    });
    drop(up);
}
