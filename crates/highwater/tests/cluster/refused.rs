//! Replicas that turn out not to be what they were while their broker runs: others lead, and they are copied anew, without another
//! start.

use std::sync::Arc;

use link::{Identity, LinkConfig, Purpose, Target, dial};
use model::{BrokerId, ErrorCode, Uuid};
use storage::disk::RealDisk;
use storage::journal::{Entry, Fact, Journal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::fetch::{FetchPartition, FetchTopic, ReplicaState};
use wire::{ApiKey, FetchRequest, FetchResponse, Reader, Writer, frame};

use super::hints::{block_on, create, open, until_led};
use super::lost_disks::folders;
use super::replication::{all_acknowledged, kept, produce, wait_for_all_in_sync};
use super::*;

/// The version that replicas speak.
const FETCH: i16 = 18;

/// Spoils the length of each batch in the first log file of a partition's folder. Its size stays: a start behind a clean stop
/// reads none of them.
fn spoil_batches(folder: &Path) {
    let path = folder.join("00000000000000000000.log");
    let mut bytes = fs::read(&path).unwrap();
    let mut at = 0;
    while let Some(length) = bytes.get_mut(at + 8..at + 12) {
        let size = i32::from_be_bytes(length.try_into().unwrap());
        length.fill(0xff);
        at += 12 + usize::try_from(size).unwrap();
    }
    assert!(at > 0 && at == bytes.len(), "whole batches: {at} of {}", bytes.len());
    fs::write(&path, bytes).unwrap();
}

/// The replica was put aside, and what was copied instead is what the others have.
fn assert_copied_anew(up: &Up, broker: usize) {
    let aside = folders(&up.brokers[broker].folder, "kept-0.");
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert_same_log(up, broker);
}

fn assert_same_log(up: &Up, broker: usize) {
    let folder = &up.brokers[broker].folder;
    let other = &up.brokers[(broker + 1) % 3].folder;
    let log = |folder: &str| {
        let mut log = fs::read(Path::new(folder).join("kept-0/00000000000000000000.log")).unwrap();
        // Zeros may be written ahead of a log that is appended to.
        log.truncate(log.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        log
    };
    assert!(log(folder) == log(other), "the logs differ");
}

#[test]
fn a_replica_that_is_refused_at_run_time_is_copied_anew_without_another_start() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    up.run("topic create kept -p 1 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    wait_for_all_in_sync(&up.bootstrap, "kept");
    up.stop();
    spoil_batches(&folder.join("broker-1/kept-0"));
    let up = Up::of(&folder, 3, &[]);
    assert!(folders(&up.brokers[0].folder, "kept-0.").is_empty(), "nothing is known of it yet");
    all_acknowledged(produce(&up.bootstrap, 300..600));
    wait_until("the replica is put aside", || {
        !folders(&up.brokers[0].folder, "kept-0.").is_empty()
    });
    wait_for_all_in_sync(&up.bootstrap, "kept");
    assert_eq!(kept(&up.bootstrap), (0..600).collect());
    assert_copied_anew(&up, 0);
    up.stop();
}

/// What a leader answers to a replica that has a record of this leader epoch more than the leader.
async fn ask_beyond(leader: &Broker, topic_id: Uuid, epoch: i32, end: i64) -> ErrorCode {
    let info = run(&leader.address, "cluster info --format json");
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let incarnation = Uuid::from_random([9; 16]);
    let identity = Identity::new(info["cluster_id"].as_str().unwrap(), BrokerId(2), incarnation);
    let target =
        Target { node: Some(BrokerId(1)), host: "127.0.0.1".to_owned(), port: leader.port() };
    let purpose = Purpose::Fetcher { slot: 0 };
    let dialed = dial(&target, purpose, &identity, &LinkConfig::default()).await;
    let mut stream = dialed.unwrap().stream;
    let request = FetchRequest {
        replica_id: -1,
        replica_state: ReplicaState { replica_id: 2, replica_epoch: 0 },
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic_id,
            partitions: vec![FetchPartition {
                current_leader_epoch: epoch,
                last_fetched_epoch: epoch,
                fetch_offset: end + 1,
                partition_max_bytes: 1 << 20,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut writer = Writer::new();
    frame::write_request(&mut writer, &request, FETCH, 1, Some("replica")).unwrap();
    stream.write_all(&writer.into_bytes()).await.unwrap();
    let length = stream.read_i32().await.unwrap();
    let mut answer = vec![0; length.try_into().unwrap()];
    stream.read_exact(&mut answer).await.unwrap();
    let mut reader = Reader::new(&answer);
    frame::read_response_head(&mut reader, ApiKey::Fetch, FETCH).unwrap();
    let answer = FetchResponse::decode(&mut reader, FETCH).unwrap();
    assert_eq!(answer.error(), ErrorCode::None);
    answer.responses[0].partitions[0].error()
}

#[test]
fn a_leader_that_has_lost_the_end_of_its_log_cuts_nobody_and_is_copied_anew() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    let (first, second) = (up.brokers[0].clone(), up.brokers[1].clone());
    let topic_id =
        block_on(async { create(&open(&first.address).await, "kept", &[1, 2, 3]).await });
    all_acknowledged(produce(&up.bootstrap, 0..300));
    wait_for_all_in_sync(&up.bootstrap, "kept");
    let epoch = block_on(until_led(&first.address, "kept", |(leader, ..)| *leader == 1));
    let refused = block_on(ask_beyond(&first, topic_id, epoch, 300));
    assert_eq!(refused, ErrorCode::KafkaStorageError);
    block_on(until_led(&second.address, "kept", |(leader, now, _)| *leader != 1 && *now > epoch));
    all_acknowledged(produce(&up.bootstrap, 300..600));
    wait_for_all_in_sync(&up.bootstrap, "kept");
    assert_eq!(kept(&up.bootstrap), (0..600).collect());
    assert_copied_anew(&up, 0);
    let reports = fs::read_to_string(folder.join("broker-1/broker.log")).unwrap();
    assert!(reports.contains("its end is lost"), "{reports}");
    up.stop();
}

/// Has the journal of a stopped broker refuse a partition, as it does when its log turns out to be damaged.
fn refuse(folder: &str, topic: &str) {
    let journal = Journal::open(Arc::new(RealDisk), Path::new(folder), true).unwrap().unwrap();
    let key = journal.with_state(|state| {
        let mut known = state.partitions.iter();
        *known.find(|(_, known)| *known.opened.topic == *topic).expect("it is here").0
    });
    let refused = storage::journal::Refused { offset: None, reason: "a test says so".into() };
    journal.commit(&[Entry::Of(key, Fact::Refused(refused))]).unwrap();
}

/// Spoils a record in the middle of a log.
fn spoil_one(folder: &Path) {
    let path = folder.join("00000000000000000000.log");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    fs::write(&path, bytes).unwrap();
}

#[test]
fn a_replica_that_was_mended_is_copied_anew_where_others_have_everything() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    up.run("topic create kept -p 1 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    wait_for_all_in_sync(&up.bootstrap, "kept");
    let first = up.brokers[0].folder.clone();
    up.stop();
    spoil_one(&Path::new(&first).join("kept-0"));
    refuse(&first, "kept");
    let mut mending = Command::new(HIGHWATER);
    mending.args(["log", "mend", &first, "--partition", "kept-0", "--yes"]);
    let mended = mending.output().unwrap();
    let said = String::from_utf8(mended.stdout).unwrap();
    assert!(mended.status.success() && said.contains("lost: offset"), "{said}");
    let up = Up::of(&folder, 3, &[]);
    wait_for_all_in_sync(&up.bootstrap, "kept");
    assert_eq!(kept(&up.bootstrap), (0..300).collect());
    let stray = folders(&first, "kept-0.").into_iter();
    let stray = stray.filter(|aside| aside.to_str().unwrap().ends_with("-stray"));
    assert_eq!(stray.count(), 1, "what was mended is kept as well");
    assert_same_log(&up, 0);
    up.stop();
}
