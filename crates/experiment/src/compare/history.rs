//! Runs over the years, one file a cell, one row a run: comma-separated values as Apache Otava's importer reads them
//! (a header, a time with its zone, numbers in the columns that a test names), for change point detection.

use crate::analysis::{Better, CellAnalysis, better};
use std::collections::BTreeMap;

/// Which run it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// When it began, such as `2026-11-22 00:14:03 +0000`.
    pub time: String,
    /// The commit of what was measured.
    pub commit: String,
    /// Hash of the [`Environment`](crate::environment::Environment).
    pub environment: String,
}

/// One run's row of one cell's file.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// The file's name, such as `ali-producer.record_bytes=100.highwater.csv`: letters, digits and `.=_-` only.
    pub file: String,
    /// Which run.
    pub stamp: Stamp,
    /// The median of each metric over the rounds.
    pub metrics: BTreeMap<String, f64>,
}

/// The columns before the metrics: the first is the time, the others are attributes.
const FIRST: [&str; 3] = ["time", "commit", "environment"];

/// A row for every cell that measured something.
pub fn history(cells: &[CellAnalysis], stamp: &Stamp) -> Vec<History> {
    let measured = cells.iter().filter(|cell| !cell.metrics.is_empty());
    measured
        .map(|cell| History {
            file: file(cell),
            stamp: stamp.clone(),
            metrics: cell
                .metrics
                .iter()
                .map(|(name, summary)| (name.clone(), summary.median))
                .collect(),
        })
        .collect()
}

fn file(cell: &CellAnalysis) -> String {
    let levels = cell.cell.iter().map(|(factor, level)| format!("{factor}={level}"));
    let emulated = (!cell.emulated.is_empty()).then(|| cell.emulated.clone());
    let parts: Vec<String> = std::iter::once(cell.experiment.clone())
        .chain(levels)
        .chain(std::iter::once(cell.target.clone()))
        .chain(emulated)
        .collect();
    let allowed = |c: char| c.is_ascii_alphanumeric() || ".=_-".contains(c);
    let name: String = parts.join(".").chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    format!("{name}.csv")
}

impl History {
    /// The file's text with this row at its end; `existing` is the text so far, or empty. A metric that the file does
    /// not have yet gets a column at the end of the header, and one that this run lacks is `nan`: the importer
    /// reads that, and rejects an empty field.
    pub fn append_to(&self, existing: &str) -> String {
        let mut lines = existing.lines().filter(|line| !line.is_empty());
        let header: Vec<String> = match lines.next() {
            Some(header) => header.split(',').map(str::to_owned).collect(),
            None => FIRST.map(str::to_owned).to_vec(),
        };
        let more = self.metrics.keys().filter(|metric| !header.contains(metric)).cloned();
        let columns: Vec<String> = header.iter().cloned().chain(more).collect();
        let missing = ",nan".repeat(columns.len() - header.len());
        let mut text = columns.join(",") + "\n";
        lines.for_each(|line| text += &format!("{line}{missing}\n"));
        text + &columns.iter().map(|column| self.field(column)).collect::<Vec<_>>().join(",") + "\n"
    }

    fn field(&self, column: &str) -> String {
        match column {
            "time" => quoted(&self.stamp.time),
            "commit" => quoted(&self.stamp.commit),
            "environment" => quoted(&self.stamp.environment),
            metric => self.metrics.get(metric).map_or("nan".to_owned(), f64::to_string),
        }
    }

    /// This cell's test for `otava.yaml`, indented below `tests:`; `folder` is where the file is. Metrics that are
    /// neither good nor bad are left out.
    pub fn test(&self, folder: &str) -> String {
        let name = self.file.trim_end_matches(".csv");
        let mut yaml = format!(
            "  {name:?}:\n    type: csv\n    file: {:?}\n    time_column: time\n    attributes: [commit, \
             environment]\n    metrics:\n",
            format!("{folder}/{}", self.file)
        );
        for metric in self.metrics.keys() {
            let direction = match better(metric) {
                Better::Higher => 1,
                Better::Lower => -1,
                Better::Neither => continue,
            };
            yaml += &format!(
                "      {metric}: {{column: {metric}, direction: {direction}, scale: 1}}\n"
            );
        }
        yaml
    }
}

/// A field without what would end it: commas, quotes and line ends become spaces.
fn quoted(text: &str) -> String {
    text.replace([',', '"', '\n', '\r'], " ")
}
