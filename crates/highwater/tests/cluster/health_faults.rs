//! More faults of real processes, and the answer of every health surface: damage that a stopped broker's folder may have, a later
//! release, threads that do not run, a slow follower, and internal topics with too few replicas. See `health.rs`.

use super::health::{Node, cluster_health, codes, expected, get, http_of, until_named};
use super::quorum::controller;
use super::replication::{all_acknowledged, described, produce, wait_for_all_in_sync};
use super::*;

/// Length of a pause that makes an acknowledgement slow: above half a second.
const SLOW: Duration = Duration::from_millis(600);

/// Sends lines to a topic; all must be acknowledged.
fn produce_lines(bootstrap: &str, topic: &str, lines: &str) {
    let mut command = Command::new(HIGHWATER);
    command.args(["produce", topic, "-b", bootstrap]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    all_acknowledged(child);
}

fn first_segment(node: &Path, partition: &str) -> std::path::PathBuf {
    node.join("data").join(partition).join("00000000000000000000.log")
}

/// Changes a byte in the middle of a file. Its size stays: a start after a clean stop does not read the file.
fn flip_byte(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.iter().rposition(|byte| *byte != 0).unwrap() / 2;
    bytes[middle] ^= 0x55;
    fs::write(path, bytes).unwrap();
}

/// Gives a broker a topic, and a group that committed offsets.
fn fill(node: &Node) {
    run(&node.address, "topic create kept -p 1");
    produce_lines(&node.address, "kept", "first\nsecond\n");
    run(&node.address, "consume kept --count 2 --group readers");
}

#[test]
fn damage_in_a_brokers_folder_and_a_later_release_are_named() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("node");
    let node = Node::start(&folder, None, &[]);
    fill(&node);
    assert_eq!(codes(&node.http), expected(200, 200, 200, "ok"));
    assert_eq!(cluster_health(&node.address).0, 0);
    node.stop();

    // F34: the program of a later release, and metadata of this one.
    let later = [(model::later_release::ENVIRONMENT, "1")];
    let node = Node::spawn_as(&folder, None, &[], &later).ready();
    let answer = until_named(&node.http, "level_unfinalized");
    assert_eq!((answer.code, answer.status()), (200, "ok"), "{answer:?}");
    assert_eq!(codes(&node.http), expected(200, 200, 200, "ok"));
    let (exit, text) = cluster_health(&node.address);
    assert!(exit == 1 && text.contains("cluster: level_unfinalized: "), "{text}");
    node.stop();

    // F20: a folder of a topic that the metadata does not have.
    let stray = folder.join("data").join("deleted-0");
    fs::create_dir(&stray).unwrap();
    fs::copy(first_segment(&folder, "kept-0"), stray.join("00000000000000000000.log")).unwrap();
    let node = Node::start(&folder, None, &[]);
    let answer = until_named(&node.http, "stray_folder");
    assert_eq!((answer.code, answer.status()), (200, "degraded"), "{answer:?}");
    assert_eq!(codes(&node.http), expected(200, 200, 200, "degraded"));
    let (exit, text) = cluster_health(&node.address);
    assert!(exit == 0 && text.contains("broker 1: stray_folder (note): "), "{text}");
    node.stop();
    fs::remove_dir_all(&stray).unwrap();

    // F10: damage that the load of a group finds.
    flip_byte(&first_segment(&folder, "__consumer_offsets-0"));
    let node = Node::start(&folder, None, &[]);
    let answer = until_named(&node.http, "coordinator_failed");
    assert_eq!((answer.code, answer.status()), (503, "unavailable"), "{answer:?}");
    assert_eq!(codes(&node.http), expected(200, 200, 503, "unavailable"));
    let (exit, text) = cluster_health(&node.address);
    assert!(exit == 1 && text.contains("broker 1: coordinator_failed: "), "{text}");
    node.stop();

    // F11: a log that lost its end while the broker was stopped.
    let path = first_segment(&folder, "kept-0");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let node = Node::start(&folder, None, &[]);
    let answer = until_named(&node.http, "partition_refused");
    assert_eq!((answer.code, answer.status()), (503, "unavailable"), "{answer:?}");
    assert_eq!(codes(&node.http), expected(200, 200, 503, "unavailable"));
    let (exit, text) = cluster_health(&node.address);
    assert!(exit == 1 && text.contains("broker 1: partition_refused: kept-0: "), "{text}");
    node.stop();
}

/// A process whose control thread is stopped at its next system call, by a tracer; it runs again when this is dropped.
struct StoppedThread(Child);

impl StoppedThread {
    fn of(pid: u32) -> Option<StoppedThread> {
        let mut tracer = Command::new("strace");
        tracer.args(["-qq", "-o", "/dev/null", "-p", &pid.to_string()]);
        tracer.args(["-e", "trace=all", "-e", "inject=all:delay_enter=3600s"]);
        tracer.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        tracer.spawn().ok().map(StoppedThread)
    }

    /// Whether the tracer may trace.
    fn is_traced(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_broker_whose_control_thread_does_not_run_is_not_alive() {
    let place = tempfile::tempdir().unwrap();
    let node = Node::start(&place.path().join("node"), None, &[]);
    assert_eq!(codes(&node.http), expected(200, 200, 200, "ok"));
    // F33: the thread gets no processor.
    let skipped = || eprintln!("skipped: this user may not trace a process with strace");
    let Some(mut stopped) = StoppedThread::of(node.pid()) else { return skipped() };
    let deadline = Instant::now() + LIMIT;
    while get(&node.http, "/livez").is_none_or(|answer| answer.code != 503) {
        if !stopped.is_traced() {
            return skipped();
        }
        assert!(Instant::now() < deadline, "{}", node.log());
    }
    let answer = get(&node.http, "/livez").unwrap();
    assert!(answer.names("threads_stalled"), "{answer:?}");
    assert_eq!(codes(&node.http), expected(503, 503, 503, "unavailable"));
    assert_eq!(cluster_health(&node.address).0, 1);
    drop(stopped);
    wait_until("the thread runs again", || codes(&node.http) == expected(200, 200, 200, "ok"));
}

#[test]
fn a_follower_that_acknowledges_late_is_named_and_fails_nothing() {
    let (_place, folder) = place();
    // A pause of the follower ends neither its session nor its membership.
    let patient = [
        "broker.session.timeout.ms=600000",
        "replica.lag.time.max.ms=600000",
        "highwater.suspect.after.ms=0",
    ];
    let up = Up::of(&folder, 3, &patient.map(|set| ["--set", set]).concat());
    up.run("topic create kept -p 1 -r 3");
    wait_for_all_in_sync(&up.bootstrap, "kept");
    let leader = described(&up.bootstrap, "kept").unwrap()[0].0 as usize - 1;
    let active = controller(&up.bootstrap) as usize - 1;
    let slow = (0..3).find(|at| ![leader, active].contains(at)).unwrap();
    let http = http_of(Path::new(&up.brokers[leader].folder));
    let mut next = 0;
    // F12: in each round the follower is the last to acknowledge, and late.
    wait_until("both surfaces name the follower", || {
        up.brokers[slow].pause();
        let paused = Instant::now();
        let producing = produce(&up.bootstrap, next..next + 1);
        next += 1;
        while paused.elapsed() < SLOW {
            thread::yield_now();
        }
        up.brokers[slow].resume();
        all_acknowledged(producing);
        let Some(answer) = get(&http, "/healthz").filter(|it| it.names("acknowledger_slow")) else {
            return false;
        };
        assert_eq!((answer.code, answer.status()), (200, "ok"), "{answer:?}");
        assert_eq!(codes(&http), expected(200, 200, 200, "ok"));
        let (exit, text) = cluster_health(&up.bootstrap);
        let named = format!("acknowledger_slow (note): broker {} acknowledges last", slow + 1);
        exit == 0 && text.contains(&named)
    });
    up.stop();
}

#[test]
fn internal_topics_with_too_few_replicas_are_named_on_the_cluster_alone() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 3, &["--set", "offsets.topic.replication.factor=1"]);
    up.run("topic create kept -p 1 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..2));
    wait_until("the cluster is healthy", || cluster_health(&up.bootstrap).0 == 0);
    // F20: as in a cluster that grew from one broker.
    up.run("consume kept --count 2 --group readers");
    wait_until("the topic is named", || {
        let (exit, text) = cluster_health(&up.bootstrap);
        let named =
            "cluster: internal_topic_replicas: __consumer_offsets has partitions with 1 replica";
        exit == 1 && text.contains(named)
    });
    for broker in &up.brokers {
        assert_eq!(codes(&http_of(Path::new(&broker.folder))), expected(200, 200, 200, "ok"));
    }
    up.stop();
}
