//! DeleteRecords in a cluster of three processes: an acknowledged deletion holds on each later leader.

use client::Connection;
use model::ErrorCode;
use wire::DeleteRecordsRequest;
use wire::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};

use super::hints::{block_on, create, open, until_led};
use super::lost_disks::folders;
use super::replication::{all_acknowledged, kept, produce, wait_for_all_in_sync, wait_for_in_sync};
use super::*;

/// Longer than any wait of these tests.
pub(super) const PATIENT_MS: i32 = 100_000;
/// Shorter than a session: a stopped broker is still unfenced then.
const SHORT_MS: i32 = 300;

/// Deletes the records of `kept-0` below this offset; returns the error and the low watermark.
async fn delete_at(leader: &Connection, offset: i64, timeout_ms: i32) -> (ErrorCode, i64) {
    let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset }];
    let topics = vec![DeleteRecordsTopic { name: "kept".to_owned(), partitions }];
    let request = DeleteRecordsRequest { topics, timeout_ms };
    let answer = leader.call(&request).await.unwrap();
    let result = &answer.topics[0].partitions[0];
    (result.error(), result.low_watermark)
}

pub(super) fn delete(leader: &Broker, offset: i64, timeout_ms: i32) -> (ErrorCode, i64) {
    block_on(async { delete_at(&open(&leader.address).await, offset, timeout_ms).await })
}

/// Leader and first offset of `kept-0`, as `bootstrap` reports them.
fn led_from(bootstrap: &str) -> Option<(i64, i64)> {
    let output = try_run(bootstrap, "topic describe kept --format json");
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    Some((rows[0]["leader"].as_i64()?, rows[0]["log_start_offset"].as_i64()?))
}

#[test]
fn an_acknowledged_deletion_survives_the_leader_that_acknowledged_it() {
    let (_place, folder) = place();
    let mut up = Up::of(&folder, 3, &["--restart"]);
    up.run("topic create kept -p 1 -r 3");
    for round in 1..=4_u32 {
        all_acknowledged(produce(&up.bootstrap, 100 * (round - 1)..100 * round));
        wait_for_all_in_sync(&up.bootstrap, "kept");
        let mut leader = 0;
        wait_until("a leader is known", || {
            let known = led_from(&up.bootstrap);
            known.inspect(|(id, _)| leader = usize::try_from(*id).unwrap_or(0)).is_some()
        });
        let first = i64::from(100 * round - 10);
        let other = up.brokers[leader % 3].address.clone();
        let stopped = up.brokers[leader - 1].clone();
        // The kill follows the answer at once: nothing else may carry the deletion to the followers.
        let deleted = block_on(async {
            let connection = open(&stopped.address).await;
            let deleted = delete_at(&connection, first, PATIENT_MS).await;
            kill_process(pid(stopped.pid), Signal::KILL).unwrap();
            deleted
        });
        assert_eq!(deleted, (ErrorCode::None, first), "round {round}");
        let mut begins = None;
        wait_until("another broker leads", || {
            begins = led_from(&other).filter(|(now, _)| *now > 0 && *now != leader as i64);
            begins.is_some()
        });
        assert_eq!(begins.map(|(_, start)| start), Some(first), "round {round}");
        let said = up.says(&format!("broker {leader} was started again, process "));
        up.brokers[leader - 1].pid = said.rsplit_once(' ').unwrap().1.parse().unwrap();
        wait_for_all_in_sync(&up.bootstrap, "kept");
        assert_eq!(led_from(&up.bootstrap).map(|(_, start)| start), Some(first));
    }
    up.stop();
}

#[test]
fn a_deletion_waits_for_a_silent_replica_until_the_time_out_or_its_fencing() {
    let (_place, folder) = place();
    let session = ["broker.session.timeout.ms=4000", "broker.heartbeat.interval.ms=500"];
    // Below two there is no low watermark.
    let mut sets = session.map(|set| ["--set", set]).concat();
    sets.extend(["--set", "min.insync.replicas=1"]);
    let up = Up::of(&folder, 3, &sets);
    let (first, second) = (up.brokers[0].clone(), up.brokers[1].clone());
    // Two replicas: with a third, the election after the kill below could prefer it, and prove nothing of broker 2.
    block_on(async { create(&open(&first.address).await, "kept", &[1, 2]).await });
    all_acknowledged(produce(&up.bootstrap, 0..100));
    wait_for_in_sync(&up.bootstrap, "kept", 2);
    second.pause();
    // The silent replica may be elected, and keeps the records.
    let (error, _) = delete(&first, 50, SHORT_MS);
    assert_eq!(error, ErrorCode::RequestTimedOut);
    assert_eq!(delete(&first, 60, PATIENT_MS), (ErrorCode::None, 60), "the replica is fenced");
    second.resume();
    // As the leader knows it: broker 2 still has the metadata from before its silence.
    wait_for_in_sync(&first.address, "kept", 2);
    // In sync again, so the records are deleted there as well.
    first.signal(Signal::KILL);
    block_on(until_led(&second.address, "kept", |(leader, ..)| *leader == 2));
    assert_eq!(led_from(&second.address), Some((2, 60)));
    up.stop();
}

#[test]
fn topics_that_were_deleted_while_a_broker_was_away_leave_no_folder_there() {
    let (_place, folder) = place();
    let mut up = Up::of(&folder, 3, &[]);
    up.run("topic create kept gone -p 1 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..100));
    wait_for_all_in_sync(&up.bootstrap, "kept");
    let third = up.brokers[2].clone();
    let rest = format!("{},{}", up.brokers[0].address, up.brokers[1].address);
    assert_eq!(folders(&third.folder, "gone-0").len(), 1);
    third.signal(Signal::KILL);
    up.says("broker 3");
    // Broker 3 may have been the active controller. A command whose answer is lost in the election is sent again, and finds its work
    // done.
    wait_until("the topics are deleted", || {
        try_run(&rest, "topic delete kept gone --if-exists").status.success()
    });
    // The same name again, with a replica on the broker that is away.
    wait_until("the topic is made again", || {
        try_run(&rest, "topic create kept -p 1 -r 3 --if-not-exists").status.success()
    });
    wait_for_in_sync(&rest, "kept", 2);
    all_acknowledged(produce(&rest, 500..600));
    let _by_hand = ByHand::start(&third.again);
    wait_until("nothing is left of the deleted topics", || {
        let names = |begin| -> Vec<String> {
            let found = folders(&third.folder, begin).into_iter();
            found.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
        };
        names("gone-0").is_empty() && names("kept-0") == ["kept-0"]
    });
    wait_for_all_in_sync(&up.bootstrap, "kept");
    assert_eq!(kept(&up.bootstrap), (500..600).collect());
    up.stop();
}
