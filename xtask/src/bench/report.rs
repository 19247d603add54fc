//! From the samples of a run to tables: on the terminal, and as Markdown for the documentation.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::bars::{Bar, Limit, Medians};
use super::figures::{Sample, SeatName, Summary, summary};
use super::machine::Machine;
use super::rows::{ROWS, Row};

/// The generated part of the page lies between these lines.
const BEGIN: &str = "<!-- bench peer: generated from here -->";
const END: &str = "<!-- bench peer: to here -->";

/// One figure of one row, both seats beside each other.
struct Line<'a> {
    row: &'a Row,
    bar: &'a Bar,
    reference: Option<Summary>,
    candidate: Option<Summary>,
    /// Medians of the floor, and of the candidate in the row that the bar names.
    floor: Option<f64>,
    other_row: Option<f64>,
    durability: String,
}

/// All that a table says.
pub struct Report<'a> {
    /// What was measured on.
    pub machine: &'a Machine,
    /// All samples, the discarded ones included.
    pub samples: &'a [Sample],
}

impl Report<'_> {
    fn lines(&self) -> Vec<Line<'_>> {
        let measured = |row: &&Row| self.samples.iter().any(|s| s.row == row.name && s.round > 0);
        let bars = |row: &'static Row| row.bars.iter().map(move |bar| self.line(row, bar));
        ROWS.iter().filter(measured).flat_map(bars).collect()
    }

    fn line<'a>(&self, row: &'a Row, bar: &'a Bar) -> Line<'a> {
        let of = |seat| summary(self.samples, row.name, seat, bar.figure);
        let candidates = |s: &&Sample| s.row == row.name && s.seat == SeatName::Candidate;
        let durability = self.samples.iter().find(candidates).map(|s| s.durability.clone());
        let other_row = match bar.limit {
            Limit::TimesRow(other, _) => {
                summary(self.samples, other, SeatName::Candidate, bar.figure)
            }
            _ => None,
        };
        Line {
            row,
            bar,
            reference: of(SeatName::Reference),
            candidate: of(SeatName::Candidate),
            floor: of(SeatName::Floor).map(|floor| floor.median),
            other_row: other_row.map(|other| other.median),
            durability: durability.unwrap_or_default(),
        }
    }

    fn name_of(&self, seat: SeatName) -> &str {
        self.samples.iter().find(|s| s.seat == seat).map_or("-", |s| s.target.as_str())
    }

    /// Heads and cells of the table.
    fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let heads = [
            "figure",
            self.name_of(SeatName::Reference),
            self.name_of(SeatName::Candidate),
            "ratio",
            "to reach",
            "verdict",
            "durability",
            "rounds",
            "spread",
        ];
        let mut rows = Vec::new();
        let mut last = "";
        for line in self.lines() {
            if line.row.name != last {
                last = line.row.name;
                let mut title = vec![String::new(); heads.len()];
                title[0] = format!("{} (`{}`)", line.row.title, line.row.name);
                rows.push(title);
            }
            rows.push(line.cells());
        }
        (heads.map(str::to_owned).to_vec(), rows)
    }

    /// For a terminal: columns padded with blanks.
    pub fn text(&self) -> String {
        let (heads, rows) = self.table();
        // Title lines may run on over the other columns.
        let is_title = |row: &[String]| row[1..].iter().all(String::is_empty);
        let mut widths: Vec<usize> = heads.iter().map(|head| head.chars().count()).collect();
        for row in rows.iter().filter(|row| !is_title(row)) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for row in std::iter::once(&heads).chain(&rows) {
            let indent = if is_title(row) || row == &heads { "" } else { "  " };
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            text += &format!("{indent}{}\n", line.trim_end());
        }
        text
    }

    /// For the documentation.
    pub fn markdown(&self) -> String {
        let (heads, rows) = self.table();
        let mut text = format!("Measured on {}.\n", self.machine.describe());
        text += &format!("Commit {}.\n\n", self.commits());
        text += &format!("| {} |\n", heads.join(" | "));
        text += &format!("|{}\n", "---|".repeat(heads.len()));
        for row in rows {
            let title = row[1..].iter().all(String::is_empty);
            let first = if title { format!("**{}**", row[0]) } else { row[0].clone() };
            text += &format!("| {first} | {} |\n", row[1..].join(" | "));
        }
        text
    }

    fn commits(&self) -> String {
        let mut commits: Vec<&str> = self.samples.iter().map(|s| s.commit.as_str()).collect();
        commits.sort_unstable();
        commits.dedup();
        commits.join(", ")
    }

    /// How many bars were met, and how many there are; one that could not be measured is not met.
    pub fn score(&self) -> (usize, usize) {
        let lines = self.lines();
        let met = lines.iter().filter(|line| line.met() == Some(true)).count();
        (met, lines.iter().filter(|line| line.bar.limit != Limit::Shown).count())
    }
}

impl Line<'_> {
    fn met(&self) -> Option<bool> {
        let (reference, candidate) = (self.reference?.median, self.candidate?.median);
        let (floor, other_row) = (self.floor, self.other_row);
        self.bar.limit.met(Medians { candidate, reference, floor, other_row })
    }

    fn cells(&self) -> Vec<String> {
        let shown = |summary: Option<Summary>| summary.map_or("-".into(), |s| number(s.median));
        let ratio = self.reference.zip(self.candidate).filter(|(r, _)| r.median != 0.0);
        let spread = |summary: Option<Summary>| {
            summary.map_or("-".into(), |s| format!("{:.0} %", s.spread * 100.0))
        };
        let rounds = self.candidate.or(self.reference).map_or(0, |s| s.rounds);
        vec![
            self.bar.title.to_owned(),
            shown(self.reference),
            shown(self.candidate),
            ratio.map_or("-".into(), |(r, c)| format!("{}×", number(c.median / r.median))),
            limit_text(self.bar.limit, self.floor),
            match self.met() {
                Some(true) => "met".to_owned(),
                Some(false) => "missed".to_owned(),
                None if self.bar.limit == Limit::Shown => String::new(),
                None => "not measured".to_owned(),
            },
            self.durability.clone(),
            rounds.to_string(),
            format!("{} / {}", spread(self.reference), spread(self.candidate)),
        ]
    }
}

fn limit_text(limit: Limit, floor: Option<f64>) -> String {
    match limit {
        Limit::AtMost(most) => format!("≤ {most}"),
        Limit::AtMostOrFloor(most) => match floor {
            Some(floor) if floor > most => {
                let above = Limit::above_floor(most, Some(floor));
                format!("≤ {} (the floor, {}, + 20 %)", number(above), number(floor))
            }
            Some(floor) => format!("≤ {most} (the floor: {})", number(floor)),
            None => format!("≤ {most}"),
        },
        Limit::TimesRow(row, times) => format!("≤ {times}× `{row}`"),
        Limit::TimesReference(times) => format!("≥ {times}×"),
        Limit::TimesReferenceOrDevice(times, share) => {
            let device = floor.map_or("not measured".to_owned(), number);
            format!("≥ {times}×, or {:.0} % of the device ({device})", share * 100.0)
        }
        Limit::Shown => String::new(),
    }
}

/// About three digits that mean something.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 || size == 0.0 => format!("{value:.2}"),
        size if size >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.5}"),
    }
}

/// Replaces the generated part of the page.
pub fn publish(page: &Path, markdown: &str) -> Result<()> {
    let text = fs::read_to_string(page).with_context(|| format!("no page {}", page.display()))?;
    fs::write(page, replaced(&text, markdown).context("the page has lost its markers")?)?;
    Ok(())
}

fn replaced(page: &str, generated: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{generated}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figures::Figures;

    fn machine() -> Machine {
        Machine {
            cpu: "2 × x".into(),
            memory_mib: 1024.0,
            kernel: "6".into(),
            disk: "ext4 on d".into(),
            fdatasync_ms_median: 1.0,
            fdatasync_ms_p99: 2.0,
        }
    }

    fn sample(seat: SeatName, cpu: f64, mib: f64) -> Sample {
        Sample {
            row: "native-16k".into(),
            seat,
            target: format!("{seat:?}"),
            durability: "page cache".into(),
            round: 1,
            at_unix_s: 0.0,
            commit: "abc".into(),
            figures: Figures::from([("cpu_s_per_gb".into(), cpu), ("mib_per_s".into(), mib)]),
        }
    }

    #[test]
    fn a_missed_bar_says_so() {
        let samples =
            [sample(SeatName::Reference, 6.0, 100.0), sample(SeatName::Candidate, 1.5, 150.0)];
        let report = Report { machine: &machine(), samples: &samples };
        assert_eq!(report.score(), (1, 2));
        let text = report.markdown();
        assert!(text.contains("| broker CPU-s/GB | 6.00 | 1.50 | 0.250× | ≤ 2 | met |"), "{text}");
        assert!(text.contains("| 100 | 150 | 1.50× | ≥ 2× | missed |"), "{text}");
    }

    #[test]
    fn a_bar_that_was_not_measured_is_not_met() {
        let samples = [sample(SeatName::Reference, 6.0, 100.0)];
        let report = Report { machine: &machine(), samples: &samples };
        assert_eq!(report.score(), (0, 2));
        assert!(report.markdown().contains("| 100 | - | - | ≥ 2× | not measured |"));
    }

    #[test]
    fn the_floor_is_told_beside_the_bar() {
        let limit = Limit::AtMostOrFloor(55.0);
        assert_eq!(limit_text(limit, None), "≤ 55");
        assert_eq!(limit_text(limit, Some(50.0)), "≤ 55 (the floor: 50.0)");
        assert_eq!(limit_text(limit, Some(60.0)), "≤ 72.0 (the floor, 60.0, + 20 %)");
        assert_eq!(limit_text(Limit::TimesRow("a", 1.3), None), "≤ 1.3× `a`");
    }

    #[test]
    fn only_the_part_between_the_markers_changes() {
        let page = format!("head\n{BEGIN}\nold\n{END}\ntail\n");
        let new = replaced(&page, "new").unwrap();
        assert_eq!(new, format!("head\n{BEGIN}\n\nnew\n{END}\ntail\n"));
        assert_eq!(replaced("no markers", "new"), None);
    }
}
