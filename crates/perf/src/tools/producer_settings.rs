//! Kafka's producer properties as the configuration of our producer.

use super::console::Console;
use super::failure::ToolError;
use super::settings::Settings;
use client::ProducerConfig;
use model::Compression;
use std::time::Duration;

/// Keys that are read here.
const READ: &[&str] = &[
    "acks",
    "batch.size",
    "buffer.memory",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delivery.timeout.ms",
    "enable.idempotence",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "max.request.size",
    "partitioner.class",
    "partitioner.ignore.keys",
    "retries",
    "transaction.timeout.ms",
    "transactional.id",
];

/// Keys that mean nothing to our producer.
const WITHOUT_EFFECT: &[&str] = &[
    "key.serializer",
    "metadata.max.idle.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "transaction.two.phase.commit.enable",
    "value.serializer",
];

/// Who chooses the partition of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partitioner {
    /// Kafka's own: by the key; without one, a partition for a batch, then another.
    Default,
    /// A partition for a batch, then another, whatever the key.
    Sticky,
    /// One after the other, whatever the key.
    RoundRobin,
}

/// A producer as its properties describe it.
#[derive(Clone)]
pub struct ProducerSettings {
    /// How it sends.
    pub config: ProducerConfig,
    /// Where it sends to.
    pub partitioner: Partitioner,
}

impl ProducerSettings {
    /// Reads all properties; warns of unknown ones.
    pub fn read(settings: &Settings, console: &Console) -> Result<ProducerSettings, ToolError> {
        settings.check(console, &[READ, WITHOUT_EFFECT])?;
        let mut config = ProducerConfig::default();
        read_sizes(settings, &mut config)?;
        read_times(settings, &mut config)?;
        read_compression(settings, &mut config)?;
        read_guarantees(settings, &mut config)?;
        read_transactions(settings, &mut config)?;
        Ok(ProducerSettings { config, partitioner: partitioner(settings)? })
    }
}

fn read_sizes(settings: &Settings, config: &mut ProducerConfig) -> Result<(), ToolError> {
    let size = |key, least| settings.number::<u64>(key, least..=i32::MAX as u64);
    if let Some(bytes) = size("batch.size", 0)? {
        config.batch_bytes = bytes as usize;
    }
    // Kafka takes a long here. One memory semaphore counts in 32 bits.
    if let Some(bytes) = settings.number::<u64>("buffer.memory", 0..=i64::MAX as u64)? {
        config.buffer_bytes = bytes.min(u32::MAX as u64) as usize;
    }
    if let Some(bytes) = size("max.request.size", 0)? {
        config.request_bytes_max = bytes as usize;
    }
    if let Some(count) = size("max.in.flight.requests.per.connection", 1)? {
        config.in_flight_max = count as usize;
    }
    Ok(())
}

fn read_times(settings: &Settings, config: &mut ProducerConfig) -> Result<(), ToolError> {
    if let Some(linger) = settings.millis("linger.ms", 0)? {
        config.linger = linger;
    }
    if let Some(block) = settings.millis("max.block.ms", 0)? {
        config.block_max = block;
    }
    if let Some(timeout) = settings.millis("request.timeout.ms", 0)? {
        config.request_timeout = timeout;
    }
    if let Some(backoff) = settings.millis("retry.backoff.ms", 0)? {
        config.retry_backoff = backoff;
    }
    let least = config.linger + config.request_timeout;
    match settings.millis("delivery.timeout.ms", 0)? {
        Some(timeout) if timeout < least => Err(settings.refuse(
            "delivery.timeout.ms",
            "it must not be shorter than linger.ms and request.timeout.ms together",
        )),
        given => {
            config.delivery_timeout = given.unwrap_or(config.delivery_timeout).max(least);
            Ok(())
        }
    }
}

fn read_compression(settings: &Settings, config: &mut ProducerConfig) -> Result<(), ToolError> {
    let codecs = [
        ("none", Compression::None),
        ("gzip", Compression::Gzip),
        ("snappy", Compression::Snappy),
        ("lz4", Compression::Lz4),
        ("zstd", Compression::Zstd),
    ];
    config.compression = settings.one_of("compression.type", &codecs)?.unwrap_or(Compression::None);
    let gzip = settings.number("compression.gzip.level", -1..=9)?;
    let lz4 = settings.number("compression.lz4.level", 1..=17)?;
    let zstd = settings.number("compression.zstd.level", -131_072..=22)?;
    config.compression_level = match config.compression {
        Compression::Gzip => gzip.filter(|level| *level != -1),
        Compression::Lz4 => lz4,
        Compression::Zstd => zstd,
        _ => None,
    };
    Ok(())
}

/// `acks`, `retries` and idempotence, which depend on each other as in Kafka: idempotence that was
/// not asked for gives way, idempotence that was is an error.
fn read_guarantees(settings: &Settings, config: &mut ProducerConfig) -> Result<(), ToolError> {
    let acks = [("all", -1), ("-1", -1), ("0", 0), ("1", 1)];
    config.acks = settings.one_of("acks", &acks)?.unwrap_or(-1);
    let retries = settings.number("retries", 0..=i32::MAX)?;
    if let Some(retries) = retries {
        config.retries = retries as u32;
    }
    let obstacles = [
        (config.acks != -1, "acks", "idempotence needs acks of all"),
        (retries == Some(0), "retries", "idempotence needs retries"),
        (
            config.in_flight_max > 5,
            "max.in.flight.requests.per.connection",
            "idempotence allows at most 5",
        ),
    ];
    let obstacle = obstacles.iter().find(|(stands, _, _)| *stands);
    config.idempotence = match (settings.flag("enable.idempotence")?, obstacle) {
        (Some(true), Some((_, key, reason))) => return Err(settings.refuse(key, reason)),
        (asked, obstacle) => asked.unwrap_or(true) && obstacle.is_none(),
    };
    Ok(())
}

fn read_transactions(settings: &Settings, config: &mut ProducerConfig) -> Result<(), ToolError> {
    if let Some(timeout_ms) = settings.number("transaction.timeout.ms", 1..=i32::MAX)? {
        config.transaction_timeout = Duration::from_millis(timeout_ms as u64);
    }
    let key = "transactional.id";
    config.transactional_id = match settings.text(key) {
        Some("") => return Err(settings.refuse(key, "it must not be empty")),
        Some(_) if !config.idempotence => {
            return Err(settings.refuse(key, "transactions need idempotence"));
        }
        id => id.map(str::to_owned),
    };
    Ok(())
}

fn partitioner(settings: &Settings) -> Result<Partitioner, ToolError> {
    let class = settings.text("partitioner.class").unwrap_or_default();
    let ignores_keys = settings.flag("partitioner.ignore.keys")?.unwrap_or(false);
    match class.rsplit('.').next().unwrap_or_default() {
        "" | "null" if ignores_keys => Ok(Partitioner::Sticky),
        "" | "null" | "DefaultPartitioner" => Ok(Partitioner::Default),
        "UniformStickyPartitioner" => Ok(Partitioner::Sticky),
        "RoundRobinPartitioner" => Ok(Partitioner::RoundRobin),
        _ => {
            let reason = "there are DefaultPartitioner, UniformStickyPartitioner and \
                          RoundRobinPartitioner";
            Err(settings.refuse("partitioner.class", reason))
        }
    }
}

/// What the run works with, for its report: key and value of all that matters.
pub fn effective(settings: &ProducerSettings) -> Vec<(&'static str, String)> {
    let config = &settings.config;
    let ms = |time: Duration| time.as_millis().to_string();
    let acks = if config.acks == -1 { "all".to_owned() } else { config.acks.to_string() };
    let mut all = vec![
        ("acks", acks),
        ("enable.idempotence", config.idempotence.to_string()),
        ("retries", config.retries.to_string()),
        ("linger.ms", ms(config.linger)),
        ("batch.size", config.batch_bytes.to_string()),
        ("buffer.memory", config.buffer_bytes.to_string()),
        ("max.in.flight.requests.per.connection", config.in_flight_max.to_string()),
        ("max.request.size", config.request_bytes_max.to_string()),
        ("compression.type", format!("{:?}", config.compression).to_lowercase()),
        ("request.timeout.ms", ms(config.request_timeout)),
        ("delivery.timeout.ms", ms(config.delivery_timeout)),
        ("max.block.ms", ms(config.block_max)),
    ];
    if let Some(id) = &config.transactional_id {
        all.push(("transactional.id", id.clone()));
        all.push(("transaction.timeout.ms", ms(config.transaction_timeout)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::testing::Recorded;
    use super::*;

    fn read(list: &[(&str, &str)]) -> Result<ProducerSettings, String> {
        let pairs = list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let settings = Settings::new(pairs.collect());
        ProducerSettings::read(&settings, &Recorded::default().console()).map_err(|e| e.to_string())
    }

    #[test]
    fn without_properties_all_is_as_in_kafka_4() {
        let config = read(&[]).unwrap().config;
        assert_eq!((config.acks, config.idempotence), (-1, true));
        assert_eq!(config.linger, Duration::from_millis(5));
        assert_eq!((config.batch_bytes, config.buffer_bytes), (16_384, 33_554_432));
        assert_eq!(config.delivery_timeout, Duration::from_secs(120));
    }

    #[test]
    fn idempotence_gives_way_unless_it_was_asked_for() {
        for weaker in
            [("acks", "1"), ("retries", "0"), ("max.in.flight.requests.per.connection", "6")]
        {
            assert!(!read(&[weaker]).unwrap().config.idempotence, "{weaker:?}");
            let error = read(&[weaker, ("enable.idempotence", "true")]).err().unwrap();
            assert!(error.contains(weaker.0), "{error}");
        }
        assert!(!read(&[("enable.idempotence", "false")]).unwrap().config.idempotence);
    }

    #[test]
    fn the_delivery_timeout_covers_linger_and_request() {
        let long = read(&[("linger.ms", "110000"), ("request.timeout.ms", "20000")]).unwrap();
        assert_eq!(long.config.delivery_timeout, Duration::from_secs(130));
        assert!(read(&[("delivery.timeout.ms", "10")]).is_err());
    }

    #[test]
    fn partitioners_are_named_by_kafkas_classes() {
        let of = |class| read(&[("partitioner.class", class)]).map(|s| s.partitioner);
        let round_robin = "org.apache.kafka.clients.producer.RoundRobinPartitioner";
        assert_eq!(of(round_robin), Ok(Partitioner::RoundRobin));
        assert_eq!(of("DefaultPartitioner"), Ok(Partitioner::Default));
        // It looks at no key either.
        assert_eq!(of("UniformStickyPartitioner"), Ok(Partitioner::Sticky));
        let ignoring = read(&[("partitioner.ignore.keys", "true")]).unwrap();
        assert_eq!(ignoring.partitioner, Partitioner::Sticky);
        assert!(of("com.example.Mine").unwrap_err().contains("com.example.Mine"));
    }

    #[test]
    fn a_level_counts_only_for_its_codec() {
        let config = read(&[("compression.type", "zstd"), ("compression.zstd.level", "7")]);
        assert_eq!(config.unwrap().config.compression_level, Some(7));
        let config = read(&[("compression.type", "lz4"), ("compression.zstd.level", "7")]);
        assert_eq!(config.unwrap().config.compression_level, None);
    }

    #[test]
    fn transactions_have_an_id_and_need_idempotence() {
        let id = ("transactional.id", "x");
        let config = read(&[id, ("transaction.timeout.ms", "7")]).unwrap().config;
        assert_eq!(config.transactional_id.as_deref(), Some("x"));
        assert_eq!(config.transaction_timeout, Duration::from_millis(7));
        assert_eq!(read(&[]).unwrap().config.transactional_id, None);
        for weaker in [("acks", "1"), ("enable.idempotence", "false"), ("retries", "0")] {
            let error = read(&[id, weaker]).err().unwrap();
            assert!(error.contains("transactions need idempotence"), "{error}");
        }
        assert!(read(&[("transactional.id", "")]).err().unwrap().contains("must not be empty"));
        assert!(read(&[id, ("transaction.timeout.ms", "0")]).is_err());
    }
}
