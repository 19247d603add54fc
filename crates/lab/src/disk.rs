//! Whether the disk has room for what a run writes. Temporary data goes where `TMPDIR` says.

use anyhow::{Result, ensure};
use experiment::plan::{Plan, PlannedCell};
use experiment::workload::Workload;

/// With less than this free no round is begun, bytes: a round whose size is not known may write a few GB.
const FREE_MIN_BYTES: u64 = 4 << 30;
/// Bytes of a GiB.
const GIB: f64 = (1u64 << 30) as f64;

/// Fails if the largest round of a plan would not find room.
pub fn has_room_for(plan: &Plan) -> Result<()> {
    let largest = plan.steps.iter().map(|step| plan.cell(step)).max_by_key(|cell| needed(cell));
    largest.map_or(Ok(()), has_room_for_cell)
}

/// Fails if a round of a cell would not find room.
pub fn has_room_for_cell(cell: &PlannedCell) -> Result<()> {
    let (free, needed) = (free_bytes()?, needed(cell));
    ensure!(
        free >= needed,
        "only {:.1} GiB are free where temporary data goes ({}); {} needs {:.0} GiB: free some, or set TMPDIR",
        free as f64 / GIB,
        std::env::temp_dir().display(),
        cell.experiment,
        needed as f64 / GIB
    );
    Ok(())
}

/// Bytes that shall be free before a round of a cell.
fn needed(cell: &PlannedCell) -> u64 {
    FREE_MIN_BYTES.saturating_add(known_bytes(&cell.workload))
}

/// What a round writes, as far as that can be said before: nothing of a producer that sends as much as is taken.
fn known_bytes(workload: &Workload) -> u64 {
    let records = match workload.records {
        0 => workload.offered * (workload.seconds + workload.warmup_seconds),
        records => records as f64,
    };
    let copies = f64::from(workload.replication.max(1));
    (records * f64::from(workload.record_bytes) * copies) as u64
}

/// Bytes that are free where temporary data goes.
fn free_bytes() -> Result<u64> {
    let stat = rustix::fs::statvfs(std::env::temp_dir())?;
    Ok(stat.f_bavail * stat.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_copy_of_every_record_needs_room() {
        let ten_gb = Workload {
            records: 10_000_000,
            record_bytes: 1000,
            replication: 3,
            ..Workload::default()
        };
        assert_eq!(known_bytes(&ten_gb), 30_000_000_000);
        let paced = Workload {
            records: 0,
            offered: 100.0,
            seconds: 9.0,
            warmup_seconds: 1.0,
            record_bytes: 10,
            replication: 1,
            ..Workload::default()
        };
        assert_eq!(known_bytes(&paced), 10_000);
        assert_eq!(known_bytes(&Workload { offered: 0.0, records: 0, ..paced }), 0);
    }
}
