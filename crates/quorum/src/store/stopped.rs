//! The image that a node would start with, read while the node is stopped. Nothing is changed.

use std::io;
use std::path::Path;
use std::sync::Arc;

use ledger::entry;
use metadata::{ClusterImage, ImageDelta};
use model::{BatchHeader, BrokerId};
use storage::disk::Disk;

use super::{check, open};
use crate::raft::node_id;
use crate::state_machine::StateMachine;
use crate::translation::raft_entry;

/// Whether the folder's node is the only voter of its cluster, read while the node is stopped. Changes nothing.
///
/// Fails as [`read_stopped`] does.
pub fn is_only_voter(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    cluster_id: &str,
    node: BrokerId,
) -> io::Result<bool> {
    let plan = open::plan(&**disk, dir, cluster_id, node_id(node, 0))?;
    let members = open::members(&plan);
    Ok(members.is_some_and(|members| members.are_only(plan.vote_file.node)))
}

/// Reads the snapshot in `dir` and the entries behind it, as a start of `node` would. An entry that was
/// written and not committed is taken in too: for a node that is the only voter there is none.
///
/// Fails, with a message that names the file, where a start would.
pub fn read_stopped(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    cluster_id: &str,
    node: BrokerId,
) -> io::Result<ClusterImage> {
    let plan = open::plan(&**disk, dir, cluster_id, node_id(node, 0))?;
    let due = plan.applied.last.map_or(0, |last| last.index + 1);
    let next = plan.found.next;
    let mut machine = StateMachine::new(Arc::clone(disk), dir.to_owned(), plan.applied);
    for (_, path) in check::files(&**disk, dir)? {
        let bytes = disk.read(&path)?;
        let mut position = 0;
        while let Ok(header) = BatchHeader::decode_checked(&bytes[position..]) {
            let end = position + header.size_bytes as usize;
            let index = header.base_offset.0.unsigned_abs();
            if (due..next).contains(&index) {
                let found = entry::decode(&header, &bytes[position..end])?;
                machine.take_in(raft_entry(found), &mut ImageDelta::default())?;
            }
            position = end;
        }
    }
    Ok(machine.into_image())
}
