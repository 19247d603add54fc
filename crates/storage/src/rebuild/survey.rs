//! Reading every batch of a partition's folder: which are whole, and what is not there.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use model::{BatchHeader, LeaderEpoch, Offset};

use crate::disk::{Disk, OpenMode};
use crate::error::Context;
use crate::log::zeros::may_end_before;
use crate::names::{LOG, base_offset, file_name};
use crate::scan::{BatchScan, ScanError, next_batch_behind, only_zeros};
use crate::{SealedSegment, StorageError};

/// Records that are not there any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The first offset.
    pub from: Offset,
    /// The offset behind the last one.
    pub to: Offset,
    /// Bytes of the file that are no batch; 0 where they are missing.
    pub bytes: u64,
    /// The segment's file, and where in it.
    pub at: Option<(PathBuf, u64)>,
    /// Why, in words.
    pub reason: String,
}

/// What a partition's folder holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The first offset of the first whole batch, and the offset behind the last; `None` without one.
    pub range: Option<(Offset, Offset)>,
    /// The base of the first segment.
    pub first_base: Option<Offset>,
    /// Whole batches.
    pub batches: u64,
    /// Their records, without the markers of transactions.
    pub records: u64,
    /// Markers of transactions.
    pub markers: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is damaged or missing, in the order of the offsets.
    pub lost: Vec<Lost>,
    /// Bytes of an incomplete write at the end, behind which nothing is whole.
    pub tail_bytes: u64,
    /// Offsets between segments that no batch has, although nothing says that they were compacted.
    pub gaps: Vec<(Offset, Offset)>,
    /// Where each leader epoch begins, as the batches have them; they may contradict each other.
    pub(crate) epochs: Vec<(Offset, LeaderEpoch)>,
    /// Where the whole batches are.
    pub(crate) runs: Vec<Run>,
    /// Bytes of the largest segment.
    pub(crate) segment_bytes_max: u64,
}

/// Whole batches one behind the other in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The base in the segment's name.
    pub(crate) base: Offset,
    /// Bytes of the file.
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Survey {
    /// The offset behind the last whole batch; `otherwise` without one.
    pub fn end(&self, otherwise: Offset) -> Offset {
        self.range.map_or(otherwise, |(_, end)| end)
    }

    fn take(&mut self, base: Offset, position: u64, header: &BatchHeader) {
        let first = self.range.map_or(header.base_offset, |(first, _)| first);
        self.range = Some((first, header.next_offset()));
        self.batches += 1;
        let count = u64::from(header.record_count.unsigned_abs());
        match header.is_control() {
            true => self.markers += count,
            false => self.records += count,
        }
        self.bytes += u64::from(header.size_bytes);
        if self.epochs.last().is_none_or(|(_, epoch)| *epoch != header.leader_epoch) {
            self.epochs.push((header.base_offset, header.leader_epoch));
        }
        let to = position + u64::from(header.size_bytes);
        match self.runs.last_mut() {
            Some(run) if run.base == base && run.to == position => run.to = to,
            _ => self.runs.push(Run { base, from: position, to }),
        }
    }
}

/// What is known of a folder that is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expectation {
    /// The log starts here.
    pub(crate) start: Option<Offset>,
    /// From here on no offset is missing.
    pub(crate) dense_from: Option<Offset>,
    /// Below it the log was compacted.
    pub(crate) cleaned_below: Offset,
    /// Segments that must be there.
    pub(crate) sealed: Vec<SealedSegment>,
    /// Records were acknowledged up to here.
    pub(crate) end: Option<Offset>,
}

/// Reads the folder. Changes nothing. A folder that is missing holds nothing.
pub(crate) fn survey(
    disk: &dyn Disk,
    dir: &Path,
    known: &Expectation,
) -> Result<Survey, StorageError> {
    let bases = bases(disk, dir)?;
    let mut reading = Reading { disk, dir, known, due: known.start, survey: Survey::default() };
    let sizes: BTreeMap<Offset, u64> = bases
        .iter()
        .map(|base| {
            let path = dir.join(file_name(*base, LOG));
            Ok((*base, disk.size(&path).during("open", &path)?))
        })
        .collect::<Result<_, StorageError>>()?;
    reading.survey.segment_bytes_max = sizes.values().copied().max().unwrap_or(0);
    for (number, base) in bases.iter().enumerate() {
        let next = bases.get(number + 1).copied();
        reading.segment(*base, sizes[base], next)?;
    }
    reading.end(&sizes);
    Ok(reading.survey)
}

fn bases(disk: &dyn Disk, dir: &Path) -> Result<Vec<Offset>, StorageError> {
    match disk.list(dir) {
        Ok(names) => Ok(names.iter().filter_map(|name| base_offset(name, LOG)).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).during("list", dir),
    }
}

struct Reading<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    known: &'a Expectation,
    /// The offset that is due; `None` before the first batch of a log whose start is not known.
    due: Option<Offset>,
    survey: Survey,
}

/// Bytes that are no batch, until the next one that is.
struct Broken {
    position: u64,
    reason: String,
}

impl Reading<'_> {
    fn segment(
        &mut self,
        base: Offset,
        size: u64,
        next_base: Option<Offset>,
    ) -> Result<(), StorageError> {
        let path = self.dir.join(file_name(base, LOG));
        let file = self.disk.open(&path, OpenMode::Read).during("open", &path)?;
        let limit = next_base.unwrap_or(Offset(i64::MAX));
        let mut scan = BatchScan::new(&*file, 0, size);
        let mut broken: Option<Broken> = None;
        let mut is_first = true;
        self.due.get_or_insert(base);
        self.survey.first_base.get_or_insert(base);
        loop {
            let position = scan.position();
            let reason = match scan.next() {
                Ok(None) => break,
                Ok(Some((_, header, _))) => {
                    match self.objection(&header, base, limit, is_first || broken.is_some()) {
                        Some(reason) => drop(broken.get_or_insert(Broken { position, reason })),
                        None => {
                            self.close_gap(base, &path, position, &header, broken.take(), is_first);
                            self.survey.take(base, position, &header);
                            self.due = Some(header.next_offset());
                            is_first = false;
                        }
                    }
                    continue;
                }
                Err(ScanError::Io(error)) => return Err(error).during("read", &path),
                Err(ScanError::Batch(error)) => error.to_string(),
            };
            let whole_bytes = broken.as_ref().map_or(position, |broken| broken.position);
            let may_end = may_end_before(next_base, base, self.due.unwrap_or(base));
            if may_end && only_zeros(&*file, whole_bytes, size).during("read", &path)? {
                // Written ahead of the records; what is missing behind the last one is told by the caller's end.
                self.end_of_segment(base, &path, whole_bytes, next_base, None);
                return Ok(());
            }
            broken.get_or_insert(Broken { position, reason });
            let behind = next_batch_behind(&*file, position, size).during("read", &path)?;
            let Some(behind) = behind else { break };
            scan = BatchScan::new(&*file, behind, size);
        }
        self.end_of_segment(base, &path, size, next_base, broken);
        Ok(())
    }

    /// Why a batch whose checksum holds cannot stand here: its offset lies outside of the checksum.
    fn objection(
        &self,
        header: &BatchHeader,
        base: Offset,
        limit: Offset,
        may_jump: bool,
    ) -> Option<String> {
        let (found, due) = (header.base_offset, self.due.unwrap_or(base).max(base));
        if found < base || header.last_offset() >= limit {
            return Some(format!("offset {found} is not one of the segment's"));
        }
        // The start of the log may lie within a batch.
        if self.survey.range.is_some() && found < due {
            return Some(format!("offset {found} follows where {due} is due"));
        }
        let jumps = found > due && self.is_dense(due) && !may_jump;
        jumps.then(|| format!("offset {found} follows where {due} is due"))
    }

    fn is_dense(&self, offset: Offset) -> bool {
        self.known.dense_from.is_some_and(|from| offset >= from)
    }

    /// Notes what lies between the offset that is due and a whole batch.
    fn close_gap(
        &mut self,
        base: Offset,
        path: &Path,
        position: u64,
        header: &BatchHeader,
        broken: Option<Broken>,
        is_first: bool,
    ) {
        let found = header.base_offset;
        if let Some(broken) = broken {
            let from = self.due.unwrap_or(base).min(found);
            let at = Some((path.to_owned(), broken.position));
            let bytes = position - broken.position;
            self.survey.lost.push(Lost { from, to: found, bytes, at, reason: broken.reason });
            return;
        }
        let Some(due) = self.due.filter(|due| *due < found) else { return };
        let missing = |segment: &&SealedSegment| segment.base >= due && segment.base < found;
        let listed =
            self.known.sealed.iter().any(|segment| missing(&segment) && segment.base != base);
        if self.is_dense(due)
            || listed
            || (self.survey.range.is_none() && self.known.start.is_some())
        {
            let reason = "no segment has these offsets".to_owned();
            self.survey.lost.push(Lost { from: due, to: found, bytes: 0, at: None, reason });
        } else if is_first && found > self.known.cleaned_below {
            self.survey.gaps.push((due, found));
        }
    }

    fn end_of_segment(
        &mut self,
        base: Offset,
        path: &Path,
        size: u64,
        next_base: Option<Offset>,
        broken: Option<Broken>,
    ) {
        let due = self.due.unwrap_or(base).max(base);
        let listed = self.known.sealed.iter().find(|sealed| sealed.base == base);
        let short = listed.filter(|listed| listed.size_bytes > size);
        match (broken, next_base) {
            (Some(broken), None) => {
                self.survey.tail_bytes = size - broken.position;
            }
            (Some(broken), Some(next)) => {
                let at = Some((path.to_owned(), broken.position));
                let (bytes, reason) = (size - broken.position, broken.reason);
                self.survey.lost.push(Lost { from: due, to: next.max(due), bytes, at, reason });
                self.due = Some(next.max(due));
            }
            (None, Some(next)) if short.is_some() && next > due => {
                let expected = short.map_or(0, |listed| listed.size_bytes);
                let reason = format!("the segment has {size} bytes, it had {expected}");
                let at = Some((path.to_owned(), size));
                self.survey.lost.push(Lost { from: due, to: next, bytes: 0, at, reason });
                self.due = Some(next);
            }
            _ => {}
        }
    }

    fn end(&mut self, sizes: &BTreeMap<Offset, u64>) {
        let from = self.survey.end(self.known.start.unwrap_or(Offset(0)));
        let Some(end) = self.known.end.filter(|end| *end > from) else { return };
        let reason = match sizes.is_empty() {
            true => "all segments are missing".to_owned(),
            false => format!("the log had records up to {end}"),
        };
        let (bytes, at) = (self.survey.tail_bytes, None);
        self.survey.lost.push(Lost { from, to: end, bytes, at, reason });
    }
}
