//! The data folder that is damaged: one of everything that a broker keeps.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use client::admin::{ConfigOperation, NewTopic, Resource};
use client::{Admin, Cluster, ClusterConfig, CommittedOffset, Connection};
use model::record::BatchBuilder;
use model::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicPartition};
use peer::highwater;

use crate::requests::{self, runtime};

/// Groups that have committed.
pub const GROUPS: [&str; 2] = ["readers", "others"];
/// A topic that Kafka wrote, of two partitions.
const ADOPTED: &str = "orders";
/// Settings while the folder is made: the cleaner works at once, the offsets topic is small.
const SETTINGS: [(&str, &str); 4] = [
    ("offsets.topic.num.partitions", "3"),
    ("log.cleaner.backoff.ms", "50"),
    ("log.initial.task.delay.ms", "50"),
    ("log.flush.offset.checkpoint.interval.ms", "500"),
];
/// How long the cleaner may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// How the broker ended that made the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    Cleanly,
    Killed,
}

/// Makes the folder at `data`.
pub fn make(binary: &Path, data: &Path, stopped: Stopped) -> Result<()> {
    make_with(binary, data, stopped, |_| Ok(()))
}

/// As [`make`], with a topic whose partitions Kafka wrote.
pub fn make_with_adopted(binary: &Path, data: &Path, stopped: Stopped) -> Result<()> {
    make_with(binary, data, stopped, |data| adopted(binary, data))
}

fn make_with(
    binary: &Path,
    data: &Path,
    stopped: Stopped,
    between: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let start = || highwater::start(binary, data, 0, &SETTINGS);
    let mut server = start()?;
    runtime()?.block_on(fill(&server.bootstrap()))?;
    server.stop()?;
    between(data)?;
    server = start()?;
    runtime()?.block_on(fill_more(&server.bootstrap()))?;
    match stopped {
        Stopped::Cleanly => server.stop(),
        Stopped::Killed => server.kill(),
    }
}

async fn fill(address: &str) -> Result<()> {
    let admin = Admin::new(Cluster::connect(ClusterConfig::new(address)).await?);
    let connection = requests::connect(address).await?;
    rolled(&admin, &connection).await?;
    trimmed(&admin, &connection).await?;
    compacted(&admin, &connection).await?;
    switched(&admin, &connection).await?;
    made_again(&admin, &connection).await?;
    commits(&admin).await?;
    create(&admin, ADOPTED, 2, &[]).await
}

/// Behind the last checkpoint.
async fn fill_more(address: &str) -> Result<()> {
    let connection = requests::connect(address).await?;
    for number in 0..5 {
        for topic in ["rolled", ADOPTED] {
            requests::produce(&connection, topic, 0, batch(number, 1_000)).await?;
        }
    }
    Ok(())
}

/// Fills the topic with what Kafka wrote.
fn adopted(binary: &Path, data: &Path) -> Result<()> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the folder of crates")?;
    let kafka = crates.join("highwater/tests/stopped_folder/kafka-4.3.1/clean");
    let output = Command::new(binary)
        .args(["log", "adopt"])
        .arg(kafka)
        .args(["--topic", ADOPTED, "--into"])
        .arg(data)
        .output()?;
    ensure!(output.status.success(), "log adopt: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

async fn create(
    admin: &Admin,
    name: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> Result<()> {
    // The records' times are fixed, and the folder may be opened years later.
    let configs = configs.iter().chain(&[("retention.ms", "-1")]);
    let configs = configs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let topic = NewTopic { configs: configs.collect(), ..NewTopic::new(name, partitions, 1) };
    admin.create_topic(&topic).await?;
    Ok(())
}

/// Several segments, by an idempotent producer.
async fn rolled(admin: &Admin, connection: &Connection) -> Result<()> {
    create(admin, "rolled", 2, &[("internal.segment.bytes", "12000")]).await?;
    for number in 0..40 {
        let builder =
            BatchBuilder::new().producer(ProducerId(900), ProducerEpoch(0), Sequence(number * 3));
        requests::produce(connection, "rolled", 1, records(builder, number, 300)).await?;
        requests::produce(connection, "rolled", 0, batch(number, 300)).await?;
    }
    Ok(())
}

/// Records deleted from the front, in the middle of a segment.
async fn trimmed(admin: &Admin, connection: &Connection) -> Result<()> {
    create(admin, "trimmed", 1, &[("internal.segment.bytes", "9000")]).await?;
    for number in 0..30 {
        requests::produce(connection, "trimmed", 0, batch(number, 300)).await?;
    }
    let before = HashMap::from([(TopicPartition::new("trimmed", 0), Offset(40))]);
    for (_, deleted) in admin.delete_records(&before).await? {
        deleted?;
    }
    Ok(())
}

/// The same few keys again and again, cleaned at least once.
async fn compacted(admin: &Admin, connection: &Connection) -> Result<()> {
    let configs = [
        ("cleanup.policy", "compact"),
        ("internal.segment.bytes", "4000"),
        ("min.cleanable.dirty.ratio", "0.01"),
    ];
    create(admin, "compacted", 1, &configs).await?;
    for number in 0..40 {
        requests::produce(connection, "compacted", 0, batch(number, 200)).await?;
    }
    let deadline = Instant::now() + PATIENCE;
    while read_bytes(connection, "compacted").await? > 25_000 {
        ensure!(Instant::now() < deadline, "the topic is not compacted within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn read_bytes(connection: &Connection, topic: &str) -> Result<usize> {
    let data = requests::fetch(connection, topic, 0, 0).await?;
    Ok(data.records.map_or(0, |records| records.len()))
}

/// Written in the page cache first, synced later.
async fn switched(admin: &Admin, connection: &Connection) -> Result<()> {
    create(admin, "switched", 1, &[("durability", "page-cache")]).await?;
    for number in 0..10 {
        requests::produce(connection, "switched", 0, batch(number, 300)).await?;
    }
    let change = [("durability".to_owned(), ConfigOperation::Set("fsync".to_owned()))];
    admin.alter_configs(&Resource::topic("switched"), &change, false).await?;
    for number in 0..10 {
        requests::produce(connection, "switched", 0, batch(number, 300)).await?;
    }
    Ok(())
}

/// A topic that was deleted, and one of its name.
async fn made_again(admin: &Admin, connection: &Connection) -> Result<()> {
    create(admin, "again", 1, &[]).await?;
    requests::produce(connection, "again", 0, batch(0, 2_000)).await?;
    for (_, deleted) in admin.delete_topics(&["again"]).await? {
        deleted?;
    }
    create(admin, "again", 1, &[]).await?;
    requests::produce(connection, "again", 0, batch(1, 100)).await
}

async fn commits(admin: &Admin) -> Result<()> {
    for (group, offset) in GROUPS.iter().zip([7, 11]) {
        for step in 0..3 {
            let at = |offset| CommittedOffset::at(Offset(offset));
            let offsets = HashMap::from([
                (TopicPartition::new("rolled", 0), at(offset + step)),
                (TopicPartition::new("trimmed", 0), at(50)),
            ]);
            for (_, committed) in admin.alter_group_offsets(group, &offsets).await? {
                committed?;
            }
        }
    }
    Ok(())
}

fn batch(number: i32, value_bytes: usize) -> Vec<u8> {
    records(BatchBuilder::new(), number, value_bytes)
}

/// Three records, with keys that come again.
fn records(mut builder: BatchBuilder, number: i32, value_bytes: usize) -> Vec<u8> {
    for index in 0..3 {
        let key = format!("key-{}", (number * 3 + index) % 10);
        let value = format!("{number}-{index}-").repeat(value_bytes / 4);
        let time = Timestamp(1_790_000_000_000 + i64::from(number));
        builder.add(time, Some(key.as_bytes()), Some(&value.as_bytes()[..value_bytes]));
    }
    builder.finish()
}
