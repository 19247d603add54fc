//! The explainers on what was published, and on made-up cells that they must and must not explain.

use crate::simulated::{round, size};
use experiment::analysis::analyse;
use experiment::catalogue;
use experiment::explain::{
    Cause, Explanation, Machine, Point, explain, explain_points, predicted_p50_ms, published,
};
use experiment::workload::Workload;

fn of_published(id: &str) -> Vec<Explanation> {
    let experiment = catalogue::experiment(id).expect("a published experiment");
    explain_points(id, "", &published(experiment), &Machine::default())
}

fn only(explanations: &[Explanation], cause: Cause) -> Option<&Explanation> {
    explanations.iter().find(|explanation| explanation.cause == cause)
}

#[test]
fn published_payload_rates_are_a_cap_of_thirty_mib_per_s() {
    let found = of_published("ibm-payload");
    let cap = only(&found, Cause::LinkCap).expect("a cap");
    assert!((28.0..31.0).contains(&cap.numbers["mib_per_s"]), "{cap:?}");
    assert!((cap.numbers["size_range"] - 500.0).abs() < 1e-9);
    assert!(cap.sentence.contains("about 29.5 MiB/s"), "{}", cap.sentence);
    assert_eq!(cap.cells.len(), 7);
}

#[test]
fn published_consumer_rates_are_a_link_of_one_megabit() {
    let found = of_published("ali-consumer");
    let cap = only(&found, Cause::LinkCap).expect("a cap");
    assert_eq!(cap.numbers["link_bits_per_s"], 1e6);
    assert!(cap.sentence.contains("3 of 5 cells are within 2 % of 1 Mbit/s"), "{}", cap.sentence);
}

#[test]
fn published_consumer_runtimes_wait_for_a_tick_of_eight_seconds() {
    // 16 seconds is the shortest runtime, and two ticks.
    let found = of_published("cs6-1");
    let tick = only(&found, Cause::QuantisedTimer).expect("a tick");
    assert!((7_700.0..8_300.0).contains(&tick.numbers["step_ms"]), "{tick:?}");
    assert!(tick.sentence.contains("2, 4, 7, 9 times"), "{}", tick.sentence);
    assert!(
        tick.sentence.contains("50,000 records take as many of these steps as 10,000"),
        "{}",
        tick.sentence
    );
}

#[test]
fn published_balancer_runtimes_follow_the_work_and_wait_for_no_tick() {
    assert_eq!(only(&of_published("cs6-4"), Cause::QuantisedTimer), None);
}

#[test]
fn the_queue_law_predicts_the_published_medians() {
    // Size, measured records per second, prediction of the document, published median.
    let rows = [
        (5000.0, 1317.662, 4663.0, 4588.0),
        (5000.0, 1349.692, 4552.0, 4542.0),
        (5000.0, 1353.088, 4541.0, 4534.0),
        (10000.0, 570.701, 3589.0, 3557.0),
        (10000.0, 554.763, 3692.0, 3709.0),
        (10000.0, 580.356, 3529.0, 3512.0),
        (10000.0, 549.532, 3727.0, 3742.0),
        (30000.0, 263.729, 4231.0, 4233.0),
        (30000.0, 272.495, 4095.0, 4129.0),
        (30000.0, 289.523, 3854.0, 3851.0),
        (30000.0, 252.310, 4422.0, 4462.0),
        (30000.0, 274.935, 4058.0, 4021.0),
    ];
    for (record_bytes, rate, predicted, median) in rows {
        let law = predicted_p50_ms(33_554_432.0, 16_384.0, record_bytes, rate);
        assert!((law - predicted).abs() <= 1.0, "{law} is not {predicted}");
        assert!((median / law - 1.0).abs() < 0.02, "{median} is not {law}");
    }
}

#[test]
fn published_producer_medians_beyond_the_knee_are_the_clients_queue() {
    let found = of_published("ali-producer");
    let queue = only(&found, Cause::ClientQueue).expect("a queue");
    assert_eq!(queue.cells.len(), 12, "{queue:?}");
    assert!(queue.numbers["worst"] < 0.02, "{queue:?}");
    // 5.2 to 8.3 MiB/s beyond the knee is no flat rate.
    assert_eq!(only(&found, Cause::LinkCap), None);
}

fn point(record_bytes: u32, metrics: &[(&str, f64)]) -> Point {
    Point {
        cell: size(record_bytes),
        workload: Workload { record_bytes, seconds: 2.0, ..Workload::default() },
        metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
    }
}

fn causes(points: &[Point], cores: f64) -> Vec<Cause> {
    let machine = Machine { cores, mhz: Vec::new() };
    explain_points("x", "highwater", points, &machine).iter().map(|found| found.cause).collect()
}

#[test]
fn rates_that_grow_with_size_are_no_cap() {
    let points: Vec<Point> = [100, 1000, 10_000]
        .map(|size| point(size, &[("mib_per_s", f64::from(size).sqrt())]))
        .to_vec();
    assert!(causes(&points, 0.0).is_empty());
}

#[test]
fn a_rate_that_was_only_offered_is_no_cap() {
    let offered = |size: u32| {
        let mut point = point(size, &[("throughput", 1000.0), ("mib_per_s", 10.0)]);
        point.workload.offered = 1000.0;
        point
    };
    assert!(causes(&[100, 1000, 10_000].map(offered), 0.0).is_empty());
}

#[test]
fn busy_clients_full_machines_and_neighbours_are_named_with_their_shares() {
    let busy = point(100, &[("client_busy_share", 0.97)]);
    let idle = point(200, &[("client_busy_share", 0.5), ("steal_share", 0.01)]);
    assert_eq!(causes(&[busy.clone(), idle.clone()], 2.0), [Cause::ClientBound]);
    let found = explain_points("x", "highwater", &[busy, idle.clone()], &Machine::default());
    assert!(found[0].sentence.contains("In 1 of 2 cells"), "{}", found[0].sentence);
    assert!(found[0].sentence.contains("97 %"));
    assert_eq!(found[0].cells, [size(100)]);

    let full =
        [("broker_cpu_share", 0.6), ("client_cpu_s_per_mrec", 2.0), ("throughput", 400_000.0)];
    assert_eq!(causes(&[point(100, &full)], 2.0), [Cause::MachineBound]);
    assert!(causes(&[point(100, &full)], 8.0).is_empty());
    let others = point(100, &[&full[..], &[("machine_busy_share", 0.99)]].concat());
    let found = explain_points("x", "", &[others], &Machine { cores: 8.0, mhz: Vec::new() });
    assert!(
        found[0].sentence.contains("99 % of the time, of which brokers and client 70 %"),
        "{found:?}"
    );

    let short = [("client_busy_share", 1.7), ("machine_busy_share", 1.05), ("runtime_ms", 20.0)];
    assert!(causes(&[point(100, &short)], 2.0).is_empty());

    assert_eq!(
        causes(&[idle.clone(), point(1, &[("steal_share", 0.08)])], 2.0),
        [Cause::NoisyNeighbour]
    );
    assert!(causes(&[idle], 2.0).is_empty());
}

#[test]
fn rounds_that_are_stopped_by_the_clock_wait_for_no_tick() {
    let lasting = |seconds: f64, records: u64| {
        let mut point =
            point(100, &[("runtime_ms", 1000.0 * seconds), ("records", records as f64)]);
        (point.workload.seconds, point.workload.records) = (seconds, 0);
        point
    };
    let cells = [(1.0, 10), (1.0, 30), (2.0, 50), (2.0, 200), (3.0, 40), (5.0, 90), (7.0, 400)];
    let by_the_clock = cells.map(|(seconds, records)| lasting(seconds, records));
    assert!(causes(&by_the_clock, 2.0).is_empty());
    let by_their_work = by_the_clock.map(|mut point| {
        point.workload.seconds = 0.0;
        point
    });
    assert_eq!(causes(&by_their_work, 2.0), [Cause::QuantisedTimer]);
}

#[test]
fn waiting_for_the_buffer_is_counted_by_producer() {
    let mut waiting = point(100, &[("blocked_ms", 4000.0)]);
    waiting.workload.producers = 4;
    assert_eq!(causes(&[waiting.clone()], 2.0), [Cause::ClientQueue]);
    waiting.workload.producers = 40;
    assert!(causes(&[waiting], 2.0).is_empty());
}

#[test]
fn a_falling_clock_is_explained_once_for_the_run() {
    let made = [round(size(100), "highwater", 0, &[("throughput", 1.0)])];
    let analysis = analyse(&made, None, 1);
    let clock = |mhz: &[f64]| {
        let machine = Machine { cores: 2.0, mhz: mhz.to_vec() };
        experiment::explain::explain_planned(&analysis, &[], &machine)
    };
    let falling = clock(&[3400.0, 3390.0, 3400.0, 3000.0, 2600.0, 2610.0]);
    assert_eq!(falling.len(), 1);
    assert!(falling[0].sentence.contains("from 3,395 to 2,605 MHz"), "{}", falling[0].sentence);
    assert!(clock(&[3400.0, 3390.0, 3395.0]).is_empty() && clock(&[]).is_empty());
}

#[test]
fn a_measured_run_is_explained_by_its_definitions() {
    let cell = |record_bytes: u32, number: u32| {
        let experiment = catalogue::experiment("ibm-payload").expect("published");
        let level = catalogue::factors_of(experiment, &size(record_bytes));
        let mut made = round(level, "highwater", 0, &[("mib_per_s", 118.0 + f64::from(number))]);
        made.experiment = "ibm-payload".to_owned();
        made.order = number;
        made
    };
    let made: Vec<_> =
        [1024, 10_240, 102_400].into_iter().zip(0..).map(|(s, n)| cell(s, n)).collect();
    let found = explain(&analyse(&made, None, 1));
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].target.as_str(), found[0].cause), ("highwater", Cause::LinkCap));
    assert!(found[0].sentence.contains("within 2 % of 1 Gbit/s"), "{}", found[0].sentence);
}
