//! What was acknowledged against what was found.

use super::intervals::Intervals;
use super::mark::{ANYWHERE, Stamp, is_stamped};
use std::collections::BTreeMap;

/// Where records of one producer stand in one order: topic, partition, producer.
type Line = (String, i32, u32);

/// What became of the records of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Records that were sent.
    pub sent: u64,
    /// Records that were acknowledged.
    pub acknowledged: u64,
    /// Different records that were found, whole; of unmarked ones, all that were found.
    pub found: u64,
    /// Acknowledged and not found.
    pub lost: u64,
    /// Found again: how often too many.
    pub duplicated: u64,
    /// Found for the first time behind a later one of the same producer and partition.
    pub reordered: u64,
    /// Found with other bytes than were sent, in another partition, or of no known origin.
    pub damaged: u64,
}

impl Verdict {
    /// Whether everything that was acknowledged is there once, whole and in order.
    pub fn is_clean(&self) -> bool {
        self.lost + self.duplicated + self.reordered + self.damaged == 0
    }
}

/// What producers were told is safe.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acknowledged {
    /// The number of the run.
    pub run: u32,
    /// Records that were sent, acknowledged or not.
    pub sent: u64,
    /// Whether the marks are bound to no partition.
    pub anywhere: bool,
    /// Sequence numbers of what was acknowledged.
    lines: BTreeMap<Line, Intervals>,
    /// Records among them too short for a mark.
    pub unmarked: u64,
}

impl Acknowledged {
    /// Nothing yet.
    pub fn new(run: u32) -> Acknowledged {
        Acknowledged { run, ..Acknowledged::default() }
    }

    /// Nothing yet, of records whose marks are bound to no partition.
    pub fn anywhere(run: u32) -> Acknowledged {
        Acknowledged { anywhere: true, ..Acknowledged::new(run) }
    }

    /// Notes that the records from `first` to below `end` of a producer are safe.
    pub fn insert(&mut self, topic: &str, partition: i32, producer: u32, first: u64, end: u64) {
        let line = (topic.to_owned(), partition, producer);
        self.lines.entry(line).or_default().insert_range(first, end);
    }

    /// Notes what is safe of a producer's records in a partition.
    pub fn insert_all(&mut self, topic: &str, partition: i32, producer: u32, numbers: &Intervals) {
        let line = (topic.to_owned(), partition, producer);
        self.lines.entry(line).or_default().absorb(numbers);
    }

    /// Takes in what other producers were told.
    pub fn absorb(&mut self, other: Acknowledged) {
        self.run = other.run;
        self.anywhere |= other.anywhere;
        self.sent += other.sent;
        self.unmarked += other.unmarked;
        for (line, numbers) in other.lines {
            self.lines.entry(line).or_default().absorb(&numbers);
        }
    }

    /// How many records were acknowledged.
    pub fn count(&self) -> u64 {
        self.lines.values().map(Intervals::count).sum()
    }

    /// The topics that they are in.
    pub fn topics(&self) -> Vec<String> {
        let mut topics: Vec<String> =
            self.lines.keys().map(|(topic, _, _)| topic.clone()).collect();
        topics.dedup();
        topics
    }

    /// How many were acknowledged for each topic and partition.
    pub fn partitions(&self) -> BTreeMap<(String, i32), u64> {
        let mut out = BTreeMap::new();
        for ((topic, partition, _), numbers) in &self.lines {
            *out.entry((topic.clone(), *partition)).or_default() += numbers.count();
        }
        out
    }
}

/// Records of one producer in one partition, as they were found.
#[derive(Debug, Clone, Default)]
struct Found {
    numbers: Intervals,
    duplicated: u64,
    reordered: u64,
}

/// What a reader found.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    lines: BTreeMap<Line, Found>,
    damaged: u64,
    /// Records too short for a mark.
    unmarked: u64,
    /// Records of other runs.
    foreign: u64,
}

impl Findings {
    /// Takes in what another reader found. The same record found by both counts as duplicated.
    pub fn absorb(&mut self, other: Findings) {
        self.damaged += other.damaged;
        self.unmarked += other.unmarked;
        self.foreign += other.foreign;
        for (line, found) in other.lines {
            let mine = self.lines.entry(line).or_default();
            mine.duplicated += found.duplicated + mine.numbers.absorb(&found.numbers);
            mine.reordered += found.reordered;
        }
    }

    /// Different whole records that were found, and those too short for a mark.
    pub fn count(&self) -> u64 {
        self.unmarked + self.lines.values().map(|found| found.numbers.count()).sum::<u64>()
    }

    /// Records of other runs, which do not count.
    pub fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Compares with what was acknowledged. Records that were found without having been
    /// acknowledged are no errors: their acknowledgement may have been lost.
    pub fn verdict(&self, acknowledged: &Acknowledged) -> Verdict {
        let sum = |part: fn(&Found) -> u64| self.lines.values().map(part).sum::<u64>();
        Verdict {
            sent: acknowledged.sent,
            acknowledged: acknowledged.count(),
            found: self.count(),
            lost: self.lost(acknowledged),
            duplicated: sum(|f| f.duplicated) + self.surplus(acknowledged),
            reordered: sum(|f| f.reordered),
            damaged: self.damaged,
        }
    }

    /// Records that were acknowledged and not found.
    fn lost(&self, acknowledged: &Acknowledged) -> u64 {
        let none = Intervals::default();
        let missing = acknowledged.lines.iter().map(|(line, numbers)| {
            numbers.missing_in(self.lines.get(line).map_or(&none, |found| &found.numbers))
        });
        // Unmarked records have numbers, too, when they are acknowledged, but none when found.
        missing.sum::<u64>().saturating_sub(self.unmarked.min(acknowledged.unmarked))
    }

    /// Unmarked records beyond those that were sent.
    fn surplus(&self, acknowledged: &Acknowledged) -> u64 {
        if acknowledged.unmarked == 0 { 0 } else { self.count().saturating_sub(acknowledged.sent) }
    }
}

/// Takes every record that is read.
#[derive(Debug)]
pub struct Checker {
    run: u32,
    /// Whether the marks are bound to no partition.
    anywhere: bool,
    /// What is known of the partition that is being read: few producers.
    topic: String,
    partition: i32,
    current: Vec<(u32, Found)>,
    findings: Findings,
}

impl Checker {
    /// One that looks for the records of this run.
    pub fn new(run: u32) -> Checker {
        Checker {
            run,
            anywhere: false,
            topic: String::new(),
            partition: -1,
            current: Vec::new(),
            findings: Findings::default(),
        }
    }

    /// One that looks for the records of this run whose marks are bound to no partition.
    pub fn anywhere(run: u32) -> Checker {
        Checker { anywhere: true, ..Checker::new(run) }
    }

    /// Says where the next records are from.
    pub fn turn_to(&mut self, topic: &str, partition: i32) {
        if self.partition == partition && self.topic == topic {
            return;
        }
        self.put_away();
        (self.topic, self.partition) = (topic.to_owned(), partition);
    }

    fn put_away(&mut self) {
        for (producer, found) in self.current.drain(..) {
            self.findings.lines.insert((self.topic.clone(), self.partition, producer), found);
        }
    }

    /// Takes a record's value, in the order of the offsets. Its mark, if it is a whole one of the
    /// run.
    pub fn take(&mut self, value: Option<&[u8]>) -> Option<Stamp> {
        let value = value.unwrap_or_default();
        if !is_stamped(value.len()) {
            self.findings.unmarked += 1;
            return None;
        }
        let bound_to = if self.anywhere { ANYWHERE } else { self.partition };
        let Some(stamp) = Stamp::read(value, bound_to) else {
            self.findings.damaged += 1;
            return None;
        };
        self.note(stamp, value)
    }

    /// Takes a record's value of which only the topic and the number of its partitions are known. Where its mark is
    /// damaged nobody can say which partition it was in.
    pub fn take_from(&mut self, topic: &str, partitions: i32, value: &[u8]) -> Option<Stamp> {
        if !is_stamped(value.len()) {
            self.findings.unmarked += 1;
            return None;
        }
        // Neighbours mostly come from one partition.
        let first = if self.topic == topic { self.partition } else { 0 };
        let others = (0..partitions).filter(|partition| *partition != first);
        let Some((partition, stamp)) = Stamp::find(value, std::iter::once(first).chain(others))
        else {
            self.findings.damaged += 1;
            return None;
        };
        self.turn_to(topic, partition);
        self.note(stamp, value)
    }

    /// Counts a whole mark; gives it back if it is of this run.
    fn note(&mut self, stamp: Stamp, value: &[u8]) -> Option<Stamp> {
        if !stamp.is_of(self.run, value.len()) {
            self.findings.foreign += 1;
            return None;
        }
        let found = self.found(stamp.producer);
        let end = found.numbers.end();
        if !found.numbers.insert(stamp.sequence) {
            found.duplicated += 1;
        } else if stamp.sequence < end {
            found.reordered += 1;
        }
        Some(stamp)
    }

    /// Number of records of other runs so far.
    pub fn foreign(&self) -> u64 {
        self.findings.foreign
    }

    /// Whether any record that was acknowledged has not been found so far.
    pub fn lacks_any_of(&mut self, acknowledged: &Acknowledged) -> bool {
        self.put_away();
        self.findings.lost(acknowledged) > 0
    }

    fn found(&mut self, producer: u32) -> &mut Found {
        let at = self.current.iter().position(|(p, _)| *p == producer).unwrap_or_else(|| {
            let line = (self.topic.clone(), self.partition, producer);
            let found = self.findings.lines.remove(&line).unwrap_or_default();
            self.current.push((producer, found));
            self.current.len() - 1
        });
        &mut self.current[at].1
    }

    /// What was found.
    pub fn finish(mut self) -> Findings {
        self.put_away();
        self.findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::checksum_of_rest;

    fn value(producer: u32, sequence: u64, partition: i32) -> Vec<u8> {
        let mut value = vec![b'x'; 50];
        let rest = checksum_of_rest(&value);
        Stamp { run: 1, producer, sequence, time_ns: 0 }.write(&mut value, partition, rest);
        value
    }

    /// The verdict on a partition that holds these records of producer 0, which was told that those
    /// in `safe` are safe, and sent ten.
    fn verdict(found: &[u64], safe: &[(u64, u64)]) -> Verdict {
        let mut acknowledged = Acknowledged::new(1);
        acknowledged.sent = 10;
        safe.iter().for_each(|(first, end)| acknowledged.insert("t", 2, 0, *first, *end));
        let mut checker = Checker::new(1);
        checker.turn_to("t", 2);
        found.iter().for_each(|sequence| {
            checker.take(Some(&value(0, *sequence, 2)));
        });
        checker.finish().verdict(&acknowledged)
    }

    #[test]
    fn all_there_once_and_in_order_is_clean() {
        let verdict = verdict(&[0, 1, 2, 3], &[(0, 2), (2, 4)]);
        assert!(verdict.is_clean());
        assert_eq!((verdict.sent, verdict.acknowledged, verdict.found), (10, 4, 4));
    }

    #[test]
    fn acknowledged_and_not_there_is_lost() {
        assert_eq!(verdict(&[0, 3], &[(0, 4)]).lost, 2);
        assert_eq!(verdict(&[], &[(0, 4)]).lost, 4);
    }

    #[test]
    fn there_without_acknowledgement_is_no_error() {
        let verdict = verdict(&[0, 1, 2, 3], &[(0, 2)]);
        assert!(verdict.is_clean());
        assert_eq!(verdict.found, 4);
    }

    #[test]
    fn a_batch_that_a_producer_without_idempotence_sent_again_is_duplicated() {
        let verdict = verdict(&[0, 1, 2, 0, 1, 2, 3], &[(0, 4)]);
        assert_eq!((verdict.duplicated, verdict.reordered, verdict.lost), (3, 0, 0));
    }

    #[test]
    fn a_batch_that_was_overtaken_is_reordered() {
        let verdict = verdict(&[3, 4, 0, 1, 2], &[(0, 5)]);
        assert_eq!((verdict.duplicated, verdict.reordered, verdict.lost), (0, 3, 0));
    }

    #[test]
    fn other_bytes_or_another_partition_are_damage() {
        let mut acknowledged = Acknowledged::new(1);
        acknowledged.insert("t", 0, 0, 0, 2);
        let mut checker = Checker::new(1);
        checker.turn_to("t", 0);
        checker.take(Some(&value(0, 0, 1)));
        let mut damaged = value(0, 1, 0);
        damaged[40] = b'y';
        checker.take(Some(&damaged));
        let verdict = checker.finish().verdict(&acknowledged);
        assert_eq!((verdict.damaged, verdict.lost, verdict.found), (2, 2, 0));
    }

    #[test]
    fn producers_and_partitions_do_not_disturb_each_other() {
        let mut acknowledged = Acknowledged::new(1);
        let mut checker = Checker::new(1);
        for sequence in 0..5 {
            for partition in 0..3 {
                checker.turn_to("t", partition);
                for producer in 0..2 {
                    checker.take(Some(&value(producer, sequence, partition)));
                    acknowledged.insert("t", partition, producer, sequence, sequence + 1);
                }
            }
        }
        let verdict = checker.finish().verdict(&acknowledged);
        assert!(verdict.is_clean(), "{verdict:?}");
        assert_eq!((verdict.found, verdict.acknowledged), (30, 30));
        assert_eq!(acknowledged.partitions()[&("t".to_owned(), 1)], 10);
    }

    #[test]
    fn what_two_readers_both_found_is_duplicated() {
        let read = |sequences: std::ops::Range<u64>| {
            let mut checker = Checker::new(1);
            checker.turn_to("t", 0);
            sequences.for_each(|s| assert!(checker.take(Some(&value(0, s, 0))).is_some()));
            checker.finish()
        };
        let mut findings = read(0..6);
        findings.absorb(read(4..10));
        let mut acknowledged = Acknowledged::new(1);
        acknowledged.insert("t", 0, 0, 0, 10);
        let verdict = findings.verdict(&acknowledged);
        assert_eq!((verdict.duplicated, verdict.lost, verdict.found), (2, 0, 10));
    }

    #[test]
    fn of_short_values_the_number_is_compared() {
        let mut acknowledged = Acknowledged::new(1);
        acknowledged.insert("t", 0, 0, 0, 10);
        (acknowledged.sent, acknowledged.unmarked) = (10, 10);
        let found = |count: usize| {
            let mut checker = Checker::new(1);
            checker.turn_to("t", 0);
            (0..count).for_each(|_| assert!(checker.take(Some(b"short")).is_none()));
            checker.finish().verdict(&acknowledged)
        };
        assert!(found(10).is_clean());
        assert_eq!(found(7).lost, 3);
        assert_eq!(found(12).duplicated, 2);
    }

    #[test]
    fn what_was_found_twice_does_not_stand_for_what_was_not_found() {
        let mut acknowledged = Acknowledged::new(1);
        acknowledged.insert("t", 0, 0, 0, 4);
        let mut checker = Checker::new(1);
        checker.turn_to("t", 0);
        for sequence in [0, 1, 0, 1, 2] {
            checker.take(Some(&value(0, sequence, 0)));
            assert!(checker.lacks_any_of(&acknowledged), "{sequence}");
        }
        checker.take(Some(&value(0, 3, 0)));
        assert!(!checker.lacks_any_of(&acknowledged));
        let verdict = checker.finish().verdict(&acknowledged);
        assert_eq!((verdict.duplicated, verdict.lost, verdict.found), (2, 0, 4));
    }

    #[test]
    fn of_pushed_values_the_partition_is_found() {
        let mut acknowledged = Acknowledged::new(1);
        let mut checker = Checker::new(1);
        for (partition, sequence) in [(0, 0), (2, 0), (2, 1), (0, 1), (1, 0)] {
            acknowledged.insert("t", partition, 0, sequence, sequence + 1);
            let stamp = checker.take_from("t", 3, &value(0, sequence, partition));
            assert_eq!(stamp.map(|stamp| stamp.sequence), Some(sequence));
        }
        assert_eq!(checker.take_from("t", 3, &value(0, 1, 3)), None, "there is no partition 3");
        let verdict = checker.finish().verdict(&acknowledged);
        assert_eq!((verdict.found, verdict.damaged, verdict.lost, verdict.reordered), (5, 1, 0, 0));
    }

    #[test]
    fn marks_that_are_bound_to_no_partition_are_found_in_any_and_in_order() {
        let mut acknowledged = Acknowledged::anywhere(1);
        let mut checker = Checker::anywhere(1);
        for (sequence, partition) in [(0, 1), (1, 0), (3, 0), (2, 0), (4, 1)] {
            acknowledged.insert("t", partition, 0, sequence, sequence + 1);
            checker.turn_to("t", partition);
            assert!(checker.take(Some(&value(0, sequence, ANYWHERE))).is_some());
        }
        let verdict = checker.finish().verdict(&acknowledged);
        assert_eq!((verdict.found, verdict.lost, verdict.reordered), (5, 0, 1));
    }

    #[test]
    fn records_of_another_run_do_not_count() {
        let mut checker = Checker::new(2);
        checker.turn_to("t", 0);
        assert_eq!(checker.take(Some(&value(0, 0, 0))), None);
        let findings = checker.finish();
        assert_eq!((findings.foreign(), findings.count()), (1, 0));
    }
}
