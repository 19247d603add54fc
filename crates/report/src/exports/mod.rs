//! Documents for programs: each in a format that others read.

pub(crate) mod cells;
pub(crate) mod hgrm;
mod latencies;
pub(crate) mod omb;
pub(crate) mod prometheus;
pub(crate) mod result;

use experiment::analysis::CellAnalysis;

/// A file's name for a cell of an experiment: its number among the experiment's cells, because levels may be any text.
fn file_stem(cells: &[CellAnalysis], cell: &CellAnalysis) -> String {
    let same =
        |other: &&CellAnalysis| other.experiment == cell.experiment && other.target == cell.target;
    let place = cells.iter().filter(same).position(|other| std::ptr::eq(other, cell)).unwrap_or(0);
    let emulated = if cell.emulated.is_empty() { "" } else { "-emulated" };
    format!("{}-{}{emulated}-{:03}", cell.experiment, cell.target, place + 1)
}
