//! Which broker prefers to lead which partitions of a topic.

use std::collections::BTreeMap;

use super::chooser::Among;

/// What is known of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionFacts {
    /// The first of its replicas; `None` if the cluster does not tell.
    pub preferred_leader: Option<i32>,
    /// Whether any broker leads the partition now.
    pub is_led: bool,
}

/// A broker and the partitions that the broker prefers to lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The broker's id.
    pub broker: i32,
    /// Ascending. Invariant: not empty.
    all: Vec<i32>,
    /// Those with a leader; all if none has one.
    available: Vec<i32>,
    /// Whether one of them has a leader.
    is_led: bool,
}

impl Share {
    /// The broker's partitions.
    pub fn among(&self) -> Among<'_> {
        Among { all: &self.all, available: &self.available }
    }
}

/// A topic's partitions, whole and by broker. The broker is the *preferred* leader, not the one that leads now: a
/// failover moves no key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    all: Vec<i32>,
    available: Vec<i32>,
    /// By the brokers' ids, ascending.
    shares: Vec<Share>,
    /// The places of all shares, and of those with a leader; all if none has one.
    places: Vec<i32>,
    places_available: Vec<i32>,
}

impl Layout {
    /// The layout of a topic with these partitions, of which the first is number 0.
    pub fn new(partitions: &[PartitionFacts]) -> Layout {
        let mut shares: BTreeMap<i32, Share> = BTreeMap::new();
        let numbered = || (0..).zip(partitions);
        for (index, facts) in numbered() {
            let Some(broker) = facts.preferred_leader else { continue };
            let none = || Share { broker, all: Vec::new(), available: Vec::new(), is_led: false };
            let share = shares.entry(broker).or_insert_with(none);
            share.all.push(index);
            if facts.is_led {
                share.available.push(index);
            }
        }
        let mut shares: Vec<Share> = shares.into_values().collect();
        for share in &mut shares {
            share.is_led = !share.available.is_empty();
            share.available = or_all(std::mem::take(&mut share.available), &share.all);
        }
        let all: Vec<i32> = numbered().map(|(index, _)| index).collect();
        let led = numbered().filter(|(_, facts)| facts.is_led).map(|(index, _)| index).collect();
        let places: Vec<i32> = (0..).zip(&shares).map(|(place, _)| place).collect();
        let led_places = (0..).zip(&shares).filter(|(_, share)| share.is_led);
        let led_places = led_places.map(|(place, _)| place).collect();
        Layout {
            available: or_all(led, &all),
            all,
            places_available: or_all(led_places, &places),
            places,
            shares,
        }
    }

    /// How many partitions there are.
    pub fn partition_count(&self) -> usize {
        self.all.len()
    }

    /// The brokers that prefer to lead a partition, by id.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// All partitions; `None` if there are none.
    pub fn partitions(&self) -> Option<Among<'_>> {
        (!self.all.is_empty()).then_some(Among { all: &self.all, available: &self.available })
    }

    /// Places among the shares; `None` if there are none.
    pub(super) fn places(&self) -> Option<Among<'_>> {
        let among = Among { all: &self.places, available: &self.places_available };
        (!self.places.is_empty()).then_some(among)
    }
}

fn or_all(some: Vec<i32>, all: &[i32]) -> Vec<i32> {
    if some.is_empty() { all.to_vec() } else { some }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(preferred_leader: Option<i32>, is_led: bool) -> PartitionFacts {
        PartitionFacts { preferred_leader, is_led }
    }

    #[test]
    fn partitions_are_dealt_out_to_the_brokers_that_prefer_them() {
        let layout = Layout::new(&[
            facts(Some(7), true),
            facts(Some(2), false),
            facts(Some(7), false),
            facts(None, true),
            facts(Some(2), false),
        ]);
        let shares: Vec<_> = layout.shares().iter().map(|s| (s.broker, s.among())).collect();
        let [(2, two), (7, seven)] = shares[..] else { panic!("{shares:?}") };
        assert_eq!((two.all, two.available), (&[1, 4][..], &[1, 4][..]), "none of them is led");
        assert_eq!((seven.all, seven.available), (&[0, 2][..], &[0][..]));
        let places = layout.places().unwrap();
        assert_eq!((places.all, places.available), (&[0, 1][..], &[1][..]));
        let partitions = layout.partitions().unwrap();
        assert_eq!(partitions.all, [0, 1, 2, 3, 4]);
        assert_eq!(partitions.available, [0, 3]);
    }

    #[test]
    fn a_topic_without_partitions_has_nothing_to_choose_from() {
        let layout = Layout::new(&[]);
        assert!(layout.partitions().is_none() && layout.places().is_none());
        let untold = Layout::new(&[facts(None, true)]);
        assert!(untold.partitions().is_some() && untold.places().is_none());
    }
}
