//! openraft's log store on our segment log.
//!
//! Entries are appended (and readable) at once and reported when the writer thread has synced
//! them. The last ones stay decoded in memory, because applying and replicating read them again.

use super::check::Found;
use super::snapshot;
use super::synced::SyncedNote;
use super::vote::VoteFile;
use super::writer::{Write, Writer};
use crate::raft::{Entry, LogId, TypeConfig, Vote};
use crate::translation::{plain_entry, raft_entry};
use ledger::entry;
use model::batch::Batches;
use model::{BatchHeader, Durability, Offset, Timestamp};
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::disk::Disk;
use storage::{CleanupPolicy, Log, LogConfig, Opening};

/// Entries kept decoded.
const RECENT_MAX: usize = 64;
/// Bytes of those, as they stand in the log: one that makes a hundred thousand partitions is read again
/// rather than kept.
const RECENT_BYTES_MAX: u64 = 1 << 20;
/// Bytes read at a time.
const READ_BYTES: u32 = 1 << 20;
/// Entries are purged by whole segments, so they are not large: of what makes a snapshot due, a
/// log has so many.
const SEGMENTS: u64 = 8;

/// The log, the vote, and what was purged. Copies are the same store.
#[derive(Clone)]
pub(crate) struct LogStore {
    shared: Arc<Shared>,
}

struct Shared {
    log: Arc<Mutex<Log>>,
    state: Mutex<State>,
    /// Up to which index the log is synced. Locked behind `log`.
    synced: Arc<Mutex<SyncedNote>>,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    writer: Writer,
}

struct State {
    /// What the file says once what was sent to the writer is written. Changed before it is sent.
    vote_file: VoteFile,
    /// The newest entry, purged or not.
    last: Option<LogId>,
    /// The newest entries. Invariant: consecutive, ending with `last` unless empty.
    recent: VecDeque<Entry>,
    /// Index and bytes of every entry that is not purged. Invariant: consecutive, ending with `last`
    /// unless empty.
    sizes: VecDeque<(u64, u32)>,
    /// Their bytes.
    size_bytes: u64,
}

impl State {
    fn add_size(&mut self, index: u64, bytes: u32) {
        self.sizes.push_back((index, bytes));
        self.size_bytes += u64::from(bytes);
    }

    /// Drops the oldest of the recent entries until the others are few and small.
    fn bound_recent(&mut self) {
        let newest = self.sizes.iter().rev().take(RECENT_MAX.min(self.recent.len()));
        let mut bytes = 0;
        let kept = newest.take_while(|(_, size)| {
            bytes += u64::from(*size);
            bytes <= RECENT_BYTES_MAX
        });
        let surplus = self.recent.len() - kept.count();
        self.recent.drain(..surplus);
    }

    /// Forgets the sizes of entries that are not within `from..until`.
    fn keep_sizes(&mut self, from: u64, until: u64) {
        self.sizes.retain(|(index, _)| (from..until).contains(index));
        self.size_bytes = self.sizes.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
    }
}

/// The wall clock, in milliseconds.
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp(since.map_or(0, |since| since.as_millis() as i64))
}

fn log_config(bytes_max: u64) -> LogConfig {
    LogConfig {
        segment_bytes: (bytes_max / SEGMENTS).clamp(1024, 1 << 30) as u32,
        segment_ms: i64::MAX,
        retention_ms: -1,
        retention_bytes: -1,
        cleanup: CleanupPolicy { delete: true, compact: false },
        max_message_bytes: i32::MAX as u32,
        ..LogConfig::default()
    }
}

fn open_log(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    known: &VoteFile,
    found: &Found,
    bytes_max: u64,
) -> io::Result<Log> {
    let purged_next = known.purged.map_or(0, |id| id.index + 1);
    let opening = Opening {
        log_start_offset: Offset(found.first.unwrap_or(purged_next) as i64),
        recovery_point: Offset(known.recovery_point as i64),
        synced: Offset(found.synced_below as i64),
        dense_from: Some(Offset(0)),
        // What a failed sync left in the page cache is written anew before it is believed.
        durability: Durability::Fsync,
        ..Opening::unknown(now())
    };
    let config = Arc::new(log_config(bytes_max));
    let mut log =
        Log::open(Arc::clone(disk), dir.to_owned(), config, opening).map_err(io::Error::other)?;
    if found.first.is_some() && log.log_end_offset().0 as u64 != found.next {
        let (end, next) = (log.log_end_offset(), found.next);
        let reason =
            format_args!("its whole entries end below index {next}, and it was opened up to {end}");
        return Err(super::refused(dir, reason, super::RESTORE));
    }
    if purged_next as i64 > log.log_end_offset().0 {
        start_at(&mut log, purged_next)?;
    }
    Ok(log)
}

/// Empties the log: it goes on behind what a snapshot from another node has.
fn start_at(log: &mut Log, index: u64) -> io::Result<()> {
    log.truncate_fully_and_start_at(Offset(index as i64)).map_err(io::Error::other)
}

impl LogStore {
    /// Opens the log in a folder that was found to be whole, or begins one.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        vote_file: VoteFile,
        found: Found,
        bytes_max: u64,
    ) -> io::Result<LogStore> {
        let log = open_log(&disk, &dir, &vote_file, &found, bytes_max)?;
        let mut note = SyncedNote::open(&*disk, &dir)?;
        note.advance(log.synced_below().0 as u64)?;
        let purged_next = vote_file.purged.map_or(0, |id| id.index + 1);
        let newest = found.next.checked_sub(1).filter(|last| *last >= purged_next);
        let last = newest.and_then(|last| found.id(last)).or(vote_file.purged);
        let (sizes, recent) = (found.sizes, VecDeque::new());
        let mut state = State { vote_file, last, recent, sizes, size_bytes: 0 };
        state.keep_sizes(purged_next, u64::MAX);
        let (log, synced) = (Arc::new(Mutex::new(log)), Arc::new(Mutex::new(note)));
        let writer =
            Writer::start(Arc::clone(&log), Arc::clone(&synced), Arc::clone(&disk), dir.clone())?;
        let state = Mutex::new(state);
        Ok(LogStore { shared: Arc::new(Shared { log, state, synced, disk, dir, writer }) })
    }

    /// Whether this node ever voted.
    pub(crate) fn has_vote(&self) -> bool {
        self.shared.state.lock().vote_file.vote.is_some()
    }

    /// The newest vote, as this node would give it now.
    pub(crate) fn vote(&self) -> Option<Vote> {
        self.shared.state.lock().vote_file.vote
    }

    /// Makes durable which member this folder is, before anybody is told.
    pub(crate) fn keep_identity(&self) -> io::Result<()> {
        let file = self.shared.state.lock().vote_file.clone();
        assert!(file.vote.is_none(), "who has voted has an identity");
        let Shared { disk, dir, .. } = &*self.shared;
        file.write(&**disk, dir)?;
        dir.parent().map_or(Ok(()), |parent| disk.sync_dir(parent))
    }

    /// The newest entry, purged or not.
    pub(crate) fn last(&self) -> Option<LogId> {
        self.shared.state.lock().last
    }

    /// How many entries are kept decoded.
    #[cfg(test)]
    pub(super) fn recent_count(&self) -> usize {
        self.shared.state.lock().recent.len()
    }

    /// Bytes of the entries that are not purged.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.shared.state.lock().size_bytes
    }

    /// Votes as the only voter, and begins the log if it has no entry. Both go to the writer, and
    /// nothing waits for them: what follows is not durable before them.
    pub(crate) fn begin_alone(&self, first: Option<Entry>, vote: Vote) -> io::Result<()> {
        self.write_entries(first.as_slice())?;
        let file = {
            let mut state = self.shared.state.lock();
            state.vote_file.vote = Some(vote);
            state.vote_file.clone()
        };
        self.shared.writer.send(Write::FirstVote(file))
    }

    /// Appends to the log's file; not synced yet.
    fn write_entries(&self, entries: &[Entry]) -> io::Result<()> {
        let now = now();
        let synced = self.shared.synced.lock().last();
        let mut bytes = Vec::new();
        let mut headers = Vec::with_capacity(entries.len());
        for entry in entries {
            let batch = entry::encode(&plain_entry(entry), synced, now);
            headers.push(BatchHeader::decode(&batch).expect("a batch that was just built"));
            bytes.extend_from_slice(&batch);
        }
        self.shared.log.lock().append(&bytes, &headers, now).map_err(io::Error::other)?;
        let mut state = self.shared.state.lock();
        for (entry, header) in entries.iter().zip(&headers) {
            state.last = Some(entry.log_id);
            state.recent.push_back(entry.clone());
            state.add_size(entry.log_id.index, header.size_bytes);
        }
        state.bound_recent();
        Ok(())
    }

    /// Entries from index `from` to `until` (exclusive), at most `max_bytes` bytes but at least
    /// one, if there is one.
    fn read(&self, from: u64, until: u64, max_bytes: u32) -> io::Result<Vec<Entry>> {
        if let Some(entries) = self.read_recent(from, until) {
            return Ok(entries);
        }
        let purged_next = {
            let state = self.shared.state.lock();
            state.vote_file.purged.map_or(0, |id| id.index + 1)
        };
        let slice = {
            let log = self.shared.log.lock();
            let start = (log.log_start_offset().0 as u64).max(purged_next).max(from);
            let end = log.log_end_offset();
            let until = Offset(i64::try_from(until).unwrap_or(i64::MAX)).min(end);
            if start as i64 >= until.0 {
                return Ok(Vec::new());
            }
            log.read(Offset(start as i64), until, max_bytes, true).map_err(io::Error::other)?
        };
        let Some(slice) = slice else { return Ok(Vec::new()) };
        let mut bytes = vec![0; slice.size_bytes as usize];
        let read = slice.file.read_at(&mut bytes, slice.position)?;
        decode_all(&bytes[..read], from.max(purged_next), until)
    }

    fn read_recent(&self, from: u64, until: u64) -> Option<Vec<Entry>> {
        let state = self.shared.state.lock();
        let first = state.recent.front()?.log_id.index;
        if from < first {
            return None;
        }
        let wanted = state.recent.iter().filter(|e| (from..until).contains(&e.log_id.index));
        Some(wanted.cloned().collect())
    }

    /// Changes what the file says, and waits until it is durable. In memory it is changed first: if
    /// nobody waits any more, the next write says it too.
    async fn write_vote_file(&self, change: impl FnOnce(&mut VoteFile)) -> io::Result<()> {
        let (answer, written) = tokio::sync::oneshot::channel();
        {
            let mut state = self.shared.state.lock();
            change(&mut state.vote_file);
            // Under the lock, so that writes come in the order of the changes.
            self.shared.writer.send(Write::Vote(state.vote_file.clone(), answer))?;
        }
        let ended = |_| io::Error::other("the quorum's writer has ended");
        written.await.map_err(ended)?
    }

    /// Makes the log need no recovery up to its end; returns that index.
    fn checkpoint(&self) -> io::Result<u64> {
        let mut log = self.shared.log.lock();
        if let Some(ticket) = log.begin_checkpoint().map_err(io::Error::other)? {
            let result = ticket.run();
            log.finish_checkpoint(ticket, result).map_err(io::Error::other)?;
        }
        Ok(log.recovery_point().0 as u64)
    }

    /// The end of a clean stop: the next start reads nothing to check it.
    pub(crate) async fn close(&self) -> io::Result<()> {
        let recovery_point = self.checkpoint()?;
        self.write_vote_file(|file| file.recovery_point = recovery_point).await
    }

    /// Nothing says any more that entries from an index on were synced: they are about to go.
    async fn forget_synced(&self, next: u64) -> io::Result<()> {
        if self.shared.state.lock().vote_file.recovery_point > next {
            self.write_vote_file(|file| file.recovery_point = file.recovery_point.min(next))
                .await?;
        }
        Ok(())
    }

    fn cut_behind(&self, keep: Option<LogId>, next: u64) -> io::Result<()> {
        let mut log = self.shared.log.lock();
        self.shared.synced.lock().lower(next)?;
        log.truncate_to(Offset(next as i64)).map_err(io::Error::other)?;
        drop(log);
        let mut state = self.shared.state.lock();
        if state.last.is_some_and(|last| last.index >= next) {
            state.last = keep;
        }
        state.recent.retain(|entry| entry.log_id.index < next);
        state.keep_sizes(0, next);
        Ok(())
    }

    /// Removes the files of entries that the snapshot before the newest has as well.
    fn drop_before(&self, purged: LogId) -> io::Result<()> {
        let kept_from = snapshot::previous_index(&*self.shared.disk, &self.shared.dir)?;
        let next = purged.index + 1;
        let deleted = {
            let mut log = self.shared.log.lock();
            if next as i64 > log.log_end_offset().0 {
                self.shared.synced.lock().lower(0)?;
                start_at(&mut log, next)?;
            } else if let Some(previous) = kept_from {
                let start = Offset(next.min(previous + 1) as i64);
                log.delete_records_before(start).map_err(io::Error::other)?;
            }
            let limit = log.log_end_offset();
            log.retain(now(), limit).map_err(io::Error::other)?
        };
        deleted.iter().try_for_each(|segment| segment.remove(&*self.shared.disk))?;
        let mut state = self.shared.state.lock();
        state.recent.retain(|entry| entry.log_id.index > purged.index);
        state.keep_sizes(next, u64::MAX);
        if state.last.is_none_or(|last| last.index <= purged.index) {
            state.last = Some(purged);
        }
        Ok(())
    }
}

fn decode_all(bytes: &[u8], from: u64, until: u64) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for batch in Batches::new(bytes) {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let (_, batch) = batch.map_err(invalid)?;
        let header = BatchHeader::decode_checked(batch).map_err(invalid)?;
        let entry = raft_entry(entry::decode(&header, batch)?);
        if (from..until).contains(&entry.log_id.index) {
            entries.push(entry);
        }
    }
    Ok(entries)
}

/// The range as `from..until`.
fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(index) => *index,
        Bound::Excluded(index) => index + 1,
        Bound::Unbounded => 0,
    };
    let until = match range.end_bound() {
        Bound::Included(index) => index.saturating_add(1),
        Bound::Excluded(index) => *index,
        Bound::Unbounded => u64::MAX,
    };
    (from, until)
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let (mut from, until) = bounds(&range);
        let mut entries = Vec::new();
        while from < until {
            let more = self.read(from, until, READ_BYTES)?;
            let Some(last) = more.last() else { break };
            from = last.log_id.index + 1;
            entries.extend(more);
        }
        Ok(entries)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.read(start, end, READ_BYTES)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.shared.state.lock().vote_file.vote)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let state = self.shared.state.lock();
        Ok(LogState { last_purged_log_id: state.vote_file.purged, last_log_id: state.last })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let vote = *vote;
        self.write_vote_file(|file| file.vote = Some(vote)).await
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        self.write_entries(&entries)?;
        self.shared.writer.send(Write::Entries(callback))
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let next = last_log_id.map_or(0, |id| id.index + 1);
        self.forget_synced(next).await?;
        self.cut_behind(last_log_id, next)
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        let end = self.checkpoint()?;
        // All entries go if the snapshot came from another node and has more than the log.
        let recovery_point = if log_id.index >= end { 0 } else { end };
        // Durably noted first: a start in between finds entries to skip, never a gap.
        self.write_vote_file(|file| {
            file.purged = Some(log_id);
            file.recovery_point = recovery_point;
        })
        .await?;
        self.drop_before(log_id)
    }
}
