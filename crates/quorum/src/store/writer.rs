//! The thread that writes the quorum's files, in the order of the requests: no other thread waits for the device.
//!
//! A vote is durable neither before the entries that were appended before it nor after those appended after it.
//! Entries that queued up while the device was busy are synced together.

use super::backlog::Backlog;
use super::log_store::State;
use super::snapshot;
use super::synced::SyncedNote;
use super::vote::VoteFile;
#[cfg(test)]
use crate::faults::slow;
use crate::raft::{LogId, TypeConfig, Vote};
use model::{BatchHeader, Offset, Timestamp};
use openraft::storage::IOFlushed;
use parking_lot::Mutex;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use storage::Log;
use storage::disk::Disk;
use tokio::sync::oneshot;

/// Encoded entries.
pub(crate) struct EntryBatches {
    pub(super) bytes: Vec<u8>,
    pub(super) headers: Vec<BatchHeader>,
    pub(super) written_at: Timestamp,
    /// The newest of them.
    pub(super) last: Option<LogId>,
}

/// A request to the writer.
pub(crate) enum Write {
    /// Append these entries. The callback, if any, is called once they are durable.
    Entries(EntryBatches, Option<IOFlushed<TypeConfig>>),
    /// Make a vote durable.
    Vote(Vote),
    /// The first vote of a node that votes alone. Written while entries are synced: no other node
    /// can have led, so entries without that vote are as good, and none is reported before it.
    FirstVote(Vote),
    /// Make durable which member the folder is.
    Identity(oneshot::Sender<io::Result<()>>),
    /// Remove the entries from this index on.
    Truncate(u64),
    /// Remove the entries up to this one. A snapshot has them.
    Purge(LogId),
    /// Make the log need no recovery at the next start.
    Close(oneshot::Sender<io::Result<()>>),
}

/// The queue of the writer's thread. The thread ends when this is dropped.
pub(super) struct Writer {
    requests: Option<Requests>,
    thread: Option<JoinHandle<()>>,
    backlog: Arc<Backlog>,
}

enum Requests {
    Thread(Sender<Write>),
    /// A task on simulated time, in simulations.
    #[cfg(test)]
    Task(tokio::sync::mpsc::UnboundedSender<Write>),
}

/// The files, and the thread's place in them.
pub(crate) struct Loop {
    pub(super) log: Arc<Mutex<Log>>,
    pub(super) state: Arc<Mutex<State>>,
    pub(super) backlog: Arc<Backlog>,
    pub(super) synced: SyncedNote,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    /// The content of the file `vote`.
    pub(super) vote_file: VoteFile,
    /// The newest entry that was written.
    pub(super) written: Option<LogId>,
    /// The first write that failed. Nothing is reported durable after it.
    pub(super) failure: Option<(io::ErrorKind, String)>,
    /// Whether the directory itself is known to be durable: a new one may hold a vote and no entry.
    pub(super) dir_durable: bool,
    /// A first vote that is being written.
    pub(super) first_vote: Option<JoinHandle<io::Result<()>>>,
}

impl Writer {
    pub(super) fn start(mut work: Loop) -> io::Result<Writer> {
        let backlog = Arc::clone(&work.backlog);
        #[cfg(test)]
        if slow::is_simulated() {
            let requests = Some(Requests::Task(slow::spawn_writer(work)));
            return Ok(Writer { requests, thread: None, backlog });
        }
        let (requests, queue) = channel();
        let thread = std::thread::Builder::new().name("quorum-writer".into());
        let thread = thread.spawn(move || work.run(&queue))?;
        Ok(Writer { requests: Some(Requests::Thread(requests)), thread: Some(thread), backlog })
    }

    /// Queues a request.
    pub(super) fn send(&self, write: Write) -> io::Result<()> {
        let (bytes, is_vote) = match &write {
            Write::Entries(entries, _) => (entries.bytes.len() as u64, false),
            Write::Vote(_) => (0, true),
            _ => (0, false),
        };
        self.backlog.add(bytes, is_vote);
        let sent = match self.requests.as_ref().expect("it is taken only when dropped") {
            Requests::Thread(requests) => requests.send(write).is_ok(),
            #[cfg(test)]
            Requests::Task(requests) => requests.send(write).is_ok(),
        };
        if sent { Ok(()) } else { Err(io::Error::other("the quorum's writer has ended")) }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was reported there; here nothing is left to save.
            let _ = thread.join();
        }
    }
}

impl Loop {
    /// Number of the member that the files belong to.
    #[cfg(test)]
    pub(crate) fn node(&self) -> u64 {
        self.vote_file.node
    }

    fn run(&mut self, queue: &Receiver<Write>) {
        while let Ok(first) = queue.recv() {
            self.write(std::iter::once(first).chain(queue.try_iter()));
        }
        if let Err(error) = self.end_first_vote() {
            tracing::warn!(%error, "the first vote was not written; the next start makes up for it");
        }
    }

    /// Carries out these requests, in their order.
    pub(crate) fn write(&mut self, writes: impl Iterator<Item = Write>) {
        let mut unsynced = Vec::new();
        for write in writes {
            match write {
                Write::Entries(entries, flushed) => {
                    // A failure is reported with the sync.
                    let _ = self.unless_failed(|this| this.write_entries(&entries));
                    unsynced.push(flushed);
                }
                write => {
                    self.sync_entries(&mut unsynced);
                    self.carry_out(write);
                    self.backlog.finish(1);
                }
            }
        }
        self.sync_entries(&mut unsynced);
    }

    /// Carries out a request that is not an append, behind the entries that were appended before it.
    fn carry_out(&mut self, write: Write) {
        match write {
            Write::Entries(..) => unreachable!("entries are synced together"),
            Write::FirstVote(vote) => {
                let begun = self.unless_failed(|this| this.begin_first_vote(vote));
                if let Err(error) = begun {
                    tracing::error!(%error, "the first vote cannot be written");
                }
            }
            Write::Vote(vote) => {
                let written = self.unless_failed(|this| {
                    this.vote_file.vote = Some(vote);
                    this.write_vote_file()
                });
                if written.is_ok() {
                    self.state.lock().durable_term = vote.leader_id.term;
                    self.backlog.note_durable_vote();
                }
            }
            Write::Identity(answer) => {
                let written = self.unless_failed(Loop::write_vote_file);
                // The caller may have gone; the file stays all the same.
                let _ = answer.send(written);
            }
            Write::Truncate(next) => {
                // A failure is reported with the next sync.
                let _ = self.unless_failed(|this| this.truncate(next));
            }
            Write::Purge(purged) => {
                let _ = self.unless_failed(|this| this.purge(purged));
            }
            Write::Close(answer) => {
                let closed = self.unless_failed(Loop::close);
                let _ = answer.send(closed);
            }
        }
    }

    fn sync_entries(&mut self, unsynced: &mut Vec<Option<IOFlushed<TypeConfig>>>) {
        for flushed in unsynced.drain(..) {
            // The first of them syncs for all: the others find nothing to do.
            let synced = self.unless_failed(|this| {
                this.sync()?;
                this.end_first_vote()
            });
            self.backlog.finish(1);
            if let Some(flushed) = flushed {
                flushed.io_completed(synced);
            }
        }
    }

    /// Does it, unless something failed before; remembers if it fails.
    fn unless_failed(&mut self, write: impl FnOnce(&mut Loop) -> io::Result<()>) -> io::Result<()> {
        if self.failure.is_none()
            && let Err(error) = write(self)
        {
            self.backlog.fail(&error.to_string());
            self.failure = Some((error.kind(), error.to_string()));
        }
        match &self.failure {
            Some((kind, reason)) => Err(io::Error::new(*kind, reason.clone())),
            None => Ok(()),
        }
    }

    fn write_entries(&mut self, entries: &EntryBatches) -> io::Result<()> {
        let EntryBatches { bytes, headers, written_at, last } = entries;
        self.log.lock().append(bytes, headers, *written_at).map_err(io::Error::other)?;
        if let Some(last) = last {
            self.written = Some(*last);
            self.state.lock().tail.note_written(last.index + 1);
        }
        Ok(())
    }

    fn begin_first_vote(&mut self, vote: Vote) -> io::Result<()> {
        self.vote_file.vote = Some(vote);
        let (disk, dir, file) = (Arc::clone(&self.disk), self.dir.clone(), self.vote_file.clone());
        let thread = std::thread::Builder::new().name("quorum-first-vote".into());
        self.first_vote = Some(thread.spawn(move || file.write(&*disk, &dir))?);
        Ok(())
    }

    fn end_first_vote(&mut self) -> io::Result<()> {
        let Some(thread) = self.first_vote.take() else { return Ok(()) };
        thread.join().map_err(|_| io::Error::other("writing the first vote panicked"))?
    }

    fn write_vote_file(&mut self) -> io::Result<()> {
        self.end_first_vote()?;
        self.vote_file.write(&*self.disk, &self.dir)?;
        if !self.dir_durable {
            self.disk.sync_dir(self.dir.parent().unwrap_or(&self.dir))?;
            self.dir_durable = true;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let log = self.log.lock();
        let Some(ticket) = log.begin_sync() else {
            return match log.failure() {
                Some(reason) => Err(io::Error::other(reason.to_owned())),
                None => Ok(()),
            };
        };
        drop(log);
        let result = ticket.run();
        let below = {
            let mut log = self.log.lock();
            log.finish_sync(ticket, result).map_err(io::Error::other)?;
            log.synced_below().0 as u64
        };
        self.note_synced(below)
    }

    fn note_synced(&mut self, below: u64) -> io::Result<()> {
        self.synced.advance(below)?;
        let mut state = self.state.lock();
        state.synced = state.tail.valid_below(below).checked_sub(1);
        let written = self.written.filter(|last| state.tail.valid_below(below) > last.index);
        state.durable = state.durable.max(written);
        Ok(())
    }

    /// Makes the log need no recovery up to its end; returns that index.
    fn checkpoint(&self) -> io::Result<u64> {
        let mut log = self.log.lock();
        if let Some(ticket) = log.begin_checkpoint().map_err(io::Error::other)? {
            let result = ticket.run();
            log.finish_checkpoint(ticket, result).map_err(io::Error::other)?;
        }
        Ok(log.recovery_point().0 as u64)
    }

    fn close(&mut self) -> io::Result<()> {
        self.vote_file.recovery_point = self.checkpoint()?;
        self.write_vote_file()
    }

    fn truncate(&mut self, next: u64) -> io::Result<()> {
        if self.vote_file.recovery_point > next {
            // Entries that are about to go must not count as synced.
            self.vote_file.recovery_point = next;
            self.write_vote_file()?;
        }
        self.synced.lower(next)?;
        self.log.lock().truncate_to(Offset(next as i64)).map_err(io::Error::other)?;
        self.written = self.written.filter(|last| last.index < next);
        self.state.lock().tail.note_truncated();
        Ok(())
    }

    fn purge(&mut self, purged: LogId) -> io::Result<()> {
        let end = self.checkpoint()?;
        // Durably noted first: a start in between finds entries to skip, never a gap. All entries go if the snapshot
        // came from another node and has more than the log.
        self.vote_file.recovery_point = if purged.index >= end { 0 } else { end };
        self.vote_file.purged = Some(purged);
        self.write_vote_file()?;
        self.drop_before(purged)
    }

    /// Removes the files of entries that the snapshot before the newest has as well.
    fn drop_before(&mut self, purged: LogId) -> io::Result<()> {
        let kept_from = snapshot::previous_index(&*self.disk, &self.dir)?;
        let next = purged.index + 1;
        let deleted = {
            let mut log = self.log.lock();
            if next as i64 > log.log_end_offset().0 {
                self.synced.lower(0)?;
                self.state.lock().synced = None;
                log.truncate_fully_and_start_at(Offset(next as i64)).map_err(io::Error::other)?;
            } else if let Some(previous) = kept_from {
                let start = Offset(next.min(previous + 1) as i64);
                log.delete_records_before(start).map_err(io::Error::other)?;
            }
            let limit = log.log_end_offset();
            log.retain(super::log_store::now(), limit).map_err(io::Error::other)?
        };
        deleted.iter().try_for_each(|segment| segment.remove(&*self.disk))
    }
}
