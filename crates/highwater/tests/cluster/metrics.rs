//! What three processes count of the cluster, and that it moves when one of them is killed, comes back, or is silent.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use super::hints::{block_on, create, open};
use super::quorum::controller;
use super::replication::{all_acknowledged, produce};
use super::*;

/// The page of one broker: what stands behind the name and the labels of each row.
type Page = BTreeMap<String, f64>;

/// Where a broker shows its metrics.
fn http_address(broker: &Broker) -> String {
    let file = fs::read_to_string(Path::new(&broker.folder).join("server.properties")).unwrap();
    let line = file.lines().find_map(|line| line.strip_prefix("http.listener="));
    line.unwrap().to_owned()
}

fn page(broker: &Broker) -> Option<Page> {
    page_at(&http_address(broker))
}

fn page_at(http: &str) -> Option<Page> {
    let mut stream = TcpStream::connect(http).ok()?;
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    let row = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    Some(rows.filter_map(row).collect())
}

/// One row; 0 where it is absent or the broker does not answer.
fn value(broker: &Broker, row: &str) -> f64 {
    page(broker).and_then(|page| page.get(row).copied()).unwrap_or(0.0)
}

/// A row of all brokers together.
pub(super) fn sum(brokers: &[Broker], row: &str) -> f64 {
    brokers.iter().map(|broker| value(broker, row)).sum()
}

/// The sum of the rows of this name, whatever their labels are, of the broker with this `http.listener`.
pub(super) fn total(http: &str, name: &str) -> f64 {
    let page = page_at(http).unwrap();
    let is_row = |row: &str| row.split('{').next() == Some(name);
    page.iter().filter(|(row, _)| is_row(row)).map(|(_, value)| value).sum()
}

pub(super) fn wait_for(what: &str, expected: f64, found: impl Fn() -> f64) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let found = found();
        if found == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{what} is {found}, not {expected}");
    }
}

const UNDER_REPLICATED: &str = "kafka_server_replicamanager_underreplicatedpartitions";

#[test]
fn what_is_counted_moves_when_a_broker_is_killed_comes_back_or_is_silent() {
    let (_place, folder) = place();
    let up = Up::of(
        &folder,
        3,
        &[
            "--set",
            "broker.session.timeout.ms=6000",
            "--set",
            "broker.heartbeat.interval.ms=500",
            // A suspicion on a slow machine would add to the counts.
            "--set",
            "highwater.suspect.after.ms=0",
            "--set",
            "auto.leader.rebalance.enable=false",
        ],
    );
    let deciding = controller(&up.bootstrap);
    let others: Vec<i32> = (1..=3).filter(|id| *id != deciding).collect();
    let of = |id: i32| &up.brokers[id as usize - 1];
    let (decides, killed, silent) = (of(deciding), of(others[0]), of(others[1]));
    block_on(async {
        let at = open(&decides.address).await;
        create(&at, "alone", &[others[0]]).await;
        create(&at, "led", &[others[0], others[1], deciding]).await;
        create(&at, "kept", &[deciding, others[0], others[1]]).await;
    });
    all_acknowledged(produce(&up.bootstrap, 0..300));
    let brokers = &up.brokers;
    // A follower counts what it copies: each record twice, and more records than rounds.
    let replicated = |row: &str| sum(brokers, &format!("highwater_replication_{row}_total"));
    wait_for("records copied", 600.0, || replicated("records"));
    assert!(replicated("bytes") > 600.0 * 8.0);
    let rounds = replicated("rounds_with_records");
    assert!((2.0..=600.0).contains(&rounds) && rounds <= replicated("rounds"), "{rounds}");
    for broker in brokers {
        assert_eq!(value(broker, "highwater_quorum_leader_id"), f64::from(deciding));
        assert!(value(broker, "highwater_quorum_leader_epoch") >= 1.0);
        assert!(value(broker, "highwater_metadata_applied_offset") > 3.0);
        assert!(value(broker, "highwater_metadata_changed_timestamp_seconds") > 1e9);
        assert!(value(broker, "highwater_controller_heard_timestamp_seconds") > 1e9);
        let page = page(broker).unwrap();
        let syncs = |row: &&String| {
            row.starts_with("highwater_log_directory_fsync_duration_seconds_count{directory=")
        };
        let (_, count) = page.iter().find(|(row, _)| syncs(row)).unwrap();
        assert!(*count > 0.0);
    }
    let led_by_deciding = |row: &str| {
        value(decides, &format!("highwater_follower_{row}{{follower=\"{}\"}}", others[0]))
    };
    assert_eq!(led_by_deciding("partitions"), 1.0);
    wait_for("what the follower lacks", 0.0, || led_by_deciding("lag_records"));
    let member =
        |id: i32| format!("highwater_quorum_member_log_end_offset{{node=\"{id}\",role=\"voter\"}}");
    assert!(value(decides, &member(others[0])) > 3.0);
    assert_eq!(value(silent, &member(others[0])), 0.0, "only the active controller knows");
    let epoch_before = value(killed, "highwater_broker_epoch");
    let elections = |reason: &str| {
        value(decides, &format!("highwater_leader_elections_total{{reason=\"{reason}\"}}"))
    };
    let fenced = |reason: &str| {
        value(decides, &format!("highwater_brokers_fenced_total{{reason=\"{reason}\"}}"))
    };
    assert_eq!((elections("leader_fenced"), fenced("link"), fenced("session")), (0.0, 0.0, 0.0));

    killed.signal(Signal::KILL);
    wait_for("brokers fenced as their links ended", 1.0, || fenced("link"));
    wait_for("elections in the place of a fenced leader", 1.0, || elections("leader_fenced"));
    wait_for("partitions that are without a leader from now on", 1.0, || elections("no_leader"));
    let shrinks = || sum(brokers, "highwater_isr_shrinks_total{reason=\"fenced\"}");
    wait_for("replicas that left", 2.0, shrinks);
    assert_eq!(sum(brokers, "kafka_server_replicamanager_isrshrinks_total"), 2.0);
    wait_for("under-replicated", 2.0, || sum(brokers, UNDER_REPLICATED));
    assert_eq!(value(decides, "kafka_controller_kafkacontroller_offlinepartitionscount"), 1.0);
    assert_eq!(value(decides, "kafka_controller_kafkacontroller_fencedbrokercount"), 1.0);
    for broker in [decides, silent] {
        let row = format!("highwater_broker_fenced{{broker=\"{}\"}}", others[0]);
        wait_for("a fenced broker", 1.0, || value(broker, &row));
    }
    wait_for("replicas out of sync", 1.0, || led_by_deciding("out_of_sync"));

    let _by_hand = ByHand::start(&killed.again);
    wait_for("partitions led again", 1.0, || elections("leader_back"));
    wait_for("replicas that joined", 2.0, || sum(brokers, "highwater_isr_expansions_total"));
    wait_for("under-replicated", 0.0, || sum(brokers, UNDER_REPLICATED));
    assert!(value(killed, "highwater_broker_epoch") > epoch_before);
    assert_eq!(sum(brokers, "kafka_server_replicamanager_isrexpands_total"), 2.0);
    assert_eq!(elections("unclean"), 0.0);

    let before = value(silent, "highwater_fenced_alive_total");
    silent.pause();
    wait_for("brokers fenced as they were silent", 1.0, || fenced("session"));
    silent.resume();
    wait_for("a broker that was fenced alive", before + 1.0, || {
        value(silent, "highwater_fenced_alive_total")
    });
    wait_for("under-replicated", 0.0, || sum(brokers, UNDER_REPLICATED));
    up.stop();
}
