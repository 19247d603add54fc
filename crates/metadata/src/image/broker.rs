//! One registered broker.

use crate::record::{BrokerRecord, BrokerSoftware, Endpoint, MetadataRecord, TopicReplicas};
use model::{BrokerEpoch, BrokerId, PartitionIndex, TopicId, Uuid};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of a registered broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerImage {
    /// Its `node.id`.
    pub id: BrokerId,
    /// Which process it is.
    pub incarnation: Uuid,
    /// Which registration it is.
    pub epoch: BrokerEpoch,
    /// Where it is reached.
    pub endpoints: Vec<Endpoint>,
    /// Its rack.
    pub rack: Option<String>,
    /// The ids of its log directories.
    pub log_dirs: Vec<Uuid>,
    /// Registered but not serving.
    pub fenced: bool,
    /// About to stop (KIP-841): it leads nothing new and joins no ISR, until it registers again.
    pub in_controlled_shutdown: bool,
    /// The broker's program; `None` for releases before 0.1.0.
    pub software: Option<BrokerSoftware>,
    /// Replicas that its process cannot serve (KIP-858), until it registers as another one.
    /// Invariant: no topic without a partition; only topics that exist.
    pub(crate) offline: BTreeMap<TopicId, BTreeSet<PartitionIndex>>,
}

impl BrokerImage {
    pub(super) fn from_record(record: &BrokerRecord) -> BrokerImage {
        BrokerImage {
            id: record.broker,
            incarnation: record.incarnation,
            epoch: record.epoch,
            endpoints: record.endpoints.clone(),
            rack: record.rack.clone(),
            log_dirs: record.log_dirs.clone(),
            fenced: record.fenced,
            in_controlled_shutdown: false,
            software: record.software.clone(),
            offline: BTreeMap::new(),
        }
    }

    pub(super) fn to_records(&self) -> impl Iterator<Item = MetadataRecord> + use<> {
        let stopping = MetadataRecord::ControlledShutdownBegun { broker: self.id };
        let stopping = self.in_controlled_shutdown.then_some(stopping);
        std::iter::once(self.to_record()).chain(stopping).chain(self.offline_record())
    }

    fn offline_record(&self) -> Option<MetadataRecord> {
        let of_topic = |(id, partitions): (&TopicId, &BTreeSet<PartitionIndex>)| TopicReplicas {
            topic_id: *id,
            partitions: partitions.iter().copied().collect(),
        };
        let replicas: Vec<TopicReplicas> = self.offline.iter().map(of_topic).collect();
        let broker = self.id;
        (!replicas.is_empty()).then_some(MetadataRecord::ReplicasOffline { broker, replicas })
    }

    fn to_record(&self) -> MetadataRecord {
        MetadataRecord::BrokerRegistered(BrokerRecord {
            broker: self.id,
            incarnation: self.incarnation,
            epoch: self.epoch,
            endpoints: self.endpoints.clone(),
            rack: self.rack.clone(),
            log_dirs: self.log_dirs.clone(),
            fenced: self.fenced,
            software: self.software.clone(),
        })
    }

    /// Whether it has one of these log directories. Who has one of them today holds its lock, so that
    /// no other process has.
    pub fn shares_log_dir(&self, log_dirs: &[Uuid]) -> bool {
        self.log_dirs.iter().any(|dir| log_dirs.contains(dir))
    }

    /// Whether its process cannot serve its replica of a partition (KIP-858).
    pub fn is_offline(&self, topic: TopicId, partition: PartitionIndex) -> bool {
        self.offline.get(&topic).is_some_and(|partitions| partitions.contains(&partition))
    }

    /// Replicas that its process cannot serve, by topic id.
    pub fn offline_replicas(&self) -> impl Iterator<Item = (TopicId, PartitionIndex)> {
        let topics = self.offline.iter();
        topics.flat_map(|(id, partitions)| partitions.iter().map(|at| (*id, *at)))
    }

    /// Where it is reached on a listener.
    pub fn endpoint(&self, listener: &str) -> Option<&Endpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.listener == listener)
    }
}
