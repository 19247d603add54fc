//! The documents for programs, read by what reads them.

use super::fake;
use report::{Documents, render};
use std::collections::BTreeSet;

fn text<'d>(documents: &'d Documents, path: &str) -> &'d str {
    let bytes = documents.get(path).unwrap_or_else(|| panic!("{path} is there"));
    std::str::from_utf8(bytes).expect("text")
}

fn first_of<'d>(documents: &'d Documents, folder: &str) -> (&'d str, &'d str) {
    let found = documents.0.iter().find(|(path, _)| path.starts_with(folder));
    let (path, _) = found.unwrap_or_else(|| panic!("something in {folder}"));
    (path, text(documents, path))
}

/// A line of comma-separated values.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => fields.last_mut().expect("never empty").push(other),
        }
    }
    fields
}

#[test]
fn cells_have_a_line_for_every_metric_measured_or_published() {
    let run = fake::of_report("ali", 5);
    let documents = render(&run);
    let mut lines = text(&documents, "cells.csv").lines().map(fields);
    let head = lines.next().expect("a head");
    assert_eq!(head.len(), 15);
    let column = |name: &str| head.iter().position(|field| field == name).expect("a column");
    let (target, mean, low, high) =
        (column("target"), column("mean"), column("low"), column("high"));
    let mut measured = 0;
    for line in lines {
        assert_eq!(line.len(), head.len(), "{line:?}");
        let value: f64 = line[mean].parse().expect("a number");
        if line[target] != "published" {
            measured += 1;
            let bounds = [low, high].map(|at| line[at].parse::<f64>().expect("a number"));
            assert!(bounds[0] <= value && value <= bounds[1], "{line:?}");
        }
    }
    let wanted: usize = run.analysis.cells.iter().map(|cell| cell.metrics.len()).sum();
    assert_eq!(measured, wanted);
}

#[test]
fn open_messaging_results_have_the_fields_of_that_project() {
    let documents = render(&fake::of_report("ibm", 4));
    let (_, json) = first_of(&documents, "omb/");
    let result: serde_json::Value = serde_json::from_str(json).expect("JSON");
    for name in ["workload", "driver"] {
        assert!(result[name].is_string(), "{name}");
    }
    for name in ["messageSize", "topics", "partitions", "producersPerTopic", "consumersPerTopic"] {
        assert!(result[name].is_u64(), "{name}");
    }
    for name in
        ["publishRate", "consumeRate", "backlog", "publishLatency99pct", "publishLatencyMax"]
    {
        assert_eq!(result[name].as_array().expect(name).len(), 4, "a sample a round: {name}");
    }
    for name in ["publishDelayLatencyAvg", "endToEndLatency9999pct"] {
        assert!(result[name].is_array(), "{name}");
    }
    let at = |name: &str| result[name].as_f64().expect(name);
    assert!(at("aggregatedPublishLatency50pct") <= at("aggregatedPublishLatency99pct"));
    assert!(at("aggregatedPublishLatency99pct") <= at("aggregatedPublishLatencyMax"));
    assert!(result["aggregatedPublishLatencyQuantiles"].as_object().expect("quantiles").len() > 3);
}

#[test]
fn what_was_only_read_is_no_rate_of_publishing() {
    let documents = render(&fake::of_report("ali", 2));
    let json = text(&documents, "omb/ali-consumer-highwater-001.json");
    let result: serde_json::Value = serde_json::from_str(json).expect("JSON");
    assert_eq!(result["publishRate"], serde_json::json!([0.0, 0.0]));
    let read = result["consumeRate"].as_array().expect("a sample a round");
    assert!(read.iter().all(|rate| rate.as_f64().is_some_and(|rate| rate > 0.0)), "{read:?}");
    assert_eq!(
        (&result["producersPerTopic"], &result["consumersPerTopic"]),
        (&0.into(), &1.into())
    );
    assert!(result["messageSize"].as_u64().is_some_and(|bytes| bytes > 0), "the mean of the mix");
}

#[test]
fn what_was_read_live_was_published_too() {
    let documents = render(&fake::of_report("x", 1));
    let json = text(&documents, "omb/x-push-highwater-001.json");
    let result: serde_json::Value = serde_json::from_str(json).expect("JSON");
    assert_eq!(result["publishRate"], result["consumeRate"]);
    assert_eq!(
        (&result["producersPerTopic"], &result["consumersPerTopic"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn emulated_samples_are_told_from_others_of_their_cell() {
    let mut run = fake::of_report("mif", 1);
    let mut emulated = run.analysis.cells.clone();
    emulated.iter_mut().for_each(|cell| cell.emulated = "ali-2018".to_owned());
    run.analysis.cells.extend(emulated);
    let documents = render(&run);
    let samples = text(&documents, "metrics.prom").lines().filter(|line| !line.starts_with('#'));
    let series: Vec<&str> = samples.filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
    assert_eq!(series.len(), series.iter().collect::<BTreeSet<_>>().len());
}

#[test]
fn percentile_files_rise_to_the_maximum_and_count_every_record() {
    let (_, documents) = fake::shared();
    let (path, text) = first_of(documents, "hgrm/");
    assert!(path.ends_with("-response.hgrm"), "{path}");
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().expect("a head").split_whitespace().collect();
    assert_eq!(head, ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]);
    let rows: Vec<Vec<f64>> = lines
        .clone()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_whitespace().map(|field| field.parse().expect("a number")).collect())
        .collect();
    assert!(rows.windows(2).all(|pair| pair[0][0] <= pair[1][0] && pair[0][2] <= pair[1][2]));
    let last = rows.last().expect("rows");
    assert_eq!((last[1], last[2]), (1.0, 600.0), "200 records in each of three rounds");
    let max = lines.clone().find(|line| line.starts_with("#[Max")).expect("a foot");
    assert!(max.contains(&format!("{:.3}", last[0])) && max.ends_with("600]"), "{max}");
}

#[test]
fn gauges_are_named_once_and_never_repeat_a_sample() {
    let (_, documents) = fake::shared();
    let text = text(documents, "metrics.prom");
    let kinds: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
    assert_eq!(kinds.len(), kinds.iter().collect::<BTreeSet<_>>().len());
    let samples: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.rsplit_once(' ').expect("a value").0)
        .collect();
    assert!(samples.len() > 1000);
    assert_eq!(samples.len(), samples.iter().collect::<BTreeSet<_>>().len());
}

#[test]
fn result_holds_the_analysis_and_can_be_read_again() {
    let (run, documents) = fake::shared();
    let result: serde_json::Value =
        serde_json::from_str(text(documents, "result.json")).expect("JSON");
    assert_eq!(result["format"], 1);
    let back: experiment::analysis::Analysis =
        serde_json::from_value(result["analysis"].clone()).expect("an analysis");
    assert_eq!(back.cells.len(), run.analysis.cells.len());
    assert_eq!(result["environment_hash"], run.environment.hash());
}
