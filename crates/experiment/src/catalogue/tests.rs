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
                    workload.seconds > 0.0 || workload.records > 0,
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
            assert!(factor(&chart.x) || counts && chart.x == "partition", "{id}: x {}", chart.x);
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
            let (factors, metrics) = claims::names(&predicate.test);
            for factor in factors {
                let known = experiment.factors.contains(&factor) || factor == "offered_mib_per_s";
                assert!(known, "{place}: {factor} is no factor");
            }
            assert!(metrics.iter().all(|name| is_metric(name)), "{place}: {metrics:?}");
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
