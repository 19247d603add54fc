//! Faults of real processes, and the answer of every health surface: `/livez`, `/readyz`, `/healthz`, `cluster health`. More
//! faults are in `health_faults.rs`, and the table of all is in decision 0052. The same faults from facts instead of processes
//! are in `serving/tests/it/health.rs`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use peer::ports;
use serde_json::Value;

use super::quorum::controller;
use super::*;

/// The answer of one endpoint: its code, and its body.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer {
    pub(super) code: u16,
    body: Value,
}

impl Answer {
    pub(super) fn status(&self) -> &str {
        self.body["status"].as_str().unwrap_or_default()
    }

    pub(super) fn names(&self, condition: &str) -> bool {
        let reasons = self.body["reasons"].as_array();
        reasons.is_some_and(|all| all.iter().any(|reason| reason["reason"] == condition))
    }
}

/// `None` if nothing answers.
pub(super) fn get(address: &str, path: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let code = text.split(' ').nth(1)?.parse().ok()?;
    let body = text.split_once("\r\n\r\n")?.1;
    Some(Answer { code, body: serde_json::from_str(body).unwrap_or(Value::Null) })
}

/// Address of `http.listener` in a broker's file.
pub(super) fn http_of(folder: &Path) -> String {
    let file = fs::read_to_string(folder.join("server.properties")).unwrap();
    let line = file.lines().find_map(|line| line.strip_prefix("http.listener="));
    line.unwrap().to_owned()
}

/// Codes of `/livez`, `/readyz` and `/healthz`, and the status of the last.
pub(super) fn codes(http: &str) -> Option<(u16, u16, u16, String)> {
    let (live, ready) = (get(http, "/livez")?, get(http, "/readyz")?);
    let health = get(http, "/healthz")?;
    let status = health.status().to_owned();
    Some((live.code, ready.code, health.code, status))
}

pub(super) fn expected(
    live: u16,
    ready: u16,
    health: u16,
    status: &str,
) -> Option<(u16, u16, u16, String)> {
    Some((live, ready, health, status.to_owned()))
}

/// Waits until `/healthz` names the condition; its answer then.
pub(super) fn until_named(http: &str, condition: &str) -> Answer {
    let deadline = Instant::now() + LIMIT;
    loop {
        let answer = get(http, "/healthz");
        match answer {
            Some(answer) if answer.names(condition) => return answer,
            answer => assert!(Instant::now() < deadline, "not {condition}: {answer:?}"),
        }
        thread::yield_now();
    }
}

/// Exit code and output of `cluster health`.
pub(super) fn cluster_health(bootstrap: &str) -> (i32, String) {
    let output = try_run(bootstrap, "cluster health");
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// A broker of its own file; killed at the end of the test.
pub(super) struct Node {
    process: Child,
    folder: PathBuf,
    pub(super) address: String,
    pub(super) http: String,
}

impl Node {
    /// Starts `highwater start` with these keys in its file, and a controller listener if there is a port for it. Waits
    /// for nothing.
    pub(super) fn spawn(
        folder: &Path,
        controller_port: Option<u16>,
        keys: &[(&str, &str)],
    ) -> Node {
        Node::spawn_as(folder, controller_port, keys, &[])
    }

    /// As [`Node::spawn`], with these environment variables.
    pub(super) fn spawn_as(
        folder: &Path,
        controller_port: Option<u16>,
        keys: &[(&str, &str)],
        environment: &[(&str, &str)],
    ) -> Node {
        fs::create_dir_all(folder).unwrap();
        let free = ports::free(2).unwrap();
        let address = format!("127.0.0.1:{}", free[0]);
        let http = format!("127.0.0.1:{}", free[1]);
        let mut file = format!(
            "http.listener={http}\ngateway.listener=\noffsets.topic.num.partitions=1\n\
             listeners=PLAINTEXT://{address}"
        );
        if let Some(port) = controller_port {
            file += &format!(
                ",CONTROLLER://127.0.0.1:{port}\nprocess.roles=broker,controller\n\
                 controller.listener.names=CONTROLLER"
            );
        }
        file.push('\n');
        for (key, value) in keys {
            file += &format!("{key}={value}\n");
        }
        if !keys.iter().any(|(key, _)| *key == "log.dirs") {
            file += &format!("log.dirs={}\n", folder.join("data").display());
        }
        let path = folder.join("server.properties");
        fs::write(&path, file).unwrap();
        let log =
            fs::File::options().create(true).append(true).open(folder.join("broker.log")).unwrap();
        let mut command = Command::new(HIGHWATER);
        command.arg("start").arg(&path).stdin(Stdio::null());
        command.envs(environment.iter().copied());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let process = command.spawn().unwrap();
        Node { process, folder: folder.to_owned(), address, http }
    }

    /// As [`Node::spawn`], and waits until it serves.
    pub(super) fn start(
        folder: &Path,
        controller_port: Option<u16>,
        keys: &[(&str, &str)],
    ) -> Node {
        Node::spawn(folder, controller_port, keys).ready()
    }

    /// Waits until the broker serves.
    pub(super) fn ready(self) -> Node {
        let deadline = Instant::now() + LIMIT;
        while get(&self.http, "/readyz").is_none_or(|answer| answer.code != 200) {
            assert!(Instant::now() < deadline, "{}", self.log());
            thread::yield_now();
        }
        self
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Everything that it wrote.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("broker.log")).unwrap()
    }

    pub(super) fn stop(mut self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_dead_broker_makes_no_healthy_broker_unready() {
    let (_place, folder) = place();
    let quick =
        ["--set", "broker.session.timeout.ms=3000", "--set", "broker.heartbeat.interval.ms=200"];
    let up = Up::of(&folder, 3, &quick);
    let http: Vec<String> = up.brokers.iter().map(|it| http_of(Path::new(&it.folder))).collect();
    create_on_each(&up);
    wait_until("the cluster is healthy", || cluster_health(&up.bootstrap).0 == 0);
    for http in &http {
        assert_eq!(codes(http), expected(200, 200, 200, "ok"));
        assert_eq!(get(http, "/healthz").unwrap().body, serde_json::json!({ "status": "ok" }));
    }
    // Every broker names the leader of the quorum.
    let leader = controller(&up.bootstrap);
    for broker in &up.brokers {
        let info: Value =
            serde_json::from_str(&run(&broker.address, "cluster info --format json")).unwrap();
        assert_eq!(info["controller"], leader);
    }

    // F01: one broker is killed, and with it the only replica of three partitions.
    let dead = usize::from(leader == 1);
    up.brokers[dead].signal(Signal::KILL);
    for at in (0..3).filter(|at| *at != dead) {
        let answer = until_named(&http[at], "partitions_leaderless");
        assert_eq!((answer.code, answer.status()), (200, "ok"), "{answer:?}");
        assert_eq!(codes(&http[at]), expected(200, 200, 200, "ok"));
        let (exit, text) = cluster_health(&up.brokers[at].address);
        assert!(exit == 1 && text.starts_with("healthy: no\n"), "{text}");
        assert!(text.contains("fenced: 1 (") && text.contains("without leader: 3 ("), "{text}");
    }

    // F13: a second broker is paused. The third has no quorum, and serves what it leads.
    let last = (0..3).find(|at| *at != dead && *at + 1 != leader as usize).unwrap();
    let paused = &up.brokers[leader as usize - 1];
    paused.pause();
    let paused_at = Instant::now();
    let answer = until_named(&http[last], "controller_unreachable");
    assert_eq!((answer.code, answer.status()), (200, "degraded"), "{answer:?}");
    assert_eq!(get(&http[last], "/livez").unwrap().code, 200);
    assert_eq!(get(&http[last], "/readyz").unwrap().code, 200);
    let (exit, text) = cluster_health(&up.brokers[last].address);
    assert_eq!(exit, 1, "{text}");
    assert!(text.contains("controller_unreachable"), "{text}");
    assert!(text.contains("broker_unreachable") || text.contains("fenced: 2"), "{text}");
    // Threads that do not run for so long are stalled, unless the whole process was paused.
    wait_until("the pause is longer than a stall", || {
        cluster_health(&up.brokers[last].address);
        paused_at.elapsed() > Duration::from_secs(serving::health::pulse::STALL_TICKS.into())
    });
    paused.resume();
    let http = &http[leader as usize - 1];
    wait_until("the paused broker is ready", || {
        let found = codes(http);
        let is_live = found.as_ref().is_none_or(|(live, ..)| *live == 200);
        assert!(is_live, "a pause does not count as a stall: {found:?}");
        found == expected(200, 200, 200, "ok")
    });
}

#[test]
fn a_leader_of_the_quorum_without_a_majority_says_so() {
    let (_place, folder) = place();
    let quick =
        ["--set", "broker.session.timeout.ms=3000", "--set", "broker.heartbeat.interval.ms=200"];
    let up = Up::of(&folder, 3, &quick);
    let leader = controller(&up.bootstrap) as usize - 1;
    for at in (0..3).filter(|at| *at != leader) {
        up.brokers[at].pause();
    }
    // F14: as cut off as a leader can be.
    let http = http_of(Path::new(&up.brokers[leader].folder));
    let answer = until_named(&http, "quorum_majority_lost");
    assert_eq!((answer.code, answer.status()), (200, "degraded"), "{answer:?}");
    assert!(!answer.names("quorum_leaderless"), "this node was elected: {answer:?}");
    assert_eq!(get(&http, "/readyz").unwrap().code, 200);
    let (exit, text) = cluster_health(&up.brokers[leader].address);
    assert!(exit == 1 && text.starts_with("healthy: no\n"), "{text}");
    assert!(text.contains(&format!("broker {}: quorum_majority_lost: ", leader + 1)), "{text}");
    for at in (0..3).filter(|at| *at != leader) {
        up.brokers[at].resume();
    }
    wait_until("a majority answers", || {
        get(&http, "/healthz").is_some_and(|answer| !answer.names("quorum_majority_lost"))
    });
}

#[test]
fn one_lost_directory_of_two_is_a_reason_and_no_outage() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("node");
    let dirs = ["a", "b"].map(|name| folder.join(name).display().to_string());
    let node = Node::start(&folder, None, &[("log.dirs", &dirs.join(","))]);
    assert_eq!(codes(&node.http), expected(200, 200, 200, "ok"));
    assert_eq!(cluster_health(&node.address).0, 0);
    // F11: the second directory is gone while the broker runs.
    fs::rename(&dirs[1], folder.join("gone")).unwrap();
    let answer = until_named(&node.http, "log_directory_offline");
    assert_eq!((answer.code, answer.status()), (200, "degraded"), "{answer:?}");
    assert_eq!(codes(&node.http), expected(200, 200, 200, "degraded"));
    let (exit, text) = cluster_health(&node.address);
    assert!(exit == 1 && text.contains(&format!("log_directory_offline: {}", dirs[1])), "{text}");
}

#[test]
fn a_full_disk_is_named_until_there_is_room() {
    let place = tempfile::tempdir().unwrap();
    let disk = place.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"])
        .arg(&disk)
        .stderr(Stdio::null())
        .status();
    if !mount.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this user may not mount a file system");
        return;
    }
    struct Mounted(PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
    let _mounted = Mounted(disk.clone());
    let data = disk.join("data").display().to_string();
    let node = Node::start(&place.path().join("node"), None, &[("log.dirs", &data)]);
    // F08.
    let filler = disk.join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    let block = vec![0; 1 << 20];
    while file.write_all(&block).is_ok() {}
    // An open file would keep its room.
    drop(file);
    let answer = until_named(&node.http, "log_directory_full");
    assert_eq!((answer.code, answer.status()), (503, "unavailable"), "{answer:?}");
    assert!(answer.names("no_usable_log_directory"), "{answer:?}");
    assert_eq!(codes(&node.http), expected(200, 200, 503, "unavailable"));
    let (exit, text) = cluster_health(&node.address);
    assert!(exit == 1 && text.contains("broker 1: log_directory_full: "), "{text}");
    fs::remove_file(&filler).unwrap();
    wait_until("there is room again", || cluster_health(&node.address).0 == 0);
    wait_until("and health says so", || codes(&node.http) == expected(200, 200, 200, "ok"));
}

/// An id of a cluster.
const CLUSTER_ID: &str = "MkU3OEVBNTcwNTJENDM2Qg";

/// `controller.quorum.voters` of three nodes of this machine.
fn three_voters(ports: &[u16]) -> String {
    format!("1@127.0.0.1:{},2@127.0.0.1:{},3@127.0.0.1:{}", ports[0], ports[1], ports[2])
}

#[test]
fn voters_of_the_file_that_do_not_vote_are_named() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("node");
    let id = [("node.id", "1"), ("cluster.id", CLUSTER_ID)];
    Node::start(&folder, None, &id).stop();
    // F21: the file of a cluster of three, for the folder of one broker.
    let free = ports::free(3).unwrap();
    let keys = [id[0], id[1], ("controller.quorum.voters", &*three_voters(&free))];
    let node = Node::start(&folder, Some(free[0]), &keys);
    let answer = until_named(&node.http, "voters_differ");
    assert_eq!((answer.code, answer.status()), (200, "degraded"), "{answer:?}");
    assert_eq!(get(&node.http, "/readyz").unwrap().code, 200);
    assert!(node.log().contains("nodes 2,3 do not vote"), "{}", node.log());
    let (exit, text) = cluster_health(&node.address);
    assert!(exit == 1 && text.contains("broker 1: voters_differ: "), "{text}");
}

#[test]
fn a_node_that_only_others_list_as_a_voter_is_named() {
    let place = tempfile::tempdir().unwrap();
    let port = ports::free(1).unwrap()[0];
    let voters = format!("1@127.0.0.1:{port}");
    let keys =
        |id| [("node.id", id), ("cluster.id", CLUSTER_ID), ("controller.quorum.voters", &*voters)];
    let first = Node::start(&place.path().join("first"), Some(port), &keys("1"));
    assert_eq!(codes(&first.http), expected(200, 200, 200, "ok"));
    assert_eq!(cluster_health(&first.address).0, 0, "one broker with a file for one voter");
    let mut broker = keys("2").to_vec();
    broker.push(("process.roles", "broker"));
    let _second = Node::spawn(&place.path().join("second"), None, &broker);
    let answer = until_named(&first.http, "controller_port_closed");
    assert_eq!((answer.code, answer.status()), (200, "degraded"), "{answer:?}");
    let (exit, text) = cluster_health(&first.address);
    assert!(exit == 1 && text.contains("broker 1: controller_port_closed: "), "{text}");
}

#[test]
fn a_broker_that_waits_for_a_quorum_is_alive_and_not_ready() {
    let place = tempfile::tempdir().unwrap();
    let free = ports::free(3).unwrap();
    // F05: its voters are gone.
    let keys = [
        ("node.id", "1"),
        ("cluster.id", CLUSTER_ID),
        ("controller.quorum.voters", &*three_voters(&free)),
    ];
    let node = Node::spawn(&place.path().join("node"), Some(free[0]), &keys);
    let deadline = Instant::now() + LIMIT;
    while get(&node.http, "/livez").is_none() {
        assert!(Instant::now() < deadline, "{}", node.log());
        thread::yield_now();
    }
    assert!(get(&node.http, "/readyz").unwrap().names("starting"));
    assert_eq!(codes(&node.http), expected(200, 503, 503, "unavailable"));
    assert_eq!(get(&node.http, "/metrics").unwrap().code, 503);
    assert_eq!(cluster_health(&node.address).0, 1);
}

#[test]
fn a_silent_broker_is_named_by_the_active_controller_alone() {
    let (_place, folder) = place();
    // Longer than the test may take: a fenced broker is not suspected.
    let up = Up::of(&folder, 3, &["--set", "broker.session.timeout.ms=600000"]);
    let active = usize::try_from(controller(&up.bootstrap)).unwrap() - 1;
    let (silent, other) = ((active + 1) % 3, (active + 2) % 3);
    let http = |at: usize| http_of(Path::new(&up.brokers[at].folder));
    up.brokers[silent].pause();
    let answer = until_named(&http(active), "broker_suspected");
    assert_eq!((answer.code, answer.status()), (200, "ok"), "{answer:?}");
    let answer = get(&http(other), "/healthz").unwrap();
    assert!(!answer.names("broker_suspected"), "{answer:?}");
    let (exit, text) = cluster_health(&up.brokers[active].address);
    let named = format!("broker_suspected: broker {} is silent", silent + 1);
    assert!(exit == 1 && text.contains(&named), "{text}");
    assert!(text.contains("broker_unreachable"), "{text}");
    assert_eq!(codes(&http(active)), expected(200, 200, 200, "ok"));
    up.brokers[silent].resume();
    wait_until("the broker answers again", || {
        get(&http(active), "/healthz").is_some_and(|answer| !answer.names("broker_suspected"))
    });
    up.stop();
}

/// An ext4 file system in a file; unmounted when dropped.
pub(super) struct FreezableVolume(PathBuf);

/// A frozen volume; thawed when dropped. No process that uses the volume ends before that.
pub(super) struct FrozenVolume<'a>(&'a FreezableVolume);

impl FreezableVolume {
    /// `None`: this user may not mount a file system, or freeze one.
    pub(super) fn mount(place: &Path) -> Option<FreezableVolume> {
        let (image, mount) = (place.join("image"), place.join("mount"));
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        fs::create_dir(&mount).unwrap();
        let succeeds = |command: &mut Command| {
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let mut make = Command::new("mkfs.ext4");
        let mut at = Command::new("mount");
        let is_made = succeeds(make.args(["-q", "-F"]).arg(&image))
            && succeeds(at.args(["-o", "loop"]).arg(&image).arg(&mount));
        let volume = is_made.then(|| FreezableVolume(mount))?;
        let is_freezable = volume.freeze().is_some();
        is_freezable.then_some(volume)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn freeze(&self) -> Option<FrozenVolume<'_>> {
        self.fsfreeze("-f").then(|| FrozenVolume(self))
    }

    fn fsfreeze(&self, flag: &str) -> bool {
        let mut command = Command::new("fsfreeze");
        command.arg(flag).arg(&self.0).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

impl Drop for FrozenVolume<'_> {
    fn drop(&mut self) {
        self.0.fsfreeze("-u");
    }
}

impl Drop for FreezableVolume {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).stderr(Stdio::null()).status();
    }
}

#[test]
fn a_directory_whose_disk_hangs_is_named_until_the_disk_answers() {
    let place = tempfile::tempdir().unwrap();
    let Some(volume) = FreezableVolume::mount(place.path()) else {
        eprintln!("skipped: this user may not mount and freeze a file system");
        return;
    };
    let folder = place.path().join("node");
    let (here, there) = (folder.join("a"), volume.0.join("b"));
    let dirs = format!("{},{}", here.display(), there.display());
    let metadata = here.display().to_string();
    let node = Node::start(&folder, None, &[("log.dirs", &dirs), ("metadata.log.dir", &metadata)]);
    run(&node.address, "topic create many -p 8");
    let frozen = volume.freeze().unwrap();
    // One partition in two is on each disk.
    let producers = write_to_each_of_many(&node);
    // F12.
    let answer = until_named(&node.http, "log_directory_hung");
    assert_eq!((answer.code, answer.status()), (200, "degraded"), "{answer:?}");
    assert_eq!(codes(&node.http), expected(200, 200, 200, "degraded"));
    let (exit, text) = cluster_health(&node.address);
    assert!(exit == 1 && text.starts_with("healthy: no\n"), "{text}");
    drop(frozen);
    wait_until("the disk answers", || {
        get(&node.http, "/healthz").is_some_and(|answer| !answer.names("log_directory_hung"))
    });
    drop(producers);
}

/// Producers of one record to each of the eight partitions of the topic `many`.
fn write_to_each_of_many(node: &Node) -> Vec<ByHand> {
    let producer = |partition: i32| {
        let mut command = Command::new(HIGHWATER);
        command.args(["produce", "many", "-b", &node.address, "--partition"]);
        command.arg(partition.to_string()).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"unfinished\n").unwrap();
        ByHand(child)
    };
    (0..8).map(producer).collect()
}

#[test]
fn a_broker_whose_only_disk_hangs_is_reported_and_its_kafka_port_answers() {
    let place = tempfile::tempdir().unwrap();
    let Some(volume) = FreezableVolume::mount(place.path()) else {
        eprintln!("skipped: this user may not mount and freeze a file system");
        return;
    };
    let data = volume.0.join("data").display().to_string();
    let node = Node::start(&place.path().join("node"), None, &[("log.dirs", &data)]);
    run(&node.address, "topic create many -p 8");
    let frozen = volume.freeze().unwrap();
    // A write to a frozen file system holds the thread that serves its connection.
    let producers = write_to_each_of_many(&node);
    let answer = until_named(&node.http, "log_directory_hung");
    assert_eq!((answer.code, answer.status()), (503, "unavailable"), "{answer:?}");
    assert_eq!(codes(&node.http), expected(200, 200, 503, "unavailable"));
    wait_until("threads in reserve serve", || node.log().contains("a write hangs"));
    let (exit, text) = cluster_health(&node.address);
    assert!(exit == 1 && text.starts_with("healthy: no\n"), "{text}");
    assert!(text.contains("broker 1: log_directory_hung: "), "{text}");
    run(&node.address, "topic describe many");
    drop(frozen);
    wait_until("the cluster is healthy", || cluster_health(&node.address).0 == 0);
    drop(producers);
}
