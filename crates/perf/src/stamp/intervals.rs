//! A set of numbers, kept as ranges without gaps.

use std::collections::BTreeMap;

/// A set of numbers, kept as ranges without gaps: small if its numbers follow each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Intervals {
    /// First number of a range, and the number behind its last. Invariant: ranges are not empty and
    /// neither overlap nor touch.
    ranges: BTreeMap<u64, u64>,
    count: u64,
}

impl Intervals {
    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many ranges they make.
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// The ranges: first number, and the number behind the last.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(first, end)| (*first, *end))
    }

    /// Whether the number is in the set.
    pub fn contains(&self, number: u64) -> bool {
        self.ranges.range(..=number).next_back().is_some_and(|(_, end)| number < *end)
    }

    /// The number behind the largest one; 0 for the empty set.
    pub fn end(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(_, end)| *end)
    }

    /// Adds a number. Whether it is new.
    pub fn insert(&mut self, number: u64) -> bool {
        self.insert_range(number, number + 1) == 1
    }

    /// Adds the numbers from `first` to below `end`. How many of them are new.
    pub fn insert_range(&mut self, first: u64, end: u64) -> u64 {
        if first >= end {
            return 0;
        }
        // The usual case: right behind the last one.
        if let Some(mut last) = self.ranges.last_entry()
            && *last.get() == first
        {
            *last.get_mut() = end;
            self.count += end - first;
            return end - first;
        }
        let (mut from, mut to, mut known) = (first, end, 0);
        let touching: Vec<(u64, u64)> = self.touching(first, end).collect();
        for (start, stop) in touching {
            self.ranges.remove(&start);
            known += stop.min(end).saturating_sub(start.max(first));
            (from, to) = (from.min(start), to.max(stop));
        }
        self.ranges.insert(from, to);
        let new = end - first - known;
        self.count += new;
        new
    }

    /// Ranges that overlap `first..end` or touch it.
    fn touching(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let ranges = self.ranges.range(..=end).rev();
        ranges.map(|(start, stop)| (*start, *stop)).take_while(move |(_, stop)| *stop >= first)
    }

    /// Adds all numbers of another set. How many were in both.
    pub fn absorb(&mut self, other: &Intervals) -> u64 {
        let new: u64 = other.ranges().map(|(first, end)| self.insert_range(first, end)).sum();
        other.count - new
    }

    /// How many numbers of this set are not in `other`.
    pub fn missing_in(&self, other: &Intervals) -> u64 {
        let common = |(first, end): (u64, u64)| -> u64 {
            let overlaps = other.touching(first, end);
            overlaps.map(|(start, stop)| stop.min(end).saturating_sub(start.max(first))).sum()
        };
        self.count - self.ranges().map(common).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn it_is_the_set_that_a_set_would_be() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let (mut set, mut plain) = (Intervals::default(), BTreeSet::new());
            for _ in 0..30 {
                let first = random.u64(0..60);
                let end = first + random.u64(0..8);
                let new = (first..end).filter(|n| plain.insert(*n)).count() as u64;
                assert_eq!(set.insert_range(first, end), new);
            }
            assert_eq!(set.count(), plain.len() as u64);
            assert!((0..80).all(|n| set.contains(n) == plain.contains(&n)));
            let ranges: Vec<_> = set.ranges().collect();
            assert!(ranges.windows(2).all(|w| w[0].1 < w[1].0), "{ranges:?}");
            assert_eq!(set.end(), plain.last().map_or(0, |n| n + 1));
        }
    }

    #[test]
    fn what_is_missing_is_counted() {
        let (mut a, mut b) = (Intervals::default(), Intervals::default());
        a.insert_range(0, 100);
        b.insert_range(10, 20);
        b.insert_range(90, 200);
        assert_eq!((a.missing_in(&b), b.missing_in(&a)), (80, 100));
        assert_eq!(a.absorb(&b), 20);
        assert_eq!((a.count(), a.range_count()), (200, 1));
    }

    #[test]
    fn numbers_in_order_stay_one_range() {
        let mut set = Intervals::default();
        assert!((0..1000).all(|n| set.insert(n)));
        assert!(!set.insert(500));
        assert_eq!((set.count(), set.range_count()), (1000, 1));
    }
}
