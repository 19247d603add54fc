//! What the entries add up to: the state of each partition of a log directory.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{BrokerEpoch, LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicPartition, Uuid};

use model::level::{JOURNAL_LEVEL_MAX, JOURNAL_LEVEL_MIN};

use super::codec::Unreadable;
use super::entry::{
    Checkpoint, Entry, EntryReader, EntryWriter, Fact, Key, MetadataNote, Opened, Refused,
};
use crate::meta_properties::MetaProperties;
use crate::{ActiveSegment, Derived, SealedSegment};

/// What is known of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionState {
    /// The partition is this broker's.
    pub opened: Opened,
    /// The last checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// What is derived from the batches of the log, as it was at the end that it tells.
    pub derived: Option<Arc<Derived>>,
    /// Leader epochs of which records were written since, with the offsets at which they began.
    pub newer_epochs: Box<[(LeaderEpoch, Offset)]>,
    /// Below it everything is synced.
    pub synced: Offset,
    /// The first offset that may be read, if records were deleted.
    pub log_start: Offset,
    /// Every sealed segment that must exist, by base; `None` if not known.
    pub sealed: Option<Vec<SealedSegment>>,
    /// The log's end, if the log was closed cleanly and not opened since.
    pub closed: Option<Offset>,
    /// Why the partition is not served, if so. Boxed: it hardly ever is.
    pub refused: Option<Box<Refused>>,
    /// The sync that failed, if one did.
    pub sync_failed: Option<Arc<str>>,
    /// The folder's name on its way out, if the partition was deleted.
    pub deleted: Option<Arc<str>>,
}

impl PartitionState {
    /// A partition of which nothing is known yet but that it is this broker's.
    pub fn new(opened: Opened) -> PartitionState {
        PartitionState {
            opened,
            checkpoint: None,
            derived: None,
            newer_epochs: Box::default(),
            synced: Offset(0),
            log_start: Offset(0),
            sealed: None,
            closed: None,
            refused: None,
            sync_failed: None,
            deleted: None,
        }
    }

    fn apply(&mut self, fact: &Fact) {
        match fact {
            Fact::Opened(opened) => self.opened = opened.clone(),
            Fact::Checkpoint(checkpoint) => {
                self.checkpoint = Some(*checkpoint);
                self.synced = self.synced.max(checkpoint.recovery_point);
                self.drop_deleted();
            }
            Fact::Derived(derived) => self.derive(derived),
            Fact::Epoch(epoch, start) => self.begin_epoch(*epoch, *start),
            Fact::Synced(offset) => self.synced = self.synced.max(*offset),
            Fact::Sealed { complete, segments } => self.seal(*complete, segments),
            Fact::Swapped(bases) | Fact::Compacted(bases) => {
                if matches!(fact, Fact::Swapped(_)) {
                    self.opened.dense_from = None;
                }
                if let Some(sealed) = &mut self.sealed {
                    sealed.retain(|segment| !bases.contains(&segment.base));
                }
                // Sealed since the checkpoint, it may be among them.
                if let Some(checkpoint) = &mut self.checkpoint {
                    let stays = |active: &ActiveSegment| !bases.contains(&active.base);
                    checkpoint.active = checkpoint.active.filter(stays);
                }
                self.drop_deleted();
            }
            Fact::Start(offset) => {
                self.log_start = self.log_start.max(*offset);
                self.drop_deleted();
            }
            Fact::Truncated(end) => self.truncate(*end),
            Fact::Closed(end) => self.closed = Some(*end),
            Fact::Refused(refused) => self.refused = Some(Box::new(refused.clone())),
            Fact::SyncFailed(reason) => self.sync_failed = Some(Arc::clone(reason)),
            Fact::Mended => (self.refused, self.sync_failed) = (None, None),
            Fact::Deleted { aside } => self.deleted = Some(Arc::clone(aside)),
            Fact::Forgotten => {}
        }
    }

    /// Of the epochs that were told one by one, those stay that begin behind what is derived and are newer than its last one.
    fn derive(&mut self, derived: &Derived) {
        let last = derived.epochs.last().map_or(LeaderEpoch::NONE, |(epoch, _)| *epoch);
        self.keep_newer(|(epoch, start)| *start >= derived.end && *epoch > last);
        self.derived = Some(Arc::new(derived.clone()));
    }

    /// An epoch that is not newer than one that is known may be told twice, and late.
    fn begin_epoch(&mut self, epoch: LeaderEpoch, start: Offset) {
        if epoch <= self.newest_epoch() {
            return;
        }
        self.keep_newer(|(_, begun)| *begun < start);
        let mut newer = std::mem::take(&mut self.newer_epochs).into_vec();
        newer.push((epoch, start));
        self.newer_epochs = newer.into();
    }

    fn keep_newer(&mut self, keep: impl FnMut(&(LeaderEpoch, Offset)) -> bool) {
        if !self.newer_epochs.is_empty() {
            let mut newer = std::mem::take(&mut self.newer_epochs).into_vec();
            newer.retain(keep);
            self.newer_epochs = newer.into();
        }
    }

    /// The newest leader epoch of which the journal says where it began; -1 for none.
    pub fn newest_epoch(&self) -> LeaderEpoch {
        let derived = self.derived.as_deref().map_or(&[][..], |derived| &derived.epochs);
        let newest = self.newer_epochs.last().or(derived.last());
        newest.map_or(LeaderEpoch::NONE, |(epoch, _)| *epoch)
    }

    fn seal(&mut self, complete: bool, segments: &[SealedSegment]) {
        let mut sealed = match self.sealed.take() {
            Some(known) if !complete => known,
            _ => Vec::new(),
        };
        for segment in segments {
            match sealed.binary_search_by_key(&segment.base, |known| known.base) {
                Ok(at) => sealed[at] = *segment,
                Err(at) => sealed.insert(at, *segment),
            }
        }
        self.sealed = Some(sealed);
        // Retention may have entered its intent and not moved the files yet.
        self.drop_deleted();
    }

    /// Segments that end at or below the log's start may be gone: they need not exist from now on. To be called behind every
    /// fact that the answer depends on, whatever their order: a state that is written anew has them in another one.
    fn drop_deleted(&mut self) {
        let (active, start) = (self.checkpoint.and_then(|last| last.active), self.log_start);
        let Some(sealed) = &mut self.sealed else { return };
        let mut gone = sealed.partition_point(|segment| segment.base <= start).saturating_sub(1);
        // The last one ends where the active segment began, at the latest: unless it is that segment, sealed since the checkpoint.
        if let (Some(active), Some(last)) = (active, sealed.last())
            && gone + 1 == sealed.len()
            && last.base < active.base
            && active.base <= start
        {
            gone += 1;
        }
        sealed.drain(..gone);
    }

    fn truncate(&mut self, end: Offset) {
        self.synced = self.synced.min(end);
        (self.closed, self.derived) = (None, None);
        self.keep_newer(|(_, start)| *start < end);
        self.opened.dense_from = self.opened.dense_from.map(|dense| dense.min(end));
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.recovery_point = checkpoint.recovery_point.min(end);
            checkpoint.high_watermark = checkpoint.high_watermark.min(end);
            checkpoint.active = checkpoint.active.filter(|active| active.end <= end);
        }
        if let Some(sealed) = &mut self.sealed {
            // The last one that begins below the cut may be what is cut.
            let kept = sealed.partition_point(|segment| segment.base < end).saturating_sub(1);
            sealed.truncate(kept);
        }
        self.drop_deleted();
    }
}

// One of each partition of a broker is kept, and a broker may have a hundred thousand.
const _: () = assert!(size_of::<PartitionState>() <= 240);

/// What is known of a log directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The partitions. Behind counts: a copy of all of them costs little, and the places of the map
    /// that hold none take little room.
    pub partitions: BTreeMap<Key, Arc<PartitionState>>,
    /// The broker stopped cleanly, and has not started since.
    pub closed: bool,
    /// The incarnation of the broker that stopped cleanly (KIP-966).
    pub broker_epoch: Option<BrokerEpoch>,
    /// The processes that had the directory, from the last one on that is known to have been registered; first of all
    /// [`Uuid::ZERO`] if that one is not known. By that a copy is told: the process that was registered last
    /// did not have it. Invariant: at most [`PROCESSES_MAX`].
    pub processes: Vec<Uuid>,
    /// The newest mark of the directory; 0 for none.
    pub mark: u64,
    /// The newest state of the node's metadata folder that was noted; `None` if none was.
    pub metadata: Option<MetadataNote>,
    /// The wall clock at the last start or stop.
    pub at: Timestamp,
    /// A copy of `meta.properties`.
    pub meta: Vec<u8>,
}

/// Processes that are remembered: so many starts may fail before one is registered.
pub const PROCESSES_MAX: usize = 1_000;

impl State {
    /// The partition's name, which is its folder's.
    pub fn name(key: Key, state: &PartitionState) -> TopicPartition {
        TopicPartition { topic: Arc::clone(&state.opened.topic), partition: key.partition }
    }

    /// The newest index of the cluster's metadata that a partition was opened at.
    pub fn image_index(&self) -> u64 {
        self.partitions.values().map(|state| state.opened.image_index).max().unwrap_or(0)
    }

    /// Those of `entries` that say something of what is known here, in order: only an [`Opened`]
    /// begins a partition, and nothing is said of one that is forgotten.
    /// Entries above `level`, that of the directory's journal, are left out: an earlier release cannot read them.
    pub(super) fn concerning<'a>(&self, entries: &'a [Entry], level: u8) -> Vec<&'a Entry> {
        let mut changed: BTreeMap<Key, bool> = BTreeMap::new();
        let mut concerns = |entry: &Entry| match entry {
            Entry::Started(_)
            | Entry::Begun(_)
            | Entry::Joined(_)
            | Entry::Marked(_)
            | Entry::MetadataNoted(_) => true,
            Entry::Of(key, Fact::Opened(_)) => {
                changed.insert(*key, true);
                true
            }
            Entry::Of(key, fact) => {
                let before = changed.get(key).copied();
                let known = before.unwrap_or_else(|| self.partitions.contains_key(key));
                if known && *fact == Fact::Forgotten {
                    changed.insert(*key, false);
                }
                known
            }
        };
        entries.iter().filter(|entry| entry.level() <= level && concerns(entry)).collect()
    }

    /// Level of the directory's journal, as the copy of `meta.properties` names it; the newest one without a copy, in tests for
    /// example.
    pub(super) fn level(&self) -> u8 {
        let named = |meta: MetaProperties| meta.journal_level.max(JOURNAL_LEVEL_MIN);
        self.meta_properties().map_or(JOURNAL_LEVEL_MAX, named)
    }

    /// Id of the log directory, as the copy of `meta.properties` names it; `None` without a copy.
    pub(super) fn directory(&self) -> Option<Uuid> {
        self.meta_properties().map(|meta| meta.directory_id)
    }

    fn meta_properties(&self) -> Option<MetaProperties> {
        let text = std::str::from_utf8(&self.meta).ok()?;
        MetaProperties::decode(text).ok()
    }

    /// Whether `offset` is news as a synced offset of a partition.
    pub(super) fn knows_less(&self, key: &Key, offset: Offset) -> bool {
        self.partitions.get(key).is_some_and(|known| known.synced < offset)
    }

    /// Whether a partition is known, and no epoch as new as this one.
    pub(super) fn knows_no_such_epoch(&self, key: &Key, epoch: LeaderEpoch) -> bool {
        self.partitions.get(key).is_some_and(|known| known.newest_epoch() < epoch)
    }

    /// Takes an entry in. Fails on one about a partition that was never opened.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), Unreadable> {
        match entry {
            Entry::Started(at) => self.start(*at),
            Entry::Begun(process) => self.begin(*process),
            Entry::Joined(process) => self.processes = vec![*process],
            Entry::Marked(mark) => self.mark = self.mark.max(*mark),
            Entry::MetadataNoted(note) => self.metadata = Some(*note),
            Entry::Of(key, Fact::Forgotten) => {
                self.partitions.remove(key).ok_or_else(|| unknown(key))?;
            }
            Entry::Of(key, fact) => match (self.partitions.get_mut(key), fact) {
                (Some(state), fact) => Arc::make_mut(state).apply(fact),
                (None, Fact::Opened(opened)) => self.open(*key, opened),
                (None, _) => return Err(unknown(key)),
            },
        }
        Ok(())
    }

    fn open(&mut self, key: Key, opened: &Opened) {
        let mut state = PartitionState::new(opened.clone());
        // Neighbours are partitions of one topic nearly always: they share its name.
        let before = Key { partition: PartitionIndex(key.partition.0.wrapping_sub(1)), ..key };
        if let Some(neighbour) = self.partitions.get(&before)
            && neighbour.opened.topic == state.opened.topic
        {
            state.opened.topic = Arc::clone(&neighbour.opened.topic);
        }
        self.partitions.insert(key, Arc::new(state));
    }

    fn start(&mut self, at: Timestamp) {
        self.closed = false;
        self.at = at;
        for state in self.partitions.values_mut().filter(|state| state.closed.is_some()) {
            Arc::make_mut(state).closed = None;
        }
    }

    fn begin(&mut self, process: Uuid) {
        if self.processes.is_empty() {
            // A new directory, or one of a version that noted none.
            self.processes.push(Uuid::ZERO);
        }
        self.processes.push(process);
        if self.processes.len() > PROCESSES_MAX {
            // The first one is the last that was registered, the newest ones may have been.
            self.processes.remove(1);
        }
    }

    /// The entries that make this state out of an empty one, as they stand in a snapshot.
    pub fn encode_entries(&self) -> Vec<u8> {
        self.entries_behind(Vec::new())
    }

    /// Takes in what [`State::encode_entries`] wrote. No bytes make it panic.
    pub fn decode_entries(&mut self, bytes: &[u8]) -> Result<(), Unreadable> {
        let mut entries = EntryReader::new(bytes);
        while let Some(entry) = entries.next()? {
            self.apply(&entry)?;
        }
        Ok(())
    }

    pub(super) fn entries_behind(&self, bytes: Vec<u8>) -> Vec<u8> {
        let mut entries = EntryWriter::behind(bytes);
        if let Some((first, others)) = self.processes.split_first() {
            entries.put(&Entry::Joined(*first));
            others.iter().for_each(|process| entries.put(&Entry::Begun(*process)));
        }
        if self.mark > 0 {
            entries.put(&Entry::Marked(self.mark));
        }
        if let Some(note) = self.metadata {
            entries.put(&Entry::MetadataNoted(note));
        }
        for (key, partition) in &self.partitions {
            State::facts(partition).iter().for_each(|fact| entries.put_fact(*key, fact));
        }
        entries.bytes
    }

    /// The facts that make a partition's state out of nothing.
    fn facts(state: &PartitionState) -> Vec<Fact> {
        let mut facts = vec![Fact::Opened(state.opened.clone())];
        facts.extend(state.checkpoint.map(Fact::Checkpoint));
        facts.extend(state.derived.as_deref().cloned().map(Fact::Derived));
        facts.extend(state.newer_epochs.iter().map(|(epoch, start)| Fact::Epoch(*epoch, *start)));
        if state.synced > state.checkpoint.map_or(Offset(0), |last| last.recovery_point) {
            facts.push(Fact::Synced(state.synced));
        }
        if state.log_start > Offset(0) {
            facts.push(Fact::Start(state.log_start));
        }
        if let Some(segments) = &state.sealed {
            facts.push(Fact::Sealed { complete: true, segments: segments.clone() });
        }
        facts.extend(state.closed.map(Fact::Closed));
        facts.extend(state.refused.as_deref().cloned().map(Fact::Refused));
        facts.extend(state.sync_failed.clone().map(Fact::SyncFailed));
        facts.extend(state.deleted.clone().map(|aside| Fact::Deleted { aside }));
        facts
    }
}

fn unknown(key: &Key) -> Unreadable {
    let Key { topic_id, partition } = key;
    Unreadable(format!("an entry about partition {partition} of {topic_id}, which was not opened"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_above_the_level_is_left_out() {
        let state = State::default();
        let entries = [Entry::Started(Timestamp(1))];
        assert_eq!(state.concerning(&[Entry::Marked(1)], 1).len(), 0);
        assert_eq!(state.concerning(&[Entry::Marked(1)], 2).len(), 1);
        assert_eq!(state.concerning(&entries, 1).len(), 1);
        assert_eq!(state.concerning(&entries, 0).len(), 0);
        let noted = [Entry::MetadataNoted(MetadataNote { member: 1, index: 2, term: 3 })];
        assert_eq!(state.concerning(&noted, 1).len(), 0);
        assert_eq!(state.concerning(&noted, 2).len(), 1);
    }

    #[test]
    fn the_copy_of_meta_properties_names_the_level() {
        let meta = |level: u8| MetaProperties {
            node_id: model::BrokerId(1),
            cluster_id: "c".to_owned(),
            directory_id: Uuid([2; 16]),
            journal_level: level,
            metadata_level: 0,
            unknown_lines: Vec::new(),
        };
        for (level, expected) in [(0, 1), (1, 1), (7, 7)] {
            let meta = meta(level).encode().into_bytes();
            assert_eq!(State { meta, ..State::default() }.level(), expected);
        }
    }
}
