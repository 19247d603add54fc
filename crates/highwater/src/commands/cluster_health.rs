//! `cluster health`: collects the metadata, the metadata quorum and the report of each broker;
//! `serving::health` decides.

use std::process::ExitCode;
use std::time::Duration;

use client::{Admin, Metadata};
use serde::Serialize;
use serving::health::Condition;
use serving::health::cluster::{
    BrokerReport, ClusterFacts, ClusterHealth, ClusterReason, PartitionFacts, RegisteredBroker,
};
use serving::health::report::{self, ReportedReason};
use tokio::task::JoinSet;
use tokio::time::timeout;
use wire::describe_cluster::DescribeClusterBroker;

use crate::arguments::Connection;
use crate::commands::cluster::{ClusterView, read_cluster};
use crate::failure::Failure;
use crate::output::{self, Format};

/// Partitions that the text names; the JSON names all.
const NAMED_MAX: usize = 20;
/// Time for the report of one broker.
const REPORT_PATIENCE: Duration = Duration::from_secs(5);

/// The reports of all brokers that are not fenced, by id. A fenced broker is not asked: the metadata names it.
pub async fn read_reports(
    admin: &Admin,
    brokers: &[DescribeClusterBroker],
) -> Vec<RegisteredBroker> {
    let mut reading = JoinSet::new();
    for broker in brokers {
        let (admin, id, is_fenced) = (admin.clone(), broker.broker_id, broker.is_fenced);
        reading.spawn(async move {
            let (report, slowest_acknowledger) = match is_fenced {
                true => (BrokerReport::Absent, None),
                false => read_report(&admin, id).await,
            };
            RegisteredBroker { id, is_fenced, report, slowest_acknowledger }
        });
    }
    let mut registered = reading.join_all().await;
    registered.sort_by_key(|broker| broker.id);
    registered
}

/// The report of a broker, and the slowest acknowledger in it.
async fn read_report(admin: &Admin, broker: i32) -> (BrokerReport, Option<(i32, Duration)>) {
    let read = timeout(REPORT_PATIENCE, admin.broker_config(broker, report::CONFIG_NAME)).await;
    let Ok(read) = read else {
        let seconds = REPORT_PATIENCE.as_secs();
        let cause = format!("no answer within {seconds} s");
        return (BrokerReport::Unreachable(cause), None);
    };
    let slowest = read.as_ref().ok().and_then(|text| report::decode_slowest(text.as_deref()?));
    let report = match read {
        Err(error) => BrokerReport::Unreachable(error.to_string()),
        // Another program, or an earlier release.
        Ok(None) => BrokerReport::Absent,
        Ok(Some(text)) => BrokerReport::Reasons(report::decode(&text).unwrap_or_else(|error| {
            let code = "unreadable_report".to_owned();
            vec![ReportedReason::Unknown { code, detail: error }]
        })),
    };
    (report, slowest)
}

fn partitions(metadata: &Metadata) -> Vec<PartitionFacts<'_>> {
    let mut facts = Vec::new();
    for topic in metadata.topics.values() {
        facts.extend(topic.partitions.iter().map(|partition| PartitionFacts {
            topic: &topic.name,
            index: partition.index,
            is_internal: topic.is_internal,
            has_leader: partition.leader.is_some(),
            replicas: partition.replicas.len(),
            in_sync: partition.isr.len(),
        }));
    }
    facts
}

#[derive(Serialize)]
struct Reason {
    /// The broker that reports it; absent if it concerns the cluster.
    broker: Option<i32>,
    /// The stable code.
    reason: String,
    /// The sentence.
    detail: String,
    /// Whether the exit code is 1 because of it.
    fails: bool,
}

impl Reason {
    fn new(reason: ClusterReason) -> Reason {
        let ClusterReason { broker, code, detail, is_failure } = reason;
        Reason { broker, reason: code, detail, fails: is_failure }
    }

    fn line(&self) -> String {
        let subject = match self.broker {
            Some(broker) => format!("broker {broker}"),
            None => "cluster".to_owned(),
        };
        let kind = if self.fails { "" } else { " (note)" };
        format!("{subject}: {}{kind}: {}\n", self.reason, self.detail)
    }
}

/// The answer of the command.
#[derive(Serialize, Default)]
struct Health {
    healthy: bool,
    /// Brokers that serve.
    brokers: usize,
    topics: usize,
    partitions: usize,
    /// Registered brokers that the controller fenced.
    fenced: Vec<i32>,
    /// Partitions without a leader.
    without_leader: Vec<String>,
    /// Partitions with a replica out of sync.
    under_replicated: Vec<String>,
    /// The slowest of the in-sync followers that acknowledged records last within a minute.
    slowest_acknowledger: Option<Acknowledger>,
    /// Everything else that is not well.
    reasons: Vec<Reason>,
}

#[derive(Serialize)]
struct Acknowledger {
    broker: i32,
    /// Longest time of an acknowledgement.
    ms: u128,
}

impl Health {
    fn new(view: &ClusterView, registered: Vec<RegisteredBroker>) -> Health {
        let facts = ClusterFacts {
            brokers: registered,
            controller: view.controller,
            partitions: partitions(&view.metadata),
        };
        let decided = ClusterHealth::of(&facts);
        Health {
            healthy: decided.is_healthy(),
            brokers: decided.serving,
            topics: view.metadata.topics.len(),
            partitions: facts.partitions.len(),
            fenced: decided.fenced,
            without_leader: decided.leaderless,
            under_replicated: decided.under_replicated,
            slowest_acknowledger: decided
                .slowest_acknowledger
                .map(|(broker, longest)| Acknowledger { broker, ms: longest.as_millis() }),
            reasons: decided.reasons.into_iter().map(Reason::new).collect(),
        }
    }

    /// Health of a cluster of which no broker answers.
    fn of_silence(failure: &Failure) -> Health {
        let decided = ClusterHealth::of_silence(format!(
            "{failure}; /healthz at a broker's http.listener answers while its disk hangs"
        ));
        let reasons = decided.reasons.into_iter().map(Reason::new).collect();
        Health { reasons, ..Health::default() }
    }

    /// The next step for the operator.
    fn hint(&self) -> Option<String> {
        if let Some(first) = self.fenced.first() {
            return Some(format!(
                "start the fenced brokers again; remove a broker that will not return with \
                 `highwater cluster unregister {first}`"
            ));
        }
        let lost = self.without_leader.iter().find(|name| self.has_lost_replicas(name));
        if let Some(first) = lost.and_then(|name| name.rsplit_once('-')) {
            return Some(format!(
                "none of the brokers that run has all records of the partition: bring back the log directory that \
                 has them (unmounted, or of a broker that was unregistered), or elect the replica that the reason \
                 complete_replicas_lost names, without the other records: `highwater cluster elect --unclean {}:{}`",
                first.0, first.1
            ));
        }
        if !self.without_leader.is_empty() {
            return Some(
                "an election may be under way: run the command again in some seconds".to_owned(),
            );
        }
        if self.reasons.iter().any(|reason| reason.fails) {
            return Some("docs/cluster.md has a remedy for each condition".to_owned());
        }
        (!self.under_replicated.is_empty()).then(|| {
            "replicas are catching up, or a broker that had them was unregistered: `highwater topic describe` shows \
             which are in sync"
                .to_owned()
        })
    }

    /// Whether the active controller reports that no complete replica of a partition (`TOPIC-NUMBER`) is left.
    fn has_lost_replicas(&self, partition: &str) -> bool {
        let is_named = |detail: &str| {
            detail.strip_prefix(partition).is_some_and(|cause| cause.starts_with(": "))
        };
        let code = Condition::CompleteReplicasLost.code();
        self.reasons.iter().any(|reason| reason.reason == code && is_named(&reason.detail))
    }

    fn text(&self) -> String {
        let names = |partitions: &[String]| match partitions.len() {
            0 => "0".to_owned(),
            count if count > NAMED_MAX => {
                format!("{count} ({}, …)", partitions[..NAMED_MAX].join(", "))
            }
            count => format!("{count} ({})", partitions.join(", ")),
        };
        let fenced: Vec<String> = self.fenced.iter().map(i32::to_string).collect();
        let mut text = format!(
            "healthy: {}\nbrokers: {}\nfenced: {}\ntopics: {}\npartitions: {}\nwithout leader: {}\n\
             under-replicated: {}\n",
            if self.healthy { "yes" } else { "no" },
            self.brokers,
            names(&fenced),
            self.topics,
            self.partitions,
            names(&self.without_leader),
            names(&self.under_replicated),
        );
        if let Some(Acknowledger { broker, ms }) = &self.slowest_acknowledger {
            text += &format!("slowest acknowledger: broker {broker}, {ms} ms\n");
        }
        text.extend(self.reasons.iter().map(Reason::line));
        text
    }
}

/// `cluster health`
pub fn run(format: Format, connection: &Connection) -> Result<ExitCode, Failure> {
    let health = match read_cluster(connection, read_reports) {
        Ok((view, registered)) => Health::new(&view, registered),
        Err(failure) if failure.is_unreachable() => Health::of_silence(&failure),
        Err(failure) => return Err(failure),
    };
    output::print_one(format, &health, Health::text)?;
    if let Some(hint) = health.hint() {
        anstream::eprintln!("hint: {hint}");
    }
    Ok(if health.healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_that_run_are_not_to_be_started() {
        let reason = Reason {
            broker: Some(1),
            reason: Condition::CompleteReplicasLost.code().to_owned(),
            detail: "few-0: no complete replica is left".to_owned(),
            fails: true,
        };
        let without_leader = vec!["few-00".to_owned(), "few-0".to_owned()];
        let lost = Health { without_leader, reasons: vec![reason], ..Health::default() };
        let hint = lost.hint().unwrap();
        assert!(!hint.contains("start") && hint.contains("--unclean few:0`"), "{hint}");
        let away = Health { fenced: vec![2], ..lost };
        assert!(away.hint().unwrap().contains("start the fenced brokers"));
    }

    #[test]
    fn an_election_that_may_be_under_way_is_waited_for() {
        let waiting = Health { without_leader: vec!["few-0".to_owned()], ..Health::default() };
        let hint = waiting.hint().unwrap();
        assert!(!hint.contains("--unclean") && hint.contains("run the command again"), "{hint}");
    }

    const DOCUMENT: &str = include_str!("../../../../docs/cluster.md");

    #[test]
    fn the_samples_in_the_document_are_what_is_printed() {
        let well = Health {
            healthy: true,
            brokers: 3,
            topics: 1,
            partitions: 3,
            slowest_acknowledger: Some(Acknowledger { broker: 3, ms: 4 }),
            ..Health::default()
        };
        let reason = Reason {
            broker: Some(2),
            reason: "log_directory_full".to_owned(),
            detail: "/data: the disk is full; appends are refused until there is room".to_owned(),
            fails: true,
        };
        let full = Health {
            healthy: false,
            brokers: 3,
            topics: 1,
            partitions: 3,
            reasons: vec![reason],
            ..Health::default()
        };
        for health in [well, full] {
            let text = health.text();
            assert!(DOCUMENT.contains(&text), "docs/cluster.md does not show\n{text}");
        }
    }
}
