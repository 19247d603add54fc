//! Adopting the records of a partition's folder that this broker did not write, into a partition that
//! is empty. The source is only read.

use std::path::{Path, PathBuf};

use model::{Offset, Timestamp, TopicPartition, Uuid};

use super::swap::Replacement;
use super::{Stopped, StoppedError, end_of};
use crate::StorageError;
use crate::checkpoint;
use crate::disk::Disk;
use crate::journal::{Key, PartitionState};
use crate::log_dir::AsideKind;
use crate::rebuild::{self, Expectation, Origin, Plan, Survey};

/// The folder of a partition that is to be adopted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The folder.
    pub dir: PathBuf,
    /// The partition's name in the checkpoint files of the folder above.
    pub name: TopicPartition,
    /// What is damaged or missing there is left out.
    pub accepts_losses: bool,
}

/// A partition, and what it is to get.
#[derive(Clone, Debug)]
pub struct Adoption {
    /// The partition here.
    pub target: TopicPartition,
    /// Where the records come from.
    pub source: Source,
    /// What is there.
    pub survey: Survey,
    /// Where the log will start.
    pub log_start: Offset,
    /// The partition has these records: an earlier run adopted them.
    pub is_done: bool,
    cleaned_below: Offset,
    key: Key,
    known: PartitionState,
}

/// What was adopted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Where the log starts and ends now.
    pub range: (Offset, Offset),
    /// Transactions that were open, and are aborted now.
    pub aborted: usize,
}

impl Stopped {
    /// Looks at a folder that `target` is to get. Undoes or finishes what an earlier run began with the
    /// target; nothing else is changed.
    ///
    /// Fails if the folder is damaged or lacks records, or if the target is unknown or has records.
    pub fn examine_adoption(
        &self,
        source: &Source,
        target: &TopicPartition,
    ) -> Result<Adoption, StoppedError> {
        let (key, known) = self.known(target)?;
        self.settle(target, &known)?;
        let disk = &**self.dir.disk();
        if is_same(&source.dir, &self.dir.partition_dir(target)) {
            let (dir, name) = (source.dir.clone(), target.clone());
            return Err(StoppedError::OwnFolder { dir, name });
        }
        let (survey, log_start, cleaned_below) = checked_survey(disk, source)?;
        let is_done = self.has_all(target, &known, &survey)?;
        let (source, target) = (source.clone(), target.clone());
        Ok(Adoption { target, source, survey, log_start, is_done, cleaned_below, key, known })
    }

    /// Whether the target has exactly these records; fails if it has others.
    fn has_all(
        &self,
        target: &TopicPartition,
        known: &PartitionState,
        source: &Survey,
    ) -> Result<bool, StoppedError> {
        let dir = self.dir.partition_dir(target);
        let disk = &**self.dir.disk();
        let here = rebuild::survey(disk, &dir, &Expectation::default())?;
        let end = here.end(Offset(0)).max(end_of(known));
        if here.range.is_none() && end == Offset(0) {
            return Ok(false);
        }
        // Transactions that were open got a marker each.
        let first = |survey: &Survey| survey.range.map(|(first, _)| first);
        let markers = here.markers.checked_sub(source.markers);
        let longer = u64::try_from(end.0 - source.end(Offset(0)).0).ok();
        let same = first(&here) == first(source) && here.records == source.records;
        if same && longer.is_some() && longer == markers {
            return Ok(true);
        }
        Err(StoppedError::HasRecords { name: target.clone(), end })
    }

    /// Copies the records into the target, which the next start serves.
    pub fn adopt(
        &self,
        adoption: &Adoption,
        now: Timestamp,
        unique: Uuid,
    ) -> Result<Adopted, StoppedError> {
        let Adoption { target, source, survey, known, log_start, .. } = adoption;
        let building = self.folder(&self.aside(target, unique, AsideKind::Building));
        let plan = Plan {
            origin: Origin::Foreign,
            log_start: *log_start,
            end_min: survey.end(*log_start),
            now,
        };
        let built = rebuild::build(self.dir.disk(), &source.dir, &building, survey, &plan)?;
        self.dir.store_id_in(&building, adoption.key.topic_id)?;
        let kept = self.replace(&Replacement {
            key: adoption.key,
            name: target,
            known,
            unique,
            built: &built,
            log_start: *log_start,
            cleaned_below: adoption.cleaned_below,
            mended: false,
            now,
        })?;
        if let Some(empty) = kept {
            // It was looked into: there was no record in it.
            self.dir.remove_leftover(&empty, &mut || true)?;
        }
        Ok(Adopted { range: (*log_start, built.end), aborted: built.aborted })
    }
}

/// Surveys a source, and returns with the survey where its log starts and below which offset it was compacted.
///
/// Fails if the folder is damaged or lacks records, unless the source accepts losses.
pub(super) fn checked_survey(
    disk: &dyn Disk,
    source: &Source,
) -> Result<(Survey, Offset, Offset), StoppedError> {
    let (start, cleaned_below) = checkpointed(disk, source)?;
    let expectation = Expectation { start, cleaned_below, ..Expectation::default() };
    let survey = rebuild::survey(disk, &source.dir, &expectation)?;
    let Some(first_base) = survey.first_base else {
        return Err(StoppedError::NoSegments(source.dir.clone()));
    };
    if !survey.lost.is_empty() && !source.accepts_losses {
        let (dir, lost) = (source.dir.clone(), survey.lost);
        return Err(StoppedError::Incomplete { dir, lost });
    }
    if let Some((from, to)) = survey.gaps.first().filter(|_| !source.accepts_losses) {
        return Err(StoppedError::Gap { dir: source.dir.clone(), from: *from, to: *to });
    }
    Ok((survey, start.unwrap_or(first_base).max(first_base), cleaned_below))
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}

/// What the checkpoint files above the folder say: where the log starts, and below which offset it was
/// compacted. A file that makes no sense says nothing.
fn checkpointed(
    disk: &dyn Disk,
    source: &Source,
) -> Result<(Option<Offset>, Offset), StorageError> {
    let Some(above) = source.dir.parent() else { return Ok((None, Offset(0))) };
    let of = |file: &str| match checkpoint::load(disk, above, file) {
        Ok(offsets) => Ok(offsets.get(&source.name).copied()),
        Err(StorageError::Malformed { .. }) => Ok(None),
        Err(error) => Err(error),
    };
    let start = of(checkpoint::LOG_START)?.filter(|start| *start > Offset(0));
    Ok((start, of(checkpoint::CLEANER)?.unwrap_or(Offset(0))))
}
