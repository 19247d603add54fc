//! openraft's state machine: entries that are committed become facts in the image.
//!
//! It decides nothing. A proposal that was decided on another image is refused, on every node
//! alike. Its state is the newest snapshot plus the entries behind it, so nothing else is written.
//!
//! An entry also says what became of those before it when they were applied for the first time. If
//! that is not what became of them here, the image is not the cluster's: the node stops.
//!
//! Parts of a large decision are gathered, and become facts with the last of them. A snapshot is of what
//! was before the first: the parts are read again behind it.

use crate::deleted_topics::DeletedTopics;
use crate::parts::Gathered;
use crate::published::{Published, Version};
use crate::raft::{
    Entry, LogId, Outcome, Payload, Proposal, Snapshot, SnapshotMeta, StoredMembership, TypeConfig,
};
use crate::store::log_store::LogStore;
use crate::store::snapshot::{self, Applied};
use futures_util::{Stream, StreamExt};
use metadata::{ImageDelta, MetadataRecord};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{OptionalSend, RaftLogReader, RaftSnapshotBuilder};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use storage::disk::Disk;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The facts, and where they are kept.
pub(crate) struct StateMachine {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    applied: Applied,
    /// The parts of a decision of which the last is still to come.
    gathered: Option<Gathered>,
    published: Arc<Published>,
    deleted_topics: Arc<DeletedTopics>,
    /// The log of this node, which may end behind the applied entries.
    log: Option<LogStore>,
    writes: Writes,
    /// Whether an entry may be missing; for tests of others.
    allows_gaps: bool,
}

/// Snapshots that are being written. They are written by threads that nobody waits for when the raft
/// stops, and the folder may be opened again once it has stopped.
#[derive(Clone, Debug)]
pub(crate) struct Writes(Arc<Semaphore>);

/// Snapshots that may be written at once; there are two at most, one built and one received.
const WRITES_MAX: u32 = 2;

impl Writes {
    fn new() -> Writes {
        Writes(Arc::new(Semaphore::new(WRITES_MAX as usize)))
    }

    /// Held while a snapshot is written. Fails once it has stopped.
    async fn begin(&self) -> io::Result<OwnedSemaphorePermit> {
        let stopped = |_| io::Error::other("the metadata quorum has stopped");
        Arc::clone(&self.0).acquire_owned().await.map_err(stopped)
    }

    /// Waits until nothing is written any more, and lets nothing begin.
    pub(crate) async fn stop(&self) {
        // An error says that it was stopped before.
        let _all = self.0.acquire_many(WRITES_MAX).await;
        self.0.close();
    }
}

impl StateMachine {
    /// Begins with what a snapshot in the directory gave.
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: PathBuf, applied: Applied) -> StateMachine {
        let below = applied.last.map_or(0, |last| last.index + 1);
        let image = Arc::new(applied.image.clone());
        let version = Version { image, changed_at: applied.changed_at };
        let published = Arc::new(Published::new(version, below));
        let (gathered, writes) = (None, Writes::new());
        StateMachine {
            disk,
            dir,
            applied,
            gathered,
            published,
            deleted_topics: Arc::new(DeletedTopics::new()),
            log: None,
            writes,
            allows_gaps: false,
        }
    }

    /// Reads this log for topics that a received snapshot deletes, and reports to it how much is committed.
    pub(crate) fn with_log(self, log: LogStore) -> StateMachine {
        StateMachine { log: Some(log), ..self }
    }

    pub(crate) fn deleted_topics(&self) -> Arc<DeletedTopics> {
        Arc::clone(&self.deleted_topics)
    }

    pub(crate) fn writes(&self) -> Writes {
        self.writes.clone()
    }

    /// Takes entries that do not follow each other.
    #[cfg(test)]
    pub(crate) fn with_gaps(self) -> StateMachine {
        StateMachine { allows_gaps: true, ..self }
    }

    pub(crate) fn published(&self) -> Arc<Published> {
        Arc::clone(&self.published)
    }

    /// Takes one entry in; not published yet.
    pub(crate) fn take_in(&mut self, entry: Entry, delta: &mut ImageDelta) -> io::Result<Outcome> {
        let index = entry.log_id.index;
        let follows = |last: &LogId| last.index + 1 == index || self.allows_gaps;
        if let Some(last) = self.applied.last.filter(|last| !follows(last)) {
            return Err(invalid(format!(
                "entry {index} follows entry {} in the metadata log",
                last.index
            )));
        }
        let before = self.applied.last.replace(entry.log_id);
        let gathered = self.gathered.take();
        match entry.payload {
            Payload::Blank => Ok(Outcome::Applied),
            Payload::Membership(members) => {
                self.applied.members = StoredMembership::new(Some(entry.log_id), members);
                Ok(Outcome::Applied)
            }
            Payload::Normal(proposal) => {
                self.check_outcomes(index, &proposal)?;
                if proposal.decided_at != self.applied.changed_at {
                    return Ok(Outcome::Refused);
                }
                let Some(part) = &proposal.part else {
                    return self.replay(index, &proposal.records, delta);
                };
                let Some(gathered) = Gathered::add(gathered, before, entry.log_id, part) else {
                    return Ok(Outcome::Refused);
                };
                if !part.is_last {
                    self.gathered = Some(gathered);
                    return Ok(Outcome::Applied);
                }
                let records = MetadataRecord::decode_lines(gathered.text());
                let records =
                    records.map_err(|error| invalid(format!("entry {index}: {error}")))?;
                self.replay(index, &records, delta)
            }
        }
    }

    /// The image as it is now.
    pub(crate) fn into_image(self) -> metadata::ClusterImage {
        self.applied.image
    }

    /// The state that a snapshot taken now is of.
    fn settled(&self) -> Applied {
        match &self.gathered {
            None => self.applied.clone(),
            Some(gathered) => Applied { last: gathered.before(), ..self.applied.clone() },
        }
    }

    fn replay(
        &mut self,
        index: u64,
        records: &[MetadataRecord],
        delta: &mut ImageDelta,
    ) -> io::Result<Outcome> {
        let image = &mut self.applied.image;
        for record in records {
            delta.note(image, record);
            if let MetadataRecord::TopicDeleted { topic_id } = record {
                self.deleted_topics.note(*topic_id);
            }
            image.replay(record).map_err(|error| invalid(format!("entry {index}: {error}")))?;
        }
        self.applied.changed_at = Some(index);
        Ok(Outcome::Applied)
    }

    /// Fails if the entries before this one had other outcomes here than on the node that led.
    fn check_outcomes(&self, index: u64, proposal: &Proposal) -> io::Result<()> {
        let Proposal { decided_at, applied: Some(applied), .. } = *proposal else { return Ok(()) };
        let changed_at = self.applied.changed_at;
        let text = |change: Option<u64>| change.map_or("none".to_owned(), |at| at.to_string());
        // An entry that was refused here changed the leader's image, or one that changed the image
        // here, and that the leader had applied, did not change the leader's.
        let differs =
            decided_at > changed_at || (decided_at < changed_at && changed_at <= Some(applied));
        if !differs {
            return Ok(());
        }
        Err(invalid(format!(
            "entry {index} of the metadata log was decided when entry {} was the last that had changed \
             the metadata; here it is entry {}: the log or a snapshot is not what was written; move \
             the folder {} away and start this node without it; a node that votes alone needs the folder as it was before",
            text(decided_at),
            text(changed_at),
            self.dir.display()
        )))
    }

    /// Collects the topics that a received snapshot deletes, those in unapplied entries of this node's log included: openraft
    /// keeps these entries until the snapshot is installed.
    async fn note_deleted_by(&self, received: &Applied) -> io::Result<()> {
        self.deleted_topics.note_missing(&self.applied.image, &received.image);
        let Some(mut log) = self.log.clone() else { return Ok(()) };
        let next = |applied: &Applied| applied.last.map_or(0, |last| last.index + 1);
        let unapplied = log.try_get_log_entries(next(&self.applied)..next(received)).await?;
        let (disk, dir) = (Arc::clone(&self.disk), self.dir.clone());
        let mut machine = StateMachine::new(disk, dir, self.applied.clone());
        machine.gathered.clone_from(&self.gathered);
        for entry in unapplied {
            // Entries that were never committed may not fit; nothing of them was acted upon.
            if machine.take_in(entry, &mut ImageDelta::default()).is_err() {
                break;
            }
        }
        for topic_id in machine.deleted_topics.take() {
            if received.image.topic_by_id(topic_id).is_none() {
                self.deleted_topics.note(topic_id);
            }
        }
        self.deleted_topics.note_missing(&machine.applied.image, &received.image);
        Ok(())
    }

    fn publish(&self, delta: ImageDelta, changed_before: Option<u64>) {
        let Some(last) = self.applied.last else { return };
        if self.applied.changed_at != changed_before {
            let image = Arc::new(self.applied.image.clone());
            let version = Version { image, changed_at: self.applied.changed_at };
            self.published.publish(last.index, version, delta);
        }
        let settled = match &self.gathered {
            None => Some(last),
            Some(gathered) => gathered.before(),
        };
        self.published.settled(settled.map_or(0, |id| id.index + 1));
        if let Some(log) = &self.log {
            log.note_committed(last.index + 1);
        }
        self.published.applied(last.index);
    }
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = Vec<u8>;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.applied.last, self.applied.members.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        let changed_before = self.applied.changed_at;
        let mut delta = ImageDelta::default();
        let mut answers = Vec::new();
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let outcome = self.take_in(entry, &mut delta)?;
            answers.extend(responder.map(|responder| (responder, outcome)));
        }
        // Who is answered must be able to see what was done.
        self.publish(delta, changed_before);
        for (responder, outcome) in answers {
            responder.send(outcome);
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder {
            disk: Arc::clone(&self.disk),
            dir: self.dir.clone(),
            applied: self.settled(),
            writes: self.writes.clone(),
        }
    }

    async fn install_snapshot(&mut self, _: &SnapshotMeta, bytes: Vec<u8>) -> io::Result<()> {
        let received = Applied::decode(&bytes).map_err(invalid)?;
        let last = received.last.ok_or_else(|| invalid("a snapshot of nothing".into()))?;
        write_snapshot(&self.writes, &self.disk, &self.dir, last, bytes).await?;
        self.note_deleted_by(&received).await?;
        let before = std::mem::replace(&mut self.applied, received);
        self.gathered = None;
        let delta = ImageDelta::between(&before.image, &self.applied.image);
        self.publish(delta, before.changed_at);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        let (disk, dir) = (Arc::clone(&self.disk), self.dir.clone());
        let read = tokio::task::spawn_blocking(move || {
            let Some(bytes) = snapshot::read_newest(&*disk, &dir)? else { return Ok(None) };
            let meta = Applied::decode(&bytes).map_err(invalid)?.meta();
            Ok(Some(Snapshot { meta, snapshot: bytes }))
        });
        read.await.map_err(io::Error::other)?
    }
}

/// Writes the image as it was when this was made, while entries go on being applied.
pub(crate) struct SnapshotBuilder {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    applied: Applied,
    writes: Writes,
}

/// Writes a snapshot on a thread that may wait for the device.
async fn write_snapshot(
    writes: &Writes,
    disk: &Arc<dyn Disk>,
    dir: &std::path::Path,
    last: LogId,
    bytes: Vec<u8>,
) -> io::Result<()> {
    let (disk, dir) = (Arc::clone(disk), dir.to_owned());
    let permit = writes.begin().await?;
    let written = tokio::task::spawn_blocking(move || {
        let written = snapshot::write(&*disk, &dir, last, &bytes);
        drop(permit);
        written
    });
    written.await.map_err(io::Error::other)?
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = Vec<u8>;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let applied = self.applied.clone();
        let meta = applied.meta();
        let encoded = tokio::task::spawn_blocking(move || applied.encode()).await;
        let bytes = encoded.map_err(io::Error::other)?;
        if let Some(last) = meta.last_log_id {
            write_snapshot(&self.writes, &self.disk, &self.dir, last, bytes.clone()).await?;
        }
        Ok(Snapshot { meta, snapshot: bytes })
    }
}
