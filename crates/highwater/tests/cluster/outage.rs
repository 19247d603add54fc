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
