//! Two processes with one node.id: the one that registered first ends as soon as it hears of the other, and says why.

use wire::DescribeClusterRequest;

use super::hints::{block_on, open};
use super::lost_disks::Started;
use super::*;

/// Where a broker is, if it serves.
fn port_of(address: &str, broker: i32) -> Option<i32> {
    let request = DescribeClusterRequest::default();
    let answer = block_on(async { open(address).await.call_version(&request, 2).await.unwrap() });
    answer.brokers.iter().find(|known| known.broker_id == broker).map(|known| known.port)
}

/// Its heartbeats are answered, but nothing of the metadata comes to it any more: the member of the quorum is the other one.
#[test]
fn a_process_whose_place_another_one_took_ends_and_says_why() {
    let (place, folder) = place();
    let session = ["broker.session.timeout.ms=3000", "broker.heartbeat.interval.ms=500"];
    let mut up = Up::of(&folder, 4, &["--set", session[0], "--set", session[1]]);
    let fourth = up.brokers[3].clone();
    let asked = up.brokers[0].address.clone();
    assert_eq!(port_of(&asked, 4), Some(fourth.port().into()));
    fourth.pause();
    // The same broker is started on another disk, at another port.
    let other = place.path().join("another disk");
    fs::create_dir(&other).unwrap();
    let elsewhere = |line: &str| match line.split_once('=') {
        Some(("listeners", _)) => "listeners=PLAINTEXT://127.0.0.1:0\n".to_owned(),
        Some((key @ ("http.listener" | "gateway.listener"), _)) => format!("{key}=\n"),
        Some(("log.dirs", _)) => format!("log.dirs={}\n", other.display()),
        _ => format!("{line}\n"),
    };
    let properties = fs::read_to_string(Path::new(&fourth.folder).join("server.properties"));
    let properties: String = properties.unwrap().lines().map(elsewhere).collect();
    fs::write(other.join("server.properties"), properties).unwrap();
    let second = Started::of(other.to_str().unwrap(), place.path().join("reports"));
    wait_until("the second process serves", || {
        port_of(&asked, 4).is_some_and(|port| port != i32::from(fourth.port()))
    });

    fourth.resume();
    wait_until("the first process has ended", || !procfs::is_running(fourth.pid));
    assert!(up.says("broker 4").contains("exit status: 1"));
    let reports = fs::read_to_string(folder.join("broker-4/broker.log")).unwrap();
    assert!(reports.contains("another process has registered as broker 4"), "{reports}");
    let port = port_of(&asked, 4);
    assert!(port.is_some_and(|port| port != i32::from(fourth.port())), "{}", second.said());
    drop(second);
    up.stop();
}
