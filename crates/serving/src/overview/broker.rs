//! How all partitions of a cluster lie on its brokers.

use std::collections::BTreeMap;

use super::Placement;

/// What one broker holds of the whole cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Partitions of which it should hold a copy.
    pub replicas: usize,
    /// Copies that are in sync.
    pub in_sync: usize,
    /// Partitions that it leads.
    pub leaders: usize,
    /// Partitions that it would lead if each were led by its first replica.
    pub preferred: usize,
}

/// The loads of brokers, by id; those that hold nothing are left out.
pub fn loads<'a>(partitions: impl IntoIterator<Item = Placement<'a>>) -> BTreeMap<i32, Load> {
    let mut loads: BTreeMap<i32, Load> = BTreeMap::new();
    for partition in partitions {
        for broker in partition.replicas {
            let load = loads.entry(*broker).or_default();
            load.replicas += 1;
            load.in_sync += usize::from(partition.isr.contains(broker));
        }
        if let Some(first) = partition.replicas.first() {
            loads.entry(*first).or_default().preferred += 1;
        }
        if let Some(leader) = partition.leader {
            loads.entry(leader).or_default().leaders += 1;
        }
    }
    loads
}

/// By how many per cent a broker holds more (or, if negative, fewer) than the mean of all brokers, rounded towards
/// zero. This is our own number: CMAK has none for a whole cluster.
pub fn skew_percent(held: usize, held_by_all: usize, brokers: usize) -> i64 {
    if held_by_all == 0 || brokers == 0 {
        return 0;
    }
    let mean = held_by_all as f64 / brokers as f64;
    ((held as f64 - mean) / mean * 100.0) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_holds_what_the_partitions_say() {
        let placements = [
            Placement { leader: Some(2), replicas: &[1, 2], isr: &[2] },
            Placement { leader: Some(2), replicas: &[2, 1], isr: &[2, 1] },
            Placement { leader: None, replicas: &[3], isr: &[] },
        ];
        let loads = loads(placements);
        let load =
            |replicas, in_sync, leaders, preferred| Load { replicas, in_sync, leaders, preferred };
        assert_eq!(loads[&1], load(2, 1, 0, 1));
        assert_eq!(loads[&2], load(2, 2, 2, 1));
        assert_eq!(loads[&3], load(1, 0, 0, 1));
    }

    #[test]
    fn skew_is_the_distance_from_the_mean() {
        assert_eq!(skew_percent(6, 12, 3), 50);
        assert_eq!(skew_percent(4, 12, 3), 0);
        assert_eq!(skew_percent(0, 12, 3), -100);
        assert_eq!(skew_percent(0, 0, 3), 0);
        assert_eq!(skew_percent(0, 0, 0), 0);
    }
}
