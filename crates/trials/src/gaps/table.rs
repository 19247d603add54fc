//! The table of the trial: median and worst gap of each row and product.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::fault::Fault;
use super::subject::Product;
use super::writers::{Gap, REQUEST};

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    ControllerDisk,
    DataDisk,
    FullDisk,
    FollowerPaused,
    CutOff,
    LeaderPaused,
}

impl Row {
    /// Rows that a run of this fault measures.
    pub fn of(fault: Fault) -> &'static [Row] {
        match fault {
            Fault::ControllerDisk => &[Row::ControllerDisk],
            Fault::DataDisk => &[Row::DataDisk],
            Fault::FullDisk => &[Row::FullDisk],
            Fault::Pause => &[Row::FollowerPaused, Row::LeaderPaused],
            Fault::CutOff => &[Row::CutOff],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Row::ControllerDisk => "whole disk of the active controller hangs",
            Row::DataDisk => "data disk hangs, metadata on another one",
            Row::FullDisk => "leader's disk full, others have room",
            Row::FollowerPaused => "follower paused",
            Row::CutOff => "broker cut off",
            Row::LeaderPaused => "leader paused, records sent to the next leader",
        }
    }

    /// Longest median and longest gap to reach, seconds.
    fn bounds(self) -> (u64, u64) {
        match self {
            Row::ControllerDisk => (3, 5),
            Row::DataDisk | Row::FullDisk => (2, 3),
            Row::FollowerPaused | Row::CutOff | Row::LeaderPaused => (3, 4),
        }
    }

    /// Whether a gap is above the bound of the longest one.
    pub fn is_late(self, gap: Gap) -> bool {
        gap.length > Duration::from_secs(self.bounds().1)
    }
}

/// Gaps of all runs, by row and product.
#[derive(Default)]
pub struct Table {
    cells: BTreeMap<Row, Vec<Cell>>,
}

struct Cell {
    product: Product,
    /// In ascending order.
    gaps: Vec<Gap>,
    /// Longest gap of a writer with a request in flight at the sick leader.
    in_flight: Gap,
}

impl Cell {
    /// The middle gap; the longer one of two.
    fn median(&self) -> Gap {
        self.gaps[self.gaps.len() / 2]
    }

    fn worst(&self) -> Gap {
        *self.gaps.last().expect("a cell has a gap")
    }
}

impl Table {
    /// Adds the gap of one run, and that of its writers with requests in flight.
    pub fn add(&mut self, row: Row, product: Product, gap: Gap, in_flight: Gap) {
        let cells = self.cells.entry(row).or_default();
        match cells.iter_mut().find(|cell| cell.product == product) {
            Some(cell) => {
                cell.gaps.push(gap);
                cell.gaps.sort_unstable();
                cell.in_flight = cell.in_flight.max(in_flight);
            }
            None => cells.push(Cell { product, gaps: vec![gap], in_flight }),
        }
    }

    /// A sentence for each row of Highwater above its bounds. The median counts from three runs on.
    pub fn late(&self) -> Vec<String> {
        let mut late = Vec::new();
        for (row, cells) in &self.cells {
            let (median, worst) = row.bounds();
            for cell in cells.iter().filter(|cell| cell.product == Product::Highwater) {
                if row.is_late(cell.worst()) {
                    late.push(format!("{}: worst {}, bound {worst} s", row.name(), cell.worst()));
                }
                if cell.gaps.len() >= 3 && cell.median().length > Duration::from_secs(median) {
                    late.push(format!(
                        "{}: median {}, bound {median} s",
                        row.name(),
                        cell.median()
                    ));
                }
            }
        }
        late
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| longest time without an acknowledgement | product | runs | median | worst | bounds |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        for (row, cells) in &self.cells {
            let (median, worst) = row.bounds();
            for cell in cells {
                let (name, product, runs) = (row.name(), cell.product.name(), cell.gaps.len());
                let figures = format!("{} | {}", cell.median(), cell.worst());
                writeln!(f, "| {name} | {product} | {runs} | {figures} | {median} s; {worst} s |")?;
                if *row == Row::LeaderPaused {
                    let name = format!("… requests in flight, time-out {REQUEST:?}");
                    writeln!(f, "| {name} | {product} | {runs} | | {} | |", cell.in_flight)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(seconds: u64) -> Gap {
        Gap { length: Duration::from_secs(seconds), is_open: false }
    }

    #[test]
    fn the_table_has_the_median_and_the_worst_of_each_product() {
        let mut table = Table::default();
        for seconds in [4, 1, 2] {
            table.add(Row::CutOff, Product::Highwater, gap(seconds), gap(0));
        }
        table.add(Row::CutOff, Product::ApacheKafka, Gap { is_open: true, ..gap(20) }, gap(0));
        let text = table.to_string();
        assert!(text.contains("| Highwater | 3 | 2.00 s | 4.00 s | 3 s; 4 s |"), "{text}");
        assert!(text.contains("| 1 | ≥ 20.00 s | ≥ 20.00 s |"), "{text}");
        assert!(table.late().is_empty(), "Kafka's gaps have no bound: {:?}", table.late());
    }

    #[test]
    fn a_median_above_its_bound_is_late_from_three_runs_on() {
        let mut table = Table::default();
        table.add(Row::DataDisk, Product::Highwater, gap(3), gap(0));
        assert!(table.late().is_empty());
        for _ in 0..2 {
            table.add(Row::DataDisk, Product::Highwater, gap(3), gap(0));
        }
        assert_eq!(table.late().len(), 1, "{:?}", table.late());
        table.add(Row::DataDisk, Product::Highwater, gap(4), gap(0));
        assert_eq!(table.late().len(), 2, "{:?}", table.late());
    }
}
