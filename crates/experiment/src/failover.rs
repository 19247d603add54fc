//! What a producer's acknowledgements say when a broker is killed under it: the longest gap in them, whether they flow
//! again, and what became of what was acknowledged. Not here: killing, clients, clocks (`lab`).

use crate::round::Verdict;
use crate::workload::Kill;
use std::collections::{BTreeMap, BTreeSet};

/// Microseconds of a millisecond.
const US_PER_MS: f64 = 1e3;

/// A record that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// Which record of its producer, from 0.
    pub sequence: u64,
    /// The partition that it went to.
    pub partition: i32,
    /// Where it is, as the client says; `None` if it does not.
    pub offset: Option<i64>,
    /// When the application heard of it, microseconds since 1970.
    pub at_us: u64,
}

/// A record that was found as the topic was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The partition that it is in.
    pub partition: i32,
    /// Where.
    pub offset: i64,
    /// Which record it is; `None` if it is none that was sent.
    pub sequence: Option<u64>,
}

/// A stretch of time, microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// When it begins.
    pub from_us: u64,
    /// When it ends, not before it begins.
    pub until_us: u64,
}

/// The longest time within a window in which no acknowledgement came, microseconds. `times` ascends. A gap that began before the
/// window counts from its beginning, and one that goes on behind it up to the window's end. Without any acknowledgement
/// before the window, the window's beginning is where the first gap begins.
pub fn longest_gap_us(times: &[u64], window: Window) -> u64 {
    let Window { from_us, until_us } = window;
    let behind = times.partition_point(|at| *at <= from_us);
    let mut last = behind.checked_sub(1).map_or(from_us, |before| times[before]);
    let mut longest = 0;
    for at in times[behind..].iter().copied().take_while(|at| *at <= until_us).chain([until_us]) {
        longest = longest.max(at.saturating_sub(last));
        last = at;
    }
    longest
}

/// Whether acknowledgements came throughout a window without a gap above `gap_max_us`.
pub fn flow(times: &[u64], window: Window, gap_max_us: u64) -> bool {
    let first = times.partition_point(|at| *at < window.from_us);
    let any = times.get(first).is_some_and(|at| *at <= window.until_us);
    any && longest_gap_us(times, window) <= gap_max_us
}

/// The gaps of several kills.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gaps(Vec<u64>);

impl Gaps {
    /// Adds one, microseconds.
    pub fn add(&mut self, gap_us: u64) {
        let at = self.0.partition_point(|other| *other <= gap_us);
        self.0.insert(at, gap_us);
    }

    /// All of them, ascending, microseconds.
    pub fn all_us(&self) -> &[u64] {
        &self.0
    }

    /// The smallest of which so large a share (0 to 1) is not above it, milliseconds; `None` without any.
    pub fn quantile_ms(&self, share: f64) -> Option<f64> {
        let rank = (share * self.0.len() as f64).ceil().max(1.0) as usize;
        self.0.get(rank - 1).or(self.0.last()).map(|gap_us| *gap_us as f64 / US_PER_MS)
    }
}

/// What became of the records of a producer whose failures were `failed`: each that was acknowledged must be where the client was told, once,
/// behind all that were sent before it to the same partition. `found` is in the order of offsets within each partition.
pub fn judge(acknowledged: &[Acknowledged], failed: u64, found: &[Found]) -> Verdict {
    let mut places: BTreeMap<(i32, u64), Vec<i64>> = BTreeMap::new();
    let mut newest: BTreeMap<i32, u64> = BTreeMap::new();
    let mut verdict = Verdict {
        checked: true,
        sent: acknowledged.len() as u64 + failed,
        acknowledged: acknowledged.len() as u64,
        found: found.len() as u64,
        ..Verdict::default()
    };
    // A record that is in two partitions is there twice, too.
    let mut seen = BTreeSet::new();
    for record in found {
        let Some(sequence) = record.sequence else {
            verdict.damaged += 1;
            continue;
        };
        places.entry((record.partition, sequence)).or_default().push(record.offset);
        let newest = newest.entry(record.partition).or_default();
        if !seen.insert(sequence) {
            verdict.duplicated += 1;
        } else if sequence < *newest {
            verdict.reordered += 1;
        }
        *newest = sequence.max(*newest);
    }
    let is_there = |record: &&Acknowledged| {
        let places = places.get(&(record.partition, record.sequence));
        places.is_some_and(|at| record.offset.is_none_or(|offset| at.contains(&offset)))
    };
    verdict.lost = acknowledged.iter().filter(|record| !is_there(record)).count() as u64;
    verdict
}

/// Who is killed, and who leads what is produced to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// The leader of what is produced to.
    pub leader: i32,
    /// The broker that is killed.
    pub victim: i32,
}

/// The roles of one kill, of brokers whose ids ascend; the brokers take turns. `None` if there are too few of them.
pub fn roles(kill: Kill, brokers: &[i32], controller: i32, number: u32) -> Option<Roles> {
    let others: Vec<i32> = brokers.iter().copied().filter(|id| *id != controller).collect();
    let turn = |among: &[i32]| {
        let count = u32::try_from(among.len()).ok().filter(|count| *count > 0)?;
        Some(among[(number % count) as usize])
    };
    match kill {
        Kill::Leader | Kill::LeaderPaused => {
            turn(&others).map(|victim| Roles { leader: victim, victim })
        }
        Kill::LeaderController => {
            let is_there = brokers.contains(&controller);
            is_there.then_some(Roles { leader: controller, victim: controller })
        }
        Kill::Follower => {
            let victim = turn(&others)?;
            let rest: Vec<i32> = brokers.iter().copied().filter(|id| *id != victim).collect();
            turn(&rest).map(|leader| Roles { leader, victim })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(from_us: u64, until_us: u64) -> Window {
        Window { from_us, until_us }
    }

    #[test]
    fn the_longest_gap_reaches_over_the_windows_beginning() {
        let times = [100, 200, 300, 900, 1000, 1100];
        assert_eq!(longest_gap_us(&times, window(350, 1100)), 600);
        assert_eq!(longest_gap_us(&times, window(300, 1100)), 600);
        assert_eq!(longest_gap_us(&times, window(900, 1100)), 100);
        // Acknowledged before the kill, in flight at the kill, behind it.
        assert_eq!(longest_gap_us(&times, window(150, 1000)), 600);
    }

    #[test]
    fn a_gap_that_does_not_end_counts_to_the_windows_end() {
        assert_eq!(longest_gap_us(&[100, 200], window(150, 5000)), 4800);
        assert_eq!(longest_gap_us(&[], window(150, 5000)), 4850);
        assert_eq!(longest_gap_us(&[100, 6000], window(150, 5000)), 4900);
    }

    #[test]
    fn acknowledgements_flow_when_they_come_throughout() {
        let times: Vec<u64> = (0..=100).map(|number| number * 10).collect();
        assert!(flow(&times, window(500, 1000), 10));
        assert!(!flow(&times, window(500, 1011), 10));
        // One just before the window and one at its end are none within.
        assert!(!flow(&[499], window(500, 505), 10));
        assert!(!flow(&[], window(500, 505), 10));
        assert!(!flow(&[100, 990, 1000], window(500, 1000), 100));
    }

    #[test]
    fn quantiles_are_gaps_that_were_measured() {
        let mut gaps = Gaps::default();
        assert_eq!(gaps.quantile_ms(0.5), None);
        for gap in [5000, 1000, 4000, 2000, 3000] {
            gaps.add(gap);
        }
        assert_eq!(gaps.all_us(), [1000, 2000, 3000, 4000, 5000]);
        let at = |share| gaps.quantile_ms(share).unwrap();
        assert_eq!([at(0.0), at(0.5), at(0.6), at(0.61), at(1.0)], [1.0, 3.0, 3.0, 4.0, 5.0]);
        let mut hundred = Gaps::default();
        (1..=100).for_each(|ms| hundred.add(ms * 1000));
        let quantile = |share| hundred.quantile_ms(share).unwrap();
        assert_eq!([quantile(0.5), quantile(0.9), quantile(0.99)], [50.0, 90.0, 99.0]);
    }

    fn acknowledged(sequence: u64, partition: i32, offset: Option<i64>) -> Acknowledged {
        Acknowledged { sequence, partition, offset, at_us: 0 }
    }

    fn found(partition: i32, offset: i64, sequence: u64) -> Found {
        Found { partition, offset, sequence: Some(sequence) }
    }

    fn wrong(verdict: &Verdict) -> [u64; 4] {
        [verdict.lost, verdict.duplicated, verdict.reordered, verdict.damaged]
    }

    #[test]
    fn what_is_there_once_in_order_is_clean() {
        let told =
            [acknowledged(0, 0, Some(0)), acknowledged(1, 1, None), acknowledged(3, 0, Some(1))];
        // The record 2 was sent, reported as failed, and is there all the same.
        let read = [found(0, 0, 0), found(0, 1, 3), found(1, 0, 1), found(1, 1, 2)];
        let verdict = judge(&told, 1, &read);
        assert!(verdict.is_clean(), "{verdict:?}");
        assert_eq!((verdict.sent, verdict.acknowledged, verdict.found), (4, 3, 4));
    }

    #[test]
    fn each_wrong_is_told_from_the_others() {
        let told = [acknowledged(0, 0, Some(0)), acknowledged(1, 0, Some(1))];
        assert_eq!(wrong(&judge(&told, 0, &[found(0, 0, 0)])), [1, 0, 0, 0]);
        // Elsewhere than acknowledged is lost: another offset, another partition.
        assert_eq!(wrong(&judge(&told, 0, &[found(0, 0, 0), found(0, 2, 1)])), [1, 0, 0, 0]);
        assert_eq!(wrong(&judge(&told, 0, &[found(0, 0, 0), found(1, 1, 1)])), [1, 0, 0, 0]);
        let twice = [found(0, 0, 0), found(0, 1, 1), found(0, 2, 1)];
        assert_eq!(wrong(&judge(&told, 0, &twice)), [0, 1, 0, 0]);
        let in_both = [found(0, 0, 0), found(0, 1, 1), found(1, 0, 1)];
        assert_eq!(wrong(&judge(&told, 0, &in_both)), [0, 1, 0, 0]);
        let anywhere = [acknowledged(0, 0, None), acknowledged(1, 0, None)];
        assert_eq!(wrong(&judge(&anywhere, 0, &[found(0, 0, 1), found(0, 1, 0)])), [0, 0, 1, 0]);
        let strange = Found { partition: 0, offset: 2, sequence: None };
        assert_eq!(
            wrong(&judge(&told, 0, &[found(0, 0, 0), found(0, 1, 1), strange])),
            [0, 0, 0, 1]
        );
    }

    #[test]
    fn the_victim_is_who_the_kind_says_and_brokers_take_turns() {
        let all = [1, 2, 3];
        for controller in all {
            for number in 0..6 {
                let of = |kill| roles(kill, &all, controller, number).unwrap();
                let leader = of(Kill::Leader);
                assert!(leader.leader == leader.victim && leader.victim != controller);
                assert_eq!(of(Kill::LeaderPaused), leader);
                let both = of(Kill::LeaderController);
                assert_eq!((both.leader, both.victim), (controller, controller));
                let follower = of(Kill::Follower);
                assert!(follower.leader != follower.victim && follower.victim != controller);
            }
        }
        let victims: BTreeSet<i32> =
            (0..2).map(|number| roles(Kill::Leader, &all, 2, number).unwrap().victim).collect();
        assert_eq!(victims, BTreeSet::from([1, 3]));
        assert_eq!(roles(Kill::Leader, &[1], 1, 0), None);
        assert_eq!(roles(Kill::LeaderController, &all, 9, 0), None);
    }
}
