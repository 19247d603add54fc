//! Child processes that never outlive us: own process group, bounded time, killed when dropped.
//!
//! Not a job scheduler: one child, its output, its end. The code that starts a server keeps a
//! [`Guarded`]; the code that wants an answer calls [`run`].

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::procfs;

/// How often a waiting thread looks again.
const LOOK: Duration = Duration::from_millis(4);
/// Longest time that the kernel may take to stop all threads of a process.
const PAUSE_LIMIT: Duration = Duration::from_secs(60);

/// What makes the kernel kill a program when the one that started it dies.
const SETPRIV: &str = "/usr/bin/setpriv";
/// Groups of children that run, for [`kill_all`].
static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// A command in its own process group which the kernel kills when the thread that starts it dies
/// (where util-linux's `setpriv` is installed): not even `kill -9` of this program leaves it behind.
#[must_use]
pub fn command(program: impl AsRef<OsStr>) -> Command {
    // A program that is not there is started as itself, so that the failure is about it.
    let mut command = if Path::new(SETPRIV).exists() && is_installed(&program) {
        let mut wrapped = Command::new(SETPRIV);
        wrapped.args(["--pdeathsig", "KILL", "--"]).arg(program);
        wrapped
    } else {
        Command::new(program)
    };
    command.process_group(0);
    command
}

/// Whether there is such a program: at that path or, a bare name, in a folder of `PATH`.
#[must_use]
pub fn is_installed(program: impl AsRef<OsStr>) -> bool {
    let program = Path::new(program.as_ref());
    if program.components().count() > 1 {
        return program.exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Kills every child that runs: for a program that is about to end without dropping anything.
pub fn kill_all() {
    for group in std::mem::take(&mut *running()) {
        signal_group(group, Signal::KILL);
    }
}

fn running() -> std::sync::MutexGuard<'static, BTreeSet<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pauses processes with SIGSTOP, and returns when none of their threads runs.
///
/// The kernel stops a process thread by thread: a thread on another processor may answer one more request
/// after the signal was sent.
///
/// # Errors
/// A process has ended, or has a running thread after a minute.
pub fn pause_processes(pids: &[u32]) -> Result<()> {
    for pid in pids {
        kill_process(process_id(*pid)?, Signal::STOP)?;
    }
    let deadline = Instant::now() + PAUSE_LIMIT;
    for pid in pids {
        while !procfs::stands_still(*pid)? {
            ensure!(
                Instant::now() < deadline,
                "process {pid} still runs {PAUSE_LIMIT:?} after SIGSTOP"
            );
            thread::sleep(LOOK);
        }
    }
    Ok(())
}

/// Resumes a process that [`pause_processes`] paused.
///
/// # Errors
/// The process has ended.
pub fn resume_process(pid: u32) -> Result<()> {
    Ok(kill_process(process_id(pid)?, Signal::CONT)?)
}

fn process_id(pid: u32) -> Result<Pid> {
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .with_context(|| format!("{pid} is not a process id"))
}

fn signal_group(id: u32, signal: Signal) {
    if let Some(group) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        let _gone = kill_process_group(group, signal);
    }
}

/// The program that a command from [`command`] starts.
fn program_of(command: &Command) -> String {
    let program = match command.get_program() {
        wrapper if wrapper == SETPRIV => command.get_args().nth(3).unwrap_or(wrapper),
        program => program,
    };
    program.to_string_lossy().into_owned()
}

/// A running child with everything that it started.
#[derive(Debug)]
pub struct Guarded {
    child: Child,
    /// Whether it has ended and nothing is left of its group. From then on the group's id may be anybody's: the system uses
    /// the ids of processes again, soon where many are started.
    is_over: bool,
}

impl Guarded {
    /// Starts `command`, which must come from [`command`].
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let started = command.spawn();
        let child = started.with_context(|| format!("cannot start {}", program_of(command)))?;
        running().insert(child.id());
        Ok(Self { child, is_over: false })
    }

    /// The process id, which is also the id of its group.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child itself, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Whether the process still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.ended(), Ok(None))
    }

    /// Whether the process itself has ended. What it leaves of its group then is killed at once.
    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        if status.is_some() {
            self.end_group();
        }
        Ok(status)
    }

    /// Kills what is left behind a process that was waited for.
    fn end_group(&mut self) {
        self.signal(Signal::KILL);
        self.is_over = true;
    }

    /// Sends `signal` to the whole group; nothing happens when it has gone already.
    pub fn signal(&mut self, signal: Signal) {
        if !self.is_over {
            signal_group(self.child.id(), signal);
        }
    }

    /// Waits until the process itself listens on TCP port `port`. The kernel is asked, and the port is
    /// left alone: a connection to a port where nothing listens yet may take the port for its own end.
    ///
    /// # Errors
    /// The process ended before, or does not listen within `limit`.
    pub fn wait_until_listening(&mut self, port: u16, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        while !procfs::listens_on(self.pid(), port).unwrap_or(false) {
            ensure!(
                self.is_running(),
                "process {} ended before it listened on port {port}",
                self.pid()
            );
            let late = Instant::now() >= deadline;
            ensure!(
                !late,
                "process {} does not listen on port {port} within {limit:?}",
                self.pid()
            );
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Waits for the end, at most `limit`; `None` when it still runs then.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(LOOK);
        }
    }

    /// Ends it politely: SIGTERM, and SIGKILL for what is left after `patience`.
    pub fn stop(&mut self, patience: Duration) -> Result<()> {
        self.signal(Signal::TERM);
        self.wait(patience)?;
        self.kill()
    }

    /// Ends it at once, as a power cut would: SIGKILL to the group, then reaps.
    pub fn kill(&mut self) -> Result<()> {
        self.signal(Signal::KILL);
        self.child.wait()?;
        self.is_over = true;
        Ok(())
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _gone = self.kill();
        running().remove(&self.child.id());
    }
}

/// What a finished (or cut off) command left.
#[derive(Debug)]
pub struct Outcome {
    /// `None` when its time was up and it was killed.
    pub status: Option<ExitStatus>,
    /// All of standard output.
    pub stdout: Vec<u8>,
    /// All of standard error.
    pub stderr: Vec<u8>,
    /// Wall-clock time from start to end.
    pub elapsed: Duration,
}

impl Outcome {
    /// Ended by itself with exit code 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Standard output as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    #[must_use]
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// How it ended, with the last lines of both streams, for an error message.
    #[must_use]
    pub fn story(&self) -> String {
        let end = match self.status {
            Some(status) => status.to_string(),
            None => format!("killed after {:.0?}", self.elapsed),
        };
        let tail = |text: String| {
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            lines[lines.len().saturating_sub(12)..].join("\n")
        };
        format!("{end}\n{}\n{}", tail(self.text()), tail(self.errors())).trim().to_owned()
    }
}

/// Runs `command` (from [`command`]) to its end, feeding `input`, for at most `limit`. Everything
/// that is left of its group afterwards is killed.
pub fn run(command: &mut Command, input: Option<Vec<u8>>, limit: Duration) -> Result<Outcome> {
    let start = Instant::now();
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut guarded = Guarded::spawn(command)?;
    let writer = input.zip(guarded.child().stdin.take()).map(|(bytes, mut pipe)| {
        // A child that stops reading is the child's affair: its exit code tells.
        thread::spawn(move || drop(pipe.write_all(&bytes)))
    });
    let stdout = collect(guarded.child().stdout.take());
    let stderr = collect(guarded.child().stderr.take());
    let status = guarded.wait(limit)?;
    guarded.kill()?;
    if let Some(writer) = writer {
        let _written = writer.join();
    }
    let (stdout, stderr) = (stdout.join(), stderr.join());
    Ok(Outcome {
        status,
        stdout: stdout.unwrap_or_default(),
        stderr: stderr.unwrap_or_default(),
        elapsed: start.elapsed(),
    })
}

/// Reads a pipe to its end on a thread of its own.
fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _cut = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long anything may take on a machine that is busy with much else.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn run_returns_both_streams_and_the_exit_code() {
        let mut echo = command("sh");
        echo.args(["-c", "cat; echo oops >&2; exit 3"]);
        let outcome = run(&mut echo, Some(b"hello".to_vec()), PATIENCE).unwrap();
        assert_eq!(outcome.text(), "hello");
        assert_eq!(outcome.errors(), "oops\n");
        assert_eq!(outcome.status.unwrap().code(), Some(3));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let failure = Guarded::spawn(command("no-such-program").arg("--flag")).unwrap_err();
        assert_eq!(failure.to_string(), "cannot start no-such-program");
        assert!(is_installed("sh") && is_installed("/bin/sh") && !is_installed("/bin/no-such"));
    }

    #[test]
    fn a_process_that_never_listens_is_told_from_one_that_ended() {
        // The port is this program's own: that another process listens there is not enough.
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let mut ended = Guarded::spawn(&mut command("true")).unwrap();
        let failure = ended.wait_until_listening(port, PATIENCE).unwrap_err();
        assert!(failure.to_string().contains("ended before"), "{failure}");
        let mut silent = Guarded::spawn(command("sleep").arg("600")).unwrap();
        let failure = silent.wait_until_listening(port, Duration::from_millis(20)).unwrap_err();
        assert!(failure.to_string().contains("does not listen"), "{failure}");
    }

    #[test]
    fn a_paused_process_writes_nothing_before_it_is_resumed() {
        const BUSY: &str = "import sys, threading\n\
            for _ in range(4): threading.Thread(target=lambda: [print(1) for _ in iter(int, 1)]).start()";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("written");
        let output = std::fs::File::create(&file).unwrap();
        let busy =
            Guarded::spawn(command("python3").args(["-u", "-c", BUSY]).stdout(output)).unwrap();
        let written = || std::fs::metadata(&file).unwrap().len();
        for _ in 0..20 {
            let before = written();
            wait_until(|| written() > before);
            pause_processes(&[busy.pid()]).unwrap();
            let paused = written();
            // The other threads of this machine run meanwhile.
            for _ in 0..1000 {
                thread::yield_now();
                assert_eq!(written(), paused);
            }
            resume_process(busy.pid()).unwrap();
        }
    }

    fn wait_until(holds: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
    }

    #[test]
    fn a_process_that_was_seen_to_end_is_never_signalled_again() {
        let mut ended = Guarded::spawn(&mut command("true")).unwrap();
        assert!(ended.wait(PATIENCE).unwrap().is_some());
        assert!(ended.is_over && !ended.is_running());
        // Somebody else's process by the same id.
        let mut other = Guarded::spawn(command("sleep").arg("600")).unwrap();
        std::mem::swap(&mut ended.child, &mut other.child);
        ended.signal(Signal::TERM);
        assert_eq!(ended.wait(Duration::from_millis(300)).unwrap(), None, "a stranger was killed");
        std::mem::swap(&mut ended.child, &mut other.child);
    }

    #[test]
    fn what_does_not_end_in_time_is_killed_with_its_children() {
        let mut endless = command("sh");
        endless.args(["-c", "sleep 600 & echo $!; wait"]);
        // On a busy machine the shell may not get as far as naming its child in the shorter times.
        let outcomes = [300, 3_000, 30_000].map(Duration::from_millis).into_iter().map(|limit| {
            let outcome = run(&mut endless, None, limit).unwrap();
            assert!(outcome.status.is_none());
            outcome.text().trim().to_owned()
        });
        let mut named = outcomes.filter(|name| !name.is_empty());
        let grandchild = named.next().expect("the shell has named its child");
        // A killed process ends when the kernel gets round to it: wait for that.
        let deadline = Instant::now() + PATIENCE;
        loop {
            let stat = format!("/proc/{grandchild}/stat");
            let state = std::fs::read_to_string(stat).unwrap_or_default();
            if state.is_empty() || state.contains(") Z ") {
                break;
            }
            assert!(Instant::now() < deadline, "still there: {state}");
            std::thread::yield_now();
        }
    }
}
