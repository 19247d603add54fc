//! Share groups (KIP-932) and streams groups (KIP-1071), as `group describe` shows them: state, members and where they stand.
//!
//! Apache Kafka has such groups, our brokers do not. Their coordinator denies that they are classic groups, so they are asked for by
//! requests of their own. A member of a share group does not own partitions alone, and one of a streams group owns tasks, so neither
//! fits the rows of other groups, see [`super::group`].

use client::{ClientError, Cluster, CoordinatorKind};
use model::ErrorCode;
use serde::Serialize;
use wire::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequestGroup, DescribeShareGroupOffsetsResponseGroup,
};
use wire::streams_group_describe::TaskIds;
use wire::{
    DescribeShareGroupOffsetsRequest, ListGroupsRequest, ShareGroupDescribeRequest,
    StreamsGroupDescribeRequest, share_group_describe, streams_group_describe,
};

use crate::output::{Row, cell, table};

/// Groups that a coordinator tells of by requests of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its members read the same partitions together.
    Share,
    /// The instances of an application of Kafka Streams.
    Streams,
    /// Consumers of the new protocol (KIP-848), shown as those of classic groups are.
    Consumer,
}

/// What a group's coordinator lists it as; `None` if it is a classic group, or not there.
pub async fn kind(cluster: &Cluster, name: &str) -> Result<Option<Kind>, ClientError> {
    let request = ListGroupsRequest::default();
    let listed = cluster
        .call_coordinator(CoordinatorKind::Group, name, &request, |response| response.error())
        .await?;
    let group = listed.groups.into_iter().find(|group| group.group_id == name);
    Ok(group.and_then(|group| match group.group_type.to_ascii_lowercase().as_str() {
        "share" => Some(Kind::Share),
        "streams" => Some(Kind::Streams),
        "consumer" => Some(Kind::Consumer),
        _ => None,
    }))
}

/// A group with all that is shown of it.
#[derive(Debug, Serialize)]
pub struct Shown {
    group: String,
    r#type: &'static str,
    state: String,
    group_epoch: i32,
    assignment_epoch: i32,
    /// Of streams groups.
    topology_epoch: Option<i32>,
    assignor: Option<String>,
    members: Vec<Member>,
    /// What of share groups says where they stand; streams groups commit offsets as consumers do.
    partitions: Vec<Partition>,
    /// Topics that a streams group reads.
    #[serde(skip)]
    pub sources: Vec<String>,
}

impl Row for Shown {
    const HEADERS: &'static [&'static str] = &[
        "GROUP",
        "TYPE",
        "STATE",
        "GROUP-EPOCH",
        "ASSIGNMENT-EPOCH",
        "TOPOLOGY-EPOCH",
        "ASSIGNOR",
        "MEMBERS",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.group.clone(),
            self.r#type.to_owned(),
            self.state.clone(),
            self.group_epoch.to_string(),
            self.assignment_epoch.to_string(),
            cell(self.topology_epoch),
            cell(self.assignor.as_deref()),
            self.members.len().to_string(),
        ]
    }
}

#[derive(Debug, Serialize)]
struct Member {
    group: String,
    member_id: String,
    member_epoch: i32,
    client_id: String,
    host: String,
    /// Of streams groups.
    topology_epoch: Option<i32>,
    process_id: Option<String>,
    assignment: Vec<Assigned>,
}

impl Row for Member {
    const HEADERS: &'static [&'static str] =
        &["GROUP", "MEMBER-ID", "MEMBER-EPOCH", "CLIENT-ID", "HOST", "ASSIGNMENT"];

    fn cells(&self) -> Vec<String> {
        let assigned: Vec<String> = self.assignment.iter().map(Assigned::to_string).collect();
        vec![
            self.group.clone(),
            self.member_id.clone(),
            self.member_epoch.to_string(),
            self.client_id.clone(),
            self.host.clone(),
            cell(Some(assigned.join(" ")).filter(|text| !text.is_empty())),
        ]
    }
}

/// Partitions of a topic, or tasks of a subtopology.
#[derive(Debug, Serialize)]
struct Assigned {
    /// What a task is for: `active`, `standby` or `warm-up`.
    task: Option<&'static str>,
    topic: Option<String>,
    subtopology: Option<String>,
    partitions: Vec<i32>,
}

impl std::fmt::Display for Assigned {
    /// `topic:0,1`, or `active=subtopology:0,1`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(task) = self.task {
            write!(f, "{task}=")?;
        }
        let of = self.topic.as_deref().or(self.subtopology.as_deref()).unwrap_or_default();
        let partitions: Vec<String> = self.partitions.iter().map(i32::to_string).collect();
        write!(f, "{of}:{}", partitions.join(","))
    }
}

/// Where a share group stands in a partition.
#[derive(Debug, Serialize)]
struct Partition {
    group: String,
    topic: String,
    partition: i32,
    /// All records below it are done with; `None` before the first was read.
    start_offset: Option<i64>,
    /// `None` if the broker is too old to tell, or does not know it.
    lag: Option<i64>,
}

impl Row for Partition {
    const HEADERS: &'static [&'static str] =
        &["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.group.clone(),
            self.topic.clone(),
            self.partition.to_string(),
            cell(self.start_offset),
            cell(self.lag),
        ]
    }
}

/// The tables of such groups: states, members, and where share groups stand.
pub fn tables(groups: &[Shown]) -> Vec<String> {
    let mut members = groups.iter().flat_map(|group| &group.members).peekable();
    let mut partitions = groups.iter().flat_map(|group| &group.partitions).peekable();
    let states = (!groups.is_empty()).then(|| table(groups));
    let members = members.peek().is_some().then(|| table(members));
    let partitions = partitions.peek().is_some().then(|| table(partitions));
    [states, members, partitions].into_iter().flatten().collect()
}

/// Asks for a share group.
pub async fn share(cluster: &Cluster, name: &str) -> Result<Shown, ClientError> {
    let kind = CoordinatorKind::Group;
    let request =
        ShareGroupDescribeRequest { group_ids: vec![name.to_owned()], ..Default::default() };
    let code = |response: &wire::ShareGroupDescribeResponse| {
        response.groups.first().map_or(ErrorCode::None, |group| group.error())
    };
    let response = cluster.call_coordinator(kind, name, &request, code).await?;
    let group = first(response.groups, name, |group| group.error())?;
    let wanted = DescribeShareGroupOffsetsRequestGroup { group_id: name.to_owned(), topics: None };
    let request = DescribeShareGroupOffsetsRequest { groups: vec![wanted] };
    let code = |response: &wire::DescribeShareGroupOffsetsResponse| {
        response.groups.first().map_or(ErrorCode::None, |group| group.error())
    };
    let response = cluster.call_coordinator(kind, name, &request, code).await?;
    let offsets = first(response.groups, name, |group| group.error())?;
    Ok(of_share(group, offsets))
}

/// Asks for a streams group.
pub async fn streams(cluster: &Cluster, name: &str) -> Result<Shown, ClientError> {
    let request =
        StreamsGroupDescribeRequest { group_ids: vec![name.to_owned()], ..Default::default() };
    let code = |response: &wire::StreamsGroupDescribeResponse| {
        response.groups.first().map_or(ErrorCode::None, |group| group.error())
    };
    let kind = CoordinatorKind::Group;
    let response = cluster.call_coordinator(kind, name, &request, code).await?;
    Ok(of_streams(first(response.groups, name, |group| group.error())?))
}

/// The group that was asked for, unless its coordinator refuses.
fn first<G>(groups: Vec<G>, name: &str, error: impl Fn(&G) -> ErrorCode) -> Result<G, ClientError> {
    let group = groups.into_iter().next();
    let group = group.ok_or_else(|| ClientError::refused(name, ErrorCode::GroupIdNotFound))?;
    match error(&group) {
        ErrorCode::None => Ok(group),
        code => Err(ClientError::refused(name, code)),
    }
}

fn of_share(
    group: share_group_describe::DescribedGroup,
    offsets: DescribeShareGroupOffsetsResponseGroup,
) -> Shown {
    let name = group.group_id;
    let member = |member: share_group_describe::Member| {
        let assigned = member.assignment.topic_partitions.into_iter().map(|at| Assigned {
            task: None,
            topic: Some(at.topic_name),
            subtopology: None,
            partitions: sorted(at.partitions),
        });
        Member {
            group: name.clone(),
            member_id: member.member_id,
            member_epoch: member.member_epoch,
            client_id: member.client_id,
            host: member.client_host,
            topology_epoch: None,
            process_id: None,
            assignment: assigned.collect(),
        }
    };
    let mut partitions: Vec<Partition> = Vec::new();
    for topic in offsets.topics {
        partitions.extend(topic.partitions.into_iter().map(|at| {
            let is_known = |offset: &i64| *offset >= 0 && at.error() == ErrorCode::None;
            let known = |offset: i64| Some(offset).filter(is_known);
            Partition {
                group: name.clone(),
                topic: topic.topic_name.clone(),
                partition: at.partition_index,
                start_offset: known(at.start_offset),
                lag: known(at.lag),
            }
        }));
    }
    partitions.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    Shown {
        r#type: "share",
        state: group.group_state,
        group_epoch: group.group_epoch,
        assignment_epoch: group.assignment_epoch,
        topology_epoch: None,
        assignor: Some(group.assignor_name).filter(|name| !name.is_empty()),
        members: group.members.into_iter().map(member).collect(),
        partitions,
        sources: Vec::new(),
        group: name,
    }
}

fn of_streams(group: streams_group_describe::DescribedGroup) -> Shown {
    let name = group.group_id;
    let member = |member: streams_group_describe::Member| {
        let tasks = member.assignment;
        let of_kind = |task: &'static str, tasks: Vec<TaskIds>| {
            tasks.into_iter().map(move |at| Assigned {
                task: Some(task),
                topic: None,
                subtopology: Some(at.subtopology_id),
                partitions: sorted(at.partitions),
            })
        };
        let assigned = of_kind("active", tasks.active_tasks)
            .chain(of_kind("standby", tasks.standby_tasks))
            .chain(of_kind("warm-up", tasks.warmup_tasks));
        Member {
            group: name.clone(),
            member_id: member.member_id,
            member_epoch: member.member_epoch,
            client_id: member.client_id,
            host: member.client_host,
            topology_epoch: Some(member.topology_epoch),
            process_id: Some(member.process_id),
            assignment: assigned.collect(),
        }
    };
    let subtopologies = group.topology.iter().filter_map(|it| it.subtopologies.as_ref()).flatten();
    let sources = subtopologies.flat_map(|subtopology| {
        let repartitioned = subtopology.repartition_source_topics.iter().map(|topic| &topic.name);
        subtopology.source_topics.iter().chain(repartitioned).cloned()
    });
    Shown {
        r#type: "streams",
        sources: sources.collect(),
        state: group.group_state,
        group_epoch: group.group_epoch,
        assignment_epoch: group.assignment_epoch,
        topology_epoch: group.topology.map(|topology| topology.epoch),
        assignor: group.assignor_name,
        members: group.members.into_iter().map(member).collect(),
        partitions: Vec::new(),
        group: name,
    }
}

fn sorted(mut partitions: Vec<i32>) -> Vec<i32> {
    partitions.sort_unstable();
    partitions
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::describe_share_group_offsets::{
        DescribeShareGroupOffsetsResponsePartition, DescribeShareGroupOffsetsResponseTopic,
    };

    fn a_share_group() -> Shown {
        let topic_partitions = vec![share_group_describe::TopicPartitions {
            topic_name: "in".into(),
            partitions: vec![1, 0],
            ..Default::default()
        }];
        let member = |id: &str, topic_partitions| share_group_describe::Member {
            member_id: id.into(),
            member_epoch: 3,
            client_id: "reader".into(),
            client_host: "/127.0.0.1".into(),
            assignment: share_group_describe::Assignment { topic_partitions },
            ..Default::default()
        };
        let group = share_group_describe::DescribedGroup {
            group_id: "sg".into(),
            group_state: "Stable".into(),
            group_epoch: 4,
            assignment_epoch: 3,
            assignor_name: "simple".into(),
            members: vec![member("a", topic_partitions), member("b", Vec::new())],
            ..Default::default()
        };
        let partition = |partition_index, start_offset, lag, error_code| {
            DescribeShareGroupOffsetsResponsePartition {
                partition_index,
                start_offset,
                lag,
                error_code,
                ..Default::default()
            }
        };
        let failed = ErrorCode::UnknownServerError.code();
        // The first is of a broker that is too old to tell the lag, the last not read yet.
        let partitions = vec![
            partition(2, 7, -1, 0),
            partition(0, 20, 5, 0),
            partition(1, 9, 9, failed),
            partition(3, -1, -1, 0),
        ];
        let topic = DescribeShareGroupOffsetsResponseTopic {
            topic_name: "in".into(),
            partitions,
            ..Default::default()
        };
        let topics = vec![topic];
        of_share(group, DescribeShareGroupOffsetsResponseGroup { topics, ..Default::default() })
    }

    fn a_streams_group() -> Shown {
        let tasks = |id: &str, partitions| vec![TaskIds { subtopology_id: id.into(), partitions }];
        let member = streams_group_describe::Member {
            member_id: "m".into(),
            member_epoch: 2,
            client_id: "app-1".into(),
            client_host: "/127.0.0.1".into(),
            process_id: "p".into(),
            topology_epoch: 1,
            assignment: streams_group_describe::Assignment {
                active_tasks: tasks("0", vec![1, 0]),
                standby_tasks: tasks("1", vec![2]),
                warmup_tasks: tasks("1", vec![3]),
            },
            ..Default::default()
        };
        let repartitioned =
            streams_group_describe::TopicInfo { name: "app-again".into(), ..Default::default() };
        let subtopology = streams_group_describe::Subtopology {
            source_topics: vec!["in".into()],
            repartition_source_topics: vec![repartitioned],
            ..Default::default()
        };
        let topology =
            streams_group_describe::Topology { epoch: 1, subtopologies: Some(vec![subtopology]) };
        of_streams(streams_group_describe::DescribedGroup {
            group_id: "app".into(),
            group_state: "Stable".into(),
            group_epoch: 2,
            assignment_epoch: 2,
            topology: Some(topology),
            members: vec![member],
            ..Default::default()
        })
    }

    #[test]
    fn states_members_and_start_offsets_are_tables() {
        let shown = tables(&[a_share_group(), a_streams_group()]).join("\n");
        let expected = "\
GROUP  TYPE     STATE   GROUP-EPOCH  ASSIGNMENT-EPOCH  TOPOLOGY-EPOCH  ASSIGNOR  MEMBERS
sg     share    Stable  4            3                 -               simple    2
app    streams  Stable  2            2                 1               -         1

GROUP  MEMBER-ID  MEMBER-EPOCH  CLIENT-ID  HOST        ASSIGNMENT
sg     a          3             reader     /127.0.0.1  in:0,1
sg     b          3             reader     /127.0.0.1  -
app    m          2             app-1      /127.0.0.1  active=0:0,1 standby=1:2 warm-up=1:3

GROUP  TOPIC  PARTITION  START-OFFSET  LAG
sg     in     0          20            5
sg     in     1          -             -
sg     in     2          7             -
sg     in     3          -             -
";
        assert_eq!(shown, expected);
        assert!(tables(&[]).is_empty());
    }

    #[test]
    fn json_has_a_group_whole() {
        let found = serde_json::to_value(a_streams_group()).unwrap();
        let assigned = |task: &str, of: &str, partitions: &[i32]| serde_json::json!({"task": task, "topic": null, "subtopology": of, "partitions": partitions});
        let assignment = [
            assigned("active", "0", &[0, 1]),
            assigned("standby", "1", &[2]),
            assigned("warm-up", "1", &[3]),
        ];
        let expected = serde_json::json!({
            "group": "app", "type": "streams", "state": "Stable", "group_epoch": 2, "assignment_epoch": 2,
            "topology_epoch": 1, "assignor": null, "partitions": [],
            "members": [{
                "group": "app", "member_id": "m", "member_epoch": 2, "client_id": "app-1", "host": "/127.0.0.1",
                "topology_epoch": 1, "process_id": "p", "assignment": assignment,
            }],
        });
        assert_eq!(found, expected);
        assert_eq!(a_streams_group().sources, ["in", "app-again"]);
        assert_eq!(serde_json::to_value(a_share_group()).unwrap()["partitions"][0]["lag"], 5);
    }
}
