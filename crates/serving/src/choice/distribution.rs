//! How many records went where, for each rule by which that was decided.

use std::collections::BTreeMap;

use super::balancer::Choice;
use super::strategy::Rule;

/// One place and what went there by one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Why records are there.
    pub rule: Rule,
    /// The broker that was chosen, if one was.
    pub broker: Option<i32>,
    /// The partition.
    pub partition: i32,
    /// How many records.
    pub records: u64,
}

/// Counts of one topic. Bounded by rules × partitions.
#[derive(Debug, Clone, Default)]
pub struct Distribution {
    counts: BTreeMap<(Rule, Option<i32>, i32), u64>,
}

impl Distribution {
    /// Counts records that went to a place.
    pub fn add(&mut self, rule: Rule, choice: Choice, records: u64) {
        *self.counts.entry((rule, choice.broker, choice.partition)).or_default() += records;
    }

    /// All counts: by rule, then broker, then partition.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        self.counts.iter().map(|((rule, broker, partition), records)| Row {
            rule: *rule,
            broker: *broker,
            partition: *partition,
            records: *records,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::Pair;

    #[test]
    fn records_are_counted_by_rule_and_place() {
        let mut distribution = Distribution::default();
        let at = |broker, partition| Choice { broker, partition };
        let chosen = Rule::Chosen(Pair::default());
        for choice in [at(None, 2), at(None, 1), at(None, 2)] {
            distribution.add(chosen, choice, 1);
        }
        distribution.add(Rule::Given, at(None, 2), 5);
        let rows: Vec<_> =
            distribution.rows().map(|row| (row.rule, row.partition, row.records)).collect();
        assert_eq!(rows, [(Rule::Given, 2, 5), (chosen, 1, 1), (chosen, 2, 2)]);
    }
}
