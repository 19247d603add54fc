//! Newtypes for every id and number of the protocol, so that an offset cannot meet a leader epoch.
//!
//! They are plain wrappers: the inner value is public, arithmetic is explicit, and the special
//! values of the protocol (-1 for "none") are named constants.

use std::fmt;
use std::sync::Arc;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

/// Largest cluster id in bytes. Kafka sets no limit; a Hello between brokers must hold the id.
pub const CLUSTER_ID_BYTES_MAX: usize = 249;

number! {
    /// The logical number of a record within its partition; 0 is the first ever written.
    Offset(i64)
}
number! {
    /// The number of a partition's leadership (KIP-101). Rises with every election.
    LeaderEpoch(i32)
}
number! {
    /// A node of the cluster, `node.id`.
    BrokerId(i32)
}
number! {
    /// One incarnation of a broker, given at registration (KIP-380).
    BrokerEpoch(i64)
}
number! {
    /// A partition's number within its topic, from 0.
    PartitionIndex(i32)
}
number! {
    /// The identity of an idempotent producer (KIP-98); -1 for none.
    ProducerId(i64)
}
number! {
    /// The incarnation of a producer id; -1 for none.
    ProducerEpoch(i16)
}
number! {
    /// A producer's counter within one partition; wraps from `i32::MAX` to 0; -1 for none.
    Sequence(i32)
}
number! {
    /// Milliseconds since the Unix epoch; -1 for none.
    Timestamp(i64)
}
number! {
    /// The generation of a classic consumer group; rises with every rebalance.
    GenerationId(i32)
}

impl Offset {
    /// The offset `count` records further on.
    pub const fn plus(self, count: i64) -> Offset {
        Offset(self.0 + count)
    }

    /// The next offset.
    pub const fn next(self) -> Offset {
        self.plus(1)
    }
}

impl LeaderEpoch {
    /// "No epoch known", as the protocol writes it.
    pub const NONE: LeaderEpoch = LeaderEpoch(-1);

    /// Low bits, which count the elections of a partition. The bits above are the generation of the metadata quorum.
    const ELECTION_BITS: u32 = 22;

    /// Greatest generation that a leader epoch can hold.
    pub const GENERATION_MAX: u32 = (1 << (31 - LeaderEpoch::ELECTION_BITS)) - 1;

    /// Generation of the metadata quorum that decided this leader epoch; 0 for [`LeaderEpoch::NONE`].
    pub const fn generation(self) -> u32 {
        match self.0 {
            ..0 => 0,
            epoch => epoch as u32 >> LeaderEpoch::ELECTION_BITS,
        }
    }

    /// The greatest leader epoch that an earlier generation of the metadata quorum can have decided; [`LeaderEpoch::NONE`] in
    /// generation 0.
    pub const fn last_of_earlier_generations(self) -> LeaderEpoch {
        LeaderEpoch(((self.generation() << LeaderEpoch::ELECTION_BITS) as i32) - 1)
    }

    /// Number of the election, counted over all generations; -1 for [`LeaderEpoch::NONE`].
    pub const fn elections(self) -> i32 {
        match self.0 {
            ..0 => -1,
            epoch => epoch & ((1 << LeaderEpoch::ELECTION_BITS) - 1),
        }
    }

    /// The same election in a later generation, which stays at most [`LeaderEpoch::GENERATION_MAX`]. An earlier generation
    /// changes nothing.
    pub const fn in_generation(self, generation: u32) -> LeaderEpoch {
        let generation = match generation > LeaderEpoch::GENERATION_MAX {
            true => LeaderEpoch::GENERATION_MAX,
            false => generation,
        };
        match self.0 >= 0 && generation > self.generation() {
            true => {
                LeaderEpoch(((generation << LeaderEpoch::ELECTION_BITS) as i32) | self.elections())
            }
            false => self,
        }
    }
}

impl BrokerId {
    /// "No broker", as the protocol writes it (no leader, no controller).
    pub const NONE: BrokerId = BrokerId(-1);
}

impl ProducerId {
    /// The producer id of a batch whose producer is not idempotent.
    pub const NONE: ProducerId = ProducerId(-1);

    /// Whether an idempotent producer wrote it.
    pub const fn is_idempotent(self) -> bool {
        self.0 >= 0
    }
}

impl ProducerEpoch {
    /// The epoch of a batch whose producer is not idempotent.
    pub const NONE: ProducerEpoch = ProducerEpoch(-1);
}

impl Sequence {
    /// The sequence of a batch whose producer is not idempotent.
    pub const NONE: Sequence = Sequence(-1);

    /// The sequence `count` records further on; after `i32::MAX` comes 0.
    pub const fn plus(self, count: i32) -> Sequence {
        Sequence(((self.0 as i64 + count as i64) % (i32::MAX as i64 + 1)) as i32)
    }
}

impl Timestamp {
    /// "No timestamp", as the protocol writes it.
    pub const NONE: Timestamp = Timestamp(-1);

    /// The time `ms` milliseconds later, without overflow.
    pub const fn plus_ms(self, ms: i64) -> Timestamp {
        Timestamp(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to here; negative when `earlier` is later.
    pub const fn ms_since(self, earlier: Timestamp) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A partition by name. Cheap to clone: the topic's name is shared.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition's number.
    pub partition: PartitionIndex,
}

impl TopicPartition {
    /// A partition of the topic named so.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.into(), partition: PartitionIndex(partition) }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

impl fmt::Debug for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_wraps_to_zero() {
        assert_eq!(Sequence(i32::MAX).plus(1), Sequence(0));
        assert_eq!(Sequence(i32::MAX - 1).plus(3), Sequence(1));
        assert_eq!(Sequence(5).plus(2), Sequence(7));
    }

    #[test]
    fn topic_partition_reads_as_its_directory() {
        assert_eq!(TopicPartition::new("a.b", 3).to_string(), "a.b-3");
    }
}
