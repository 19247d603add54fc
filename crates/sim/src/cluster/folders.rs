//! Folders of a broker's replicas: the topic id of each one by the product's journal, and how the folders of deleted topics
//! leave the disk.
//!
//! A folder has the name of its partition, and a topic that is created again has the name of the deleted one. The journal
//! durably has a deletion before the folder gets another name (S15).

use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use metadata::ClusterImage;
use model::{Offset, TopicId, TopicPartition};
use node::deleted_topics::find_deleted;
use storage::StorageError;
use storage::disk::{Disk, SimDisk};
use storage::journal::{Entry, Fact, Journal, Key, Opened, State};
use storage::log_dir::{LogDir, deleted_name, stray_name};

use super::directories::format_second;
use super::topics::{key_of, name_of, partition_of};
use crate::message::PartitionId;
use crate::start::{LOG_DIR, SECOND_LOG_DIR, format};

/// Where the journal is on its device.
const JOURNAL_DIR: &str = "journal";
/// Tells the power failure of the journal's device from that of the other one.
const OWN_NUMBERS: u64 = 0x70b1c5;

/// The devices of one machine. The journal has one of its own, which neither fills up nor lies, because the product's journal
/// has room of its own.
#[derive(Clone, Debug)]
pub(super) struct MachineDisk {
    data: SimDisk,
    journal: SimDisk,
}

impl MachineDisk {
    /// Empty devices with a log directory, perhaps a second one, and a journal.
    pub(super) fn new(has_second: bool) -> MachineDisk {
        let (data, journal) = (SimDisk::new(), SimDisk::new());
        format(&data);
        if has_second {
            format_second(&data);
        }
        let dir = Path::new(JOURNAL_DIR);
        journal.create_dir_all(dir).expect("an empty disk takes a directory");
        journal.sync_dir(Path::new("")).expect("an empty disk syncs its root");
        Journal::create(Arc::new(journal.clone()), dir, State::default())
            .expect("an empty disk takes a journal");
        MachineDisk { data, journal }
    }

    /// The devices as they are now.
    pub(super) fn snapshot(&self) -> MachineDisk {
        MachineDisk { data: self.data.snapshot(), journal: self.journal.snapshot() }
    }

    /// The devices after a power failure.
    pub(super) fn after_crash(&self, seed: u64) -> MachineDisk {
        let journal = self.journal.after_crash(seed ^ OWN_NUMBERS);
        MachineDisk { data: self.data.after_crash(seed), journal }
    }
}

impl Deref for MachineDisk {
    type Target = SimDisk;

    fn deref(&self) -> &SimDisk {
        &self.data
    }
}

/// The folders of one process.
#[derive(Debug)]
pub(super) struct ReplicaFolders {
    data: SimDisk,
    journal: Journal,
    /// Folders of deleted partitions under their other names.
    leaving: Vec<(Key, String)>,
}

impl ReplicaFolders {
    /// Opens the journal of a machine, and ends the deletions that the process before began.
    pub(super) fn open(disk: &MachineDisk) -> Result<ReplicaFolders, StorageError> {
        let opened = Journal::open(Arc::new(disk.journal.clone()), Path::new(JOURNAL_DIR), true)?;
        let journal = opened.expect("a machine has a journal");
        let mut folders = ReplicaFolders { data: disk.data.clone(), journal, leaving: Vec::new() };
        folders.end_deletions();
        Ok(folders)
    }

    /// Partitions that the journal has and that are not deleted, in order.
    pub(super) fn live(&self) -> BTreeSet<PartitionId> {
        self.journal.with_state(|state| {
            let live = state.partitions.iter().filter(|(_, known)| known.deleted.is_none());
            live.map(|(key, _)| place_of(key)).collect()
        })
    }

    /// The journal durably has these partitions, and their folders have durable names.
    pub(super) fn enter(&self, opened: impl Iterator<Item = PartitionId>) {
        let known = self.live();
        let entry = |at: PartitionId| {
            let opened = Opened {
                topic: name_of(at).topic,
                dense_from: Some(Offset(0)),
                fsync: false,
                image_index: 0,
                mended: false,
            };
            Entry::Of(journal_key(at), Fact::Opened(opened))
        };
        let entries: Vec<Entry> = opened.filter(|at| !known.contains(at)).map(entry).collect();
        if !entries.is_empty() {
            self.sync_names();
            self.journal.commit(&entries).expect("the journal has room");
        }
    }

    /// Makes a folder's name free for a new partition. A folder that another partition has gets the name of a stray, as in the
    /// product.
    pub(super) fn make_way(&self, at: PartitionId) {
        let name = name_of(at).to_string();
        if !self.data.exists(&path(&name)) {
            return;
        }
        let owner = self.live().into_iter().find(|known| name_of(*known) == name_of(at));
        let Some(owner) = owner.filter(|owner| *owner != at) else { return };
        let key = journal_key(owner);
        self.rename(&name, &stray_name(&name, key.topic_id));
        self.commit(Entry::Of(key, Fact::Forgotten));
    }

    /// Partitions of topics that are proved `deleted` by the metadata.
    pub(super) fn find_deleted(
        &self,
        deleted: &BTreeSet<TopicId>,
        image: &ClusterImage,
    ) -> Vec<PartitionId> {
        let found = self.journal.with_state(|state| find_deleted(state, deleted, image));
        found.into_iter().map(|(key, _)| place_of(&key)).collect()
    }

    /// Deletes a partition: its folder gets another name and is removed later.
    pub(super) fn delete(&mut self, at: PartitionId) {
        let (key, name) = (journal_key(at), name_of(at));
        if !self.live().contains(&at) {
            return;
        }
        let aside = deleted_name(&name.to_string(), key.topic_id);
        self.commit(Entry::Of(key, Fact::Deleted { aside: aside.as_str().into() }));
        self.put_aside(key, &name, aside);
    }

    /// Removes the folders of deleted partitions.
    pub(super) fn empty_trash(&mut self) {
        for (key, aside) in std::mem::take(&mut self.leaving) {
            let path = path(&aside);
            if self.data.exists(&path) {
                self.data.remove_dir_all(&path).expect("a healthy disk removes a folder");
                self.sync_names();
            }
            self.commit(Entry::Of(key, Fact::Forgotten));
        }
    }

    /// Whether no deletion is under way.
    pub(super) fn is_settled(&self) -> bool {
        self.leaving.is_empty()
    }

    /// Names of all folders of partitions, also of those that were put aside.
    pub(super) fn names(&self) -> Vec<String> {
        let dir = LogDir::at(Arc::new(self.data.clone()), PathBuf::from(LOG_DIR));
        dir.folders_and_asides().expect("a healthy disk lists a directory")
    }

    fn end_deletions(&mut self) {
        let deleted: Vec<(Key, TopicPartition, Arc<str>)> = self.journal.with_state(|state| {
            let known = state.partitions.iter();
            let deleted = known.filter_map(|(key, known)| {
                Some((*key, State::name(*key, known), Arc::clone(known.deleted.as_ref()?)))
            });
            deleted.collect()
        });
        for (key, name, aside) in deleted {
            self.put_aside(key, &name, aside.to_string());
        }
    }

    /// Gives the folder of a deleted partition its other name, unless a later partition has the folder.
    fn put_aside(&mut self, key: Key, name: &TopicPartition, aside: String) {
        let is_in_use = self.live().into_iter().any(|at| name_of(at) == *name);
        let is_there = self.data.exists(&path(&name.to_string()));
        if is_there && !is_in_use && !self.data.exists(&path(&aside)) {
            self.rename(&name.to_string(), &aside);
        }
        self.leaving.push((key, aside));
    }

    fn rename(&self, from: &str, to: &str) {
        self.make_room();
        self.data.rename(&path(from), &path(to)).expect("a healthy disk renames a folder");
        self.sync_names();
    }

    pub(super) fn sync_names(&self) {
        for dir in [LOG_DIR, SECOND_LOG_DIR].map(Path::new) {
            if self.data.exists(dir) {
                self.data.sync_dir(dir).expect("a healthy disk syncs");
            }
        }
    }

    /// A disk without room gets some: the product waits for room, and tries again.
    pub(super) fn make_room(&self) {
        self.data.limit_capacity(None);
    }

    fn commit(&self, entry: Entry) {
        self.journal.commit(&[entry]).expect("the journal has room");
    }
}

fn path(name: &str) -> PathBuf {
    Path::new(LOG_DIR).join(name)
}

fn journal_key(at: PartitionId) -> Key {
    let node::Key { topic_id, partition } = key_of(at);
    Key { topic_id, partition }
}

fn place_of(key: &Key) -> PartitionId {
    let key = node::Key { topic_id: key.topic_id, partition: key.partition };
    partition_of(key).expect("brokers have partitions of this run only")
}
