//! How many connections there are, in all and from each address.
//!
//! An IPv6 address counts by its first 64 bits: whoever has one has all behind them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use serving::error::{ApiError, Kind};

/// The addresses that count as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place(IpAddr);

impl Place {
    /// The one that an address is of: itself, or its network of 64 bits.
    pub(crate) fn of(address: IpAddr) -> Place {
        Place(match address.to_canonical() {
            // All of them together would be one network of this machine's and of old forms of IPv4.
            IpAddr::V6(own) if own.is_loopback() => IpAddr::V6(own),
            IpAddr::V6(other) => IpAddr::V6(Ipv6Addr::from_bits(other.to_bits() >> 64 << 64)),
            v4 => v4,
        })
    }
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_place: HashMap<Place, usize>,
}

/// Counts connections, and refuses one too many.
#[derive(Debug, Clone)]
pub(crate) struct Entrants {
    counts: Arc<Mutex<Counts>>,
    all_max: usize,
    per_address_max: usize,
}

/// A connection that was let in; counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    counts: Arc<Mutex<Counts>>,
    place: Place,
}

/// A limit that is met: as many connections are open as it allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Of all of them.
    All(usize),
    /// Of those from one address.
    Address(usize),
}

impl Limit {
    /// What a client is told that is one too many.
    pub(crate) fn error(self) -> ApiError {
        let words = match self {
            Limit::All(most) => format!(
                "this gateway has {most} connections, as many as it may (gateway.connections.max): try again, or raise that key"
            ),
            Limit::Address(most) => format!(
                "this gateway has {most} connections from your address, as many as it may (gateway.connections.per.address.max): \
                 close some, or raise that key"
            ),
        };
        ApiError::new(Kind::Unavailable, words)
    }
}

impl Entrants {
    pub(crate) fn new(all_max: usize, per_address_max: usize) -> Entrants {
        Entrants { counts: Arc::default(), all_max, per_address_max }
    }

    /// How many connections there are.
    pub(crate) fn count(&self) -> usize {
        self.counts.lock().expect("no code under it panics").all
    }

    /// Counts a connection from this address. `is_proxy`: the limit of an address is not for it.
    ///
    /// # Errors
    /// It is one too many, by this limit.
    pub(crate) fn enter(&self, address: IpAddr, is_proxy: bool) -> Result<Entered, Limit> {
        let place = Place::of(address);
        let mut counts = self.counts.lock().expect("no code under it panics");
        let here = counts.by_place.get(&place).copied().unwrap_or(0);
        if counts.all >= self.all_max {
            return Err(Limit::All(self.all_max));
        }
        if here >= self.per_address_max && !is_proxy {
            return Err(Limit::Address(self.per_address_max));
        }
        counts.all += 1;
        counts.by_place.insert(place, here + 1);
        Ok(Entered { counts: Arc::clone(&self.counts), place })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().expect("no code under it panics");
        counts.all -= 1;
        if let Some(here) = counts.by_place.get_mut(&self.place) {
            *here -= 1;
            if *here == 0 {
                counts.by_place.remove(&self.place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_too_many_is_refused_until_another_leaves() {
        let entrants = Entrants::new(3, 2);
        let [one, two]: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        let first = entrants.enter(one, false).unwrap();
        let _second = entrants.enter("::ffff:10.0.0.1".parse().unwrap(), false).unwrap();
        assert_eq!(entrants.enter(one, false).unwrap_err(), Limit::Address(2));
        let third = entrants.enter(two, false).unwrap();
        assert_eq!(entrants.enter(two, false).unwrap_err(), Limit::All(3));
        drop(first);
        assert!(entrants.enter(one, false).is_ok());
        drop(third);
        assert!(!entrants.counts.lock().unwrap().by_place.contains_key(&Place::of(two)));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let entrants = Entrants::new(100, 2);
        let enter = |text: &str| entrants.enter(text.parse().unwrap(), false);
        let _here = [enter("2001:db8::1").unwrap(), enter("2001:db8::2:3:4:5").unwrap()];
        assert!(enter("2001:db8::7").is_err(), "the third of one network");
        assert!(enter("2001:db8:0:1::1").is_ok(), "another network");
        let _own = [enter("::1").unwrap(), enter("::1").unwrap()];
        assert!(enter("::1").is_err() && enter("::2").is_ok() && enter("10.0.0.1").is_ok());
    }
}
