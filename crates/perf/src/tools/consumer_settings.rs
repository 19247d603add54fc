//! Kafka's consumer properties as the configuration of our consumer.

use super::console::Console;
use super::failure::ToolError;
use super::settings::Settings;
use client::consumer::assignor::Assignor;
use client::{ConsumerConfig, OffsetReset};
use std::time::Duration;

/// Keys that are read here.
const READ: &[&str] = &[
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "check.crcs",
    "client.rack",
    "default.api.timeout.ms",
    "enable.auto.commit",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "heartbeat.interval.ms",
    "isolation.level",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "max.poll.records",
    "partition.assignment.strategy",
    "session.timeout.ms",
];

/// Keys that mean nothing to our consumer.
const WITHOUT_EFFECT: &[&str] = &[
    "exclude.internal.topics",
    "group.remote.assignor",
    "internal.throw.on.fetch.stable.offset.unsupported",
    "key.deserializer",
    "share.acknowledgement.mode",
    "share.acquire.mode",
    "value.deserializer",
];

/// A consumer as its properties describe it.
#[derive(Debug, Clone)]
pub struct ConsumerSettings {
    /// How it fetches and belongs to a group.
    pub config: ConsumerConfig,
    /// `max.poll.records`: Kafka's tool looks at clock and count once in so many records.
    pub poll_records_max: u64,
    /// Whether asking for a topic may create it.
    pub allow_auto_create: bool,
}

impl ConsumerSettings {
    /// Reads all properties; warns of unknown ones.
    pub fn read(settings: &Settings, console: &Console) -> Result<ConsumerSettings, ToolError> {
        settings.check(console, &[READ, WITHOUT_EFFECT])?;
        if settings.text("group.protocol").is_some_and(|p| !p.eq_ignore_ascii_case("classic")) {
            let reason = "this client knows the classic protocol only";
            return Err(settings.refuse("group.protocol", reason));
        }
        let mut config = ConsumerConfig {
            group_id: settings.text("group.id").map(str::to_owned),
            group_instance_id: settings.text("group.instance.id").map(str::to_owned),
            rack: settings.text("client.rack").unwrap_or_default().to_owned(),
            ..ConsumerConfig::default()
        };
        read_fetches(settings, &mut config)?;
        read_group(settings, &mut config)?;
        let poll_records_max = settings.number("max.poll.records", 1..=i32::MAX as u64)?;
        Ok(ConsumerSettings {
            config,
            poll_records_max: poll_records_max.unwrap_or(500),
            allow_auto_create: settings.flag("allow.auto.create.topics")?.unwrap_or(true),
        })
    }
}

fn read_fetches(settings: &Settings, config: &mut ConsumerConfig) -> Result<(), ToolError> {
    let size = |key| settings.number(key, 0..=i32::MAX);
    if let Some(bytes) = size("fetch.min.bytes")? {
        config.fetch_bytes_min = bytes;
    }
    if let Some(bytes) = size("fetch.max.bytes")? {
        config.fetch_bytes_max = bytes;
    }
    if let Some(bytes) = size("max.partition.fetch.bytes")? {
        config.partition_bytes_max = bytes;
    }
    if let Some(wait) = settings.millis("fetch.max.wait.ms", 0)? {
        config.fetch_wait_max = wait;
    }
    if let Some(check) = settings.flag("check.crcs")? {
        config.check_crcs = check;
    }
    let levels = [("read_uncommitted", false), ("read_committed", true)];
    config.read_committed = settings.one_of("isolation.level", &levels)?.unwrap_or(false);
    let resets = [
        ("earliest", OffsetReset::Earliest),
        ("latest", OffsetReset::Latest),
        ("none", OffsetReset::Fail),
    ];
    if let Some(reset) = settings.one_of("auto.offset.reset", &resets)? {
        config.offset_reset = reset;
    }
    Ok(())
}

fn read_group(settings: &Settings, config: &mut ConsumerConfig) -> Result<(), ToolError> {
    if let Some(timeout) = settings.millis("session.timeout.ms", 1)? {
        config.session_timeout = timeout;
    }
    if let Some(interval) = settings.millis("heartbeat.interval.ms", 1)? {
        config.heartbeat_interval = interval;
    }
    if let Some(interval) = settings.millis("max.poll.interval.ms", 1)? {
        (config.poll_interval_max, config.rebalance_timeout) = (interval, interval);
    }
    let interval = settings.millis("auto.commit.interval.ms", 1)?;
    let interval = interval.unwrap_or(Duration::from_secs(5));
    let commits = settings.flag("enable.auto.commit")?.unwrap_or(true);
    config.auto_commit = commits.then_some(interval);
    config.assignors = assignors(settings)?;
    Ok(())
}

fn assignors(settings: &Settings) -> Result<Vec<Assignor>, ToolError> {
    let key = "partition.assignment.strategy";
    let Some(list) = settings.text(key) else { return Ok(vec![Assignor::Range]) };
    let known = list.split(',').filter_map(|class| match class.trim().rsplit('.').next()? {
        "RangeAssignor" => Some(Assignor::Range),
        "RoundRobinAssignor" => Some(Assignor::RoundRobin),
        _ => None,
    });
    let known: Vec<Assignor> = known.collect();
    match known.is_empty() {
        true => Err(settings.refuse(key, "there are RangeAssignor and RoundRobinAssignor")),
        false => Ok(known),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Recorded;
    use super::*;

    fn read(list: &[(&str, &str)]) -> Result<ConsumerSettings, String> {
        let pairs = list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let settings = Settings::new(pairs.collect());
        ConsumerSettings::read(&settings, &Recorded::default().console()).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_fetched_is_as_the_properties_say() {
        let given = [
            ("fetch.min.bytes", "10"),
            ("fetch.max.wait.ms", "7"),
            ("max.partition.fetch.bytes", "30000"),
            ("check.crcs", "false"),
            ("isolation.level", "read_committed"),
            ("auto.offset.reset", "earliest"),
            ("enable.auto.commit", "false"),
            ("max.poll.records", "9"),
            ("allow.auto.create.topics", "false"),
        ];
        let ConsumerSettings { config, poll_records_max, allow_auto_create } =
            read(&given).unwrap();
        assert!(!allow_auto_create && read(&[]).unwrap().allow_auto_create);
        assert_eq!((config.fetch_bytes_min, config.partition_bytes_max), (10, 30_000));
        assert_eq!(config.fetch_wait_max, Duration::from_millis(7));
        assert!(!config.check_crcs && config.read_committed && config.auto_commit.is_none());
        assert_eq!((config.offset_reset, poll_records_max), (OffsetReset::Earliest, 9));
    }

    #[test]
    fn what_the_client_cannot_do_is_refused() {
        assert!(read(&[("group.protocol", "consumer")]).err().unwrap().contains("group.protocol"));
        let sticky = "org.apache.kafka.clients.consumer.StickyAssignor";
        assert!(read(&[("partition.assignment.strategy", sticky)]).err().unwrap().contains(sticky));
        let both = format!("{sticky},org.apache.kafka.clients.consumer.RoundRobinAssignor");
        let read = read(&[("partition.assignment.strategy", &both)]).unwrap();
        assert_eq!(read.config.assignors, [Assignor::RoundRobin]);
    }
}
