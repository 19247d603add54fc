//! What a cluster of three processes keeps of what it acknowledged, whichever of them are killed.

use std::collections::BTreeSet;
use std::io::Write;

use serde_json::Value;

use super::*;

/// Produces these numbers as lines, one batch each; all must be acknowledged.
pub(super) fn produce(bootstrap: &str, numbers: std::ops::Range<u32>) -> Child {
    let mut command = Command::new(HIGHWATER);
    command.args(["produce", "kept", "-b", bootstrap]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines: String = numbers.map(|number| format!("{number}\n")).collect();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    child
}

pub(super) fn all_acknowledged(child: Child) {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Everything that can be read from the beginning, each number once.
pub(super) fn kept(bootstrap: &str) -> BTreeSet<u32> {
    let read = run(bootstrap, "consume kept --until-end");
    let numbers: Vec<u32> = read.lines().map(|line| line.parse().unwrap()).collect();
    let distinct: BTreeSet<u32> = numbers.iter().copied().collect();
    assert_eq!(numbers.len(), distinct.len(), "some are there twice");
    distinct
}

/// Leader and in-sync replicas of each partition of a topic.
pub(super) fn described(bootstrap: &str, topic: &str) -> Option<Vec<(i64, usize)>> {
    let output = try_run(bootstrap, &format!("topic describe {topic} --format json"));
    let rows: Value = serde_json::from_slice(&output.stdout).ok()?;
    let row = |row: &Value| {
        let in_sync = row["in_sync"].as_array().map_or(0, Vec::len);
        (row["leader"].as_i64().unwrap_or(-1), in_sync)
    };
    Some(rows.as_array()?.iter().map(row).collect())
}

pub(super) fn wait_for_all_in_sync(bootstrap: &str, topic: &str) {
    wait_for_in_sync(bootstrap, topic, 3);
}

pub(super) fn wait_for_in_sync(bootstrap: &str, topic: &str, count: usize) {
    wait_until("so many replicas of each partition are in sync", || {
        described(bootstrap, topic).is_some_and(|rows| {
            rows.iter().all(|(leader, in_sync)| *leader > 0 && *in_sync == count)
        })
    });
}

#[test]
fn what_is_acknowledged_survives_the_death_of_each_broker_and_of_all() {
    let (_place, folder) = place();
    let mut up = Up::of(&folder, 3, &["--restart"]);
    up.run("topic create kept -p 3 -r 3");
    let mut next = 0;
    for broker in 1..=3 {
        let producing = produce(&up.bootstrap, next..next + 500);
        next += 500;
        up.brokers[broker - 1].signal(Signal::KILL);
        all_acknowledged(producing);
        up.says(&format!("broker {broker}"));
        wait_for_all_in_sync(&up.bootstrap, "kept");
    }
    assert_eq!(kept(&up.bootstrap), (0..next).collect());
    up.signal(Signal::KILL);
    drop(up);
    let up = Up::of(&folder, 3, &[]);
    wait_for_all_in_sync(&up.bootstrap, "kept");
    assert_eq!(kept(&up.bootstrap), (0..next).collect());
    all_acknowledged(produce(&up.bootstrap, next..next + 100));
    assert_eq!(kept(&up.bootstrap).len() as u32, next + 100);
    up.stop();
}

#[test]
fn a_group_goes_on_where_it_was_when_its_coordinator_dies() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    up.run("topic create kept -p 1 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    assert_eq!(up.run("consume kept -g readers -n 100").lines().count(), 100);
    let leaders = described(&up.bootstrap, "__consumer_offsets").unwrap();
    wait_for_all_in_sync(&up.bootstrap, "__consumer_offsets");
    // Of two partitions the group has the first: Java's hash code of its name, 1_080_410_128, is even.
    let coordinator = leaders[0].0;
    up.brokers[coordinator as usize - 1].signal(Signal::KILL);
    let rest: Vec<u32> = up
        .run("consume kept -g readers -n 200")
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert_eq!(rest, (100..300).collect::<Vec<_>>());
    up.stop();
}

#[test]
fn a_broker_that_stops_hands_over_before_it_goes() {
    let (_place, folder) = place();
    let mut up = Up::of(&folder, 3, &[]);
    up.run("topic create kept -p 3 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..100));
    let first = up.brokers[0].clone();
    let producing = produce(&up.bootstrap, 100..600);
    first.signal(Signal::TERM);
    all_acknowledged(producing);
    up.says("broker 1");
    let rows = described(&up.brokers[1].address, "kept").unwrap();
    assert!(rows.iter().all(|(leader, _)| *leader == 2 || *leader == 3), "{rows:?}");
    assert!(folder.join("broker-1/.kafka_cleanshutdown").exists(), "an orderly stop");
    let reports = fs::read_to_string(folder.join("broker-1/broker.log")).unwrap();
    assert!(reports.contains("leaderships are handed over"), "{reports}");
    assert_eq!(kept(&up.brokers[1].address), (0..600).collect());
    up.stop();
}
