//! The ways to choose, by the names that requests, configurations and reports use.

/// How one of several is chosen: a partition of a topic, or of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Strategy {
    /// Murmur2 of the key; without a key as [`Strategy::Sticky`].
    #[default]
    Murmur2,
    /// CRC-32 of the key, as librdkafka's `consistent`; without a key that of nothing.
    Crc32,
    /// Any, for each record.
    Random,
    /// One after the other.
    RoundRobin,
    /// One until a batch is full, then another at random, whatever the key.
    Sticky,
    /// `floorMod` of Java's `hashCode` of the key as a string.
    HashMod,
    /// `abs(hashCode % n + 1)`, counted from 1: reaches n + 1 values, of which 0 is taken for n here.
    Cs6Mod,
    /// Murmur2 of the key; without a key one after the other, as Kafka's clients up to 2.3. Has no name: a
    /// load that stands for such a client uses it.
    Murmur2RoundRobin,
}

/// The strategies that have a name.
const NAMED: [(&str, Strategy); 7] = [
    ("murmur2", Strategy::Murmur2),
    ("random", Strategy::Random),
    ("round-robin", Strategy::RoundRobin),
    ("sticky", Strategy::Sticky),
    ("hash-mod", Strategy::HashMod),
    ("crc32", Strategy::Crc32),
    ("cs6-mod", Strategy::Cs6Mod),
];

impl Strategy {
    /// Every name, in the order in which it is documented.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name)
    }

    /// The name; that of the older clients' way is that of the newer clients'.
    pub const fn name(self) -> &'static str {
        match self {
            Strategy::Murmur2 | Strategy::Murmur2RoundRobin => "murmur2",
            Strategy::Crc32 => "crc32",
            Strategy::Random => "random",
            Strategy::RoundRobin => "round-robin",
            Strategy::Sticky => "sticky",
            Strategy::HashMod => "hash-mod",
            Strategy::Cs6Mod => "cs6-mod",
        }
    }

    /// The strategy of this name; `None` for any other text.
    pub fn from_name(name: &str) -> Option<Strategy> {
        NAMED.iter().find(|(known, _)| *known == name).map(|(_, strategy)| *strategy)
    }

    /// Whether a record without a key is to be refused: all such records would go to one place.
    pub const fn needs_key(self) -> bool {
        matches!(self, Strategy::Crc32 | Strategy::HashMod | Strategy::Cs6Mod)
    }
}

/// How a broker is chosen, before one of its partitions is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BrokerStrategy {
    /// As [`Strategy::Random`].
    Random,
    /// As [`Strategy::RoundRobin`].
    RoundRobin,
    /// As [`Strategy::HashMod`].
    HashMod,
    /// As [`Strategy::Cs6Mod`].
    Cs6Mod,
}

impl BrokerStrategy {
    /// Every one, in the order in which they are documented.
    pub const ALL: [BrokerStrategy; 4] = [
        BrokerStrategy::Random,
        BrokerStrategy::RoundRobin,
        BrokerStrategy::HashMod,
        BrokerStrategy::Cs6Mod,
    ];

    /// The same way among any other things.
    pub const fn strategy(self) -> Strategy {
        match self {
            BrokerStrategy::Random => Strategy::Random,
            BrokerStrategy::RoundRobin => Strategy::RoundRobin,
            BrokerStrategy::HashMod => Strategy::HashMod,
            BrokerStrategy::Cs6Mod => Strategy::Cs6Mod,
        }
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        self.strategy().name()
    }

    /// The strategy of this name; `None` for any other text.
    pub fn from_name(name: &str) -> Option<BrokerStrategy> {
        BrokerStrategy::ALL.into_iter().find(|strategy| strategy.name() == name)
    }
}

/// How broker and partition are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pair {
    /// How a broker is chosen; `None`: only a partition is, of all that the topic has.
    pub broker: Option<BrokerStrategy>,
    /// How the partition is chosen, of the topic's or of the broker's.
    pub partition: Strategy,
}

impl Pair {
    /// Whether a record without a key is to be refused.
    pub fn needs_key(self) -> bool {
        self.partition.needs_key()
            || self.broker.is_some_and(|broker| broker.strategy().needs_key())
    }
}

/// Why a record is in its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// The request named the partition.
    Given,
    /// The partition was chosen.
    Chosen(Pair),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_to_a_strategy_and_back() {
        for name in Strategy::names() {
            assert_eq!(Strategy::from_name(name).map(Strategy::name), Some(name));
        }
        assert_eq!(Strategy::from_name("Murmur2"), None);
        for strategy in BrokerStrategy::ALL {
            assert_eq!(BrokerStrategy::from_name(strategy.name()), Some(strategy));
        }
        assert_eq!(BrokerStrategy::from_name("none"), None);
        assert_eq!(BrokerStrategy::from_name("sticky"), None);
    }

    #[test]
    fn a_pair_needs_a_key_if_one_of_its_choices_does() {
        let pair = |broker, partition| Pair { broker, partition };
        assert!(!Pair::default().needs_key());
        assert!(pair(None, Strategy::Crc32).needs_key());
        assert!(pair(Some(BrokerStrategy::Cs6Mod), Strategy::Random).needs_key());
        assert!(!pair(Some(BrokerStrategy::Random), Strategy::Murmur2).needs_key());
    }
}
