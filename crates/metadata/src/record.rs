//! The facts that metadata is made of, and how one fact is written: one JSON object, one line.
//!
//! The object has one key, the record's type, whose value are its fields. Records say what *is* from
//! now on, never what to do: deciding may change between versions, replaying must not. A field that
//! a reader does not know is skipped, a field that is absent has its default; a *type* that a reader
//! does not know is an error, because skipping a fact would make two nodes disagree. A change that
//! old readers must not misread is therefore another type (`topic-created-2`).

use crate::json;
use model::{
    BrokerEpoch, BrokerId, LeaderEpoch, PartitionIndex, ProducerId, Timestamp, TopicId, Uuid,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// In-sync replicas. Invariant: a subset of `replicas`, not empty.
    #[serde(with = "json::broker_ids")]
    pub isr: Vec<BrokerId>,
    /// The leader, or [`BrokerId::NONE`]. Invariant: in `isr` if there is one.
    #[serde(with = "json::broker_id")]
    pub leader: BrokerId,
    /// The leader's term. Invariant: never falls.
    #[serde(with = "json::leader_epoch")]
    pub leader_epoch: LeaderEpoch,
    /// Rises with every change of this record (KIP-497).
    pub partition_epoch: i32,
    /// Whether the leader was elected uncleanly and has not caught its ISR up yet (KIP-704).
    #[serde(default, skip_serializing_if = "is_false")]
    pub recovering: bool,
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
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetadataRecord {
    /// The cluster exists and is called so. Once, and first.
    ClusterCreated {
        /// `cluster.id`, 22 characters.
        cluster_id: String,
    },
    /// A feature is finalized at a level (KIP-584); 0 removes it.
    FeatureLevelSet {
        /// The feature's name.
        name: String,
        /// Its level.
        level: i16,
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
    /// A topic has one more partition, the next in number.
    PartitionAdded {
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

/// The record types that this code reads, as their keys are spelled.
const TYPES: [&str; 14] = [
    "cluster-created",
    "feature-level-set",
    "broker-registered",
    "broker-epoch-used",
    "broker-fenced",
    "broker-unfenced",
    "broker-unregistered",
    "topic-created",
    "partition-added",
    "partition-changed",
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
    /// Appends the record as one JSON object, without a line break.
    pub fn encode(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(&mut *out, self).expect("writing JSON to memory cannot fail");
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
    }

    /// Reads what [`MetadataRecord::encode_lines`] wrote.
    pub fn decode_lines(bytes: &[u8]) -> Result<Vec<MetadataRecord>, DecodeError> {
        let lines = bytes.split(|byte| *byte == b'\n');
        lines.filter(|line| !line.is_empty()).map(MetadataRecord::decode).collect()
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
            leader: BrokerId(1),
            leader_epoch: LeaderEpoch(3),
            partition_epoch: 4,
            recovering: false,
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
