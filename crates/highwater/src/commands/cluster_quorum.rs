//! `cluster quorum`: who decides the cluster's metadata, and how far each member has it.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use client::Admin;
use serde::Serialize;
use wire::DescribeQuorumResponse;
use wire::describe_quorum::ReplicaState;

use crate::arguments::Connection;
use crate::commands::cluster_access::{PATIENCE, block_on, connect, failed};
use crate::failure::Failure;
use crate::output::{self, Format, Row};

#[derive(Serialize)]
struct Member {
    node: i32,
    /// leader, voter or observer.
    role: &'static str,
    log_end_offset: i64,
    /// Records that the leader has and it has not, as far as the leader knows.
    lag: i64,
    /// Milliseconds since the leader heard of it; unknown if never.
    heard_ms_ago: Option<i64>,
    /// Milliseconds since its log had everything.
    caught_up_ms_ago: Option<i64>,
}

impl Row for Member {
    const HEADERS: &'static [&'static str] =
        &["NODE", "ROLE", "LOG-END-OFFSET", "LAG", "HEARD-MS-AGO", "CAUGHT-UP-MS-AGO"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.node.to_string(),
            self.role.to_owned(),
            self.log_end_offset.to_string(),
            self.lag.to_string(),
            output::cell(self.heard_ms_ago),
            output::cell(self.caught_up_ms_ago),
        ]
    }
}

#[derive(Serialize)]
struct Quorum {
    leader: i32,
    leader_epoch: i32,
    high_watermark: i64,
    members: Vec<Member>,
}

impl Quorum {
    fn of(described: &DescribeQuorumResponse, now_ms: i64) -> Option<Quorum> {
        let partition = described.topics.first()?.partitions.first()?;
        let of_leader = |state: &&ReplicaState| state.replica_id == partition.leader_id;
        let leader = partition.current_voters.iter().find(of_leader)?;
        let member = |state: &ReplicaState, role| {
            let ago = |at: i64| (at >= 0).then(|| (now_ms - at).max(0));
            Member {
                node: state.replica_id,
                role: if state.replica_id == partition.leader_id { "leader" } else { role },
                log_end_offset: state.log_end_offset,
                lag: (leader.log_end_offset - state.log_end_offset).max(0),
                heard_ms_ago: ago(state.last_fetch_timestamp),
                caught_up_ms_ago: ago(state.last_caught_up_timestamp),
            }
        };
        let voters = partition.current_voters.iter().map(|state| member(state, "voter"));
        let observers = partition.observers.iter().map(|state| member(state, "observer"));
        Some(Quorum {
            leader: partition.leader_id,
            leader_epoch: partition.leader_epoch,
            high_watermark: partition.high_watermark,
            members: voters.chain(observers).collect(),
        })
    }
}

/// `cluster quorum`
pub fn run(format: Format, connection: &Connection) -> Result<ExitCode, Failure> {
    let described = block_on(async {
        let admin = Admin::new(connect(connection, PATIENCE, false).await?);
        let described = admin.describe_quorum().await;
        described.map_err(|error| {
            failed("cannot describe the metadata quorum", &error).hint(
                "a majority of the voters (controller.quorum.voters) must run to elect a leader",
            )
        })
    })?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let quorum = Quorum::of(&described, now.as_millis() as i64);
    let quorum = quorum.ok_or_else(|| Failure::new("the answer names no leader of the quorum"))?;
    match format {
        Format::Table => output::print(format, &quorum.members)?,
        Format::Json => output::print_one(format, &quorum, |_| String::new())?,
    }
    Ok(ExitCode::SUCCESS)
}
