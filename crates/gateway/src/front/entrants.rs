//! How many connections there are, in all and from each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
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
    address: IpAddr,
}

impl Entrants {
    pub(crate) fn new(all_max: usize, per_address_max: usize) -> Entrants {
        Entrants { counts: Arc::default(), all_max, per_address_max }
    }

    /// How many connections there are.
    pub(crate) fn count(&self) -> usize {
        self.counts.lock().expect("no code under it panics").all
    }

    /// Counts a connection from this address; `None` if it is one too many.
    pub(crate) fn enter(&self, address: IpAddr) -> Option<Entered> {
        let address = address.to_canonical();
        let mut counts = self.counts.lock().expect("no code under it panics");
        let here = counts.by_address.get(&address).copied().unwrap_or(0);
        if counts.all >= self.all_max || here >= self.per_address_max {
            return None;
        }
        counts.all += 1;
        counts.by_address.insert(address, here + 1);
        Some(Entered { counts: Arc::clone(&self.counts), address })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().expect("no code under it panics");
        counts.all -= 1;
        if let Some(here) = counts.by_address.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                counts.by_address.remove(&self.address);
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
        let first = entrants.enter(one).unwrap();
        let _second = entrants.enter("::ffff:10.0.0.1".parse().unwrap()).unwrap();
        assert!(entrants.enter(one).is_none(), "two of one address");
        let third = entrants.enter(two).unwrap();
        assert!(entrants.enter(two).is_none(), "three in all");
        drop(first);
        assert!(entrants.enter(one).is_some());
        drop(third);
        assert!(!entrants.counts.lock().unwrap().by_address.contains_key(&two));
    }
}
