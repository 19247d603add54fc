//! `cargo xt bench gateway`: what stands in front of brokers, measured with its clients on this machine: requests over
//! HTTP, streams, the proxy, the console. One command, one table.
//!
//! Every round has a broker, a gateway and a proxy of its own, on a fresh folder; the first round is discarded. `rows.rs`
//! says what is to be reached, `stand.rs` what runs, `work.rs` what is done. Not a test of correctness: it wants the
//! machine for itself.

mod rows;
mod stand;
mod work;

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;

use super::bars::{Bar, Limit, Medians};
use super::figures::{Figures, Sample, SeatName, summary};
use super::machine::Machine;
use crate::highwater;
use crate::repository::repository;
use rows::{ROWS, Row};
use stand::Programs;

/// What to measure.
#[derive(Debug, Args)]
pub struct Gateway {
    /// Only these rows, separated by commas (see --list)
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Counted rounds of each row, behind a discarded one
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// A tenth of the volume and one round: to see that everything runs, not to conclude
    #[arg(long)]
    quick: bool,
    /// Begin no further row after this many minutes
    #[arg(long, default_value_t = 40)]
    limit_minutes: u64,
    /// Where the rounds go (default: target/bench/TIME)
    #[arg(long)]
    out: Option<PathBuf>,
    /// Print the rows and end
    #[arg(long)]
    list: bool,
}

/// Measures, and prints the table.
pub fn measure(arguments: &Gateway) -> Result<()> {
    if arguments.list {
        ROWS.iter().for_each(|row| println!("{:<14} {}", row.name, row.title));
        return Ok(());
    }
    for name in &arguments.rows {
        ensure!(ROWS.iter().any(|row| row.name == name), "no row {name}: see --list");
    }
    let programs = Programs { highwater: highwater::binary()?, load: stand::build_load()? };
    let machine = Machine::look(&std::env::temp_dir())?;
    let folder = format!("target/bench/{:.0}", peer::procfs::unix_s());
    let out = arguments.out.clone().unwrap_or_else(|| repository().join(folder));
    fs::create_dir_all(&out)?;
    eprintln!("{}\nrounds go to {}", machine.describe(), out.display());
    let mut run = Run {
        programs,
        quick: arguments.quick,
        rounds: if arguments.quick { 1 } else { arguments.rounds },
        commit: super::commit()?,
        file: File::create(out.join("rounds.jsonl"))?,
        samples: Vec::new(),
    };
    let wanted = |row: &&Row| {
        arguments.rows.is_empty() || arguments.rows.iter().any(|name| name == row.name)
    };
    let (began, limit) = (Instant::now(), Duration::from_secs(arguments.limit_minutes * 60));
    let mut failed = Vec::new();
    for row in ROWS.iter().filter(wanted) {
        eprintln!("[{:>4} s] {}: {}", began.elapsed().as_secs(), row.name, row.title);
        if began.elapsed() > limit {
            eprintln!("  left out: the time is up");
            failed.push(row.name);
        } else if let Err(error) = run.row(row) {
            eprintln!("  failed: {error:#}");
            failed.push(row.name);
        }
    }
    let table = table(&run.samples);
    println!("{}\n\n{table}", machine.describe());
    fs::write(out.join("table.md"), &table)?;
    ensure!(failed.is_empty(), "rows that failed or were left out: {}", failed.join(", "));
    Ok(())
}

/// A measurement under way.
struct Run {
    programs: Programs,
    quick: bool,
    rounds: u32,
    commit: String,
    file: File,
    samples: Vec<Sample>,
}

impl Run {
    /// Round 0 is discarded; a quick run has none.
    fn row(&mut self, row: &Row) -> Result<()> {
        for round in u32::from(self.quick)..=self.rounds {
            let figures = work::round(&self.programs, row.work, self.quick || round == 0)?;
            self.keep(row, round, figures)?;
        }
        Ok(())
    }

    fn keep(&mut self, row: &Row, round: u32, figures: Figures) -> Result<()> {
        let shown = row.bars.iter().filter_map(|bar| {
            figures.get(bar.figure).map(|value| format!("{} {value:.3}", bar.figure))
        });
        eprintln!("  round {round} {}", shown.collect::<Vec<_>>().join(", "));
        let sample = Sample {
            row: row.name.to_owned(),
            seat: SeatName::Candidate,
            target: "Highwater".to_owned(),
            durability: "fsync".to_owned(),
            round,
            at_unix_s: peer::procfs::unix_s(),
            commit: self.commit.clone(),
            figures,
        };
        writeln!(self.file, "{}", serde_json::to_string(&sample)?)?;
        self.samples.push(sample);
        Ok(())
    }
}

/// Medians beside what is to be reached, as Markdown.
fn table(samples: &[Sample]) -> String {
    let mut lines = vec![
        "| row | figure | to reach | median | spread | |".to_owned(),
        "|---|---|--:|--:|--:|---|".to_owned(),
    ];
    for row in ROWS {
        for bar in row.bars {
            let Some(found) = summary(samples, row.name, SeatName::Candidate, bar.figure) else {
                continue;
            };
            let standing = match met(bar, found.median) {
                Some(true) => "met",
                Some(false) => "**missed**",
                None => "",
            };
            lines.push(format!(
                "| `{}` {} | {} | {} | {} | {:.0} % | {standing} |",
                row.name,
                row.title,
                bar.title,
                wanted(bar.limit),
                number(found.median),
                found.spread * 100.0
            ));
        }
    }
    lines.join("\n") + "\n"
}

fn met(bar: &Bar, median: f64) -> Option<bool> {
    // Nothing is compared with here: what a figure is to be at least is what `reference` would be, once.
    bar.limit.met(Medians { candidate: median, reference: 1.0, floor: None, other_row: None })
}

fn wanted(limit: Limit) -> String {
    match limit {
        Limit::AtMost(most) => format!("≤ {}", number(most)),
        Limit::TimesReference(least) => format!("≥ {}", number(least)),
        _ => String::new(),
    }
}

/// Three digits that matter.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        some if some >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(row: &str, round: u32, figure: &str, value: f64) -> Sample {
        Sample {
            row: row.to_owned(),
            seat: SeatName::Candidate,
            target: "Highwater".to_owned(),
            durability: "fsync".to_owned(),
            round,
            at_unix_s: 0.0,
            commit: String::new(),
            figures: [(figure.to_owned(), value)].into(),
        }
    }

    #[test]
    fn medians_stand_beside_what_is_to_be_reached() {
        let rates = [9e9, 29_000.0, 31_000.0, 33_000.0];
        let samples: Vec<Sample> = (0..)
            .zip(rates)
            .map(|(round, rate)| sample("post-256", round, "requests_per_s", rate))
            .chain([sample("idle", 1, "each_kib", 7.5)])
            .collect();
        let table = table(&samples);
        assert!(table.contains("| ≥ 30000 | 31000 | 13 % | met |"), "{table}");
        assert!(table.contains("| ≤ 6.00 | 7.50 | 0 % | **missed** |"), "{table}");
        assert_eq!(table.lines().count(), 4, "{table}");
    }

    #[test]
    fn rows_have_names_of_their_own_and_something_to_reach() {
        for (at, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..at].iter().all(|other| other.name != row.name), "{}", row.name);
            assert!(row.bars.iter().any(|bar| met(bar, 1.0).is_some()), "{}", row.name);
        }
    }
}
