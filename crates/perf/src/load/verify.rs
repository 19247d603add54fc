//! Reads back what was produced, and says whether all that was acknowledged is there.

use super::{LoadError, runtime};
use crate::stamp::{Acknowledged, Checker, Findings, Verdict};
use client::{Cluster, ClusterConfig, Consumer, ConsumerConfig, OffsetReset, OffsetSpec};
use model::{Offset, TopicPartition};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// For how many times `idle` what the brokers say is there is waited for: a pause of theirs is no loss.
const PATIENCE: u32 = 10;

/// Reads the topics of a stamped run from their first to their last record and compares. Blocks;
/// gives up when nothing has come for `idle`, or for ten times that while brokers say that there is
/// more, which counts what was not read as lost.
pub fn verify(
    bootstrap: &str,
    acknowledged: &Acknowledged,
    idle: Duration,
) -> Result<Verdict, LoadError> {
    let topics = acknowledged.topics();
    let found = look(bootstrap, &topics, acknowledged.run, Some(acknowledged), idle)?;
    Ok(found.verdict(acknowledged))
}

/// What is in these topics of a run.
pub fn verify_findings(
    bootstrap: &str,
    topics: &[String],
    run: u32,
    idle: Duration,
) -> Result<Findings, LoadError> {
    look(bootstrap, topics, run, None, idle)
}

fn look(
    bootstrap: &str,
    topics: &[String],
    run: u32,
    expected: Option<&Acknowledged>,
    idle: Duration,
) -> Result<Findings, LoadError> {
    let runtime = runtime()?;
    let findings = runtime.block_on(read_back(bootstrap, topics, run, expected, idle));
    runtime.shutdown_background();
    findings
}

/// Reads to the end. The end moves: a record that was acknowledged with `acks=1` becomes visible only when the high
/// watermark has passed it, so while one of `expected` is missing it reads on, until nothing new comes for `idle`.
/// Their number would not do: what was sent twice would stand for what is still to come. And when all is there the end is
/// looked up once more, for what came twice.
async fn read_back(
    bootstrap: &str,
    topics: &[String],
    run: u32,
    expected: Option<&Acknowledged>,
    idle: Duration,
) -> Result<Findings, LoadError> {
    let cluster = Cluster::connect(ClusterConfig::new(bootstrap)).await?;
    let config = ConsumerConfig {
        offset_reset: OffsetReset::Earliest,
        auto_commit: None,
        partition_bytes_max: 4 * 1024 * 1024,
        ..ConsumerConfig::default()
    };
    let mut consumer = Consumer::new(cluster.clone(), config);
    let mut partitions = Vec::new();
    for name in topics {
        let topic = cluster.topic(name).await?;
        let all = topic.partitions.iter().map(|p| TopicPartition::new(name.as_str(), p.index));
        partitions.extend(all);
    }
    consumer.assign(&partitions).await?;
    let mut left = ends(&consumer, &partitions).await?;
    let mut read = HashMap::new();
    let mut checker = match expected {
        Some(acknowledged) if acknowledged.anywhere => Checker::anywhere(run),
        _ => Checker::new(run),
    };
    let (mut scratch, mut heard) = (Vec::new(), Instant::now());
    let is_missing = |checker: &mut Checker| expected.is_some_and(|all| checker.lacks_any_of(all));
    loop {
        let (is_left, quiet) = (!left.is_empty(), heard.elapsed());
        let patience = if is_left { idle * PATIENCE } else { idle };
        if quiet >= patience {
            break;
        }
        if !(is_left || is_missing(&mut checker)) {
            left = ends(&consumer, &partitions).await?;
            left.retain(|partition, end| read.get(partition).is_none_or(|next| *next < *end));
            if left.is_empty() {
                break;
            }
        }
        for fetched in consumer.poll(Duration::from_millis(100)).await? {
            heard = Instant::now();
            checker.turn_to(&fetched.partition.topic, fetched.partition.partition.0);
            fetched.for_each(&mut scratch, |record| {
                checker.take(record.value);
            })?;
            read.insert(fetched.partition.clone(), fetched.next_offset);
            if left.get(&fetched.partition).is_some_and(|end| fetched.next_offset >= *end) {
                left.remove(&fetched.partition);
            }
        }
    }
    Ok(checker.finish())
}

/// Partitions that have records, and where they end.
async fn ends(
    consumer: &Consumer,
    partitions: &[TopicPartition],
) -> Result<HashMap<TopicPartition, Offset>, LoadError> {
    let wanted = |spec| -> Vec<_> { partitions.iter().map(|p| (p.clone(), spec)).collect() };
    let first = consumer.offsets(&wanted(OffsetSpec::Earliest)).await?;
    let last = consumer.offsets(&wanted(OffsetSpec::Latest)).await?;
    let offset = |found: &HashMap<TopicPartition, client::FoundOffset>, p: &TopicPartition| {
        found.get(p).and_then(|found| found.offset).unwrap_or(Offset(0))
    };
    let some = partitions.iter().filter(|p| offset(&first, p) < offset(&last, p));
    Ok(some.map(|p| (p.clone(), offset(&last, p))).collect())
}
