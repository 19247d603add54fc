//! Metadata folders of voters that are copied while the voter runs, and put back later: the cluster keeps its metadata, and
//! the voter joins as a new member.

use std::path::PathBuf;

use super::lost_disks::{NOT_DATA, Started, copy_running, take_away, wait_for_all_votes};
use super::quorum::controller;
use super::replication::{all_acknowledged, kept, produce, wait_for_all_in_sync};
use super::*;

const METADATA: &str = "__cluster_metadata-0";

fn metadata(broker: &Broker) -> PathBuf {
    Path::new(&broker.folder).join(METADATA)
}

/// Changes the metadata so often that every copy of before lacks something, and waits until the journals note that.
fn decide_much(bootstrap: &str, prefix: &str) {
    for number in 0..5 {
        run(bootstrap, &format!("topic create {prefix}{number} -p 1 -r 1"));
    }
}

fn wait_until_healthy(bootstrap: &str) {
    wait_until("the cluster is healthy", || try_run(bootstrap, "cluster health").status.success());
}

#[test]
fn a_voter_restored_beside_a_living_leader_joins_as_a_new_member() {
    let (place, folder) = place();
    let mut up = Up::of(&folder, 3, &[]);
    let (addresses, bootstrap) = (up.addresses(), up.bootstrap.clone());
    up.run("topic create kept -p 3 -r 3");
    all_acknowledged(produce(&bootstrap, 0..100));
    wait_for_all_in_sync(&bootstrap, "kept");
    let leads = controller(&bootstrap);
    let victim = up.brokers[(leads % 3) as usize].clone();
    let number = leads % 3 + 1;
    let copied = place.path().join("copy");
    copy_running(Path::new(&victim.folder), &copied, &NOT_DATA);
    decide_much(&bootstrap, "later");
    all_acknowledged(produce(&bootstrap, 100..200));

    victim.signal(Signal::KILL);
    up.says(&format!("broker {number}"));
    take_away(&victim.folder, &place.path().join("taken away"));
    // The journals in the copy are as old as the metadata in the copy: only the leader knows more.
    copy_running(&copied, Path::new(&victim.folder), &NOT_DATA);
    let started = Started::of(&victim.folder, place.path().join("reports"));
    started.wait_for_report("the metadata folder was put back from an older copy");
    started.wait_for_report("starting again, without the metadata folder");
    wait_for_all_votes(&addresses);
    wait_for_all_in_sync(&bootstrap, "kept");
    wait_until_healthy(&bootstrap);
    assert_eq!(kept(&bootstrap), (0..200).collect());
    assert!(up.run("topic list").contains("later4"), "{}", started.said());
    let aside = Path::new(&victim.folder).join(format!("{METADATA}.older-copy.1"));
    assert!(aside.join("vote").exists(), "nothing of the copy is removed");
    let reports =
        fs::read_to_string(Path::new(&up.brokers[leads as usize - 1].folder).join("broker.log"));
    let said = reports.unwrap();
    assert!(said.contains("lacks an entry that the node had acknowledged"), "{said}");
    drop(started);
    up.stop();
}

#[test]
fn a_voter_restored_after_a_stop_of_all_elects_no_leader_without_the_metadata() {
    let (place, folder) = place();
    let mut up = Up::of(&folder, 3, &[]);
    let (addresses, bootstrap) = (up.addresses(), up.bootstrap.clone());
    up.run("topic create kept -p 3 -r 3");
    all_acknowledged(produce(&bootstrap, 0..100));
    wait_for_all_in_sync(&bootstrap, "kept");
    let brokers = up.brokers.clone();
    let copied = place.path().join("copy");
    copy_running(&metadata(&brokers[0]), &copied, &NOT_DATA);
    // The second voter lacks the decisions that follow.
    brokers[1].signal(Signal::KILL);
    up.says("broker 2");
    let rest = format!("{},{}", addresses[0], addresses[2]);
    decide_much(&rest, "later");
    all_acknowledged(produce(&rest, 100..200));
    brokers[0].signal(Signal::TERM);
    up.says("broker 1");
    brokers[2].signal(Signal::KILL);
    up.says("broker 3");
    drop(up);

    fs::rename(metadata(&brokers[0]), place.path().join("newest")).unwrap();
    copy_running(&copied, &metadata(&brokers[0]), &NOT_DATA);
    let start = |number: usize| {
        let reports = place.path().join(format!("reports of {number}"));
        Started::of(&brokers[number - 1].folder, reports)
    };
    let (first, second) = (start(1), start(2));
    first.wait_for_report("as its log directories note");
    first.wait_for_report("which takes a majority of the 3 voters with the folders they had");
    let third = start(3);
    wait_for_all_votes(&addresses);
    wait_for_all_in_sync(&bootstrap, "kept");
    wait_until_healthy(&bootstrap);
    assert_eq!(kept(&bootstrap), (0..200).collect(), "{}", first.said());
    assert!(run(&bootstrap, "topic list").contains("later4"), "{}", first.said());
    let aside = Path::new(&brokers[0].folder).join(format!("{METADATA}.older-copy.1"));
    assert!(aside.join("vote").exists(), "nothing of the copy is removed");
    drop((first, second, third));
}
