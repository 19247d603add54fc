//! The facts that metadata is made of, and how one fact is written: one JSON object, one line.
//!
//! The object has one key, the record's type, whose value are its fields. Records say what *is* from
//! now on, never what to do: deciding may change between versions, replaying must not. A field that
//! a reader does not know is skipped, a field that is absent has its default; a *type* that a reader
//! does not know is an error, because skipping a fact would make two nodes disagree. A change that
//! old readers must not misread is therefore another type (`topic-created-2`), and a type that came
//! later is written only where `highwater.version` is finalized at its level: by then every broker reads
//! it. A state that the first form of a type can say is written in the first form.

use crate::json;
use model::level::{HIGHWATER_VERSION, HIGHWATER_VERSION_MAX};
use model::partitioner::GroupPlacement;
use model::{
    BrokerEpoch, BrokerId, LeaderEpoch, PartitionIndex, ProducerId, Timestamp, TopicId, Uuid,
    later_release,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The level of `highwater.version` with which a new cluster records Kafka's formula for groups.
pub const GROUP_PLACEMENT_LEVEL: i16 = 4;

/// What a configuration belongs to. Ordered, so that a resource's keys lie together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConfigResource {
    /// A topic, by name.
    Topic(String),
    /// One broker.
    Broker(#[serde(with = "json::broker_id")] BrokerId),
    /// Every broker that has no value of its own (the empty broker name of the protocol).
    ClusterDefault,
    /// A consumer group (KIP-848).
    Group(String),
    /// A subscription to client metrics (KIP-714).
    ClientMetrics(String),
}

/// All of one partition's replicated state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRecord {
    /// Its number within the topic.
    #[serde(with = "json::partition_index")]
    pub partition: PartitionIndex,
    /// Assigned replicas, the preferred leader first.
    #[serde(with = "json::broker_ids")]
    pub replicas: Vec<BrokerId>,
    /// In-sync replicas. Invariant: a subset of `replicas`; empty only in the second form, while
    /// nobody leads.
    #[serde(with = "json::broker_ids")]
    pub isr: Vec<BrokerId>,
    /// Eligible leader replicas (KIP-966): out of sync, but with everything below the high watermark,
    /// because it has not moved since they left. Invariant: a subset of `replicas`, none of `isr`.
    #[serde(with = "json::broker_ids", default, skip_serializing_if = "Vec::is_empty")]
    pub elr: Vec<BrokerId>,
    /// Members of `elr` whose broker registered again, after a stop that was not clean, since the replica was last in sync. The log
    /// directory may have been put back from a copy, so log ends decide whether such a replica is elected. Level 4.
    #[serde(with = "json::broker_ids", default, skip_serializing_if = "Vec::is_empty")]
    pub restarted: Vec<BrokerId>,
    /// The leader, or [`BrokerId::NONE`]. Invariant: in `isr` if there is one.
    #[serde(with = "json::broker_id")]
    pub leader: BrokerId,
    /// The last leader (KIP-966), or the replica that was the last to be complete; or [`BrokerId::NONE`]. Invariant:
    /// [`BrokerId::NONE`] beside a leader.
    #[serde(with = "json::broker_id", default = "nobody", skip_serializing_if = "is_nobody")]
    pub last_known_leader: BrokerId,
    /// The leader's epoch. Invariant: never falls.
    #[serde(with = "json::leader_epoch")]
    pub leader_epoch: LeaderEpoch,
    /// Rises with every change of this record (KIP-497).
    pub partition_epoch: i32,
    /// Whether the leader was elected uncleanly and has not caught its ISR up yet (KIP-704).
    #[serde(default, skip_serializing_if = "is_false")]
    pub recovering: bool,
    /// Whether everything below the high watermark is synced on every replica of ISR and ELR, so that
    /// a broker that was not stopped cleanly still has it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub durable: bool,
}

impl PartitionRecord {
    /// Whether the first form of the types that carry it can say all of it.
    pub(crate) fn fits_first_form(&self) -> bool {
        let eligibility = self.elr.is_empty() && is_nobody(&self.last_known_leader);
        eligibility && !self.durable && !self.isr.is_empty()
    }
}

/// Where a broker is reached for one listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The listener's name.
    pub listener: String,
    /// The host that clients are told.
    pub host: String,
    /// The port that clients are told.
    pub port: u16,
    /// `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.
    pub security_protocol: String,
}

/// One incarnation of a broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerRecord {
    /// Its `node.id`.
    #[serde(with = "json::broker_id")]
    pub broker: BrokerId,
    /// Random, made by the process when it starts: tells two processes with one id apart.
    #[serde(with = "json::uuid")]
    pub incarnation: Uuid,
    /// Given at registration. Invariant: larger than every epoch given before.
    #[serde(with = "json::broker_epoch")]
    pub epoch: BrokerEpoch,
    /// Where it is reached.
    pub endpoints: Vec<Endpoint>,
    /// Its `broker.rack`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// The ids of its log directories (KIP-858).
    #[serde(with = "json::uuids", default)]
    pub log_dirs: Vec<Uuid>,
    /// Registered but not serving: leads nothing, is in no ISR but as the last member.
    pub fenced: bool,
    /// The broker's program; `None` for programs before release 0.1.0, the first that writes the field.
    /// Only registrations and changes of features depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub software: Option<BrokerSoftware>,
}

/// The levels of one feature that a broker reads and writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureRange {
    /// The feature, `highwater.version` for example.
    pub name: String,
    /// Lowest level.
    pub min: i16,
    /// Highest level.
    pub max: i16,
}

/// The program that a broker runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerSoftware {
    /// Release, `0.1.0` for example.
    pub release: String,
    /// Levels of each feature; a feature that is absent is unknown to the release.
    #[serde(default)]
    pub levels: Vec<FeatureRange>,
}

impl BrokerSoftware {
    /// Range of a feature; `None` if the release does not know the feature.
    pub fn range(&self, name: &str) -> Option<&FeatureRange> {
        self.levels.iter().find(|range| range.name == name)
    }
}

/// Replicas of one topic on one broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicReplicas {
    /// The topic.
    #[serde(with = "json::uuid")]
    pub topic_id: TopicId,
    /// Their partitions.
    #[serde(with = "json::partition_indexes")]
    pub partitions: Vec<PartitionIndex>,
}

/// Mark of one log directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryMark {
    /// The broker.
    #[serde(with = "json::broker_id")]
    pub broker: BrokerId,
    /// Id of the log directory.
    #[serde(with = "json::uuid")]
    pub directory: Uuid,
    /// The mark. Invariant: rises.
    pub mark: u64,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn nobody() -> BrokerId {
    BrokerId::NONE
}

fn is_nobody(id: &BrokerId) -> bool {
    *id == BrokerId::NONE
}

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetadataRecord {
    /// The cluster exists and is called so. Once, and first.
    ClusterCreated {
        /// `cluster.id`: any text.
        cluster_id: String,
    },
    /// A feature is finalized at a level (KIP-584); 0 removes it.
    FeatureLevelSet {
        /// The feature's name.
        name: String,
        /// Its level.
        level: i16,
    },
    /// The formula that places groups on the partitions of `__consumer_offsets`. Absent: the mask.
    GroupPlacementSet {
        /// The formula.
        #[serde(with = "json::group_placement")]
        placement: GroupPlacement,
    },
    /// A broker registered, perhaps again.
    BrokerRegistered(BrokerRecord),
    /// Every broker epoch up to this one was given to a broker. Only snapshots carry it, because
    /// the broker that had it may be gone.
    BrokerEpochUsed {
        /// The largest epoch given.
        #[serde(with = "json::broker_epoch")]
        epoch: BrokerEpoch,
    },
    /// A registered broker no longer serves.
    BrokerFenced {
        /// Which.
        #[serde(with = "json::broker_id")]
        broker: BrokerId,
    },
    /// A registered broker serves.
    BrokerUnfenced {
        /// Which.
        #[serde(with = "json::broker_id")]
        broker: BrokerId,
    },
    /// A registered broker is about to stop (KIP-841): it leads nothing new and joins no ISR, until it
    /// registers again. Level 1.
    ControlledShutdownBegun {
        /// Which.
        #[serde(with = "json::broker_id")]
        broker: BrokerId,
    },
    /// The present process of a broker cannot serve these replicas of its own: their log directory failed, or they cannot
    /// be opened (KIP-858). None of them leads or joins an ISR until the broker registers as another process. Level 2.
    ReplicasOffline {
        /// Which broker.
        #[serde(with = "json::broker_id")]
        broker: BrokerId,
        /// Which replicas, by topic.
        replicas: Vec<TopicReplicas>,
    },
    /// The present process of a broker made these replicas again, empty, in another log directory: they may catch up and join
    /// ISRs. Level 4.
    ReplicasOnline {
        /// The broker.
        #[serde(with = "json::broker_id")]
        broker: BrokerId,
        /// The replicas, by topic.
        replicas: Vec<TopicReplicas>,
    },
    /// Marks that log directories have in their journals, durably, as their brokers reported them. A directory whose mark is
    /// below the recorded one was put back from a copy. Level 4.
    DirectoryMarksRaised {
        /// The marks that are news.
        marks: Vec<DirectoryMark>,
    },
    /// A broker left for good.
    BrokerUnregistered {
        /// Which.
        #[serde(with = "json::broker_id")]
        broker: BrokerId,
    },
    /// A topic exists, with its partitions 0, 1, … in order.
    TopicCreated {
        /// Its id, never used before.
        #[serde(with = "json::uuid")]
        topic_id: TopicId,
        /// Its name, free until now.
        name: String,
        /// When it was decided, by the clock of the controller.
        #[serde(with = "json::timestamp")]
        created: Timestamp,
        /// Every partition of it.
        partitions: Vec<PartitionRecord>,
    },
    /// The same with eligible replicas (KIP-966). Level 1.
    #[serde(rename = "topic-created-2")]
    TopicCreated2 {
        /// Its id, never used before.
        #[serde(with = "json::uuid")]
        topic_id: TopicId,
        /// Its name, free until now.
        name: String,
        /// When it was decided, by the clock of the controller.
        #[serde(with = "json::timestamp")]
        created: Timestamp,
        /// Every partition of it.
        partitions: Vec<PartitionRecord>,
    },
    /// A topic has one more partition, the next in number.
    PartitionAdded {
        /// The topic.
        #[serde(with = "json::uuid")]
        topic_id: TopicId,
        /// The partition.
        state: PartitionRecord,
    },
    /// The same with eligible replicas (KIP-966). Level 1.
    #[serde(rename = "partition-added-2")]
    PartitionAdded2 {
        /// The topic.
        #[serde(with = "json::uuid")]
        topic_id: TopicId,
        /// The partition.
        state: PartitionRecord,
    },
    /// A partition's replicas, ISR or leader changed; all of its state is said again.
    PartitionChanged {
        /// The topic.
        #[serde(with = "json::uuid")]
        topic_id: TopicId,
        /// The partition.
        state: PartitionRecord,
    },
    /// The same with eligible replicas (KIP-966). Level 1.
    #[serde(rename = "partition-changed-2")]
    PartitionChanged2 {
        /// The topic.
        #[serde(with = "json::uuid")]
        topic_id: TopicId,
        /// The partition.
        state: PartitionRecord,
    },
    /// A smaller ISR suffices from now on (KAFKA-16540): where it has so many members, or all replicas,
    /// nobody outside of it is eligible. Each partition that changes is in its next partition epoch.
    /// Level 1.
    ElrCleared {
        /// Of these topics.
        #[serde(with = "json::uuids")]
        topics: Vec<TopicId>,
        /// Members of an ISR that suffice.
        members: u32,
    },
    /// What is acknowledged may be in memory only from now on: no partition is durable, and each is in
    /// its next partition epoch, so that a leader that knows nothing of it yet is not believed. Level 1.
    DurabilityLost {
        /// Of these topics.
        #[serde(with = "json::uuids")]
        topics: Vec<TopicId>,
    },
    /// A follower may truncate its log below the highest committed offset that it has known, if it knew that offset in an
    /// earlier leader epoch than this one: the leader was elected uncleanly, or a person allows the loss. Level 4.
    TruncationAllowed {
        /// The topic.
        #[serde(with = "json::uuid")]
        topic_id: TopicId,
        /// The partition.
        #[serde(with = "json::partition_index")]
        partition: PartitionIndex,
        /// The leader epoch that begins with the truncation.
        #[serde(with = "json::leader_epoch")]
        leader_epoch: LeaderEpoch,
    },
    /// A replica's log has records of a leader epoch that the metadata does not have: a lost majority of the quorum decided it. Level 4.
    LeaderEpochFound {
        /// The topic.
        #[serde(with = "json::uuid")]
        topic_id: TopicId,
        /// The partition.
        #[serde(with = "json::partition_index")]
        partition: PartitionIndex,
        /// The greatest leader epoch that was found.
        #[serde(with = "json::leader_epoch")]
        leader_epoch: LeaderEpoch,
    },
    /// A topic, its partitions and its configuration are gone.
    TopicDeleted {
        /// Which.
        #[serde(with = "json::uuid")]
        topic_id: TopicId,
    },
    /// A configuration has a value.
    ConfigSet {
        /// Whose.
        resource: ConfigResource,
        /// The key.
        key: String,
        /// The value as the user wrote it.
        value: String,
    },
    /// A configuration has no value of its own any more.
    ConfigRemoved {
        /// Whose.
        resource: ConfigResource,
        /// The key.
        key: String,
    },
    /// Producer ids `first .. first + count` belong to a broker.
    ProducerIdsAllocated {
        /// To whom.
        #[serde(with = "json::broker_id")]
        broker: BrokerId,
        /// The first id.
        #[serde(with = "json::producer_id")]
        first: ProducerId,
        /// How many.
        count: i32,
    },
}

/// The level of `highwater.version` from which on a cluster protects itself against log directories that were put back from
/// copies.
pub const COPIES_LEVEL: i16 = 4;

/// The record types that this code reads, as their keys are spelled.
const TYPES: [&str; 26] = [
    "cluster-created",
    "feature-level-set",
    "group-placement-set",
    "broker-registered",
    "broker-epoch-used",
    "broker-fenced",
    "broker-unfenced",
    "controlled-shutdown-begun",
    "replicas-offline",
    "replicas-online",
    "directory-marks-raised",
    "broker-unregistered",
    "topic-created",
    "topic-created-2",
    "partition-added",
    "partition-added-2",
    "partition-changed",
    "partition-changed-2",
    "elr-cleared",
    "durability-lost",
    "truncation-allowed",
    "leader-epoch-found",
    "topic-deleted",
    "config-set",
    "config-removed",
    "producer-ids-allocated",
];

/// Why bytes are not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A type that this version does not know: a newer one wrote it.
    #[error("record type {0:?} is unknown: a newer version wrote it, start that version")]
    UnknownType(String),
    /// No record at all.
    #[error("not a metadata record: {0}")]
    Malformed(String),
}

impl MetadataRecord {
    /// A topic with its partitions, in the form that can say them.
    pub(crate) fn topic_created(
        topic_id: TopicId,
        name: String,
        created: Timestamp,
        partitions: Vec<PartitionRecord>,
    ) -> MetadataRecord {
        if partitions.iter().all(PartitionRecord::fits_first_form) {
            return MetadataRecord::TopicCreated { topic_id, name, created, partitions };
        }
        MetadataRecord::TopicCreated2 { topic_id, name, created, partitions }
    }

    /// One more partition, in the form that can say it.
    pub(crate) fn partition_added(topic_id: TopicId, state: PartitionRecord) -> MetadataRecord {
        match state.fits_first_form() {
            true => MetadataRecord::PartitionAdded { topic_id, state },
            false => MetadataRecord::PartitionAdded2 { topic_id, state },
        }
    }

    /// A partition's new state, in the form that can say it.
    pub(crate) fn partition_changed(topic_id: TopicId, state: PartitionRecord) -> MetadataRecord {
        match state.fits_first_form() {
            true => MetadataRecord::PartitionChanged { topic_id, state },
            false => MetadataRecord::PartitionChanged2 { topic_id, state },
        }
    }

    /// The level of `highwater.version` from which on records of this type are written; 0: always.
    pub fn level(&self) -> i16 {
        use MetadataRecord::*;
        match self {
            TopicCreated2 { partitions, .. }
                if partitions.iter().any(|state| !state.restarted.is_empty()) =>
            {
                COPIES_LEVEL
            }
            PartitionAdded2 { state, .. } | PartitionChanged2 { state, .. }
                if !state.restarted.is_empty() =>
            {
                COPIES_LEVEL
            }
            TopicCreated2 { .. }
            | PartitionAdded2 { .. }
            | PartitionChanged2 { .. }
            | ControlledShutdownBegun { .. }
            | ElrCleared { .. }
            | DurabilityLost { .. } => 1,
            ReplicasOffline { .. } => 2,
            GroupPlacementSet { .. } => GROUP_PLACEMENT_LEVEL,
            TruncationAllowed { .. }
            | LeaderEpochFound { .. }
            | DirectoryMarksRaised { .. }
            | ReplicasOnline { .. } => COPIES_LEVEL,
            _ => 0,
        }
    }

    /// Appends the record as one JSON object, without a line break.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        serde_json::to_writer(&mut *out, self).expect("writing JSON to memory cannot fail");
        if later_release::is_played() {
            add_later_field(out, begin);
        }
    }

    /// Reads one JSON object.
    pub fn decode(bytes: &[u8]) -> Result<MetadataRecord, DecodeError> {
        serde_json::from_slice(bytes).map_err(|error| explain(bytes, &error))
    }

    /// Appends records, one a line, each line ended.
    pub fn encode_lines(records: &[MetadataRecord], out: &mut Vec<u8>) {
        for record in records {
            record.encode(out);
            out.push(b'\n');
        }
        if later_release::is_played() && records.iter().any(MetadataRecord::raises_to_later) {
            out.extend_from_slice(LATER_RECORD);
        }
    }

    /// Whether the record finalizes a level above those of this release.
    fn raises_to_later(&self) -> bool {
        matches!(self, MetadataRecord::FeatureLevelSet { name, level }
            if name == HIGHWATER_VERSION && *level > HIGHWATER_VERSION_MAX)
    }

    /// Reads what [`MetadataRecord::encode_lines`] wrote.
    pub fn decode_lines(bytes: &[u8]) -> Result<Vec<MetadataRecord>, DecodeError> {
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let is_read = |line: &&[u8]| {
            !later_release::is_played() || **line != LATER_RECORD[..LATER_RECORD.len() - 1]
        };
        lines.filter(is_read).map(MetadataRecord::decode).collect()
    }
}

/// A record of a type above the newest level, with its line break: the [later release](later_release) writes the record
/// behind the one that finalizes its level, and reads no more of it than this.
const LATER_RECORD: &[u8] = b"{\"later-fact\":{}}\n";

/// Adds a field of the [later release](later_release) to the record that begins at `begin`.
fn add_later_field(out: &mut Vec<u8>, begin: usize) {
    let fields = out[begin..].windows(2).position(|pair| pair == b":{").map(|at| begin + at + 2);
    if let Some(at) = fields {
        let is_last = out[at] == b'}';
        let field: &[u8] = if is_last { b"\"later\":7" } else { b"\"later\":7," };
        out.splice(at..at, field.iter().copied());
    }
}

/// Why bytes are no record: an unknown type is told from garbage.
fn explain(bytes: &[u8], error: &serde_json::Error) -> DecodeError {
    let keys = serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(bytes).unwrap_or_default();
    let mut unknown = keys.into_keys().filter(|key| !TYPES.contains(&key.as_str()));
    match unknown.next() {
        Some(key) => DecodeError::UnknownType(key),
        None => DecodeError::Malformed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic() -> MetadataRecord {
        let state = PartitionRecord {
            partition: PartitionIndex(0),
            replicas: vec![BrokerId(1), BrokerId(2)],
            isr: vec![BrokerId(1)],
            elr: Vec::new(),
            leader: BrokerId(1),
            restarted: Vec::new(),
            last_known_leader: BrokerId::NONE,
            leader_epoch: LeaderEpoch(3),
            partition_epoch: 4,
            recovering: false,
            durable: false,
        };
        MetadataRecord::TopicCreated {
            topic_id: Uuid(*b"0123456789abcdef"),
            name: "t".into(),
            created: Timestamp(5),
            partitions: vec![state],
        }
    }

    #[test]
    fn a_record_reads_as_json_with_plain_numbers() {
        let mut out = Vec::new();
        topic().encode(&mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"topic-created":{"topic_id":"MDEyMzQ1Njc4OWFiY2RlZg","name":"t","created":5,"partitions":[{"partition":0,"replicas":[1,2],"isr":[1],"leader":1,"leader_epoch":3,"partition_epoch":4}]}}"#
        );
    }

    #[test]
    fn eligible_replicas_stand_in_the_second_form_only() {
        let MetadataRecord::TopicCreated { topic_id, partitions, .. } = topic() else { panic!() };
        let first = partitions[0].clone();
        let waiting = PartitionRecord {
            isr: Vec::new(),
            elr: vec![BrokerId(2)],
            leader: BrokerId::NONE,
            restarted: Vec::new(),
            last_known_leader: BrokerId(1),
            durable: true,
            ..first.clone()
        };
        let mut out = Vec::new();
        MetadataRecord::partition_changed(topic_id, first.clone()).encode(&mut out);
        assert!(out.starts_with(br#"{"partition-changed":"#));
        out.clear();
        let second = MetadataRecord::partition_changed(topic_id, waiting);
        second.encode(&mut out);
        assert_eq!(
            String::from_utf8(out.clone()).unwrap(),
            r#"{"partition-changed-2":{"topic_id":"MDEyMzQ1Njc4OWFiY2RlZg","state":{"partition":0,"replicas":[1,2],"isr":[],"elr":[2],"leader":-1,"last_known_leader":1,"leader_epoch":3,"partition_epoch":4,"durable":true}}}"#
        );
        assert_eq!(MetadataRecord::decode(&out), Ok(second));
        let durable = PartitionRecord { durable: true, ..first.clone() };
        assert_eq!(MetadataRecord::partition_added(topic_id, durable).level(), 1);
        assert_eq!(MetadataRecord::partition_added(topic_id, first).level(), 0);
    }

    #[test]
    fn lines_and_back() {
        let resource = ConfigResource::Broker(BrokerId(7));
        let set = MetadataRecord::ConfigSet { resource, key: "k\n".into(), value: "é\"".into() };
        let records = vec![topic(), set];
        let mut out = Vec::new();
        MetadataRecord::encode_lines(&records, &mut out);
        assert_eq!(MetadataRecord::decode_lines(&out), Ok(records));
    }

    #[test]
    fn unknown_fields_are_skipped_and_unknown_types_are_not() {
        let newer = br#"{"topic-deleted":{"topic_id":"MDEyMzQ1Njc4OWFiY2RlZg","why":[1,{}]}}"#;
        assert!(matches!(MetadataRecord::decode(newer), Ok(MetadataRecord::TopicDeleted { .. })));
        let unknown = br#"{"topic-deleted-2":{"topic_id":"MDEyMzQ1Njc4OWFiY2RlZg"}}"#;
        let error = MetadataRecord::decode(unknown).unwrap_err();
        assert_eq!(error, DecodeError::UnknownType("topic-deleted-2".into()));
        assert!(error.to_string().contains("a newer version wrote it"), "{error}");
    }

    /// A record of every type. A new type has to be added here.
    fn every_type() -> Vec<MetadataRecord> {
        let MetadataRecord::TopicCreated { topic_id, name, created, partitions } = topic() else {
            panic!()
        };
        let (state, broker) = (partitions[0].clone(), BrokerId(1));
        let software = BrokerSoftware {
            release: "0.1.0".into(),
            levels: vec![FeatureRange { name: "f".into(), min: 1, max: 3 }],
        };
        let endpoint = Endpoint {
            listener: "L".into(),
            host: "h".into(),
            port: 9092,
            security_protocol: "SSL".into(),
        };
        let registered = BrokerRecord {
            broker,
            incarnation: topic_id,
            epoch: BrokerEpoch(2),
            endpoints: vec![endpoint],
            rack: Some("r".into()),
            log_dirs: vec![topic_id],
            fenced: true,
            software: Some(software),
        };
        let replicas = TopicReplicas { topic_id, partitions: vec![PartitionIndex(0)] };
        let mark = DirectoryMark { broker, directory: topic_id, mark: 1 << 60 };
        let resource = ConfigResource::Topic("t".into());
        let allowed = MetadataRecord::TruncationAllowed {
            topic_id,
            partition: PartitionIndex(0),
            leader_epoch: LeaderEpoch(3),
        };
        let found = MetadataRecord::LeaderEpochFound {
            topic_id,
            partition: PartitionIndex(0),
            leader_epoch: LeaderEpoch(9),
        };
        let (first, count) = (ProducerId(7), 1000);
        let (key, value) = ("k".to_owned(), "v".to_owned());
        let second = partitions.clone();
        vec![
            MetadataRecord::ClusterCreated { cluster_id: "c".into() },
            MetadataRecord::FeatureLevelSet { name: "f".into(), level: 1 },
            MetadataRecord::GroupPlacementSet { placement: GroupPlacement::Abs },
            MetadataRecord::BrokerRegistered(registered),
            MetadataRecord::BrokerEpochUsed { epoch: BrokerEpoch(2) },
            MetadataRecord::BrokerFenced { broker },
            MetadataRecord::BrokerUnfenced { broker },
            MetadataRecord::ControlledShutdownBegun { broker },
            MetadataRecord::ReplicasOffline { broker, replicas: vec![replicas.clone()] },
            MetadataRecord::ReplicasOnline { broker, replicas: vec![replicas] },
            MetadataRecord::DirectoryMarksRaised { marks: vec![mark] },
            MetadataRecord::BrokerUnregistered { broker },
            MetadataRecord::TopicCreated { topic_id, name: name.clone(), created, partitions },
            MetadataRecord::TopicCreated2 { topic_id, name, created, partitions: second },
            MetadataRecord::PartitionAdded { topic_id, state: state.clone() },
            MetadataRecord::PartitionAdded2 { topic_id, state: state.clone() },
            MetadataRecord::PartitionChanged { topic_id, state: state.clone() },
            MetadataRecord::PartitionChanged2 { topic_id, state },
            MetadataRecord::ElrCleared { topics: vec![topic_id], members: 2 },
            MetadataRecord::DurabilityLost { topics: vec![topic_id] },
            allowed,
            found,
            MetadataRecord::TopicDeleted { topic_id },
            MetadataRecord::ConfigSet { resource: resource.clone(), key: key.clone(), value },
            MetadataRecord::ConfigRemoved { resource, key },
            MetadataRecord::ProducerIdsAllocated { broker, first, count },
        ]
    }

    /// Adds a field to every object of a record's fields. A resource is a choice, which has one key.
    fn add_fields(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(fields) => {
                fields.iter_mut().filter(|(key, _)| *key != "resource").for_each(|(_, value)| {
                    add_fields(value);
                });
                fields.insert("a-newer-field".into(), serde_json::json!({ "x": [1] }));
            }
            serde_json::Value::Array(values) => values.iter_mut().for_each(add_fields),
            _ => {}
        }
    }

    #[test]
    fn newer_fields_of_every_type_are_skipped_and_newer_types_are_refused() {
        let mut types = Vec::new();
        for record in every_type() {
            let mut text = Vec::new();
            record.encode(&mut text);
            let mut json: BTreeMap<String, serde_json::Value> =
                serde_json::from_slice(&text).unwrap();
            let (name, fields) = json.iter_mut().next().unwrap();
            types.push(name.clone());
            add_fields(fields);
            let newer = serde_json::to_vec(&json).unwrap();
            assert_ne!(newer, text);
            assert_eq!(MetadataRecord::decode(&newer), Ok(record), "{json:?}");
            let (name, fields) = json.pop_first().unwrap();
            let newer = serde_json::to_vec(&BTreeMap::from([(format!("{name}-9"), fields)]));
            let refused = MetadataRecord::decode(&newer.unwrap());
            assert_eq!(refused, Err(DecodeError::UnknownType(format!("{name}-9"))));
        }
        assert_eq!(types, TYPES, "a record of every type, in their order");
    }

    #[test]
    fn no_record_is_above_the_newest_level() {
        for record in every_type() {
            assert!((0..=HIGHWATER_VERSION_MAX).contains(&record.level()), "{record:?}");
        }
    }

    #[test]
    fn garbage_is_refused() {
        for bytes in [&b""[..], b"{}", b"[1]", b"{\"topic-deleted\":{}}", b"\xff"] {
            assert!(matches!(MetadataRecord::decode(bytes), Err(DecodeError::Malformed(_))));
        }
    }

    #[test]
    fn the_list_of_types_is_complete() {
        let error = serde_json::from_str::<MetadataRecord>("{\"?\":{}}").unwrap_err().to_string();
        assert!(TYPES.iter().all(|name| error.contains(&format!("`{name}`"))), "{error}");
        assert_eq!(error.matches('`').count(), 2 + 2 * TYPES.len());
    }
}
