//! What needs no log behind it: pacing, counting, stopping.

use client::ProducerConfig;
use perf::load::{LoadError, ProduceLoad, Sink, Sizes, Stop, Strategy, produce};
use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

fn load(sink: &Sink) -> ProduceLoad {
    ProduceLoad {
        sizes: Sizes::Fixed(100),
        time: Duration::ZERO,
        ..ProduceLoad::new(&sink.bootstrap(), "t")
    }
}

#[test]
fn so_many_records_are_sent_and_acknowledged() {
    let sink = Sink::start(3).unwrap();
    let load = ProduceLoad {
        producers: 3,
        records: 10_001,
        strategy: Strategy::RoundRobin,
        stamp: Some(1),
        ..load(&sink)
    };
    let report = produce(&load, &Stop::default()).unwrap();
    assert_eq!((report.sent, report.acknowledged, report.records), (10_001, 10_001, 10_001));
    assert_eq!((report.bytes, report.failed), (1_000_100, 0));
    assert_eq!(report.response.len(), 10_001);
    assert_eq!(report.acknowledgements.count(), 10_001);
    assert_eq!(report.partitions.values().sum::<u64>(), 10_001);
    assert!(report.partitions.values().all(|count| (3_332..=3_336).contains(count)));
    assert_eq!(report.metrics.records, 10_001);
    assert!(report.records_per_s > 0.0 && report.elapsed > Duration::ZERO);
}

#[test]
fn what_is_sent_is_in_the_file_before_it_is_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept");
    let sink = Sink::start_at("127.0.0.1:0", 1, Some(&path)).unwrap();
    let load = ProduceLoad { records: 1_000, stamp: Some(7), ..load(&sink) };
    let report = produce(&load, &Stop::default()).unwrap();
    assert_eq!((report.acknowledged, report.failed), (1_000, 0));
    let mut written = vec![0; 256 << 10];
    File::open(&path).unwrap().read_exact(&mut written).unwrap();
    let end = written.iter().rposition(|byte| *byte != 0).expect("not all are zeros");
    assert!((100_000..200_000).contains(&end), "{end}: a thousand records of 100 bytes");
}

#[test]
fn a_rate_is_kept_and_the_warm_up_does_not_count() {
    let sink = Sink::start(1).unwrap();
    let run = |time_ms| {
        let load = ProduceLoad {
            producers: 2,
            offered: 2_000.0,
            warmup: Duration::from_millis(800),
            time: Duration::from_millis(time_ms),
            ..load(&sink)
        };
        let report = produce(&load, &Stop::default()).unwrap();
        assert_eq!(report.sent + report.unsent, 2 * (800 + time_ms));
        assert_eq!(report.response.len(), report.records);
        assert!(report.sending >= Duration::from_millis(time_ms - 10), "{:?}", report.sending);
        assert!(report.records_per_s <= 2_000.0, "{}", report.records_per_s);
        report
    };
    // On a machine that is too busy, some of the warm-up's are sent behind it, and some not at all; on one that pauses
    // for long, all of them, or none behind it: a longer run is tried then.
    let mut reports = [500, 500, 3_000, 10_000, 30_000].into_iter().map(run);
    let report = reports.find(|report| (1..report.sent).contains(&report.records));
    let report = report.expect("records of the warm-up do not count, and others do");
    assert!(report.records_per_s > 0.0, "{}", report.records_per_s);
}

#[test]
fn more_than_can_be_sent_ends_in_time_and_is_said_so() {
    let sink = Sink::start(1).unwrap();
    let time = Duration::from_millis(300);
    let load =
        ProduceLoad { offered: 1e9, warmup: Duration::from_millis(100), time, ..load(&sink) };
    let report = produce(&load, &Stop::default()).unwrap();
    assert!(report.sending < Duration::from_secs(60), "{:?}", report.sending);
    assert!(report.unsent > 0 && report.sent + report.unsent == 400_000_000);
    // Nothing was sent if the machine paused for all of the time.
    assert!(report.sent == 0 || report.records_per_s > 0.0);
    assert!(report.records_per_s < 1e9);
}

#[test]
fn a_stop_ends_it_with_a_report() {
    let sink = Sink::start(1).unwrap();
    let load = ProduceLoad { time: Duration::from_secs(600), offered: 100.0, ..load(&sink) };
    let stop = Stop::default();
    let began = Instant::now();
    let report = std::thread::scope(|scope| {
        let running = scope.spawn(|| produce(&load, &stop));
        stop.stop();
        running.join().unwrap().unwrap()
    });
    assert!(report.stopped && began.elapsed() < Duration::from_secs(60));
    assert_eq!(report.sent, report.acknowledged);
}

#[test]
fn a_record_that_is_too_large_fails_and_the_rest_goes_on() {
    let sink = Sink::start(1).unwrap();
    let sizes = Sizes::Mix(vec![(0.5, 10), (0.5, 3_000_000)]);
    let load = ProduceLoad { sizes, records: 100, ..load(&sink) };
    let report = produce(&load, &Stop::default()).unwrap();
    assert_eq!(report.acknowledged + report.failed, 100);
    assert!(report.failed > 0 && report.acknowledged > 0);
    assert!(report.errors[0].contains("exceeds the limit"), "{:?}", report.errors);
}

#[test]
fn waiting_for_memory_is_noted() {
    let sink = Sink::start(1).unwrap();
    let producer = ProducerConfig {
        batch_bytes: 1_000,
        buffer_bytes: 2_000,
        in_flight_max: 1,
        linger: Duration::ZERO,
        ..ProducerConfig::default()
    };
    let load = ProduceLoad { producer, records: 2_000, ..load(&sink) };
    let report = produce(&load, &Stop::default()).unwrap();
    assert_eq!(report.acknowledged, 2_000);
    assert!(!report.blocked.is_empty() && report.metrics.blocked > Duration::ZERO);
}

#[test]
fn without_acknowledgements_all_counts_once_it_is_written() {
    let sink = Sink::start(1).unwrap();
    let buffer_bytes = 1_000_000;
    let producer =
        ProducerConfig { acks: 0, idempotence: false, buffer_bytes, ..ProducerConfig::default() };
    let load = ProduceLoad { producer, records: 300_000, sizes: Sizes::Fixed(500), ..load(&sink) };
    let report = produce(&load, &Stop::default()).unwrap();
    assert_eq!((report.acknowledged, report.failed), (300_000, 0));
    assert!(report.metrics.requests > 0);
}

#[test]
fn a_load_without_an_end_or_a_cluster_is_refused() {
    let sink = Sink::start(1).unwrap();
    let endless = produce(&load(&sink), &Stop::default());
    assert!(matches!(endless, Err(LoadError::Usage(_))));
}
