//! Health of one broker: its facts, and the answers of its endpoints.

use std::time::Duration;

use super::condition::{Condition, EndpointEffect, HealthReason};

/// Age of an unfinished write or sync from which a log directory counts as hung.
pub const HUNG_AFTER: Duration = Duration::from_secs(1);

/// How far the broker's process is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BrokerPhase {
    /// It recovers logs, joins the quorum or registers.
    #[default]
    Starting,
    /// It serves clients.
    Running,
    /// It received a signal to stop.
    Stopping,
}

/// The broker's registration in the metadata that it has applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegistrationState {
    /// The metadata has no registration of this process.
    #[default]
    Absent,
    /// Registered; the controller fenced it.
    Fenced,
    /// Registered; it leads partitions and is in ISRs.
    Serving,
}

/// Facts about one log directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryFacts {
    /// Path as configured.
    pub path: String,
    /// The failure that took the directory offline.
    pub failure: Option<String>,
    /// Whether appends are refused because the disk is full.
    pub is_full: bool,
    /// Age of the oldest unfinished write or sync; zero if there is none.
    pub unfinished_for: Duration,
    /// The reason why the controller counts the directory as a copy of an earlier state.
    pub copied: Option<String>,
}

impl DirectoryFacts {
    fn is_hung(&self) -> bool {
        self.failure.is_none() && self.unfinished_for >= HUNG_AFTER
    }

    fn is_usable(&self) -> bool {
        self.failure.is_none() && !self.is_full && !self.is_hung()
    }
}

/// The metadata quorum as this node knows it, and as its file names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VoterFacts {
    /// This node.
    pub node: i32,
    /// The leader of the quorum that this node knows.
    pub leader: Option<i32>,
    /// Voters in the committed membership, ascending; empty if this node knows none yet.
    pub voters: Vec<i32>,
    /// Voters that answered this node lately, itself included, if it was elected leader and no majority answers it.
    pub answering: Option<usize>,
    /// Voters of `controller.quorum.voters`, ascending; empty if the key is not set.
    pub listed: Vec<i32>,
    /// Node that tried to connect to this node as to a voter though this node opens no controller
    /// port: its address.
    pub uninvited: Option<String>,
}

/// A feature whose finalized level is below the level that every broker supports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureLag {
    /// Name of the feature.
    pub feature: String,
    /// Finalized level; zero if the feature is not finalized.
    pub finalized: i16,
    /// The highest level that every registered broker supports.
    pub supported: i16,
}

/// The slowest of the in-sync followers that acknowledged records last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcknowledgerFacts {
    /// The follower.
    pub broker: i32,
    /// Its longest acknowledgement within a minute.
    pub longest: Duration,
    /// Whether it has been slow for half a minute.
    pub is_slow: bool,
}

/// Everything that decides the health of a broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerFacts {
    /// Names of thread groups that are stalled ([`super::pulse`]).
    pub stalled_threads: Vec<&'static str>,
    /// How far the process is.
    pub phase: BrokerPhase,
    /// The registration.
    pub registration: RegistrationState,
    /// The log directories.
    pub directories: Vec<DirectoryFacts>,
    /// Whether a hung disk keeps the broker from applying metadata.
    pub metadata_held_up: bool,
    /// Refused partitions, each with its cause.
    pub refused_partitions: Vec<(String, String)>,
    /// Partitions of `__consumer_offsets` that cannot be loaded, each with its cause.
    pub failed_coordinators: Vec<(String, String)>,
    /// Partitions that the cleaner skips because they are damaged.
    pub uncompacted_partitions: Vec<String>,
    /// Folders that belong to no topic, each with the reason.
    pub stray_folders: Vec<(String, String)>,
    /// Partitions of which this broker refuses records as a superseded leader.
    pub superseded_partitions: usize,
    /// Partitions whose follower refused to remove committed records, each with its cause.
    pub refused_truncations: Vec<(String, String)>,
    /// Time since an active controller answered, if that is a session or longer.
    pub controller_silent_for: Option<Duration>,
    /// The metadata quorum.
    pub quorum: VoterFacts,
    /// Features that can be finalized.
    pub feature_lags: Vec<FeatureLag>,
    /// Partitions of the whole cluster without a leader.
    pub leaderless_partitions: usize,
    /// Partitions of which no complete replica is left, each with the replica that has the greatest log end. Only the
    /// active controller names them.
    pub lost_partitions: Vec<(String, String)>,
    /// Brokers whose leaderships this node, as the active controller, gave to other replicas because
    /// they are silent.
    pub suspected_brokers: Vec<i32>,
    /// The follower that acknowledged records of this leader slowest within a minute, if it did so last.
    pub slowest_acknowledger: Option<AcknowledgerFacts>,
}

impl BrokerFacts {
    /// Facts of a broker of one node that is well.
    pub fn well() -> BrokerFacts {
        BrokerFacts {
            phase: BrokerPhase::Running,
            registration: RegistrationState::Serving,
            directories: vec![DirectoryFacts::default()],
            quorum: VoterFacts { node: 1, leader: Some(1), voters: vec![1], ..Default::default() },
            ..BrokerFacts::default()
        }
    }

    /// Everything that is not well, the strongest effect first.
    fn reasons(&self) -> Vec<HealthReason> {
        let mut found = Vec::new();
        self.add_process(&mut found);
        self.add_directories(&mut found);
        self.add_partitions(&mut found);
        self.add_controller(&mut found);
        self.add_cluster(&mut found);
        found.sort_by_key(|reason| std::cmp::Reverse(reason.condition.effect()));
        found
    }

    fn add_process(&self, found: &mut Vec<HealthReason>) {
        let mut add = |condition, detail: &str| found.push(HealthReason::new(condition, detail));
        for threads in &self.stalled_threads {
            let detail = format!("the {threads} threads have not run for 10 s");
            add(Condition::ThreadsStalled, &detail);
        }
        match self.phase {
            BrokerPhase::Starting => {
                return add(Condition::Starting, "the broker has not finished its start");
            }
            BrokerPhase::Running => {}
            BrokerPhase::Stopping => add(Condition::Stopping, "the broker stops"),
        }
        match self.registration {
            RegistrationState::Absent => {
                add(Condition::Unregistered, "the metadata has no registration of this process");
            }
            RegistrationState::Fenced => {
                add(Condition::Fenced, "the controller fenced this broker: other brokers lead");
            }
            RegistrationState::Serving => {}
        }
        if self.superseded_partitions > 0 {
            let detail = format!(
                "no controller reached this broker with metadata for a session: it refuses acks=0 and acks=1 for {} \
                 partitions that other brokers may lead",
                self.superseded_partitions
            );
            add(Condition::LeaderSuperseded, &detail);
        }
        if self.metadata_held_up {
            add(
                Condition::MetadataHeldUp,
                "a disk hangs: the broker does not apply the cluster's metadata, and serves no \
                 clients until it has caught up",
            );
        }
    }

    fn add_directories(&self, found: &mut Vec<HealthReason>) {
        for directory in &self.directories {
            let path = &directory.path;
            let mut add = |condition, detail| found.push(HealthReason::new(condition, detail));
            if let Some(failure) = &directory.failure {
                add(Condition::DirectoryOffline, format!("{path}: {failure}"));
            } else if directory.is_full {
                let detail =
                    format!("{path}: the disk is full; appends are refused until there is room");
                add(Condition::DirectoryFull, detail);
            }
            if directory.is_hung() {
                let seconds = directory.unfinished_for.as_secs_f64();
                let detail = format!("{path}: a write or sync is unfinished for {seconds:.1} s");
                add(Condition::DirectoryHung, detail);
            }
            if let Some(copied) = &directory.copied {
                add(Condition::DirectoryCopied, format!("{path}: {copied}"));
            }
        }
        if !self.directories.is_empty() && !self.directories.iter().any(DirectoryFacts::is_usable) {
            let detail = "no log directory takes appends: each is offline, full or hung";
            found.push(HealthReason::new(Condition::NoUsableDirectory, detail));
        }
    }

    fn add_partitions(&self, found: &mut Vec<HealthReason>) {
        let mut add_each = |condition, named: &[(String, String)], hint: &str| {
            for (name, cause) in named {
                found.push(HealthReason::new(condition, format!("{name}: {cause}{hint}")));
            }
        };
        add_each(Condition::PartitionRefused, &self.refused_partitions, "");
        add_each(Condition::CoordinatorFailed, &self.failed_coordinators, "; the broker retries");
        add_each(
            Condition::TruncationRefused,
            &self.refused_truncations,
            "; `highwater cluster elect --unclean` allows it",
        );
        add_each(Condition::StrayFolder, &self.stray_folders, "");
        for name in &self.uncompacted_partitions {
            let detail = format!("{name}: damaged; the cleaner's log line names the place");
            found.push(HealthReason::new(Condition::PartitionNotCompacted, detail));
        }
    }

    fn add_controller(&self, found: &mut Vec<HealthReason>) {
        let quorum = &self.quorum;
        let mut add = |condition, detail| found.push(HealthReason::new(condition, detail));
        if let Some(silence) = self.controller_silent_for {
            let detail = format!(
                "no active controller answered for {:.1} s: leaders and in-sync replicas shown by this \
                 broker may be outdated",
                silence.as_secs_f64()
            );
            add(Condition::ControllerUnreachable, detail);
        }
        if let Some(answering) = quorum.answering
            && answering * 2 <= quorum.voters.len()
        {
            let detail = format!(
                "this node was elected leader of the metadata quorum and {answering} of {} voters answer: \
                 another controller may be active",
                quorum.voters.len()
            );
            add(Condition::QuorumMajorityLost, detail);
        } else if self.phase != BrokerPhase::Starting && quorum.leader.is_none() {
            let detail =
                "the metadata quorum has no leader: no leader is elected and no topic created";
            add(Condition::QuorumLeaderless, detail.to_owned());
        }
        if let Some(detail) = quorum.difference() {
            add(Condition::VotersDiffer, detail);
        }
        if let Some(address) = &quorum.uninvited {
            let detail = format!(
                "node at {address} connects to this node as to a voter, and controller.quorum.voters of \
                 this node lists no other node, so that no controller port is open: write the same \
                 voters into every file, before the first start of a cluster"
            );
            add(Condition::ControllerPortClosed, detail);
        }
    }

    fn add_cluster(&self, found: &mut Vec<HealthReason>) {
        let mut add = |condition, detail| found.push(HealthReason::new(condition, detail));
        for lag in &self.feature_lags {
            let FeatureLag { feature, finalized, supported } = lag;
            let detail = format!(
                "{feature} is finalized at level {finalized}, and every broker supports level {supported}: \
                 run `highwater cluster finalize` when no broker will return to the release before"
            );
            add(Condition::LevelUnfinalized, detail);
        }
        if self.leaderless_partitions > 0 {
            let partitions = counted(self.leaderless_partitions, "partition");
            let detail = format!("{partitions} of the cluster without a leader");
            add(Condition::PartitionsLeaderless, detail);
        }
        for (name, cause) in &self.lost_partitions {
            add(Condition::CompleteReplicasLost, format!("{name}: {cause}"));
        }
        for broker in &self.suspected_brokers {
            let detail = format!(
                "broker {broker} is silent: in-sync replicas of other brokers lead instead"
            );
            add(Condition::BrokerSuspected, detail);
        }
        if let Some(slowest) = self.slowest_acknowledger.filter(|slowest| slowest.is_slow) {
            let detail = format!(
                "broker {} acknowledges last, up to {} ms after it got the records: producers with acks=all \
                 wait for its disk",
                slowest.broker,
                slowest.longest.as_millis()
            );
            add(Condition::AcknowledgerSlow, detail);
        }
    }
}

impl VoterFacts {
    /// A sentence if the voters of the file and those of the quorum differ.
    pub fn difference(&self) -> Option<String> {
        if self.listed.is_empty() || self.voters.is_empty() || self.listed == self.voters {
            return None;
        }
        let without = |all: &[i32], others: &[i32]| -> Vec<i32> {
            all.iter().copied().filter(|id| !others.contains(id)).collect()
        };
        let missing = without(&self.listed, &self.voters);
        let unlisted = without(&self.voters, &self.listed);
        let mut sentence = format!(
            "controller.quorum.voters lists {}, and the voters of the metadata quorum are {}",
            ids(&self.listed),
            ids(&self.voters)
        );
        if !missing.is_empty() {
            sentence += &format!(
                ": {} not vote; losing {} stops all decisions of the controller",
                verb(&missing, "does", "do"),
                match self.voters.len() {
                    1 => format!("node {}", self.voters[0]),
                    voters => format!("{} of {}", voters - voters / 2, ids(&self.voters)),
                }
            );
        }
        if !unlisted.is_empty() {
            sentence +=
                &format!(": {} not in the file", verb(&unlisted, "votes and is", "vote and are"));
        }
        Some(sentence)
    }
}

/// Ids separated by commas.
fn ids(ids: &[i32]) -> String {
    ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

/// "node 2 does", "nodes 2,3 do".
fn verb(nodes: &[i32], singular: &str, plural: &str) -> String {
    match nodes {
        [node] => format!("node {node} {singular}"),
        nodes => format!("nodes {} {plural}", ids(nodes)),
    }
}

/// "1 partition", "2 partitions".
pub(super) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The answer of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// Whether the code is 200; else it is 503.
    pub is_ok: bool,
    /// The status word.
    pub status: &'static str,
    /// Reasons in the body.
    pub reasons: Vec<HealthReason>,
}

/// The health of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerHealth {
    reasons: Vec<HealthReason>,
    slowest_acknowledger: Option<AcknowledgerFacts>,
}

impl BrokerHealth {
    /// Decides.
    pub fn of(facts: &BrokerFacts) -> BrokerHealth {
        let slowest_acknowledger = facts.slowest_acknowledger;
        BrokerHealth { reasons: facts.reasons(), slowest_acknowledger }
    }

    /// The slowest of the followers that acknowledged records of this leader last.
    pub fn slowest_acknowledger(&self) -> Option<AcknowledgerFacts> {
        self.slowest_acknowledger
    }

    /// Everything that is not well, the strongest effect first.
    pub fn reasons(&self) -> &[HealthReason] {
        &self.reasons
    }

    fn effect(&self) -> Option<EndpointEffect> {
        self.reasons.first().map(|reason| reason.condition.effect())
    }

    /// Whether every condition of the broker itself is well enough for `/healthz` to return 200.
    pub fn is_available(&self) -> bool {
        self.effect() < Some(EndpointEffect::Unavailable)
    }

    /// The status word of `/healthz`: `ok`, `degraded` or `unavailable`.
    pub fn status(&self) -> &'static str {
        match self.effect() {
            None | Some(EndpointEffect::Named) => "ok",
            Some(EndpointEffect::Degraded) => "degraded",
            Some(_) => "unavailable",
        }
    }

    /// The answer of `/healthz`.
    pub fn healthz(&self) -> ProbeAnswer {
        ProbeAnswer {
            is_ok: self.is_available(),
            status: self.status(),
            reasons: self.reasons.clone(),
        }
    }

    /// The answer of `/readyz`: whether clients may be sent to this broker.
    pub fn readyz(&self) -> ProbeAnswer {
        let is_ok = self.effect() < Some(EndpointEffect::NotReady);
        let status = if is_ok { "ok" } else { "not ready" };
        ProbeAnswer { is_ok, status, reasons: self.reasons.clone() }
    }

    /// The answer of `/livez`: whether a supervisor should leave the process alone.
    pub fn livez(&self) -> ProbeAnswer {
        let is_stalled =
            |reason: &&HealthReason| reason.condition.effect() == EndpointEffect::NotLive;
        let reasons: Vec<_> = self.reasons.iter().filter(is_stalled).cloned().collect();
        let is_ok = reasons.is_empty();
        ProbeAnswer { is_ok, status: if is_ok { "ok" } else { "stalled" }, reasons }
    }
}
