//! Names that are markup, control characters or paths; pages of strangers; brokers that are gone.

use std::time::{Duration, Instant};

use client::{Cluster, Consumer, ConsumerConfig, Producer, ProducerConfig, Record};
use gateway::{Access, Settings};
use serving::visitors::Doorkeeper;

use crate::fixture::{PATIENCE, World, ask, open, open_changed, quoted};

const NAMES: [&str; 6] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "../../console/assets/console.js",
    "a/b?c=d&e=f#g",
    "right\u{202e}tfel\u{0}\u{1b}[31m",
    "'%3Cb%3E'",
];

#[tokio::test(flavor = "multi_thread")]
async fn no_name_is_markup_or_a_path() {
    let world = World::start().await;
    world.create("t", 1).await;
    world.produce("t", 0, 3).await;
    for name in NAMES {
        world.commit(name, "t", 0, 1).await;
    }
    let all =
        |groups: &serde_json::Value| groups["groups"].as_array().unwrap().len() == NAMES.len();
    let listed = world.json_when("/api/v1/groups", all).await;
    for name in NAMES {
        assert!(
            listed["groups"].as_array().unwrap().iter().any(|group| group["id"] == name),
            "{name:?}"
        );
        let id = quoted(name);
        assert_eq!(world.get(&format!("/api/v1/group?id={id}")).await.json()["lag"], 2, "{name:?}");
        for target in [
            format!("/console/group?id={id}"),
            format!("/console/groups?q={id}"),
            format!("/console/groups?sort={id}&order={id}&page={id}"),
            format!("/console/topic?name={id}"),
            format!("/console/broker?id={id}"),
            format!("/console/records?topic={id}&partition={id}&offset={id}&at={id}"),
            "/console/topic?name=t".to_owned(),
            "/console".to_owned(),
        ] {
            let page = world.get(&target).await;
            assert!([200, 404, 422].contains(&page.status), "{target}: {}", page.status);
            for markup in ["<script>alert", "<img src=x", "\u{202e}", "\u{0}", "\u{1b}", "<b>'"] {
                assert!(!page.body.contains(markup), "{target}: {markup:?}");
            }
            assert_eq!(page.body.matches("<script").count(), 1, "{target}: the console's own");
            assert!(!page.body.contains(" style=") && !page.body.contains("<style"), "{target}");
            let policy = "content-security-policy: default-src 'self'; base-uri 'none'";
            assert!(page.head.contains(policy), "{target}: {}", page.head);
            assert!(page.head.contains("x-content-type-options: nosniff"), "{target}");
        }
        // The link in the list leads to the group.
        let list = world.get(&format!("/console/groups?q={id}")).await.body;
        let link =
            list.split("href=\"/console/group?").nth(1).expect("a link").split('"').next().unwrap();
        let page = world.get(&format!("/console/group?{}", link.replace("&amp;", "&"))).await;
        assert_eq!(page.status, 200, "{name:?}: {link}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_strangers_learn_nothing() {
    let world = World::start().await;
    let at = world.gateway.address();
    for (headers, status) in [
        ("host: evil.example.com\r\n", 403),
        ("host: console.evil.example.com:8082\r\n", 403),
        ("", 403),
        ("host: localhost\r\n", 200),
        ("host: 127.0.0.1:8082\r\n", 200),
    ] {
        let answer = ask(at, "GET", "/console", headers).await;
        assert_eq!(answer.status, status, "{headers}: {}", answer.body);
        // Whatever a page of a stranger fetches, it may not read.
        assert!(!answer.head.contains("access-control-allow-origin"), "{}", answer.head);
    }
    let foreign = "host: localhost\r\norigin: https://evil.example.com\r\n";
    assert!(!ask(at, "GET", "/api/v1/topics", foreign).await.head.contains("access-control"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_read_sees_no_page() {
    let world = World::start_with(Access::Health).await;
    for target in ["/console", "/api/v1/topics", "/console/records?topic=t"] {
        let answer = world.get(target).await;
        assert_eq!(answer.status, 403, "{target}");
        assert!(answer.body.contains("gateway.anonymous=read"), "{}", answer.body);
    }
    assert_eq!(world.get("/healthz").await.status, 200);
    world.stop().await;
}

/// How long any page may take while brokers do not answer.
const OUTAGE_PAGE_MAX: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_goes_away_is_said_and_no_page_hangs() {
    let World { broker, gateway, cluster, _dir, .. } = World::start().await;
    let get = async |target| ask(gateway.address(), "GET", target, "host: localhost\r\n").await;
    assert_eq!(get("/console").await.status, 200);
    drop(cluster);
    broker.stop_within(PATIENCE).await;
    let began = Instant::now();
    loop {
        let asked = Instant::now();
        // The broker's configuration is asked for, and cannot be had.
        let page = get("/console/broker?id=1").await;
        assert!(asked.elapsed() < OUTAGE_PAGE_MAX, "{:?}", asked.elapsed());
        match page.status {
            200 => {
                assert!(page.body.contains("the configuration could not be had"), "{}", page.body)
            }
            503 => {
                break assert!(
                    page.body.contains("The cluster cannot be reached"),
                    "{}",
                    page.body
                );
            }
            status => panic!("{status}: {}", page.body),
        }
        assert!(began.elapsed() < PATIENCE, "the console has not noticed");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_not_there_is_said_and_then_found() {
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gateway = open(&nowhere.to_string(), Access::Everything);
    let page = ask(gateway.address(), "GET", "/console", "host: localhost\r\n").await;
    assert_eq!(page.status, 503);
    assert!(
        page.body.contains("The cluster cannot be reached")
            && page.body.contains(&nowhere.to_string()),
        "{}",
        page.body
    );
    let json = ask(gateway.address(), "GET", "/api/v1/topics", "host: localhost\r\n").await;
    assert_eq!((json.status, &json.json()["retriable"]), (503, &true.into()));
    let style =
        ask(gateway.address(), "GET", "/console/assets/console.css", "host: localhost\r\n").await;
    assert_eq!(style.status, 200);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_say_of_themselves_and_write_into_records_is_no_markup() {
    let world = World::start().await;
    world.create("t", 1).await;
    let producer = Producer::new(world.cluster.clone(), ProducerConfig::default()).await.unwrap();
    for name in NAMES {
        let headers = [(name, Some(name.as_bytes()))];
        let record = Record {
            key: Some(name.as_bytes()),
            value: Some(name.as_bytes()),
            headers: &headers,
            partition: Some(0),
            ..Record::default()
        };
        producer.send("t", &record).await.unwrap();
    }
    producer.flush().await.unwrap();
    let mut config = world.cluster.config().clone();
    config.connection.client_id = format!("{}\u{202e}", NAMES[1]);
    let cluster = Cluster::connect(config).await.unwrap();
    let group = ConsumerConfig {
        group_id: Some("g".to_owned()),
        auto_commit: None,
        ..ConsumerConfig::default()
    };
    let mut member = Consumer::new(cluster, group);
    member.subscribe(&["t"]).unwrap();
    while member.assignment().is_empty() {
        member.poll(Duration::from_millis(100)).await.unwrap();
    }
    let is_there = |groups: &serde_json::Value| {
        groups["groups"].as_array().unwrap().iter().any(|group| group["id"] == "g")
    };
    world.json_when("/api/v1/groups", is_there).await;
    let shown = world.get("/console/group?id=g").await;
    assert!(shown.body.contains("&lt;img src=x"), "the client's id is shown: {}", shown.body);
    let told = world.get("/api/v1/group?id=g").await.json();
    assert!(told["members"][0]["client_id"].as_str().unwrap().contains(NAMES[1]), "{told}");
    let mut targets = vec![
        "/console/group?id=g".to_owned(),
        "/console/records?topic=t&partition=0&offset=earliest".to_owned(),
    ];
    for name in NAMES.map(quoted) {
        targets.push(format!(
            "/console/tail?topic=t&key={name}&header={name}&contains={name}&partitions={name}"
        ));
        targets.push(format!(
            "/console/records?topic=t&partition=0&offset={name}&at={name}&limit={name}"
        ));
        targets.push(format!("/console/actions?id={name}"));
    }
    for target in &targets {
        let page = world.get(target).await;
        assert!([200, 422].contains(&page.status), "{target}: {}", page.status);
        for markup in ["<script>alert", "<img src=x", "<b>'"] {
            assert!(!page.body.contains(markup), "{target}: {markup:?}");
        }
        assert_eq!(page.body.matches("<script").count(), 1, "{target}: the console's own");
        // The attribute that the script compares with values keeps the raw text; the page does not display it.
        let seen = page.body.lines().map(|line| match line.split_once("data-contains=\"") {
            Some((before, rest)) => {
                let behind = rest.split_once('"').unwrap().1;
                format!("{before}{behind}")
            }
            None => line.to_owned(),
        });
        let seen: String = seen.collect();
        for hidden in ["\u{202e}", "\u{0}", "\u{1b}"] {
            assert!(!seen.contains(hidden), "{target}: {hidden:?}");
        }
    }
    member.close().await.unwrap();
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_may_read_is_told_so_under_the_consoles_paths() {
    let world = World::start().await;
    let bootstrap = world.broker.listeners()[0].to_string();
    let origin = "https://app.example.org";
    let gateway = open_changed(&bootstrap, console::Settings::default(), |settings| Settings {
        doorkeeper: Doorkeeper::new(None, [origin]),
        ..settings
    });
    for (target, origin, status) in [
        ("/api/v1/topics", origin, 204),
        ("/console/topics", origin, 204),
        ("/api/v1/topics", "https://evil.example.com", 403),
    ] {
        let headers = format!(
            "host: localhost\r\norigin: {origin}\r\naccess-control-request-method: GET\r\n\
             access-control-request-headers: authorization\r\n"
        );
        let answer = ask(gateway.address(), "OPTIONS", target, &headers).await;
        assert_eq!(answer.status, status, "{target}: {answer:?}");
        let allowed = answer.head.contains("access-control-allow-headers: authorization");
        assert_eq!(allowed, status == 204, "{answer:?}");
    }
    gateway.stop().await;
    world.stop().await;
}
