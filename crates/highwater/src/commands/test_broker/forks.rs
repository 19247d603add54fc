//! Snapshots of a test broker, and forks: further test brokers that begin with the data of a snapshot.
//!
//! A snapshot is a folder with links to sealed segments and copies of all other files. A fork is a process of its own with a
//! folder of its own. It has no parent but this process and ends with it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Path as PathPart, State};
use axum::http::StatusCode;
use axum::middleware;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{any, delete, get, post, put};
use proxy::{ProxyPause, RequestGate};
use serde_json::{Value, json};

use super::Folder;
use super::capture::Capture;
use crate::arguments::{Pair, TestBroker};
use crate::commands::fault_rules::{Refusal, report_errors_in_json};
use crate::system;

/// How long a snapshot waits for answers to requests in flight, and for files that change.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the end of a fork may take before it is killed.
const END_MAX: Duration = Duration::from_secs(10);
/// How often the end of a fork is checked.
const END_INTERVAL: Duration = Duration::from_millis(1);
/// Snapshots at a time.
const SNAPSHOTS_MAX: usize = 100;
/// Forks at a time.
const FORKS_MAX: usize = 100;
/// Bytes of a snapshot's name.
const NAME_BYTES_MAX: usize = 200;

/// The data of a broker at one moment, in a temporary folder that is removed with the value.
#[derive(Debug)]
struct Snapshot {
    folder: Option<Folder>,
    pause: Duration,
    bytes: u64,
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.take() {
            folder.remove();
        }
    }
}

/// A running fork.
#[derive(Debug)]
struct Fork {
    child: Child,
    /// The fork ends when this is closed.
    stdin: Option<ChildStdin>,
    snapshot: String,
    ready: Value,
}

impl Fork {
    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn request_end(&mut self) {
        drop(self.stdin.take());
    }

    /// Waits for the end. A fork that does not end is killed.
    fn end(mut self) {
        self.request_end();
        let start = Instant::now();
        while !self.has_ended() {
            if start.elapsed() > END_MAX {
                // It may end meanwhile.
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(END_INTERVAL);
        }
    }

    fn shown(&self) -> Value {
        let mut shown = self.ready.clone();
        shown["snapshot"] = json!(self.snapshot);
        shown
    }
}

/// Snapshots by name, and forks by process id.
#[derive(Debug, Default)]
struct Kept {
    snapshots: BTreeMap<String, Arc<Snapshot>>,
    forks: BTreeMap<u32, Fork>,
}

impl Kept {
    /// Checks that a further snapshot may have this name.
    fn check_name(&self, name: &str) -> Result<(), Refusal> {
        let (code, message) = if self.snapshots.contains_key(name) {
            let advice = "choose another name, or remove the snapshot";
            (StatusCode::CONFLICT, format!("a snapshot has the name {name:?}; {advice}"))
        } else if name.len() > NAME_BYTES_MAX {
            let message = format!("the name of a snapshot has at most {NAME_BYTES_MAX} bytes");
            (StatusCode::BAD_REQUEST, message)
        } else if self.snapshots.len() >= SNAPSHOTS_MAX {
            (StatusCode::CONFLICT, format!("there are {SNAPSHOTS_MAX} snapshots; remove one"))
        } else {
            return Ok(());
        };
        Err(refusal(code, message))
    }
}

/// Snapshots and forks of one test broker.
#[derive(Debug)]
pub struct Forks {
    gate: Arc<RequestGate>,
    folder: PathBuf,
    /// Settings of this broker, which its forks have, too.
    settings: Vec<Pair>,
    kept: Mutex<Kept>,
}

impl Forks {
    /// No snapshots of the broker in `folder`, whose requests pass `gate`.
    pub fn of(
        typed: &TestBroker,
        settings: Vec<Pair>,
        folder: PathBuf,
        gate: Arc<RequestGate>,
    ) -> Forks {
        let known = settings.into_iter();
        let known = known.filter(|pair| typed.sets.iter().all(|typed| typed.key != pair.key));
        let settings = known.chain(typed.sets.iter().cloned()).collect();
        Forks { gate, folder, settings, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no code under this lock panics")
    }

    /// Ends all forks and removes all snapshots.
    pub fn end(&self) {
        let mut kept = std::mem::take(&mut *self.kept());
        kept.forks.values_mut().for_each(Fork::request_end);
        kept.forks.into_values().for_each(Fork::end);
    }

    /// Captures the folder, ends the pause, and writes the snapshot.
    fn write_snapshot(
        &self,
        name: &str,
        pause: ProxyPause,
        started: Instant,
    ) -> Result<Value, Refusal> {
        let failed = |error: std::io::Error| {
            let message = format!("cannot write snapshot {name:?}: {error}");
            refusal(StatusCode::INTERNAL_SERVER_ERROR, message)
        };
        let captured = Capture::of(&self.folder, Instant::now() + PATIENCE);
        drop(pause);
        let pause = started.elapsed();
        let capture = captured.map_err(failed)?;
        let folder = Folder::create_temporary(&std::env::temp_dir()).map_err(failed)?;
        // The folder is removed also if the copies fail.
        let snapshot = Snapshot { folder: Some(folder), pause, bytes: capture.bytes() };
        if let Some(folder) = &snapshot.folder {
            capture.write(folder.path()).map_err(failed)?;
        }
        let shown = shown(name, &snapshot);
        let mut kept = self.kept();
        // Another request may have used the name meanwhile.
        kept.check_name(name)?;
        kept.snapshots.insert(name.to_owned(), Arc::new(snapshot));
        Ok(shown)
    }

    fn snapshot(&self, name: &str) -> Result<Arc<Snapshot>, Refusal> {
        let kept = self.kept();
        kept.snapshots.get(name).cloned().ok_or_else(|| {
            let known = kept.snapshots.keys().map(|name| format!("{name:?}"));
            let known = match known.collect::<Vec<_>>().join(", ") {
                none if none.is_empty() => "there are no snapshots".to_owned(),
                names => format!("there are {names}"),
            };
            refusal(StatusCode::NOT_FOUND, format!("no snapshot has the name {name:?}; {known}"))
        })
    }

    /// Starts a test broker on a copy of the snapshot, and waits until it serves.
    fn start_fork(&self, name: &str) -> Result<Value, Refusal> {
        let snapshot = self.snapshot(name)?;
        self.forget_ended();
        if self.kept().forks.len() >= FORKS_MAX {
            let message = format!("{FORKS_MAX} forks run; end one: DELETE /forks/PID");
            return Err(refusal(StatusCode::CONFLICT, message));
        }
        let failed = |cause: String| {
            let message = format!("cannot fork snapshot {name:?}: {cause}");
            refusal(StatusCode::INTERNAL_SERVER_ERROR, message)
        };
        let Some(folder) = &snapshot.folder else {
            return Err(failed("its folder is removed".to_owned()));
        };
        let start = Instant::now();
        let mut child = self.command(folder).spawn().map_err(|error| failed(error.to_string()))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let mut fork = Fork { child, stdin, snapshot: name.to_owned(), ready: Value::Null };
        let mut line = String::new();
        let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut line));
        let ready = match read {
            Some(Ok(_)) => serde_json::from_str(&line).ok(),
            _ => None,
        };
        let Some(Value::Object(ready)) = ready else {
            fork.end();
            let cause =
                "the fork ended before it served; standard error of this test broker has the cause";
            return Err(failed(cause.to_owned()));
        };
        fork.ready = Value::Object(ready);
        let mut shown = fork.shown();
        shown["ready_ms"] = json!(millis(start.elapsed()));
        self.kept().forks.insert(fork.child.id(), fork);
        Ok(shown)
    }

    /// The command of a fork. Its standard input is a pipe: the fork ends when the pipe is closed.
    fn command(&self, snapshot: &Folder) -> Command {
        let program = std::env::current_exe().unwrap_or_else(|_| "highwater".into());
        let mut command = Command::new(program);
        command.arg("test-broker").arg("--fork-of").arg(snapshot.path());
        for pair in &self.settings {
            command.arg("--set").arg(format!("{}={}", pair.key, pair.value));
        }
        // With them it need not start itself again.
        command.envs(system::allocator_settings().iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    fn forget_ended(&self) {
        self.kept().forks.retain(|_, fork| !fork.has_ended());
    }
}

fn refusal(code: StatusCode, message: String) -> Refusal {
    Refusal { code, message }
}

/// Milliseconds with three decimal places.
fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

fn shown(name: &str, snapshot: &Snapshot) -> Value {
    json!({ "name": name, "bytes": snapshot.bytes, "pause_ms": millis(snapshot.pause) })
}

type SharedForks = State<Arc<Forks>>;

/// Routes that take snapshots and start forks. `None`: the test broker has several brokers, and the routes refuse.
pub fn routes(forks: Option<Arc<Forks>>) -> Router {
    let Some(forks) = forks else {
        let refuse = any(|| async {
            let message = "snapshots need a test broker with one broker; leave --brokers out";
            refusal(StatusCode::CONFLICT, message.to_owned())
        });
        let refuse_all = Router::new().route("/snapshots", refuse.clone());
        return refuse_all.route("/snapshots/{*path}", refuse.clone()).route("/forks", refuse);
    };
    Router::new()
        .route("/snapshots", get(list_snapshots))
        .route("/snapshots/{name}", put(take).delete(remove))
        .route("/snapshots/{name}/forks", post(fork))
        .route("/forks", get(list_forks))
        .route("/forks/{pid}", delete(end_fork))
        .layer(middleware::from_fn(report_errors_in_json))
        .with_state(forks)
}

/// Runs what waits for files and processes on a thread that may wait.
async fn waiting<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())))
}

async fn take(
    State(forks): SharedForks,
    PathPart(name): PathPart<String>,
) -> Result<Response, Refusal> {
    forks.kept().check_name(&name)?;
    let started = Instant::now();
    let pause = forks.gate.pause(PATIENCE).await.map_err(|error| {
        let message = format!("cannot take snapshot {name:?}: {error}");
        refusal(StatusCode::SERVICE_UNAVAILABLE, message)
    })?;
    let taken = waiting(move || forks.write_snapshot(&name, pause, started)).await?;
    Ok((StatusCode::CREATED, Json(taken)).into_response())
}

async fn list_snapshots(State(forks): SharedForks) -> Json<Value> {
    let kept = forks.kept();
    Json(kept.snapshots.iter().map(|(name, snapshot)| shown(name, snapshot)).collect())
}

async fn remove(
    State(forks): SharedForks,
    PathPart(name): PathPart<String>,
) -> Result<StatusCode, Refusal> {
    waiting(move || {
        forks.snapshot(&name)?;
        // Removed here, or at the end of the start of a fork that uses the snapshot.
        let removed = forks.kept().snapshots.remove(&name);
        drop(removed);
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

async fn fork(
    State(forks): SharedForks,
    PathPart(name): PathPart<String>,
) -> Result<Response, Refusal> {
    let started = waiting(move || forks.start_fork(&name)).await?;
    Ok((StatusCode::CREATED, Json(started)).into_response())
}

async fn list_forks(State(forks): SharedForks) -> Json<Value> {
    forks.forget_ended();
    let kept = forks.kept();
    Json(kept.forks.values().map(Fork::shown).collect())
}

async fn end_fork(
    State(forks): SharedForks,
    PathPart(pid): PathPart<String>,
) -> Result<StatusCode, Refusal> {
    waiting(move || {
        let process = pid.parse().ok();
        let fork = process.and_then(|pid: u32| forks.kept().forks.remove(&pid));
        let fork = fork.ok_or_else(|| {
            let message = format!("no fork has the process id {pid}");
            refusal(StatusCode::NOT_FOUND, message)
        })?;
        fork.end();
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}
