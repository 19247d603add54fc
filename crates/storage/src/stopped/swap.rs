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
        let name = with.name.to_string();
        let building = self.aside(with.name, with.unique, AsideKind::Building);
        let replaced = self.aside(with.name, with.unique, AsideKind::Replaced);
        self.dir.sync_names()?;
        let reason = with.known.refused.as_ref().map_or("not finished", |refused| &refused.reason);
        let refused = Refused {
            offset: with.known.refused.as_ref().and_then(|refused| refused.offset),
            reason: format!("{}{UNDER_WAY}{}", original(reason), digits(with.unique)).into(),
        };
        self.journal.commit(&[Entry::Of(with.key, Fact::Refused(refused))])?;
        let had_folder = self.exists(&name);
        if had_folder {
            self.dir.rename(&name, &replaced)?;
            self.dir.sync_names()?;
        }
        self.dir.rename(&building, &name)?;
        self.dir.sync_names()?;
        self.journal.commit(&facts(with))?;
        self.keep(with.name, with.unique)?;
        let kept = self.aside(with.name, with.unique, AsideKind::BeforeMend);
        Ok(had_folder.then(|| self.folder(&kept)))
    }
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
