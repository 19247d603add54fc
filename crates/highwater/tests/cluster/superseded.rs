//! A leader that no controller answers: it refuses records that another leader would drop, and takes them again.

use super::health::{cluster_health, codes, http_of, until_named};
use super::metrics::{sum, wait_for};
use super::quorum::controller;
use super::replication::{all_acknowledged, described, produce, wait_for_all_in_sync};
use super::*;

/// A producer with these `acks` that tries until it is killed.
pub(super) struct Unacknowledged(Child);

impl Unacknowledged {
    pub(super) fn begin(bootstrap: &str, partition: usize, acks: &str) -> Unacknowledged {
        let mut command = Command::new(HIGHWATER);
        command.args(["produce", "kept", "-b", bootstrap, "--acks", acks]);
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

const SESSION: Duration = Duration::from_secs(2);
const QUICK: [&str; 2] = ["broker.session.timeout.ms=2000", "broker.heartbeat.interval.ms=500"];

/// Three brokers with records in `kept`, all replicas in sync.
fn started(folder: &Path, keys: &[&str]) -> Up {
    let up = Up::of(folder, 3, &keys.iter().flat_map(|set| ["--set", set]).collect::<Vec<_>>());
    up.run("topic create kept -p 6 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..300));
    wait_for_all_in_sync(&up.bootstrap, "kept");
    up
}

/// A partition of `kept` that the broker of this number leads.
fn led_by(up: &Up, broker: i32) -> usize {
    let rows = described(&up.bootstrap, "kept").unwrap();
    rows.iter().position(|(leader, _)| *leader == i64::from(broker)).unwrap()
}

/// All brokers but that of this number.
fn others(up: &Up, broker: i32) -> Vec<Broker> {
    let other = |(at, it): (usize, &Broker)| (at as i32 + 1 != broker).then(|| it.clone());
    up.brokers.iter().enumerate().filter_map(other).collect()
}

/// All records of a partition up to its high watermark.
fn read(left: &Broker, partition: usize) -> String {
    run(&left.address, &format!("consume kept --partition {partition} --from start --until-end"))
}

/// Leaves one broker alone: it refuses records that may be lost, and nothing else.
fn assert_refuses(up: &Up, id: i32) {
    let left = &up.brokers[id as usize - 1..id as usize];
    let in_doubt = || sum(left, "highwater_leaderships_in_doubt");
    let refused = || sum(left, "highwater_produce_refused_in_doubt_total");
    assert_eq!(in_doubt(), 0.0);
    let led = led_by(up, id);
    let committed = read(&left[0], led);
    let paused = others(up, id);
    paused.iter().for_each(Broker::pause);
    wait_for("leaderships in doubt", 1.0, in_doubt);
    for acks in ["1", "0"] {
        let before = refused();
        let producer = Unacknowledged::begin(&left[0].address, led, acks);
        wait_until("records are refused", || refused() > before);
        drop(producer);
    }
    assert_eq!(read(&left[0], led), committed, "reads of committed records go on");
    let http = http_of(Path::new(&left[0].folder));
    let answer = until_named(&http, "leader_superseded");
    assert_eq!(answer.code, 503, "{answer:?}");
    assert_eq!(codes(&http).map(|(live, ready, ..)| (live, ready)), Some((200, 503)));
    let (exit, text) = cluster_health(&left[0].address);
    assert!(exit == 1 && text.contains("leader_superseded: "), "{text}");
    paused.iter().for_each(Broker::resume);
    wait_for("leaderships in doubt", 0.0, in_doubt);
    wait_for_all_in_sync(&up.bootstrap, "kept");
    all_acknowledged(produce(&up.bootstrap, 300..400));
}

#[test]
fn a_leader_without_controller_and_followers_refuses_records_that_may_be_lost() {
    let (_place, folder) = place();
    let up = started(&folder, &QUICK);
    let left = if controller(&up.bootstrap) == 1 { 2 } else { 1 };
    assert_refuses(&up, left);
    up.stop();
}

#[test]
fn a_cut_off_controller_refuses_records_that_may_be_lost() {
    let (_place, folder) = place();
    let up = started(&folder, &QUICK);
    // It counts itself as the controller that was heard until no majority answers it.
    assert_refuses(&up, controller(&up.bootstrap));
    up.stop();
}

/// Time since a controller last answered a broker, by its metrics.
fn silence(left: &[Broker]) -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    now.as_secs_f64() - sum(left, "highwater_controller_heard_timestamp_seconds")
}

#[test]
fn a_leader_without_controller_accepts_records_where_the_key_restores_kafkas_behaviour() {
    let (_place, folder) = place();
    let [session, heartbeat] = QUICK;
    let up = started(&folder, &[session, heartbeat, "highwater.superseded.leader.refuses=false"]);
    let id = controller(&up.bootstrap);
    let left = &up.brokers[id as usize - 1..id as usize];
    let led = led_by(&up, id);
    let paused = others(&up, id);
    paused.iter().for_each(Broker::pause);
    let http = http_of(Path::new(&left[0].folder));
    until_named(&http, "controller_unreachable");
    wait_until("two sessions without a controller", || silence(left) > 2.0 * SESSION.as_secs_f64());
    let mut command = Command::new(HIGHWATER);
    command.args(["produce", "kept", "-b", &left[0].address, "--acks", "1"]);
    command.args(["--partition", &led.to_string()]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"doubtful\n").unwrap();
    all_acknowledged(child);
    assert_eq!(sum(left, "highwater_leaderships_in_doubt"), 0.0);
    assert_eq!(sum(left, "highwater_produce_refused_in_doubt_total"), 0.0);
    assert_eq!(codes(&http).map(|(live, ready, ..)| (live, ready)), Some((200, 200)));
    paused.iter().for_each(Broker::resume);
    wait_for_all_in_sync(&up.bootstrap, "kept");
    up.stop();
}
