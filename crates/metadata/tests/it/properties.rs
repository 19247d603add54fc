//! Random requests: whatever is asked, the facts stay consistent.

use crate::commands::World;
use model::BrokerId;
use proptest::prelude::*;

fn command() -> impl Strategy<Value = String> {
    let topic = prop::sample::select(vec!["a", "b.c", "b_c", "d"]);
    let broker = 1..4;
    let resource =
        prop::sample::select(vec!["topic:a", "topic:d", "brokers", "broker:1", "group:g"]);
    let change = prop::sample::select(vec![
        "set retention.ms=5",
        "delete retention.ms",
        "append cleanup.policy=compact",
        "subtract cleanup.policy=delete",
        "set unclean.leader.election.enable=true",
        "set log.retention.hours=2",
    ]);
    let flag = prop::sample::select(vec!["true", "false"]);
    prop_oneof![
        (broker.clone(), 1..6, flag.clone(), flag.clone())
            .prop_map(|(b, p, c, f)| format!("register {b} process={p} clean={c} fenced={f}")),
        broker.clone().prop_map(|b| format!("fence {b}")),
        broker.clone().prop_map(|b| format!("unfence {b}")),
        broker.clone().prop_map(|b| format!("unregister {b}")),
        (topic.clone(), 1..5, 1..4).prop_map(|(t, p, rf)| format!("create {t} p={p} rf={rf}")),
        (topic.clone(), 1..8).prop_map(|(t, n)| format!("grow {t} {n}")),
        topic.clone().prop_map(|t| format!("delete {t}")),
        (resource, change).prop_map(|(r, c)| format!("incr {r} {c}")),
        (broker.clone(), topic.clone(), 0..4, prop::collection::btree_set(1..4, 1..4)).prop_map(
            |(b, t, p, isr)| {
                let isr: Vec<String> = isr.iter().map(|id: &i32| id.to_string()).collect();
                format!("isr {b} {t}-{p} isr={}", isr.join(","))
            }
        ),
        broker.prop_map(|b| format!("producer-ids {b}")),
        prop::sample::select(vec!["elect preferred", "elect unclean"]).prop_map(str::to_owned),
    ]
}

/// What R3 and R5 say of one image; what a step may do is checked by replay.
fn check(world: &World) -> Result<(), TestCaseError> {
    for topic in world.image.topics() {
        for (_, p) in topic.partitions() {
            let fenced = |id: &&BrokerId| !world.image.is_active(**id);
            prop_assert!(!p.has_leader() || world.image.is_active(p.leader), "a fenced leader");
            prop_assert!(p.isr.len() == 1 || p.isr.iter().find(fenced).is_none(), "fenced in ISR");
            let waits = p.isr.iter().all(|id| !world.image.is_active(*id));
            prop_assert!(p.has_leader() || waits, "no leader, though one could lead");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_asked_the_facts_stay_consistent(commands in prop::collection::vec(command(), 1..60)) {
        let mut world = World::default();
        world.run("cluster c");
        for command in commands {
            world.run(&command);
            check(&world)?;
        }
    }
}

/// Asks for topics of so many partitions each; returns the first answer that is a refusal, and how
/// many records came of it.
fn create(counts: &[i32]) -> (Option<String>, usize) {
    let mut world = World::default();
    world.run("register 1");
    let topic = |(number, partitions): (usize, &i32)| metadata::decide::NewTopic {
        name: format!("topic-{number}"),
        id: crate::commands::uuid(number as u64 + 1),
        partitions: *partitions,
        replication_factor: 1,
        ..Default::default()
    };
    let topics = counts.iter().enumerate().map(topic).collect();
    let create = metadata::decide::CreateTopics { topics, validate_only: false };
    let request = metadata::Request::CreateTopics(create);
    let settings = metadata::ControllerSettings::default();
    let decision = world.image.decide(&settings, model::Timestamp(0), &request);
    let metadata::Response::CreateTopics(answers) = decision.response else { unreachable!() };
    let refused = answers.into_iter().find_map(|(_, answer)| answer.err());
    let mut image = world.image.clone();
    decision.records.iter().for_each(|record| image.replay(record).unwrap());
    (refused.map(|refusal| refusal.message), image.partition_count())
}

#[test]
fn one_request_may_fill_a_broker_and_no_more() {
    assert_eq!(create(&[100_000]), (None, 100_000));
    assert_eq!(create(&[10_000; 10]), (None, 100_000));
    // What is beyond it is refused before anything is made of it.
    let words = "More than 100000 new partitions in one request: ask for fewer at a time.";
    let refused = || Some(words.to_owned());
    assert_eq!(create(&[100_001]), (refused(), 0));
    assert_eq!(create(&[99_999, 2, 1]), (refused(), 100_000));
    assert_eq!(create(&[i32::MAX, 1]), (refused(), 1));
}

#[test]
fn ten_thousand_topics_are_created_one_by_one_in_little_time() {
    let mut world = World::default();
    world.run("register 1");
    let settings = metadata::ControllerSettings::default();
    let started = std::time::Instant::now();
    let mut image = world.image.clone();
    for i in 0..10_000u64 {
        let topic = metadata::decide::NewTopic {
            name: format!("topic-{i}"),
            id: crate::commands::uuid(i + 1),
            partitions: 1,
            replication_factor: 1,
            ..Default::default()
        };
        let topics = vec![topic];
        let request = metadata::Request::CreateTopics(metadata::decide::CreateTopics {
            topics,
            validate_only: false,
        });
        let held = image.clone();
        let decision = image.decide(&settings, model::Timestamp(0), &request);
        decision.records.iter().for_each(|record| image.replay(record).unwrap());
        drop(held);
    }
    assert_eq!(image.topic_count(), 10_000);
    // Copying every topic for every topic would be fifty million copies.
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
    println!("10,000 topics one by one: {:?}", started.elapsed());
}
