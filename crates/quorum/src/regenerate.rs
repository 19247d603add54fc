//! A new quorum out of one survivor's metadata, made while its node is stopped: for a majority of voters that is lost for good.
//!
//! The survivor becomes another member, which votes alone, in a leader epoch above all that it knows. Its whole log counts as
//! committed. The other named voters join with empty metadata folders, and get their votes together.

use crate::config::QuorumError;
use crate::generation::GenerationFile;
use crate::raft::{Entry, LeaderId, LogId, Payload, Vote, broker_id, membership, node_id};
use crate::store::open::{Opened, Plan, members, open_planned, plan};
use model::BrokerId;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use storage::disk::Disk;

/// Marks a metadata folder while an operator's command regenerates its quorum.
const UNFINISHED: &str = "regeneration-unfinished";

/// Marks the metadata folder `dir`, durably: [`check_regenerated`] refuses the folder until [`end_regeneration`].
pub fn begin_regeneration(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    disk.write_atomically(&dir.join(UNFINISHED), b"run highwater cluster regenerate again\n")
}

/// Removes the mark, durably.
pub fn end_regeneration(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    disk.remove_file(&dir.join(UNFINISHED))?;
    disk.sync_dir(dir)
}

/// Refuses a metadata folder of which a regeneration began and did not finish. Changes nothing.
pub fn check_regenerated(disk: &dyn Disk, dir: &Path) -> Result<(), QuorumError> {
    if !disk.exists(&dir.join(UNFINISHED)) {
        return Ok(());
    }
    let data = dir.parent().unwrap_or(dir).display();
    Err(QuorumError::Stopped(format!(
        "a regeneration of {} did not finish: run `highwater cluster regenerate {data} --yes` again, with the same --voters",
        dir.display()
    )))
}

/// Bytes of the log behind a snapshot; nothing is purged here.
const LOG_BYTES_MAX: u64 = 32 << 20;

/// The metadata of a survivor's folder, the lost voters and the new generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regeneration {
    /// Index of the newest entry in the folder, which is kept.
    pub last: u64,
    /// Term of that entry's leader.
    pub term: u64,
    /// Voters of the quorum that is lost, and the voters that an earlier regeneration named.
    pub lost: BTreeSet<BrokerId>,
    /// Number of the new generation.
    pub generation: u32,
}

fn read(
    disk: &dyn Disk,
    dir: &Path,
    cluster_id: &str,
    node: BrokerId,
) -> io::Result<(Plan, Regeneration)> {
    let plan = plan(disk, dir, cluster_id, node_id(node, 0))?;
    let invalid = |text: &str| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {text}", dir.display()))
    };
    let known = members(&plan).ok_or_else(|| invalid("the folder has no metadata"))?;
    let last = plan.last_id().ok_or_else(|| invalid("the folder has no metadata"))?;
    let GenerationFile { generation: before, voters: named, .. } = GenerationFile::read(disk, dir)?;
    let generation = before + 1;
    // After an earlier regeneration the node votes alone, until the named voters have joined.
    let known = known.voters.iter().flatten().map(|id| broker_id(*id));
    let lost = known.chain(named.into_iter().map(BrokerId)).collect();
    let term = last.leader_id.term;
    Ok((plan, Regeneration { last: last.index, term, lost, generation }))
}

/// Reads what [`regenerate`] would do. Changes nothing.
pub fn plan_regeneration(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    cluster_id: &str,
    node: BrokerId,
) -> io::Result<Regeneration> {
    read(&**disk, dir, cluster_id, node).map(|(_, regeneration)| regeneration)
}

/// Makes the stopped node `node` the only voter of a new quorum, as a member that has drawn `lot`. The brokers `voters` vote
/// once all of them have the metadata. A crash in between leaves a folder that regenerates again. Must be called within a tokio
/// runtime.
pub async fn regenerate(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    cluster_id: &str,
    node: BrokerId,
    lot: u32,
    voters: &BTreeSet<BrokerId>,
) -> io::Result<Regeneration> {
    let (plan, regeneration) = read(&**disk, dir, cluster_id, node)?;
    let named = voters.iter().map(|voter| voter.0).collect();
    // From here on no node of the lost quorum talks to this one.
    GenerationFile::new(regeneration.generation, named).write(&**disk, dir)?;
    let me = node_id(node, lot);
    let term = plan.term().max(regeneration.term) + 1;
    let plan = plan.with_member(me);
    let Opened { store, .. } = open_planned(Arc::clone(disk), dir.to_owned(), plan, LOG_BYTES_MAX)?;
    let leader_id = LeaderId { term, node_id: me };
    let payload = Payload::Membership(membership(vec![vec![me]], Vec::new()));
    let entry = Entry { log_id: LogId::new(leader_id, regeneration.last + 1), payload };
    let vote = Vote { leader_id, committed: true };
    // A vote older than the last entry would be refused for good after a crash in between.
    store.vote_alone(vote).await?;
    store.begin_alone(Some(entry), vote)?;
    store.close().await?;
    Ok(regeneration)
}
