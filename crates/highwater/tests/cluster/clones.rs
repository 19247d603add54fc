//! A copy of a running broker's folder, started beside that broker.

use super::lost_disks::{Started, copy};
use super::replication::{all_acknowledged, produce, wait_for_in_sync};
use super::*;

#[test]
fn a_clone_does_not_take_the_place_of_a_broker_that_answers() {
    let (place, folder) = place();
    // A pause for the copy fences no broker.
    let up = Up::of(&folder, 4, &["--set", "broker.session.timeout.ms=60000"]);
    up.run("topic create kept -p 8 -r 2");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    wait_for_in_sync(&up.bootstrap, "kept", 2);
    let fourth = up.brokers[3].clone();
    let clone = place.path().join("clone");
    fourth.pause();
    copy(Path::new(&fourth.folder), &clone);
    fourth.resume();
    let elsewhere = |line: &str| match line.split_once('=') {
        Some(("listeners", _)) => "listeners=PLAINTEXT://127.0.0.1:0\n".to_owned(),
        Some((key @ ("http.listener" | "gateway.listener"), _)) => format!("{key}=\n"),
        Some(("log.dirs", _)) => format!("log.dirs={}\n", clone.display()),
        _ => format!("{line}\n"),
    };
    let properties = fs::read_to_string(clone.join("server.properties")).unwrap();
    let properties: String = properties.lines().map(elsewhere).collect();
    fs::write(clone.join("server.properties"), properties).unwrap();
    let started = Started::of(clone.to_str().unwrap(), place.path().join("reports"));
    started.wait_for_report("Another process is registered as broker 4 and answers");
    all_acknowledged(produce(&up.bootstrap, 300..600));
    wait_for_in_sync(&up.bootstrap, "kept", 2);
    assert!(procfs::is_running(fourth.pid), "{}", started.said());
    drop(started);
    up.stop();
}
