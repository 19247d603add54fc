//! openraft's state machine: entries that are committed become facts in the image.
//!
//! It decides nothing. A proposal that was decided on another image is refused, on every node
//! alike. Its state is the newest snapshot plus the entries behind it, so nothing else is written.

use crate::published::{Published, Version};
use crate::raft::{
    Entry, LogId, Outcome, Payload, Proposal, Snapshot, SnapshotMeta, StoredMembership, TypeConfig,
};
use crate::store::snapshot::{self, Applied};
use futures_util::{Stream, StreamExt};
use metadata::ImageDelta;
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{OptionalSend, RaftSnapshotBuilder};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use storage::disk::Disk;

/// The facts, and where they are kept.
pub(crate) struct StateMachine {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    applied: Applied,
    published: Arc<Published>,
}

impl StateMachine {
    /// Begins with the newest snapshot in the directory.
    pub(crate) fn open(disk: Arc<dyn Disk>, dir: PathBuf) -> io::Result<StateMachine> {
        let applied = snapshot::load(&*disk, &dir)?.unwrap_or_default();
        let below = applied.last.map_or(0, |last| last.index + 1);
        let image = Arc::new(applied.image.clone());
        let version = Version { image, changed_at: applied.changed_at };
        let published = Arc::new(Published::new(version, below));
        Ok(StateMachine { disk, dir, applied, published })
    }

    pub(crate) fn published(&self) -> Arc<Published> {
        Arc::clone(&self.published)
    }

    /// Takes one entry in; not published yet.
    fn take_in(&mut self, entry: Entry, delta: &mut ImageDelta) -> io::Result<Outcome> {
        let index = entry.log_id.index;
        assert!(self.applied.last.is_none_or(|last| last.index < index), "entries come in order");
        self.applied.last = Some(entry.log_id);
        match entry.payload {
            Payload::Blank => Ok(Outcome::Applied),
            Payload::Membership(members) => {
                self.applied.members = StoredMembership::new(Some(entry.log_id), members);
                Ok(Outcome::Applied)
            }
            Payload::Normal(proposal) => self.replay(index, &proposal, delta),
        }
    }

    fn replay(
        &mut self,
        index: u64,
        proposal: &Proposal,
        delta: &mut ImageDelta,
    ) -> io::Result<Outcome> {
        if proposal.decided_at != self.applied.changed_at {
            return Ok(Outcome::Refused);
        }
        let image = &mut self.applied.image;
        for record in proposal.records.iter() {
            delta.note(image, record);
            image.replay(record).map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, format!("entry {index}: {error}"))
            })?;
        }
        self.applied.changed_at = Some(index);
        Ok(Outcome::Applied)
    }

    fn publish(&self, delta: ImageDelta, changed_before: Option<u64>) {
        let Some(last) = self.applied.last else { return };
        if self.applied.changed_at != changed_before {
            let image = Arc::new(self.applied.image.clone());
            let version = Version { image, changed_at: self.applied.changed_at };
            self.published.publish(last.index, version, delta);
        }
        self.published.applied(last.index);
    }
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
            applied: self.applied.clone(),
        }
    }

    async fn install_snapshot(&mut self, _: &SnapshotMeta, bytes: Vec<u8>) -> io::Result<()> {
        let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
        let received = Applied::decode(&bytes).map_err(invalid)?;
        let last = received.last.ok_or_else(|| invalid("a snapshot of nothing".into()))?;
        write_snapshot(&self.disk, &self.dir, last, bytes).await?;
        let before = std::mem::replace(&mut self.applied, received);
        let delta = ImageDelta::between(&before.image, &self.applied.image);
        self.publish(delta, before.changed_at);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        let Some(bytes) = snapshot::read_newest(&*self.disk, &self.dir)? else { return Ok(None) };
        let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
        let meta = Applied::decode(&bytes).map_err(invalid)?.meta();
        Ok(Some(Snapshot { meta, snapshot: bytes }))
    }
}

/// Writes the image as it was when this was made, while entries go on being applied.
pub(crate) struct SnapshotBuilder {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    applied: Applied,
}

/// Writes a snapshot on a thread that may wait for the device.
async fn write_snapshot(
    disk: &Arc<dyn Disk>,
    dir: &std::path::Path,
    last: LogId,
    bytes: Vec<u8>,
) -> io::Result<()> {
    let (disk, dir) = (Arc::clone(disk), dir.to_owned());
    let written =
        tokio::task::spawn_blocking(move || snapshot::write(&*disk, &dir, last, &bytes)).await;
    written.map_err(io::Error::other)?
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = Vec<u8>;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let applied = self.applied.clone();
        let meta = applied.meta();
        let encoded = tokio::task::spawn_blocking(move || applied.encode()).await;
        let bytes = encoded.map_err(io::Error::other)?;
        if let Some(last) = meta.last_log_id {
            write_snapshot(&self.disk, &self.dir, last, bytes.clone()).await?;
        }
        Ok(Snapshot { meta, snapshot: bytes })
    }
}
