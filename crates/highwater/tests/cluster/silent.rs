//! A broker that is silent while its session lasts: the others lead its partitions and acknowledge without it, and it stays
//! registered and unfenced.

use super::metrics::sum;
use super::replication::{all_acknowledged, described, kept, produce, wait_for_all_in_sync};
use super::*;

#[test]
fn a_paused_broker_loses_its_leaderships_within_its_session_and_comes_back() {
    let (_place, folder) = place();
    // Neither the session nor the lag ends within the limit of this test.
    let patient = ["broker.session.timeout.ms=600000", "replica.lag.time.max.ms=600000"];
    let up = Up::of(&folder, 3, &patient.map(|set| ["--set", set]).concat());
    up.run("topic create kept -p 6 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    wait_for_all_in_sync(&up.bootstrap, "kept");
    let (silent, others) = (&up.brokers[2], up.addresses()[..2].join(","));

    silent.pause();
    wait_until("other brokers lead", || {
        described(&others, "kept").is_some_and(|rows| rows.iter().all(|(leader, _)| *leader != 3))
    });
    all_acknowledged(produce(&others, 300..600));
    let left = &up.brokers[..2];
    assert_eq!(sum(left, "highwater_broker_fenced{broker=\"3\"}"), 0.0, "it keeps its session");
    assert!(sum(left, "highwater_brokers_suspected_total") >= 1.0);

    silent.resume();
    wait_for_all_in_sync(&others, "kept");
    assert_eq!(kept(&up.bootstrap), (0..600).collect());
    up.stop();
}

#[test]
fn a_broker_that_is_paused_again_and_again_is_suspected_each_time() {
    let (_place, folder) = place();
    // Only suspicion can move leaderships within the limit of this test.
    let patient = ["broker.session.timeout.ms=600000", "replica.lag.time.max.ms=600000"];
    let up = Up::of(&folder, 3, &patient.map(|set| ["--set", set]).concat());
    up.run("topic create kept -p 6 -r 3");
    wait_for_all_in_sync(&up.bootstrap, "kept");
    let (silent, others) = (&up.brokers[2], up.addresses()[..2].join(","));
    for _ in 0..4 {
        silent.pause();
        // Leaders elsewhere may be of the pause before: the paused broker must leave every ISR.
        wait_until("every ISR goes on without the paused broker", || {
            described(&others, "kept").is_some_and(|rows| {
                rows.iter().all(|(leader, in_sync)| *leader != 3 && *in_sync == 2)
            })
        });
        silent.resume();
        wait_for_all_in_sync(&others, "kept");
    }
    up.stop();
}

#[test]
fn the_follower_that_acknowledges_last_is_named() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    up.run("topic create kept -p 3 -r 3");
    let mut next = 0;
    wait_until("health names a follower", || {
        // Again in each round: only acknowledgements of the last minute count.
        all_acknowledged(produce(&up.bootstrap, next..next + 30));
        next += 30;
        let health = try_run(&up.bootstrap, "cluster health");
        String::from_utf8_lossy(&health.stdout).contains("\nslowest acknowledger: broker ")
    });
    up.stop();
}
