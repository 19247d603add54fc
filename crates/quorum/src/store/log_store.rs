//! openraft's log store on our segment log.
//!
//! Every change is made in memory at once and queued for the writer's thread; no call here waits for the device,
//! except a candidate's for its own vote. Entries are readable at once and reported when the writer has synced them.
//! A vote for another node is reported to openraft before it is durable: `network.rs` holds back the answer to the
//! candidate until it is.

use super::backlog::Backlog;
use super::check::Found;
use super::synced::SyncedNote;
use super::tail::LogTail;
use super::vote::VoteFile;
use super::writer::{EntryBatches, Loop, Write, Writer};
#[cfg(test)]
use crate::faults::slow;
use crate::raft::{Entry, LogId, TypeConfig, Vote};
use crate::translation::{plain_entry, raft_entry};
use ledger::entry;
use model::batch::Batches;
use model::{BatchHeader, Durability, Offset, Timestamp};
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::disk::Disk;
use storage::{CleanupPolicy, Log, LogConfig, Opening};
use tokio::sync::oneshot;

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
    /// Number of the member that the folder is.
    me: u64,
    log: Arc<Mutex<Log>>,
    state: Arc<Mutex<State>>,
    backlog: Arc<Backlog>,
    writer: Writer,
}

/// The log and the vote as they are once the writer has finished its queue. Changed before a request is queued, under
/// the same lock, so that requests are queued in the order of the changes.
#[derive(Debug)]
pub(super) struct State {
    pub(super) tail: LogTail,
    vote: Option<Vote>,
    /// The last entry that a snapshot replaced.
    purged: Option<LogId>,
    /// The newest entry that the writer has synced.
    pub(super) synced: Option<u64>,
    /// The newest entry that is durable, in the file or in a snapshot.
    pub(super) durable: Option<LogId>,
    /// Term of the newest vote that is durable.
    pub(super) durable_term: u64,
    /// Every entry below this index is committed, so the log keeps them.
    committed_below: u64,
}

impl State {
    fn purged_next(&self) -> u64 {
        self.purged.map_or(0, |id| id.index + 1)
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
        let start = Offset(purged_next as i64);
        log.truncate_fully_and_start_at(start).map_err(io::Error::other)?;
    }
    Ok(log)
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
        let mut synced = SyncedNote::open(&*disk, &dir)?;
        synced.advance(log.synced_below().0 as u64)?;
        let purged_next = vote_file.purged.map_or(0, |id| id.index + 1);
        let newest = found.next.checked_sub(1).filter(|last| *last >= purged_next);
        let last = newest.and_then(|last| found.id(last)).or(vote_file.purged);
        let mut sizes = found.sizes;
        sizes.retain(|(index, _)| *index >= purged_next);
        let (me, vote, purged) = (vote_file.node, vote_file.vote, vote_file.purged);
        let (tail, synced_last) = (LogTail::new(last, sizes), synced.last());
        let state = State {
            tail,
            vote,
            purged,
            synced: synced_last,
            durable: last,
            durable_term: vote.map_or(0, |vote| vote.leader_id.term),
            committed_below: 0,
        };
        let (log, state) = (Arc::new(Mutex::new(log)), Arc::new(Mutex::new(state)));
        let backlog = Arc::new(Backlog::new());
        let writer = Writer::start(Loop {
            log: Arc::clone(&log),
            state: Arc::clone(&state),
            backlog: Arc::clone(&backlog),
            synced,
            disk,
            dir,
            vote_file,
            written: None,
            failure: None,
            dir_durable: false,
            first_vote: None,
        })?;
        Ok(LogStore { shared: Arc::new(Shared { me, log, state, backlog, writer }) })
    }

    /// Whether this node ever voted.
    pub(crate) fn has_vote(&self) -> bool {
        self.shared.state.lock().vote.is_some()
    }

    /// The newest vote, as this node would give it now.
    pub(crate) fn vote(&self) -> Option<Vote> {
        self.shared.state.lock().vote
    }

    /// Whether the entry `id`, which the leader of `vote` has, is durable here. `None` if this node follows another
    /// leader by now, or is not known to have the entry. `is_compared`: openraft has found the entry in the log.
    pub(crate) fn is_durable(
        &self,
        vote: Vote,
        id: Option<LogId>,
        is_compared: bool,
    ) -> Option<bool> {
        let state = self.shared.state.lock();
        if state.vote != Some(vote) {
            return None;
        }
        let Some(id) = id else { return Some(true) };
        let is_durable = state.durable.is_some_and(|durable| durable.index >= id.index);
        // Entries that memory lacks are in the file.
        let is_known = state.durable == Some(id) || state.tail.has(id) || is_compared;
        is_known.then_some(is_durable)
    }

    /// Notes that every entry below this index is committed: the log never loses one of them.
    pub(crate) fn note_committed(&self, below: u64) {
        let mut state = self.shared.state.lock();
        state.committed_below = state.committed_below.max(below);
    }

    /// Number of the member, the newest durable entry, and the newest term with a durable vote.
    pub(crate) fn durable_state(&self) -> (u64, Option<LogId>, u64) {
        let state = self.shared.state.lock();
        (self.shared.me, state.durable, state.durable_term)
    }

    /// Whether this node follows the leader of `vote` and its log ends before the entry `id`.
    pub(crate) fn ends_before(&self, vote: Vote, id: LogId) -> bool {
        let state = self.shared.state.lock();
        state.vote == Some(vote) && state.tail.last().is_none_or(|last| last.index < id.index)
    }

    /// The requests that the writer has not finished.
    pub(crate) fn backlog(&self) -> &Arc<Backlog> {
        &self.shared.backlog
    }

    /// Makes durable which member this folder is, before any other node hears of it.
    pub(crate) async fn keep_identity(&self) -> io::Result<()> {
        assert!(!self.has_vote(), "a folder that has voted has an identity");
        self.write_and_wait(Write::Identity).await
    }

    /// Votes as the only voter, durably.
    pub(crate) async fn vote_alone(&self, vote: Vote) -> io::Result<()> {
        self.begin_alone(None, vote)?;
        // The writer writes the member and the vote to one file.
        self.write_and_wait(Write::Identity).await
    }

    /// The newest entry, purged or not.
    pub(crate) fn last(&self) -> Option<LogId> {
        self.shared.state.lock().tail.last()
    }

    /// Entries that are kept decoded.
    #[cfg(test)]
    pub(super) fn recent_count(&self) -> usize {
        self.shared.state.lock().tail.recent_count()
    }

    /// Bytes of the entries that are not purged.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.shared.state.lock().tail.size_bytes()
    }

    /// Votes as the only voter, and begins the log if it has no entry. Both go to the writer, and
    /// nothing waits for them: what follows is not durable before them.
    pub(crate) fn begin_alone(&self, first: Option<Entry>, vote: Vote) -> io::Result<()> {
        if let Some(first) = first {
            self.append_entries(vec![first], None)?;
        }
        let mut state = self.shared.state.lock();
        state.vote = Some(vote);
        self.shared.writer.send(Write::FirstVote(vote))
    }

    /// Appends to the tail, and queues the entries for the file.
    fn append_entries(
        &self,
        entries: Vec<Entry>,
        flushed: Option<IOFlushed<TypeConfig>>,
    ) -> io::Result<()> {
        let written_at = now();
        let mut state = self.shared.state.lock();
        let mut bytes = Vec::new();
        let mut headers = Vec::with_capacity(entries.len());
        for entry in entries {
            let batch = entry::encode(&plain_entry(&entry), state.synced, written_at);
            let header = BatchHeader::decode(&batch).expect("a batch that was just built");
            bytes.extend_from_slice(&batch);
            state.tail.append(entry, header.size_bytes);
            headers.push(header);
        }
        let last = state.tail.last();
        let entries = EntryBatches { bytes, headers, written_at, last };
        self.shared.writer.send(Write::Entries(entries, flushed))
    }

    /// Entries from index `from` to `until` (exclusive), at most `max_bytes` bytes but at least
    /// one, if there is one. A thread of its own reads those that are in the file only.
    async fn read(&self, from: u64, until: u64, max_bytes: u32) -> io::Result<Vec<Entry>> {
        if let Some(entries) = self.shared.state.lock().tail.read(from, until, max_bytes) {
            return Ok(entries);
        }
        #[cfg(test)]
        if slow::is_simulated() {
            return self.read_file(from, until, max_bytes);
        }
        let store = self.clone();
        let read = tokio::task::spawn_blocking(move || store.read_file(from, until, max_bytes));
        read.await.map_err(io::Error::other)?
    }

    fn read_file(&self, from: u64, until: u64, max_bytes: u32) -> io::Result<Vec<Entry>> {
        let (from, until) = {
            let state = self.shared.state.lock();
            (from.max(state.purged_next()), until.min(state.tail.in_file_below()))
        };
        let slice = {
            let log = self.shared.log.lock();
            let start = (log.log_start_offset().0 as u64).max(from);
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
        decode_all(&bytes[..read], from, until)
    }

    /// Queues a request, and waits until the writer has carried it out.
    async fn write_and_wait(
        &self,
        write: impl FnOnce(oneshot::Sender<io::Result<()>>) -> Write,
    ) -> io::Result<()> {
        let (answer, written) = oneshot::channel();
        self.shared.writer.send(write(answer))?;
        let ended = |_| io::Error::other("the quorum's writer has ended");
        written.await.map_err(ended)?
    }

    /// The end of a clean stop: the next start reads nothing to check it.
    pub(crate) async fn close(&self) -> io::Result<()> {
        self.write_and_wait(Write::Close).await
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

/// A leader that requests this lacks committed entries.
fn contradicts_committed(next: u64, committed_below: u64) -> io::Error {
    let last = committed_below - 1;
    io::Error::other(format!(
        "the leader's metadata log differs from entry {next} on, and the entries up to {last} are committed: the metadata          folders of other voters were put back from older copies. Nothing was removed here. Stop these voters, and          start each of them with an empty metadata folder"
    ))
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
            let more = self.read(from, until, READ_BYTES).await?;
            let Some(last) = more.last() else { break };
            from = last.log_id.index + 1;
            entries.extend(more);
        }
        Ok(entries)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.read(start, end, READ_BYTES).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.vote())
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let state = self.shared.state.lock();
        Ok(LogState { last_purged_log_id: state.purged, last_log_id: state.tail.last() })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    /// Waits for the device if the vote is for this node: a candidate counts its own vote at once.
    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        {
            let mut state = self.shared.state.lock();
            state.vote = Some(*vote);
            self.shared.writer.send(Write::Vote(*vote))?;
        }
        match vote.leader_id.node_id == self.shared.me {
            true => self.shared.backlog.wait_votes_durable().await,
            false => Ok(()),
        }
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        self.shared.backlog.wait_for_room().await;
        self.append_entries(entries, Some(callback))?;
        #[cfg(test)]
        if crate::faults::is_mutant(crate::faults::Mutant::AppendWaits) {
            self.shared.backlog.wait_until_empty().await;
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let next = last_log_id.map_or(0, |id| id.index + 1);
        let mut state = self.shared.state.lock();
        if next < state.committed_below {
            return Err(contradicts_committed(next, state.committed_below));
        }
        state.tail.truncate(last_log_id, next);
        state.synced = state.synced.filter(|synced| *synced < next);
        if state.durable.is_some_and(|durable| durable.index >= next) {
            state.durable = last_log_id;
        }
        self.shared.writer.send(Write::Truncate(next))
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        let mut state = self.shared.state.lock();
        state.purged = Some(log_id);
        state.tail.purge(log_id);
        // openraft purges what a durable snapshot has.
        state.durable =
            state.durable.filter(|durable| durable.index > log_id.index).or(Some(log_id));
        self.shared.writer.send(Write::Purge(log_id))
    }
}
