//! The process that started this one: its end is the end of this one.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process};

use crate::blocked_signals::BlockedSignals;

/// How often the parent's id is compared, in nanoseconds: where the kernel has no handle of a process, that is the only sign.
const INTERVAL_NANOS: i64 = 250_000_000;

/// Whether this process got its SIGHUP, because its parent ended.
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

/// Whether the parent of this process has ended, or has closed the pipe on standard input, and this process ends with it
/// ([`Parent::end_with`]).
pub fn has_ended() -> bool {
    HAS_ENDED.load(Ordering::SeqCst)
}

/// The process that started this one.
#[derive(Debug, Clone, Copy)]
pub struct Parent(Option<Pid>);

impl Parent {
    /// The parent now. Called at the start of the program: a parent that ends later is noticed then.
    pub fn of_this_process() -> Parent {
        Parent(getppid())
    }

    /// Has this process get SIGHUP when the parent ends, or when a pipe or socket on standard input is closed. Standard error
    /// gets the cause.
    ///
    /// The kernel's own signal at a parent's death is of no use here: it is sent when the *thread* that started this
    /// process ends, and test runners start processes on threads of short life. Standard input counts only if it is a pipe or a
    /// socket: `/dev/null` is at its end from the start, and a terminal belongs to a person.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn end_with(self) -> io::Result<()> {
        let _blocked = BlockedSignals::begin();
        std::thread::Builder::new().name("parent".to_owned()).spawn(move || {
            let cause = self.wait_for_end();
            // A closed standard error takes no report.
            let _ = writeln!(io::stderr(), "stopping: {cause}");
            // Behind the signal of a user or of a wrapper this one must not be the second request, which kills.
            HAS_ENDED.store(true, Ordering::SeqCst);
            // A process that is ending already needs no signal.
            let _ = kill_process(getpid(), Signal::HUP);
        })?;
        Ok(())
    }

    fn wait_for_end(self) -> EndCause {
        let stdin = io::stdin();
        let mut pipe = is_pipe(stdin.as_fd()).then(|| stdin.lock());
        let handle = self.0.and_then(handle_of);
        loop {
            let mut watched = Vec::new();
            watched.extend(handle.iter().map(|it| PollFd::new(it, PollFlags::IN)));
            let input = watched.len();
            if pipe.is_some() {
                watched.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN));
            }
            let interval = Timespec { tv_sec: 0, tv_nsec: INTERVAL_NANOS };
            // A failed wait has no events; the parent's id is compared all the same.
            let _ = poll(&mut watched, Some(&interval));
            let is_ready = |at: usize| watched.get(at).is_some_and(|it| !it.revents().is_empty());
            let (has_ended, has_input) = (input > 0 && is_ready(0), is_ready(input));
            drop(watched);
            let is_closed = has_input && pipe.as_mut().is_some_and(is_at_end);
            // The end of the parent may close the pipe, too.
            if has_ended || getppid() != self.0 {
                return EndCause::ParentEnded(self.0);
            }
            if is_closed {
                return EndCause::InputClosed;
            }
        }
    }
}

/// Why a process ends that lives as long as its parent.
enum EndCause {
    /// The process that started it has ended.
    ParentEnded(Option<Pid>),
    /// The writer of the pipe on standard input closed it.
    InputClosed,
}

impl fmt::Display for EndCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndCause::ParentEnded(parent) => {
                let id = parent.map(|pid| format!(" {}", pid.as_raw_nonzero()));
                let id = id.unwrap_or_default();
                write!(f, "process{id}, which started this one, has ended")
            }
            EndCause::InputClosed => f.write_str(
                "the pipe on standard input is closed; keep the pipe open as long as the broker is needed, or \
                 redirect standard input from /dev/null",
            ),
        }
    }
}

/// Reads and drops bytes. Returns whether the writer has closed.
fn is_at_end(input: &mut io::StdinLock<'_>) -> bool {
    match input.read(&mut [0; 512]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != io::ErrorKind::Interrupted,
    }
}

fn is_pipe(descriptor: BorrowedFd<'_>) -> bool {
    let kind = fstat(descriptor).map(|status| FileType::from_raw_mode(status.st_mode));
    matches!(kind, Ok(FileType::Fifo | FileType::Socket))
}

/// A descriptor that is readable when the process has ended.
#[cfg(target_os = "linux")]
fn handle_of(process: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()).ok()
}

/// Other systems compare the parent's id.
#[cfg(not(target_os = "linux"))]
fn handle_of(_process: Pid) -> Option<OwnedFd> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_and_sockets_are_told_from_files() {
        let (reader, _writer) = io::pipe().unwrap();
        assert!(is_pipe(reader.as_fd()));
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(is_pipe(socket.as_fd()));
        assert!(!is_pipe(std::fs::File::open("/dev/null").unwrap().as_fd()));
    }
}
