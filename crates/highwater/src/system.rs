//! What the program asks of the operating system before it works.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the number of files that may be open as far as the system lets us: connections and
/// segments of logs are files, and the usual limit of 1,024 is for programs of another kind.
/// Returns the limit that holds now; `None` for no limit.
pub fn raise_open_files_limit() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // A start goes on without the permission: the old limit holds.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_as_the_system_allows_may_be_open() {
        assert_eq!(raise_open_files_limit(), getrlimit(Resource::Nofile).maximum);
    }
}
