//! A made-up run of the whole catalogue, so that pages can be looked at before there is a real one. Its numbers mean
//! nothing; it is never part of the program.

use experiment::analysis::analyse;
use experiment::catalogue::{self, ProfileName};
use experiment::claims::{self, Rows};
use experiment::definition::{Experiment, Level, Levels};
use experiment::environment::Environment;
use experiment::explain::{Cause, Explanation};
use experiment::plan::Waiting;
use experiment::round::{Durability, METRICS, Purpose, Round, Verdict};
use report::{Documents, Judged, Run, Target, render};
use std::collections::BTreeMap;
use std::sync::LazyLock;

const TARGETS: [&str; 2] = ["highwater", "apache-kafka"];

/// A run of three rounds and its documents, made once for all tests that only look.
pub fn shared() -> &'static (Run, Documents) {
    static SHARED: LazyLock<(Run, Documents)> = LazyLock::new(|| {
        let run = run(3);
        let documents = render(&run);
        (run, documents)
    });
    &SHARED
}

/// A run of one report only.
pub fn of_report(id: &str, rounds: u32) -> Run {
    only(rounds, |experiment| catalogue::report_of(&experiment.id).is_some_and(|r| r.id == id))
}

/// The whole catalogue, `rounds` of each cell on two targets.
pub fn run(rounds: u32) -> Run {
    only(rounds, |_| true)
}

/// A run of one report on one target only.
pub fn alone(id: &str, rounds: u32) -> Run {
    let mut run = of_report(id, rounds);
    run.targets.truncate(1);
    run.rounds.retain(|round| round.target.starts_with("highwater"));
    run.findings.retain(|judged| judged.target != "apache-kafka");
    run.analysis = analyse(&run.rounds, None, 7);
    run
}

fn only(rounds: u32, wanted: impl Fn(&Experiment) -> bool) -> Run {
    let mut made = Maker { random: fastrand::Rng::with_seed(7), rounds: Vec::new() };
    for experiment in
        catalogue::experiments().filter(|one| one.same_runs_as.is_none() && wanted(one))
    {
        let cells = catalogue::cells(experiment, ProfileName::Quick).expect("checked by its tests");
        for (place, cell) in cells.into_iter().enumerate() {
            // Cells that wait leave holes in tables and pictures.
            if place % 9 != 8 {
                made.cell(experiment, &cell, rounds);
            }
        }
    }
    made.noise(rounds);
    let analysis = analyse(&made.rounds, Some("apache-kafka"), 7);
    let mut reports = catalogue::reports().to_vec();
    reports.iter_mut().for_each(|report| report.experiments.retain(&wanted));
    reports.retain(|report| !report.experiments.is_empty());
    Run {
        title: "Four Kafka reports, run again".to_owned(),
        profile: "quick".to_owned(),
        seed: 7,
        commit: "08f8304".to_owned(),
        reproduce: vec!["highwater lab run all --profile quick --seed 7".to_owned()],
        targets: vec![
            Target {
                name: "highwater".to_owned(),
                description: "Highwater 0.1.0, one broker, durability=page-cache.".to_owned(),
            },
            Target {
                name: "apache-kafka".to_owned(),
                description: "Apache Kafka 4.3.1 in KRaft mode, one broker, default settings.".to_owned(),
            },
        ],
        findings: findings(&analysis),
        explanations: vec![Explanation {
            experiment: "ibm-payload".to_owned(),
            target: String::new(),
            cause: Cause::LinkCap,
            cells: Vec::new(),
            sentence: "29.5 MiB/s whatever the size, within 8 % over 500 times: something lets through so many bytes a second."
                .to_owned(),
            numbers: BTreeMap::new(),
        }],
        environment: environment(),
        waiting: waiting(),
        rounds: made.rounds,
        analysis,
        reports,
    }
}

fn findings(analysis: &experiment::analysis::Analysis) -> Vec<Judged> {
    let mut subjects = vec![(String::new(), Rows::published(catalogue::experiments()))];
    subjects.extend(TARGETS.map(|name| (name.to_owned(), Rows::measured(analysis, name))));
    let mut all = Vec::new();
    for experiment in catalogue::experiments() {
        for (target, rows) in &subjects {
            let found = claims::evaluate_all(experiment, rows);
            all.extend(found.into_iter().map(|finding| Judged { target: target.clone(), finding }));
        }
    }
    all
}

fn waiting() -> Vec<Waiting> {
    let cell = |brokers: f64| Levels::from([("brokers".to_owned(), Level::Number(brokers))]);
    let of = |brokers| Waiting {
        experiment: "ibm-resilient".to_owned(),
        cell: cell(brokers),
        target: "highwater".to_owned(),
        needs: Vec::new(),
        why: "It has one broker; the cell asks for more.".to_owned(),
    };
    vec![of(3.0), of(6.0), of(9.0)]
}

fn environment() -> Environment {
    let pairs = [
        ("cpu.model", "Example CPU at 2.9 GHz"),
        ("cpu.cores", "2"),
        ("memory.total_mib", "24,048"),
        ("kernel.version", "6.1.0"),
        ("load.average", "0.31"),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

struct Maker {
    random: fastrand::Rng,
    rounds: Vec<Round>,
}

impl Maker {
    fn cell(&mut self, experiment: &Experiment, cell: &Levels, rounds: u32) {
        let matches = |row: &&Levels| experiment.factors.iter().all(|f| row.get(f) == cell.get(f));
        let published = experiment.published.iter().find(matches).cloned().unwrap_or_default();
        for round in 0..rounds {
            for (place, target) in TARGETS.iter().enumerate() {
                let metrics = experiment
                    .columns
                    .iter()
                    .map(|metric| (metric.clone(), self.metric(metric, &published, cell, place)))
                    .collect();
                let counts = self.counts(&published, experiment);
                self.push(experiment, cell, target, round, metrics, counts);
            }
        }
    }

    fn metric(&mut self, metric: &str, published: &Levels, cell: &Levels, target: usize) -> f64 {
        let base = published.get(metric).and_then(Level::number).unwrap_or_else(|| {
            let size: f64 = cell.values().filter_map(Level::number).map(|n| (n + 1.0).ln()).sum();
            if metric.ends_with("share") { 0.5 } else { 3.0 + size }
        });
        let better =
            if metric.contains("throughput") || metric.contains("mib") { 1.0 } else { -1.0 };
        let faster = if target == 0 { 1.25f64.powf(better) } else { 1.0 };
        base * faster * (1.0 + 0.03 * (self.random.f64() - 0.5))
    }

    fn counts(&mut self, published: &Levels, experiment: &Experiment) -> Vec<u64> {
        let Some(Level::Text(text)) = published.get("counts") else {
            let about =
                experiment.charts.iter().any(|c| c.form == experiment::definition::Form::Counts);
            return if about { vec![1990, 2010, 2004, 1996, 2000] } else { Vec::new() };
        };
        text.split_whitespace().filter_map(|c| c.parse::<u64>().ok()).map(|c| c / 10).collect()
    }

    fn push(
        &mut self,
        experiment: &Experiment,
        cell: &Levels,
        target: &str,
        round: u32,
        metrics: BTreeMap<String, f64>,
        counts: Vec<u64>,
    ) {
        let order = self.rounds.len() as u32;
        let odd = self.random.u32(..40);
        let verdict = Verdict {
            checked: odd != 0,
            sent: 20_000,
            acknowledged: 20_000,
            found: 20_000 - u64::from(odd == 1),
            lost: u64::from(odd == 1),
            ..Verdict::default()
        };
        self.rounds.push(Round {
            experiment: experiment.id.clone(),
            cell: cell.clone(),
            target: target.to_owned(),
            round,
            order,
            purpose: Purpose::Cell,
            started_ms: 1_790_000_000_000 + u64::from(order) * 1500,
            emulated: if experiment.id.contains("emulated") {
                "ali-2018".to_owned()
            } else {
                String::new()
            },
            deviations: if experiment.fewer_brokers {
                vec!["1 broker instead of 3".to_owned()]
            } else {
                Vec::new()
            },
            metrics,
            histograms: histograms(&mut self.random),
            counts,
            verdict,
            durability: Durability::PageCache,
            warnings: Vec::new(),
            failure: None,
        });
    }

    /// The canary, and the target against itself.
    fn noise(&mut self, rounds: u32) {
        let template = self.rounds[0].clone();
        for round in 0..rounds.max(6) {
            for target in ["highwater#a", "highwater#b", "highwater", "apache-kafka"] {
                let purpose =
                    if target.contains('#') { Purpose::SameTarget } else { Purpose::Canary };
                let metrics = METRICS.iter().map(|(name, _, _)| {
                    ((*name).to_owned(), 1000.0 * (1.0 + 0.02 * (self.random.f64() - 0.5)))
                });
                self.rounds.push(Round {
                    target: target.to_owned(),
                    round,
                    order: self.rounds.len() as u32,
                    purpose,
                    metrics: metrics.collect(),
                    ..template.clone()
                });
            }
        }
    }
}

/// Latencies with a long tail, as base64 of HdrHistogram's V2 serialization.
fn histograms(random: &mut fastrand::Rng) -> BTreeMap<String, String> {
    use base64::Engine;
    use hdrhistogram::serialization::{Serializer, V2Serializer};
    let mut histogram =
        hdrhistogram::Histogram::<u64>::new_with_bounds(1, 60_000_000, 3).expect("bounds");
    for _ in 0..200 {
        histogram.record(500 + (1.0 / (random.f64() + 0.001) * 300.0) as u64).expect("in bounds");
    }
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(&histogram, &mut bytes).expect("to memory");
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    BTreeMap::from([("response".to_owned(), text)])
}
