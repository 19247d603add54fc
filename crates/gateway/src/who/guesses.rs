//! How many wrong passwords may come from one address, so that whoever guesses, from one place, gets few guesses and keeps
//! nobody else from logging in.
//!
//! A bucket of guesses for each address, which fills again with time. A password that was right costs none. An IPv6 address counts by
//! its first 64 bits: one client has all addresses behind them. Without trusted proxies, loopback addresses are left out: a proxy
//! may run on this machine, and all its clients have its address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::front::Place;

/// Wrong passwords in a row.
const MOST: f64 = 10.0;
/// How long it takes until one more may be wrong.
const REFILL: Duration = Duration::from_secs(6);
/// Addresses that are known at a time. For those beyond it the bound on passwords that are checked at once is the only one.
const ADDRESSES_MAX: usize = 10_000;

/// Guesses by address.
#[derive(Debug)]
pub(super) struct Guesses {
    /// Whether loopback addresses have a limit as well.
    counts_loopback: bool,
    buckets: Mutex<HashMap<Place, Bucket>>,
}

/// What is spent of a bucket, and when that was so.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    spent: f64,
    at: Instant,
}

impl Bucket {
    fn spent(&self, now: Instant) -> f64 {
        let refilled = now.saturating_duration_since(self.at).as_secs_f64() / REFILL.as_secs_f64();
        (self.spent - refilled).max(0.0)
    }
}

impl Guesses {
    /// `counts_loopback`: whether loopback addresses have a limit as well.
    pub(super) fn new(counts_loopback: bool) -> Guesses {
        Guesses { counts_loopback, buckets: Mutex::default() }
    }

    /// The place of an address; `None` if guesses from the address have no limit.
    fn place(&self, address: IpAddr) -> Option<Place> {
        let is_counted = self.counts_loopback || !address.to_canonical().is_loopback();
        is_counted.then(|| Place::of(address))
    }

    /// Takes a guess; false if there is none left. Taken before the password is looked at, so that many at once are not
    /// more than may be.
    pub(super) fn take(&self, address: IpAddr, now: Instant) -> bool {
        let Some(place) = self.place(address) else { return true };
        let mut buckets = self.buckets.lock().expect("no code under it panics");
        if buckets.len() >= ADDRESSES_MAX && !buckets.contains_key(&place) {
            buckets.retain(|_, bucket| bucket.spent(now) > 0.0);
            if buckets.len() >= ADDRESSES_MAX {
                return true;
            }
        }
        let bucket = buckets.entry(place).or_insert(Bucket { spent: 0.0, at: now });
        let spent = bucket.spent(now);
        if spent + 1.0 > MOST {
            return false;
        }
        *bucket = Bucket { spent: spent + 1.0, at: now };
        true
    }

    /// Gives a guess back: the password was right, or was not looked at.
    pub(super) fn give_back(&self, address: IpAddr, now: Instant) {
        let Some(place) = self.place(address) else { return };
        let mut buckets = self.buckets.lock().expect("no code under it panics");
        if let Some(bucket) = buckets.get_mut(&place) {
            *bucket = Bucket { spent: (bucket.spent(now) - 1.0).max(0.0), at: now };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn ten_may_be_wrong_and_one_more_after_a_while() {
        let (guesses, now) = (Guesses::new(false), Instant::now());
        let one = address("10.0.0.1");
        assert!((0..10).all(|_| guesses.take(one, now)));
        assert!(!guesses.take(one, now) && !guesses.take(one, now + REFILL / 2));
        assert!(guesses.take(one, now + REFILL) && !guesses.take(one, now + REFILL));
        assert!(guesses.take(address("10.0.0.2"), now), "another address");
        // The clock of another thread may be a little behind.
        assert!(!guesses.take(one, now));
        assert!((0..10).all(|_| guesses.take(one, now + 20 * REFILL)));
        assert!(!guesses.take(one, now + 20 * REFILL), "no more than ten are saved");
    }

    #[test]
    fn what_was_right_costs_nothing() {
        let (guesses, now) = (Guesses::new(false), Instant::now());
        let one = address("10.0.0.1");
        for _ in 0..100 {
            assert!(guesses.take(one, now));
            guesses.give_back(one, now);
        }
        guesses.give_back(address("10.0.0.9"), now);
        assert!((0..10).all(|_| guesses.take(one, now)) && !guesses.take(one, now));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_this_machine_is_none() {
        let (guesses, now) = (Guesses::new(false), Instant::now());
        let all = (0..11).map(|host| address(&format!("2001:db8::{host}")));
        assert_eq!(all.filter(|host| guesses.take(*host, now)).count(), 10);
        assert!(guesses.take(address("2001:db8:0:1::1"), now));
        assert!((0..10).all(|_| guesses.take(address("::ffff:10.0.0.1"), now)));
        assert!(!guesses.take(address("10.0.0.1"), now), "the same, written otherwise");
        for own in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!((0..100).all(|_| guesses.take(address(own), now)), "{own}");
        }
        let guesses = Guesses::new(true);
        let own = address("127.0.0.1");
        assert!((0..10).all(|_| guesses.take(own, now)) && !guesses.take(own, now));
    }

    #[test]
    fn the_table_is_bounded() {
        let (guesses, now) = (Guesses::new(false), Instant::now());
        for host in 0..ADDRESSES_MAX as u32 + 100 {
            assert!(guesses.take(IpAddr::from((0x0a00_0000 + host).to_be_bytes()), now));
        }
        assert_eq!(guesses.buckets.lock().unwrap().len(), ADDRESSES_MAX);
        assert!(guesses.take(address("10.200.0.1"), now + REFILL));
        assert_eq!(guesses.buckets.lock().unwrap().len(), 1, "those that are full again go");
    }
}
