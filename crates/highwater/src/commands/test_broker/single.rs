//! One test broker, in this process.

use std::path::PathBuf;
use std::process::ExitCode;

use ::broker::RunningBroker;
use ::proxy::fault_injection::BrokerControl;
use configuration::{BrokerConfig, Configuration, Sources};
use rustix::process::{Signal, getpid, kill_process};
use tracing::warn;

use super::folder::remove_folder;
use super::{Folder, Front, announce, cannot_start, settings};
use crate::arguments::TestBroker;
use crate::commands::start::{Reporting, Signals, in_url};
use crate::commands::{fault_rules, sources};
use crate::failure::Failure;
use crate::parent::Parent;

/// Settings of a broker that is alone, before those of `--set`.
const ALONE: &[(&str, &str)] = &[
    ("listeners", "PLAINTEXT://127.0.0.1:0"),
    ("offsets.topic.replication.factor", "1"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
];

/// Exit code that shells and container runtimes report for SIGKILL.
const EXIT_CODE_KILLED: i32 = 128 + 9;

/// Kills this process, which is the broker.
struct ThisProcess {
    temporary: Option<PathBuf>,
}

impl BrokerControl for ThisProcess {
    fn kill(&self, _address: &str) {
        if let Some(folder) = &self.temporary {
            // A killed process cannot remove the folder later. A folder that cannot be removed stays.
            let _ = remove_folder(folder);
        }
        // The kernel ignores SIGKILL that process 1 of a container sends to itself.
        let _ = kill_process(getpid(), Signal::KILL);
        std::process::exit(EXIT_CODE_KILLED);
    }

    fn has_other_brokers(&self) -> bool {
        false
    }

    fn restart(&self, _address: &str) {}
}

/// Runs the broker to its end.
pub fn run(
    typed: &TestBroker,
    report: Reporting,
    folder: &Folder,
    parent: Parent,
) -> Result<ExitCode, Failure> {
    let config = config(typed, report, folder)?;
    let control = ThisProcess { temporary: folder.temporary().map(PathBuf::from) };
    let faults = fault_rules::injector_with(&typed.faults, Some(Box::new(control)))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| cannot_start().detail(error))?;
    let code = runtime.block_on(async {
        let mut signals = Signals::listen().map_err(|error| cannot_start().detail(error))?;
        parent.end_with().map_err(|error| cannot_start().detail(error))?;
        let broker = tokio::select! {
            started = broker::start(config) => started.map_err(|error| cannot_start().detail(error))?,
            () = signals.next() => return Ok(ExitCode::SUCCESS),
        };
        let at = in_url(broker.inter_broker());
        let opening = Front::open(typed, &at, folder.path(), faults, report);
        let served = tokio::select! {
            opened = opening => serve(opened, &broker, &mut signals).await,
            () = signals.next() => Ok(ExitCode::SUCCESS),
        };
        // Also after a failure: no thread of the broker writes while the directory is removed.
        broker.stop().await;
        served
    });
    runtime.shutdown_background();
    code
}

/// Serves until a signal arrives or the broker fails.
async fn serve(
    opened: Result<Front, Failure>,
    broker: &RunningBroker,
    signals: &mut Signals,
) -> Result<ExitCode, Failure> {
    let front = opened?;
    let ended = match announce(&front.line) {
        Ok(()) => tokio::select! {
            () = signals.next() => Ok(ExitCode::SUCCESS),
            cause = broker.failed() => {
                Err(Failure::new("the broker failed").detail(format!("{cause:?}")))
            }
        },
        Err(failure) => Err(failure),
    };
    if let Some(forks) = &front.forks {
        forks.end();
    }
    front.proxy.stop().await;
    ended
}

/// The configuration, without environment variables: a test is the same everywhere.
fn config(typed: &TestBroker, report: Reporting, folder: &Folder) -> Result<BrokerConfig, Failure> {
    let mut known = Sources::new();
    for pair in settings(typed, ALONE) {
        known = known.set(&pair.key, &pair.value);
    }
    known = match folder.path().to_str() {
        Some(path) => known.flag("--data-dir", "log.dirs", path),
        None => known.flag_is_not_text("--data-dir", "log.dirs"),
    };
    let loaded = Configuration::load_all(&known, false);
    report.start(&loaded.configuration);
    let finished = loaded.finish().map_err(|invalid| sources::unusable(&invalid, None));
    let (config, warnings) = finished?;
    warnings.iter().for_each(|warning| warn!("{warning}"));
    Ok(config)
}
