//! What can be known of a broker that is stopped, for the tools that work on its files: which
//! partitions the metadata wants, and what the records of another cluster's groups become here.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use coordinator::records::Record;
use model::partitioner::GroupPlacement;
use model::{BrokerId, LeaderEpoch, Timestamp, TopicId, TopicPartition};
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
