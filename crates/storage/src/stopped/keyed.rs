//! Adopting a compacted topic key by key: the records that count are read out of folders of another cluster, and
//! the caller distributes them over the partitions of the topic here.
//!
//! The partitions of one log directory change together: their new folders are complete before the journal
//! refuses all of them, and the journal lifts all refusals in one commit. A crash before leaves the partitions as
//! they were or refused; the same command finishes the work.

use model::{Offset, Timestamp, TopicPartition, Uuid};

use super::adopt::checked_survey;
use super::swap::Replacement;
use super::{Source, Stopped, StoppedError, end_of};
use crate::journal::{Key, PartitionState};
use crate::log_dir::AsideKind;
use crate::rebuild::{self, Built, Expectation, KeyedRecord, LatestRecords};

/// The records of one partition of the source that count.
#[derive(Clone, Debug)]
pub struct KeyedSource {
    /// Newest record of each key, tombstones included.
    pub records: LatestRecords,
    /// Damaged or missing places that are left out.
    pub lost: Vec<rebuild::Lost>,
    /// Bytes of an incomplete write at the end of the source, which are left out.
    pub tail_bytes: u64,
}

/// A partition and the records that it is to get.
#[derive(Clone, Debug)]
pub struct KeyedAdoption {
    /// The partition here.
    pub target: TopicPartition,
    /// Records in the order in which they are written.
    pub records: Vec<KeyedRecord>,
    /// Whether the partition needs no change: an earlier run wrote these keys, or there are none.
    pub is_done: bool,
    key: Key,
    known: PartitionState,
}

impl Stopped {
    /// Reads the records of a source that count. The source is not changed.
    ///
    /// Fails if the folder is damaged or lacks records, unless the source accepts losses.
    pub fn read_keyed(&self, source: &Source) -> Result<KeyedSource, StoppedError> {
        let disk = &**self.dir.disk();
        let (survey, log_start, _) = checked_survey(disk, source)?;
        let records = rebuild::latest(disk, &source.dir, &survey, log_start)?;
        Ok(KeyedSource { records, lost: survey.lost, tail_bytes: survey.tail_bytes })
    }

    /// Checks that `target` can get these records. Undoes or finishes the work of an interrupted run on the
    /// target; changes nothing else.
    ///
    /// Fails with [`StoppedError::HasRecords`] if the target has records of other keys.
    pub fn examine_keyed(
        &self,
        target: &TopicPartition,
        records: Vec<KeyedRecord>,
    ) -> Result<KeyedAdoption, StoppedError> {
        let (key, known) = self.known(target)?;
        self.settle(target, &known)?;
        let is_done = self.has_keys(target, &known, &records)?;
        Ok(KeyedAdoption { target: target.clone(), records, is_done, key, known })
    }

    /// Whether the target has records of exactly these keys; fails if it has others.
    fn has_keys(
        &self,
        target: &TopicPartition,
        known: &PartitionState,
        records: &[KeyedRecord],
    ) -> Result<bool, StoppedError> {
        let (disk, dir) = (&**self.dir.disk(), self.dir.partition_dir(target));
        let here = rebuild::survey(disk, &dir, &Expectation::default())?;
        let end = here.end(Offset(0)).max(end_of(known));
        if here.range.is_none() && end == Offset(0) {
            return Ok(records.is_empty());
        }
        let found = rebuild::latest(disk, &dir, &here, known.log_start)?;
        let mut due: Vec<&[u8]> = records.iter().map(|(_, key, _)| &**key).collect();
        due.sort_unstable();
        let live = found.iter().filter(|(_, record)| record.value.is_some());
        if live.map(|(key, _)| &**key).eq(due) {
            return Ok(true);
        }
        Err(StoppedError::HasRecords { name: target.clone(), end })
    }

    /// Writes the records of all these partitions, which the next start serves.
    pub fn adopt_keyed(
        &self,
        adoptions: &[KeyedAdoption],
        now: Timestamp,
        unique: Uuid,
    ) -> Result<(), StoppedError> {
        let due = || adoptions.iter().filter(|adoption| !adoption.is_done);
        let mut built: Vec<Built> = Vec::new();
        for adoption in due() {
            let building = self.folder(&self.aside(&adoption.target, unique, AsideKind::Building));
            built.push(rebuild::write(self.dir.disk(), &building, &adoption.records, now)?);
            self.dir.store_id_in(&building, adoption.key.topic_id)?;
        }
        let replacements = due().zip(&built).map(|(adoption, built)| Replacement {
            key: adoption.key,
            name: &adoption.target,
            known: &adoption.known,
            unique,
            built,
            log_start: Offset(0),
            cleaned_below: Offset(0),
            mended: false,
            now,
        });
        for empty in self.replace_all(&Vec::from_iter(replacements))?.into_iter().flatten() {
            // The check above found no record in it.
            self.dir.remove_leftover(&empty, &mut || true)?;
        }
        Ok(())
    }
}
