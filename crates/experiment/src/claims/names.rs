//! Which factors and metrics a predicate looks at, so that definitions can be checked. Not here: the tests.

use super::{Filter, Test};

/// The factors and the metrics that a test looks at.
pub fn names(test: &Test) -> (Vec<String>, Vec<String>) {
    let mut names = Names::default();
    names.add(test);
    (names.factors, names.metrics)
}

#[derive(Default)]
struct Names {
    factors: Vec<String>,
    metrics: Vec<String>,
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
            Test::Ratio { metric, of, to, matching, filter, .. } => {
                self.of(metric, &[of, to, filter], matching.as_deref().unwrap_or_default());
            }
            Test::Bound { metric, filter, .. } => self.of(metric, &[filter], &[]),
            Test::Separated { metric, low, high, .. } => self.of(metric, &[low, high], &[]),
            Test::GapShrinks { metric, of, to, over, filter } => {
                self.of(metric, &[of, to, filter], std::slice::from_ref(over));
            }
            Test::Counts { filter, .. } | Test::Even { filter, .. } => self.filters(&[filter]),
            Test::All { tests } => tests.iter().for_each(|test| self.add(test)),
            Test::Published { test } => self.add(test),
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
