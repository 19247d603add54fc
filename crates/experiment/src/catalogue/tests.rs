//! Every definition is whole: its cells are workloads, its claims predicates, its charts drawable.

use super::*;
use crate::claims;
use crate::round::METRICS;

const PROFILES: [ProfileName; 3] = [ProfileName::Quick, ProfileName::Standard, ProfileName::Full];

#[test]
fn every_file_is_a_report() {
    for (id, text) in FILES {
        match parse(id, text) {
            Ok(report) => assert_eq!(report.id, id),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn ids_are_unique() {
    let mut ids: Vec<&str> = experiments().map(|one| one.id.as_str()).collect();
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), all);
}

#[test]
fn every_factor_is_a_setting() {
    let known = serde_json::to_value(Workload::default()).unwrap();
    for experiment in experiments() {
        for factor in &experiment.factors {
            let setting = factor.starts_with("broker_settings.") || known.get(factor).is_some();
            assert!(setting, "{}: {factor} is no setting", experiment.id);
        }
    }
}

#[test]
fn every_cell_of_every_profile_is_a_workload() {
    for experiment in experiments() {
        for profile in PROFILES {
            assert!(
                experiment.profile.contains_key(profile.name())
                    || experiment.same_runs_as.is_some(),
                "{}: no {profile}",
                experiment.id
            );
            let cells = cells(experiment, profile).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(cells.is_empty(), experiment.same_runs_as.is_some(), "{}", experiment.id);
            for cell in cells {
                let workload = workload(experiment, profile, &toml::Table::new(), &cell);
                let workload = workload.unwrap_or_else(|error| panic!("{error}"));
                assert!(
                    workload.seconds > 0.0 || workload.records > 0 || workload.kills > 0,
                    "{}, {profile}: nothing ends {cell:?}",
                    experiment.id
                );
                assert!(workload.replication <= workload.brokers, "{}: {cell:?}", experiment.id);
                for factor in &experiment.factors {
                    assert_eq!(
                        level_of(&workload, factor),
                        cell[factor],
                        "{}, {profile}: {factor}",
                        experiment.id
                    );
                }
            }
        }
    }
}

#[test]
fn a_grid_and_extra_cells_set_factors_alone() {
    for experiment in experiments() {
        let of_profiles = experiment.profile.values().flat_map(|own| own.grid.keys());
        let extra = experiment.extra_cells.iter().flat_map(Levels::keys);
        for name in experiment.grid.keys().chain(of_profiles).chain(extra) {
            assert!(experiment.factors.contains(name), "{}: {name} is no factor", experiment.id);
        }
        assert!(
            PROFILES.iter().filter(|p| experiment.profile.contains_key(p.name())).count()
                == experiment.profile.len()
        );
    }
}

#[test]
fn a_grids_cells_are_in_the_order_of_its_factors() {
    let cells = cells(experiment("ali-producer").unwrap(), ProfileName::Quick).unwrap();
    let of = |at: usize| (cells[at]["record_bytes"].number(), cells[at]["offered"].number());
    assert_eq!(of(0), (Some(100.0), Some(100.0)));
    assert_eq!(of(1), (Some(100.0), Some(250.0)));
    assert_eq!(of(34), (Some(30_000.0), Some(8000.0)));
}

fn is_metric(name: &str) -> bool {
    METRICS.iter().any(|(metric, _, _)| *metric == name)
}

#[test]
fn every_published_value_is_of_a_factor_or_a_metric() {
    for experiment in experiments() {
        for row in &experiment.published {
            for (name, level) in row {
                let factor = experiment.factors.contains(name);
                assert!(
                    factor || name == "counts" || is_metric(name) && level.number().is_some(),
                    "{}: {name}",
                    experiment.id
                );
            }
            let metrics = row.keys().filter(|name| !experiment.factors.contains(name)).count();
            assert!(metrics > 0, "{}: a row without a number: {row:?}", experiment.id);
        }
    }
}

#[test]
fn every_published_row_is_of_another_cell() {
    for experiment in experiments() {
        let rows = &experiment.published;
        for (at, row) in rows.iter().enumerate() {
            let own = factors_of(experiment, row);
            let same = rows[..at].iter().any(|other| factors_of(experiment, other) == own);
            assert!(!same, "{}: {own:?} twice", experiment.id);
        }
    }
}

#[test]
fn every_column_and_chart_is_of_known_names() {
    for experiment in experiments() {
        let id = &experiment.id;
        for column in &experiment.columns {
            assert!(is_metric(column) || column == "counts", "{id}: column {column}");
        }
        assert!(!experiment.charts.is_empty(), "{id} has no chart");
        for chart in &experiment.charts {
            let factor = |name: &String| experiment.factors.contains(name);
            let counts = chart.form == crate::definition::Form::Counts;
            assert!(
                factor(&chart.x) || counts && ["partition", "broker"].contains(&chart.x.as_str()),
                "{id}: x {}",
                chart.x
            );
            assert!(chart.series.iter().all(factor), "{id}: series {:?}", chart.series);
            assert!(chart.only.keys().all(factor), "{id}: only {:?}", chart.only);
            let axes = if chart.form == crate::definition::Form::TwoAxes { 2 } else { 1 };
            assert_eq!(chart.y.len(), axes, "{id}: {}", chart.title);
            for y in &chart.y {
                assert!(is_metric(y) || counts && y == "counts", "{id}: y {y}");
            }
        }
    }
}

#[test]
fn every_chart_shows_a_cell_of_the_quick_profile() {
    for experiment in experiments() {
        let from = experiment.same_runs_as.as_deref().and_then(super::experiment);
        let cells = cells(from.unwrap_or(experiment), ProfileName::Quick).unwrap();
        for chart in &experiment.charts {
            let shown = |cell: &&Levels| chart.only.iter().all(|(k, v)| cell.get(k) == Some(v));
            assert!(cells.iter().any(|cell| shown(&cell)), "{}: {}", experiment.id, chart.title);
        }
    }
}

#[test]
fn every_claim_is_a_predicate_over_known_names() {
    for experiment in experiments() {
        for claim in &experiment.claims {
            let place = format!("{} {}", experiment.id, claim.id);
            let predicate = claims::predicate(claim);
            let predicate = predicate.unwrap_or_else(|error| panic!("{place}: {error}"));
            assert!(predicate.unless.keys().all(|name| is_metric(name)), "{place}");
            let names = claims::names(&predicate.test);
            for factor in names.factors {
                let known = experiment.factors.contains(&factor) || is_metric(&factor);
                assert!(known || factor == "offered_mib_per_s", "{place}: {factor}");
            }
            for (other, factor) in names.of_others {
                let other = super::experiment(&other).expect("an experiment");
                assert!(other.factors.contains(&factor), "{place}: {factor}");
            }
            assert!(names.metrics.iter().all(|name| is_metric(name)), "{place}");
        }
    }
}

#[test]
fn a_pattern_names_what_it_says() {
    let ids = |pattern: &str| -> Vec<String> {
        select(pattern).unwrap().iter().map(|one| one.id.clone()).collect()
    };
    assert_eq!(ids("ibm-fast"), ["ibm-fast"]);
    assert_eq!(ids("ibm"), ids("ibm-*"));
    assert_eq!(ids("all").len(), experiments().count());
    assert_eq!(ids("*").len(), experiments().count());
    assert!(select("nothing").is_err());
}

#[test]
fn what_is_wrong_is_named() {
    let experiment = experiment("ibm-payload").unwrap();
    let cell: Levels = [("record_bytes".to_owned(), Level::Text("big".to_owned()))].into();
    let error = workload(experiment, ProfileName::Quick, &toml::Table::new(), &cell).unwrap_err();
    let CatalogueError::Setting { experiment, key, .. } = &error else { panic!("{error}") };
    assert_eq!((experiment.as_str(), key.as_str()), ("ibm-payload", "record_bytes"));
}

fn published(experiment: &str, cell: &[(&str, f64)], metric: &str) -> f64 {
    let rows = &super::experiment(experiment).unwrap().published;
    let is = |row: &&Levels| cell.iter().all(|(k, v)| row.get(*k) == Some(&Level::Number(*v)));
    rows.iter().find(is).unwrap_or_else(|| panic!("{experiment}: {cell:?}"))[metric]
        .number()
        .unwrap()
}

#[test]
fn published_numbers_are_those_of_the_reports() {
    assert_eq!(published("ibm-resilient", &[("brokers", 6.0)], "throughput"), 1_177_056.0);
    assert_eq!(published("ibm-fast", &[("brokers", 3.0)], "throughput_per_producer"), 192_325.0);
    assert_eq!(published("ibm-payload", &[("record_bytes", 512_000.0)], "mib_per_s"), 30.49);
    let cell = [("record_bytes", 10_000.0), ("offered", 4000.0)];
    assert_eq!(published("ali-producer", &cell, "throughput"), 580.356);
    assert_eq!(published("ali-producer", &cell, "p999_ms"), 3997.0);
    let cell = [("record_bytes", 30_000.0), ("offered", 8000.0)];
    assert_eq!(published("ali-producer", &cell, "max_ms"), 5195.0);
    assert_eq!(published("ali-consumer", &[("fetch_bytes", 30_000.0)], "records"), 100_001.0);
    assert_eq!(published("ali-consumer", &[("fetch_bytes", 5000.0)], "fetch_ms"), 1_555_393.0);
    assert_eq!(published("cs6-3", &[("brokers", 5.0)], "runtime_ms"), 30_799.0);
}

/// Sums over the tables as they were published: a digit that goes wrong in any row changes one.
#[test]
fn published_columns_add_up_to_what_the_reports_do() {
    for (id, metric, wanted) in [
        ("ibm-resilient", "throughput", 3_201_974.0),
        ("ibm-resilient", "scaling_efficiency", 3.078),
        ("ibm-fast", "throughput", 5_769_925.0),
        ("ibm-payload", "throughput", 35_094.0),
        ("ibm-payload", "mib_per_s", 204.97),
        ("ali-producer", "throughput", 41_251.737),
        ("ali-producer", "mib_per_s", 121.9),
        ("ali-producer", "avg_ms", 48_973.22),
        ("ali-producer", "max_ms", 66_473.0),
        ("ali-producer", "p50_ms", 50_243.0),
        ("ali-producer", "p95_ms", 55_057.0),
        ("ali-producer", "p99_ms", 56_895.0),
        ("ali-producer", "p999_ms", 59_172.0),
        ("ali-consumer", "data_mib", 918.57),
        ("ali-consumer", "mib_per_s", 0.5487),
        ("ali-consumer", "throughput", 298.7074),
        ("ali-consumer", "rebalance_ms", 163.0),
        ("ali-consumer", "fetch_ms", 8_506_567.0),
        ("ali-consumer", "fetch_records_per_s", 298.7133),
        ("cs6-1", "runtime_ms", 387_197.0),
        ("cs6-2", "runtime_ms", 320_205.0),
        ("cs6-3", "runtime_ms", 316_397.0),
        ("cs6-4", "runtime_ms", 3_955_303.0),
        ("cs6-5", "runtime_ms", 3_918_353.0),
        ("x-latency-law", "predicted_p50_ms", 48_953.0),
        ("x-latency-law", "p50_ms", 48_880.0),
    ] {
        let rows = &experiment(id).unwrap().published;
        let sum: f64 = rows.iter().filter_map(|row| row[metric].number()).sum();
        assert!((sum - wanted).abs() < 1e-6 * wanted, "{id} {metric}: {sum}");
    }
}

#[test]
fn the_same_runs_have_the_same_numbers_wherever_they_stand() {
    for (part, whole) in [
        ("ali-emulated", "ali-producer"),
        ("ali-consumer-emulated", "ali-consumer"),
        ("ibm-payload-emulated", "ibm-payload"),
    ] {
        let published = |id: &str| {
            let experiment = experiment(id).unwrap();
            let without_share = |row: &Levels| {
                let mut row = row.clone();
                row.remove("offered_share");
                row
            };
            experiment.published.iter().map(without_share).collect::<Vec<Levels>>()
        };
        let whole = published(whole);
        assert!(published(part).iter().all(|row| whole.contains(row)), "{part}");
    }
}

#[test]
fn published_tables_are_whole() {
    for (id, rows) in [
        ("ibm-resilient", 3),
        ("ibm-fast", 2),
        ("ibm-payload", 7),
        ("ali-producer", 35),
        ("ali-consumer", 5),
        ("cs6-1", 10),
        ("cs6-2", 10),
        ("cs6-3", 10),
        ("cs6-4", 10),
        ("cs6-5", 10),
        ("cs6-6", 12),
        ("cs6-7", 12),
        ("x-latency-law", 12),
        ("x-proxy", 4),
    ] {
        assert_eq!(experiment(id).unwrap().published.len(), rows, "{id}");
    }
}

#[test]
fn a_table_has_the_same_numbers_in_every_row() {
    for experiment in experiments() {
        let metrics = |row: &Levels| -> Vec<String> {
            row.keys().filter(|name| !experiment.factors.contains(name)).cloned().collect()
        };
        let by_kind = |row: &Levels| (row.get("kind").cloned(), metrics(row));
        for pair in experiment.published.windows(2) {
            let (a, b) = (by_kind(&pair[0]), by_kind(&pair[1]));
            assert!(a.0 != b.0 || a.1 == b.1, "{}: {a:?}, {b:?}", experiment.id);
        }
    }
}

#[test]
fn levels_go_over_the_profile_and_that_over_what_is_shared() {
    let experiment = experiment("ali-emulated").unwrap();
    let cell = &cells(experiment, ProfileName::Quick).unwrap()[0];
    let changed: toml::Table = "era = '4'\noffered = 1".parse().unwrap();
    let workload = workload(experiment, ProfileName::Quick, &changed, cell).unwrap();
    assert_eq!(workload.buffer_bytes, 8_388_608);
    assert_eq!(workload.emulate, "ali-2018");
    assert_eq!(workload.era, crate::workload::Era::V4);
    assert_eq!(Level::Number(workload.offered), cell["offered"]);
}

#[test]
fn a_number_of_bytes_is_so_many_records() {
    let experiment = experiment("mif-grid").unwrap();
    let full = |bytes: f64| {
        let cells = cells(experiment, ProfileName::Full).unwrap();
        let cell = cells.iter().find(|cell| cell["record_bytes"] == Level::Number(bytes)).unwrap();
        workload(experiment, ProfileName::Full, &toml::Table::new(), cell).unwrap().records
    };
    assert_eq!(full(64.0), 156_250_000);
    assert_eq!(full(1024.0), 9_765_625);
}

#[test]
fn cells_need_what_their_levels_say() {
    let needs_of = |id: &str, level: (&str, &str)| -> Vec<Need> {
        let experiment = experiment(id).unwrap();
        let cells = cells(experiment, ProfileName::Quick).unwrap();
        let is = |cell: &&Levels| cell.get(level.0).is_some_and(|own| own.to_string() == level.1);
        let cell = cells.iter().find(is).unwrap();
        needs(
            experiment,
            &workload(experiment, ProfileName::Quick, &toml::Table::new(), cell).unwrap(),
        )
    };
    assert_eq!(needs_of("cs6-1", ("delivery", "pull")), []);
    assert_eq!(needs_of("cs6-1", ("delivery", "sse")), [Need::Gateway]);
    assert_eq!(needs_of("cs6-1", ("delivery", "web-socket")), [Need::Gateway, Need::WebSocket]);
    assert_eq!(needs_of("cs6-3", ("brokers", "1")), []);
    assert!(needs_of("cs6-3", ("brokers", "2")).contains(&Need::Cluster));
    assert_eq!(needs_of("cs6-4", ("via", "direct")), []);
    assert_eq!(needs_of("cs6-4", ("via", "gateway")), [Need::Gateway]);
    assert_eq!(needs_of("cs6-6", ("via", "gateway")), [Need::Cluster, Need::Gateway]);
    assert_eq!(needs_of("cs6-6", ("via", "direct")), []);
    assert_eq!(needs_of("x-console", ("console", "off")), []);
    assert_eq!(needs_of("x-console", ("console", "page-open")), [Need::Gateway]);
    assert_eq!(needs_of("x-proxy", ("via", "gateway")), [Need::Gateway]);
    assert_eq!(needs_of("ibm-resilient", ("brokers", "3")), [Need::Cluster]);
    assert_eq!(needs_of("mif-grid", ("acks", "all")), [Need::Cluster]);
    assert_eq!(needs_of("mif-rtt", ("in_flight", "1")), []);
}

#[test]
fn a_mix_of_sizes_costs_what_its_mean_does() {
    let experiment = experiment("ali-consumer-emulated").unwrap();
    let cell = &cells(experiment, ProfileName::Quick).unwrap()[0];
    let workload = workload(experiment, ProfileName::Quick, &toml::Table::new(), cell).unwrap();
    assert!((workload.mean_bytes() - 1922.0).abs() < 0.1, "{}", workload.mean_bytes());
    // 300 records of that size through 1 Mbit/s.
    let cost = cost_seconds(&workload);
    assert!((4.0..6.0).contains(&cost), "{cost}");
}

#[test]
fn quick_experiments_measure_two_minutes_at_most() {
    let cost = |one| cost_of(one, ProfileName::Quick, 2).unwrap();
    for experiment in experiments() {
        // On one target.
        assert!(cost(experiment) / 2.0 <= 120.0, "{}: {}", experiment.id, cost(experiment) / 2.0);
    }
}
