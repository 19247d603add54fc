//! The table of requests: their numbers, and the order of their fields.

use super::ForwardedError;
use super::fields::{Field, Reader, choices, invalid, least, structs};
use crate::decide::{
    AlterConfigs, AlterPartition, AlterPartition2, BrokerMarks, BrokerRef, ConfigChange,
    ConfigEntry, ConfigOperation, CreateCluster, CreatePartitions, CreateTopics, ElectByEnds,
    ElectLeaders, ElectLeaders2, ElectionKind, EmptyReplica, EmptyReplicas, EmptyReplicas2,
    FeatureChange, FeatureUpdate, FoundEpoch, GiveUpMissing, GiveUpReplicas,
    IncrementalAlterConfigs, KnownDirectories, KnownDirectory, NewIsr, NewPartitions, NewTopic,
    RaiseMarks, RegisterBroker, RegisterBroker2, RegisterBroker3, RegisterBroker4, RelieveReplicas,
    ReplicaEnd, ReplicaEnds, ReportLeaderEpochs, Request, TopicRef, UpdateFeatures,
};
use crate::record::{BrokerSoftware, ConfigResource, Endpoint, FeatureRange};
use model::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId, Uuid};

choices! {
    // Below 0x80, so that no request is read as a response.
    Request, "kind of request" {
        1 CreateCluster(request: CreateCluster),
        2 CreateTopics(request: CreateTopics),
        3 DeleteTopics(topics: Vec<TopicRef>),
        4 CreatePartitions(request: CreatePartitions),
        5 AlterConfigs(request: AlterConfigs),
        6 IncrementalAlterConfigs(request: IncrementalAlterConfigs),
        7 AllocateProducerIds(broker: BrokerRef),
        8 RegisterBroker(request: RegisterBroker),
        9 FenceBroker(broker: BrokerRef),
        10 UnfenceBroker(broker: BrokerRef),
        11 BeginShutdown(broker: BrokerRef),
        12 Sweep,
        13 ReportEmptyReplicas(replicas: EmptyReplicas),
        14 UnregisterBroker(broker: BrokerId),
        15 AlterPartition(request: AlterPartition),
        16 ElectLeaders(request: ElectLeaders),
        17 UpdateFeatures(request: UpdateFeatures),
        18 RegisterBroker2(request: RegisterBroker2),
        19 GiveUpReplicas(replicas: GiveUpReplicas),
        20 ReportEmptyReplicas2(replicas: EmptyReplicas2),
        21 RegisterBroker3(request: RegisterBroker3),
        22 AlterPartition2(request: AlterPartition2),
        23 RelieveReplicas(replicas: RelieveReplicas),
        24 ElectByEnds(request: ElectByEnds),
        25 GiveUpMissing(replicas: GiveUpMissing),
        26 RegisterBroker4(request: RegisterBroker4),
        27 RaiseMarks(marks: RaiseMarks),
        28 ElectLeaders2(request: ElectLeaders2),
        29 ReportLeaderEpochs(epochs: ReportLeaderEpochs),
    }
    TopicRef, "kind of topic reference" {
        1 Name(name: String),
        2 Id(id: TopicId),
    }
    ConfigResource, "kind of configuration resource" {
        1 Topic(name: String),
        2 Broker(broker: BrokerId),
        3 ClusterDefault,
        4 Group(name: String),
        5 ClientMetrics(name: String),
    }
    // As in the protocol.
    ConfigOperation, "configuration operation" {
        0 Set,
        1 Delete,
        2 Append,
        3 Subtract,
    }
    // As in the protocol.
    ElectionKind, "kind of election" {
        0 Preferred,
        1 Unclean,
    }
    FeatureChange, "feature change" {
        1 Upgrade,
        2 Downgrade,
        3 Unknown(number: i8),
    }
}

structs! {
    CreateCluster { cluster_id: String, features: Vec<(String, i16)> }
    CreateTopics { topics: Vec<NewTopic>, validate_only: bool }
    NewTopic {
        name: String,
        id: TopicId,
        partitions: i32,
        replication_factor: i16,
        assignments: Vec<(PartitionIndex, Vec<BrokerId>)>,
        configs: Vec<ConfigEntry>,
    }
    CreatePartitions { topics: Vec<NewPartitions>, validate_only: bool }
    NewPartitions { topic: String, count: i32, assignments: Option<Vec<Vec<BrokerId>>> }
    AlterConfigs { resources: Vec<(ConfigResource, Vec<ConfigEntry>)>, validate_only: bool }
    IncrementalAlterConfigs {
        resources: Vec<(ConfigResource, Vec<ConfigChange>)>,
        validate_only: bool,
    }
    ConfigChange { key: String, operation: ConfigOperation, value: Option<String> }
    BrokerRef { broker: BrokerId, epoch: BrokerEpoch }
    RegisterBroker {
        broker: BrokerId,
        incarnation: Uuid,
        cluster_id: String,
        endpoints: Vec<Endpoint>,
        rack: Option<String>,
        log_dirs: Vec<Uuid>,
        clean: bool,
        fenced: bool,
        earlier_incarnation_alive: bool,
    }
    Endpoint { listener: String, host: String, port: u16, security_protocol: String }
    RegisterBroker2 { register: RegisterBroker, directories: KnownDirectories }
    RegisterBroker3 { request: RegisterBroker2, software: BrokerSoftware }
    RegisterBroker4 { request: RegisterBroker3, marks: Vec<u64> }
    RaiseMarks { brokers: Vec<BrokerMarks> }
    BrokerMarks { broker: BrokerRef, marks: Vec<(Uuid, u64)> }
    BrokerSoftware { release: String, levels: Vec<FeatureRange> }
    FeatureRange { name: String, min: i16, max: i16 }
    KnownDirectories { directories: Vec<KnownDirectory>, instead_of: Option<BrokerEpoch> }
    KnownDirectory { stopped: Option<BrokerEpoch>, had_by: Vec<Uuid> }
    EmptyReplicas { broker: BrokerRef, partitions: Vec<(TopicId, PartitionIndex)> }
    EmptyReplicas2 { broker: BrokerRef, partitions: Vec<EmptyReplica> }
    EmptyReplica { topic_id: TopicId, partition: PartitionIndex, partition_epoch: Option<i32> }
    GiveUpReplicas {
        broker: BrokerRef,
        partitions: Vec<(TopicId, PartitionIndex)>,
        offline: bool,
    }
    GiveUpMissing {
        broker: BrokerRef,
        partitions: Vec<(TopicId, PartitionIndex)>,
        heard: Vec<BrokerId>,
    }
    ReportLeaderEpochs { broker: BrokerRef, partitions: Vec<FoundEpoch> }
    FoundEpoch { topic_id: TopicId, partition: PartitionIndex, leader_epoch: LeaderEpoch }
    ElectByEnds { partitions: Vec<ReplicaEnds> }
    ReplicaEnds {
        topic_id: TopicId,
        partition: PartitionIndex,
        partition_epoch: i32,
        ends: Vec<ReplicaEnd>,
    }
    ReplicaEnd { broker: BrokerRef, last_epoch: LeaderEpoch, end: Offset }
    AlterPartition { leader: BrokerRef, partitions: Vec<NewIsr> }
    AlterPartition2 { alter: AlterPartition, unfit: Vec<BrokerId> }
    RelieveReplicas {
        broker: BrokerRef,
        partitions: Option<Vec<(TopicId, PartitionIndex)>>,
        healthy: Vec<BrokerId>,
        hung_ms: u64,
    }
    NewIsr {
        topic_id: TopicId,
        partition: PartitionIndex,
        leader_epoch: LeaderEpoch,
        partition_epoch: i32,
        isr: Vec<(BrokerId, BrokerEpoch)>,
        recovering: bool,
        durable: bool,
    }
    ElectLeaders { kind: ElectionKind, partitions: Option<Vec<(String, PartitionIndex)>> }
    ElectLeaders2 { request: ElectLeaders, ends: Vec<ReplicaEnds> }
    UpdateFeatures { updates: Vec<FeatureUpdate>, validate_only: bool }
    FeatureUpdate { name: String, level: i16, change: FeatureChange }
}
