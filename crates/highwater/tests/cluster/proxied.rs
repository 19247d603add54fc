//! A cluster behind `highwater proxy`, which is told of one broker only: all have ports of the proxy, and one that comes
//! back elsewhere keeps its own.

use client::{Connection, ConnectionConfig};

use super::hints::block_on;
use super::lost_disks::Started;
use super::*;

/// A proxy, which ends with the test.
struct Proxy {
    process: Child,
    bootstrap: String,
}

impl Proxy {
    fn of(broker: &str) -> Proxy {
        let mut command = Command::new(HIGHWATER);
        command.args(["proxy", "-b", broker, "--listen", "127.0.0.1:0"]).stdin(Stdio::null());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        std::thread::spawn(move || lines.count());
        Proxy { process, bootstrap: first.strip_prefix("proxy: ").unwrap().to_owned() }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The brokers' ids and addresses, as an address says.
fn brokers(address: &str) -> Vec<(i32, String)> {
    let answer = block_on(async {
        let at = Connection::open(address, &ConnectionConfig::default()).await.unwrap();
        at.call(&wire::MetadataRequest::default()).await.unwrap()
    });
    let place = |broker: &wire::metadata::MetadataResponseBroker| {
        (broker.node_id, format!("{}:{}", broker.host, broker.port))
    };
    let mut brokers: Vec<_> = answer.brokers.iter().map(place).collect();
    brokers.sort();
    brokers
}

/// Whether an address leads to a broker that answers.
fn is_served(address: &str) -> bool {
    let config = ConnectionConfig::default();
    block_on(async { Connection::open(address, &config).await.is_ok() })
}

#[test]
fn a_broker_of_three_that_comes_back_elsewhere_is_found_at_its_port_of_the_proxy() {
    let (place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    let proxy = Proxy::of(&up.brokers[0].address);
    let through = brokers(&proxy.bootstrap);
    let direct = brokers(&up.brokers[0].address);
    assert_eq!(through.len(), 3);
    assert!(through.iter().zip(&direct).all(|(a, b)| a.0 == b.0 && a.1 != b.1), "{through:?}");
    assert!(through.iter().all(|(_, address)| is_served(address)));

    let third = up.brokers[2].clone();
    let port = &through[2].1;
    third.signal(Signal::KILL);
    wait_until("its connections are closed", || !is_served(port));
    let file = Path::new(&third.folder).join("server.properties");
    let old = format!(":{}", third.port());
    let elsewhere = |line: &str| match line.split_once('=') {
        // Its place in the quorum stays.
        Some(("listeners", at)) => format!("listeners={}\n", at.replace(&old, ":0")),
        _ => format!("{line}\n"),
    };
    let properties: String = fs::read_to_string(&file).unwrap().lines().map(elsewhere).collect();
    fs::write(&file, properties).unwrap();
    let again = Started::of(&third.folder, place.path().join("reports"));
    wait_until("the proxy finds it", || is_served(port));
    assert_eq!(brokers(&proxy.bootstrap)[2], through[2], "{}", again.said());
    let moved = brokers(&up.brokers[0].address);
    assert_ne!(moved[2].1, direct[2].1, "it is elsewhere");
    drop(again);
    up.stop();
}
