//! Log directories that are copied while their brokers run, and restored.

use super::lost_disks::{NOT_DATA, Started};
use super::replication::{
    all_acknowledged, described, kept, produce, wait_for_all_in_sync, wait_for_in_sync,
};
use super::*;

/// Folder of the metadata log. The test never restores it: a voter must not forget its vote.
const METADATA: &str = "__cluster_metadata-0";

fn is_data(name: &std::ffi::OsStr) -> bool {
    name != METADATA && NOT_DATA.iter().all(|other| name != *other)
}

/// Copies the data of a running broker, metadata folder excluded. A file that disappears meanwhile is left out.
fn copy_running(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type() {
            _ if !is_data(&entry.file_name()) => {}
            Ok(kind) if kind.is_dir() => copy_running(&entry.path(), &to),
            _ => drop(fs::copy(entry.path(), to)),
        }
    }
}

/// Replaces the data of a stopped broker by a copy.
fn put_back(copy: &Path, folder: &str) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            _ if !is_data(&entry.file_name()) => {}
            true => fs::remove_dir_all(entry.path()).unwrap(),
            false => fs::remove_file(entry.path()).unwrap(),
        }
    }
    copy_running(copy, Path::new(folder));
}

#[test]
fn a_copy_of_a_running_broker_is_not_elected_when_an_intact_replica_returns() {
    let (place, folder) = place();
    let mut up = Up::of(&folder, 3, &[]);
    up.run("topic create kept -p 6 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    wait_for_all_in_sync(&up.bootstrap, "kept");
    let brokers = up.brokers.clone();
    let copied = place.path().join("copy");
    copy_running(Path::new(&brokers[2].folder), &copied);
    all_acknowledged(produce(&up.bootstrap, 300..600));
    up.signal(Signal::KILL);
    up.process.wait().unwrap();
    wait_until("all brokers are dead", || {
        brokers.iter().all(|broker| !procfs::is_running(broker.pid))
    });
    put_back(&copied, &brokers[2].folder);

    let start = |number: usize| {
        let reports = place.path().join(format!("reports of {number}"));
        Started::of(&brokers[number - 1].folder, reports)
    };
    let rest = format!("{},{}", brokers[1].address, brokers[2].address);
    // The broker with the copy comes first, and one that has everything a moment later.
    let (third, second) = (start(3), start(2));
    wait_until("all partitions have a leader", || {
        described(&rest, "kept").is_some_and(|rows| rows.iter().all(|(leader, _)| *leader > 0))
    });
    wait_for_in_sync(&rest, "kept", 2);
    assert_eq!(kept(&rest), (0..600).collect(), "{}", third.said());
    let first = start(1);
    wait_for_all_in_sync(&rest, "kept");
    assert_eq!(kept(&rest), (0..600).collect());
    drop((first, second, third));
}
