//! Records that are taken in a row: they go where others go that are taken one by one, into the same batches.

use crate::played::{Answer, config, played};
use client::producer::{BatchReport, Fed, TopicProducer};
use client::{ClientError, Producer, ProducerConfig, Record};
use model::{ErrorCode, Timestamp};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The tags of each batch, by partition.
type Batches = BTreeMap<i32, Vec<Vec<u64>>>;

/// What became of a record that was offered: whether it was taken; `None` if there is no such partition.
type Taken = Option<bool>;

/// A way to offer records.
type Way = fn(&TopicProducer, &[Record<'_>]) -> Vec<Taken>;
const WAYS: [Way; 2] = [one_by_one, in_rows];

/// A producer of small batches, and what its batches had.
async fn producer(answer: Answer, buffer_bytes: usize) -> (Producer, Arc<Mutex<Batches>>) {
    let batches = Arc::<Mutex<Batches>>::default();
    let seen = batches.clone();
    let on_batch = move |report: &BatchReport<'_>| {
        let tags = report.tags.to_vec();
        seen.lock().unwrap().entry(report.partition).or_default().push(tags);
    };
    let config = ProducerConfig {
        batch_bytes: 500,
        buffer_bytes,
        on_batch: Some(Arc::new(on_batch)),
        ..config()
    };
    (Producer::new(played(3, answer).await, config).await.unwrap(), batches)
}

/// Records of many sizes for three partitions and one that there is not, several of one behind each other.
fn records(values: &[u8]) -> Vec<Record<'_>> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut partition = 0;
    (0..2000)
        .map(|tag| {
            if random.u8(..4) == 0 {
                partition = random.i32(0..4);
            }
            let value = Some(&values[..random.usize(..values.len())]);
            let timestamp = Some(Timestamp(1000));
            Record { value, timestamp, partition: Some(partition), tag, ..Record::default() }
        })
        .collect()
}

fn one_by_one(topic: &TopicProducer, records: &[Record<'_>]) -> Vec<Taken> {
    let mut feed = topic.feed();
    records.iter().map(|record| feed.offer(record).ok().map(|fed| fed != Fed::NoMemory)).collect()
}

fn in_rows(topic: &TopicProducer, records: &[Record<'_>]) -> Vec<Taken> {
    let mut taken = Vec::new();
    for row in records.chunks(70) {
        topic.intake(|intake| {
            for record in row {
                // As a caller does that chooses.
                intake.has_room(record.partition.unwrap() - 1, 10);
                taken.push(intake.try_send(record).ok().map(|delivery| delivery.is_some()));
            }
        });
    }
    taken
}

#[tokio::test]
async fn records_in_a_row_make_the_batches_that_single_ones_make() {
    let (values, answer) = ([b'v'; 180], |_| Some(ErrorCode::None));
    let records = records(&values);
    let mut made = Vec::new();
    for take in WAYS {
        let (producer, batches) = producer(Arc::new(answer), 64 << 20).await;
        let taken = take(&producer.topic("t").await.unwrap(), &records);
        producer.flush().await.unwrap();
        let batches = std::mem::take(&mut *batches.lock().unwrap());
        assert!(batches.len() == 3 && batches.values().all(|batches| batches.len() > 50));
        made.push((taken, batches));
    }
    assert!(made[0].0.contains(&None), "a partition that there is not");
    assert_eq!(made[0], made[1]);
}

#[tokio::test]
async fn a_row_ends_at_no_memory_where_single_records_do() {
    let (values, answer) = ([b'v'; 700], |_| None);
    let records = records(&values);
    let mut made = Vec::new();
    for take in WAYS {
        let (producer, _) = producer(Arc::new(answer), 40_000).await;
        let taken = take(&producer.topic("t").await.unwrap(), &records);
        made.push((taken, producer.free_buffer_bytes()));
    }
    assert!(made[0].0.contains(&Some(true)) && made[0].0.contains(&Some(false)));
    assert_eq!(made[0], made[1]);
}

#[tokio::test]
async fn what_is_taken_in_a_row_is_sent_when_the_row_ends() {
    let cluster = played(2, Arc::new(|_| Some(ErrorCode::None))).await;
    let config = ProducerConfig { linger: Duration::ZERO, ..config() };
    let producer = Producer::new(cluster, config).await.unwrap();
    let topic = producer.topic("t").await.unwrap();
    let record = |partition| Record { partition: Some(partition), ..Record::value(b"v") };
    let sent = topic.intake(|intake| -> Result<Vec<_>, ClientError> {
        [0, 0, 1, 0].map(|partition| intake.try_send(&record(partition))).into_iter().collect()
    });
    let mut offsets = Vec::new();
    for delivery in sent.unwrap() {
        let delivery = delivery.unwrap();
        let (offset, _) = delivery.place().await.unwrap();
        assert_eq!(delivery.known(), Some(delivery.place().await), "it stays so");
        offsets.push((delivery.partition(), offset.unwrap().0));
    }
    assert_eq!(offsets, [(0, 0), (0, 1), (1, 0), (0, 2)], "one batch of each partition");
}
