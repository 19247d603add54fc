//! All brokers die, and one of them does not come back.

use super::replication::{all_acknowledged, described, kept, produce, wait_for_all_in_sync};
use super::*;

#[test]
fn partitions_of_a_broker_that_does_not_come_back_are_led_before_its_session_is_over() {
    let (_place, folder) = place();
    // Longer than the test may take.
    let session = "broker.session.timeout.ms=600000";
    let mut up = Up::of(&folder, 3, &["--set", session]);
    up.run("topic create kept -p 6 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    wait_for_all_in_sync(&up.bootstrap, "kept");
    let brokers = up.brokers.clone();
    let rest = format!("{},{}", brokers[0].address, brokers[1].address);
    up.signal(Signal::KILL);
    up.process.wait().unwrap();
    wait_until("all brokers are dead", || {
        brokers.iter().all(|broker| !procfs::is_running(broker.pid))
    });
    let _two = [ByHand::start(&brokers[0].again), ByHand::start(&brokers[1].again)];
    wait_until("the two that are back lead everything", || {
        let rows = described(&rest, "kept");
        rows.is_some_and(|rows| rows.iter().all(|(leader, _)| *leader == 1 || *leader == 2))
    });
    assert_eq!(kept(&rest), (0..300).collect());
}

/// States of partitions in the metadata log of a broker's folder that count everything acknowledged as synced.
fn durable_states(broker: &Broker) -> usize {
    let folder = Path::new(&broker.folder).join("__cluster_metadata-0");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let logs = files.filter(|path| path.extension().is_some_and(|it| it == "log"));
    let text = |path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
    let states = logs.map(text).map(|log| log.matches(r#""partition-changed-2":"#).count());
    states.sum()
}

#[test]
fn a_topic_that_was_page_cache_once_is_led_without_its_last_leader_again() {
    let (_place, folder) = place();
    let session = "broker.session.timeout.ms=600000";
    let mut up = Up::of(&folder, 3, &["--set", session]);
    up.run("topic create kept -p 1 -r 3 -c durability=page-cache");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    wait_for_all_in_sync(&up.bootstrap, "kept");
    let before = durable_states(&up.brokers[0]);
    up.run("config set --topic kept durability=fsync");
    wait_until("all replicas have proved what they synced", || {
        durable_states(&up.brokers[0]) > before
    });
    all_acknowledged(produce(&up.bootstrap, 300..600));
    let rows = described(&up.bootstrap, "kept").unwrap();
    let leader = usize::try_from(rows[0].0).unwrap();
    let brokers = up.brokers.clone();
    up.signal(Signal::KILL);
    up.process.wait().unwrap();
    wait_until("all brokers are dead", || {
        brokers.iter().all(|broker| !procfs::is_running(broker.pid))
    });
    let rest: Vec<&Broker> =
        (1..=3).filter(|id| *id != leader).map(|id| &brokers[id - 1]).collect();
    let _two: Vec<ByHand> = rest.iter().map(|broker| ByHand::start(&broker.again)).collect();
    let addresses = format!("{},{}", rest[0].address, rest[1].address);
    wait_until("one of the others leads", || {
        let rows = described(&addresses, "kept");
        rows.is_some_and(|rows| rows[0].0 > 0 && rows[0].0 != leader as i64)
    });
    assert_eq!(kept(&addresses), (0..600).collect());
}
