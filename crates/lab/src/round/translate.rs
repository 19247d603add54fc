//! From a cell's workload to what the load engine is told.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use client::{ConsumerConfig, OffsetReset, ProducerConfig};
use experiment::workload::{Acks, Payload, Strategy, Workload};
use model::Compression;
use perf::load::{ConsumeLoad, Keys, ProduceLoad, Sizes};
use serving::choice;

/// Room that a request needs beside the largest record's value, bytes.
const REQUEST_SLACK_BYTES: usize = 4096;
/// How long consumers wait for more when nothing comes.
pub const IDLE: Duration = Duration::from_secs(20);

/// Producers for this workload. `stamp` marks the values with the number of the round.
pub fn producers(
    bootstrap: &str,
    topics: &[String],
    workload: &Workload,
    seed: u64,
    stamp: Option<u32>,
) -> Result<ProduceLoad> {
    Ok(ProduceLoad {
        bootstrap: bootstrap.to_owned(),
        topics: topics.to_vec(),
        producers: workload.producers.max(1),
        sizes: sizes(workload)?,
        keys: keys(&workload.keys)?,
        strategy: strategy(workload),
        payload: match workload.payload() {
            Payload::Reuse => perf::load::Payload::Reuse,
            Payload::Fresh => perf::load::Payload::Fresh,
        },
        offered: workload.offered,
        records: workload.records,
        time: Duration::from_secs_f64(workload.seconds),
        warmup: Duration::from_secs_f64(workload.warmup_seconds),
        producer: producer(workload)?,
        stamp,
        seed,
    })
}

fn producer(workload: &Workload) -> Result<ProducerConfig> {
    let compression = match workload.compression.as_str() {
        "none" => Compression::None,
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        other => bail!("there is no compression.type {other}"),
    };
    let defaults = ProducerConfig::default();
    let largest = workload.record_bytes as usize + REQUEST_SLACK_BYTES;
    Ok(ProducerConfig {
        acks: match workload.acks() {
            Acks::None => 0,
            Acks::Leader => 1,
            Acks::All => -1,
        },
        idempotence: workload.idempotence(),
        batch_bytes: workload.batch_bytes as usize,
        linger: Duration::from_secs_f64(workload.linger_ms() / 1e3),
        buffer_bytes: workload.buffer_bytes as usize,
        compression,
        in_flight_max: workload.in_flight as usize,
        retries: workload.era.retries(),
        request_bytes_max: defaults.request_bytes_max.max(largest),
        ..defaults
    })
}

/// The strategy, with the era's way for records without a key.
fn strategy(workload: &Workload) -> choice::Strategy {
    match workload.strategy {
        Strategy::Murmur2 if workload.era.keyless() == Strategy::RoundRobin => {
            choice::Strategy::Murmur2RoundRobin
        }
        other => strategy_of(other),
    }
}

/// A strategy by the load engine's name.
pub fn strategy_of(strategy: Strategy) -> choice::Strategy {
    use choice::Strategy as Load;
    match strategy {
        Strategy::Murmur2 => Load::Murmur2,
        Strategy::Crc32 => Load::Crc32,
        Strategy::Random => Load::Random,
        Strategy::RoundRobin => Load::RoundRobin,
        Strategy::Sticky => Load::Sticky,
        Strategy::HashMod => Load::HashMod,
        Strategy::Cs6Mod => Load::Cs6Mod,
    }
}

/// `"0.54:100 0.24:1000"`, `cs682`, or the one size.
pub fn sizes(workload: &Workload) -> Result<Sizes> {
    match workload.record_mix.as_str() {
        "" => Ok(Sizes::Fixed(workload.record_bytes as usize)),
        "cs682" => Ok(Sizes::AccessLog),
        mix => {
            let part = |part: &str| {
                let (share, bytes) = part.split_once(':')?;
                Some((share.parse().ok()?, bytes.parse().ok()?))
            };
            let parts: Option<Vec<(f64, usize)>> = mix.split_whitespace().map(part).collect();
            parts
                .map(Sizes::Mix)
                .with_context(|| format!("record_mix {mix:?} is not SHARE:BYTES SHARE:BYTES …"))
        }
    }
}

/// `none`, `cs682`, `uniform:N`, `zipf:N,S`.
pub fn keys(text: &str) -> Result<Keys> {
    let wrong = || format!("keys {text:?}: write none, cs682, uniform:N or zipf:N,S");
    match text.split_once(':') {
        None if text == "none" => Ok(Keys::None),
        None if text == "cs682" => {
            Ok(Keys::List(CS682_KEYS.iter().map(|key| key.as_bytes().to_vec()).collect()))
        }
        Some(("uniform", count)) => Ok(Keys::Uniform(count.parse().with_context(wrong)?)),
        Some(("zipf", rest)) => {
            let (count, exponent) = rest.split_once(',').with_context(wrong)?;
            Ok(Keys::Zipf {
                count: count.parse().with_context(wrong)?,
                exponent: exponent.parse().with_context(wrong)?,
            })
        }
        _ => bail!(wrong()),
    }
}

/// The keys of the CS6 report, each in a fifth of the records.
const CS682_KEYS: [&str; 5] = ["60819", "60847", "23568", "61821", "64500"];

/// Consumers for this workload, in one group if there are several.
pub fn consumers(
    bootstrap: &str,
    topics: &[String],
    workload: &Workload,
    group: &str,
    stamp: Option<u32>,
) -> ConsumeLoad {
    let count = workload.consumers.max(1);
    ConsumeLoad {
        bootstrap: bootstrap.to_owned(),
        topics: topics.to_vec(),
        consumers: count,
        group: (count > 1).then(|| group.to_owned()),
        consumer: ConsumerConfig {
            offset_reset: OffsetReset::Earliest,
            partition_bytes_max: workload.fetch_bytes as i32,
            fetch_wait_max: Duration::from_millis(workload.fetch_wait_ms.into()),
            ..ConsumerConfig::default()
        },
        records: workload.records,
        idle: IDLE,
        poll: Duration::from_millis(100),
        stamp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_and_keys_are_read() {
        let mixed = Workload { record_mix: "0.5:100 0.25:1000".to_owned(), ..Workload::default() };
        assert_eq!(sizes(&mixed).unwrap(), Sizes::Mix(vec![(0.5, 100), (0.25, 1000)]));
        assert_eq!(keys("zipf:50,0.99").unwrap(), Keys::Zipf { count: 50, exponent: 0.99 });
        assert_eq!(keys("uniform:5").unwrap(), Keys::Uniform(5));
        for wrong in ["", "uniform", "uniform:x", "zipf:5", "five"] {
            assert!(keys(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_era_decides_what_a_cell_leaves_open() {
        let old = Workload { era: experiment::workload::Era::V2_0, ..Workload::default() };
        let load = producers("x:1", &[], &old, 0, None).unwrap();
        assert_eq!(
            (load.producer.acks, load.producer.idempotence, load.producer.retries),
            (1, false, 0)
        );
        assert_eq!(load.strategy, choice::Strategy::Murmur2RoundRobin);
        let new = producers("x:1", &[], &Workload::default(), 0, None).unwrap();
        assert_eq!((new.producer.acks, new.producer.idempotence), (-1, true));
        assert_eq!(new.producer.linger, Duration::from_millis(5));
    }
}
