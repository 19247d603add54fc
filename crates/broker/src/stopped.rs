//! What can be known of a broker that is stopped, for the tools that work on its files: which
//! partitions the metadata wants, and what the records of another cluster's groups become here.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use coordinator::records::Record;
use metadata::decide::{BrokerRef, ConfigChange, ConfigOperation, IncrementalAlterConfigs};
use metadata::{ConfigResource, Refusal, Request, Response};
use model::partitioner::GroupPlacement;
use model::{BrokerId, LeaderEpoch, Timestamp, TopicId, TopicPartition};
pub use quorum::Regeneration;
use quorum::{NoTransport, Quorum, QuorumConfig, QuorumError};
use storage::disk::Disk;
use storage::journal::Key;

use crate::start::{METADATA_DIR, partitions_of};

/// The topic in which groups keep their offsets.
pub const OFFSETS_TOPIC: &str = crate::groups::OFFSETS_TOPIC;
/// The name of the metadata quorum's folder.
pub const METADATA_FOLDER: &str = METADATA_DIR;

/// The partitions that the cluster's metadata wants of the broker `node`. `metadata_dir` is the log
/// directory in which the quorum keeps its folder. Changes nothing.
///
/// Fails where a start would, with a message that names the file.
pub fn wanted_partitions(
    disk: &Arc<dyn Disk>,
    metadata_dir: &Path,
    cluster_id: &str,
    node: BrokerId,
) -> io::Result<BTreeMap<Key, TopicPartition>> {
    let dir = metadata_dir.join(METADATA_DIR);
    let image = quorum::read_stopped(disk, &dir, cluster_id, node)?;
    Ok(partitions_of(&image, node))
}

/// How many replicas the partitions of a topic have at most, by the cluster's metadata that the broker `node` has; `None` if the
/// topic is not known. As [`wanted_partitions`].
pub fn replicas_of(
    disk: &Arc<dyn Disk>,
    metadata_dir: &Path,
    cluster_id: &str,
    node: BrokerId,
    topic: &str,
) -> io::Result<Option<usize>> {
    let dir = metadata_dir.join(METADATA_DIR);
    let image = quorum::read_stopped(disk, &dir, cluster_id, node)?;
    let described = image.topic(topic);
    Ok(described.and_then(|it| it.partitions().map(|(_, state)| state.replicas.len()).max()))
}

/// Why a dynamic value was not taken back in the folder of a stopped broker.
#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    /// The cluster's metadata cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// Other nodes vote: a change needs them.
    #[error("the cluster has other voters, so this folder alone cannot change its metadata")]
    OtherVoters,
    /// Nothing to take back.
    #[error("no broker has a dynamic value of {0}")]
    NotSet(String),
    /// The controller refuses the change.
    #[error("{}: {}", .0.error, .0.message)]
    Refused(Refusal),
    /// The change cannot be written.
    #[error(transparent)]
    Quorum(#[from] QuorumError),
}

/// Takes back the dynamic values of `key`, for all brokers and for each of them, in the metadata of the stopped node
/// `node`, which must be the only voter. Returns the names of the resources: empty for all brokers, otherwise the id of
/// one. Must be called within a tokio runtime.
pub async fn reset_config(
    disk: &Arc<dyn Disk>,
    metadata_dir: &Path,
    cluster_id: &str,
    node: BrokerId,
    key: &str,
) -> Result<Vec<String>, ResetError> {
    let dir = metadata_dir.join(METADATA_DIR);
    quorum::check_regenerated(&**disk, &dir)?;
    if !quorum::is_only_voter(disk, &dir, cluster_id, node)? {
        return Err(ResetError::OtherVoters);
    }
    let config = QuorumConfig::new(node, cluster_id, dir);
    let quorum = Quorum::start(config, Arc::clone(disk), Arc::new(NoTransport)).await?;
    let outcome = take_back(&quorum, key).await;
    quorum.stop().await?;
    outcome
}

async fn take_back(quorum: &Quorum, key: &str) -> Result<Vec<String>, ResetError> {
    let image = quorum.image();
    let brokers = image.brokers().map(|broker| ConfigResource::Broker(broker.id));
    let all = std::iter::once(ConfigResource::ClusterDefault).chain(brokers);
    let has_key = |resource: &ConfigResource| {
        image.configs(resource).is_some_and(|configs| configs.contains_key(key))
    };
    let resources: Vec<ConfigResource> = all.filter(has_key).collect();
    if resources.is_empty() {
        return Err(ResetError::NotSet(key.to_owned()));
    }
    let operation = ConfigOperation::Delete;
    let deletion = || vec![ConfigChange { key: key.to_owned(), operation, value: None }];
    let named = resources.into_iter().map(|resource| (resource, deletion())).collect();
    let request = IncrementalAlterConfigs { resources: named, validate_only: false };
    match quorum.propose(Request::IncrementalAlterConfigs(request)).await? {
        Response::AlterConfigs(answers) => {
            let mut names = Vec::with_capacity(answers.len());
            for (resource, answer) in answers {
                answer.map_err(ResetError::Refused)?;
                names.push(match resource {
                    ConfigResource::Broker(id) => id.to_string(),
                    _ => String::new(),
                });
            }
            Ok(names)
        }
        other => unreachable!("the answer to another request: {other:?}"),
    }
}

/// Reads what [`regenerate`] would do with the metadata of the stopped broker `node`. As [`wanted_partitions`].
pub fn plan_regeneration(
    disk: &Arc<dyn Disk>,
    metadata_dir: &Path,
    cluster_id: &str,
    node: BrokerId,
) -> io::Result<Regeneration> {
    quorum::plan_regeneration(disk, &metadata_dir.join(METADATA_DIR), cluster_id, node)
}

/// Why no new quorum was made.
#[derive(Debug, thiserror::Error)]
pub enum RegenerateError {
    /// The metadata cannot be read or written.
    #[error(transparent)]
    Folder(#[from] io::Error),
    /// The new quorum cannot decide.
    #[error(transparent)]
    Quorum(#[from] QuorumError),
}

/// Makes a new quorum out of the metadata of the stopped broker `node`, which votes alone at its next start; the brokers `voters`
/// vote once all of them have the metadata. Fences every broker: all of them are stopped, and fenced together each complete
/// replica stays complete. Must be called within a tokio runtime. Fails where a start would.
///
/// After a failure or a crash in between, a start refuses the folder until this function has succeeded.
pub async fn regenerate(
    disk: &Arc<dyn Disk>,
    metadata_dir: &Path,
    cluster_id: &str,
    node: BrokerId,
    voters: &BTreeSet<BrokerId>,
) -> Result<Regeneration, RegenerateError> {
    let (dir, lot) = (metadata_dir.join(METADATA_DIR), fastrand::u32(1..));
    quorum::plan_regeneration(disk, &dir, cluster_id, node)?;
    quorum::begin_regeneration(&**disk, &dir)?;
    let made = quorum::regenerate(disk, &dir, cluster_id, node, lot, voters).await?;
    let mut config = QuorumConfig::new(node, cluster_id, dir.clone());
    config.controller.producer_ids_from = i64::from(made.generation) * PRODUCER_IDS_OF_A_GENERATION;
    config.controller.generation = made.generation;
    let quorum = Quorum::start(config, Arc::clone(disk), Arc::new(NoTransport)).await?;
    let prepared = prepare(&quorum).await;
    quorum.stop().await?;
    prepared?;
    quorum::end_regeneration(&**disk, &dir)?;
    Ok(made)
}

/// Producer ids of one generation of the quorum, far more than any quorum allocates. The survivor does not know the blocks
/// that the lost majority allocated, and a broker takes the batches of an id that is allocated twice for repetitions: it
/// acknowledges them and writes nothing.
const PRODUCER_IDS_OF_A_GENERATION: i64 = 1 << 48;

async fn prepare(quorum: &Quorum) -> Result<(), QuorumError> {
    skip_producer_ids(quorum).await?;
    fence_all(quorum).await
}

/// Allocates a block of the generation, which nothing uses: all later blocks are behind it.
async fn skip_producer_ids(quorum: &Quorum) -> Result<(), QuorumError> {
    // Without a broker no block was ever allocated.
    let known =
        quorum.image().brokers().next().map(|it| BrokerRef { broker: it.id, epoch: it.epoch });
    let Some(known) = known else { return Ok(()) };
    match quorum.propose(Request::AllocateProducerIds(known)).await? {
        Response::AllocateProducerIds(Ok(_)) => Ok(()),
        Response::AllocateProducerIds(Err(refusal)) => {
            Err(QuorumError::Stopped(format!("no producer ids: {}", refusal.message)))
        }
        other => unreachable!("the answer to another request: {other:?}"),
    }
}

async fn fence_all(quorum: &Quorum) -> Result<(), QuorumError> {
    let image = quorum.image();
    for known in image.brokers().filter(|known| !known.fenced) {
        let who = BrokerRef { broker: known.id, epoch: known.epoch };
        quorum.propose(Request::FenceBroker(who)).await?;
    }
    loop {
        match quorum.propose(Request::Sweep).await? {
            Response::Sweep(swept) if swept.more => {}
            Response::Sweep(_) => return Ok(()),
            other => unreachable!("the answer to another request: {other:?}"),
        }
    }
}

/// The facts that place groups on the partitions of [`OFFSETS_TOPIC`].
#[derive(Clone, Copy, Debug)]
pub struct OffsetsTopic {
    /// The cluster's formula.
    pub placement: GroupPlacement,
    /// Number of partitions.
    pub partitions: i32,
}

/// How the cluster places groups, by the metadata that the broker `node` has; `None` before the topic exists.
/// As [`wanted_partitions`].
pub fn offsets_topic(
    disk: &Arc<dyn Disk>,
    metadata_dir: &Path,
    cluster_id: &str,
    node: BrokerId,
) -> io::Result<Option<OffsetsTopic>> {
    let dir = metadata_dir.join(METADATA_DIR);
    let image = quorum::read_stopped(disk, &dir, cluster_id, node)?;
    let placement = image.group_placement();
    Ok(image.topic(OFFSETS_TOPIC).map(|topic| {
        let partitions = topic.partition_count() as i32;
        OffsetsTopic { placement, partitions }
    }))
}

/// The group that a record of [`OFFSETS_TOPIC`] belongs to, by its key. Records of all kinds of groups have the group's
/// name first. `None`: the key is malformed.
pub fn group_of_record(key: &[u8]) -> Option<String> {
    let length = i16::from_be_bytes(key.get(2..4)?.try_into().ok()?);
    let name = key.get(4..)?.get(..usize::try_from(length).ok()?)?;
    String::from_utf8(name.to_vec()).ok()
}

/// The value that a record of another cluster's groups gets here; `None` if it stays as it is.
///
/// Ids of topics and leader epochs mean nothing in another cluster: by a foreign id an offset would be
/// hidden, and by a larger epoch a client would take this cluster's metadata for old. Offsets expire by
/// the time since they were stored, or since their group has no members: that begins anew at `now`.
pub fn adopted_group_record(
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    now: Timestamp,
) -> Option<Vec<u8>> {
    let record = Record::decode(key?, value).ok()??;
    let changed = match record {
        Record::OffsetCommit { group, partition, value: Some(mut value) } => {
            value.topic_id = TopicId::ZERO;
            value.leader_epoch = LeaderEpoch::NONE;
            value.commit_timestamp = now;
            Record::OffsetCommit { group, partition, value: Some(value) }
        }
        Record::GroupMetadata { group, value: Some(mut value) } => {
            value.state_timestamp = now;
            Record::GroupMetadata { group, value: Some(value) }
        }
        _ => return None,
    };
    changed.encode().value
}
