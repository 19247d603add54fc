//! The console of a local cluster: each broker's gateway has it, each shows all brokers, and none is missed when its
//! broker ends.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use super::hints::{block_on, create, open};
use super::*;

impl Up {
    /// What it says behind the brokers' lines, up to the last line.
    fn rest(&mut self) -> Vec<String> {
        let mut rest = Vec::new();
        while !rest.last().is_some_and(|line: &String| line.starts_with("try: ")) {
            rest.push(self.out.next().expect("a line that begins with try:").unwrap());
        }
        rest
    }

    /// Where the gateways are.
    pub(super) fn gateways(&mut self) -> Vec<String> {
        let rest = self.rest();
        let line = rest.iter().find_map(|line| line.strip_prefix("gateway: "));
        let urls = line.unwrap_or_else(|| panic!("{rest:?}")).split(' ');
        let urls: Vec<String> = urls.map(str::to_owned).collect();
        assert_eq!(urls.len(), self.brokers.len());
        let console = rest.iter().find_map(|line| line.strip_prefix("console: ")).unwrap();
        assert_eq!(console.split(' ').next(), Some(&*format!("{}/console", urls[0])));
        urls
    }
}

fn address(url: &str) -> &str {
    url.strip_prefix("http://").unwrap()
}

fn port(url: &str) -> u16 {
    url.rsplit_once(':').unwrap().1.parse().unwrap()
}

/// The status and the body of what a path answers; `None` if nobody does.
fn ask(url: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address(url)).ok()?;
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// What a path answers with 200.
fn get(url: &str, path: &str) -> Option<String> {
    ask(url, path).filter(|(status, _)| *status == 200).map(|(_, body)| body)
}

/// Each broker's state, as a console shows it.
fn states(url: &str) -> Vec<String> {
    let Some(text) = get(url, "/api/v1/brokers") else { return Vec::new() };
    let value: Value = serde_json::from_str(&text).unwrap();
    let brokers = value["brokers"].as_array().unwrap().iter();
    brokers
        .map(|broker| format!("{} {}", broker["id"], broker["state"].as_str().unwrap()))
        .collect()
}

/// Waits until consoles show brokers so.
fn wait_for_states(bootstrap: &str, urls: &[String], is_so: impl Fn(&[String]) -> bool) {
    wait_until("consoles show the brokers' states", || {
        // Which paces this: a console looks at the cluster every fifteen seconds.
        try_run(bootstrap, "cluster info");
        urls.iter().all(|url| is_so(&states(url)))
    });
}

#[test]
fn every_broker_has_a_console_that_shows_all_of_them() {
    let (_place, folder) = place();
    let mut up = Up::of(&folder, 3, &[]);
    let urls = up.gateways();
    for (broker, url) in up.brokers.iter().zip(&urls) {
        assert!(procfs::listens_on(broker.pid, port(url)).unwrap());
        assert!(!procfs::listens_on(up.process.id(), port(url)).unwrap(), "it must hold no socket");
        let page = get(url, "/console/brokers").unwrap();
        assert!(up.addresses().iter().all(|address| page.contains(address)), "{page}");
        assert_eq!(states(url), ["1 up", "2 up", "3 up"]);
    }
    // The one that was printed as the console's is away; the others show it.
    let first = up.brokers[0].clone();
    first.signal(Signal::KILL);
    up.says("broker 1");
    wait_for_states(&up.bootstrap, &urls[1..], |all| all == ["1 fenced", "2 up", "3 up"]);
    assert_eq!(get(&urls[0], "/console"), None);
    let _by_hand = ByHand::start(&first.again);
    wait_for_states(&up.bootstrap, &urls[..1], |all| all == ["1 up", "2 up", "3 up"]);
    up.stop();
}

#[test]
fn consoles_are_where_they_were_when_the_cluster_is_up_again() {
    let (_place, folder) = place();
    let mut up = Up::of(&folder, 1, &[]);
    let urls = up.gateways();
    up.stop();
    let mut up = Up::of(&folder, 1, &[]);
    assert_eq!(up.gateways(), urls);
    assert!(get(&urls[0], "/console").unwrap().contains("Brokers up"));
    up.stop();
    // An earlier release planned no ports for gateways.
    let plan = folder.join("cluster.json");
    let mut earlier: Value = serde_json::from_str(&fs::read_to_string(&plan).unwrap()).unwrap();
    let chosen = earlier["brokers"][0].as_object_mut().unwrap().remove("gateway_port");
    assert_eq!(chosen, Some(port(&urls[0]).into()));
    fs::write(&plan, earlier.to_string()).unwrap();
    let mut up = Up::of(&folder, 1, &[]);
    let fresh = up.gateways();
    assert!(get(&fresh[0], "/console").is_some());
    up.stop();
}

#[test]
fn gateways_are_where_they_are_said_to_be_or_nowhere() {
    let (_place, folder) = place();
    let named = peer::highwater::free_port().unwrap();
    let said = format!("gateway.listener=127.0.0.1:{named}");
    let mut up = Up::of(&folder, 1, &["--set", &said]);
    assert_eq!(up.gateways(), [format!("http://127.0.0.1:{named}")]);
    assert!(procfs::listens_on(up.brokers[0].pid, named).unwrap());
    up.stop();

    let mut up = Up::of(&folder, 1, &["--set", "gateway.listener="]);
    let rest = up.rest();
    assert!(
        !rest.iter().any(|line| line.contains("console") || line.contains("gateway")),
        "{rest:?}"
    );
    assert!(!procfs::listens_on(up.brokers[0].pid, named).unwrap());
    let file = fs::read_to_string(folder.join("broker-1/server.properties")).unwrap();
    assert!(file.contains("\ngateway.listener=\n"), "{file}");
    up.stop();

    let _stranger = TcpListener::bind(("127.0.0.1", named)).unwrap();
    let refusal = refused(&folder, 1, &["--set", &said]);
    let port_taken = format!("cannot listen on 127.0.0.1:{named} for the gateway");
    assert!(
        refusal.contains(&port_taken) && refusal.contains("--set gateway.listener="),
        "{refusal}"
    );
    let refusal = refused(&folder, 1, &["--set", "gateway.listener=8082"]);
    assert!(refusal.contains("expected host:port, or nothing"), "{refusal}");
    let up = Up::of(&folder, 1, &[]);
    let clash = format!("gateway.listener={}", up.brokers[0].address);
    up.stop();
    let refusal = refused(&folder, 1, &["--set", &clash]);
    assert!(refusal.contains("which a broker of this cluster has"), "{refusal}");
    let refusal = refused(&folder, 1, &["--set", "console.state.dir=/one/for/all"]);
    assert!(refusal.contains("console.state.dir cannot be set for all brokers"), "{refusal}");
}

#[test]
fn a_console_shows_a_cluster_that_falls_apart() {
    let (_place, folder) = place();
    let mut up = Up::of(&folder, 3, &[]);
    let urls = up.gateways();
    block_on(async {
        let at = open(&up.brokers[2].address).await;
        create(&at, "alone", &[1]).await;
    });
    up.brokers[0].signal(Signal::KILL);
    wait_for_states(&up.bootstrap, &urls[2..], |all| all == ["1 fenced", "2 up", "3 up"]);
    let page = get(&urls[2], "/console").unwrap();
    assert!(
        page.contains("Brokers that do not serve") && page.contains("Topics in trouble"),
        "{page}"
    );
    let text = get(&urls[2], "/api/v1/topic?name=alone").unwrap();
    let topic: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(topic["partitions"][0]["state"], "offline", "{text}");
    let (status, page) = ask(&urls[2], "/console/records?topic=alone&partition=0").unwrap();
    assert!(status == 503 && page.contains("partition 0 of alone has no leader now"), "{page}");
    let page = get(&urls[2], "/console/records?topic=alone&partition=all").unwrap();
    assert!(page.contains("Not every partition could be read"), "{page}");
    let page = get(&urls[2], "/console/broker?id=1").unwrap();
    assert!(page.contains("registered and serves nothing") && page.contains("alone"), "{page}");
    // Without a majority nobody is fenced any more: what the metadata says of a broker is not that it answers.
    up.brokers[1].signal(Signal::KILL);
    wait_for_states(&up.bootstrap, &urls[2..], |all| {
        ["2 silent", "3 up"].iter().all(|state| all.iter().any(|shown| shown == state))
    });
    let page = get(&urls[2], "/console/broker?id=2").unwrap();
    assert!(page.contains("log directories could not be had: cannot connect to"), "{page}");
    up.stop();
}
