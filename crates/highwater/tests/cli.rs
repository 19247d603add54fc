//! The program as people use it: the built binary, a broker on a free port and a folder of its
//! own, and what its commands say and return.

mod stopped_folder;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tempfile::TempDir;

const HIGHWATER: &str = env!("CARGO_BIN_EXE_highwater");

/// A broker that ends with the test.
struct Broker {
    process: Child,
    address: String,
    http: String,
    _folder: Option<TempDir>,
}

impl Broker {
    fn start() -> Broker {
        let folder = tempfile::tempdir().unwrap();
        let mut broker = Broker::start_in(&folder.path().join("data"));
        broker._folder = Some(folder);
        broker
    }

    fn start_in(data: &Path) -> Broker {
        Broker::start_with(data, &[])
    }

    /// With these configurations beside the usual ones.
    fn start_with(data: &Path, sets: &[&str]) -> Broker {
        let mut process = Command::new(HIGHWATER)
            .args(["--log-level", "warn", "start", "--data-dir"])
            .arg(data)
            .args(["--set", "listeners=PLAINTEXT://127.0.0.1:0"])
            .args(["--set", "http.listener=127.0.0.1:0"])
            .args(["--set", "gateway.listener=127.0.0.1:0"])
            .args(["--set", "offsets.topic.num.partitions=2"])
            .args(["--set", "group.initial.rebalance.delay.ms=0"])
            .args(sets.iter().flat_map(|set| ["--set", *set]))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut found = |prefix: &str| {
            let line = lines.by_ref().map(Result::unwrap).find(|line| line.starts_with(prefix));
            line.unwrap_or_else(|| panic!("no line begins with {prefix:?}"))[prefix.len()..]
                .to_owned()
        };
        let address = found("broker: listening on ");
        let http = found("http: http://");
        let http = http[..http.find('/').unwrap()].to_owned();
        Broker { process, address, http, _folder: None }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(HIGHWATER);
        command.args(line.split(' ')).env("HIGHWATER_BOOTSTRAP_SERVER", &self.address);
        command
    }

    /// Runs a command that must succeed; what it wrote to standard output.
    fn run(&self, line: &str) -> String {
        let output = self.command(line).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must fail with exit code 1; what it wrote to standard error.
    fn fail(&self, line: &str) -> String {
        failure(self.command(line).output().unwrap())
    }

    /// Runs the program under another name; it must succeed.
    fn run_as(&self, link: &Path, line: &str) -> Output {
        let mut command = Command::new(link);
        command.args(["--bootstrap-server", &self.address]).args(line.split(' '));
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        output
    }

    /// Runs a command with this on its standard input.
    fn feed(&self, line: &str, input: &[u8]) -> Output {
        let mut command = self.command(line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        process.stdin.take().unwrap().write_all(input).unwrap();
        process.wait_with_output().unwrap()
    }

    fn produce(&self, line: &str, input: &[u8]) {
        let output = self.feed(line, input);
        assert!(output.status.success(), "{line}: {output:?}");
    }

    fn get(&self, path: &str) -> String {
        let mut connection = TcpStream::connect(&self.http).unwrap();
        write!(connection, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    }

    fn stop(mut self) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::TERM).unwrap();
        assert!(self.process.wait().unwrap().success(), "an orderly stop ends with 0");
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn failure(output: Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn highwater(line: &str) -> Output {
    Command::new(HIGHWATER).args(line.split(' ')).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn an_interrupted_produce_counts_its_records() {
    let broker = Broker::start();
    broker.run("topic create counted");
    let mut command = broker.command("produce counted");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    // The input stays open.
    let mut input = process.stdin.take().unwrap();
    input.write_all(b"1\n2\n3\n").unwrap();
    assert_eq!(broker.run("consume counted -n 3"), "1\n2\n3\n");
    kill_process(Pid::from_child(&process), Signal::INT).unwrap();
    let said = failure(process.wait_with_output().unwrap());
    assert!(said.contains("acknowledged in"), "{said}");
    assert!(said.contains("interrupted behind line 3"), "{said}");
    drop(input);
    broker.stop();
}

#[test]
fn lines_come_back_byte_for_byte() {
    let broker = Broker::start();
    broker.run("topic create lines");
    let text = b"one\n\n two\r\n\xff\xfe\0binary\nlast without line feed";
    broker.produce("produce lines", text);
    let output = broker.command("consume lines --until-end").output().unwrap();
    assert_eq!(output.stdout, [&text[..], b"\n"].concat());
    let tail = broker.command("consume lines --from -2 --count 1").output().unwrap();
    assert_eq!(tail.stdout, b"\xff\xfe\0binary\n");
}

#[test]
fn a_hundred_thousand_lines_in_every_codec_survive() {
    let broker = Broker::start();
    broker.run("topic create many -p 1");
    let text: Vec<u8> = (0..20_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        broker.produce(&format!("produce many --compression {codec}"), &text);
    }
    let output = broker.command("consume many --until-end").output().unwrap();
    assert!(output.stdout == text.repeat(5), "{} bytes", output.stdout.len());
}

#[test]
fn keys_headers_partitions_and_patterns_go_together() {
    let broker = Broker::start();
    broker.run("topic create keyed --partitions 3");
    broker.produce("produce keyed --key-separator : --header h=1 -p 2", b"k:v:w\n:empty key\n");
    let pattern = r"%t/%p@%o[%K:%k][%S:%v][%h]\n";
    assert_eq!(
        broker.run(&format!("consume keyed --until-end -f {pattern}")),
        "keyed/2@0[1:k][3:v:w][h=1]\nkeyed/2@1[0:][9:empty key][h=1]\n"
    );
    let json = broker.run("consume keyed -p 2 --count 1 -f json");
    let record: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&record["key"], &record["offset"]), (&"k".into(), &0.into()));
    let output = broker.feed("produce keyed --key-separator :", b"a:b\nno separator\nc:d\n");
    assert!(failure(output).contains("line 2 has no key separator"));
}

#[test]
fn topics_are_created_listed_changed_and_deleted() {
    let broker = Broker::start();
    assert_eq!(
        broker.run("topic create b a -p 2 -c retention.ms=1000"),
        "b: created\na: created\n"
    );
    assert!(broker.fail("topic create a").contains("TOPIC_ALREADY_EXISTS"));
    assert_eq!(broker.run("topic create a --if-not-exists"), "a: was there\n");
    let list = "NAME  PARTITIONS  REPLICAS\na     2           1\nb     2           1\n";
    assert_eq!(broker.run("topic list"), list);
    broker.run("topic alter a --set retention.ms=2000 --delete cleanup.policy");
    let config = broker.run("config get --topic a retention.ms");
    assert_eq!(config, "KEY           VALUE  SOURCE\nretention.ms  2000   topic\n");
    broker.run("topic add-partitions a --total 3");
    let described = broker.run("topic describe a --format json");
    let described: serde_json::Value = serde_json::from_str(&described).unwrap();
    assert_eq!(described.as_array().unwrap().len(), 3);
    assert_eq!(described[2]["log_end_offset"], 0);
    assert_eq!(broker.run("topic delete a"), "a: deleted\n");
    let gone = broker.fail("topic describe a");
    assert!(gone.contains("there is no topic a") && gone.contains("hint:"), "{gone}");
    assert!(broker.fail("consume a").contains("there is no topic a"));
}

#[test]
fn a_group_goes_on_where_it_was_and_can_be_moved() {
    let broker = Broker::start();
    broker.run("topic create orders");
    broker.produce("produce orders", b"1\n2\n3\n");
    assert_eq!(broker.run("consume orders --group readers --count 2"), "1\n2\n");
    assert_eq!(broker.run("consume orders --group readers --count 1"), "3\n");
    let lag = broker.run("group describe readers --format json");
    let lag: serde_json::Value = serde_json::from_str(&lag).unwrap();
    assert_eq!((&lag[0]["current_offset"], &lag[0]["lag"]), (&3.into(), &0.into()));
    assert!(broker.run("group seek readers --to -1 --dry-run").contains("orders"));
    broker.run("group seek readers --to +1");
    assert_eq!(broker.run("consume orders --group readers --count 2"), "2\n3\n");
    assert!(broker.run("group list").contains("readers"));
    assert_eq!(broker.run("group delete readers"), "readers: deleted\n");
    assert!(broker.fail("group describe readers").contains("there is no group readers"));
}

#[test]
fn other_tools_words_are_understood_and_refusals_are_sentences() {
    let broker = Broker::start();
    broker.run("topic create words");
    broker.produce("produce words", b"1\n2\n");
    assert!(broker.run("topic ls").contains("words"));
    assert_eq!(broker.run("consume words --from -1h --until-end"), "1\n2\n");
    assert_eq!(broker.run("consume words --from 1999-12-31 --until-end"), "1\n2\n");
    assert_eq!(broker.run("consume words --from 2999-12-31T23:59 --until-end"), "");
    broker.run("consume words --group rest --until-end");
    assert!(broker.run("group describe").contains("rest"), "none is all");
    broker.run("group reset rest --to start");
    assert_eq!(broker.run("consume words --group rest --count 1"), "1\n");
    let said = broker.fail("group rm absent");
    assert!(said.contains("absent: there is no such group (GROUP_ID_NOT_FOUND)"), "{said}");
    let said = broker.fail("config get --topic words nosuch.key");
    assert!(said.contains("topic words has no configuration nosuch.key"), "{said}");
    assert_eq!(broker.run("topic rm words"), "words: deleted\n");
}

#[test]
fn a_topic_that_is_not_created_by_writing_is_missed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let broker =
        Broker::start_with(&folder.path().join("data"), &["auto.create.topics.enable=false"]);
    // The limit is far above what it takes: without one the time-out of two minutes would.
    let said = failure(broker.feed("produce absent --timeout 600", b"1\n"));
    assert!(said.contains("there is no topic absent"), "{said}");
    assert!(said.contains("hint: create it: highwater topic create absent"), "{said}");
}

#[test]
fn shells_and_manuals_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = highwater(&format!("completions {shell}"));
        let script = String::from_utf8(script.stdout).unwrap();
        assert!(script.contains("add-partitions"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let made = highwater(&format!("man-pages {}", folder.path().display()));
    assert!(made.status.success(), "{made:?}");
    let page = fs::read_to_string(folder.path().join("highwater-topic-create.1")).unwrap();
    assert!(page.contains("replication"), "{page}");
}

#[test]
fn a_broker_shows_itself_and_its_configuration() {
    let broker = Broker::start();
    broker.produce("produce seen", b"1\n2\n");
    assert!(broker.get("/healthz").starts_with("HTTP/1.1 200 OK"));
    let metrics = broker.get("/metrics");
    let counted = "\nkafka_server_brokertopicmetrics_messagesin_total{topic=\"seen\"} 2\n";
    assert!(metrics.contains(counted), "{metrics}");
    assert!(broker.run("cluster info").contains("127.0.0.1"));
    assert!(broker.run("cluster health").starts_with("healthy: yes\n"));
    broker.run("config set --broker 1 log.retention.ms=5000");
    let shown = broker.run("config get --broker 1 log.retention.ms");
    assert!(shown.contains("5000") && shown.contains("broker (changed)"), "{shown}");
    let refused = broker.fail("config set --broker 1 node.id=7");
    assert!(refused.contains("cannot be changed while the broker runs"), "{refused}");
}

#[test]
fn what_was_acknowledged_is_there_after_a_stop_and_the_files_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let broker = Broker::start_in(&data);
    broker.produce("produce kept", b"1\n2\n3\n");
    broker.stop();
    let dump = highwater(&format!("log dump --records {}", data.display()));
    assert!(dump.status.success(), "{dump:?}");
    let text = String::from_utf8(dump.stdout).unwrap();
    assert!(text.contains(" value: 2 "), "{text}");
    let broker = Broker::start_in(&data);
    assert_eq!(broker.run("consume kept --until-end"), "1\n2\n3\n");
    broker.stop();
    let log = data.join("kept-0/00000000000000000000.log");
    let mut bytes = fs::read(&log).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&log, bytes).unwrap();
    let dump = highwater(&format!("log dump --format json {}", log.display()));
    let found = String::from_utf8(dump.stdout.clone()).unwrap();
    assert!(found.contains("\"finding\":\"damage\""), "{found}");
    assert!(failure(dump).contains("damage in 1 place"));
}

#[test]
fn without_a_cluster_a_command_fails_in_time_and_says_what_to_do() {
    // Nobody listens at our own end of a connection, and nobody else is given its port.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let own_end = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let nobody = own_end.local_addr().unwrap();
    let said = failure(highwater(&format!("produce t --timeout 0.5 -b {nobody}")));
    assert!(said.contains("cannot reach the cluster") && said.contains("hint:"), "{said}");
}

#[test]
fn a_wrong_configuration_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.properties");
    fs::write(&file, "node.id=1\nnum.partitions=many\nlisteners=SASL_SSL://:9092\n").unwrap();
    let said = failure(highwater(&format!("start {}", file.display())));
    assert!(said.contains("server.properties:2: num.partitions=many: expected"), "{said}");
    assert!(said.contains("needs SSL or SASL, which come later"), "all at once: {said}");
    let explained = highwater(&format!("config explain {} --changed", file.display()));
    let table = String::from_utf8(explained.stdout.clone()).unwrap();
    assert!(table.contains("refused") && table.contains("many"), "{table}");
    assert!(failure(explained).contains("num.partitions=many"));
    let said = failure(highwater("start --strict --set num.partition=1"));
    assert!(said.contains("did you mean num.partitions?"), "{said}");
}

#[test]
fn a_value_that_is_not_text_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let not_text = std::ffi::OsStr::from_bytes(b"data-\xff");
    let start = || {
        let mut command = Command::new(HIGHWATER);
        command.args(["start", "--set", "listeners=PLAINTEXT://127.0.0.1:0"]);
        command.current_dir(folder.path());
        command
    };
    let said = failure(start().env("KAFKA_LOG_DIRS", not_text).output().unwrap());
    assert!(said.contains("KAFKA_LOG_DIRS: log.dirs: the value is not UTF-8 text"), "{said}");
    let said = failure(start().arg("--data-dir").arg(not_text).output().unwrap());
    assert!(said.contains("--data-dir: log.dirs: the value is not UTF-8 text"), "{said}");
    let twice = start().env("KAFKA_NODE_ID", "1").env("HIGHWATER_NODE_ID", "2").output().unwrap();
    assert!(failure(twice).contains("names this key too"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was written anywhere");
}

#[test]
fn a_start_that_cannot_serve_says_why_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let start = |data: &Path, more: &str| {
        highwater(&format!(
            "start --data-dir {} --set listeners=PLAINTEXT://127.0.0.1:0 {more}",
            data.display()
        ))
    };
    let said = failure(start(&file, "--set http.listener="));
    assert!(said.contains(file.to_str().unwrap()), "{said}");
    assert!(said.contains("exists") || said.contains("directory (os error"), "the cause: {said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let http = format!("--set http.listener={}", taken.local_addr().unwrap());
    let said = failure(start(&folder.path().join("data"), &http));
    assert!(said.contains("for metrics and health") && said.contains("http.listener"), "{said}");
    let output = start(&folder.path().join("data"), &format!("{http} --log-format json"));
    let lines = String::from_utf8(output.stderr).unwrap();
    for line in lines.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|_| panic!("{line}"));
    }
    assert!(lines.lines().last().unwrap().contains("the broker cannot start"), "{lines}");
    let listeners = format!("--set listeners=PLAINTEXT://{}", taken.local_addr().unwrap());
    let said =
        failure(start(&folder.path().join("data"), &format!("{listeners} --set http.listener=")));
    assert!(said.contains("cannot listen on") && said.contains("--set listeners="), "{said}");
    assert!(!folder.path().join("data").exists(), "a refused first start leaves no folder");
}

#[test]
fn a_closed_terminal_stops_a_broker_cleanly() {
    let mut broker = Broker::start();
    kill_process(Pid::from_child(&broker.process), Signal::HUP).unwrap();
    assert!(broker.process.wait().unwrap().success(), "an orderly stop ends with 0");
}

/// Whether the process does anything but die of a signal.
fn catches(process: &Child, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
    let caught = u64::from_str_radix(line.trim(), 16).expect("a mask of signals");
    caught & (1 << (signal.as_raw() - 1)) != 0
}

#[test]
fn a_signal_in_the_first_moments_of_a_start_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP].into_iter().cycle().take(45) {
        let mut process = Command::new(HIGHWATER)
            .args(["--log-level", "error", "start", "--data-dir"])
            .arg(folder.path().join("data"))
            .args(["--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "http.listener="])
            .args(["--set", "gateway.listener="])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // As soon as it is heard at all: from then on it kills no more.
        while !catches(&process, signal) {
            assert!(process.try_wait().unwrap().is_none(), "it ended by itself");
        }
        kill_process(Pid::from_child(&process), signal).unwrap();
        let ended = pidfd_open(Pid::from_child(&process), PidfdFlags::empty()).unwrap();
        let patience = Timespec { tv_sec: 120, tv_nsec: 0 };
        let heard = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&patience)).unwrap() == 1;
        let _ = process.kill();
        let status = process.wait().unwrap();
        assert!(heard, "{signal:?} was lost: {status}");
    }
}

#[test]
fn the_configuration_is_explained_with_its_sources() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.properties");
    fs::write(&file, "num.partitions=4\n").unwrap();
    let output = Command::new(HIGHWATER)
        .args([
            "config",
            "explain",
            "--changed",
            "--format",
            "json",
            "--set",
            "durability=page-cache",
        ])
        .arg(&file)
        .env("KAFKA_BROKER_RACK", "r1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let sources: Vec<(String, String)> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["key"].as_str().unwrap().into(), row["source"].as_str().unwrap().into()))
        .collect();
    let source = |key: &str| &sources.iter().find(|(found, _)| found == key).unwrap().1;
    assert_eq!(source("durability"), "--set");
    assert!(source("num.partitions").ends_with("server.properties:1"));
    assert_eq!(source("broker.rack"), "environment variable KAFKA_BROKER_RACK");
    let markdown = highwater("config explain --markdown");
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.md");
    assert!(markdown.stdout == fs::read(document).unwrap(), "docs/config.md is stale");
}

#[test]
fn an_id_of_a_cluster_is_one_that_a_file_may_have() {
    let made = || String::from_utf8(highwater("cluster id").stdout).unwrap().trim().to_owned();
    let (id, other) = (made(), made());
    assert!(id.len() == 22 && id != other && !id.starts_with('-'), "{id} {other}");
    let voters = "1@a:1,2@b:1,3@c:1";
    let explained = highwater(&format!(
        "config explain --set cluster.id={id} --set controller.quorum.voters={voters} --set node.id=4 \
         --set process.roles=broker --set listeners=PLAINTEXT://d:1"
    ));
    assert!(explained.status.success(), "{explained:?}");
}

#[test]
fn the_version_is_the_same_by_whatever_it_is_asked_for() {
    let said = |ask: &str| String::from_utf8(highwater(ask).stdout).unwrap();
    let version = said("version");
    let number = version.strip_prefix("highwater ").unwrap().trim();
    let number = number.strip_prefix(env!("CARGO_PKG_VERSION")).unwrap();
    // A build from a tarball knows of no commit.
    assert!(number.is_empty() || number.starts_with(" (commit "), "{version}");
    assert_eq!(said("--version"), version);
}

#[test]
fn kafkas_performance_tools_go_by_their_names() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let links = folder.path().join("bin");
    let made = highwater(&format!("install-links {}", links.display()));
    assert!(made.status.success(), "{made:?}");
    let names = String::from_utf8(made.stdout).unwrap();
    assert_eq!(names.lines().count(), 6, "{names}");
    assert!(names.lines().all(|name| Path::new(name).exists()), "{names}");

    let whole = "--topic perf --num-records 2000 --record-size 100 --throughput -1";
    let sent = broker.run_as(&links.join("kafka-producer-perf-test.sh"), whole);
    let sent = String::from_utf8(sent.stdout).unwrap();
    assert!(sent.starts_with("2000 records sent, ") && sent.ends_with("ms 99.9th.\n"), "{sent}");
    let read = broker.run_as(
        &links.join("kafka-consumer-perf-test"),
        "--topic perf --num-records 2000 --hide-header",
    );
    let read = String::from_utf8(read.stdout).unwrap();
    assert_eq!(read.split(", ").nth(4), Some("2000"), "{read}");
    let timed = broker.run(&format!(
        "perf e2e --bootstrap-server {} --topic timed --num-records 5 --producer-acks all \
         --record-size 10",
        broker.address
    ));
    assert!(
        timed.contains("\nAvg latency: ") && timed.contains("\nPercentiles: 50th = "),
        "{timed}"
    );
}

#[test]
fn the_performance_tools_answer_as_kafkas_do_when_called_wrongly() {
    let folder = tempfile::tempdir().unwrap();
    highwater(&format!("install-links {}", folder.path().display()));
    let call = |name: &str, line: &[&str]| {
        let output = Command::new(folder.path().join(name)).args(line).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, _) = call("kafka-producer-perf-test", &[]);
    assert!(code == Some(0) && out.contains("--payload-monotonic"), "{out}");
    let (code, _, err) = call("kafka-producer-perf-test.sh", &["--topic", "t"]);
    assert!(code == Some(1) && err.contains("error: argument --num-records is required"), "{err}");
    let (code, _, err) = call("kafka-consumer-perf-test.sh", &[]);
    assert!(code == Some(1) && err.contains("--fetch-size"), "{err}");
    let again = highwater(&format!("install-links {}", folder.path().display()));
    assert!(again.status.success(), "links that are right stay: {again:?}");
    assert!(failure(highwater("perf produce --topic t")).contains("--num-records is required"));
}
