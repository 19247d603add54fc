//! Descriptors are a budget: connections and files of logs share what the system lets a process open.
//!
//! ```text
//! limit of open files (ulimit -n) = files of logs        40 %, at most 8,192
//!                                 + reserve              metadata log, journal, what is short-lived
//!                                 + HTTP                 64
//!                                 + clients' connections the rest
//! ```

use rustix::process::{Resource, getrlimit};

/// Files of logs that may be open at a time, where the limit allows them.
const FILES_MAX: usize = 8192;
/// Descriptors for what is neither a log's file nor a connection, where the limit allows them.
const RESERVE: usize = 256;
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
}

impl Descriptors {
    /// Those of this process, by its limit now.
    pub fn of_process() -> Descriptors {
        Descriptors::of(getrlimit(Resource::Nofile).current.unwrap_or(UNLIMITED))
    }

    fn of(limit: u64) -> Descriptors {
        let limit = limit.min(UNLIMITED) as usize;
        let files = (limit / 5 * 2).min(FILES_MAX);
        let reserve = (limit / 4).min(RESERVE);
        let http = (limit / 8).clamp(1, HTTP_MAX);
        let connections = limit.saturating_sub(files + reserve + http).max(1);
        Descriptors { files, connections, http }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_limit_it_is_never_given_away_twice() {
        for limit in [16, 80, 256, 1024, 4096, 20_000, 1 << 20, 1 << 40] {
            let Descriptors { files, connections, http } = Descriptors::of(limit);
            let reserve = (limit / 4).min(RESERVE as u64);
            assert!((files + connections + http) as u64 + reserve <= limit, "{limit}");
            assert!(connections * 6 >= limit.min(1 << 30) as usize, "{limit}: {connections}");
        }
        assert_eq!(
            Descriptors::of(20_000),
            Descriptors { files: 8000, connections: 11_680, http: 64 }
        );
    }
}
