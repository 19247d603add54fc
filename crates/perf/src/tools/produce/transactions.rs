//! When the producer's tool begins and ends transactions: one begins with a record and ends behind
//! the first record whose sending began when it was old enough. What ends it is the client's.

use std::time::{Duration, Instant};

/// The transactions of one producer, one after the other.
#[derive(Debug)]
pub struct Transactions {
    duration: Duration,
    began: Option<Instant>,
}

impl Transactions {
    /// Of this age, in milliseconds.
    pub fn new(duration_ms: u64) -> Transactions {
        Transactions { duration: Duration::from_millis(duration_ms), began: None }
    }

    /// Before a record: whether a transaction is to be begun.
    #[inline]
    pub fn begin(&mut self, now: Instant) -> bool {
        let begins = self.began.is_none();
        self.began.get_or_insert(now);
        begins
    }

    /// Behind a record whose sending began at `sent`: whether the transaction is to be committed.
    #[inline]
    pub fn end_after(&mut self, sent: Instant) -> bool {
        let is_due = |began: &mut Instant| sent.saturating_duration_since(*began) >= self.duration;
        self.began.take_if(is_due).is_some()
    }

    /// Whether one is open: at the end of the run it is to be committed.
    pub fn is_open(&self) -> bool {
        self.began.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_ends_behind_the_record_that_finds_it_old_enough() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut transactions = Transactions::new(10);
        assert!(!transactions.is_open());
        assert!(transactions.begin(at(0)));
        assert!(!transactions.end_after(at(0)));
        assert!(!transactions.begin(at(9)), "it is still open");
        assert!(!transactions.end_after(at(9)));
        assert!(!transactions.begin(at(10)));
        assert!(transactions.end_after(at(10)));
        assert!(!transactions.is_open());
        assert!(transactions.begin(at(50)), "the age counts from the first record");
        assert!(!transactions.end_after(at(59)) && transactions.is_open());
        assert!(transactions.end_after(at(60)));
    }
}
