//! Older copies of metadata folders: how a leader and a start recognise one, and what becomes of the folder.
//!
//! A folder that was put back from an older copy lacks entries and votes that other voters count on. Such a folder never
//! takes part again: the node puts it aside and joins as a new member. A leader recognises the copy by the entries that
//! the member had acknowledged to it, a start by the notes in the journals of the log directories.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use storage::disk::Disk;
use storage::journal::MetadataNote;
use tokio::sync::watch;

use crate::raft::{LogId, Vote, broker_id};
use crate::store::open::Plan;

/// Entries that members have acknowledged to this node, in its newest leadership.
#[derive(Debug, Default)]
pub(crate) struct Acknowledgements {
    members: Mutex<BTreeMap<u64, Acknowledgement>>,
}

#[derive(Clone, Copy, Debug)]
struct Acknowledgement {
    vote: Vote,
    last: LogId,
    /// Whether the log has a line about the older copy already.
    is_logged: bool,
}

impl Acknowledgements {
    /// The newest entry that a member has acknowledged in this leadership.
    pub(crate) fn last(&self, member: u64, vote: Vote) -> Option<LogId> {
        let known = self.members.lock().get(&member).copied();
        known.filter(|known| known.vote == vote).map(|known| known.last)
    }

    /// Notes that a member has acknowledged the entries up to `last`.
    pub(crate) fn note(&self, member: u64, vote: Vote, last: Option<LogId>) {
        let Some(last) = last else { return };
        let mut members = self.members.lock();
        let new = Acknowledgement { vote, last, is_logged: false };
        let known = members.entry(member).or_insert(new);
        if known.vote != vote {
            *known = new;
        }
        known.last = known.last.max(last);
    }

    /// Whether this is the first call for this member in this leadership.
    pub(crate) fn log_once(&self, member: u64) -> bool {
        let mut members = self.members.lock();
        let known = members.get_mut(&member);
        known.is_some_and(|known| !std::mem::replace(&mut known.is_logged, true))
    }
}

/// Whether the leader found this node's own folder to be an older copy: the reason, in words.
#[derive(Debug)]
pub(crate) struct OwnFolder {
    reason: watch::Sender<Option<String>>,
}

impl Default for OwnFolder {
    fn default() -> OwnFolder {
        OwnFolder { reason: watch::Sender::new(None) }
    }
}

impl OwnFolder {
    /// This node takes part no longer.
    pub(crate) fn leave(&self, leader: u64, acknowledged: LogId, last: Option<LogId>) {
        let end =
            last.map_or("is empty".to_owned(), |last| format!("ends at entry {}", last.index));
        let words = format!(
            "node {} leads, and this node had acknowledged entry {} to it; the metadata log here {end}",
            broker_id(leader),
            acknowledged.index
        );
        self.reason.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert(words);
            is_first
        });
    }

    /// Fails if this node takes part no longer.
    pub(crate) fn check(&self) -> Result<(), String> {
        let reason = self.reason.borrow();
        reason
            .as_ref()
            .map_or(Ok(()), |reason| Err(format!("the metadata folder is an older copy: {reason}")))
    }

    /// Waits until this node takes part no longer; returns the reason.
    pub(crate) async fn left(&self) -> String {
        let mut reason = self.reason.subscribe();
        loop {
            if let Some(words) = reason.borrow_and_update().clone() {
                return words;
            }
            if reason.changed().await.is_err() {
                // The sender lives as long as `self`.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Compares a metadata folder with the notes in the journals of the log directories. Returns the reason if the folder
/// lacks a noted entry or vote.
/// A note about another member says nothing of this folder.
pub(crate) fn compare(plan: &Plan, notes: &[MetadataNote]) -> Option<String> {
    #[cfg(test)]
    if crate::faults::is_mutant(crate::faults::Mutant::NotesIgnored) {
        return None;
    }
    let (member, last, term) = (plan.member(), plan.last(), plan.term());
    let of_this = notes.iter().filter(|note| plan.has_vote_file() && note.member == member);
    let (index, noted_term) = of_this
        .fold((None, 0), |(index, term), note| (index.max(Some(note.index)), term.max(note.term)));
    let text =
        |index: Option<u64>| index.map_or("no entry".to_owned(), |index| format!("entry {index}"));
    if last < index {
        return Some(format!(
            "the node acted upon {}, as its log directories note, and the metadata folder ends at {}",
            text(index),
            text(last)
        ));
    }
    (term < noted_term).then(|| {
        format!(
            "the node voted in term {noted_term}, as its log directories note, and the newest vote in the metadata folder is of \
             term {term}"
        )
    })
}

/// Gives an older copy another name beside its place, durably; returns the new path. Nothing of it is removed.
pub fn put_aside(disk: &dyn Disk, dir: &Path) -> io::Result<PathBuf> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let free = (1..).map(|number: u32| dir.with_file_name(format!("{name}.older-copy.{number}")));
    let aside = free.into_iter().find(|path| !disk.exists(path)).expect("numbers do not end");
    disk.rename(dir, &aside)?;
    disk.sync_dir(dir.parent().unwrap_or(dir))?;
    Ok(aside)
}
