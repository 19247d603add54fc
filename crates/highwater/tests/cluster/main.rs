//! `highwater cluster up`: a cluster in one command, as people use it: what it prints, what it leaves in its
//! folder, and what becomes of its brokers when they, or the command, are stopped or killed. What a cluster keeps is in
//! `replication.rs`, and what becomes of lost disks in `lost_disks.rs`.

mod clones;
mod console;
mod copies;
mod deletion;
mod full_volume;
mod health;
mod health_faults;
mod held_up;
mod hints;
mod hung_directory;
mod lost_disks;
mod metrics;
mod missing_directory;
mod one_direction;
mod outage;
mod partial_outage;
mod proxied;
mod quorum;
mod refused;
mod refused_batches;
mod regenerated;
mod replaced;
mod replication;
mod restored_voter;
mod silent;
mod silent_broker;
mod superseded;

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write as _};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use peer::process::{pause_processes, resume_process};
use peer::procfs;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

const HIGHWATER: &str = env!("CARGO_BIN_EXE_highwater");
/// How long anything may take on a machine that is busy with much else.
const LIMIT: Duration = Duration::from_secs(300);

/// A line of the announcement.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Broker {
    address: String,
    pid: u32,
    folder: String,
    again: String,
}

impl Broker {
    /// Of a line `broker 1: ADDRESS  pid PID  FOLDER  again: COMMAND`.
    fn of(line: &str) -> Broker {
        let (_, rest) = line.split_once(": ").unwrap();
        let (rest, again) = rest.split_once("  again: ").unwrap();
        let columns: Vec<&str> =
            rest.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
        let [address, pid, folder] = columns[..] else { panic!("{line}") };
        let pid = pid.strip_prefix("pid ").unwrap().parse().unwrap();
        Broker { address: address.into(), pid, folder: folder.into(), again: again.into() }
    }

    fn port(&self) -> u16 {
        self.address.rsplit_once(':').unwrap().1.parse().unwrap()
    }

    fn pause(&self) {
        pause_processes(&[self.pid]).unwrap();
    }

    fn resume(&self) {
        resume_process(self.pid).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(pid(self.pid), signal).unwrap();
    }
}

/// The command, while it runs.
struct Up {
    process: Child,
    out: Lines<BufReader<ChildStdout>>,
    said: Lines<BufReader<ChildStderr>>,
    bootstrap: String,
    brokers: Vec<Broker>,
}

impl Up {
    /// Waits until the cluster serves.
    fn of(folder: &Path, brokers: usize, more: &[&str]) -> Up {
        let mut command = command(folder, brokers, more);
        // As a shell does for what it runs in the foreground: Ctrl-C goes to all of the group.
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut out = BufReader::new(process.stdout.take().unwrap()).lines();
        let said = BufReader::new(process.stderr.take().unwrap()).lines();
        let lines: Vec<String> = (&mut out).take(brokers + 3).map(Result::unwrap).collect();
        assert_eq!(
            lines.len(),
            brokers + 3,
            "{lines:?}, {:?}",
            said.map_while(Result::ok).collect::<Vec<_>>()
        );
        let bootstrap = lines[2].strip_prefix("bootstrap.servers=").unwrap().to_owned();
        let brokers: Vec<Broker> = lines[3..].iter().map(|line| Broker::of(line)).collect();
        let addresses: Vec<&str> = brokers.iter().map(|broker| broker.address.as_str()).collect();
        assert_eq!(addresses.join(","), bootstrap);
        Up { process, out, said, bootstrap, brokers }
    }

    fn addresses(&self) -> Vec<String> {
        self.brokers.iter().map(|broker| broker.address.clone()).collect()
    }

    /// Runs another command against the cluster, which must succeed.
    fn run(&self, line: &str) -> String {
        run(&self.bootstrap, line)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// The next line that it writes to standard error and that has `part` in it.
    fn says(&mut self, part: &str) -> String {
        let line = self.said.by_ref().map(Result::unwrap).find(|line| line.contains(part));
        line.unwrap_or_else(|| panic!("it did not say {part:?}"))
    }

    /// Waits for its end; afterwards there is none of its brokers.
    fn end(mut self) -> ExitStatus {
        let status = self.process.wait().unwrap();
        for broker in &self.brokers {
            assert!(!procfs::is_running(broker.pid), "left behind: {broker:?}");
        }
        status
    }

    /// Stops it as systems do.
    fn stop(self) {
        self.signal(Signal::TERM);
        assert_eq!(self.end().code(), Some(0));
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(id.try_into().unwrap()).unwrap()
}

fn command(folder: &Path, brokers: usize, more: &[&str]) -> Command {
    let mut command = Command::new(HIGHWATER);
    command.args(["cluster", "up", &brokers.to_string(), "--data-dir"]).arg(folder).args(more);
    command.args(["--set", "offsets.topic.num.partitions=2"]).stdin(Stdio::null());
    command
}

/// Runs the command, which must fail with exit code 1; what it wrote to standard error.
fn refused(folder: &Path, brokers: usize, more: &[&str]) -> String {
    let output = command(folder, brokers, more).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn try_run(bootstrap: &str, line: &str) -> Output {
    let mut command = Command::new(HIGHWATER);
    command.args(line.split(' ')).env("HIGHWATER_BOOTSTRAP_SERVER", bootstrap);
    command.stdin(Stdio::null()).output().unwrap()
}

fn run(bootstrap: &str, line: &str) -> String {
    let output = try_run(bootstrap, line);
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Looks again and again; each look is a command of its own, which paces this.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
    }
}

/// A broker that a person started again; it ends with the test.
struct ByHand(Child);

impl ByHand {
    /// Types what was printed into a shell, in another folder.
    fn start(again: &str) -> ByHand {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec {again}")]).current_dir("/");
        ByHand(
            shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(),
        )
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder whose name a shell would take apart.
fn place() -> (TempDir, std::path::PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("it's a cluster");
    (place, folder)
}

#[test]
fn two_brokers_come_up_have_two_copies_and_come_back() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 2, &[]);
    let addresses = up.addresses();
    assert_eq!(up.brokers.len(), 2);
    assert_eq!(up.run("topic create pair -p 2 -r 2"), "pair: created\n");
    let described = up.run("topic describe pair");
    assert!(described.contains("1,2") && described.contains("2,1"), "{described}");
    let mut command = Command::new(HIGHWATER);
    command.args(["produce", "pair", "-b", &up.bootstrap]).stdin(Stdio::piped());
    let mut producing = command.stdout(Stdio::null()).spawn().unwrap();
    producing.stdin.take().unwrap().write_all(b"first\nsecond\n").unwrap();
    assert!(producing.wait().unwrap().success(), "both have acknowledged");
    up.stop();

    let up = Up::of(&folder, 2, &[]);
    assert_eq!(up.addresses(), addresses);
    let read = up.run("consume pair --from start --count 2");
    assert!(read.contains("first") && read.contains("second"), "{read}");
    up.stop();
}

#[test]
fn three_brokers_link_under_a_cluster_id_that_is_not_a_uuid() {
    let (_place, folder) = place();
    let made = Up::of(&folder, 3, &[]);
    made.stop();
    let path = folder.join("cluster.json");
    let mut plan: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let id = "kafka: team #1 = MkU3OEVBNTcwNTJENDM2Qk";
    plan["cluster_id"] = id.into();
    for broker in 1..=3 {
        fs::remove_dir_all(folder.join(format!("broker-{broker}"))).unwrap();
    }
    fs::write(&path, plan.to_string()).unwrap();

    for start in 0..2 {
        let up = Up::of(&folder, 3, &["--set", "min.insync.replicas=3"]);
        if start == 0 {
            up.run("topic create triple -p 3 -r 3");
        }
        for broker in &up.brokers {
            let info = run(&broker.address, "cluster info --format json");
            let info: serde_json::Value = serde_json::from_str(&info).unwrap();
            assert_eq!(info["cluster_id"], id);
        }
        let mut command = Command::new(HIGHWATER);
        command.args(["produce", "triple", "-b", &up.bootstrap]).stdin(Stdio::piped());
        let mut producing = command.stdout(Stdio::null()).spawn().unwrap();
        producing.stdin.take().unwrap().write_all(b"acknowledged by three\n").unwrap();
        assert!(producing.wait().unwrap().success(), "all three have acknowledged");
        up.stop();
    }
}

#[test]
fn one_broker_comes_up_and_comes_back_as_it_was() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 1, &[]);
    let addresses = up.addresses();
    let broker = up.brokers[0].clone();
    assert_eq!(Path::new(&broker.folder), folder.join("broker-1"));
    assert!(procfs::listens_on(broker.pid, broker.port()).unwrap());
    assert!(!procfs::listens_on(up.process.id(), broker.port()).unwrap(), "it must hold no socket");
    assert_eq!(up.run("topic create kept -p 3"), "kept: created\n");
    let info = up.run("cluster info --format json");
    up.stop();
    assert!(folder.join("broker-1/.kafka_cleanshutdown").exists(), "an orderly stop");

    let up = Up::of(&folder, 1, &["--set", "num.partitions=4", "--log-level", "debug"]);
    assert_eq!(up.addresses(), addresses);
    let id = |json: &str| {
        let info: serde_json::Value = serde_json::from_str(json).unwrap();
        info["cluster_id"].as_str().unwrap().to_owned()
    };
    assert_eq!(id(&up.run("cluster info --format json")), id(&info));
    assert!(up.run("topic list").contains("kept  3"));
    up.run("topic create other");
    assert!(up.run("topic list").contains("other  4"), "what is set holds");
    up.stop();
    let file = fs::read_to_string(folder.join("broker-1/server.properties")).unwrap();
    assert!(
        file.contains("\nnum.partitions=4\n") && file.contains("\nlog.level=debug\n"),
        "{file}"
    );
}

#[test]
fn ctrl_c_at_a_terminal_stops_everything_once_and_in_order() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 1, &["--restart"]);
    kill_process_group(Pid::from_child(&up.process), Signal::INT).unwrap();
    assert_eq!(up.end().code(), Some(0));
    let reports = fs::read_to_string(folder.join("broker-1/broker.log")).unwrap();
    assert_eq!(reports.matches(" stopping\n").count(), 1, "{reports}");
    assert!(folder.join("broker-1/.kafka_cleanshutdown").exists(), "{reports}");
}

#[test]
fn a_second_signal_kills() {
    let (_place, folder) = place();
    let mut up = Up::of(&folder, 1, &[]);
    up.brokers[0].pause();
    up.signal(Signal::HUP);
    up.says("broker 1 not stopped yet; a second Ctrl-C kills");
    up.signal(Signal::INT);
    assert_eq!(up.end().code(), Some(130));
}

#[test]
fn brokers_die_with_the_command_and_it_can_be_run_again_at_once() {
    let (_place, folder) = place();
    let mut up = Up::of(&folder, 1, &[]);
    up.run("topic create kept");
    let (addresses, broker) = (up.addresses(), up.brokers[0].clone());
    up.signal(Signal::KILL);
    // A process that was killed holds its locks until it is gone.
    up.process.wait().unwrap();
    let up = Up::of(&folder, 1, &[]);
    assert!(!procfs::is_running(broker.pid));
    assert_eq!(up.addresses(), addresses);
    assert!(up.run("topic list").contains("kept"));
    up.stop();
}

#[test]
fn a_broker_that_was_killed_is_reported_and_comes_back_by_the_line_that_was_printed() {
    let (_place, folder) = place();
    let mut up = Up::of(&folder, 1, &[]);
    up.run("topic create kept");
    let broker = up.brokers[0].clone();
    broker.signal(Signal::KILL);
    let said = up.says("broker 1");
    let how = format!(
        "broker 1 (process {}) has ended, signal: 9 (SIGKILL); again: {}",
        broker.pid, broker.again
    );
    assert_eq!(said, how);
    up.says("no broker of this command runs any more");
    let mut by_hand = ByHand::start(&broker.again);
    assert!(up.run("topic list").contains("kept"));
    up.stop();
    assert!(by_hand.0.try_wait().unwrap().is_none(), "it is not this command's any more");
    let said = refused(&folder, 1, &[]);
    assert!(said.contains("another process uses the log directory"), "{said}");
}

#[test]
fn with_restart_a_broker_that_ended_is_started_again() {
    let (_place, folder) = place();
    let mut up = Up::of(&folder, 1, &["--restart"]);
    up.run("topic create kept");
    up.brokers[0].signal(Signal::KILL);
    assert!(up.says("has ended").ends_with("signal: 9 (SIGKILL); it is started again in 0.1 s"));
    let said = up.says("broker 1 was started again, process ");
    let second: u32 = said.rsplit_once(' ').unwrap().1.parse().unwrap();
    assert!(up.run("topic list").contains("kept"));
    up.brokers[0].pid = second;
    up.brokers[0].signal(Signal::TERM);
    assert!(up.says("has ended").ends_with("exit status: 0; it is started again in 0.2 s"));
    let said = up.says("broker 1 was started again, process ");
    up.brokers[0].pid = said.rsplit_once(' ').unwrap().1.parse().unwrap();
    up.stop();
}

#[test]
fn a_broker_that_does_not_come_up_says_why() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 1, &[]);
    let port = up.brokers[0].port();
    up.stop();
    let _stranger = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let said = refused(&folder, 1, &[]);
    assert!(said.starts_with("error: broker 1 did not come up, exit status: 1\n"), "{said}");
    assert!(said.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{said}");
    assert!(!said.contains("stopping"), "only of this start: {said}");
    let place = folder.join("broker-1/broker.log");
    assert!(said.contains(&format!("all that it said is in {}", place.display())), "{said}");
}

#[test]
fn one_folder_has_one_cluster_and_one_command() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 1, &[]);
    let said = refused(&folder, 1, &[]);
    let owner = format!("runs already\n  by process {}\n", up.process.id());
    assert!(said.contains(&owner) && said.contains("hint: "), "{said}");
    let data = Path::new(&up.brokers[0].folder).to_owned();
    up.stop();
    let said = refused(&folder, 3, &[]);
    assert!(
        said.contains("cannot have 3 brokers") && said.contains("voters stay as they are"),
        "{said}"
    );
    assert!(said.contains("cluster up 1 --data-dir "), "{said}");
    let said = refused(&data, 1, &[]);
    assert!(said.contains("the data folder of a single broker"), "{said}");
    fs::remove_file(folder.join("cluster.json")).unwrap();
    let said = refused(&folder, 1, &[]);
    assert!(said.contains("has a folder broker-1 and no plan"), "{said}");
}

#[test]
fn what_cannot_hold_for_all_brokers_is_refused_before_anything_is_made() {
    let (_place, folder) = place();
    let said = refused(&folder, 1, &["--set", "node.id=7"]);
    assert!(said.contains("node.id cannot be set for all brokers"), "{said}");
    let output =
        command(&folder, 1, &[]).env("KAFKA_LISTENERS", "PLAINTEXT://:1").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("the environment variable KAFKA_LISTENERS is set"), "{said}");
    let said = refused(&folder, 1, &["--set", "num.partitions=many"]);
    assert!(said.contains("num.partitions=many: expected"), "{said}");
    assert!(!folder.join("cluster.json").exists() && !folder.join("broker-1").exists());
}

/// Creates a topic that is led by each broker in turn.
fn create_on_each(up: &Up) {
    up.run("topic create each -p 9 -r 1");
    // The broker that is asked may be another one, and hear of the topic a moment later.
    let mut described = Vec::new();
    wait_until("the topic is described", || {
        let output = try_run(&up.bootstrap, "topic describe each --format json");
        described = output.stdout;
        output.status.success()
    });
    let described: serde_json::Value = serde_json::from_slice(&described).unwrap();
    let mut leaders: Vec<i64> =
        described.as_array().unwrap().iter().map(|row| row["leader"].as_i64().unwrap()).collect();
    leaders.sort_unstable();
    leaders.dedup();
    assert_eq!(leaders, (1..=up.brokers.len() as i64).collect::<Vec<_>>());
}

#[test]
fn three_brokers_come_up_and_come_back_as_they_were() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    let addresses = up.addresses();
    create_on_each(&up);
    // Each broker knows all of them and the topic.
    for address in &addresses {
        assert_eq!(run(address, "cluster info").lines().count(), 4);
        assert!(run(address, "topic list").contains("each  9"));
    }
    up.stop();
    let up = Up::of(&folder, 3, &[]);
    assert_eq!(up.addresses(), addresses);
    assert!(up.run("topic list").contains("each  9"));
    up.stop();
    assert!(refused(&folder, 1, &[]).contains("none is taken away"));
}

#[test]
fn a_fourth_broker_joins_three() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    let addresses = up.addresses();
    up.run("topic create kept");
    up.stop();
    let up = Up::of(&folder, 4, &[]);
    assert_eq!(up.addresses()[..3], addresses);
    create_on_each(&up);
    assert!(run(&up.brokers[3].address, "topic list").contains("kept"));
    up.stop();
}

#[test]
fn one_of_three_that_was_killed_comes_back_by_the_line_that_was_printed() {
    let (_place, folder) = place();
    let mut up = Up::of(&folder, 3, &[]);
    create_on_each(&up);
    let third = up.brokers[2].clone();
    third.signal(Signal::KILL);
    let said = up.says("broker 3");
    assert!(said.ends_with(&format!("signal: 9 (SIGKILL); again: {}", third.again)), "{said}");
    let _by_hand = ByHand::start(&third.again);
    wait_until("the third broker is back", || {
        let listed = try_run(&third.address, "cluster info");
        listed.status.success() && String::from_utf8_lossy(&listed.stdout).lines().count() == 4
    });
    up.stop();
}

#[test]
fn three_brokers_stop_at_ctrl_c_and_die_with_the_command() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 3, &["--restart"]);
    kill_process_group(Pid::from_child(&up.process), Signal::INT).unwrap();
    assert_eq!(up.end().code(), Some(0));
    let mut up = Up::of(&folder, 3, &[]);
    let brokers = up.brokers.clone();
    up.signal(Signal::KILL);
    up.process.wait().unwrap();
    let up = Up::of(&folder, 3, &[]);
    assert!(brokers.iter().all(|broker| !procfs::is_running(broker.pid)));
    up.stop();
}
