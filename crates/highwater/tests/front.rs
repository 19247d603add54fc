//! What stands in front of brokers, as processes of the program, under the laboratory's load: every record that was
//! acknowledged over HTTP is in the log, and every record is pushed to every subscriber, once and in order.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use peer::highwater::{Front, Server};
use perf::load::{
    Keys, Payload, PostLoad, ProduceLoad, PushForm, PushLoad, Sizes, Stop, post, produce, pushed,
    subscribe, verify,
};
use tempfile::TempDir;

/// The program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_highwater");
/// The number that the records are marked with.
const RUN: u32 = 7;
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker with a topic, and a gateway in front of it.
struct Stand {
    gateway: Front,
    broker: Server,
    _folder: TempDir,
}

impl Stand {
    fn start(partitions: u32) -> Stand {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let broker = peer::highwater::start(Path::new(PROGRAM), &data, 0, &[]).unwrap();
        let made = Command::new(PROGRAM)
            .args(["topic", "create", "t", "--partitions", &partitions.to_string()])
            .args(["-b", &broker.bootstrap()])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let gateway = Front::gateway(Path::new(PROGRAM), &broker.bootstrap(), &[]).unwrap();
        Stand { gateway, broker, _folder: folder }
    }

    fn posts(&self) -> PostLoad {
        PostLoad {
            gateway: self.gateway.address().to_owned(),
            topic: "t".to_owned(),
            connections: 2,
            records_per_request: 25,
            sizes: Sizes::AccessLog,
            keys: Keys::List(["60819", "60847", "23568", "61821", "64500"].map(Vec::from).to_vec()),
            payload: Payload::Reuse,
            query: "partitioner=cs6-mod&broker=cs6-mod&timing=1".to_owned(),
            offered: 0.0,
            records: 1000,
            time: Duration::ZERO,
            warmup: Duration::ZERO,
            stamp: Some(RUN),
            seed: 1,
        }
    }

    fn records(&self, count: u64) -> ProduceLoad {
        ProduceLoad {
            sizes: Sizes::Fixed(200),
            keys: Keys::Uniform(50),
            records: count,
            time: Duration::ZERO,
            stamp: Some(RUN),
            ..ProduceLoad::new(&self.broker.bootstrap(), "t")
        }
    }

    fn subscribers(&self, count: u32, partitions: i32) -> PushLoad {
        PushLoad {
            form: PushForm::Events,
            gateway: self.gateway.address().to_owned(),
            topic: "t".to_owned(),
            partitions,
            subscribers: count,
            records: 0,
            idle: PATIENCE,
            stamp: Some(RUN),
        }
    }
}

#[test]
fn what_is_acknowledged_over_http_is_in_the_log_where_the_answer_says() {
    let stand = Stand::start(5);
    for records_per_request in [1, 25] {
        let run = RUN + records_per_request;
        let load = PostLoad { records_per_request, stamp: Some(run), ..stand.posts() };
        let report = post(&load, &Stop::default()).unwrap();
        assert_eq!((report.sent, report.acknowledged), (1000, 1000), "{:?}", report.errors);
        assert_eq!(report.requests, 1000 / u64::from(records_per_request));
        // The report's formula leaves two of five partitions empty.
        let counts: Vec<(i32, u64)> = report.partitions.clone().into_iter().collect();
        assert_eq!(counts, [(0, 400), (3, 200), (4, 400)]);
        assert_eq!(report.brokers.values().copied().collect::<Vec<_>>(), [1000]);
        assert!(report.steps.forward_s > 0.0 && report.steps.send_s > 0.0, "{:?}", report.steps);
        let verdict = verify(&stand.broker.bootstrap(), &report.acknowledgements, PATIENCE / 10);
        let verdict = verdict.unwrap();
        assert!(verdict.is_clean() && verdict.found == 1000, "{verdict:?}");
    }
}

#[test]
fn a_request_that_is_refused_is_told_and_counts_for_nothing() {
    let stand = Stand::start(1);
    // A name that no topic can have.
    let load = PostLoad { topic: "nowhere!".to_owned(), records: 50, ..stand.posts() };
    let report = post(&load, &Stop::default()).unwrap();
    assert_eq!((report.sent, report.acknowledged, report.records), (50, 0, 0));
    assert!(report.errors[0].contains("404"), "{:?}", report.errors);
}

#[test]
fn every_subscriber_gets_every_record_once_and_in_order() {
    let forms =
        [PushForm::Events, PushForm::WebSocket { credit: 1 }, PushForm::WebSocket { credit: 100 }];
    for form in forms {
        let stand = Stand::start(3);
        let live = ProduceLoad { offered: 4000.0, ..stand.records(2000) };
        let load = PushLoad { form, ..stand.subscribers(3, 3) };
        let (produced, read) = pushed(&live, &load, &Stop::default()).unwrap();
        let seen = (produced.acknowledged, read.records, read.gaps);
        assert_eq!(seen, (2000, 6000, 0), "{form:?}: {:?}", read.errors);
        let verdict = read.findings.verdict(&produced.acknowledgements);
        assert!(verdict.is_clean() && verdict.found == 2000, "{form:?}: {verdict:?}");
        assert_eq!(read.end_to_end.len(), 6000, "{form:?}");
    }
}

#[test]
fn what_is_stored_is_caught_up_with() {
    let stand = Stand::start(3);
    let stored = produce(&stand.records(3000), &Stop::default()).unwrap();
    let load = PushLoad { records: stored.acknowledged, ..stand.subscribers(1, 3) };
    let read = subscribe(&load, &Stop::default()).unwrap();
    assert_eq!((read.records, read.bytes), (3000, 600_000));
    assert!(read.wire_bytes > read.bytes * 4 / 3, "base64 takes a third more");
    let verdict = read.findings.verdict(&stored.acknowledgements);
    assert!(verdict.is_clean() && verdict.found == 3000, "{verdict:?}");
}

#[test]
fn a_stream_that_cannot_be_had_is_an_error() {
    let stand = Stand::start(1);
    let load = PushLoad { topic: "nowhere".to_owned(), ..stand.subscribers(1, 1) };
    let error = subscribe(&load, &Stop::default()).unwrap_err().to_string();
    assert!(error.contains("404"), "{error}");
}
