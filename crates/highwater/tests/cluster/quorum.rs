//! What three processes say of themselves, whichever is asked: the metadata quorum, brokers that are fenced or
//! forgotten, and leaders that a person asks for.

use client::{Admin, Cluster, ClusterConfig};
use model::{ErrorCode, TopicPartition};
use serde_json::Value;
use wire::{DescribeClusterRequest, ListPartitionReassignmentsRequest};

use super::hints::{block_on, create, open, until_led};
use super::*;

fn json(output: &[u8]) -> Value {
    serde_json::from_slice(output).unwrap()
}

fn described_quorum(bootstrap: &str) -> Value {
    json(run(bootstrap, "cluster quorum --format json").as_bytes())
}

/// The node that decides.
pub fn controller(bootstrap: &str) -> i32 {
    described_quorum(bootstrap)["leader"].as_i64().unwrap() as i32
}

fn roles(quorum: &Value) -> Vec<(i64, String)> {
    let members = quorum["members"].as_array().unwrap().iter();
    let role = |member: &Value| {
        (member["node"].as_i64().unwrap(), member["role"].as_str().unwrap().to_owned())
    };
    members.map(role).collect()
}

async fn admin(bootstrap: &str) -> Admin {
    Admin::new(Cluster::connect(ClusterConfig::new(bootstrap)).await.unwrap())
}

/// Fenced or not, by broker, as one broker tells it.
async fn brokers(address: &str, include_fenced_brokers: bool) -> Vec<(i32, bool)> {
    let request = DescribeClusterRequest { include_fenced_brokers, ..Default::default() };
    let answer = open(address).await.call_version(&request, 2).await.unwrap();
    let mut found: Vec<(i32, bool)> =
        answer.brokers.iter().map(|broker| (broker.broker_id, broker.is_fenced)).collect();
    found.sort_unstable();
    found
}

#[test]
fn any_broker_tells_of_the_quorum_and_of_its_observers() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 4, &[]);
    let first = described_quorum(&up.brokers[0].address);
    let leader = first["leader"].as_i64().unwrap();
    wait_until("the fourth broker has all metadata", || {
        let quorum = described_quorum(&up.bootstrap);
        let members = quorum["members"].as_array().unwrap();
        members.iter().any(|it| it["role"] == "observer" && it["caught_up_ms_ago"].is_number())
    });
    for broker in &up.brokers {
        let quorum = described_quorum(&broker.address);
        assert_eq!(quorum["leader"], leader);
        let role = |node: i64| if node == leader { "leader" } else { "voter" }.to_owned();
        let mut expected: Vec<(i64, String)> = (1..=3).map(|node| (node, role(node))).collect();
        expected.push((4, "observer".to_owned()));
        assert_eq!(roles(&quorum), expected);
        for member in quorum["members"].as_array().unwrap() {
            assert!(member["log_end_offset"].as_i64().unwrap() > 0, "{member}");
            assert!(member["heard_ms_ago"].is_number(), "{member}");
        }
    }
    // One that is silent falls behind, and is heard of no more.
    let silent = (1..=3).find(|node| *node != leader).unwrap();
    up.brokers[silent as usize - 1].pause();
    let others =
        up.brokers.iter().filter(|broker| broker.pid != up.brokers[silent as usize - 1].pid);
    let others: Vec<&str> = others.map(|broker| broker.address.as_str()).collect();
    let others = others.join(",");
    run(&others, "topic create news -p 20");
    wait_until("the silent voter lags", || {
        let quorum = described_quorum(&others);
        let members = quorum["members"].as_array().unwrap();
        let of_silent = members.iter().find(|member| member["node"] == silent).unwrap();
        let ago = |key: &str| of_silent[key].as_i64().unwrap_or(i64::MAX);
        of_silent["lag"].as_i64().unwrap() > 0
            && ago("heard_ms_ago") > 500
            && ago("caught_up_ms_ago") > 500
    });
    up.brokers[silent as usize - 1].resume();
    up.stop();
}

#[test]
fn a_broker_that_was_killed_is_shown_fenced_until_it_is_unregistered() {
    let (_place, folder) = place();
    let mut up = Up::of(&folder, 4, &[]);
    up.run("topic create kept -p 4 -r 3");
    assert!(up.run("cluster health").starts_with("healthy: yes\n"));
    let refused = try_run(&up.bootstrap, "cluster unregister 4");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said.contains("Broker 4 serves: stop it first"), "{said}");
    let said = String::from_utf8(try_run(&up.bootstrap, "cluster unregister 9").stderr).unwrap();
    assert!(said.contains("BROKER_ID_NOT_REGISTERED"), "{said}");
    let fourth = up.brokers[3].clone();
    fourth.signal(Signal::KILL);
    up.says("broker 4");
    let three = up.addresses()[..3].join(",");
    wait_until("the fourth broker is fenced", || {
        block_on(brokers(&up.brokers[0].address, true)).contains(&(4, true))
    });
    for broker in &up.brokers[..3] {
        block_on(async {
            // Whichever is asked may be some milliseconds behind.
            let deadline = Instant::now() + LIMIT;
            while brokers(&broker.address, true).await[3..] != [(4, true)] {
                assert!(Instant::now() < deadline);
            }
            let serving = [(1, false), (2, false), (3, false)];
            assert_eq!(brokers(&broker.address, false).await, serving);
        });
    }
    let health = try_run(&three, "cluster health");
    let (said, hint) = (String::from_utf8(health.stdout), String::from_utf8(health.stderr));
    assert_eq!(health.status.code(), Some(1));
    let (said, hint) = (said.unwrap(), hint.unwrap());
    assert!(said.starts_with("healthy: no\nbrokers: 3\nfenced: 1 (4)\n"), "{said}");
    assert!(hint.contains("highwater cluster unregister 4"), "{hint}");
    let info = run(&three, "cluster info");
    assert!(info.lines().any(|line| line.starts_with("4 ") && line.contains("fenced")), "{info}");
    assert_eq!(run(&three, "cluster unregister 4"), "broker 4 was unregistered\n");
    let said = String::from_utf8(try_run(&three, "cluster unregister 4").stderr).unwrap();
    assert!(said.contains("BROKER_ID_NOT_REGISTERED"), "{said}");
    for broker in &up.brokers[..3] {
        wait_until("it is forgotten everywhere", || {
            block_on(brokers(&broker.address, true)).len() == 3
        });
    }
    wait_until("it observes no more", || roles(&described_quorum(&three)).len() == 3);
    // It may come back, as one that has nothing.
    let _by_hand = ByHand::start(&fourth.again);
    wait_until("the fourth broker is back, with its replicas", || {
        try_run(&up.bootstrap, "cluster health").status.success()
            && block_on(brokers(&up.brokers[0].address, true)).contains(&(4, false))
    });
    up.stop();
}

#[test]
fn leaders_are_elected_as_a_person_asks_whichever_broker_hears_it() {
    let (_place, folder) = place();
    let mut up = Up::of(&folder, 3, &["--restart", "--set", "auto.leader.rebalance.enable=false"]);
    block_on(async {
        let at = open(&up.brokers[0].address).await;
        create(&at, "moved", &[3, 2]).await;
        create(&at, "alone", &[3]).await;
        until_led(&up.brokers[0].address, "moved", |(leader, ..)| *leader == 3).await;
    });
    assert_eq!(up.run("cluster elect moved"), "moved-0: no election needed\n");
    assert_eq!(up.run("cluster elect --all"), "no partition needs an election\n");
    up.brokers[2].pause();
    up.brokers[2].signal(Signal::KILL);
    let two = up.addresses()[..2].join(",");
    let said = up.says("broker 3 was started again, process ");
    up.brokers[2].pid = said.rsplit_once(' ').unwrap().1.parse().unwrap();
    block_on(async {
        let back = |(leader, _, isr): &(i32, i32, Vec<i32>)| *leader == 2 && isr.len() == 2;
        until_led(&up.brokers[0].address, "moved", back).await;
    });
    // The first broker need not be the one that decides, nor have a replica.
    assert_eq!(run(&up.brokers[0].address, "cluster elect moved:0"), "moved-0: elected\n");
    block_on(async {
        for broker in &up.brokers {
            until_led(&broker.address, "moved", |(leader, ..)| *leader == 3).await;
        }
        let admin = admin(&two).await;
        let wanted = [TopicPartition::new("alone", 0), TopicPartition::new("moved", 0)];
        for (name, elected) in admin.elect_leaders(true, Some(&wanted)).await.unwrap() {
            let error = elected.expect_err(&name).to_string();
            assert!(error.contains("ELECTION_NOT_NEEDED"), "{name}: {error}");
        }
        assert!(admin.elect_leaders(true, None).await.unwrap().is_empty());
        for broker in &up.brokers {
            let request = ListPartitionReassignmentsRequest::default();
            let moving = open(&broker.address).await.call(&request).await.unwrap();
            assert_eq!((moving.error(), moving.topics.len()), (ErrorCode::None, 0));
        }
    });
    let refused = try_run(&two, "cluster elect moved:7");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.starts_with("error: there is no partition moved:7\n"), "{said}");
    up.stop();
}
