//! `cluster regenerate`: a new metadata quorum out of the metadata of one stopped voter, when a majority of the voters is lost
//! for good.

use std::collections::BTreeSet;
use std::process::ExitCode;

use broker::stopped::{METADATA_FOLDER, Regeneration, plan_regeneration, regenerate};
use model::BrokerId;

use super::stopped_folder::{self, say};
use crate::arguments::Regenerate;
use crate::commands::cluster_access::block_on;
use crate::failure::Failure;

/// Shows the metadata that is kept and the lost voters, and regenerates with `--yes`.
pub fn run(typed: &Regenerate) -> Result<ExitCode, Failure> {
    let dir = &typed.dir;
    let cannot = || Failure::new(format!("cannot make a new quorum out of {}", dir.display()));
    let (_stopped, node, cluster_id) = stopped_folder::open_metadata(dir, cannot)?;
    let disk = stopped_folder::disk();
    let found = plan_regeneration(&disk, dir, &cluster_id, node);
    let found = found.map_err(|error| cannot().detail(error))?;
    let typed_voters: BTreeSet<BrokerId> = typed.voters.iter().copied().map(BrokerId).collect();
    let voters = if typed_voters.is_empty() { found.lost.clone() } else { typed_voters };
    if !voters.contains(&node) {
        return Err(cannot()
            .detail(format!("this is the folder of node {node}, and --voters does not name it"))
            .hint(format!("--voters {node},{}", list(&voters).replace(' ', ""))));
    }
    describe(node, &cluster_id, &found, &voters)?;
    if !typed.yes {
        return Err(Failure::new("nothing was changed")
            .detail("with --yes this node makes a new quorum at its next start")
            .hint(
                "if a majority of the voters can come back with their disks, start them instead",
            ));
    }
    let made = block_on(async {
        let made = regenerate(&disk, dir, &cluster_id, node, &voters).await;
        made.map_err(|error| cannot().detail(error).hint("run the same command again"))
    })?;
    say(format_args!("regenerated: start node {node}; it has generation {}", made.generation))?;
    Ok(ExitCode::SUCCESS)
}

fn list(nodes: &BTreeSet<BrokerId>) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn describe(
    node: BrokerId,
    cluster_id: &str,
    found: &Regeneration,
    voters: &BTreeSet<BrokerId>,
) -> Result<(), Failure> {
    let Regeneration { last, term, lost, generation } = found;
    say(format_args!("cluster {cluster_id}, node {node}, generation {generation}"))?;
    say(format_args!("kept: the metadata up to entry {last}, of term {term}"))?;
    say(format_args!(
        "lost: every decision of the voters {} that is not in this folder; compare the entry with that of other survivors",
        list(lost)
    ))?;
    let others: BTreeSet<BrokerId> = voters.iter().copied().filter(|id| *id != node).collect();
    if others.is_empty() {
        say(format_args!("voters: node {node} alone"))?;
    } else {
        say(format_args!(
            "voters: node {node} alone, until {} have joined with empty metadata folders; then all of them",
            list(&others)
        ))?;
    }
    say(format_args!(
        "refused from now on: every other node that has its metadata folder; move {METADATA_FOLDER} away there and start the \
         node without it"
    ))
}
