//! A leader that no controller answers: it refuses records that another leader would drop, and takes them again.

use super::health::{cluster_health, codes, http_of, until_named};
use super::metrics::{sum, wait_for};
use super::quorum::controller;
use super::replication::{all_acknowledged, described, produce, wait_for_all_in_sync};
use super::*;

/// A producer with `acks=1` that tries until it is killed.
struct Unacknowledged(Child);

impl Unacknowledged {
    fn begin(bootstrap: &str, partition: usize) -> Unacknowledged {
        let mut command = Command::new(HIGHWATER);
        command.args(["produce", "kept", "-b", bootstrap, "--acks", "1"]);
        command.args(["--partition", &partition.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"doubtful\n").unwrap();
        Unacknowledged(child)
    }
}

impl Drop for Unacknowledged {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_leader_without_controller_and_followers_refuses_records_that_may_be_lost() {
    let (_place, folder) = place();
    let quick = ["broker.session.timeout.ms=2000", "broker.heartbeat.interval.ms=500"];
    let up = Up::of(&folder, 3, &quick.map(|set| ["--set", set]).concat());
    up.run("topic create kept -p 6 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    wait_for_all_in_sync(&up.bootstrap, "kept");
    // The controller is the one that answers heartbeats: another broker is left.
    let left = usize::from(controller(&up.bootstrap) == 1);
    let others: Vec<&Broker> =
        up.brokers.iter().filter(|broker| broker.pid != up.brokers[left].pid).collect();
    let left = &up.brokers[left..=left];
    let in_doubt = || sum(left, "highwater_leaderships_in_doubt");
    assert_eq!(in_doubt(), 0.0);
    let id = up.brokers.iter().position(|broker| broker.pid == left[0].pid).unwrap() as i64 + 1;
    let rows = described(&up.bootstrap, "kept").unwrap();
    let led = rows.iter().position(|(leader, _)| *leader == id).unwrap();
    for broker in &others {
        broker.pause();
    }
    wait_for("leaderships in doubt", 1.0, in_doubt);
    let producer = Unacknowledged::begin(&left[0].address, led);
    wait_until("records are refused", || {
        sum(left, "highwater_produce_refused_in_doubt_total") > 0.0
    });
    drop(producer);
    let http = http_of(Path::new(&left[0].folder));
    let answer = until_named(&http, "leader_superseded");
    assert_eq!(answer.code, 503, "{answer:?}");
    assert_eq!(codes(&http).map(|(live, ready, ..)| (live, ready)), Some((200, 503)));
    let (exit, text) = cluster_health(&left[0].address);
    assert!(exit == 1 && text.contains("leader_superseded: "), "{text}");
    for broker in &others {
        broker.resume();
    }
    wait_for("leaderships in doubt", 0.0, in_doubt);
    wait_for_all_in_sync(&up.bootstrap, "kept");
    all_acknowledged(produce(&up.bootstrap, 300..400));
    up.stop();
}
