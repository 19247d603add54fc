//! Answers and records as lines of a transcript.

use std::fmt::Write;
use std::sync::Arc;

use coordinator::Response;
use coordinator::records::Record;
use coordinator::response::{JoinGroupResponse, PartitionErrors, SyncGroupResponse};
use model::{ErrorCode, Timestamp};

pub fn response(response: &Response) -> String {
    match response {
        Response::JoinGroup(response) => join(response),
        Response::SyncGroup(response) => sync(response),
        Response::Heartbeat(error) => format!("heartbeat {error}"),
        Response::LeaveGroup(response) => {
            let mut out = format!("leave {}", response.error);
            for left in &response.members {
                let instance = left.instance.as_ref().map(|own| format!("/{own}"));
                let instance = instance.unwrap_or_default();
                write!(out, " {}{instance}:{}", left.member, left.error).expect("a string");
            }
            out
        }
        Response::OffsetCommit(response) => format!("store{}", errors(&response.topics)),
        Response::OffsetFetch(response) => {
            let mut out = format!("fetch {}", response.error);
            for (topic, partitions) in &response.topics {
                for fetched in partitions {
                    let error = if fetched.error.is_none() { "" } else { fetched.error.name() };
                    let (p, offset, metadata) =
                        (fetched.partition, fetched.offset, &fetched.metadata);
                    write!(out, " {topic}-{p}:{offset}:{metadata}{error}").expect("a string");
                }
            }
            out
        }
        Response::OffsetDelete(response) => {
            format!("delete-offsets {}{}", response.error, errors(&response.topics))
        }
        Response::DescribeGroup(group) => {
            let mut out = format!(
                "describe {} {} type={} protocol={}",
                group.error, group.state, group.protocol_type, group.protocol
            );
            for member in &group.members {
                let instance = member.instance.as_ref().map(|own| format!("/{own}"));
                let (instance, assignment) =
                    (instance.unwrap_or_default(), text(&member.assignment));
                let size = member.metadata.len();
                write!(out, "\n      {}{instance} ", member.member).expect("a string");
                write!(out, "metadata={size}B assignment={assignment}").expect("a string");
            }
            out
        }
        Response::ListGroups(response) => {
            let mut out = format!("list {}", response.error);
            for group in &response.groups {
                let (id, state, kind) = (&group.group, group.state, group.group_type);
                write!(out, " {id}:{state}:{}:{kind}", group.protocol_type).expect("a string");
            }
            out
        }
        Response::DeleteGroup(error) => format!("delete {error}"),
    }
}

fn join(response: &JoinGroupResponse) -> String {
    if response.error != ErrorCode::None {
        return format!("join {} member={}", response.error, response.member);
    }
    let mut out = format!(
        "join NONE generation={} protocol={} leader={} member={}",
        response.generation_id,
        response.protocol.as_deref().unwrap_or("null"),
        response.leader,
        response.member
    );
    if response.skip_assignment {
        out.push_str(" skip_assignment");
    }
    if !response.members.is_empty() {
        let members: Vec<_> = response.members.iter().map(|m| m.member.as_str()).collect();
        write!(out, " members={}", members.join(",")).expect("a string");
    }
    out
}

fn sync(response: &SyncGroupResponse) -> String {
    if response.error != ErrorCode::None {
        return format!("sync {}", response.error);
    }
    let protocol = response.protocol.as_deref().unwrap_or("null");
    format!("sync NONE protocol={protocol} assignment={}", text(&response.assignment))
}

fn errors(topics: &PartitionErrors) -> String {
    let mut out = String::new();
    for (topic, partitions) in topics {
        for (partition, error) in partitions {
            write!(out, " {topic}-{partition}:{error}").expect("a string");
        }
    }
    out
}

fn text(bytes: &Arc<[u8]>) -> String {
    if bytes.is_empty() { "-".into() } else { String::from_utf8_lossy(bytes).into_owned() }
}

pub fn record(record: &Record) -> String {
    match record {
        Record::OffsetCommit { group, partition, value: None } => {
            format!("offset {group} {partition} gone")
        }
        Record::OffsetCommit { group, partition, value: Some(value) } => {
            let expires = value.expire_timestamp.map(|Timestamp(at)| format!(" expires={at}"));
            let expires = expires.unwrap_or_default();
            format!("offset {group} {partition} {}{expires}", value.offset)
        }
        Record::GroupMetadata { group, value: None } => format!("group {group} gone"),
        Record::GroupMetadata { group, value: Some(value) } => {
            let mut out = format!(
                "group {group} generation={} leader={}",
                value.generation_id,
                value.leader.as_ref().map_or("null", |leader| leader.as_str())
            );
            for member in &value.members {
                let assignment = text(&member.assignment);
                write!(out, " {}={assignment}", member.member).expect("a string");
            }
            out
        }
    }
}
