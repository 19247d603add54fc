//! Descriptors are a budget: connections and files of logs share what the system lets a process open.
//!
//! ```text
//! limit of open files (ulimit -n) = what is open at the start   runtimes, journal, metadata log, ...
//!                                 + reserve                     what is short-lived
//!                                 + files of logs               40 %, at most 8,192
//!                                 + HTTP                        64
//!                                 + the gateway, if there is one   a quarter of the rest
//!                                 + clients' connections        the rest
//! ```

use rustix::process::{Resource, getrlimit};

/// Files of logs that may be open at a time, where the limit allows them.
const FILES_MAX: usize = 8192;
/// Files of logs that may be open whatever the limit: with fewer a log cannot roll.
const FILES_LEAST: usize = 8;
/// Descriptors for what is neither a log's file nor a connection, where the limit allows them.
const RESERVE: usize = 256;
/// Those of them that are kept free whatever is open at the start.
const RESERVE_LEAST: usize = 12;
/// What is taken to be open at the start where the system does not tell.
const IN_USE: usize = 64;
/// Connections to the HTTP port, where the limit allows them.
const HTTP_MAX: usize = 64;
/// What is taken for the limit where there is none.
const UNLIMITED: u64 = 1 << 30;

/// How many descriptors there are for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// Files of logs. Above it those that were not used lately are closed.
    pub files: usize,
    /// Connections of clients, all listeners together.
    pub connections: usize,
    /// Connections to the HTTP port.
    pub http: usize,
    /// Connections to the gateway that runs beside the broker; 0 where there is none.
    pub gateway: usize,
}

impl Descriptors {
    /// Those of this process, by its limit and by what is open now.
    pub fn of_process(has_gateway: bool) -> Descriptors {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(UNLIMITED);
        let in_use = storage::disk::reserve::descriptors_in_use().unwrap_or(IN_USE);
        Descriptors::of(limit, in_use).shared(has_gateway)
    }

    /// The same, with a part for the gateway if there is one.
    fn shared(self, has_gateway: bool) -> Descriptors {
        let gateway = if has_gateway { self.connections / 4 } else { 0 };
        Descriptors { connections: self.connections - gateway, gateway, ..self }
    }

    /// `in_use`: descriptors that are open for as long as the process lives.
    fn of(limit: u64, in_use: usize) -> Descriptors {
        let limit = limit.min(UNLIMITED) as usize;
        let reserve = (in_use + RESERVE_LEAST).max((limit / 4).min(RESERVE));
        let rest = limit.saturating_sub(reserve);
        let files = (limit / 5 * 2).min(FILES_MAX).min(rest / 2).max(FILES_LEAST);
        let http = (rest / 8).clamp(1, HTTP_MAX);
        let connections = rest.saturating_sub(files + http).max(1);
        Descriptors { files, connections, http, gateway: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_limit_it_is_never_given_away_twice() {
        for limit in [96, 256, 1024, 4096, 20_000, 1 << 20, 1 << 40] {
            let Descriptors { files, connections, http, .. } = Descriptors::of(limit, 30);
            let reserve = (30 + RESERVE_LEAST).max((limit / 4).min(RESERVE as u64) as usize);
            assert!(files + connections + http + reserve <= limit as usize, "{limit}");
            assert!(connections * 8 >= limit.min(1 << 30) as usize, "{limit}: {connections}");
        }
        assert_eq!(
            Descriptors::of(20_000, 30),
            Descriptors { files: 8000, connections: 11_680, http: 64, gateway: 0 }
        );
    }

    #[test]
    fn a_gateway_has_a_quarter_of_the_connections() {
        let alone = Descriptors::of(20_000, 30);
        let shared = alone.shared(true);
        assert_eq!((shared.connections, shared.gateway), (8760, 2920));
        assert_eq!((shared.files, shared.http), (alone.files, alone.http));
        assert_eq!(alone.shared(false), alone);
    }

    #[test]
    fn what_is_open_already_is_given_to_nobody() {
        let (few, many) = (Descriptors::of(1024, 30), Descriptors::of(1024, 530));
        assert!(many.connections < few.connections && many.files < few.files, "{few:?} {many:?}");
        assert!(many.files + many.connections + many.http + 530 < 1024, "{many:?}");
    }

    #[test]
    fn a_limit_below_all_needs_leaves_a_log_the_files_to_roll() {
        let Descriptors { files, connections, http, .. } = Descriptors::of(32, 30);
        assert_eq!((files, connections, http), (FILES_LEAST, 1, 1));
    }
}
