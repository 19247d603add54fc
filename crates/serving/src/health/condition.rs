//! Every health condition: a stable code for programs, and its effect on each health surface.
//!
//! Rules of the table:
//!
//! - `/livez` returns 503 only for [`Condition::ThreadsStalled`].
//! - `/readyz` returns 503 only if the broker knows that it does not serve, or that it refuses
//!   records as a superseded leader.
//! - `/healthz` returns 503 for conditions of the broker itself. Conditions of other brokers appear
//!   in its body and never change its code.
//! - `highwater cluster health` exits 1 for every condition that needs an operator soon.

use std::fmt;

/// One way in which a broker or a cluster is not well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Condition {
    /// The control or data threads have not run for [`super::pulse::STALL_TICKS`] seconds.
    ThreadsStalled,
    /// The broker has not finished its start.
    Starting,
    /// The broker received a signal to stop.
    Stopping,
    /// The metadata has no registration of this process.
    Unregistered,
    /// The controller fenced this broker.
    Fenced,
    /// The broker refuses records as a leader that no controller has reached for a session.
    LeaderSuperseded,
    /// All log directories are offline, full or hung: the broker can append nothing.
    NoUsableDirectory,
    /// A log directory is offline until the next start.
    DirectoryOffline,
    /// A log directory refuses appends because its disk is full.
    DirectoryFull,
    /// A write or sync of a log directory is unfinished for [`super::broker::HUNG_AFTER`] or longer.
    DirectoryHung,
    /// A log directory is a copy of an earlier state of itself.
    DirectoryCopied,
    /// A hung disk keeps the broker from applying metadata.
    MetadataHeldUp,
    /// The broker refuses a partition whose log is damaged or cannot be opened.
    PartitionRefused,
    /// A follower refuses to remove committed records that its leader lacks.
    TruncationRefused,
    /// A partition of `__consumer_offsets` cannot be loaded.
    CoordinatorFailed,
    /// The cleaner skips a damaged partition.
    PartitionNotCompacted,
    /// A folder belongs to no topic.
    StrayFolder,
    /// No active controller answered the broker for a session.
    ControllerUnreachable,
    /// The metadata quorum has no leader that this node knows.
    QuorumLeaderless,
    /// This node was elected leader of the metadata quorum, and no majority of the voters answers it.
    QuorumMajorityLost,
    /// The voters of `controller.quorum.voters` are not the voters of the metadata quorum.
    VotersDiffer,
    /// Other nodes connect to this node as to a voter, and it opens no controller port.
    ControllerPortClosed,
    /// Every broker supports a higher level of a feature than the cluster has finalized.
    LevelUnfinalized,
    /// A registered broker is fenced.
    BrokerFenced,
    /// The active controller gave a silent broker's leaderships to other replicas.
    BrokerSuspected,
    /// Producers with `acks=all` wait for one in-sync replica, which acknowledges slowly.
    AcknowledgerSlow,
    /// A broker that is not fenced did not answer.
    BrokerUnreachable,
    /// Partitions have no leader.
    PartitionsLeaderless,
    /// No complete replica of a partition is left.
    CompleteReplicasLost,
    /// Partitions have replicas out of sync.
    PartitionsUnderReplicated,
    /// An internal topic has fewer replicas than min(3, brokers).
    InternalTopicReplicas,
}

/// Whose condition it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthScope {
    /// The broker that reports it.
    Broker,
    /// The cluster, or another broker: it never changes a status code of this broker.
    Cluster,
}

/// The strongest effect of a condition on the endpoints of the broker that reports it. Each effect
/// includes the weaker ones below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndpointEffect {
    /// `/livez`, `/readyz` and `/healthz` name it; their codes stay.
    Named,
    /// `/healthz` has the status `degraded`, with code 200.
    Degraded,
    /// `/healthz` returns 503.
    Unavailable,
    /// `/readyz` returns 503 too.
    NotReady,
    /// `/livez` returns 503 too.
    NotLive,
}

use Condition as C;
use EndpointEffect as E;
use HealthScope as S;

/// Condition, code, scope, effect on the endpoints, and whether `cluster health` exits 1.
const TABLE: &[(Condition, &str, HealthScope, EndpointEffect, bool)] = &[
    (C::ThreadsStalled, "threads_stalled", S::Broker, E::NotLive, true),
    (C::Starting, "starting", S::Broker, E::NotReady, true),
    (C::Stopping, "stopping", S::Broker, E::NotReady, true),
    (C::Unregistered, "unregistered", S::Broker, E::NotReady, true),
    (C::Fenced, "fenced", S::Broker, E::NotReady, true),
    (C::LeaderSuperseded, "leader_superseded", S::Broker, E::NotReady, true),
    (C::NoUsableDirectory, "no_usable_log_directory", S::Broker, E::Unavailable, true),
    (C::DirectoryOffline, "log_directory_offline", S::Broker, E::Degraded, true),
    (C::DirectoryFull, "log_directory_full", S::Broker, E::Degraded, true),
    (C::DirectoryHung, "log_directory_hung", S::Broker, E::Degraded, true),
    (C::DirectoryCopied, "log_directory_copied", S::Broker, E::Degraded, true),
    (C::MetadataHeldUp, "metadata_held_up", S::Broker, E::Unavailable, true),
    (C::PartitionRefused, "partition_refused", S::Broker, E::Unavailable, true),
    (C::TruncationRefused, "truncation_refused", S::Broker, E::Degraded, true),
    (C::CoordinatorFailed, "coordinator_failed", S::Broker, E::Unavailable, true),
    (C::PartitionNotCompacted, "partition_not_compacted", S::Broker, E::Degraded, false),
    (C::StrayFolder, "stray_folder", S::Broker, E::Degraded, false),
    (C::ControllerUnreachable, "controller_unreachable", S::Broker, E::Degraded, true),
    (C::QuorumLeaderless, "quorum_leaderless", S::Cluster, E::Named, true),
    (C::QuorumMajorityLost, "quorum_majority_lost", S::Broker, E::Degraded, true),
    (C::VotersDiffer, "voters_differ", S::Broker, E::Degraded, true),
    (C::ControllerPortClosed, "controller_port_closed", S::Broker, E::Degraded, true),
    (C::LevelUnfinalized, "level_unfinalized", S::Cluster, E::Named, true),
    (C::BrokerFenced, "broker_fenced", S::Cluster, E::Named, true),
    (C::BrokerSuspected, "broker_suspected", S::Cluster, E::Named, true),
    (C::AcknowledgerSlow, "acknowledger_slow", S::Cluster, E::Named, false),
    (C::BrokerUnreachable, "broker_unreachable", S::Cluster, E::Named, true),
    (C::PartitionsLeaderless, "partitions_leaderless", S::Cluster, E::Named, true),
    (C::CompleteReplicasLost, "complete_replicas_lost", S::Cluster, E::Named, true),
    (C::PartitionsUnderReplicated, "partitions_under_replicated", S::Cluster, E::Named, true),
    (C::InternalTopicReplicas, "internal_topic_replicas", S::Cluster, E::Named, true),
];

impl Condition {
    /// Every condition.
    pub fn all() -> impl Iterator<Item = Condition> {
        TABLE.iter().map(|row| row.0)
    }

    fn row(self) -> &'static (Condition, &'static str, HealthScope, EndpointEffect, bool) {
        TABLE.iter().find(|row| row.0 == self).expect("a test compares the table with the enum")
    }

    /// The stable name for programs: lower case with underscores.
    pub fn code(self) -> &'static str {
        self.row().1
    }

    /// The condition with this code, if this release has one.
    pub fn from_code(code: &str) -> Option<Condition> {
        TABLE.iter().find(|row| row.1 == code).map(|row| row.0)
    }

    /// Whose condition it is.
    pub fn scope(self) -> HealthScope {
        self.row().2
    }

    /// The effect on the endpoints of the broker that reports it.
    pub fn effect(self) -> EndpointEffect {
        self.row().3
    }

    /// Whether `highwater cluster health` exits 1 because of it.
    pub fn fails_cluster(self) -> bool {
        self.row().4
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A condition, and the sentence that names its subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HealthReason {
    /// Which condition.
    pub condition: Condition,
    /// A sentence for operators: the subject, the cause, and where it is not obvious the remedy.
    pub detail: String,
}

impl HealthReason {
    /// This condition with this sentence.
    pub fn new(condition: Condition, detail: impl Into<String>) -> HealthReason {
        HealthReason { condition, detail: detail.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_condition_has_one_row_and_one_code() {
        // The last variant of the enum: the rows are as many as the variants.
        assert_eq!(TABLE.len(), C::InternalTopicReplicas as usize + 1);
        let rows: BTreeSet<Condition> = Condition::all().collect();
        let codes: BTreeSet<&str> = TABLE.iter().map(|row| row.1).collect();
        assert_eq!((rows.len(), codes.len()), (TABLE.len(), TABLE.len()));
        for condition in Condition::all() {
            assert_eq!(Condition::from_code(condition.code()), Some(condition));
        }
        assert_eq!(Condition::from_code("no such code"), None);
    }

    #[test]
    fn a_condition_of_the_cluster_changes_no_code_of_a_broker() {
        for condition in Condition::all() {
            let of_cluster = condition.scope() == HealthScope::Cluster;
            assert_eq!(of_cluster, condition.effect() == EndpointEffect::Named, "{condition}");
        }
    }
}
