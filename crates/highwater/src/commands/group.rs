//! `group …`: consumer groups, their members, offsets and lag.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::process::ExitCode;

use client::offsets::{
    CommittedOffset, Committer, FoundOffset, OffsetSpec, commit_offsets, committed_offsets,
    list_offsets,
};
use client::{Admin, ClientError, Cluster, CoordinatorKind, Metadata};
use model::{ErrorCode, Offset, Timestamp, TopicPartition};
use serde::Serialize;
use wire::describe_groups::{DescribedGroup, DescribedGroupMember};
use wire::{
    DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest, consumer_group_describe,
};

use crate::amounts::counted;
use crate::arguments::{Connection, Group};
use crate::commands::cluster_access::{PATIENCE, block_on, connect, failed, named_partitions};
use crate::commands::group_kinds::{self, Kind, Shown};
use crate::commands::outcome::Outcomes;
use crate::commands::topic::ends;
use crate::failure::Failure;
use crate::moment;
use crate::output::{self, Format, Row, cell};
use crate::position::Place;

/// Runs one of the commands.
pub fn run(command: &Group) -> Result<ExitCode, Failure> {
    block_on(async {
        match command {
            Group::List { listing, connection } => list(listing.format, connection).await,
            Group::Describe { names, listing, connection } => {
                describe(names, listing.format, connection).await
            }
            Group::Seek { name, to, topics, dry_run, listing, connection } => {
                let seek = Seek { group: name, to: *to, topics, dry_run: *dry_run };
                seek.run(listing.format, connection).await
            }
            Group::Delete { names, connection } => delete(names, connection).await,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Listed {
    group: String,
    state: String,
    protocol: String,
    coordinator: i32,
}

impl Row for Listed {
    const HEADERS: &'static [&'static str] = &["GROUP", "STATE", "PROTOCOL", "COORDINATOR"];

    fn cells(&self) -> Vec<String> {
        let text = |text: &str| cell(Some(text).filter(|text| !text.is_empty()));
        vec![
            self.group.clone(),
            text(&self.state),
            text(&self.protocol),
            self.coordinator.to_string(),
        ]
    }
}

async fn list(format: Format, connection: &Connection) -> Result<(), Failure> {
    let cluster = connect(connection, PATIENCE, false).await?;
    output::print(format, &all_groups(&cluster).await?)
}

/// Each broker knows the groups that it coordinates.
async fn all_groups(cluster: &Cluster) -> Result<Vec<Listed>, Failure> {
    let cannot = |error: ClientError| failed("cannot list groups", &error);
    let mut rows = Vec::new();
    let mut brokers: Vec<i32> = cluster.metadata().brokers.keys().copied().collect();
    brokers.sort_unstable();
    for coordinator in brokers {
        let request = ListGroupsRequest::default();
        let response = cluster.call_broker(coordinator, &request).await.map_err(cannot)?;
        if response.error() != ErrorCode::None {
            let broker = format!("broker {coordinator}");
            return Err(cannot(ClientError::refused(broker, response.error())));
        }
        rows.extend(response.groups.into_iter().map(|group| Listed {
            group: group.group_id,
            state: group.group_state,
            protocol: group.protocol_type,
            coordinator,
        }));
    }
    rows.sort_by(|a, b| a.group.cmp(&b.group));
    Ok(rows)
}

#[derive(Serialize)]
struct Described {
    group: String,
    topic: Option<String>,
    partition: Option<i32>,
    current_offset: Option<i64>,
    log_start_offset: Option<i64>,
    log_end_offset: Option<i64>,
    lag: Option<i64>,
    member_id: Option<String>,
    client_id: Option<String>,
    host: Option<String>,
}

impl Row for Described {
    const HEADERS: &'static [&'static str] = &[
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-START-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "MEMBER-ID",
        "CLIENT-ID",
        "HOST",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.group.clone(),
            cell(self.topic.as_deref()),
            cell(self.partition),
            cell(self.current_offset),
            cell(self.log_start_offset),
            cell(self.log_end_offset),
            cell(self.lag),
            cell(self.member_id.as_deref()),
            cell(self.client_id.as_deref()),
            cell(self.host.as_deref()),
        ]
    }
}

async fn describe(
    names: &[String],
    format: Format,
    connection: &Connection,
) -> Result<(), Failure> {
    let cluster = connect(connection, PATIENCE, false).await?;
    let mut names = names.to_vec();
    if names.is_empty() {
        names.extend(all_groups(&cluster).await?.into_iter().map(|listed| listed.group));
    }
    let (mut rows, mut shown) = (Vec::new(), Vec::new());
    for name in &names {
        let group = describe_one(&cluster, name).await?;
        rows.extend(group.rows);
        shown.extend(group.shown);
    }
    let mut tables = group_kinds::tables(&shown);
    if !rows.is_empty() || tables.is_empty() {
        tables.insert(0, output::table(&rows));
    }
    let all: Vec<AsJson<'_>> =
        rows.iter().map(AsJson::Row).chain(shown.iter().map(AsJson::Whole)).collect();
    output::print_tables(format, &all, &tables)
}

/// What there is to show of a group: a row for a partition or an idle member, and the whole if it is a share group or a streams group.
#[derive(Default)]
struct Description {
    rows: Vec<Described>,
    shown: Option<Shown>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum AsJson<'a> {
    Row(&'a Described),
    Whole(&'a Shown),
}

async fn describe_one(cluster: &Cluster, name: &str) -> Result<Description, Failure> {
    let cannot = |error: ClientError| failed(format!("cannot describe group {name}"), &error);
    let group = ask(cluster, name).await.map_err(cannot)?;
    let kind = match is_unknown(&group) {
        true => group_kinds::kind(cluster, name).await.map_err(cannot)?,
        false => None,
    };
    let shown = match kind {
        None => None,
        Some(Kind::Share) => {
            let shown = group_kinds::share(cluster, name).await.map_err(cannot)?;
            // Such a group commits no offsets.
            return Ok(Description { shown: Some(shown), ..Description::default() });
        }
        Some(Kind::Streams) => Some(group_kinds::streams(cluster, name).await.map_err(cannot)?),
        Some(Kind::Consumer) => None,
    };
    let members = match kind {
        Some(Kind::Consumer) => {
            let admin = Admin::new(cluster.clone());
            members_of_consumer_group(
                admin.describe_consumer_group(name).await.map_err(cannot)?.members,
            )
        }
        _ => members(&group.members),
    };
    let committed = committed_offsets(cluster, name, None).await.map_err(cannot)?;
    if is_unknown(&group) && kind.is_none() && committed.is_empty() {
        return Err(Failure::new(format!("there is no group {name}"))
            .hint("`highwater group list` shows what is there"));
    }
    let owners = owners(&members);
    let mut partitions: BTreeSet<TopicPartition> = committed.keys().cloned().collect();
    partitions.extend(owners.keys().cloned());
    let metadata = cluster.retry(|| cluster.describe_all()).await.map_err(cannot)?;
    for topic in shown.iter().flat_map(|shown| &shown.sources) {
        let count = metadata.topics.get(&**topic).map_or(0, |topic| topic.partitions.len());
        partitions.extend((0..count as i32).map(|at| TopicPartition::new(&**topic, at)));
    }
    let partitions: Vec<TopicPartition> = partitions.into_iter().collect();
    // What a group has committed may be of topics that are gone by now.
    let there = still_there(&metadata, &partitions);
    let (starts, ends) = ends(cluster, &there).await.map_err(cannot)?;
    let mut rows: Vec<Described> = partitions
        .iter()
        .map(|partition| {
            let owner = owners.get(partition).map(|at| &members[*at]);
            let found = |offsets: &HashMap<TopicPartition, FoundOffset>| {
                offsets.get(partition).and_then(|found| found.offset).map(|offset| offset.0)
            };
            let current = committed.get(partition).map(|committed| committed.offset.0);
            let end = found(&ends);
            Described {
                group: name.to_owned(),
                topic: Some(partition.topic.to_string()),
                partition: Some(partition.partition.0),
                current_offset: current,
                log_start_offset: found(&starts),
                log_end_offset: end,
                lag: current.zip(end).map(|(current, end)| (end - current).max(0)),
                member_id: owner.map(|member| member.id.clone()),
                client_id: owner.map(|member| member.client_id.clone()),
                host: owner.map(|member| member.host.clone()),
            }
        })
        .collect();
    rows.extend(idle_members(name, &members, &owners));
    Ok(Description { rows, shown })
}

/// Members that own no partition.
fn idle_members<'a>(
    name: &'a str,
    members: &'a [Member],
    owners: &'a BTreeMap<TopicPartition, usize>,
) -> impl Iterator<Item = Described> + 'a {
    let busy: BTreeSet<usize> = owners.values().copied().collect();
    let idle = members.iter().enumerate().filter(move |(at, _)| !busy.contains(at));
    idle.map(|(_, member)| Described {
        group: name.to_owned(),
        topic: None,
        partition: None,
        current_offset: None,
        log_start_offset: None,
        log_end_offset: None,
        lag: None,
        member_id: Some(member.id.clone()),
        client_id: Some(member.client_id.clone()),
        host: Some(member.host.clone()),
    })
}

async fn ask(cluster: &Cluster, name: &str) -> Result<DescribedGroup, ClientError> {
    let request = DescribeGroupsRequest { groups: vec![name.to_owned()], ..Default::default() };
    let first = |groups: &[DescribedGroup]| groups.first().map_or(ErrorCode::None, |g| g.error());
    let response = cluster
        .call_coordinator(CoordinatorKind::Group, name, &request, |response| {
            first(&response.groups)
        })
        .await?;
    let missing = || ClientError::refused(name, ErrorCode::GroupIdNotFound);
    let group = response.groups.into_iter().next().ok_or_else(missing)?;
    match group.error() {
        ErrorCode::None | ErrorCode::GroupIdNotFound => Ok(group),
        code => Err(ClientError::refused(name, code)),
    }
}

fn is_unknown(group: &DescribedGroup) -> bool {
    group.error() == ErrorCode::GroupIdNotFound || group.group_state == "Dead"
}

/// A member of a group whose partitions each belong to one member.
struct Member {
    id: String,
    client_id: String,
    host: String,
    owned: Vec<TopicPartition>,
}

/// Members of a classic group.
fn members(described: &[DescribedGroupMember]) -> Vec<Member> {
    let member = |member: &DescribedGroupMember| Member {
        id: member.member_id.clone(),
        client_id: member.client_id.clone(),
        host: member.client_host.clone(),
        owned: assignment(&member.member_assignment).unwrap_or_default(),
    };
    described.iter().map(member).collect()
}

/// Members of a group of the new protocol (KIP-848).
fn members_of_consumer_group(described: Vec<consumer_group_describe::Member>) -> Vec<Member> {
    let owned = |assigned: consumer_group_describe::Assignment| {
        assigned.topic_partitions.into_iter().flat_map(|topic| {
            let of_topic = move |at| TopicPartition::new(&*topic.topic_name, at);
            topic.partitions.into_iter().map(of_topic)
        })
    };
    let member = |member: consumer_group_describe::Member| Member {
        id: member.member_id,
        client_id: member.client_id,
        host: member.client_host,
        owned: owned(member.assignment).collect(),
    };
    described.into_iter().map(member).collect()
}

/// Who owns which partition: a member by its place among the others.
fn owners(members: &[Member]) -> BTreeMap<TopicPartition, usize> {
    let mut owners = BTreeMap::new();
    for (at, member) in members.iter().enumerate() {
        owners.extend(member.owned.iter().map(|partition| (partition.clone(), at)));
    }
    owners
}

/// The partitions in an assignment of the consumer protocol, of whichever version; `None` if the
/// bytes are none.
fn assignment(bytes: &[u8]) -> Option<Vec<TopicPartition>> {
    let mut rest = bytes;
    let mut take = |count: usize| {
        let (taken, after) = rest.split_at_checked(count)?;
        rest = after;
        Some(taken)
    };
    let _version = take(2)?;
    let mut partitions = Vec::new();
    let topics = i32::from_be_bytes(take(4)?.try_into().ok()?);
    for _ in 0..topics {
        let length = i16::from_be_bytes(take(2)?.try_into().ok()?);
        let topic = std::str::from_utf8(take(usize::try_from(length).ok()?)?).ok()?;
        let count = i32::from_be_bytes(take(4)?.try_into().ok()?);
        for _ in 0..count {
            let partition = i32::from_be_bytes(take(4)?.try_into().ok()?);
            partitions.push(TopicPartition::new(topic, partition));
        }
    }
    Some(partitions)
}

fn still_there(metadata: &Metadata, partitions: &[TopicPartition]) -> Vec<TopicPartition> {
    let led = |p: &&TopicPartition| metadata.leader(&p.topic, p.partition.0).is_some();
    partitions.iter().filter(led).cloned().collect()
}

struct Seek<'a> {
    group: &'a str,
    to: Place,
    topics: &'a [String],
    dry_run: bool,
}

#[derive(Serialize)]
struct Moved {
    topic: String,
    partition: i32,
    previous_offset: Option<i64>,
    new_offset: i64,
}

impl Row for Moved {
    const HEADERS: &'static [&'static str] =
        &["TOPIC", "PARTITION", "PREVIOUS-OFFSET", "NEW-OFFSET"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.topic.clone(),
            self.partition.to_string(),
            cell(self.previous_offset),
            self.new_offset.to_string(),
        ]
    }
}

impl Seek<'_> {
    fn cannot(&self, error: &ClientError) -> Failure {
        failed(format!("group {} was not moved", self.group), error)
    }

    async fn run(&self, format: Format, connection: &Connection) -> Result<(), Failure> {
        let cluster = connect(connection, PATIENCE, false).await?;
        let cannot = |error| self.cannot(&error);
        let group = ask(&cluster, self.group).await.map_err(cannot)?;
        if !group.members.is_empty() {
            let members = counted(group.members.len() as u64, "member");
            return Err(Failure::new(format!("group {} was not moved", self.group))
                .detail(format!("it has {members}, which would go on from where they are"))
                .hint("stop its consumers first"));
        }
        let committed = committed_offsets(&cluster, self.group, None).await.map_err(cannot)?;
        let partitions = self.partitions(&cluster, &committed).await?;
        let targets = targets(&cluster, &partitions, self.to).await.map_err(cannot)?;
        if !self.dry_run {
            self.commit(&cluster, &targets).await?;
        }
        let mut rows: Vec<Moved> = targets
            .into_iter()
            .map(|(partition, offset)| Moved {
                topic: partition.topic.to_string(),
                partition: partition.partition.0,
                previous_offset: committed.get(&partition).map(|committed| committed.offset.0),
                new_offset: offset,
            })
            .collect();
        rows.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        output::print(format, &rows)
    }

    /// Those that were named, or all that the group has committed.
    async fn partitions(
        &self,
        cluster: &Cluster,
        committed: &HashMap<TopicPartition, CommittedOffset>,
    ) -> Result<Vec<TopicPartition>, Failure> {
        if self.topics.is_empty() {
            if committed.is_empty() {
                return Err(Failure::new(format!("group {} has no offsets", self.group))
                    .hint("name the topics that it shall read with --topic"));
            }
            let all: Vec<TopicPartition> = committed.keys().cloned().collect();
            let metadata = cluster.retry(|| cluster.describe_all()).await;
            return Ok(still_there(&metadata.map_err(|error| self.cannot(&error))?, &all));
        }
        named_partitions(cluster, self.topics).await
    }

    async fn commit(
        &self,
        cluster: &Cluster,
        targets: &[(TopicPartition, i64)],
    ) -> Result<(), Failure> {
        let offsets = targets
            .iter()
            .map(|(partition, offset)| (partition.clone(), CommittedOffset::at(Offset(*offset))))
            .collect();
        let committer = Committer::administrator();
        let answers = commit_offsets(cluster, self.group, &committer, &offsets).await;
        let answers = answers.map_err(|error| self.cannot(&error))?;
        let refused = answers.into_iter().find(|(_, code)| *code != ErrorCode::None);
        refused.map_or(Ok(()), |(partition, code)| {
            Err(self.cannot(&ClientError::refused(partition.to_string(), code)))
        })
    }
}

/// The offset of a place in each partition, never outside of what is there.
pub async fn targets(
    cluster: &Cluster,
    partitions: &[TopicPartition],
    place: Place,
) -> Result<Vec<(TopicPartition, i64)>, ClientError> {
    let (starts, ends) = ends(cluster, partitions).await?;
    let time_ms = match place {
        Place::Timestamp(ms) => Some(ms),
        Place::Ago(ago) => {
            Some(moment::now_ms().saturating_sub_unsigned(ago.as_millis() as u64).max(0))
        }
        _ => None,
    };
    let at_time = match time_ms {
        Some(ms) => {
            let spec = OffsetSpec::AtOrAfter(Timestamp(ms));
            let wanted: Vec<_> = partitions.iter().map(|p| (p.clone(), spec)).collect();
            list_offsets(cluster, &wanted, false).await?
        }
        None => HashMap::new(),
    };
    let offset = |found: &HashMap<TopicPartition, FoundOffset>, partition: &TopicPartition| {
        found.get(partition).and_then(|found| found.offset).map(|offset| offset.0)
    };
    let targets = partitions.iter().map(|partition| {
        let start = offset(&starts, partition).unwrap_or(0);
        let end = offset(&ends, partition).unwrap_or(start);
        let wanted = match place {
            Place::Start => start,
            Place::End => end,
            Place::Offset(offset) => offset,
            Place::AfterStart(count) => start.saturating_add(count),
            Place::BeforeEnd(count) => end.saturating_sub(count),
            // Nothing is as late: what comes next is.
            Place::Timestamp(_) | Place::Ago(_) => offset(&at_time, partition).unwrap_or(end),
        };
        (partition.clone(), wanted.clamp(start, end.max(start)))
    });
    Ok(targets.collect())
}

async fn delete(names: &[String], connection: &Connection) -> Result<(), Failure> {
    let wanted = "not all groups were deleted";
    let cluster = connect(connection, PATIENCE, false).await?;
    let mut outcomes = Outcomes::default();
    for name in names {
        let request = DeleteGroupsRequest { groups_names: vec![name.clone()] };
        let response = cluster
            .call_coordinator(CoordinatorKind::Group, name, &request, |response| {
                response.results.first().map_or(ErrorCode::None, |result| result.error())
            })
            .await
            .map_err(|error| failed(wanted, &error))?;
        for result in &response.results {
            let message = result.error_message.as_deref();
            outcomes.take(&result.group_id, "deleted", result.error(), message);
        }
    }
    outcomes.finish(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_assignment_of_a_member_is_read_and_nonsense_is_not() {
        let mut bytes = vec![0, 1, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 2];
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 3]);
        // User data follows.
        bytes.extend([255, 255, 255, 255]);
        let expected = vec![TopicPartition::new("t", 0), TopicPartition::new("t", 3)];
        assert_eq!(assignment(&bytes), Some(expected));
        assert_eq!(assignment(&[]), None);
        assert_eq!(assignment(&bytes[..15]), None);
        assert_eq!(assignment(&[0, 1, 0, 0, 0, 1, 255, 255]), None);
    }

    #[test]
    fn members_of_both_protocols_own_partitions() {
        let classic = |id: &str, member_assignment: Vec<u8>| DescribedGroupMember {
            member_id: id.into(),
            member_assignment: member_assignment.into(),
            ..Default::default()
        };
        let bytes = vec![0, 1, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 3];
        let old = members(&[classic("idle", Vec::new()), classic("busy", bytes)]);
        assert_eq!(owners(&old), BTreeMap::from([(TopicPartition::new("t", 3), 1)]));
        let topic = |name: &str, partitions| consumer_group_describe::TopicPartitions {
            topic_name: name.into(),
            partitions,
            ..Default::default()
        };
        let topic_partitions = vec![topic("t", vec![0, 2]), topic("u", vec![1])];
        let new = members_of_consumer_group(vec![
            consumer_group_describe::Member { member_id: "idle".into(), ..Default::default() },
            consumer_group_describe::Member {
                member_id: "busy".into(),
                client_id: "c".into(),
                client_host: "/127.0.0.1".into(),
                assignment: consumer_group_describe::Assignment { topic_partitions },
                ..Default::default()
            },
        ]);
        let owned = [("t", 0), ("t", 2), ("u", 1)];
        assert_eq!(
            owners(&new),
            BTreeMap::from(owned.map(|(t, p)| (TopicPartition::new(t, p), 1)))
        );
        let rows: Vec<Described> = idle_members("g", &new, &owners(&new)).collect();
        assert_eq!(
            rows.iter().map(|row| row.member_id.as_deref()).collect::<Vec<_>>(),
            [Some("idle")]
        );
        assert_eq!((&*new[1].client_id, &*new[1].host), ("c", "/127.0.0.1"));
    }
}
