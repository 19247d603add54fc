//! Putting a folder that was made anew in a partition's place, and going on after a crash.

use std::path::PathBuf;
use std::sync::Arc;

use model::{LeaderEpoch, Offset, Timestamp, TopicPartition, Uuid};

use super::Stopped;
use crate::StorageError;
use crate::error::Context;
use crate::journal::{Checkpoint, Entry, Fact, Key, Opened, PartitionState, Refused};
use crate::log_dir::{Aside, AsideKind};
use crate::rebuild::Built;

/// Stands in the reason of a refusal before the id of the work that is under way.
const UNDER_WAY: &str =
    "; interrupted while a new folder was put in its place (run the same command again), work ";

/// A reason without what was added to it.
pub(super) fn original(reason: &str) -> &str {
    reason.split_once(UNDER_WAY).map_or(reason, |(original, _)| original)
}

fn digits(unique: Uuid) -> String {
    format!("{:032x}", u128::from_be_bytes(unique.0))
}

/// A new folder and what the journal is to know of it.
pub(super) struct Replacement<'a> {
    pub(super) key: Key,
    pub(super) name: &'a TopicPartition,
    pub(super) known: &'a PartitionState,
    pub(super) unique: Uuid,
    pub(super) built: &'a Built,
    pub(super) log_start: Offset,
    pub(super) cleaned_below: Offset,
    /// Whether records are lost that others may have.
    pub(super) mended: bool,
    pub(super) now: Timestamp,
}

impl Stopped {
    pub(super) fn aside(&self, name: &TopicPartition, unique: Uuid, kind: AsideKind) -> String {
        Aside { partition: name.clone(), unique, kind }.name()
    }

    pub(super) fn folder(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn exists(&self, name: &str) -> bool {
        self.dir.disk().exists(&self.folder(name))
    }

    fn asides(&self, name: &TopicPartition, kind: AsideKind) -> Result<Vec<Aside>, StorageError> {
        let names = self.dir.disk().list(self.path()).during("list", self.path())?;
        let asides = names.iter().filter_map(|name| Aside::parse(name));
        Ok(asides.filter(|aside| aside.kind == kind && aside.is_of(name)).collect())
    }

    /// Undoes or finishes what an earlier run began with this partition.
    pub(super) fn settle(
        &self,
        name: &TopicPartition,
        known: &PartitionState,
    ) -> Result<(), StorageError> {
        let under_way = known.refused.as_ref().map_or("", |refused| &refused.reason);
        for replaced in self.asides(name, AsideKind::Replaced)? {
            if under_way.ends_with(&format!("{UNDER_WAY}{}", digits(replaced.unique))) {
                self.put_back(name, &replaced)?;
            } else {
                self.keep(name, replaced.unique)?;
            }
        }
        for left in self.asides(name, AsideKind::Building)? {
            self.dir.remove_leftover(&self.folder(&left.name()), &mut || true)?;
        }
        Ok(())
    }

    fn put_back(&self, name: &TopicPartition, replaced: &Aside) -> Result<(), StorageError> {
        if self.exists(&name.to_string()) {
            let building = self.aside(name, replaced.unique, AsideKind::Building);
            self.dir.rename(&name.to_string(), &building)?;
            self.dir.sync_names()?;
        }
        self.dir.rename(&replaced.name(), &name.to_string())?;
        self.dir.sync_names()
    }

    /// The last step: the folder that gave way is kept.
    fn keep(&self, name: &TopicPartition, unique: Uuid) -> Result<(), StorageError> {
        let replaced = self.aside(name, unique, AsideKind::Replaced);
        if !self.exists(&replaced) {
            return Ok(());
        }
        let kept = self.aside(name, unique, AsideKind::BeforeMend);
        self.dir.rename(&replaced, &kept)?;
        self.dir.sync_names()
    }

    /// Puts the folder that was built in the partition's place; returns where the one before is kept,
    /// if there was one.
    pub(super) fn replace(&self, with: &Replacement<'_>) -> Result<Option<PathBuf>, StorageError> {
        let kept = self.replace_all(std::slice::from_ref(with))?;
        Ok(kept.into_iter().next().flatten())
    }

    /// Puts all folders that were built in the places of their partitions. Returns for each where the
    /// folder before is kept, if there was one.
    ///
    /// One commit of the journal refuses all partitions, and one lifts all refusals. A commit of more than
    /// a frame of the journal may be torn: then the partitions of the later frames stay refused.
    pub(super) fn replace_all(
        &self,
        all: &[Replacement<'_>],
    ) -> Result<Vec<Option<PathBuf>>, StorageError> {
        if all.is_empty() {
            return Ok(Vec::new());
        }
        self.dir.sync_names()?;
        self.journal.commit(&all.iter().map(under_way).collect::<Vec<_>>())?;
        let had_folder: Vec<bool> =
            all.iter().map(|with| self.exists(&with.name.to_string())).collect();
        for (with, _) in all.iter().zip(&had_folder).filter(|(_, had_folder)| **had_folder) {
            let replaced = self.aside(with.name, with.unique, AsideKind::Replaced);
            self.dir.rename(&with.name.to_string(), &replaced)?;
        }
        if had_folder.contains(&true) {
            self.dir.sync_names()?;
        }
        for with in all {
            let building = self.aside(with.name, with.unique, AsideKind::Building);
            self.dir.rename(&building, &with.name.to_string())?;
        }
        self.dir.sync_names()?;
        self.journal.commit(&all.iter().flat_map(facts).collect::<Vec<_>>())?;
        let mut kept = Vec::with_capacity(all.len());
        for (with, had_folder) in all.iter().zip(had_folder) {
            self.keep(with.name, with.unique)?;
            let before = self.aside(with.name, with.unique, AsideKind::BeforeMend);
            kept.push(had_folder.then(|| self.folder(&before)));
        }
        Ok(kept)
    }
}

/// The refusal of a partition whose folder is being replaced.
fn under_way(with: &Replacement<'_>) -> Entry {
    let before = with.known.refused.as_ref();
    let reason = before.map_or("not finished", |refused| &refused.reason);
    let refused = Refused {
        offset: before.and_then(|refused| refused.offset),
        reason: format!("{}{UNDER_WAY}{}", original(reason), digits(with.unique)).into(),
    };
    Entry::Of(with.key, Fact::Refused(refused))
}

/// What the journal says of the partition from now on, and nothing of what it said before. The long
/// list comes last: all that stands before it is in one frame, so a crash leaves either all or none.
fn facts(with: &Replacement<'_>) -> Vec<Entry> {
    let built = with.built;
    let opened = Opened {
        topic: Arc::clone(&with.name.topic),
        // What was copied may have gaps; what is appended to it has none.
        dense_from: Some(built.end),
        mended: with.mended,
        ..with.known.opened.clone()
    };
    let checkpoint = Checkpoint {
        recovery_point: built.end,
        active: built.active,
        epoch: built.epoch.max(LeaderEpoch::NONE),
        high_watermark: built.end,
        cleaned_below: with.cleaned_below.min(built.end),
        at: with.now,
    };
    let facts = [
        Fact::Forgotten,
        Fact::Opened(opened),
        Fact::Checkpoint(checkpoint),
        Fact::Synced(built.end),
        Fact::Start(with.log_start),
        Fact::Sealed { complete: true, segments: built.sealed.clone() },
    ];
    facts.into_iter().map(|fact| Entry::Of(with.key, fact)).collect()
}
