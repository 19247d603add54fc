//! The faults that a broker can see (F01 to F35 of the fault catalogue), each with the answer of
//! every health surface.

use std::time::Duration;

use serving::health::broker::{
    AcknowledgerFacts, BrokerFacts, BrokerPhase, DirectoryFacts, FeatureLag, RegistrationState,
    VoterFacts,
};
use serving::health::cluster::{BrokerReport, ClusterFacts, PartitionFacts, RegisteredBroker};
use serving::health::report;
use serving::health::{BrokerHealth, ClusterHealth};

/// One fault as a broker sees it, with the expected answers of this broker.
struct Fault {
    /// Which faults of the catalogue lead to these facts.
    name: &'static str,
    /// Changes the facts of a well broker of three.
    happen: fn(&mut BrokerFacts),
    livez: u16,
    readyz: u16,
    healthz: u16,
    status: &'static str,
    /// The first reason, or none.
    code: Option<&'static str>,
    /// Exit code of `cluster health`, from this report alone.
    exit: u8,
}

fn well_of_three() -> BrokerFacts {
    let directory = |path: &str| DirectoryFacts { path: path.to_owned(), ..Default::default() };
    BrokerFacts {
        directories: vec![directory("/a"), directory("/b")],
        quorum: VoterFacts {
            node: 1,
            leader: Some(2),
            voters: vec![1, 2, 3],
            answering: None,
            listed: vec![1, 2, 3],
            uninvited: None,
        },
        ..BrokerFacts::well()
    }
}

fn named() -> Vec<(String, String)> {
    vec![("t-0".to_owned(), "damaged".to_owned())]
}

/// Name, what happens, /livez, /readyz, /healthz, its status, the first code, exit of `cluster health`.
const FAULTS: &[Fault] = &[
    fault("none", |_| {}, 200, 200, 200, "ok", None, 0),
    fault(
        "F01, F21: another broker was killed, and it alone had a partition's replica",
        |facts| facts.leaderless_partitions = 1,
        200,
        200,
        200,
        "ok",
        Some("partitions_leaderless"),
        // The metadata decides; this report alone repeats a part of it.
        0,
    ),
    fault(
        "F01, F02, F05: this broker was killed and recovers",
        |facts| {
            facts.phase = BrokerPhase::Starting;
            facts.registration = RegistrationState::Absent;
            facts.quorum.leader = None;
        },
        200,
        503,
        503,
        "unavailable",
        Some("starting"),
        1,
    ),
    fault(
        "F18: this broker stops",
        |facts| facts.phase = BrokerPhase::Stopping,
        200,
        503,
        503,
        "unavailable",
        Some("stopping"),
        1,
    ),
    fault(
        "F13, F14: this broker was paused or cut off and is fenced",
        |facts| facts.registration = RegistrationState::Fenced,
        200,
        503,
        503,
        "unavailable",
        Some("fenced"),
        1,
    ),
    fault(
        "F14: this broker was unregistered",
        |facts| facts.registration = RegistrationState::Absent,
        200,
        503,
        503,
        "unavailable",
        Some("unregistered"),
        1,
    ),
    fault(
        "F14: this broker is cut off from the controller",
        |facts| facts.controller_silent_for = Some(Duration::from_secs(9)),
        200,
        200,
        200,
        "degraded",
        Some("controller_unreachable"),
        1,
    ),
    fault(
        "F14: this broker is cut off and refuses as a superseded leader",
        |facts| {
            facts.controller_silent_for = Some(Duration::from_secs(9));
            facts.superseded_partitions = 3;
        },
        200,
        503,
        503,
        "unavailable",
        Some("leader_superseded"),
        1,
    ),
    fault(
        "F14: the leader of the quorum is cut off from the other voters",
        |facts| {
            facts.quorum.leader = None;
            facts.quorum.answering = Some(1);
        },
        200,
        200,
        200,
        "degraded",
        Some("quorum_majority_lost"),
        1,
    ),
    fault(
        "F14: the leader of the quorum is cut off from one voter",
        |facts| {
            facts.quorum.leader = Some(1);
            facts.quorum.answering = Some(2);
        },
        200,
        200,
        200,
        "ok",
        None,
        0,
    ),
    fault(
        "F14, F21: the quorum is lost",
        |facts| facts.quorum.leader = None,
        200,
        200,
        200,
        "ok",
        Some("quorum_leaderless"),
        1,
    ),
    fault(
        "F14: another broker is silent",
        |facts| facts.suspected_brokers = vec![3],
        200,
        200,
        200,
        "ok",
        Some("broker_suspected"),
        1,
    ),
    fault(
        "F09: the disk of a follower is slow",
        |facts| {
            let longest = Duration::from_millis(700);
            let slowest = AcknowledgerFacts { broker: 3, longest, is_slow: true };
            facts.slowest_acknowledger = Some(slowest);
        },
        200,
        200,
        200,
        "ok",
        Some("acknowledger_slow"),
        0,
    ),
    fault(
        "F07, F11: one directory of several is offline",
        |facts| facts.directories[1].failure = Some("input/output error".to_owned()),
        200,
        200,
        200,
        "degraded",
        Some("log_directory_offline"),
        1,
    ),
    fault(
        "F07, F11: all directories are offline",
        |facts| {
            for directory in &mut facts.directories {
                directory.failure = Some("input/output error".to_owned());
            }
        },
        200,
        200,
        503,
        "unavailable",
        Some("no_usable_log_directory"),
        1,
    ),
    fault(
        "F08: one directory of several is full",
        |facts| facts.directories[0].is_full = true,
        200,
        200,
        200,
        "degraded",
        Some("log_directory_full"),
        1,
    ),
    fault(
        "F08: the only directory is full",
        |facts| {
            facts.directories.truncate(1);
            facts.directories[0].is_full = true;
        },
        200,
        200,
        503,
        "unavailable",
        Some("no_usable_log_directory"),
        1,
    ),
    fault(
        "F12: a sync is slow and does not hang",
        |facts| facts.directories[0].unfinished_for = Duration::from_millis(999),
        200,
        200,
        200,
        "ok",
        None,
        0,
    ),
    fault(
        "F12: one disk of several hangs",
        |facts| facts.directories[0].unfinished_for = Duration::from_secs(1),
        200,
        200,
        200,
        "degraded",
        Some("log_directory_hung"),
        1,
    ),
    fault(
        "F12: a disk hangs and metadata waits for it",
        |facts| facts.metadata_held_up = true,
        200,
        200,
        503,
        "unavailable",
        Some("metadata_held_up"),
        1,
    ),
    fault(
        "F10, F11: a partition is damaged",
        |facts| facts.refused_partitions = named(),
        200,
        200,
        503,
        "unavailable",
        Some("partition_refused"),
        1,
    ),
    fault(
        "F10: a partition of __consumer_offsets cannot be loaded",
        |facts| facts.failed_coordinators = named(),
        200,
        200,
        503,
        "unavailable",
        Some("coordinator_failed"),
        1,
    ),
    fault(
        "F10: the cleaner skips a damaged partition",
        |facts| facts.uncompacted_partitions = vec!["t-0".to_owned()],
        200,
        200,
        200,
        "degraded",
        Some("partition_not_compacted"),
        0,
    ),
    fault(
        "F20: a folder of a deleted topic remains",
        |facts| facts.stray_folders = named(),
        200,
        200,
        200,
        "degraded",
        Some("stray_folder"),
        0,
    ),
    fault(
        "F11: a directory was replaced by an earlier copy",
        |facts| {
            facts.directories[0].copied = Some("its mark is below the committed mark".to_owned())
        },
        200,
        200,
        200,
        "degraded",
        Some("log_directory_copied"),
        1,
    ),
    fault(
        "F06, F11: a leader lacks committed records",
        |facts| facts.refused_truncations = named(),
        200,
        200,
        200,
        "degraded",
        Some("truncation_refused"),
        1,
    ),
    fault(
        "F21: the file lists three voters, the quorum has one",
        |facts| facts.quorum.voters = vec![1],
        200,
        200,
        200,
        "degraded",
        Some("voters_differ"),
        1,
    ),
    fault(
        "F21: others list this node as a voter and it opens no controller port",
        |facts| {
            (facts.quorum.listed, facts.quorum.voters) = (vec![1], vec![1]);
            facts.quorum.uninvited = Some("10.0.0.2:4711".to_owned());
        },
        200,
        200,
        200,
        "degraded",
        Some("controller_port_closed"),
        1,
    ),
    fault(
        "F34: every broker runs a later release",
        |facts| {
            let feature = "highwater.version".to_owned();
            facts.feature_lags = vec![FeatureLag { feature, finalized: 3, supported: 4 }];
        },
        200,
        200,
        200,
        "ok",
        Some("level_unfinalized"),
        1,
    ),
    fault(
        "F11: every complete replica of a partition was put back from a copy",
        |facts| facts.lost_partitions = named(),
        200,
        200,
        200,
        "ok",
        Some("complete_replicas_lost"),
        1,
    ),
    fault(
        "F33: the control threads do not run",
        |facts| facts.stalled_threads = vec!["control"],
        503,
        503,
        503,
        "unavailable",
        Some("threads_stalled"),
        1,
    ),
];

#[expect(clippy::too_many_arguments, reason = "a row of the table")]
const fn fault(
    name: &'static str,
    happen: fn(&mut BrokerFacts),
    livez: u16,
    readyz: u16,
    healthz: u16,
    status: &'static str,
    code: Option<&'static str>,
    exit: u8,
) -> Fault {
    Fault { name, happen, livez, readyz, healthz, status, code, exit }
}

fn code(is_ok: bool) -> u16 {
    if is_ok { 200 } else { 503 }
}

#[test]
fn each_fault_has_its_answer_on_each_surface() {
    for fault in FAULTS {
        let mut facts = well_of_three();
        (fault.happen)(&mut facts);
        let health = BrokerHealth::of(&facts);
        let first = health.reasons().first().map(|reason| reason.condition.code());
        let found = (
            code(health.livez().is_ok),
            code(health.readyz().is_ok),
            code(health.healthz().is_ok),
            health.status(),
            first,
        );
        let expected = (fault.livez, fault.readyz, fault.healthz, fault.status, fault.code);
        assert_eq!(found, expected, "{}", fault.name);
        let report = report::decode(&report::encode(&health)).expect("its own report");
        let facts = ClusterFacts {
            brokers: vec![RegisteredBroker {
                id: 1,
                is_fenced: false,
                report: BrokerReport::Reasons(report),
                slowest_acknowledger: None,
            }],
            controller: Some(2),
            partitions: Vec::new(),
        };
        let exit = u8::from(!ClusterHealth::of(&facts).is_healthy());
        assert_eq!(exit, fault.exit, "{}", fault.name);
    }
}

#[test]
fn each_condition_is_in_the_table_of_faults() {
    let in_table = |condition: &serving::health::Condition| {
        FAULTS.iter().any(|fault| {
            let mut facts = well_of_three();
            (fault.happen)(&mut facts);
            let health = BrokerHealth::of(&facts);
            health.reasons().iter().any(|reason| reason.condition == *condition)
        })
    };
    let missing: Vec<&str> = serving::health::Condition::all()
        .filter(|condition| !in_table(condition))
        .map(|condition| condition.code())
        .collect();
    // The cluster's own, from its metadata.
    let of_metadata = [
        "broker_fenced",
        "broker_unreachable",
        "partitions_under_replicated",
        "internal_topic_replicas",
    ];
    assert_eq!(missing, of_metadata);
}

fn registered(id: i32, is_fenced: bool, report: BrokerReport) -> RegisteredBroker {
    RegisteredBroker { id, is_fenced, report, slowest_acknowledger: None }
}

fn three() -> Vec<RegisteredBroker> {
    (1..=3).map(|id| registered(id, false, BrokerReport::Reasons(Vec::new()))).collect()
}

fn partition(topic: &str, replicas: usize) -> PartitionFacts<'_> {
    PartitionFacts {
        topic,
        index: 0,
        is_internal: topic.starts_with("__"),
        has_leader: true,
        replicas,
        in_sync: replicas,
    }
}

fn well_cluster() -> ClusterFacts<'static> {
    ClusterFacts {
        brokers: three(),
        controller: Some(1),
        partitions: vec![partition("__consumer_offsets", 3), partition("t", 1)],
    }
}

fn codes(facts: &ClusterFacts<'_>) -> (bool, Vec<String>) {
    let health = ClusterHealth::of(facts);
    (health.is_healthy(), health.reasons.into_iter().map(|reason| reason.code).collect())
}

#[test]
fn a_cluster_is_well_only_if_metadata_and_reports_agree() {
    assert_eq!(codes(&well_cluster()), (true, Vec::new()));
    let change = |change: fn(&mut ClusterFacts<'static>)| {
        let mut facts = well_cluster();
        change(&mut facts);
        let (healthy, codes) = codes(&facts);
        assert!(!healthy, "{facts:?}");
        codes
    };
    assert_eq!(change(|facts| facts.controller = None), ["quorum_leaderless"]);
    assert_eq!(change(|facts| facts.partitions[0].replicas = 1), ["internal_topic_replicas"]);
    assert_eq!(change(|facts| facts.partitions[1].has_leader = false), [""; 0]);
    assert_eq!(change(|facts| facts.partitions[0].in_sync = 2), [""; 0]);
    assert_eq!(change(|facts| facts.brokers[2].is_fenced = true), [""; 0]);
    let unreachable = change(|facts| {
        facts.brokers[1].report = BrokerReport::Unreachable("connection refused".to_owned());
    });
    assert_eq!(unreachable, ["broker_unreachable"]);
    let later = change(|facts| {
        let text = r#"{"status":"degraded","reasons":[{"reason":"new_one","detail":"x"}]}"#;
        facts.brokers[1].report = BrokerReport::Reasons(report::decode(text).unwrap());
    });
    assert_eq!(later, ["new_one"]);
    let silent = ClusterHealth::of_silence("no broker answers");
    let reasons: Vec<&str> = silent.reasons.iter().map(|reason| &*reason.code).collect();
    assert_eq!((silent.is_healthy(), reasons), (false, vec!["broker_unreachable"]));
}

#[test]
fn one_replica_of_an_internal_topic_is_enough_for_one_broker() {
    let facts = ClusterFacts {
        brokers: vec![registered(1, false, BrokerReport::Absent)],
        controller: Some(1),
        partitions: vec![partition("__consumer_offsets", 1)],
    };
    assert_eq!(codes(&facts), (true, Vec::new()));
}

#[test]
fn a_condition_that_two_brokers_report_of_the_cluster_appears_once() {
    let text = r#"{"status":"ok","reasons":[{"reason":"level_unfinalized","detail":"x"}]}"#;
    let mut facts = well_cluster();
    for broker in &mut facts.brokers[..2] {
        broker.report = BrokerReport::Reasons(report::decode(text).unwrap());
    }
    assert_eq!(codes(&facts), (false, vec!["level_unfinalized".to_owned()]));
}

#[test]
fn the_sentence_about_voters_names_the_nodes_that_do_not_vote() {
    let sentence = |listed: &[i32], voters: &[i32]| {
        let facts =
            VoterFacts { listed: listed.into(), voters: voters.into(), ..Default::default() };
        facts.difference().unwrap_or_default()
    };
    assert_eq!(sentence(&[1, 2, 3], &[1, 2, 3]), "");
    assert_eq!(sentence(&[], &[1]), "", "a file without the key");
    assert_eq!(sentence(&[1, 2, 3], &[]), "", "nothing is known yet");
    assert_eq!(
        sentence(&[1, 2, 3], &[1]),
        "controller.quorum.voters lists 1,2,3, and the voters of the metadata quorum are 1: \
         nodes 2,3 do not vote; losing node 1 stops all decisions of the controller"
    );
    assert_eq!(
        sentence(&[1, 2, 3], &[1, 2]),
        "controller.quorum.voters lists 1,2,3, and the voters of the metadata quorum are 1,2: \
         node 3 does not vote; losing 1 of 1,2 stops all decisions of the controller"
    );
    assert_eq!(
        sentence(&[1], &[1, 2]),
        "controller.quorum.voters lists 1, and the voters of the metadata quorum are 1,2: \
         node 2 votes and is not in the file"
    );
}
