//! Mending a partition that is refused: what would be lost, and doing without it.

use std::path::PathBuf;

use model::{LeaderEpoch, Offset, Timestamp, TopicPartition, Uuid};

use super::swap::{Replacement, original};
use super::{Stopped, StoppedError, end_of};
use crate::journal::{Key, PartitionState};
use crate::log_dir::AsideKind;
use crate::rebuild::{self, Expectation, Origin, Plan, Survey};

/// A refused partition: why it is, and what is left of it.
#[derive(Clone, Debug)]
pub struct Ailment {
    /// The partition.
    pub name: TopicPartition,
    /// Why it is refused, in words.
    pub reason: String,
    /// What its folder holds, and what is lost.
    pub survey: Survey,
    /// Where it will start.
    pub log_start: Offset,
    /// Where it will end: no offset that was given to a record is given again.
    pub end: Offset,
    key: Key,
    known: PartitionState,
}

/// What was done.
#[derive(Clone, Debug)]
pub struct Mended {
    /// The partition's folder as it was, if it had one.
    pub kept: Option<PathBuf>,
    /// Where the log starts and ends now.
    pub range: (Offset, Offset),
}

impl Stopped {
    /// Looks at a partition; `None` if it is not refused. Undoes or finishes what an earlier run began
    /// with it; nothing else is changed.
    ///
    /// Fails with [`StoppedError::Unknown`] if there is no such partition here.
    pub fn examine(&self, name: &TopicPartition) -> Result<Option<Ailment>, StoppedError> {
        let (key, known) = self.known(name)?;
        self.settle(name, &known)?;
        let Some(refused) = known.refused.clone() else { return Ok(None) };
        let expectation = Expectation {
            start: Some(known.log_start),
            dense_from: known.opened.dense_from,
            cleaned_below: known.checkpoint.map_or(Offset(0), |last| last.cleaned_below),
            sealed: known.sealed.clone().unwrap_or_default(),
            end: Some(end_of(&known)),
        };
        let dir = self.dir.partition_dir(name);
        let survey = rebuild::survey(&**self.dir.disk(), &dir, &expectation)?;
        let end = survey.end(Offset(0)).max(end_of(&known));
        // Where the front is gone, the log starts behind it.
        let first = survey.range.map_or(end, |(first, _)| first);
        let has_front = survey.first_base.is_some_and(|base| base <= known.log_start);
        let log_start = if has_front { known.log_start } else { known.log_start.max(first) };
        let reason = original(&refused.reason).to_owned();
        Ok(Some(Ailment { name: name.clone(), reason, survey, log_start, end, key, known }))
    }

    /// Makes the partition's folder anew out of what is left, keeps the one before, and lets the next
    /// start serve the partition. In a cluster that start has it copied anew instead, if another broker has everything.
    pub fn mend(
        &self,
        ailment: &Ailment,
        now: Timestamp,
        unique: Uuid,
    ) -> Result<Mended, StoppedError> {
        let Ailment { name, survey, known, log_start, .. } = ailment;
        let building = self.folder(&self.aside(name, unique, AsideKind::Building));
        let newest = known.checkpoint.map(|last| last.epoch).filter(|e| *e > LeaderEpoch::NONE);
        let plan = Plan {
            origin: Origin::Own { epoch_max: newest.unwrap_or(LeaderEpoch(i32::MAX)) },
            log_start: *log_start,
            end_min: ailment.end,
            now,
        };
        let from = self.dir.partition_dir(name);
        let built = rebuild::build(self.dir.disk(), &from, &building, survey, &plan)?;
        self.dir.store_id_in(&building, ailment.key.topic_id)?;
        let kept = self.replace(&Replacement {
            key: ailment.key,
            name,
            known,
            unique,
            built: &built,
            log_start: *log_start,
            cleaned_below: known.checkpoint.map_or(Offset(0), |last| last.cleaned_below),
            mended: true,
            now,
        })?;
        Ok(Mended { kept, range: (*log_start, built.end) })
    }
}
