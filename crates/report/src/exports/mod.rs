//! Documents for programs: each in a format that others read.

pub(crate) mod cells;
pub(crate) mod hgrm;
mod latencies;
pub(crate) mod omb;
pub(crate) mod prometheus;
pub(crate) mod result;

use experiment::analysis::CellAnalysis;

/// A file's name for a cell of an experiment: its number among the experiment's cells, because levels may be any text.
/// Targets whose names become the same count together, so that none takes another's place.
fn file_stem(cells: &[CellAnalysis], cell: &CellAnalysis) -> String {
    let target = file_name(&cell.target);
    let same = |other: &&CellAnalysis| {
        other.experiment == cell.experiment && file_name(&other.target) == target
    };
    let place = cells.iter().filter(same).position(|other| std::ptr::eq(other, cell)).unwrap_or(0);
    let emulated = if cell.emulated.is_empty() { "" } else { "-emulated" };
    format!("{}-{target}{emulated}-{:03}", cell.experiment, place + 1)
}

/// A name with nothing in it that file systems treat in their own way: targets may be addresses and paths.
pub(crate) fn file_name(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    text.chars().map(plain).collect()
}
