//! Several test brokers, processes of their own as with `cluster up`, behind one proxy in this process.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard};

use ::proxy::FaultInjector;
use ::proxy::fault_injection::BrokerControl;
use configuration::{Configuration, Sources};
use rustix::process::{Pid, Signal, kill_process};

use super::{Folder, Front, settings};
use crate::arguments::{ClusterUp, Pair, TestBroker};
use crate::commands::cluster_up::{self, Node, Presenter, RunningCluster};
use crate::commands::fault_rules;
use crate::commands::start::Reporting;
use crate::failure::Failure;
use crate::parent::Parent;

/// Processes of the brokers, by address.
#[derive(Clone, Default)]
struct Processes(Arc<Mutex<BTreeMap<String, u32>>>);

impl Processes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        self.0.lock().expect("no code under this lock panics")
    }

    fn signal(&self, address: &str, signal: Signal) {
        let pid = self.lock().get(address).copied();
        let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // A broker that has ended already needs no signal.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Brokers are started again when they end, so an orderly stop is a restart.
impl BrokerControl for Processes {
    fn kill(&self, address: &str) {
        self.signal(address, Signal::KILL);
    }

    fn has_other_brokers(&self) -> bool {
        true
    }

    fn restart(&self, address: &str) {
        self.signal(address, Signal::TERM);
    }
}

/// Puts the proxy in front of a cluster that serves.
struct FrontOf<'a> {
    typed: &'a TestBroker,
    report: Reporting,
    folder: &'a Folder,
    faults: Arc<FaultInjector>,
    processes: Processes,
    parent: Parent,
    front: Option<Front>,
}

impl Presenter for FrontOf<'_> {
    async fn present(&mut self, cluster: &RunningCluster<'_>) -> Result<String, Failure> {
        let addresses = cluster.processes().map(|(node, pid)| (node.address(), pid));
        *self.processes.lock() = addresses.collect();
        let brokers = self.processes.lock().keys().cloned().collect::<Vec<_>>().join(",");
        let faults = self.faults.clone();
        let front =
            Front::open(self.typed, &brokers, self.folder.path(), faults, self.report).await?;
        let line = front.line.clone();
        self.front = Some(front);
        Ok(line)
    }

    fn begin(&mut self) -> std::io::Result<()> {
        self.parent.end_with()
    }

    fn note_start(&mut self, node: &Node, pid: u32) {
        self.processes.lock().insert(node.address(), pid);
    }
}

/// Runs the brokers to their end.
pub fn run(
    typed: &TestBroker,
    report: Reporting,
    folder: &Folder,
    parent: Parent,
) -> Result<ExitCode, Failure> {
    let quiet = Sources::new().set("log.level", "warn");
    report.start(&Configuration::load_all(&quiet, false).configuration);
    let processes = Processes::default();
    let control = Box::new(processes.clone());
    let faults = fault_rules::injector_with(&typed.faults, Some(control))?;
    let mut sets = settings(typed, &[]);
    sets.retain(|pair| !report.settings().iter().any(|(key, _)| pair.key == *key));
    let reports = report.settings().into_iter();
    sets.extend(reports.map(|(key, value)| Pair { key: key.to_owned(), value }));
    let up = ClusterUp {
        brokers: typed.brokers,
        data_dir: folder.path().to_owned(),
        sets: Vec::new(),
        restart: true,
    };
    let mut front = FrontOf { typed, report, folder, faults, processes, parent, front: None };
    cluster_up::run_for(&up, sets, &mut front)
}
