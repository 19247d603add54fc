//! Which topics a cluster's metadata is kept of: those that are leased, and those that were named a short time ago. A value
//! behind a lock of [`crate::cluster`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Why a topic is asked for. Invariant: there is a reason.
#[derive(Debug, Default)]
struct Reasons {
    /// How many hold a lease on it.
    leases: usize,
    /// When it was named last without a lease.
    named: Option<Instant>,
}

/// The topics that are asked for, by name.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    topics: BTreeMap<String, Reasons>,
}

impl Wanted {
    fn reasons(&mut self, name: &str) -> &mut Reasons {
        // Nearly always there: a name is copied once.
        if !self.topics.contains_key(name) {
            self.topics.insert(name.to_owned(), Reasons::default());
        }
        self.topics.get_mut(name).expect("it is there")
    }

    /// One more holds a lease.
    pub(crate) fn lease(&mut self, name: &str) {
        self.reasons(name).leases += 1;
    }

    /// One holds its lease no more.
    pub(crate) fn give_back(&mut self, name: &str) {
        let reasons = self.reasons(name);
        assert!(reasons.leases > 0, "a lease of {name} is given back once");
        reasons.leases -= 1;
        if reasons.leases == 0 && reasons.named.is_none() {
            self.topics.remove(name);
        }
    }

    /// The topic is asked for, for a while.
    pub(crate) fn name(&mut self, name: &str, now: Instant) {
        let reasons = self.reasons(name);
        reasons.named = reasons.named.max(Some(now));
    }

    /// As if the topic had not been named; leases stay.
    pub(crate) fn unname(&mut self, name: &str) {
        let Some(reasons) = self.topics.get_mut(name) else { return };
        reasons.named = None;
        if reasons.leases == 0 {
            self.topics.remove(name);
        }
    }

    /// Drops the topics that no one leases and that were named last longer ago than `idle_max`.
    pub(crate) fn expire(&mut self, idle_max: Duration, now: Instant) {
        self.topics.retain(|_, reasons| {
            let is_recent = |named: &Instant| now.saturating_duration_since(*named) <= idle_max;
            reasons.named = reasons.named.filter(is_recent);
            reasons.leases > 0 || reasons.named.is_some()
        });
    }

    /// Whether the topic is asked for.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.topics.contains_key(name)
    }

    /// The names, in their order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.topics.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE_MAX: Duration = Duration::from_secs(300);

    fn names(wanted: &Wanted) -> Vec<&str> {
        wanted.names().collect()
    }

    #[test]
    fn a_topic_stays_until_its_last_lease_is_given_back() {
        let mut wanted = Wanted::default();
        wanted.lease("a");
        wanted.lease("a");
        wanted.lease("b");
        wanted.give_back("a");
        assert_eq!(names(&wanted), ["a", "b"]);
        wanted.give_back("a");
        assert_eq!(names(&wanted), ["b"]);
        assert!(wanted.contains("b") && !wanted.contains("a"));
    }

    #[test]
    fn a_topic_that_was_named_stays_for_a_while() {
        let (mut wanted, now) = (Wanted::default(), Instant::now());
        wanted.name("a", now);
        wanted.name("b", now);
        wanted.name("b", now + IDLE_MAX);
        // The clock of another thread may be behind.
        wanted.name("b", now);
        wanted.expire(IDLE_MAX, now + IDLE_MAX);
        assert_eq!(names(&wanted), ["a", "b"]);
        wanted.expire(IDLE_MAX, now + IDLE_MAX + Duration::from_nanos(1));
        assert_eq!(names(&wanted), ["b"]);
        wanted.unname("b");
        assert_eq!(names(&wanted), [""; 0]);
    }

    #[test]
    fn a_lease_and_a_naming_are_reasons_of_their_own() {
        let (mut wanted, now) = (Wanted::default(), Instant::now());
        wanted.lease("a");
        wanted.name("a", now);
        wanted.unname("a");
        wanted.expire(IDLE_MAX, now + 2 * IDLE_MAX);
        assert_eq!(names(&wanted), ["a"], "leased");
        wanted.name("a", now);
        wanted.give_back("a");
        assert_eq!(names(&wanted), ["a"], "named");
        wanted.expire(IDLE_MAX, now + 2 * IDLE_MAX);
        wanted.unname("a");
        assert_eq!(names(&wanted), [""; 0]);
    }
}
