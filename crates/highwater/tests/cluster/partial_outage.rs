//! One partition has no leader: readers that start meanwhile read the others, and this one as soon as it has a leader.

use std::io::Read;
use std::net::TcpStream;

use super::replication::described;
use super::*;

/// Appends one record to a partition.
fn append(bootstrap: &str, partition: usize, value: &str) {
    let mut command = Command::new(HIGHWATER);
    command.args(["produce", "thirds", "-b", bootstrap, "--partition", &partition.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{value}\n").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{value}");
}

/// Values that `consume` prints.
fn values(text: &str) -> Vec<&str> {
    let mut values: Vec<&str> = text.lines().collect();
    values.sort_unstable();
    values
}

/// Creates `thirds` with a record in each of its three partitions, and kills the leader of partition 0. Returns the id of that broker.
fn lose_a_leader(up: &Up) -> usize {
    up.run("topic create thirds -p 3 -r 1");
    for partition in 0..3 {
        append(&up.bootstrap, partition, &format!("of {partition}"));
    }
    // The coordinator's topic exists before a broker dies.
    up.run("consume thirds -n 3 --group before");
    let rows = described(&up.bootstrap, "thirds").unwrap();
    let leader = usize::try_from(rows[0].0).unwrap();
    up.brokers[leader - 1].signal(Signal::KILL);
    wait_until("partition 0 has no leader", || {
        described(&up.bootstrap, "thirds").is_some_and(|rows| rows[0].0 < 0)
    });
    leader
}

#[test]
fn a_reader_that_starts_while_a_partition_has_no_leader_reads_the_others() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    lose_a_leader(&up);
    let alone = up.run("consume thirds -n 2");
    assert_eq!(values(&alone), ["of 1", "of 2"]);
    let member = up.run("consume thirds -n 2 --group after");
    assert_eq!(values(&member), ["of 1", "of 2"]);
}

/// A stream of a gateway, as bytes.
struct GatewayStream {
    stream: TcpStream,
    text: String,
}

impl GatewayStream {
    /// Sends a request. `url`: of the gateway.
    fn open(url: &str, request: &str) -> GatewayStream {
        let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        GatewayStream { stream, text: String::new() }
    }

    fn events(url: &str, query: &str) -> GatewayStream {
        let target = format!("/topics/thirds/events?{query}");
        GatewayStream::open(url, &format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n"))
    }

    fn socket(url: &str, target: &str) -> GatewayStream {
        let request = format!(
            "GET {target} HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        GatewayStream::open(url, &request)
    }

    /// Reads until all of these texts have come. Sockets' texts stand in their frames as they are.
    fn until(&mut self, texts: &[&str]) {
        let mut buffer = [0; 4096];
        while !texts.iter().all(|text| self.text.contains(text)) {
            let count = self.stream.read(&mut buffer).unwrap();
            assert!(count > 0, "closed without {texts:?}: {}", self.text);
            self.text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    }
}

/// The body of an answer to a request of a consumer instance.
fn ask_instance(url: &str, method: &str, path: &str, body: &str) -> String {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\
         content-type: application/vnd.kafka.v2+json\r\naccept: application/vnd.kafka.binary.v2+json\r\n\r\n{body}",
        body.len()
    );
    let mut stream = GatewayStream::open(url, &request);
    stream.stream.read_to_string(&mut stream.text).unwrap();
    let (head, body) = stream.text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap();
    assert!(status.starts_with('2'), "{method} {path}: {head} {body}");
    body.to_owned()
}

/// Reads records of an instance until all of these texts have come. Returns the texts that came.
fn read_instance(url: &str, path: &str, texts: &[&str]) -> String {
    let mut all = String::new();
    let deadline = Instant::now() + LIMIT;
    while !texts.iter().all(|text| all.contains(text)) {
        assert!(Instant::now() < deadline, "without {texts:?}: {all}");
        all += &ask_instance(url, "GET", &format!("{path}/records?timeout=1000"), "");
    }
    all
}

#[test]
fn readers_of_a_gateway_that_start_without_a_leader_of_one_partition_read_the_others() {
    let (_place, folder) = place();
    let mut up = Up::of(&folder, 3, &[]);
    let gateways = up.gateways();
    let leader = lose_a_leader(&up);
    let url = &gateways[leader % 3];

    let mut latest = GatewayStream::events(url, "from=latest");
    latest.until(&["no leader answers for 1 partition,", " thirds-0\n"]);
    let mut streams = [
        GatewayStream::events(url, "from=earliest"),
        GatewayStream::events(url, "from=earliest&group=events"),
        GatewayStream::socket(url, "/ws/topics/thirds?from=earliest"),
    ];
    for stream in &mut streams {
        stream.until(&["of 1", "of 2"]);
        assert!(!stream.text.contains("of 0"), "{}", stream.text);
    }
    for stream in &streams[..2] {
        assert!(stream.text.contains("no leader answers for 1 partition,"), "{}", stream.text);
    }
    let waiting = "{\"type\":\"waiting\",\"count\":1,\"partitions\":[{\"topic\":\"thirds\",\"partition\":0}]}";
    assert!(streams[2].text.contains(waiting), "{}", streams[2].text);
    let options = r#"{"name":"i","format":"binary","auto.offset.reset":"earliest"}"#;
    ask_instance(url, "POST", "/consumers/instances", options);
    let instance = "/consumers/instances/instances/i";
    let topics = r#"{"topics":["thirds"]}"#;
    ask_instance(url, "POST", &format!("{instance}/subscription"), topics);
    // `of 1` and `of 2` in base64.
    let read = read_instance(url, instance, &["b2YgMQ==", "b2YgMg=="]);
    assert!(!read.contains("b2YgMA=="), "{read}");

    let _again = ByHand::start(&up.brokers[leader - 1].again);
    for stream in &mut streams {
        stream.until(&["of 0"]);
    }
    read_instance(url, instance, &["b2YgMA=="]);
    append(&up.bootstrap, 0, "later");
    latest.until(&["later"]);
    assert!(!latest.text.contains("of 0"), "{}", latest.text);
}
