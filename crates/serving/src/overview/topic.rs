//! How a topic lies on the brokers.
//!
//! With P partitions of R replicas, of which B brokers hold at least one copy in sync:
//!
//! | number | formula |
//! |---|---|
//! | a broker is skewed | it holds more than ⌈P / B × R⌉ copies in sync |
//! | a broker is leader-skewed | it leads more than ⌈P / B⌉ partitions |
//! | spread % | B of the cluster's brokers |
//! | skew %, leader skew % | skewed brokers of B |
//! | preferred % | partitions that their first replica leads |
//! | under-replicated % | partitions with fewer copies in sync than replicas |

use std::collections::BTreeMap;

use super::{Placement, percent};

/// What one broker has of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The broker.
    pub broker: i32,
    /// Copies in sync.
    pub replicas: usize,
    /// Partitions that it leads.
    pub leaders: usize,
    /// More copies than even shares would be.
    pub is_skewed: bool,
    /// More leaders than even shares would be.
    pub is_leader_skewed: bool,
}

/// How a topic lies on the brokers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spread {
    /// By id of the broker.
    pub shares: Vec<Share>,
    /// Replicas of a partition, by the first partition.
    pub replication_factor: usize,
    /// Brokers with the topic, of all brokers.
    pub spread_percent: u32,
    /// Brokers with more copies than others.
    pub skew_percent: u32,
    /// Brokers with more leaders than others.
    pub leader_skew_percent: u32,
    /// Partitions that their first replica leads.
    pub preferred_percent: u32,
    /// Partitions that lack copies in sync.
    pub under_replicated_percent: u32,
    /// Partitions that lack copies in sync.
    pub under_replicated: usize,
    /// Partitions that no broker leads.
    pub offline: usize,
}

impl Spread {
    /// Of a topic with these partitions, in a cluster of so many brokers.
    pub fn of(partitions: &[Placement<'_>], brokers_in_cluster: usize) -> Spread {
        let replication_factor = partitions.first().map_or(0, |first| first.replicas.len());
        let shares = shares(partitions, replication_factor);
        let skewed = shares.iter().filter(|share| share.is_skewed).count();
        let leader_skewed = shares.iter().filter(|share| share.is_leader_skewed).count();
        let under_replicated = count(partitions, Placement::is_under_replicated);
        let preferred = count(partitions, Placement::is_preferred);
        Spread {
            replication_factor,
            spread_percent: percent(shares.len(), brokers_in_cluster, 100),
            skew_percent: percent(skewed, shares.len(), 0),
            leader_skew_percent: percent(leader_skewed, shares.len(), 0),
            preferred_percent: percent(preferred, partitions.len(), 100),
            under_replicated_percent: percent(under_replicated, partitions.len(), 0),
            under_replicated,
            offline: count(partitions, Placement::is_offline),
            shares,
        }
    }
}

fn count<'a>(partitions: &[Placement<'a>], is: impl Fn(&Placement<'a>) -> bool) -> usize {
    partitions.iter().filter(|partition| is(partition)).count()
}

fn shares(partitions: &[Placement<'_>], replication_factor: usize) -> Vec<Share> {
    let mut held: BTreeMap<i32, (usize, usize)> = BTreeMap::new();
    for partition in partitions {
        for broker in partition.isr {
            held.entry(*broker).or_default().0 += 1;
        }
    }
    for leader in partitions.iter().filter_map(|partition| partition.leader) {
        // A leader is in sync with itself; an answer that says otherwise gives it no share.
        if let Some(share) = held.get_mut(&leader) {
            share.1 += 1;
        }
    }
    let brokers = held.len().max(1);
    let even_replicas = (partitions.len() * replication_factor).div_ceil(brokers);
    let even_leaders = partitions.len().div_ceil(brokers);
    let share = |(broker, (replicas, leaders))| Share {
        broker,
        replicas,
        leaders,
        is_skewed: replicas > even_replicas,
        is_leader_skewed: leaders > even_leaders,
    };
    // Ten thousand topics are kept: collecting a map alone would make room for four brokers at least.
    let mut shares = Vec::with_capacity(held.len());
    shares.extend(held.into_iter().map(share));
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line a partition: leader, replicas, copies in sync; `-` for no leader.
    fn spread(lines: &str, brokers: usize) -> Spread {
        let ids = |text: &str| -> Vec<i32> {
            text.split(',').filter(|id| !id.is_empty()).map(|id| id.parse().unwrap()).collect()
        };
        let rows: Vec<_> = lines
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .map(|row| (row[0].parse().ok(), ids(row[1]), ids(row[2])))
            .collect();
        let placements: Vec<_> = rows
            .iter()
            .map(|(leader, replicas, isr)| Placement { leader: *leader, replicas, isr })
            .collect();
        Spread::of(&placements, brokers)
    }

    fn percents(spread: &Spread) -> [u32; 5] {
        [
            spread.spread_percent,
            spread.skew_percent,
            spread.leader_skew_percent,
            spread.preferred_percent,
            spread.under_replicated_percent,
        ]
    }

    #[test]
    fn an_even_topic_has_no_skew() {
        let even = spread("1 1,2 1,2\n2 2,3 2,3\n3 3,1 3,1", 3);
        assert_eq!(percents(&even), [100, 0, 0, 100, 0]);
        assert_eq!((even.replication_factor, even.under_replicated, even.offline), (2, 0, 0));
    }

    #[test]
    fn a_topic_on_some_brokers_says_so() {
        assert_eq!(percents(&spread("1 1,2 1,2\n1 1,2 1,2", 5)), [40, 0, 50, 100, 0]);
    }

    #[test]
    fn brokers_with_more_than_their_share_are_skewed() {
        // Four copies each would be even on three brokers with twelve copies: broker 1 holds six.
        let uneven = "1 1,2 1,2\n1 1,2 1,2\n1 1,2 1,2\n1 1,3 1,3\n1 1,3 1,3\n1 1,3 1,3";
        let uneven = spread(uneven, 4);
        assert_eq!(percents(&uneven), [75, 33, 33, 100, 0]);
        let share = |broker, replicas, leaders, is| Share {
            broker,
            replicas,
            leaders,
            is_skewed: is,
            is_leader_skewed: is,
        };
        assert_eq!(
            uneven.shares,
            [share(1, 6, 6, true), share(2, 3, 0, false), share(3, 3, 0, false)]
        );
    }

    #[test]
    fn copies_that_are_behind_count_for_nothing() {
        let behind = spread("2 1,2 2\n- 1,2 \n2 2,1 2,1", 2);
        assert_eq!(percents(&behind), [100, 0, 0, 33, 66]);
        assert_eq!((behind.under_replicated, behind.offline), (2, 1));
        assert_eq!(behind.shares[0].replicas, 1);
    }

    #[test]
    fn nothing_divides_by_nothing() {
        let nothing = spread("", 0);
        assert_eq!(percents(&nothing), [100, 0, 0, 100, 0]);
        assert_eq!(percents(&spread("- 1 ", 0)), [100, 0, 0, 0, 100]);
        assert_eq!(percents(&spread("- 1 ", 3)), [0, 0, 0, 0, 100]);
    }
}
