//! Ports of 127.0.0.1 for programs that must know theirs before they start.
//!
//! The system gives ports of a range of its own to outgoing connections and to whoever leaves the choice to it: one of
//! those that is free now may be taken a moment later, by a connection to that very port even. What is
//! chosen here lies in front of that range, where only somebody who names the number gets it.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::ops::Range;

/// The first port that is chosen. Those of well-known services lie before.
const FIRST: u16 = 10_000;
/// Among fewer ports than these there is no choosing.
const CHOICE_MIN: u16 = 1_000;
/// Ports that are tried for each that is wanted.
const ATTEMPTS: u32 = 1_000;
/// Where the kernel says which ports it gives away.
const SYSTEMS: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// So many different ports that are free now. Where the system's range leaves no room in front of it,
/// they come from there.
///
/// # Errors
/// There are not as many, or none can be bound for another reason.
pub fn free(count: usize) -> io::Result<Vec<u16>> {
    let choice = choice(&fs::read_to_string(SYSTEMS).unwrap_or_default());
    // All are held until all are known, so that no port comes twice.
    let held: Vec<TcpListener> =
        (0..count).map(|_| hold(choice.clone())).collect::<Result<_, _>>()?;
    let ports: BTreeSet<u16> =
        held.iter().map(|held| Ok(held.local_addr()?.port())).collect::<io::Result<_>>()?;
    Ok(ports.into_iter().collect())
}

fn hold(choice: Option<Range<u16>>) -> io::Result<TcpListener> {
    let Some(choice) = choice else { return TcpListener::bind("127.0.0.1:0") };
    // Its keys are random.
    let random = RandomState::new();
    for attempt in 0..ATTEMPTS {
        let port = choice.start + (random.hash_one(attempt) % choice.len() as u64) as u16;
        match TcpListener::bind(("127.0.0.1", port)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            bound => return bound,
        }
    }
    Err(ErrorKind::AddrInUse.into())
}

/// The ports in front of the system's own range, which is given as the kernel says it: the first and the
/// last port.
fn choice(systems: &str) -> Option<Range<u16>> {
    let end: u16 = systems.split_whitespace().next()?.parse().ok()?;
    (end.saturating_sub(FIRST) >= CHOICE_MIN).then_some(FIRST..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_chosen_in_front_of_those_that_the_system_gives_away() {
        assert_eq!(choice("32768\t60999\n"), Some(10_000..32_768));
        assert_eq!(choice("10240\t65535\n"), None);
        assert_eq!(choice("1024\t65535\n"), None);
        assert_eq!(choice(""), None);
    }

    #[test]
    fn ports_are_all_different_and_free() {
        for choice in [Some(20_000..20_020), None] {
            let held: Vec<_> = (0..3).map(|_| hold(choice.clone()).unwrap()).collect();
            let ports: BTreeSet<u16> =
                held.iter().map(|held| held.local_addr().unwrap().port()).collect();
            assert_eq!(ports.len(), 3);
        }
        let ports = free(6).unwrap();
        assert_eq!(ports.len(), 6);
    }
}
