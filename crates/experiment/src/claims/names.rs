//! Which factors and metrics a predicate looks at, so that definitions can be checked. Not here: the tests.

use super::{Filter, Test};

/// What a predicate looks at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    /// Factors of its own experiment, and metrics that choose rows.
    pub factors: Vec<String>,
    /// Factors of other experiments: the experiment, the factor.
    pub of_others: Vec<(String, String)>,
    /// Metrics.
    pub metrics: Vec<String>,
}

/// What a test looks at.
pub fn names(test: &Test) -> Names {
    let mut names = Names::default();
    names.add(test);
    names
}

impl Names {
    fn add(&mut self, test: &Test) {
        match test {
            Test::Monotone { metric, over, groups, filter, .. }
            | Test::PowerLaw { metric, over, groups, filter, .. } => {
                self.of(metric, &[filter], groups);
                self.factors.push(over.clone());
            }
            Test::Flat { metric, groups, filter, .. } => self.of(metric, &[filter], groups),
            Test::Ratio { metric, of, to, to_experiment, matching, filter, .. } => {
                self.of(metric, &[of, filter], matching.as_deref().unwrap_or_default());
                match to_experiment {
                    None => self.filters(&[to]),
                    Some(other) => {
                        let theirs = to.keys().chain(matching.iter().flatten());
                        self.of_others.extend(theirs.map(|name| (other.clone(), name.clone())));
                    }
                }
            }
            Test::Bound { metric, filter, .. } => self.of(metric, &[filter], &[]),
            Test::Worst { metric, trials, filter, .. } => {
                self.of(metric, &[filter], &[]);
                self.metrics.push(trials.clone());
            }
            Test::Separated { metric, low, high, .. } => self.of(metric, &[low, high], &[]),
            Test::GapShrinks { metric, of, to, over, filter } => {
                self.of(metric, &[of, to, filter], std::slice::from_ref(over));
            }
            Test::Counts { filter, .. } | Test::Even { filter, .. } => self.filters(&[filter]),
            Test::All { tests } => tests.iter().for_each(|test| self.add(test)),
            Test::Published { test } | Test::Measured { test } => self.add(test),
            Test::Untestable { .. } => {}
        }
    }

    fn of(&mut self, metric: &str, filters: &[&Filter], factors: &[String]) {
        self.metrics.push(metric.to_owned());
        self.factors.extend(factors.iter().cloned());
        self.filters(filters);
    }

    fn filters(&mut self, filters: &[&Filter]) {
        self.factors.extend(filters.iter().flat_map(|filter| filter.keys().cloned()));
    }
}
