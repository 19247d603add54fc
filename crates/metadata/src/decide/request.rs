//! What can be asked and answered: plain values, the same for every version of the protocol.

use super::Answer;
use crate::record::{BrokerSoftware, ConfigResource, Endpoint};
use model::{
    BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId, Uuid,
};
use std::sync::Arc;

/// A key and its value; null on the wire is refused, but has to be seen to be refused.
pub type ConfigEntry = (String, Option<String>);

/// Something to decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The first thing ever asked of a cluster.
    CreateCluster(CreateCluster),
    /// CreateTopics, and automatic creation.
    CreateTopics(CreateTopics),
    /// DeleteTopics.
    DeleteTopics(Vec<TopicRef>),
    /// CreatePartitions.
    CreatePartitions(CreatePartitions),
    /// AlterConfigs: what is not named loses its value.
    AlterConfigs(AlterConfigs),
    /// IncrementalAlterConfigs (KIP-339): what is not named stays.
    IncrementalAlterConfigs(IncrementalAlterConfigs),
    /// A broker wants the next block of producer ids.
    AllocateProducerIds(BrokerRef),
    /// A broker's process started.
    RegisterBroker(RegisterBroker),
    /// The same, with what the process knows of its log directories. Before it has them registered that were not registered
    /// last, it says in the name of the last registration what the replicas in them are worth
    /// ([`Request::ReportEmptyReplicas2`], [`Request::GiveUpReplicas`]).
    RegisterBroker2(RegisterBroker2),
    /// The same, with the release of the process and the levels that it reads. A controller refuses a broker that
    /// cannot read a finalized level.
    RegisterBroker3(RegisterBroker3),
    /// The same, with the marks of the log directories, where the cluster detects copies.
    RegisterBroker4(RegisterBroker4),
    /// Marks that brokers have reported in heartbeats. The node of the active controller sends it.
    RaiseMarks(RaiseMarks),
    /// A broker stopped answering, or stops now. One record; sweeps do the rest (from
    /// `highwater.version` 1 on).
    FenceBroker(BrokerRef),
    /// A broker has caught up and serves.
    UnfenceBroker(BrokerRef),
    /// A broker is about to stop (controlled shutdown): it leads nothing new and joins no ISR (KIP-841);
    /// sweeps move away what it leads. Until it registers again.
    BeginShutdown(BrokerRef),
    /// The next piece of what follows for partitions from who is registered, fenced or about to stop.
    /// Every new controller begins with it; it belongs behind every fencing, unfencing, registration,
    /// unregistration and beginning shutdown, behind a change of `unclean.leader.election.enable`, and
    /// behind the feature that brings it; again and again while there is more. In the same batch as
    /// the request before it, it costs no commit of its own.
    Sweep,
    /// As [`Request::ReportEmptyReplicas2`], of a release that does not say which states its report is about.
    ReportEmptyReplicas(EmptyReplicas),
    /// A broker had to make replicas anew that the image may count: they are empty. Asked before the
    /// broker leads, answers or fetches with them.
    ReportEmptyReplicas2(EmptyReplicas2),
    /// A broker cannot serve replicas of its own: their log directory failed, or they cannot be opened (KIP-858), or they
    /// may be older than what is counted. Others lead; from `highwater.version` 2 on, those that are offline stay eligible
    /// where so few are in sync; all others leave ISR and ELR where another replica is complete.
    GiveUpReplicas(GiveUpReplicas),
    /// Replicas of a broker may be in a log directory that is missing. Each leaves ISR and ELR only while another in-sync
    /// replica is unfenced and was heard within two seconds.
    GiveUpMissing(GiveUpMissing),
    /// Logs of a broker have leader epochs that the metadata does not have: partitions that have no leader until an operator requests an
    /// unclean election.
    ReportLeaderEpochs(ReportLeaderEpochs),
    /// UnregisterBroker (KIP-500): it will not come back. Refused while it serves, so that a wrong number stops no broker;
    /// Kafka lets it happen, and the broker goes on without being counted. Its replicas stay assigned.
    UnregisterBroker(BrokerId),
    /// A leader changes ISRs (KIP-497).
    AlterPartition(AlterPartition),
    /// As [`Request::AlterPartition`]; the host of the active controller adds the brokers that may not join.
    AlterPartition2(AlterPartition2),
    /// Moves leaderships away from a broker that is silent or has a sick disk, and takes its replicas out of ISRs. The
    /// broker stays registered.
    RelieveReplicas(RelieveReplicas),
    /// ElectLeaders (KIP-460).
    ElectLeaders(ElectLeaders),
    /// An unclean election, with the log ends of the replicas that serve. The node of the active controller sends it in
    /// place of [`Request::ElectLeaders`], where the cluster detects copies.
    ElectLeaders2(ElectLeaders2),
    /// Leaders by the ends of complete replicas' logs, of the host of the active controller.
    ElectByEnds(ElectByEnds),
    /// UpdateFeatures (KIP-584).
    UpdateFeatures(UpdateFeatures),
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// To CreateCluster.
    CreateCluster(Answer<()>),
    /// To CreateTopics: one for each, in order.
    CreateTopics(Vec<(String, Answer<CreatedTopic>)>),
    /// To DeleteTopics: one for each, in order.
    DeleteTopics(Vec<(TopicRef, Answer<DeletedTopic>)>),
    /// To CreatePartitions: one for each, in order.
    CreatePartitions(Vec<(String, Answer<()>)>),
    /// To AlterConfigs and IncrementalAlterConfigs: one for each, in order.
    AlterConfigs(Vec<(ConfigResource, Answer<()>)>),
    /// To AllocateProducerIds.
    AllocateProducerIds(Answer<ProducerIdBlock>),
    /// To all forms of RegisterBroker: the epoch of this incarnation. REQUEST_TIMED_OUT says that some of what has to
    /// precede it is decided, and that the same registration is to be asked for again.
    RegisterBroker(Answer<BrokerEpoch>),
    /// To FenceBroker, UnfenceBroker, BeginShutdown, UnregisterBroker, RaiseMarks.
    Broker(Answer<()>),
    /// To Sweep.
    Sweep(Swept),
    /// To both forms of ReportEmptyReplicas, to GiveUpReplicas, GiveUpMissing and ReportLeaderEpochs: one for each, in order. ELIGIBLE_LEADERS_NOT_AVAILABLE says
    /// that a replica was not given up, because no other one is complete; INVALID_UPDATE_VERSION that the partition has changed
    /// since the state that the report is about. To RelieveReplicas: one for each partition that changed. To ElectByEnds: one
    /// for each, in order.
    EmptyReplicas(Answer<Vec<(TopicId, PartitionIndex, Answer<()>)>>),
    /// To AlterPartition.
    AlterPartition(Answer<Vec<(TopicId, PartitionIndex, Answer<AlteredPartition>)>>),
    /// To ElectLeaders: one for each partition whose leader was asked for.
    ElectLeaders(Vec<(Arc<str>, PartitionIndex, Answer<()>)>),
    /// To UpdateFeatures: for all features together.
    UpdateFeatures(Answer<()>),
}

/// Makes a cluster out of nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateCluster {
    /// `cluster.id`: any text.
    pub cluster_id: String,
    /// Features to finalize, with their levels.
    pub features: Vec<(String, i16)>,
}

/// Topics to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateTopics {
    /// The topics.
    pub topics: Vec<NewTopic>,
    /// Answer as if, change nothing.
    pub validate_only: bool,
}

/// A topic to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// Its id: random, made by the host, because this room has no randomness. Also says where
    /// placement begins.
    pub id: TopicId,
    /// How many partitions; -1 for the default.
    pub partitions: i32,
    /// How many replicas each; -1 for the default.
    pub replication_factor: i16,
    /// Replicas of each partition, by its number. Then the two numbers above must be -1.
    pub assignments: Vec<(PartitionIndex, Vec<BrokerId>)>,
    /// Configurations of its own; a null value is refused.
    pub configs: Vec<ConfigEntry>,
}

/// A topic that was created (or could be).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedTopic {
    /// Its id.
    pub id: TopicId,
    /// How many partitions it has.
    pub partitions: i32,
    /// How many replicas each has.
    pub replication_factor: i16,
    /// Its own configurations.
    pub configs: Vec<(String, String)>,
}

/// A topic by name or by id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopicRef {
    /// By name.
    Name(String),
    /// By id.
    Id(TopicId),
}

/// A topic that was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedTopic {
    /// Its name.
    pub name: Arc<str>,
    /// Its id.
    pub id: TopicId,
}

/// Partitions to add.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreatePartitions {
    /// By topic.
    pub topics: Vec<NewPartitions>,
    /// Answer as if, change nothing.
    pub validate_only: bool,
}

/// Partitions to add to one topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewPartitions {
    /// The topic's name.
    pub topic: String,
    /// How many partitions it shall have.
    pub count: i32,
    /// Replicas of each new partition, or `None` to have them placed.
    pub assignments: Option<Vec<Vec<BrokerId>>>,
}

/// Configurations to replace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlterConfigs {
    /// By resource: all values it shall have of its own.
    pub resources: Vec<(ConfigResource, Vec<ConfigEntry>)>,
    /// Answer as if, change nothing.
    pub validate_only: bool,
}

/// Configurations to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncrementalAlterConfigs {
    /// By resource: what to do with which keys.
    pub resources: Vec<(ConfigResource, Vec<ConfigChange>)>,
    /// Answer as if, change nothing.
    pub validate_only: bool,
}

/// What to do with one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// The key.
    pub key: String,
    /// What to do.
    pub operation: ConfigOperation,
    /// With what; unused by [`ConfigOperation::Delete`].
    pub value: Option<String>,
}

/// KIP-339's operations, with their numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigOperation {
    /// 0: set the value.
    Set,
    /// 1: forget the value.
    Delete,
    /// 2: add to a list what is not in it.
    Append,
    /// 3: take out of a list.
    Subtract,
}

/// One incarnation of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BrokerRef {
    /// Its id.
    pub broker: BrokerId,
    /// Its epoch as it knows it.
    pub epoch: BrokerEpoch,
}

/// A block of producer ids: `first .. first + count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerIdBlock {
    /// The first.
    pub first: ProducerId,
    /// How many.
    pub count: i32,
}

/// A broker's process started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterBroker {
    /// Its `node.id`.
    pub broker: BrokerId,
    /// Random, new with every process.
    pub incarnation: Uuid,
    /// The cluster it believes it belongs to.
    pub cluster_id: String,
    /// Where it is reached.
    pub endpoints: Vec<Endpoint>,
    /// Its rack.
    pub rack: Option<String>,
    /// The ids of its log directories, each of which it has locked: one that the earlier incarnation had
    /// proves that that one is dead. If none is left that was registered before, the disk is another
    /// one, and its replicas count nowhere. If only some are left, the broker itself says which
    /// replicas are empty ([`Request::ReportEmptyReplicas2`]), before it is unfenced.
    pub log_dirs: Vec<Uuid>,
    /// Whether it stopped cleanly the last time, so that its log holds all it ever acknowledged
    /// (KIP-966). A first start is clean. Of a [`RegisterBroker2`] only together with what it knows of the stop.
    pub clean: bool,
    /// Whether it still has to catch up. `false` registers and unfences in one step.
    pub fenced: bool,
    /// Whether the host still hears heartbeats of an earlier incarnation.
    pub earlier_incarnation_alive: bool,
}

/// A broker's process started, and says what it knows of its log directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterBroker2 {
    /// The registration.
    pub register: RegisterBroker,
    /// The log directories.
    pub directories: KnownDirectories,
}

/// A registration with the program of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterBroker3 {
    /// The registration and the log directories.
    pub request: RegisterBroker2,
    /// Release and levels of the process.
    pub software: BrokerSoftware,
}

/// A registration with the marks of the log directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterBroker4 {
    /// The registration.
    pub request: RegisterBroker3,
    /// Mark of each of [`RegisterBroker::log_dirs`], in their order; 0 for none.
    pub marks: Vec<u64>,
}

/// Marks that log directories have in their journals, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaiseMarks {
    /// The marks of each broker's directories.
    pub brokers: Vec<BrokerMarks>,
}

/// Marks of one broker's log directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerMarks {
    /// The registration of the process that reported the marks.
    pub broker: BrokerRef,
    /// Id of each directory, and its mark.
    pub marks: Vec<(Uuid, u64)>,
}

/// What a process knows of its log directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownDirectories {
    /// Each of [`RegisterBroker::log_dirs`], in their order.
    pub directories: Vec<KnownDirectory>,
    /// The last registration of the broker, as the metadata of its node says; `None` if that knows none. Another one is
    /// refused, retriably: the message was long on its way, or the metadata is not there yet.
    pub instead_of: Option<BrokerEpoch>,
}

/// What a log directory says of the processes that had it before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownDirectory {
    /// The registration of the last of them, if it stopped cleanly (KIP-966).
    pub stopped: Option<BrokerEpoch>,
    /// Their incarnations, from the last one on that is known to have been registered. Empty if that one is not known: the
    /// directory is new, or of a version that did not note them. Where the process that was registered last is not among
    /// them, the directory was put back from a copy.
    pub had_by: Vec<Uuid>,
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Partitions that have another state.
    pub changed: usize,
    /// Whether there is more to do.
    pub more: bool,
}

/// Replicas that a broker had to make anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmptyReplicas {
    /// The broker.
    pub broker: BrokerRef,
    /// Which; at most [`super::SWEEP_PARTITIONS_MAX`].
    pub partitions: Vec<(TopicId, PartitionIndex)>,
}

/// Replicas that a broker had to make anew, and when that was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmptyReplicas2 {
    /// The broker.
    pub broker: BrokerRef,
    /// Which; at most [`super::SWEEP_PARTITIONS_MAX`].
    pub partitions: Vec<EmptyReplica>,
}

/// A replica that holds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmptyReplica {
    /// The topic.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// The partition epoch of the state that the broker found itself counted in. In a later state the replica may have been
    /// copied: the report is refused with INVALID_UPDATE_VERSION, to be made again by that state. None of a broker that is
    /// not registered with what it holds now, and can have copied nothing.
    pub partition_epoch: Option<i32>,
}

impl From<&EmptyReplicas> for EmptyReplicas2 {
    fn from(EmptyReplicas { broker, partitions }: &EmptyReplicas) -> EmptyReplicas2 {
        let in_any_state = |(topic_id, partition): &(TopicId, PartitionIndex)| EmptyReplica {
            topic_id: *topic_id,
            partition: *partition,
            partition_epoch: None,
        };
        EmptyReplicas2 {
            broker: *broker,
            partitions: partitions.iter().map(in_any_state).collect(),
        }
    }
}

/// Replicas that a broker cannot serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GiveUpReplicas {
    /// The broker.
    pub broker: BrokerRef,
    /// Which; at most [`super::SWEEP_PARTITIONS_MAX`].
    pub partitions: Vec<(TopicId, PartitionIndex)>,
    /// Whether that stays so for as long as the process lives. What could not be opened at the start may be copied anew.
    pub offline: bool,
}

/// Replicas of a broker that are in no log directory which it has, and may be in a missing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GiveUpMissing {
    /// The broker.
    pub broker: BrokerRef,
    /// Partitions; at most [`super::SWEEP_PARTITIONS_MAX`].
    pub partitions: Vec<(TopicId, PartitionIndex)>,
    /// Brokers heard within two seconds: only their replicas count as others. Filled in by the host of the active
    /// controller.
    pub heard: Vec<BrokerId>,
}

/// Leader epochs that a broker's logs have and the metadata does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportLeaderEpochs {
    /// The broker.
    pub broker: BrokerRef,
    /// Partitions; at most [`super::SWEEP_PARTITIONS_MAX`].
    pub partitions: Vec<FoundEpoch>,
}

/// The newest leader epoch of one replica's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundEpoch {
    /// The topic.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// Leader epoch of the newest records.
    pub leader_epoch: LeaderEpoch,
}

/// Elections by the ends of complete replicas' logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectByEnds {
    /// Partitions without a leader; at most [`super::SWEEP_PARTITIONS_MAX`].
    pub partitions: Vec<ReplicaEnds>,
}

/// Ends of the logs of one partition's complete replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaEnds {
    /// The topic.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// Partition epoch of the state for which the ends were requested. In a later state nothing is elected by them.
    pub partition_epoch: i32,
    /// Ends of the replicas that answered.
    pub ends: Vec<ReplicaEnd>,
}

/// End of one replica's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaEnd {
    /// Registration of the process that answered.
    pub broker: BrokerRef,
    /// Leader epoch of the last synced record; [`LeaderEpoch::NONE`] if there is none.
    pub last_epoch: LeaderEpoch,
    /// Records below this offset are synced.
    pub end: Offset,
}

/// A leader's wish to change ISRs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterPartition {
    /// The leader.
    pub leader: BrokerRef,
    /// What it wants.
    pub partitions: Vec<NewIsr>,
}

/// Level of `highwater.version` from which brokers send [`Request::RelieveReplicas`]: release 0.1.0 cannot read it.
pub const RELIEF_LEVEL: i16 = 4;

/// A leader's request for ISRs, and the brokers that may not join one now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterPartition2 {
    /// The leader's request.
    pub alter: AlterPartition,
    /// Brokers that may not join an ISR: they are silent or have a sick disk. Members may stay. Filled in by the host of
    /// the active controller.
    pub unfit: Vec<BrokerId>,
}

/// Replicas of a broker that others replace as leaders and as members of ISRs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelieveReplicas {
    /// Broker whose replicas are relieved.
    pub broker: BrokerRef,
    /// Replicas to relieve; at most [`super::SWEEP_PARTITIONS_MAX`]. `None`: all of the broker. One decision changes at most
    /// that many partitions; the caller repeats the request while an answer is that long.
    pub partitions: Option<Vec<(TopicId, PartitionIndex)>>,
    /// Brokers known to be healthy: only they may lead. Filled in by the host of the active controller.
    pub healthy: Vec<BrokerId>,
    /// Milliseconds for which a disk of the broker hangs; 0: no disk hangs.
    pub hung_ms: u64,
}

/// The ISR that a leader wants for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewIsr {
    /// The topic.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// The leader epoch in which it leads.
    pub leader_epoch: LeaderEpoch,
    /// The partition epoch that it saw.
    pub partition_epoch: i32,
    /// The members, each with the broker epoch of the fetch that proved it caught up (KIP-903). Of the
    /// leader its own; of a member that was in the ISR before and has not fetched in this leader epoch
    /// the one in the image that the leader goes by. Of a durable partition only those may be new
    /// whose fetches show that they go by `durability=fsync`.
    pub isr: Vec<(BrokerId, BrokerEpoch)>,
    /// Whether it still recovers from an unclean election.
    pub recovering: bool,
    /// Whether all members go by `durability=fsync` and have since synced everything below the high
    /// watermark: the partition becomes durable, unless replicas out of sync are eligible.
    pub durable: bool,
}

/// A partition's state after an ISR change. The leader may act on a smaller ISR only when it goes by all
/// metadata up to this decision: with an older `min.insync.replicas` it would move a high watermark
/// that the controller believes to stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlteredPartition {
    /// The leader.
    pub leader: BrokerId,
    /// Its epoch.
    pub leader_epoch: LeaderEpoch,
    /// The ISR.
    pub isr: Vec<BrokerId>,
    /// The new partition epoch.
    pub partition_epoch: i32,
    /// Still recovering.
    pub recovering: bool,
    /// Whether everything below the high watermark is synced wherever it is counted.
    pub durable: bool,
}

/// How a leader is chosen on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionKind {
    /// 0: the preferred replica, if it is in sync.
    Preferred,
    /// 1: any live replica, if there is no leader. May lose records.
    Unclean,
}

/// Leaders to elect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectLeaders {
    /// How.
    pub kind: ElectionKind,
    /// Where; `None` for every partition that needs it.
    pub partitions: Option<Vec<(String, PartitionIndex)>>,
}

/// Elections with the log ends by which the controller chooses among replicas that may lack records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectLeaders2 {
    /// The request of an operator.
    pub request: ElectLeaders,
    /// Ends of the replicas that answered, for partitions without an active leader.
    pub ends: Vec<ReplicaEnds>,
}

/// Levels of features to finalize, all or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateFeatures {
    /// The features, each with its new level.
    pub updates: Vec<FeatureUpdate>,
    /// Answer as if, change nothing.
    pub validate_only: bool,
}

/// A feature's new level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureUpdate {
    /// The feature's name.
    pub name: String,
    /// The level to finalize.
    pub level: i16,
    /// Which way the level may go.
    pub change: FeatureChange,
}

/// Which way a feature's level may go, so that nobody downgrades by mistake (KIP-778).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureChange {
    /// Up only.
    Upgrade,
    /// Down only; 2 (safe) and 3 (unsafe) of the protocol.
    Downgrade,
    /// A number that is neither.
    Unknown(i8),
}
