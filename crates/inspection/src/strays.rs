//! Which folders of a log directory belong to no partition that the next start would serve, and why.
//! Decided from names, the journal and the cluster's metadata; nothing is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use model::{TopicId, TopicPartition};
use storage::journal::{Key, State};
use storage::log_dir::{Aside, AsideKind, partition_of};
use storage::{LogDir, StorageError};

/// Why a folder is a stray.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyStray {
    /// The journal knows the partition, the cluster's metadata does not.
    NotInMetadata,
    /// Nobody knows the partition.
    Unknown,
    /// Its name was needed for another partition.
    PutAside,
    /// It has the name of a deletion that the journal does not know.
    UnknownDeletion,
    /// It is a partition's folder as it was before the partition was mended.
    BeforeMend,
    /// A tool was interrupted while it made this folder or put it in its place.
    Interrupted,
}

impl WhyStray {
    /// The reason in words.
    pub fn reason(self) -> &'static str {
        match self {
            WhyStray::NotInMetadata => "its topic is not in the cluster's metadata",
            WhyStray::Unknown => "neither the journal nor the metadata knows it",
            WhyStray::PutAside => "put aside, because a new topic needed its name",
            WhyStray::UnknownDeletion => {
                "named like a deleted partition, and the journal knows of no deletion"
            }
            WhyStray::BeforeMend => {
                "kept by `highwater log mend`: the folder before the partition was mended"
            }
            WhyStray::Interrupted => {
                "left by a `log mend` or `log adopt` that was interrupted: run the same command again"
            }
        }
    }
}

/// A folder that no start serves and no start removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrayFolder {
    /// Its name in the log directory.
    pub name: String,
    /// The partition that it is or was, as its name says; of a long topic name only the beginning.
    pub partition: TopicPartition,
    /// The topic's id, if the folder holds one that can be read.
    pub topic_id: Option<TopicId>,
    /// Bytes of its files.
    pub size_bytes: u64,
    /// Why it is a stray.
    pub why: WhyStray,
}

/// The strays of a log directory, by name. `wanted`: the partitions that the metadata wants here;
/// `None` if the metadata cannot be read, and then a partition that the journal knows is none.
pub fn strays(
    dir: &LogDir,
    state: &State,
    wanted: Option<&BTreeMap<Key, TopicPartition>>,
) -> Result<Vec<StrayFolder>, StorageError> {
    let names = dir.folders_and_asides()?;
    let mut known = BTreeMap::new();
    let mut leaving = BTreeSet::new();
    for (key, partition) in &state.partitions {
        match &partition.deleted {
            None => drop(known.insert(State::name(*key, partition), *key)),
            Some(aside) => {
                leaving.insert(aside.to_string());
                leaving.insert(State::name(*key, partition).to_string());
            }
        }
    }
    let mut found = Vec::new();
    for name in names {
        let Some((partition, why)) = why(&name, &known, &leaving, wanted) else { continue };
        let path = dir.path().join(&name);
        let topic_id = dir.topic_id_in(&path).ok().flatten();
        let size_bytes = size_bytes(dir, &path)?;
        found.push(StrayFolder { name, partition, topic_id, size_bytes, why });
    }
    Ok(found)
}

fn why(
    name: &str,
    known: &BTreeMap<TopicPartition, Key>,
    leaving: &BTreeSet<String>,
    wanted: Option<&BTreeMap<Key, TopicPartition>>,
) -> Option<(TopicPartition, WhyStray)> {
    if let Some(aside) = Aside::parse(name) {
        let why = match aside.kind {
            AsideKind::Deleted if leaving.contains(name) => return None,
            AsideKind::Deleted => WhyStray::UnknownDeletion,
            AsideKind::Stray => WhyStray::PutAside,
            AsideKind::BeforeMend => WhyStray::BeforeMend,
            AsideKind::Building | AsideKind::Replaced => WhyStray::Interrupted,
        };
        return Some((aside.partition, why));
    }
    let partition = partition_of(name)?;
    let why = match (known.get(&partition), wanted) {
        (Some(key), Some(wanted)) if !wanted.contains_key(key) => WhyStray::NotInMetadata,
        (Some(_), _) => return None,
        (None, _) if leaving.contains(name) => return None,
        (None, _) => WhyStray::Unknown,
    };
    Some((partition, why))
}

fn size_bytes(dir: &LogDir, path: &Path) -> Result<u64, StorageError> {
    let disk = dir.disk();
    let failed = |source| StorageError::Io { operation: "list", path: path.to_owned(), source };
    let names = disk.list(path).map_err(failed)?;
    Ok(names.iter().filter_map(|name| disk.size(&path.join(name)).ok()).sum())
}
