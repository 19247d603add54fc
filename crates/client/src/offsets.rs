//! Offsets: those of a partition by time, and those that groups have committed.

use crate::cluster::{Cluster, CoordinatorKind, Lane, TopicLease};
use crate::error::{ClientError, check};
use model::{ErrorCode, LeaderEpoch, Offset, Timestamp, TopicPartition};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use wire::list_offsets::{ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsTopic};
use wire::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use wire::offset_fetch::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
    OffsetFetchResponseTopics,
};
use wire::offset_for_leader_epoch::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use wire::{
    ApiKey, ListOffsetsRequest, ListOffsetsResponse, OffsetCommitRequest, OffsetFetchRequest,
    OffsetFetchResponse, OffsetForLeaderEpochRequest,
};

/// Pause between two requests for offsets that were not available.
const EACH_PAUSE: Duration = Duration::from_millis(100);

/// Which offset of a partition is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The first readable one.
    Earliest,
    /// The one behind the last readable record.
    Latest,
    /// The record with the largest timestamp (KIP-734).
    MaxTimestamp,
    /// The first record whose timestamp is not below this one.
    AtOrAfter(Timestamp),
}

impl OffsetSpec {
    fn code(self) -> i64 {
        match self {
            OffsetSpec::Latest => -1,
            OffsetSpec::Earliest => -2,
            OffsetSpec::MaxTimestamp => -3,
            OffsetSpec::AtOrAfter(timestamp) => timestamp.0,
        }
    }
}

/// An offset that was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundOffset {
    /// The offset; `None` if no record is as late as asked.
    pub offset: Option<Offset>,
    /// The record's timestamp, for look-ups by time; else none.
    pub timestamp: Timestamp,
    /// The leader epoch in which the record was written; none if not known.
    pub leader_epoch: LeaderEpoch,
}

/// An offset that a group committed, or is about to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next offset that the group will read.
    pub offset: Offset,
    /// The leader epoch of the last record that it has read; none if not known.
    pub leader_epoch: LeaderEpoch,
    /// Whatever the group wants to remember with it.
    pub metadata: Option<String>,
}

impl CommittedOffset {
    /// An offset and nothing else.
    pub fn at(offset: Offset) -> CommittedOffset {
        CommittedOffset { offset, leader_epoch: LeaderEpoch::NONE, metadata: None }
    }
}

/// As whom offsets are committed: a member of a generation, or an administrator.
#[derive(Debug, Clone, Default)]
pub struct Committer {
    /// The member; empty for an administrator.
    pub member_id: String,
    /// The member's static id, if it has one.
    pub group_instance_id: Option<String>,
    /// The generation; -1 for an administrator.
    pub generation_id: i32,
}

impl Committer {
    /// Someone who is no member: allowed while the group has none.
    pub fn administrator() -> Committer {
        Committer { generation_id: -1, ..Committer::default() }
    }
}

/// Looks offsets up, each at the partition's leader. A partition that fails for good fails all.
pub async fn list_offsets(
    cluster: &Cluster,
    wanted: &[(TopicPartition, OffsetSpec)],
    read_committed: bool,
) -> Result<HashMap<TopicPartition, FoundOffset>, ClientError> {
    let mut found = HashMap::new();
    let leases = lease(cluster, wanted.iter().map(|(partition, _)| partition));
    for lease in leases.values() {
        lease.topic().await?;
    }
    let done = tokio::sync::Mutex::new(&mut found);
    cluster
        .retry(|| async {
            let mut found = done.lock().await;
            let missing = wanted.iter().filter(|(p, _)| !found.contains_key(p));
            let missing: Vec<_> = missing.cloned().collect();
            let asked = list_once(cluster, &missing, read_committed, &mut found).await;
            if asked.is_err() {
                cluster.refresh().await?;
            }
            asked
        })
        .await?;
    Ok(found)
}

/// Keeps the topics of these partitions known, once each.
fn lease<'a>(
    cluster: &Cluster,
    partitions: impl Iterator<Item = &'a TopicPartition>,
) -> BTreeMap<Arc<str>, TopicLease> {
    let mut leases = BTreeMap::new();
    for partition in partitions {
        let topic = &partition.topic;
        leases.entry(topic.clone()).or_insert_with(|| cluster.lease(topic));
    }
    leases
}

/// Asks every leader once; what is found is kept even if something else fails.
async fn list_once(
    cluster: &Cluster,
    wanted: &[(TopicPartition, OffsetSpec)],
    read_committed: bool,
    found: &mut HashMap<TopicPartition, FoundOffset>,
) -> Result<(), ClientError> {
    let metadata = cluster.metadata();
    let mut by_leader: BTreeMap<i32, Vec<&(TopicPartition, OffsetSpec)>> = BTreeMap::new();
    for wish in wanted {
        let leader = metadata.leader(&wish.0.topic, wish.0.partition.0);
        let none = || ClientError::refused(wish.0.to_string(), ErrorCode::LeaderNotAvailable);
        by_leader.entry(leader.ok_or_else(none)?).or_default().push(wish);
    }
    let mut result = Ok(());
    for (leader, wishes) in by_leader {
        let request = list_request(&wishes, read_committed);
        let connection = cluster.broker(leader, Lane::Common).await?;
        let response = connection.call(&request).await?;
        result = result.and(take_found(&response, found));
    }
    result
}

/// Looks an offset of each partition up at its leader, with one result for each: a partition whose offsets are not available hides
/// no other one. Errors that may pass are retried for `patience`, and are the result afterwards.
pub async fn list_each(
    cluster: &Cluster,
    wanted: &[(TopicPartition, OffsetSpec)],
    patience: Duration,
) -> HashMap<TopicPartition, Result<FoundOffset, ClientError>> {
    let deadline = Instant::now() + patience;
    let leases = lease(cluster, wanted.iter().map(|(partition, _)| partition));
    for lease in leases.values() {
        // A topic that stays unknown has no leaders below.
        let _ = lease.topic().await;
    }
    let mut found: HashMap<TopicPartition, Result<FoundOffset, ClientError>> = HashMap::new();
    loop {
        let metadata = cluster.metadata();
        let mut by_leader: BTreeMap<i32, Vec<(TopicPartition, OffsetSpec)>> = BTreeMap::new();
        let missing = wanted.iter().filter(|(it, _)| !found.get(it).is_some_and(Result::is_ok));
        let missing: Vec<(TopicPartition, OffsetSpec)> = missing.cloned().collect();
        for wish in missing {
            match metadata.leader(&wish.0.topic, wish.0.partition.0) {
                Some(leader) => by_leader.entry(leader).or_default().push(wish),
                None => {
                    let code = ErrorCode::LeaderNotAvailable;
                    let error = ClientError::refused(format!("offset of {}", wish.0), code);
                    found.insert(wish.0, Err(error));
                }
            }
        }
        let mut requests = JoinSet::new();
        for (leader, wishes) in by_leader {
            let cluster = cluster.clone();
            requests.spawn(async move { list_at_leader(&cluster, leader, &wishes, false).await });
        }
        while let Some(answered) = requests.join_next().await {
            found.extend(answered.into_iter().flatten());
        }
        let is_over = !found.values().any(|it| it.as_ref().is_err_and(ClientError::is_retriable));
        if is_over || Instant::now() >= deadline || cluster.refresh().await.is_err() {
            return found;
        }
        tokio::time::sleep(EACH_PAUSE).await;
    }
}

/// Looks an offset of each partition up at its leader, once, at all leaders at the same time. Partitions without a leader, and
/// those of leaders that do not answer within `patience`, are missing in the result.
pub async fn list_available(
    cluster: &Cluster,
    wanted: &[(TopicPartition, OffsetSpec)],
    read_committed: bool,
    patience: Duration,
) -> HashMap<TopicPartition, Result<FoundOffset, ClientError>> {
    let deadline = tokio::time::Instant::now() + patience;
    let metadata = cluster.metadata();
    let mut by_leader: BTreeMap<i32, Vec<(TopicPartition, OffsetSpec)>> = BTreeMap::new();
    for wish in wanted {
        if let Some(leader) = metadata.leader(&wish.0.topic, wish.0.partition.0) {
            by_leader.entry(leader).or_default().push(wish.clone());
        }
    }
    let mut requests = JoinSet::new();
    for (leader, wishes) in by_leader {
        let cluster = cluster.clone();
        requests
            .spawn(async move { list_at_leader(&cluster, leader, &wishes, read_committed).await });
    }
    let mut found = HashMap::new();
    // The set ends requests that are left when it is dropped.
    while let Ok(Some(answered)) = tokio::time::timeout_at(deadline, requests.join_next()).await {
        found.extend(answered.into_iter().flatten());
    }
    found
}

/// Requests an offset of each of these partitions from their leader, once. One result for each.
pub(crate) async fn list_at_leader(
    cluster: &Cluster,
    leader: i32,
    wanted: &[(TopicPartition, OffsetSpec)],
    read_committed: bool,
) -> Vec<(TopicPartition, Result<FoundOffset, ClientError>)> {
    let asked = async {
        let wishes: Vec<_> = wanted.iter().collect();
        let connection = cluster.broker(leader, Lane::Common).await?;
        connection.call(&list_request(&wishes, read_committed)).await
    };
    let answer = asked.await;
    let mut found = answer.as_ref().map(answered_offsets).unwrap_or_default();
    let missing = |partition: &TopicPartition| match &answer {
        Err(error) => error.clone(),
        Ok(_) => ClientError::refused(
            format!("offset of {partition}"),
            ErrorCode::UnknownTopicOrPartition,
        ),
    };
    let results = wanted.iter().map(|(partition, _)| {
        let result = found.remove(partition).unwrap_or_else(|| Err(missing(partition)));
        (partition.clone(), result)
    });
    results.collect()
}

fn answered_offsets(
    answer: &ListOffsetsResponse,
) -> HashMap<TopicPartition, Result<FoundOffset, ClientError>> {
    let partitions = answer.topics.iter().flat_map(|topic| {
        topic
            .partitions
            .iter()
            .map(|it| (TopicPartition::new(&*topic.name, it.partition_index), it))
    });
    let refused = |partition: &TopicPartition, code| {
        ClientError::refused(format!("offset of {partition}"), code)
    };
    let results = partitions.map(|(partition, answer)| {
        let found = found_at(answer).map_err(|code| refused(&partition, code));
        (partition, found)
    });
    results.collect()
}

/// Asks this broker for an offset of partitions that it leads, once; those of a topic are to follow each other.
pub(crate) async fn list_at(
    cluster: &Cluster,
    broker: i32,
    wanted: &[(Arc<str>, i32)],
    spec: OffsetSpec,
) -> Result<ListOffsetsResponse, ClientError> {
    let partition = |(_, partition_index): &(_, i32)| ListOffsetsPartition {
        partition_index: *partition_index,
        timestamp: spec.code(),
        ..Default::default()
    };
    let topic = |partitions: &[(Arc<str>, i32)]| ListOffsetsTopic {
        name: partitions[0].0.to_string(),
        partitions: partitions.iter().map(partition).collect(),
    };
    let topics = wanted.chunk_by(|a, b| a.0 == b.0).map(topic).collect();
    let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
    cluster.broker(broker, Lane::Common).await?.call(&request).await
}

/// What an answer says of one partition.
pub(crate) fn found_at(answer: &ListOffsetsPartitionResponse) -> Result<FoundOffset, ErrorCode> {
    match answer.error() {
        ErrorCode::None => Ok(FoundOffset {
            offset: (answer.offset >= 0).then_some(Offset(answer.offset)),
            timestamp: Timestamp(answer.timestamp),
            leader_epoch: LeaderEpoch(answer.leader_epoch),
        }),
        error => Err(error),
    }
}

fn list_request(
    wishes: &[&(TopicPartition, OffsetSpec)],
    read_committed: bool,
) -> ListOffsetsRequest {
    let mut topics: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
    for (partition, spec) in wishes {
        topics.entry(&partition.topic).or_default().push(ListOffsetsPartition {
            partition_index: partition.partition.0,
            timestamp: spec.code(),
            ..Default::default()
        });
    }
    let topics = topics.into_iter();
    ListOffsetsRequest {
        replica_id: -1,
        isolation_level: read_committed as i8,
        topics: topics
            .map(|(name, partitions)| ListOffsetsTopic { name: name.to_owned(), partitions })
            .collect(),
        ..Default::default()
    }
}

fn take_found(
    response: &ListOffsetsResponse,
    found: &mut HashMap<TopicPartition, FoundOffset>,
) -> Result<(), ClientError> {
    let mut result = Ok(());
    for topic in &response.topics {
        for answer in &topic.partitions {
            let partition = TopicPartition::new(&*topic.name, answer.partition_index);
            let checked = check(answer.error(), None, || format!("offset of {partition}"));
            if checked.is_ok() {
                let offset = (answer.offset >= 0).then_some(Offset(answer.offset));
                let timestamp = Timestamp(answer.timestamp);
                let leader_epoch = LeaderEpoch(answer.leader_epoch);
                found.insert(partition, FoundOffset { offset, timestamp, leader_epoch });
            }
            result = result.and(checked);
        }
    }
    result
}

/// Asks leaders where a leader epoch ended in their logs: the offset behind its last record, or behind the last one of
/// the one before it. `None` where the leader does not know that epoch (KIP-320). A place behind that offset, in that
/// epoch, was cut off. A partition that fails fails all.
pub async fn epoch_ends(
    cluster: &Cluster,
    wanted: &[(TopicPartition, LeaderEpoch)],
) -> Result<HashMap<TopicPartition, Option<Offset>>, ClientError> {
    let _leases = lease(cluster, wanted.iter().map(|(partition, _)| partition));
    cluster
        .retry(|| async {
            let asked = epoch_ends_once(cluster, wanted).await;
            if asked.as_ref().is_err_and(ClientError::is_retriable) {
                cluster.refresh().await?;
            }
            asked
        })
        .await
}

async fn epoch_ends_once(
    cluster: &Cluster,
    wanted: &[(TopicPartition, LeaderEpoch)],
) -> Result<HashMap<TopicPartition, Option<Offset>>, ClientError> {
    let metadata = cluster.metadata();
    let mut by_leader: BTreeMap<i32, BTreeMap<&str, Vec<OffsetForLeaderPartition>>> =
        BTreeMap::new();
    for (partition, leader_epoch) in wanted {
        let leader = metadata.leader(&partition.topic, partition.partition.0);
        let none = || ClientError::refused(partition.to_string(), ErrorCode::LeaderNotAvailable);
        let of_leader = by_leader.entry(leader.ok_or_else(none)?).or_default();
        of_leader.entry(&partition.topic).or_default().push(OffsetForLeaderPartition {
            partition: partition.partition.0,
            leader_epoch: leader_epoch.0,
            ..Default::default()
        });
    }
    let mut found = HashMap::new();
    for (leader, topics) in by_leader {
        let topics = topics.into_iter();
        let topics = topics.map(|(topic, partitions)| OffsetForLeaderTopic {
            topic: topic.to_owned(),
            partitions,
        });
        let request = OffsetForLeaderEpochRequest { replica_id: -1, topics: topics.collect() };
        let response = cluster.broker(leader, Lane::Common).await?.call(&request).await?;
        for topic in &response.topics {
            for answer in &topic.partitions {
                let partition = TopicPartition::new(&*topic.topic, answer.partition);
                check(answer.error(), None, || {
                    format!("the end of a leader epoch of {partition}")
                })?;
                let end = (answer.end_offset >= 0).then_some(Offset(answer.end_offset));
                found.insert(partition, end);
            }
        }
    }
    Ok(found)
}

/// The newest version of committing and fetching offsets that names topics.
const BY_NAME: i16 = 9;

/// Commits offsets of a group; what went wrong, partition by partition, in the answer's order.
pub async fn commit_offsets(
    cluster: &Cluster,
    group_id: &str,
    committer: &Committer,
    offsets: &HashMap<TopicPartition, CommittedOffset>,
) -> Result<Vec<(TopicPartition, ErrorCode)>, ClientError> {
    let request = commit_request(group_id, committer, offsets);
    let mut errors = Vec::new();
    let collected = std::sync::Mutex::new(&mut errors);
    cluster
        .retry(|| async {
            let id = cluster.coordinator(CoordinatorKind::Group, group_id).await?;
            let connection = cluster.broker(id, Lane::Common).await;
            let connection = connection.inspect_err(|_| forget(cluster, group_id))?;
            let version = version_by_name(&connection, ApiKey::OffsetCommit)?;
            let response = connection.call_version(&request, version).await;
            let response = response.inspect_err(|_| forget(cluster, group_id))?;
            let answers: Vec<_> = response
                .topics
                .iter()
                .flat_map(|t| t.partitions.iter().map(move |p| (t, p)))
                .map(|(t, p)| (TopicPartition::new(&*t.name, p.partition_index), p.error()))
                .collect();
            let again = answers.iter().find(|(_, error)| error.is_retriable());
            if let Some((partition, code)) = again {
                forget(cluster, group_id);
                return Err(ClientError::refused(format!("commit of {partition}"), *code));
            }
            **collected.lock().expect("nothing panics under it") = answers;
            Ok(())
        })
        .await?;
    Ok(errors)
}

fn forget(cluster: &Cluster, group_id: &str) {
    cluster.forget_coordinator(CoordinatorKind::Group, group_id);
}

fn version_by_name(
    connection: &crate::connection::Connection,
    api: ApiKey,
) -> Result<i16, ClientError> {
    let version = connection.versions().newest_up_to(api, BY_NAME);
    let peer = connection.peer().to_owned();
    version.ok_or(ClientError::Unsupported { peer, api })
}

fn commit_request(
    group_id: &str,
    committer: &Committer,
    offsets: &HashMap<TopicPartition, CommittedOffset>,
) -> OffsetCommitRequest {
    let mut topics: BTreeMap<&str, Vec<OffsetCommitRequestPartition>> = BTreeMap::new();
    for (partition, committed) in offsets {
        topics.entry(&partition.topic).or_default().push(OffsetCommitRequestPartition {
            partition_index: partition.partition.0,
            committed_offset: committed.offset.0,
            committed_leader_epoch: committed.leader_epoch.0,
            committed_metadata: Some(committed.metadata.clone().unwrap_or_default()),
        });
    }
    let topic = |(name, partitions): (&str, _)| OffsetCommitRequestTopic {
        name: name.to_owned(),
        partitions,
        ..Default::default()
    };
    OffsetCommitRequest {
        group_id: group_id.to_owned(),
        generation_id_or_member_epoch: committer.generation_id,
        member_id: committer.member_id.clone(),
        group_instance_id: committer.group_instance_id.clone(),
        topics: topics.into_iter().map(topic).collect(),
        ..Default::default()
    }
}

/// What a group has committed for these partitions, or for all with `None`. Partitions without a
/// commit are left out.
pub async fn committed_offsets(
    cluster: &Cluster,
    group_id: &str,
    partitions: Option<&[TopicPartition]>,
) -> Result<HashMap<TopicPartition, CommittedOffset>, ClientError> {
    let named = partitions.map(by_topic);
    cluster
        .retry(|| async {
            let id = cluster.coordinator(CoordinatorKind::Group, group_id).await?;
            let connection = cluster.broker(id, Lane::Common).await;
            let connection = connection.inspect_err(|_| forget(cluster, group_id))?;
            let version = version_by_name(&connection, ApiKey::OffsetFetch)?;
            let request = fetch_request(group_id, named.as_ref(), version);
            let response = connection.call_version(&request, version).await;
            let response = response.inspect_err(|_| forget(cluster, group_id))?;
            take_committed(&response, version).inspect_err(|_| forget(cluster, group_id))
        })
        .await
}

/// The first version of OffsetFetch that asks for several groups.
const SEVERAL_GROUPS: i16 = 8;

/// What a group has committed, or why that is not known.
pub type OfGroup = Result<Vec<(TopicPartition, CommittedOffset)>, ErrorCode>;

/// Asks this broker what groups that it coordinates have committed, once.
pub(crate) async fn committed_at(
    cluster: &Cluster,
    broker: i32,
    groups: &[String],
) -> Result<Vec<(String, OfGroup)>, ClientError> {
    let connection = cluster.broker(broker, Lane::Common).await?;
    let version = version_by_name(&connection, ApiKey::OffsetFetch)?;
    let mut all = Vec::with_capacity(groups.len());
    if version < SEVERAL_GROUPS {
        for group_id in groups {
            let response =
                connection.call_version(&fetch_request(group_id, None, version), version).await?;
            let committed = take_committed(&response, version);
            let code = |error: ClientError| error.code().unwrap_or(ErrorCode::UnknownServerError);
            let committed = committed.map(|offsets| offsets.into_iter().collect());
            all.push((group_id.clone(), committed.map_err(code)));
        }
        return Ok(all);
    }
    let group = |group_id: &String| OffsetFetchRequestGroup {
        group_id: group_id.clone(),
        topics: None,
        ..Default::default()
    };
    let groups = groups.iter().map(group).collect();
    let request = OffsetFetchRequest { groups, require_stable: false, ..Default::default() };
    let response = connection.call_version(&request, version).await?;
    for group in response.groups {
        let whole = match group.error() {
            ErrorCode::None => Ok(of_topics(group.topics)),
            error => Err(error),
        };
        all.push((group.group_id, whole));
    }
    Ok(all)
}

/// The commits that an answer has of a group; partitions of a topic share its name.
fn of_topics(topics: Vec<OffsetFetchResponseTopics>) -> Vec<(TopicPartition, CommittedOffset)> {
    let mut committed = Vec::new();
    for topic in topics {
        let name: Arc<str> = Arc::from(&*topic.name);
        for answer in topic.partitions {
            if !answer.error().is_none() || answer.committed_offset < 0 {
                continue;
            }
            let at = CommittedOffset {
                offset: Offset(answer.committed_offset),
                leader_epoch: LeaderEpoch(answer.committed_leader_epoch),
                metadata: answer.metadata,
            };
            committed.push((TopicPartition::new(name.clone(), answer.partition_index), at));
        }
    }
    committed
}

fn by_topic(partitions: &[TopicPartition]) -> BTreeMap<String, Vec<i32>> {
    let mut topics: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        topics.entry(partition.topic.to_string()).or_default().push(partition.partition.0);
    }
    topics
}

fn fetch_request(
    group_id: &str,
    topics: Option<&BTreeMap<String, Vec<i32>>>,
    version: i16,
) -> OffsetFetchRequest {
    let named = |(name, indexes): (&String, &Vec<i32>)| (name.clone(), indexes.clone());
    let topics = topics.map(|topics| topics.iter().map(named));
    if version < 8 {
        let topic = |(name, partition_indexes)| OffsetFetchRequestTopic { name, partition_indexes };
        return OffsetFetchRequest {
            group_id: group_id.to_owned(),
            topics: topics.map(|topics| topics.map(topic).collect()),
            require_stable: version >= 7,
            ..Default::default()
        };
    }
    let topic = |(name, partition_indexes)| OffsetFetchRequestTopics {
        name,
        partition_indexes,
        ..Default::default()
    };
    let group = OffsetFetchRequestGroup {
        group_id: group_id.to_owned(),
        topics: topics.map(|topics| topics.map(topic).collect()),
        ..Default::default()
    };
    OffsetFetchRequest { groups: vec![group], require_stable: true, ..Default::default() }
}

/// One row of an answer, whichever its version.
type Row<'a> = (&'a str, i32, ErrorCode, i64, i32, Option<&'a String>);

fn take_committed(
    response: &OffsetFetchResponse,
    version: i16,
) -> Result<HashMap<TopicPartition, CommittedOffset>, ClientError> {
    let what = || "committed offsets".to_owned();
    let mut rows: Vec<Row<'_>> = Vec::new();
    if version < 8 {
        check(response.error(), None, what)?;
        for t in &response.topics {
            rows.extend(t.partitions.iter().map(|p| {
                let (offset, epoch) = (p.committed_offset, p.committed_leader_epoch);
                (&*t.name, p.partition_index, p.error(), offset, epoch, p.metadata.as_ref())
            }));
        }
    } else {
        for group in &response.groups {
            check(group.error(), None, what)?;
            for t in &group.topics {
                rows.extend(t.partitions.iter().map(|p| {
                    let (offset, epoch) = (p.committed_offset, p.committed_leader_epoch);
                    (&*t.name, p.partition_index, p.error(), offset, epoch, p.metadata.as_ref())
                }));
            }
        }
    }
    let mut out = HashMap::new();
    for (topic, index, error, offset, epoch, metadata) in rows {
        let partition = TopicPartition::new(topic, index);
        check(error, None, || format!("committed offset of {partition}"))?;
        if offset >= 0 {
            let (offset, leader_epoch) = (Offset(offset), LeaderEpoch(epoch));
            let metadata = metadata.cloned();
            out.insert(partition, CommittedOffset { offset, leader_epoch, metadata });
        }
    }
    Ok(out)
}
