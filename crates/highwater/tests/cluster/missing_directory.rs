//! A broker starts without one of its two log directories while the other replica of each partition there is away (decision 0055).

use std::collections::BTreeSet;

use serde_json::Value;

use super::copies::create_partitions_on;
use super::lost_disks::{Started, add_directory, kept_in, produce_in_each};
use super::replication::{all_acknowledged, described, kept, produce, wait_for_in_sync};
use super::*;

const PARTITIONS: usize = 6;

/// Records in the metadata log of a broker's folder, in order: their types and contents.
pub(super) fn metadata_records(folder: &str) -> Vec<(String, Value)> {
    let folder = Path::new(folder).join("__cluster_metadata-0");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut logs: Vec<_> =
        files.filter(|it| it.extension().is_some_and(|it| it == "log")).collect();
    logs.sort();
    let mut records = Vec::new();
    for log in logs {
        let bytes = fs::read(log).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let mut rest = text.as_ref();
        while let Some(at) = rest.find("{\"") {
            rest = &rest[at..];
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            match values.next() {
                Some(Ok(Value::Object(fields))) => {
                    rest = &rest[values.byte_offset()..];
                    records.extend(fields);
                }
                _ => rest = &rest[1..],
            }
        }
    }
    records
}

/// Whether a record is of this type and names broker 1.
fn is_of_first((found, record): &(String, Value), kind: &str) -> bool {
    found == kind && record["broker"] == 1
}

/// Partitions of a `replicas-offline` record.
fn offline_partitions(record: &Value) -> BTreeSet<usize> {
    let topics = record["replicas"].as_array().unwrap().iter();
    let numbers = topics.flat_map(|of| of["partitions"].as_array().unwrap());
    numbers.map(|number| usize::try_from(number.as_u64().unwrap()).unwrap()).collect()
}

/// Fails unless the metadata records, after the last registration of broker 1, all these replicas as offline before it lets the
/// broker serve, and makes broker 1 the leader of none of them.
fn assert_missing_lead_nothing(folder: &str, topic_id: &Value, missing: &BTreeSet<usize>) {
    let records = metadata_records(folder);
    let registered = records.iter().rposition(|it| is_of_first(it, "broker-registered")).unwrap();
    let since = &records[registered..];
    let serves = since.iter().position(|it| is_of_first(it, "broker-unfenced")).unwrap();
    let offline = since[..serves].iter().filter(|it| is_of_first(it, "replicas-offline"));
    let offline: BTreeSet<usize> = offline.flat_map(|(_, it)| offline_partitions(it)).collect();
    assert_eq!(&offline, missing, "recorded before the broker serves: {since:#?}");
    for (kind, record) in since {
        let state = &record["state"];
        let is_missing =
            state["partition"].as_u64().is_some_and(|it| missing.contains(&(it as usize)));
        let is_kept = kind.starts_with("partition-changed") && record["topic_id"] == *topic_id;
        assert!(!(is_kept && is_missing && state["leader"] == 1), "{record}");
    }
}

/// Topic id of `kept` in the metadata.
fn topic_id(folder: &str) -> Value {
    let is_kept = |(_, record): &&(String, Value)| record["name"] == "kept";
    let records = metadata_records(folder);
    let (_, created) = records.iter().find(is_kept).unwrap();
    created["topic_id"].clone()
}

fn leaders(bootstrap: &str) -> Option<Vec<i64>> {
    Some(described(bootstrap, "kept")?.into_iter().map(|(leader, _)| leader).collect())
}

#[test]
fn a_replica_in_a_missing_directory_leads_nothing_and_a_complete_one_that_returns_leads() {
    let (place, folder) = place();
    let mut up = Up::of(&folder, 3, &[]);
    let brokers = up.brokers.clone();
    let (first, second, third) = (&brokers[0], &brokers[1], &brokers[2]);
    let (disk, lost) = (place.path().join("second disk"), place.path().join("lost disk"));
    first.signal(Signal::TERM);
    up.says("broker 1");
    add_directory(&first.folder, &disk);
    let start = |broker: &Broker, name: &str| {
        Started::of(&broker.folder, place.path().join(format!("reports of {name}")))
    };
    let mut started = start(first, "1 with two directories");
    wait_until("the first broker is back", || {
        let listed = try_run(&first.address, "cluster info");
        listed.status.success() && String::from_utf8_lossy(&listed.stdout).lines().count() == 4
    });
    // Broker 3 votes and has no replica. With one of two in sync nothing is acknowledged, so both replicas are complete.
    create_partitions_on(&up.bootstrap, PARTITIONS, &[1, 2], "2");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    produce_in_each(&up.bootstrap, "kept", PARTITIONS, 300);
    let end = 300 + PARTITIONS as u32;
    wait_for_in_sync(&up.bootstrap, "kept", 2);
    let (missing, here) = (kept_in(disk.to_str().unwrap()), kept_in(&first.folder));
    assert!(!missing.is_empty() && !here.is_empty(), "in both: {missing:?}, {here:?}");
    let topic_id = topic_id(&third.folder);

    second.signal(Signal::TERM);
    up.says("broker 2");
    wait_until("broker 1 leads everything", || {
        leaders(&third.address).is_some_and(|them| them.iter().all(|it| *it == 1))
    });
    assert_eq!(started.terminate(), Some(0), "{}", started.said());
    fs::rename(&disk, &lost).unwrap();

    let mut started = start(first, "1 with one directory");
    started.wait_for_report("log directory is missing and its folder is empty");
    wait_until("broker 1 leads the partitions of its other directory", || {
        let led = leaders(&third.address);
        led.is_some_and(|led| here.iter().all(|number| led[*number] == 1))
    });
    let led = leaders(&third.address).unwrap();
    assert!(missing.iter().all(|number| led[*number] < 0), "{led:?}, missing: {missing:?}");
    assert_missing_lead_nothing(&third.folder, &topic_id, &missing);

    let returned = start(second, "2");
    wait_until("broker 2 leads what is missing, and follows the rest", || {
        let rows = described(&third.address, "kept");
        rows.is_some_and(|rows| {
            rows.into_iter().enumerate().all(|(number, (leader, in_sync))| {
                match missing.contains(&number) {
                    true => leader == 2 && in_sync == 1,
                    false => leader > 0 && in_sync == 2,
                }
            })
        })
    });
    // One of two in sync is enough to read everything from now on.
    run(&third.address, "config set --topic kept min.insync.replicas=1");
    assert_eq!(kept(&third.address), (0..end).collect(), "{}", started.said());
    assert_missing_lead_nothing(&third.folder, &topic_id, &missing);
    assert_eq!(started.terminate(), Some(0), "{}", started.said());

    // The disk is mounted again: its replicas follow from their own ends.
    fs::remove_dir_all(&disk).unwrap();
    fs::rename(&lost, &disk).unwrap();
    let started = start(first, "1 with both again");
    wait_for_in_sync(&third.address, "kept", 2);
    assert_eq!((kept_in(disk.to_str().unwrap()), kept_in(&first.folder)), (missing, here));
    produce_in_each(&up.bootstrap, "kept", PARTITIONS, end as usize);
    assert_eq!(kept(&third.address), (0..end + PARTITIONS as u32).collect());
    drop((started, returned));
    up.stop();
}
