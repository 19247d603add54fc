//! Which operation of a simulated disk goes wrong, and how.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

/// Something that changed or synced a simulated disk, or tried to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What it was: `write`, `sync`, `rename`…
    pub kind: &'static str,
    /// What it was done to.
    pub path: Arc<Path>,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.path.display())
    }
}

/// Which of some operations fails, and how.
#[derive(Debug)]
pub(super) struct Picked {
    /// How many of those that are picked come before it.
    pub(super) before: u64,
    pub(super) errno: Errno,
    pub(super) picks: fn(&Operation) -> bool,
}

#[derive(Debug, Default)]
pub(super) struct Control {
    /// What was begun, in order. The next operation's number is the length.
    pub(super) operations: Vec<Operation>,
    /// Files that were opened, in order; an opening changes nothing and is no operation.
    pub(super) opened: Vec<Arc<Path>>,
    /// The machine stops before this operation. Once reached, nothing works any more.
    pub(super) stop_at: Option<u64>,
    /// This operation fails, once.
    pub(super) fail_at: Option<(u64, Errno)>,
    /// One of the operations that a test picks fails, once.
    pub(super) fail_picked: Option<Picked>,
    pub(super) syncs_fail: bool,
    pub(super) syncs_lie: bool,
    pub(super) capacity_bytes: Option<u64>,
}

impl Control {
    pub(super) fn operation_count(&self) -> u64 {
        self.operations.len() as u64
    }

    /// Fails once the machine has stopped.
    pub(super) fn check_running(&self) -> io::Result<()> {
        match self.stop_at {
            Some(at) if self.operation_count() >= at => Err(io::Error::other("power is off")),
            _ => Ok(()),
        }
    }

    /// Counts an operation; the caller has checked that the machine runs.
    pub(super) fn begin(&mut self, kind: &'static str, path: &Path) -> io::Result<()> {
        let number = self.operation_count();
        let operation = Operation { kind, path: path.into() };
        let picked = self.pick(&operation);
        self.operations.push(operation);
        match (self.fail_at, picked) {
            (Some((at, errno)), _) if at == number => Err(errno.into()),
            (_, Some(errno)) => Err(errno.into()),
            _ => Ok(()),
        }
    }

    /// How an operation fails, if it is the one to fail of those that are picked.
    fn pick(&mut self, operation: &Operation) -> Option<Errno> {
        let picked = self.fail_picked.as_mut().filter(|picked| (picked.picks)(operation))?;
        match picked.before.checked_sub(1) {
            Some(left) => {
                picked.before = left;
                None
            }
            None => self.fail_picked.take().map(|picked| picked.errno),
        }
    }

    pub(super) fn check_sync(&self) -> io::Result<()> {
        if self.syncs_fail { Err(Errno::IO.into()) } else { Ok(()) }
    }
}
