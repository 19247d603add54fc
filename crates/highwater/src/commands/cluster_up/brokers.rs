//! The brokers of a local cluster as child processes: started, watched, started again if that is wanted, and
//! stopped. None of them outlives this process. No socket is held here: the port of a broker that has ended must
//! refuse, or its clients would wait in the queue of a listener that nobody serves.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::folder::{Folder, Reports};
use super::plan::{Node, Plan};
use super::shell;
use crate::commands::start::EXIT_CODE_INTERRUPTED;
use crate::system;

/// The pause before a broker is started again, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A broker that ran for so long did not end at once.
const STEADY: Duration = Duration::from_secs(10);

/// The pauses between starts of one broker: they grow as long as it ends at once again.
#[derive(Debug, Default)]
struct Pauses {
    last: Option<Duration>,
}

impl Pauses {
    /// The pause before the next start, when the last one was `lived` ago.
    fn after(&mut self, lived: Duration) -> Duration {
        let grown = self.last.filter(|_| lived < STEADY).map(|last| (2 * last).min(PAUSE_MAX));
        *self.last.insert(grown.unwrap_or(PAUSE_MIN))
    }
}

/// One broker.
#[derive(Debug)]
pub struct Broker {
    /// Its place in the plan.
    pub node: Node,
    /// Its data folder.
    pub data: String,
    /// Where its reports go.
    pub reports: Reports,
    /// What a person types to start it again.
    pub again: String,
    program: PathBuf,
    properties: String,
    process: Option<Child>,
    started: Instant,
    pauses: Pauses,
    /// When it is started again.
    due: Option<Instant>,
}

impl Broker {
    /// The process id while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Its name in what is said.
    pub fn name(&self) -> String {
        format!("broker {}", self.node.id)
    }

    /// Must be called on the thread that lives as long as this process: the system kills the child when the
    /// thread that started it ends.
    fn start(&mut self, folder: &Folder) -> io::Result<()> {
        let reports = self.reports.open()?;
        let mut command = Command::new(&self.program);
        command.args(["start", &self.properties, "--child-of", &std::process::id().to_string()]);
        // With them it need not start itself anew.
        command.envs(system::allocator_settings().iter().copied());
        // Nothing is read from it: it is how the child has the lock of the folder, so that nobody
        // starts this cluster while one of its brokers runs.
        command.stdin(folder.lock()?);
        command.stdout(reports.try_clone()?).stderr(reports);
        (self.due, self.started) = (None, Instant::now());
        self.process = Some(command.spawn()?);
        Ok(())
    }

    /// Its process id and how it ended, once.
    fn ended(&mut self) -> Option<(u32, ExitStatus)> {
        let child = self.process.as_mut()?;
        let status = child.try_wait().ok()??;
        let pid = child.id();
        self.process = None;
        Some((pid, status))
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            // It is not reaped yet, so the id is nobody else's.
            let _ended = kill_process(Pid::from_child(process), signal);
        }
    }
}

/// A broker whose process ended.
#[derive(Debug)]
pub struct Ended {
    /// Its place among the brokers.
    pub at: usize,
    /// The process that it was.
    pub pid: u32,
    /// How.
    pub status: ExitStatus,
    /// When it is started again, if it is.
    pub pause: Option<Duration>,
}

/// All brokers of the cluster.
#[derive(Debug)]
pub struct Brokers {
    /// In the order of their ids.
    pub all: Vec<Broker>,
    restart: bool,
}

impl Brokers {
    /// None runs yet.
    pub fn of(plan: &Plan, folder: &Folder, restart: bool) -> io::Result<Brokers> {
        let program = std::env::current_exe()?;
        let typed = std::env::args().next();
        let path = std::env::var("PATH").unwrap_or_default();
        let name = shell::this_program(typed.as_deref(), &program, &path);
        let broker = |node: &Node| Broker {
            node: node.clone(),
            data: folder.data(node),
            reports: folder.reports(node),
            again: shell::command(&[&name, "start", &folder.properties(node)]),
            program: program.clone(),
            properties: folder.properties(node),
            process: None,
            started: Instant::now(),
            pauses: Pauses::default(),
            due: None,
        };
        Ok(Brokers { all: plan.brokers.iter().map(broker).collect(), restart })
    }

    /// Starts all of them; at the first that cannot be, it is said which.
    pub fn start(&mut self, folder: &Folder) -> Result<(), (String, io::Error)> {
        let mut all = self.all.iter_mut();
        all.try_for_each(|broker| broker.start(folder).map_err(|error| (broker.name(), error)))
    }

    /// Those that ended since the last call. With `restart`, each is to be started again after a pause.
    pub fn ended(&mut self) -> Vec<Ended> {
        let restart = self.restart;
        let now = Instant::now();
        let ended = self.all.iter_mut().enumerate().filter_map(|(at, broker)| {
            let (pid, status) = broker.ended()?;
            let pause = restart.then(|| broker.pauses.after(now - broker.started));
            broker.due = pause.map(|pause| now + pause);
            Some(Ended { at, pid, status, pause })
        });
        ended.collect()
    }

    /// When the next one is to be started again.
    pub fn next_due(&self) -> Option<Instant> {
        self.all.iter().filter_map(|broker| broker.due).min()
    }

    /// Starts those again whose pause is over; which they are, and why one could not be started.
    pub fn start_due(&mut self, folder: &Folder) -> Vec<(usize, io::Result<()>)> {
        let now = Instant::now();
        let due =
            self.all.iter_mut().enumerate().filter(|(_, b)| b.due.is_some_and(|at| at <= now));
        let mut tried: Vec<(usize, io::Result<()>)> =
            due.map(|(at, broker)| (at, broker.start(folder))).collect();
        for (at, tried) in &mut tried {
            let broker = &mut self.all[*at];
            if tried.is_err() {
                broker.due = Some(now + broker.pauses.after(Duration::ZERO));
            }
        }
        tried
    }

    /// Whether one of them runs.
    pub fn any_runs(&self) -> bool {
        self.all.iter().any(|broker| broker.process.is_some())
    }

    /// Those that run.
    pub fn running(&self) -> impl Iterator<Item = &Broker> {
        self.all.iter().filter(|broker| broker.process.is_some())
    }

    /// Asks all that run to end in an orderly way, and starts none again.
    pub fn ask_to_end(&mut self) {
        self.restart = false;
        self.all.iter_mut().for_each(|broker| broker.due = None);
        self.running().for_each(|broker| broker.signal(Signal::TERM));
    }

    /// Kills all that run.
    pub fn kill(&self) {
        self.running().for_each(|broker| broker.signal(Signal::KILL));
    }
}

/// Whether this is how a broker ends that was asked to: in an orderly way, or at once while it was starting.
pub fn is_orderly(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;

    let asked = [Signal::TERM, Signal::INT, Signal::HUP].map(Signal::as_raw);
    match status.code() {
        Some(code) => code == 0 || code == i32::from(EXIT_CODE_INTERRUPTED),
        None => status.signal().is_some_and(|signal| asked.contains(&signal)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn pauses_grow_while_a_broker_ends_at_once_again() {
        let mut pauses = Pauses::default();
        let short = Duration::from_secs(1);
        let grown: Vec<u128> = (0..8).map(|_| pauses.after(short).as_millis()).collect();
        assert_eq!(grown, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(pauses.after(STEADY), PAUSE_MIN);
        assert_eq!(pauses.after(short), 2 * PAUSE_MIN);
    }

    #[test]
    fn a_broker_that_was_asked_to_end_may_have_been_starting() {
        for orderly in [0, 130 << 8, Signal::TERM.as_raw(), Signal::INT.as_raw()] {
            assert!(is_orderly(ExitStatus::from_raw(orderly)), "{orderly}");
        }
        for not in [1 << 8, Signal::KILL.as_raw(), Signal::ABORT.as_raw()] {
            assert!(!is_orderly(ExitStatus::from_raw(not)), "{not}");
        }
    }
}
