//! The thread that makes things durable, in the order in which they were asked for.
//!
//! A vote is never durable before the entries that were appended before it, and never after those
//! appended after it. Entries that queued up while the device was busy are synced together.

use super::synced::SyncedNote;
use super::vote::VoteFile;
#[cfg(test)]
use crate::faults::slow;
use crate::raft::TypeConfig;
use openraft::storage::IOFlushed;
use parking_lot::Mutex;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use storage::Log;
use storage::disk::Disk;

/// Requests that may wait for the device.
const QUEUE_MAX: usize = 4096;

/// Something to make durable.
pub(crate) enum Write {
    /// Everything appended so far.
    Entries(IOFlushed<TypeConfig>),
    /// The file `vote`.
    Vote(VoteFile, tokio::sync::oneshot::Sender<io::Result<()>>),
    /// The first vote of a node that votes alone. Written while entries are synced: nobody else
    /// can have led, so entries without that vote are as good, and none is reported before it.
    FirstVote(VoteFile),
}

/// The way to the thread. It ends when this is dropped.
pub(super) struct Writer {
    requests: Option<Requests>,
    thread: Option<JoinHandle<()>>,
}

enum Requests {
    Thread(SyncSender<Write>),
    /// A task on simulated time, in simulations.
    #[cfg(test)]
    Task(tokio::sync::mpsc::UnboundedSender<Write>),
}

/// What makes things durable.
pub(crate) struct Loop {
    log: Arc<Mutex<Log>>,
    synced: Arc<Mutex<SyncedNote>>,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// The first write that failed. Nothing is reported durable after it.
    failure: Option<(io::ErrorKind, String)>,
    /// Whether the directory itself is known to be durable: a new one may hold a vote and no entry.
    dir_durable: bool,
    /// A first vote that is being written.
    first_vote: Option<JoinHandle<io::Result<()>>>,
}

impl Writer {
    pub(super) fn start(
        log: Arc<Mutex<Log>>,
        synced: Arc<Mutex<SyncedNote>>,
        disk: Arc<dyn Disk>,
        dir: PathBuf,
    ) -> io::Result<Writer> {
        let (failure, first_vote) = (None, None);
        let mut work = Loop { log, synced, disk, dir, failure, dir_durable: false, first_vote };
        #[cfg(test)]
        if slow::is_simulated() {
            let requests = Some(Requests::Task(slow::spawn_writer(work)));
            return Ok(Writer { requests, thread: None });
        }
        let (requests, queue) = sync_channel(QUEUE_MAX);
        let thread = std::thread::Builder::new().name("quorum-writer".into());
        let thread = thread.spawn(move || work.run(&queue))?;
        Ok(Writer { requests: Some(Requests::Thread(requests)), thread: Some(thread) })
    }

    /// Queues a request. Waits when too many are queued.
    pub(super) fn send(&self, write: Write) -> io::Result<()> {
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
    fn run(&mut self, queue: &Receiver<Write>) {
        while let Ok(first) = queue.recv() {
            self.write(std::iter::once(first).chain(queue.try_iter()));
        }
        if let Err(error) = self.end_first_vote() {
            tracing::warn!(%error, "the first vote was not written; the next start makes up for it");
        }
    }

    /// Makes these durable, in their order.
    pub(crate) fn write(&mut self, writes: impl Iterator<Item = Write>) {
        let mut waiting = Vec::new();
        for write in writes {
            match write {
                Write::Entries(flushed) => waiting.push(flushed),
                Write::FirstVote(vote) => {
                    let begun = self.unless_failed(|this| this.begin_first_vote(vote));
                    if let Err(error) = begun {
                        tracing::error!(%error, "the first vote cannot be written");
                    }
                }
                Write::Vote(vote, answer) => {
                    self.sync_entries(&mut waiting);
                    let written = self.unless_failed(|this| this.write_vote(&vote));
                    // Whoever asked may have gone; the vote stands all the same.
                    let _ = answer.send(written);
                }
            }
        }
        self.sync_entries(&mut waiting);
    }

    fn sync_entries(&mut self, waiting: &mut Vec<IOFlushed<TypeConfig>>) {
        if waiting.is_empty() {
            return;
        }
        for flushed in waiting.drain(..) {
            // The first of them syncs for all: the others find nothing to do.
            flushed.io_completed(self.unless_failed(|this| {
                this.sync()?;
                this.end_first_vote()
            }));
        }
    }

    /// Does it, unless something failed before; remembers if it fails.
    fn unless_failed(&mut self, write: impl FnOnce(&mut Loop) -> io::Result<()>) -> io::Result<()> {
        if self.failure.is_none() {
            let failed = write(self).err();
            self.failure = failed.map(|error| (error.kind(), error.to_string()));
        }
        match &self.failure {
            Some((kind, reason)) => Err(io::Error::new(*kind, reason.clone())),
            None => Ok(()),
        }
    }

    fn begin_first_vote(&mut self, vote: VoteFile) -> io::Result<()> {
        let (disk, dir) = (Arc::clone(&self.disk), self.dir.clone());
        let thread = std::thread::Builder::new().name("quorum-first-vote".into());
        self.first_vote = Some(thread.spawn(move || vote.write(&*disk, &dir))?);
        Ok(())
    }

    fn end_first_vote(&mut self) -> io::Result<()> {
        let Some(thread) = self.first_vote.take() else { return Ok(()) };
        thread.join().map_err(|_| io::Error::other("writing the first vote panicked"))?
    }

    fn write_vote(&mut self, vote: &VoteFile) -> io::Result<()> {
        self.end_first_vote()?;
        vote.write(&*self.disk, &self.dir)?;
        if !self.dir_durable {
            self.disk.sync_dir(self.dir.parent().unwrap_or(&self.dir))?;
            self.dir_durable = true;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let log = self.log.lock();
        let Some(ticket) = log.begin_sync() else {
            return match log.failure() {
                Some(reason) => Err(io::Error::other(reason.to_owned())),
                None => Ok(()),
            };
        };
        drop(log);
        let result = ticket.run();
        // A truncation lowers the note under the log's lock: never between sync and note.
        let mut log = self.log.lock();
        log.finish_sync(ticket, result).map_err(io::Error::other)?;
        self.synced.lock().advance(log.synced_below().0 as u64)
    }
}
