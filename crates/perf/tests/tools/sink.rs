//! The producer's tool against a broker that keeps nothing.

use crate::lines::{self, PRODUCE, assert_shapes, sent_by_commas, sent_by_regex};
use crate::{run, succeed};
use perf::load::Sink;
use perf::tools::Tool;
use serde_json::Value;
use tokio::net::TcpSocket;

/// How often a run is repeated of which a pause of the machine took the part that is looked at.
const ATTEMPTS: usize = 20;

fn line(sink: &Sink, more: &str) -> String {
    format!("--bootstrap-server {} --topic t {more}", sink.bootstrap())
}

fn produce(more: &str) -> Vec<String> {
    let sink = Sink::start(3).unwrap();
    succeed(Tool::Produce, &line(&sink, more)).lines
}

#[test]
fn all_lines_look_like_those_of_kafkas_tool() {
    let ours = produce(
        "--num-records 1500 --record-size 100 --throughput 5000 --reporting-interval 50 \
         --warmup-records 500 --print-metrics",
    );
    let lines: Vec<String> =
        ours.iter().take_while(|line| !line.starts_with("Metric Name")).cloned().collect();
    assert_shapes(&lines, PRODUCE);
    let table = lines.len();
    assert_eq!(lines::shape(&ours[table]), "Metric Name  Value");
    let width = ours[table].find("Value").unwrap();
    assert!(ours[table + 1..].iter().all(|row| &row[width - 3..width] == " : "));
    let total = "producer-metrics:record-send-total:{client-id=perf-producer-client}";
    let row = ours.iter().find(|row| row.starts_with(total)).unwrap();
    assert!(row.ends_with(" : 1500.000"), "{row}");
}

#[test]
fn people_who_read_kafkas_lines_can_read_ours() {
    let run = || {
        let ours = produce(
            "--num-records 1500 --record-size 100 --throughput 5000 --reporting-interval 50 \
             --warmup-records 500",
        );
        let sent = sent_by_regex(&ours);
        (ours, sent)
    };
    // A machine that pauses for most of a run lets no interval be over.
    let found = (0..ATTEMPTS).map(|_| run()).find(|(_, sent)| sent.len() > 3);
    let (ours, sent) = found.expect("intervals are reported");
    let [.., total, steady] = &sent[..] else { panic!("{ours:?}") };
    assert_eq!((total.records, total.steady), (1500, false));
    assert_eq!((steady.records, steady.steady), (1000, true));
    assert!(sent[..sent.len() - 2].iter().all(|window| window.percentiles_ms.is_none()));
    assert!(total.records_per_sec > 0.0 && total.records_per_sec <= 6000.0, "{total:?}");
    let mb = total.records_per_sec * 100.0 / 1024.0 / 1024.0;
    assert!((total.mb_per_sec - mb).abs() <= 0.005, "{total:?}");
    let [ref commas_total, ref commas_steady] =
        [ours.len() - 2, ours.len() - 1].map(|index| sent_by_commas(&ours[index]));
    assert_eq!((commas_total, commas_steady), (total, steady));
}

#[test]
fn the_command_line_of_2018_runs() {
    let sink = Sink::start(1).unwrap();
    let line = format!(
        "--topic test --num-records 1000 --record-size 1000 --throughput 100000 --producer-props \
         bootstrap.servers={}",
        sink.bootstrap()
    );
    let written = succeed(Tool::Produce, &line);
    let last = written.lines.last().unwrap();
    assert_eq!(sent_by_commas(last).records, 1000);
}

#[test]
fn several_producers_share_the_records() {
    let ours = produce(
        "--num-records 10007 --record-size 50 --throughput -1 --producers 3 --command-property \
         partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner linger.ms=0",
    );
    assert_eq!(sent_by_commas(ours.last().unwrap()).records, 10_007);
}

#[test]
fn records_that_are_too_large_are_told_and_not_counted() {
    let sink = Sink::start(1).unwrap();
    let more = "--num-records 3 --record-size 2000000 --throughput -1";
    let written = succeed(Tool::Produce, &line(&sink, more));
    assert_eq!(written.lines.len(), 1);
    assert!(
        written.lines[0].starts_with("0 records sent, 0.000000 records/sec (0.00 MB/sec), NaN")
    );
    assert_eq!(written.notices.lines().filter(|line| line.contains("exceeds")).count(), 3);
}

#[test]
fn results_are_written_for_programs_too() {
    let sink = Sink::start(2).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // So many that the record at the 99th percentile is one and the same by either way of counting.
    let more = "--num-records 2050 --record-size 100 --throughput 20000 --reporting-interval 20";
    let outputs = format!(
        "--output-path {} --histogram {}",
        path("run.json").display(),
        path("run.hgrm").display()
    );
    let written = succeed(Tool::Produce, &line(&sink, &format!("{more} {outputs}")));
    let json: Value =
        serde_json::from_str(&std::fs::read_to_string(path("run.json")).unwrap()).unwrap();
    let total = sent_by_commas(written.lines.last().unwrap());
    assert_eq!(json["total"]["records"], 2050);
    assert_eq!(json["total"]["bytes"], 205_000);
    assert_eq!(json["config"]["acks"], "all");
    assert_eq!(json["windows"].as_array().unwrap().len(), written.lines.len() - 1);
    let p99 = json["total"]["latency_us"]["p99"].as_f64().unwrap() / 1000.0;
    let listed = total.percentiles_ms.unwrap()[2] as f64;
    assert!((p99 - listed).abs() <= 1.1 + listed / 500.0, "{p99} and {listed}");
    let histogram = std::fs::read_to_string(path("run.hgrm")).unwrap();
    assert!(histogram.contains("Total count    =         2050]"), "{histogram}");

    let outputs = format!("--output csv --output-path {}", path("run.csv").display());
    succeed(Tool::Produce, &line(&sink, &format!("{more} {outputs}")));
    let csv = std::fs::read_to_string(path("run.csv")).unwrap();
    let rows: Vec<Vec<&str>> = csv.lines().map(|row| row.split(',').collect()).collect();
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{csv}");
    assert_eq!(rows.last().unwrap()[..1], ["total"]);
    assert_eq!(rows.last().unwrap()[2], "2050");
}

#[test]
fn latencies_may_be_shown_in_microseconds() {
    // Paced: a rate for a run that took no whole millisecond would be infinite.
    let ours = produce("--num-records 100 --record-size 10 --throughput 10000 --latency-unit us");
    let expected = lines::shape(PRODUCE.lines().nth(5).unwrap()).replace(" ms ", " us ");
    assert_eq!(lines::shape(ours.last().unwrap()), expected);
}

#[test]
fn without_a_cluster_it_fails_and_says_so() {
    // The port is bound and no more: nobody listens there, and nobody else can.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = held.local_addr().unwrap().to_string();
    let more = "--topic t --num-records 1 --record-size 1 --throughput -1 --command-property \
                max.block.ms=200 --producers 2";
    let (succeeded, written) = run(Tool::Produce, &format!("--bootstrap-server {address} {more}"));
    assert!(!succeeded && written.lines.is_empty());
    assert!(written.notices.contains(&address), "{}", written.notices);
    // At once, and once: nobody shall wait without knowing for what.
    let told = written.notices.lines().filter(|line| line.ends_with("this is tried for 0.2 s"));
    assert_eq!(told.count(), 1, "{}", written.notices);
}
