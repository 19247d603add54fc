//! Health of a cluster, from its metadata and the reports of its brokers.

use std::collections::BTreeSet;
use std::time::Duration;

use super::broker::counted;
use super::condition::{Condition, HealthReason, HealthScope};
use super::report::ReportedReason;

/// Replicas that an internal topic has in a cluster of three brokers or more.
const INTERNAL_REPLICAS: usize = 3;

/// The report of one broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerReport {
    /// The broker's reasons.
    Reasons(Vec<ReportedReason>),
    /// The broker has no report: it is fenced, or another program.
    Absent,
    /// The broker did not answer; the cause.
    Unreachable(String),
}

/// One registered broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredBroker {
    /// Its id.
    pub id: i32,
    /// Whether the controller fenced it.
    pub is_fenced: bool,
    /// Its report.
    pub report: BrokerReport,
    /// The follower that acknowledged its records slowest within a minute, and the longest time.
    pub slowest_acknowledger: Option<(i32, Duration)>,
}

/// One partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionFacts<'a> {
    /// Its topic.
    pub topic: &'a str,
    /// Its number.
    pub index: i32,
    /// Whether only brokers write to the topic.
    pub is_internal: bool,
    /// Whether it has a leader.
    pub has_leader: bool,
    /// Assigned replicas.
    pub replicas: usize,
    /// In-sync replicas.
    pub in_sync: usize,
}

/// Everything that decides the health of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterFacts<'a> {
    /// All registered brokers.
    pub brokers: Vec<RegisteredBroker>,
    /// Leader of the metadata quorum, if one is known.
    pub controller: Option<i32>,
    /// All partitions.
    pub partitions: Vec<PartitionFacts<'a>>,
}

/// One reason why a cluster is not well.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterReason {
    /// The broker that reported it, or that it concerns.
    pub broker: Option<i32>,
    /// The stable code.
    pub code: String,
    /// The sentence.
    pub detail: String,
    /// Whether `cluster health` exits 1 because of it.
    pub is_failure: bool,
}

/// The health of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterHealth {
    /// Brokers that serve.
    pub serving: usize,
    /// Registered brokers that the controller fenced, ascending.
    pub fenced: Vec<i32>,
    /// Partitions without a leader, as `TOPIC-PARTITION`, ascending.
    pub leaderless: Vec<String>,
    /// Partitions with replicas out of sync, as `TOPIC-PARTITION`, ascending.
    pub under_replicated: Vec<String>,
    /// The slowest follower of all brokers that acknowledged last within a minute, and the longest time.
    pub slowest_acknowledger: Option<(i32, Duration)>,
    /// Everything else that is not well.
    pub reasons: Vec<ClusterReason>,
}

impl ClusterHealth {
    /// Decides.
    pub fn of(facts: &ClusterFacts<'_>) -> ClusterHealth {
        let fenced = facts.brokers.iter().filter(|broker| broker.is_fenced);
        let mut fenced: Vec<i32> = fenced.map(|broker| broker.id).collect();
        fenced.sort_unstable();
        let named = |is_meant: fn(&PartitionFacts<'_>) -> bool| -> Vec<String> {
            let meant = facts.partitions.iter().filter(|partition| is_meant(partition));
            let mut names: Vec<String> =
                meant.map(|found| format!("{}-{}", found.topic, found.index)).collect();
            names.sort();
            names
        };
        let mut health = ClusterHealth {
            serving: facts.brokers.len() - fenced.len(),
            fenced,
            leaderless: named(|partition| !partition.has_leader),
            under_replicated: named(|partition| partition.in_sync < partition.replicas),
            slowest_acknowledger: facts
                .brokers
                .iter()
                .filter_map(|broker| broker.slowest_acknowledger)
                .max_by_key(|(_, longest)| *longest),
            reasons: Vec::new(),
        };
        if facts.controller.is_none() {
            let detail =
                "the metadata quorum has no leader: no leader is elected and no topic created";
            health.add(None, HealthReason::new(Condition::QuorumLeaderless, detail));
        }
        health.add_internal_topics(facts);
        for broker in &facts.brokers {
            health.add_report(broker);
        }
        health.reasons.sort();
        health.reasons.dedup();
        health
    }

    /// Health of a cluster of which no broker answers; the cause.
    pub fn of_silence(cause: impl Into<String>) -> ClusterHealth {
        let mut health = ClusterHealth::default();
        health.add(None, HealthReason::new(Condition::BrokerUnreachable, cause));
        health
    }

    /// Whether `cluster health` exits 0.
    pub fn is_healthy(&self) -> bool {
        self.fenced.is_empty()
            && self.leaderless.is_empty()
            && self.under_replicated.is_empty()
            && !self.reasons.iter().any(|reason| reason.is_failure)
    }

    fn add(&mut self, broker: Option<i32>, reason: HealthReason) {
        let HealthReason { condition, detail } = reason;
        self.reasons.push(ClusterReason {
            broker,
            code: condition.code().to_owned(),
            detail,
            is_failure: condition.fails_cluster(),
        });
    }

    fn add_report(&mut self, broker: &RegisteredBroker) {
        match &broker.report {
            BrokerReport::Absent => {}
            BrokerReport::Unreachable(cause) => {
                let reason = HealthReason::new(Condition::BrokerUnreachable, cause.clone());
                self.add(Some(broker.id), reason);
            }
            BrokerReport::Reasons(reasons) => {
                for reason in reasons {
                    self.add_reported(broker.id, reason);
                }
            }
        }
    }

    fn add_reported(&mut self, broker: i32, reason: &ReportedReason) {
        match reason {
            // The metadata names them.
            ReportedReason::Known(reason)
                if reason.condition == Condition::PartitionsLeaderless => {}
            ReportedReason::Known(reason) => {
                let of_broker = reason.condition.scope() == HealthScope::Broker;
                self.add(of_broker.then_some(broker), reason.clone());
            }
            ReportedReason::Unknown { code, detail } => self.reasons.push(ClusterReason {
                broker: Some(broker),
                code: code.clone(),
                detail: detail.clone(),
                is_failure: true,
            }),
        }
    }

    fn add_internal_topics(&mut self, facts: &ClusterFacts<'_>) {
        let wanted = INTERNAL_REPLICAS.min(facts.brokers.len());
        let short = facts.partitions.iter().filter(|it| it.is_internal && it.replicas < wanted);
        let topics: BTreeSet<&str> = short.map(|partition| partition.topic).collect();
        for topic in topics {
            let replicas = facts.partitions.iter().filter(|partition| partition.topic == topic);
            let fewest = replicas.map(|partition| partition.replicas).min().unwrap_or(0);
            let detail = format!(
                "{topic} has partitions with {}; {} hold it in a cluster of {}",
                counted(fewest, "replica"),
                counted(wanted, "broker"),
                facts.brokers.len(),
            );
            self.add(None, HealthReason::new(Condition::InternalTopicReplicas, detail));
        }
    }
}
