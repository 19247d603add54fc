//! What load is asked for: plain values. How it is made: [`produce`](super::produce()) and
//! [`consume`](super::consume()).

use client::{ConsumerConfig, OffsetReset, ProducerConfig};
use serving::choice::Strategy;
use std::time::Duration;

/// How long the values are.
#[derive(Debug, Clone, PartialEq)]
pub enum Sizes {
    /// All equally, in bytes.
    Fixed(usize),
    /// Lengths in bytes and their shares, which need not add up to 1.
    Mix(Vec<(f64, usize)>),
    /// Lines like those of a web server's access log: 216 to 390 bytes, 314.5 on average.
    AccessLog,
}

/// The keys of the records.
#[derive(Debug, Clone, PartialEq)]
pub enum Keys {
    /// None.
    None,
    /// These, one after the other.
    List(Vec<Vec<u8>>),
    /// So many different ones, all equally often, in random order.
    Uniform(u64),
    /// So many different ones; the k-th comes in proportion to 1/k to the power of the exponent.
    Zipf {
        /// How many.
        count: u64,
        /// 0 is uniform.
        exponent: f64,
    },
}

/// How values are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// One filling for all records of a producer, as Kafka's tool did up to 2.8.
    Reuse,
    /// Letters `A` to `Z`, drawn anew for each record.
    Fresh,
}

/// Records to be produced.
#[derive(Clone)]
pub struct ProduceLoad {
    /// Bootstrap servers, separated by commas.
    pub bootstrap: String,
    /// Topics that exist; records go to one after the other.
    pub topics: Vec<String>,
    /// Producers, each with a thread and connections of its own.
    pub producers: u32,
    /// How long the values are.
    pub sizes: Sizes,
    /// The keys.
    pub keys: Keys,
    /// Who chooses the partition.
    pub strategy: Strategy,
    /// How values are filled.
    pub payload: Payload,
    /// Records per second of all producers together, at times fixed beforehand; 0: as many as
    /// possible.
    pub offered: f64,
    /// Records that count, of all producers together; 0: as many as `time` allows.
    pub records: u64,
    /// For how long records are sent that count; zero: until `records` are sent. What was due within
    /// it and is late by more than a tenth of it is not sent any more.
    pub time: Duration,
    /// For how long before that records are sent that do not count.
    pub warmup: Duration,
    /// How the producers are set. `on_batch` is replaced.
    pub producer: ProducerConfig,
    /// Marks every value for [`verify`](super::verify()), under this number of the run.
    pub stamp: Option<u32>,
    /// Decides keys, lengths and letters.
    pub seed: u64,
}

impl ProduceLoad {
    /// One producer that sends as many 1024-byte records as it can for a second.
    pub fn new(bootstrap: &str, topic: &str) -> ProduceLoad {
        ProduceLoad {
            bootstrap: bootstrap.to_owned(),
            topics: vec![topic.to_owned()],
            producers: 1,
            sizes: Sizes::Fixed(1024),
            keys: Keys::None,
            strategy: Strategy::Murmur2,
            payload: Payload::Reuse,
            offered: 0.0,
            records: 0,
            time: Duration::from_secs(1),
            warmup: Duration::ZERO,
            producer: ProducerConfig::default(),
            stamp: None,
            seed: 0,
        }
    }
}

/// Records to be read.
#[derive(Debug, Clone)]
pub struct ConsumeLoad {
    /// Bootstrap servers, separated by commas.
    pub bootstrap: String,
    /// The topics.
    pub topics: Vec<String>,
    /// Consumers, each with a thread and connections of its own.
    pub consumers: u32,
    /// The group that they form; `None`: partitions are dealt out beforehand.
    pub group: Option<String>,
    /// How they are set. `group_id` is replaced.
    pub consumer: ConsumerConfig,
    /// Ends when so many were read by all together; 0: never. Not looked at by [`both`](super::both).
    pub records: u64,
    /// Ends when no consumer has read anything for so long.
    pub idle: Duration,
    /// How long one poll waits.
    pub poll: Duration,
    /// Looks for the marks of this run, see [`ProduceLoad::stamp`].
    pub stamp: Option<u32>,
}

impl ConsumeLoad {
    /// One consumer that reads all partitions from their beginning until nothing has come for a
    /// second. In a group it commits every five seconds and at its end, as Kafka's own tool does.
    pub fn new(bootstrap: &str, topic: &str) -> ConsumeLoad {
        ConsumeLoad {
            bootstrap: bootstrap.to_owned(),
            topics: vec![topic.to_owned()],
            consumers: 1,
            group: None,
            consumer: ConsumerConfig {
                offset_reset: OffsetReset::Earliest,
                ..ConsumerConfig::default()
            },
            records: 0,
            idle: Duration::from_secs(1),
            poll: Duration::from_millis(100),
            stamp: None,
        }
    }
}
