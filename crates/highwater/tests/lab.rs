//! The laboratory as it is used: the program, brokers of its own, and a proxy that injects faults.

use std::fs;
use std::io::BufRead;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use client::{Admin, Cluster, ClusterConfig, Connection, ConnectionConfig, OffsetSpec};
use lab::failover::session::Session;
use lab::failover::{Kill, Kind, Shape, Workload};
use lab::target::Target;
use model::TopicPartition;
use perf::load::{self, ProduceLoad, ProduceReport, Sizes, Stop};
use perf::stamp::Verdict;
use proxy::fault_injection::{CountBy, FaultAction, FaultPlan, FaultRule, Occurrence};
use proxy::{FaultInjector, FaultedRecords, Proxy, ProxyConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use wire::MetadataRequest;

/// The program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_highwater");
/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(600);

fn lab(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("lab").args(arguments).output().unwrap()
}

fn succeeded(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Exit codes of a finished run: every round measured something, or some failed.
const MEASURED: [Option<i32>; 2] = [Some(0), Some(5)];
/// Exit code of an interrupted run.
const INTERRUPTED: Option<i32> = Some(130);

/// Standard output of `lab run` or `lab resume`; the machine may have cost it a round.
fn measured(arguments: &[&str]) -> String {
    let output = lab(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(MEASURED.contains(&output.status.code()), "{}: {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refused(arguments: &[&str]) -> String {
    let output = lab(arguments);
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn rounds(folder: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(folder.join("rounds.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn has_failed(round: &serde_json::Value) -> bool {
    round["failure"].is_string()
}

/// The rounds of a run that ended, one for each step of its plan. Some measure for a second only: a machine that
/// stands still for so long may cost a round, which is tried again when the run is gone on with.
fn all_measured(folder: &Path) -> Vec<serde_json::Value> {
    let plan: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.join("plan.json")).unwrap()).unwrap();
    for _ in 0..3 {
        if !rounds(folder).iter().any(has_failed) {
            break;
        }
        measured(&["resume", folder.to_str().unwrap()]);
    }
    let mut measured = rounds(folder);
    let failures: Vec<_> = measured.extract_if(.., |round| has_failed(round)).collect();
    assert_eq!(measured.len(), plan["steps"].as_array().unwrap().len(), "{failures:?}");
    measured
}

/// A broker of the program, killed when dropped.
struct Broker {
    server: Option<peer::highwater::Server>,
    _data: tempfile::TempDir,
}

impl Broker {
    fn start() -> Broker {
        let data = tempfile::tempdir().unwrap();
        let server = peer::highwater::start(Path::new(PROGRAM), &data.path().join("data"), 0, &[]);
        Broker { server: Some(server.unwrap()), _data: data }
    }

    fn bootstrap(&self) -> String {
        self.server.as_ref().unwrap().bootstrap()
    }

    fn create_topic(&self, name: &str) {
        let made = Command::new(PROGRAM)
            .args(["topic", "create", name, "--partitions", "1", "-b", &self.bootstrap()])
            .output()
            .unwrap();
        succeeded(&made);
    }
}

/// Fault in every so-manieth produce request.
fn every(count: u64, action: FaultAction) -> FaultRule {
    FaultRule {
        name: action.name().to_owned(),
        api: Some(wire::ApiKey::Produce),
        topic: None,
        partition: None,
        client_id: None,
        occurrence: Occurrence::Every(count),
        count_by: CountBy::Rule,
        limit: None,
        action,
    }
}

/// Sends stamped records through a proxy with faults. Returns what the check found, and the faults.
fn through(rules: Vec<FaultRule>) -> (ProduceReport, Verdict, FaultedRecords) {
    let broker = Broker::start();
    broker.create_topic("t");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let faults = FaultInjector::of_plan(FaultPlan { seed: 0, rules }).unwrap();
    let faults = Some(Arc::new(faults));
    let config = ProxyConfig { faults, ..ProxyConfig::new(&broker.bootstrap()) };
    let proxy = runtime.block_on(Proxy::start(config)).unwrap();
    let mut load = ProduceLoad {
        sizes: Sizes::Fixed(200),
        records: 20_000,
        time: Duration::ZERO,
        stamp: Some(7),
        ..ProduceLoad::new(proxy.bootstrap(), "t")
    };
    // Several requests in flight that may change places, and no sequence numbers to notice it.
    (load.producer.acks, load.producer.idempotence) = (1, false);
    let report = load::produce(&load, &Stop::default()).unwrap();
    let faulted = proxy.faulted_records();
    let there = 20_000 - faulted.lost_records + faulted.duplicated_records;
    runtime.block_on(wait_for_records(there, "t", &broker));
    let verdict =
        load::verify(&broker.bootstrap(), &report.acknowledgements, Duration::from_secs(2))
            .unwrap();
    (report, verdict, faulted)
}

/// Waits until so many records of a topic of one partition can be read: with `acks=1` they are acknowledged before that.
async fn wait_for_records(count: u64, topic: &str, broker: &Broker) {
    let cluster = Cluster::connect(ClusterConfig::new(&broker.bootstrap())).await.unwrap();
    let admin = Admin::new(cluster);
    let partition = TopicPartition::new(topic, 0);
    let deadline = Instant::now() + LIMIT;
    loop {
        let wanted = [(partition.clone(), OffsetSpec::Latest)];
        let found = admin.list_offsets(&wanted).await.unwrap();
        let end = found[&partition].offset.unwrap().0;
        if end >= count as i64 {
            return;
        }
        assert!(Instant::now() < deadline, "{end} of {count} records");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn an_honest_target_is_called_clean() {
    let (report, verdict, _) = through(Vec::new());
    assert_eq!(report.acknowledged, 20_000);
    assert!(verdict.is_clean(), "{verdict:?}");
    assert_eq!((verdict.acknowledged, verdict.found), (20_000, 20_000));
}

#[test]
fn a_target_that_drops_is_found_out() {
    let (report, verdict, faulted) = through(vec![every(7, FaultAction::Lose)]);
    assert_eq!(report.acknowledged, 20_000, "the client was told that all is well");
    assert!(faulted.lost_records > 0);
    assert_eq!(verdict.lost, faulted.lost_records);
    assert_eq!((verdict.duplicated, verdict.damaged), (0, 0));
}

#[test]
fn a_target_that_repeats_is_found_out() {
    let (_, verdict, faulted) = through(vec![every(5, FaultAction::Duplicate)]);
    assert!(faulted.duplicated_records > 0);
    assert_eq!(verdict.duplicated, faulted.duplicated_records);
    assert_eq!((verdict.lost, verdict.damaged), (0, 0));
}

#[test]
fn a_target_that_reorders_is_found_out() {
    let (_, verdict, faulted) = through(vec![every(3, FaultAction::Reorder)]);
    assert!(faulted.reordered_pairs > 0);
    assert!(verdict.reordered > 0, "{verdict:?}");
    assert_eq!((verdict.lost, verdict.duplicated, verdict.damaged), (0, 0, 0));
}

#[test]
fn a_target_that_damages_is_found_out() {
    let (_, verdict, faulted) = through(vec![every(4, FaultAction::Damage)]);
    assert!(faulted.damaged_records > 0);
    assert_eq!(verdict.damaged, faulted.damaged_records);
}

#[test]
fn a_run_is_interrupted_resumed_reported_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let out_text = out.to_str().unwrap();
    let run = ["run", "ali-consumer", "--rounds", "1", "--no-progress", "--out", out_text];
    let mut child = Command::new(PROGRAM)
        .arg("lab")
        .args(run)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_rounds(3, &out, &mut child);
    interrupt(&child);
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), INTERRUPTED, "{said}");
    assert!(said.contains("highwater lab resume"), "{said}");
    let summary = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(summary.contains("report.html") && summary.contains("Highwater"), "{summary}");
    let kept = rounds(&out).len();
    assert!(kept >= 3);

    assert!(refused(&run).contains("holds a run already"));
    let summary = measured(&["resume", out_text]);
    assert!(summary.contains("report.html"), "{summary}");
    let all = all_measured(&out);
    assert!(all.len() > kept);
    for round in &all {
        let verdict = &round["verdict"];
        let bad = ["lost", "duplicated", "reordered", "damaged"]
            .map(|what| verdict[what].as_u64().unwrap());
        assert_eq!((verdict["checked"].as_bool(), bad), (Some(true), [0; 4]), "{round}");
    }
    for document in ["report.html", "report.md", "cells.csv", "result.json"] {
        assert!(out.join(document).metadata().unwrap().len() > 0, "{document}");
    }
    let elsewhere = folder.path().join("csv");
    succeeded(&lab(&["report", out_text, "--out", elsewhere.to_str().unwrap(), "--format", "csv"]));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);

    let compared = lab(&["compare", out_text, out_text]);
    assert!(succeeded(&compared).contains("throughput"));
    // One round has no interval: nothing can be decided.
    let gated = lab(&["compare", out_text, out_text, "--gate", "throughput.ratio>=0.97"]);
    assert_eq!(gated.status.code(), Some(4));
}

#[test]
fn a_target_that_dies_costs_its_round_only() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let run = ["run", "x-topics", "--rounds", "1", "--no-progress", "--out", out.to_str().unwrap()];
    let mut child =
        Command::new(PROGRAM).arg("lab").args(run).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_rounds(2, &out, &mut child);
    kill_brokers_of(&child);
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    let all = rounds(&out);
    let mut failed = all.iter().filter(|round| has_failed(round)).count();
    assert_eq!(ended.status.code(), Some(if failed == 0 { 0 } else { 5 }), "{said}");
    // Its own, perhaps the one behind it, and as many again that a machine costs which stands still for a second.
    assert!(failed <= 4, "{said}");
    let after = all.iter().skip_while(|round| !has_failed(round));
    assert!(failed == 0 || after.skip(1).any(|round| !has_failed(round)), "{said}");

    // Going on with the run tries again what failed, and nothing else.
    let mut known = all.len();
    for _ in 0..3 {
        measured(&["resume", out.to_str().unwrap()]);
        let again = rounds(&out);
        assert_eq!(again.len(), known + failed);
        failed = again[known..].iter().filter(|round| has_failed(round)).count();
        known = again.len();
        if failed == 0 {
            break;
        }
    }
    assert_eq!(failed, 0, "what failed is measured in the end");
}

#[test]
fn a_closed_terminal_ends_a_run_as_control_c_does() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let run =
        ["run", "x-topics", "--rounds", "20", "--no-progress", "--out", out.to_str().unwrap()];
    let mut child =
        Command::new(PROGRAM).arg("lab").args(run).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_rounds(1, &out, &mut child);
    // Nobody reads any more, as when the terminal has gone.
    drop(child.stderr.take());
    signal(child.id(), rustix::process::Signal::HUP);
    assert_eq!(child.wait().unwrap().code(), INTERRUPTED);
    assert!(out.join("report.html").is_file());
}

#[test]
fn a_run_that_is_ended_at_once_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (out, temporary) = (folder.path().join("run"), folder.path().join("temporary"));
    fs::create_dir(&temporary).unwrap();
    let run = ["run", "x-topics", "--rounds", "1", "--no-progress", "--out", out.to_str().unwrap()];
    let mut child = Command::new(PROGRAM)
        .env("TMPDIR", &temporary)
        .arg("lab")
        .args(run)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_rounds(1, &out, &mut child);
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 1, "the broker's data");
    let brokers = children_of(&child);
    let mut said = std::io::BufReader::new(child.stderr.take().unwrap());
    interrupt(&child);
    // The second one counts from when the first has been understood.
    let mut line = String::new();
    while !line.contains("again to end at once") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended before it said so");
    }
    interrupt(&child);
    // Whether the round or the second interruption comes first: nothing stays.
    child.wait().unwrap();
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    assert!(brokers.iter().all(|pid| !peer::procfs::is_running(*pid)));
}

#[test]
fn a_storm_of_metadata_requests_is_answered_directly_and_through_a_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let out_text = out.to_str().unwrap();
    measured(&["run", "x-metadata-storm", "--rounds", "1", "--no-progress", "--out", out_text]);
    let all = all_measured(&out);
    let storms: Vec<_> =
        all.iter().filter(|round| round["experiment"] == "x-metadata-storm").collect();
    for via in ["direct", "proxy"] {
        let answer_bytes = |connections: f64, topics: f64| {
            let is = |round: &&&serde_json::Value| {
                let cell = &round["cell"];
                cell["via"] == via && cell["connections"] == connections && cell["topics"] == topics
            };
            let round = storms.iter().find(is).unwrap();
            let metric = |name: &str| round["metrics"][name].as_f64().unwrap();
            assert!(metric("requests_per_s") > 0.0 && metric("p99_ms") > 0.0, "{round}");
            assert!(metric("broker_cpu_s_per_mreq") > 0.0, "{round}");
            metric("answer_bytes")
        };
        // Names of rounds differ by a digit.
        assert!((answer_bytes(1.0, 1.0) - answer_bytes(10.0, 1.0)).abs() < 5.0, "{via}");
        // A topic is more than its name in an answer.
        assert!(answer_bytes(100.0, 100.0) > 50.0 * 50.0, "{via}");
    }
}

#[test]
fn what_cannot_be_run_is_said() {
    // Nobody listens at our own end of a connection, and nobody else is given its port.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own_end = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let nobody = own_end.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let said = refused(&["run", "x-topics", "--target", &nobody, "--out", out.to_str().unwrap()]);
    assert!(said.contains(&nobody) && said.contains("answers"), "{said}");
    assert!(refused(&["run", "x-nothing"]).contains("lab list"));
    assert!(refused(&["run", "ali-producr"]).contains("did you mean ali-producer?"));
    assert!(refused(&["show", "x_topics"]).contains("did you mean x-topics?"));
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let said = refused(&["run", "x-topics", "--out", file.to_str().unwrap()]);
    assert!(said.contains("cannot make the folder"), "{said}");
    assert!(refused(&["run", "x-topics", "--target", "nonsense"]).contains("HOST:PORT"));
    assert!(refused(&["run", "x-topics", "--emulate", "the-moon"]).contains("ali-2018"));
    assert!(refused(&["report", folder.path().to_str().unwrap()]).contains("plan.json"));
    assert!(refused(&["report", "--from-fixture", "zzz"]).contains("mif"));
}

#[test]
fn whoever_has_no_java_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let output = Command::new(PROGRAM)
        .env("PATH", folder.path())
        .env("HIGHWATER_CACHE", folder.path())
        .args(["lab", "run", "x-topics", "--target", "apache-kafka", "--out"])
        .arg(&out)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(said.contains("Java runtime 17") && said.contains("PATH"), "{said}");
}

#[test]
fn published_reports_are_redrawn_without_running_anything() {
    for report in ["ali", "ibm", "cs6", "mif"] {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join(report);
        succeeded(&lab(&["report", "--from-fixture", report, "--out", out.to_str().unwrap()]));
        assert!(out.join("report.html").is_file() && out.join("report.md").is_file());
        // That one published its charts as pictures, without a number.
        let without_numbers = report == "mif";
        let charts = fs::read_dir(out.join("charts")).into_iter().flatten().flatten();
        let drawn =
            charts.filter(|chart| chart.path().extension().is_some_and(|e| e == "svg")).count();
        assert_eq!(drawn == 0, without_numbers, "{report}");
    }
}

/// Waits until a run's folder holds so many rounds: the kernel tells when something in it changes.
fn wait_for_rounds(count: usize, folder: &Path, child: &mut Child) {
    let deadline = Instant::now() + LIMIT;
    fs::create_dir_all(folder).unwrap();
    let changes = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    let what = inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE;
    inotify::add_watch(&changes, folder, what).unwrap();
    while rounds(folder).len() < count {
        assert!(child.try_wait().unwrap().is_none(), "it ended before there were {count} rounds");
        assert!(Instant::now() < deadline, "no {count} rounds in time");
        // Looks again after a second at the latest: a process that ends changes nothing in the folder.
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let mut waiting = [PollFd::new(&changes, PollFlags::IN)];
        if poll(&mut waiting, Some(&second)).unwrap() > 0 {
            rustix::io::read(&changes, &mut [0; 4096]).unwrap();
        }
    }
}

fn interrupt(child: &Child) {
    signal(child.id(), rustix::process::Signal::INT);
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Kills the processes that a process has started, as `kill -9` does.
fn kill_brokers_of(parent: &Child) {
    let pids = children_of(parent);
    assert!(!pids.is_empty(), "the lab runs a broker");
    pids.into_iter().for_each(|pid| signal(pid, rustix::process::Signal::KILL));
}

fn children_of(parent: &Child) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{}/task", parent.id())).unwrap();
    let children =
        tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    children
        .flat_map(|text| text.split_whitespace().flat_map(str::parse).collect::<Vec<_>>())
        .collect()
}

/// One kill of each kind under our own client, on one cluster: the broker comes back each time, and nothing that was
/// acknowledged is lost, doubled or out of order.
#[test]
fn brokers_are_killed_under_a_client_and_come_back() {
    outages_lose_nothing(&[Kill::Leader, Kill::LeaderController, Kill::Follower]);
}

/// The request in flight to a paused leader waits for its client's time-out; nothing that was acknowledged is lost, doubled or out of
/// order.
#[test]
fn a_leader_is_paused_under_a_client_and_resumed() {
    outages_lose_nothing(&[Kill::LeaderPaused]);
}

/// One outage of each kind under our own client, on one cluster.
fn outages_lose_nothing(kinds: &[Kill]) {
    let target = Target::Program(PROGRAM.into());
    let cluster = target.start(&Shape { brokers: 3, settings: Default::default() }).unwrap();
    let clients = ["highwater".to_owned()];
    let watch = Watch::of(&cluster.bootstrap);
    for kill in kinds.iter().copied() {
        let workload = Workload {
            kind: Kind::Failover,
            kill,
            kills: 1,
            brokers: 3,
            replication: 3,
            min_isr: 2,
            record_bytes: 100,
            offered: 100.0,
            ..Workload::default()
        };
        let session = Session {
            cluster: &cluster,
            workload: &workload,
            clients: &clients,
            programs: &Default::default(),
            steady: Duration::from_millis(500),
            name: format!("{kill:?}"),
            verify: true,
            keep_topics: false,
            stop: Stop::default(),
        };
        let (mut outcomes, _) = session.perform().unwrap();
        let measured = outcomes.remove("highwater").unwrap().unwrap();
        let verdict = &measured.verdict;
        assert!(verdict.checked && verdict.found > 0, "{kill:?}: {verdict:?}");
        let wrong = [verdict.lost, verdict.duplicated, verdict.reordered, verdict.damaged];
        assert_eq!(wrong, [0; 4], "{kill:?}: {verdict:?}");
        let of = |name: &str| measured.metrics.get(name).copied();
        assert_eq!(of("kills"), Some(1.0), "{kill:?}");
        assert_eq!(of("client_errors"), Some(0.0), "{kill:?}: {:?}", measured.warnings);
        let gap_ms = of("gap_max_ms").unwrap();
        // One record in 10 ms: a shorter longest gap than half of that would be none that was measured.
        assert!((5.0..LIMIT.as_secs_f64() * 1e3).contains(&gap_ms), "{kill:?}: {gap_ms} ms");
        // A follower's death moves no leader, so none moves home.
        assert_eq!(of("move_gap_max_ms").is_some(), kill != Kill::Follower, "{kill:?}");
        assert!(of("steady_gap_max_ms").is_some() && of("return_gap_max_ms").is_some());
    }
    let (answers, wrong) = watch.end();
    assert!(answers > 0);
    assert_eq!(wrong, Vec::<String>::new(), "in {answers} answers");
}

/// Asks all brokers for all topics, again and again, and keeps what no client could use: a leader that is not among the
/// brokers of the same answer. Clients that look such a leader up fail (kafka-python's producer for good).
struct Watch {
    stop: Arc<AtomicBool>,
    brokers: Vec<JoinHandle<(u64, Vec<String>)>>,
}

impl Watch {
    fn of(bootstrap: &str) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let ask = |address: &str| {
            let (address, stop) = (address.to_owned(), stop.clone());
            thread::spawn(move || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(watch(&address, &stop))
            })
        };
        let brokers = bootstrap.split(',').map(ask).collect();
        Watch { stop, brokers }
    }

    /// How many answers there were, and what was wrong with them.
    fn end(self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let all = self.brokers.into_iter().map(|broker| broker.join().unwrap());
        all.fold((0, Vec::new()), |(count, mut wrong), (more, others)| {
            wrong.extend(others);
            (count + more, wrong)
        })
    }
}

async fn watch(address: &str, stop: &AtomicBool) -> (u64, Vec<String>) {
    let (mut answers, mut wrong, mut connection) = (0, Vec::new(), None);
    let all = MetadataRequest { topics: None, ..Default::default() };
    let mut pace = tokio::time::interval(Duration::from_millis(2));
    while !stop.load(Ordering::Relaxed) {
        pace.tick().await;
        if connection.is_none() {
            connection = Connection::open(address, &ConnectionConfig::default()).await.ok();
        }
        // The broker is down between its kill and its start.
        let Some(open) = &connection else { continue };
        let Ok(answer) = open.call(&all).await else {
            connection = None;
            continue;
        };
        answers += 1;
        let is_there = |id: i32| id < 0 || answer.brokers.iter().any(|one| one.node_id == id);
        let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
        wrong.extend(partitions.filter(|one| !is_there(one.leader_id)).map(|one| {
            format!(
                "{address}: {} leads {} and is not among the brokers",
                one.leader_id, one.partition_index
            )
        }));
    }
    (answers, wrong)
}
