//! Opening the folder: what its files say is held against each other, then the log is opened.
//!
//! ```text
//!   snapshot before the newest      newest snapshot
//!   ... last ----+                  last ----+
//!                v                           v
//! log file:      | entries kept for recovery | entries to be replayed |
//!                ^ first                ^ purged                      ^ next
//! ```
//!
//! What must hold: the log's files go on without a gap from `first` to `next`; `first` is at most the
//! entry behind the snapshot that is used, and so is the entry behind `purged`; the vote is not older
//! than the newest entry. A newest snapshot that is damaged or gone gives way to the one before it,
//! if every entry behind that one is there. Otherwise the folder is refused: a start never makes less
//! of it than it held.

use super::check::{self, Found};
use super::log_store::LogStore;
use super::snapshot::{self, Applied, SnapshotFile};
use super::synced;
use super::vote::{self, VoteFile};
use super::{RESTORE, refused};
use crate::raft::{LogId, broker_id};
use crate::translation::plain_members;
use ledger::Members;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::disk::Disk;

/// The folder's state: the log, and the image as of the snapshot that is used.
pub(crate) struct Opened {
    /// The number under which this folder is a member.
    pub(crate) me: u64,
    /// Whether the folder says so itself: the file `vote` is there.
    pub(crate) is_known: bool,
    pub(crate) store: LogStore,
    pub(crate) applied: Applied,
    /// Who the members are, by the newest entry that says so, committed or not; `None` in a new folder.
    pub(crate) members: Option<Members>,
}

/// What of the files is used.
pub(crate) struct Plan {
    pub(super) has_vote_file: bool,
    pub(super) vote_file: VoteFile,
    pub(super) found: Found,
    pub(super) applied: Applied,
    /// Newer snapshots that cannot be read, with the reason.
    damaged: Vec<(SnapshotFile, String)>,
}

impl Plan {
    /// Number of the member that the folder is.
    pub(crate) fn member(&self) -> u64 {
        self.vote_file.node
    }

    /// Whether the folder itself names its member.
    pub(crate) fn has_vote_file(&self) -> bool {
        self.has_vote_file
    }

    /// Whether the folder's node is the only voter of its cluster.
    pub(crate) fn is_only_voter(&self) -> bool {
        members(self).is_some_and(|members| members.are_only(self.member()))
    }

    /// Index of the newest entry, in the log or in a snapshot.
    pub(crate) fn last(&self) -> Option<u64> {
        let in_log = self.found.next.checked_sub(1);
        in_log.max(self.applied.last.map(|id| id.index))
    }

    /// The newest entry, in the log or in a snapshot.
    pub(crate) fn last_id(&self) -> Option<LogId> {
        let in_log = self.found.next.checked_sub(1).and_then(|last| self.found.id(last));
        in_log.max(self.applied.last)
    }

    /// The folder as that of another member.
    pub(crate) fn with_member(mut self, member: u64) -> Plan {
        self.vote_file.node = member;
        self
    }

    /// Term of the vote; 0 for none.
    pub(crate) fn term(&self) -> u64 {
        self.vote_file.vote.map_or(0, |vote| vote.leader_id.term)
    }
}

/// Opens the folder, or begins with nothing, as the member `node`. As [`plan`] and [`open_planned`].
#[cfg(test)]
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    cluster_id: &str,
    node: u64,
    bytes_max: u64,
) -> io::Result<Opened> {
    let plan = plan(&*disk, &dir, cluster_id, node)?;
    open_planned(disk, dir, plan, bytes_max)
}

/// Opens a folder as planned. The log is meant to stay below `bytes_max` bytes behind the newest snapshot; its caller
/// purges it.
pub(crate) fn open_planned(
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    plan: Plan,
    bytes_max: u64,
) -> io::Result<Opened> {
    for (file, reason) in &plan.damaged {
        let (path, last) = (file.path.display(), plan.applied.last.map(|id| id.index));
        tracing::warn!(%path, reason, ?last, "a snapshot is damaged: the entries it replaced are read again");
        file.set_aside(&*disk)?;
    }
    let members = members(&plan);
    let (me, is_known) = (plan.vote_file.node, plan.has_vote_file);
    let store = LogStore::open(disk, dir, plan.vote_file, plan.found, bytes_max)?;
    Ok(Opened { me, is_known, store, applied: plan.applied, members })
}

/// The members, by the newest entry that names them; `None` in a folder without metadata.
pub(crate) fn members(plan: &Plan) -> Option<Members> {
    let kept = &plan.applied.members;
    let since = kept.log_id().map(|id| id.index);
    match &plan.found.members {
        Some((index, members)) if Some(*index) >= since => Some(members.clone()),
        _ => since.map(|_| plain_members(kept.membership())),
    }
}

/// Reads the folder, which need not exist, for the member `node`. A folder that names its member has to be of the same
/// broker, and stays that member. Changes nothing. Fails, with a message that names the file, if the content of the folder
/// cannot be all that it held.
pub(crate) fn plan(disk: &dyn Disk, dir: &Path, cluster_id: &str, node: u64) -> io::Result<Plan> {
    let voted = VoteFile::read(disk, dir)?;
    if let Some(voted) = &voted {
        check_owner(voted, cluster_id, node, dir)?;
    }
    let has_vote_file = voted.is_some();
    let mut vote_file = voted.unwrap_or_else(|| VoteFile::new(cluster_id, node));
    let synced_below = vote_file.recovery_point.max(synced::read(disk, dir)?);
    let purged_next = vote_file.purged.map_or(0, |id| id.index + 1);
    let found = check::check(disk, dir, synced_below, purged_next)?;
    let (applied, damaged) = choose_snapshot(disk, dir, &vote_file, &found)?;
    vote_file.purged = purged(&vote_file, &found, &applied);
    check_vote(&vote_file, &found, &applied, dir)?;
    Ok(Plan { has_vote_file, vote_file, found, applied, damaged })
}

fn check_owner(voted: &VoteFile, cluster_id: &str, node: u64, dir: &Path) -> io::Result<()> {
    let (owner, broker) = (broker_id(voted.node), broker_id(node));
    if voted.cluster_id == cluster_id && owner == broker {
        return Ok(());
    }
    let text = format!(
        "{} belongs to node {owner} of cluster {}, not to node {broker} of cluster {cluster_id}: \
         name the log directory that is this node's",
        dir.display(),
        voted.cluster_id
    );
    Err(io::Error::new(io::ErrorKind::InvalidData, text))
}

/// The newest snapshot that can be read, and the newer ones that cannot. Fails if entries behind the
/// snapshot are missing.
fn choose_snapshot(
    disk: &dyn Disk,
    dir: &Path,
    vote_file: &VoteFile,
    found: &Found,
) -> io::Result<(Applied, Vec<(SnapshotFile, String)>)> {
    let mut damaged = Vec::new();
    let mut applied = Applied::default();
    for file in snapshot::list(disk, dir)?.into_iter().rev() {
        match file.load(disk)? {
            Ok(loaded) => {
                applied = loaded;
                break;
            }
            Err(reason) => damaged.push((file, reason)),
        }
    }
    // Entries up to here were known to be in a snapshot, or to have been in one.
    let purged = vote_file.purged.map(|id| id.index);
    let known = damaged.iter().map(|(file, _)| file.index).chain(purged).max();
    let covered = applied.last.map(|id| id.index);
    let due = covered.map_or(0, |index| index + 1);
    let has_entries = found.first.is_some_and(|first| first <= due);
    match known {
        Some(known) if Some(known) > covered && !(has_entries && found.next > known) => {
            Err(missing_snapshot(dir, known, &damaged))
        }
        _ if found.first.is_none_or(|first| first <= due) => Ok((applied, damaged)),
        _ => {
            let first = found.first.unwrap_or_default();
            let reason =
                format_args!("the metadata log begins at entry {first}, and entry {due} is due");
            Err(refused(dir, reason, RESTORE))
        }
    }
}

fn missing_snapshot(dir: &Path, known: u64, damaged: &[(SnapshotFile, String)]) -> io::Error {
    match damaged.first() {
        Some((file, reason)) => {
            let reason = format_args!(
                "the snapshot is damaged ({reason}), and the entries that it replaced are gone"
            );
            refused(&file.path, reason, RESTORE)
        }
        None => {
            let reason = format_args!(
                "the metadata up to entry {known} was in a snapshot (*.checkpoint), and no snapshot here has it"
            );
            refused(dir, reason, RESTORE)
        }
    }
}

/// The last entry that openraft may not ask for. It is in the snapshot; what `vote` says of it may be
/// more than that, if a newer snapshot is lost, or nothing, if `vote` is.
fn purged(vote_file: &VoteFile, found: &Found, applied: &Applied) -> Option<LogId> {
    let lost_vote = vote_file.purged.is_none() && found.first.is_none_or(|first| first > 0);
    let beyond = vote_file.purged.map(|id| id.index) > applied.last.map(|id| id.index);
    if lost_vote || beyond { applied.last } else { vote_file.purged }
}

/// Fails if the vote is older than the entries, or a snapshot's or purge's last entry another than
/// the one in the log.
fn check_vote(
    vote_file: &VoteFile,
    found: &Found,
    applied: &Applied,
    dir: &Path,
) -> io::Result<()> {
    let newest = found.next.checked_sub(1).and_then(|last| found.id(last)).or(applied.last);
    if let (Some(vote), Some(newest)) = (vote_file.vote, newest) {
        let (voted, led) = (vote.leader_id, newest.leader_id);
        if (voted.term, voted.node_id) < (led.term, led.node_id) {
            let reason = format_args!(
                "the vote is for node {} in term {}, older than the log's last entry, of term {}",
                voted.node_id, voted.term, led.term
            );
            return Err(refused(&vote::path(dir), reason, RESTORE));
        }
    }
    for (place, id) in [("a snapshot's last", applied.last), ("the last purged", vote_file.purged)]
    {
        let Some(id) = id else { continue };
        if let Some(other) = found.id(id.index).filter(|other| *other != id) {
            let reason = format_args!("{place} entry is {id}, and the log has {other} there");
            return Err(refused(dir, reason, RESTORE));
        }
    }
    Ok(())
}
