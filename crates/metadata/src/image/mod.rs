//! The image: all facts as of an offset, as one immutable whole made of small ones.
//!
//! Copies share what they have in common, so a draft of the whole cluster costs next to nothing.
//! [`ClusterImage::replay`] is the only thing that changes one. It decides nothing: that is
//! [`crate::decide`]. It knows no clock and no file.

mod broker;
mod replay;
mod topic;

pub use broker::BrokerImage;
pub use replay::Contradiction;
pub use topic::{PartitionImage, TopicImage, is_internal};

use crate::decide::RELIEF_LEVEL;
use crate::record::{COPIES_LEVEL, ConfigResource, DirectoryMark, MetadataRecord};
use crate::shared_map::SharedMap;
use model::level::JOURNAL_LEVEL_MIN;
use model::partitioner::GroupPlacement;
use model::{BrokerEpoch, BrokerId, PartitionIndex, ProducerId, TopicId, Uuid};
use std::collections::BTreeMap;
use std::sync::Arc;

pub use model::level::{HIGHWATER_JOURNAL, HIGHWATER_VERSION};

/// The values that one resource has of its own.
pub type ConfigMap = BTreeMap<String, String>;

/// All facts. Cheap to copy; two images made of the same facts are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterImage {
    cluster_id: Option<Arc<str>>,
    features: BTreeMap<String, i16>,
    group_placement: GroupPlacement,
    /// By name. Invariant: the same topics as in `names`.
    topics: SharedMap<Arc<str>, Arc<TopicImage>>,
    /// Names by id.
    names: SharedMap<TopicId, Arc<str>>,
    /// A topic by its name with every `.` made `_`, for names that have either.
    folded_names: SharedMap<Arc<str>, Arc<str>>,
    /// Invariant: the sum over all topics.
    partition_count: usize,
    brokers: BTreeMap<BrokerId, Arc<BrokerImage>>,
    /// Recorded marks of log directories. Invariant: only directories with which a broker is registered.
    marks: BTreeMap<(BrokerId, Uuid), u64>,
    /// Invariant: no resource has an empty map.
    configs: SharedMap<ConfigResource, Arc<ConfigMap>>,
    /// Every id below is allocated. Invariant: never falls.
    next_producer_id: i64,
    /// Larger than every epoch given. Invariant: never falls.
    next_broker_epoch: i64,
}

impl ClusterImage {
    /// The cluster's id, once it exists.
    pub fn cluster_id(&self) -> Option<&Arc<str>> {
        self.cluster_id.as_ref()
    }

    /// Finalized features and their levels.
    pub fn features(&self) -> &BTreeMap<String, i16> {
        &self.features
    }

    /// The finalized level of [`HIGHWATER_VERSION`]; 0 where there is none.
    pub fn highwater_version(&self) -> i16 {
        self.features.get(HIGHWATER_VERSION).copied().unwrap_or(0)
    }

    /// The formula that places groups on the partitions of `__consumer_offsets`.
    pub fn group_placement(&self) -> GroupPlacement {
        self.group_placement
    }

    /// Finalized level of log directories' journals; 1 where the cluster has none.
    pub fn journal_level(&self) -> u8 {
        let level = self.features.get(HIGHWATER_JOURNAL).copied().unwrap_or(0);
        u8::try_from(level).unwrap_or(u8::MAX).max(JOURNAL_LEVEL_MIN)
    }

    /// Whether it is written down which replicas their brokers cannot serve (KIP-858): from level 2 on.
    pub fn has_offline_replicas(&self) -> bool {
        self.highwater_version() >= 2
    }

    /// Whether replicas that were out of reach are recorded when their brokers have made them again: from level 4 on.
    pub fn has_returning_replicas(&self) -> bool {
        self.highwater_version() >= COPIES_LEVEL
    }

    /// Whether the cluster protects itself against log directories that were put back from copies: from level 4 on.
    pub fn detects_copies(&self) -> bool {
        self.highwater_version() >= COPIES_LEVEL
    }

    /// Whether brokers request relief of replicas in sick log directories: from level 4 on.
    pub fn relieves_sick_disks(&self) -> bool {
        self.highwater_version() >= RELIEF_LEVEL
    }

    /// Whether partitions have eligible leader replicas (KIP-966): from level 1 on.
    pub fn has_eligible_replicas(&self) -> bool {
        self.highwater_version() >= 1
    }

    /// A topic by name.
    pub fn topic(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.topics.get(name)
    }

    /// A topic by id.
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.topics.get(self.names.get(&id)?)
    }

    /// A partition by name.
    pub fn partition(&self, topic: &str, partition: PartitionIndex) -> Option<&PartitionImage> {
        self.topic(topic)?.partition(partition)
    }

    /// All topics in the order of their names.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.topics.values()
    }

    /// How many topics there are.
    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// How many partitions all topics have.
    pub fn partition_count(&self) -> usize {
        self.partition_count
    }

    /// A topic that a name collides with: equal but for `.` and `_`, and not the same.
    pub fn colliding_topic(&self, name: &str) -> Option<&Arc<str>> {
        self.folded_names.get(fold(name).as_str()).filter(|other| ***other != *name)
    }

    /// A registered broker.
    pub fn broker(&self, id: BrokerId) -> Option<&Arc<BrokerImage>> {
        self.brokers.get(&id)
    }

    /// All registered brokers in the order of their ids.
    pub fn brokers(&self) -> impl Iterator<Item = &Arc<BrokerImage>> {
        self.brokers.values()
    }

    /// The recorded mark of a broker's log directory; 0 for none. A directory with a smaller mark is a copy.
    pub fn directory_mark(&self, broker: BrokerId, directory: Uuid) -> u64 {
        self.marks.get(&(broker, directory)).copied().unwrap_or(0)
    }

    /// Whether a broker is registered and serves.
    pub fn is_active(&self, id: BrokerId) -> bool {
        self.broker(id).is_some_and(|broker| !broker.fenced)
    }

    /// Whether a broker may be made leader and may join ISRs (KIP-841): it serves, and is not about to
    /// stop.
    pub fn is_eligible(&self, id: BrokerId) -> bool {
        let eligible = |broker: &Arc<BrokerImage>| !broker.fenced && !broker.in_controlled_shutdown;
        self.broker(id).is_some_and(eligible)
    }

    /// Whether a broker cannot serve its replica of a partition, though the broker itself may serve (KIP-858).
    pub fn is_offline(&self, id: BrokerId, topic: TopicId, partition: PartitionIndex) -> bool {
        self.broker(id).is_some_and(|broker| broker.is_offline(topic, partition))
    }

    /// Whether a replica may be made leader and may join the ISR, as far as its broker goes: that one may, and can serve
    /// this replica.
    pub fn is_eligible_replica(
        &self,
        id: BrokerId,
        topic: TopicId,
        partition: PartitionIndex,
    ) -> bool {
        self.is_eligible(id) && !self.is_offline(id, topic, partition)
    }

    /// The values that a resource has of its own.
    pub fn configs(&self, resource: &ConfigResource) -> Option<&Arc<ConfigMap>> {
        self.configs.get(resource)
    }

    /// One value that a resource has of its own.
    pub fn config(&self, resource: &ConfigResource, key: &str) -> Option<&str> {
        self.configs(resource)?.get(key).map(String::as_str)
    }

    /// All resources that have values of their own.
    pub fn configured_resources(&self) -> impl Iterator<Item = &ConfigResource> {
        self.configs.iter().map(|(resource, _)| resource)
    }

    /// The first producer id that no broker has.
    pub fn next_producer_id(&self) -> ProducerId {
        ProducerId(self.next_producer_id)
    }

    /// The epoch that the next registration is given.
    pub fn next_broker_epoch(&self) -> BrokerEpoch {
        BrokerEpoch(self.next_broker_epoch)
    }

    /// The facts that make this image, in an order in which an empty one can replay them.
    pub fn to_records(&self) -> Vec<MetadataRecord> {
        let mut records = Vec::new();
        if let Some(cluster_id) = &self.cluster_id {
            records.push(MetadataRecord::ClusterCreated { cluster_id: cluster_id.to_string() });
        }
        for (name, level) in &self.features {
            records.push(MetadataRecord::FeatureLevelSet { name: name.clone(), level: *level });
        }
        if self.group_placement != GroupPlacement::default() {
            let placement = self.group_placement;
            records.push(MetadataRecord::GroupPlacementSet { placement });
        }
        self.counters_to_records(&mut records);
        records.extend(self.brokers().flat_map(|broker| broker.to_records()));
        let mark = |((broker, directory), mark): (&(BrokerId, Uuid), &u64)| DirectoryMark {
            broker: *broker,
            directory: *directory,
            mark: *mark,
        };
        let marks: Vec<DirectoryMark> = self.marks.iter().map(mark).collect();
        if !marks.is_empty() {
            records.push(MetadataRecord::DirectoryMarksRaised { marks });
        }
        records.extend(self.topics().flat_map(|topic| topic.to_records()));
        self.configs_to_records(&mut records);
        records
    }

    /// Counters may lie ahead of what still exists: the last broker may have left.
    fn counters_to_records(&self, records: &mut Vec<MetadataRecord>) {
        if self.next_broker_epoch > 0 {
            let epoch = BrokerEpoch(self.next_broker_epoch - 1);
            records.push(MetadataRecord::BrokerEpochUsed { epoch });
        }
        if self.next_producer_id > 0 {
            records.push(MetadataRecord::ProducerIdsAllocated {
                broker: BrokerId::NONE,
                first: ProducerId(self.next_producer_id),
                count: 0,
            });
        }
    }

    fn configs_to_records(&self, records: &mut Vec<MetadataRecord>) {
        for (resource, values) in self.configs.iter() {
            records.extend(values.iter().map(|(key, value)| MetadataRecord::ConfigSet {
                resource: resource.clone(),
                key: key.clone(),
                value: value.clone(),
            }));
        }
    }

    /// A number that two images share if and only if (but for chance) they hold the same facts:
    /// FNV-1a over the lines of [`ClusterImage::to_records`]. The same on every machine.
    pub fn digest(&self) -> u64 {
        let mut lines = Vec::new();
        MetadataRecord::encode_lines(&self.to_records(), &mut lines);
        digest_of_lines(&lines)
    }
}

/// The digest of the image that wrote these lines: that of a newer release may hold fields which this release skips.
pub fn digest_of_lines(lines: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    lines.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// A name as metrics see it: `.` and `_` are one.
fn fold(name: &str) -> String {
    name.replace('.', "_")
}
