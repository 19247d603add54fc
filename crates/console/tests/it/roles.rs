//! Every action of the console, for every role: who may not have it reviewed, and cannot carry out what somebody else has had
//! reviewed either.

use std::path::Path;

use client::admin::Resource;
use gateway::who::tokens;
use serving::operation::Kind;
use serving::rights::{Rights, Role, Topics};
use serving::users::{Token, User, Users};

use crate::fixture::{Answer, World, hidden, send};

/// What each action needs, written down a second time: an action that is missing here does not compile.
fn needs(kind: Kind) -> Role {
    match kind {
        Kind::Produce => Role::Produce,
        Kind::CreateTopic | Kind::AddPartitions | Kind::MoveGroup => Role::Write,
        Kind::AlterTopic
        | Kind::DeleteTopic
        | Kind::DeleteGroup
        | Kind::ElectLeaders
        | Kind::Reassign
        | Kind::CancelMoves
        | Kind::LiftThrottle => Role::Admin,
    }
}

/// A form of each action that can be read.
fn fields(kind: Kind, topic: &'static str) -> Vec<(&'static str, &'static str)> {
    match kind {
        Kind::Produce => vec![("topic", topic), ("value", "v")],
        Kind::CreateTopic => vec![("topic", "another"), ("partitions", "1")],
        Kind::AddPartitions => vec![("topic", topic), ("total", "2")],
        Kind::AlterTopic => vec![("topic", topic), ("set", "retention.ms=60000")],
        Kind::DeleteTopic => vec![("topic", topic), ("typed", topic)],
        Kind::MoveGroup => vec![("group", "g"), ("to", "earliest")],
        Kind::DeleteGroup => vec![("group", "g")],
        Kind::ElectLeaders | Kind::CancelMoves => vec![("topic", topic)],
        Kind::Reassign => vec![(
            "moves",
            r#"{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1]}]}"#,
        )],
        Kind::LiftThrottle => vec![],
    }
}

const ROLES: [(&str, Role); 4] = [
    ("reader", Role::Read),
    ("producer", Role::Produce),
    ("writer", Role::Write),
    ("boss", Role::Admin),
];

/// Users of each role, one whose topics are others, and the token of each.
fn people(file: &Path) -> Vec<(&'static str, Option<Role>, String)> {
    let mut users = Users::default();
    let elsewhere =
        Rights { role: Some(Role::Admin), topics: Topics::Under(vec!["logs.".to_owned()]) };
    let all = ROLES.map(|(name, role)| (name, Rights::of(role)));
    let mut people = Vec::new();
    for (name, rights) in all.into_iter().chain([("elsewhere", elsewhere)]) {
        let role = ROLES.iter().find(|(known, _)| *known == name).map(|(_, role)| *role);
        users.users.insert(name.to_owned(), User { rights, password: None });
        let token = tokens::make();
        let entry = Token { user: name.to_owned(), made_s: 1 };
        users.tokens.insert(tokens::hash(&token), entry);
        people.push((name, role, token));
    }
    std::fs::write(file, users.text()).unwrap();
    people
}

async fn post(world: &World, token: Option<&str>, kind: Kind, fields: &[(&str, &str)]) -> Answer {
    let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let says = token.map_or(String::new(), |token| format!("authorization: Bearer {token}\r\n"));
    let headers = format!(
        "host: localhost\r\n{says}content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n",
        form.len()
    );
    let path = format!("/console/do/{}", kind.name());
    send(world.gateway.address(), "POST", &path, &headers, &form).await
}

/// What the cluster has: what nobody may have changed.
async fn state(world: &World) -> String {
    let topics = world.admin().describe_all().await.unwrap().topics;
    let mut names: Vec<_> =
        topics.iter().map(|(name, topic)| format!("{name} {}", topic.partitions.len())).collect();
    names.sort();
    let orders = Resource::topic("orders");
    let mut configs = world.admin().describe_configs(&orders).await.unwrap().configs;
    configs.retain(|config| config.name == "retention.ms");
    let offsets = world.admin().group_offsets("g").await.unwrap();
    let retention = &configs[0].value;
    format!("{names:?} {retention:?} {offsets:?} {}", world.end("orders", 0).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_action_is_for_the_roles_that_may_and_for_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    let people = people(&file);
    let world = World::start_for(&file).await;
    world.create("orders", 1).await;
    world.produce("orders", 0, 3).await;
    world.commit("g", "orders", 0, 1).await;
    let before = state(&world).await;
    let boss = &people.iter().find(|(name, ..)| *name == "boss").unwrap().2;
    for kind in Kind::ALL {
        let asked = fields(kind, "orders");
        let with = |step| [asked.clone(), vec![("step", step)]].concat();
        // What somebody who may has reviewed, as it would be carried out.
        let reviewed = post(&world, Some(boss), kind, &with("review")).await;
        let handed_on = hidden(&reviewed.body);
        let run: Vec<(&str, &str)> = handed_on
            .iter()
            .map(|(name, text)| (&**name, &**text))
            .chain([("typed", "orders"), ("step", "run")])
            .collect();
        // These brokers move no replicas: nothing of it can be reviewed, and who may is told so.
        let is_served = !matches!(kind, Kind::Reassign | Kind::CancelMoves | Kind::LiftThrottle);
        let has_token = run.iter().any(|(name, _)| *name == "token");
        assert!(has_token || !is_served, "{}: {reviewed:?}", kind.name());
        for (name, role, token) in &people {
            // Whose topics are others may do none of this.
            let may = role.is_some_and(|role| role >= needs(kind));
            let review = post(&world, Some(token), kind, &with("review")).await;
            assert_eq!(review.status != 403, may, "{} by {name}: {}", kind.name(), review.status);
            if !may {
                let status = post(&world, Some(token), kind, &run).await.status;
                assert_eq!(status, 403, "{} of the boss's by {name}", kind.name());
            } else if token != boss {
                // It was reviewed by another one.
                let stolen = post(&world, Some(token), kind, &run).await;
                assert_ne!(stolen.status, 303, "{} of the boss's by {name}", kind.name());
            }
        }
        for form in [&with("review"), &run] {
            for token in [None, Some("hwt_wrong")] {
                let status = post(&world, token, kind, form).await.status;
                assert_eq!(status, 401, "{} by nobody", kind.name());
            }
        }
        assert_eq!(state(&world).await, before, "{}: nothing was done", kind.name());
    }
    // And what somebody may is done.
    let producer = &people.iter().find(|(name, ..)| *name == "producer").unwrap().2;
    let review = [fields(Kind::Produce, "orders"), vec![("step", "review")]].concat();
    let reviewed = post(&world, Some(producer), Kind::Produce, &review).await;
    let mut run = hidden(&reviewed.body);
    run.push(("step".to_owned(), "run".to_owned()));
    let run: Vec<_> = run.iter().map(|(name, text)| (&**name, &**text)).collect();
    assert_eq!(post(&world, Some(producer), Kind::Produce, &run).await.status, 303);
    assert_eq!(world.end("orders", 0).await, 4);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_actions_shows_records_to_those_who_may_read_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    let people = people(&file);
    let world = World::start_for(&file).await;
    world.create("orders", 1).await;
    let token = |wanted: &str| &people.iter().find(|(name, ..)| *name == wanted).unwrap().2;
    let words = ["secret-key", "secret-value", "secret-header"];
    let record = [("topic", "orders"), ("key", words[0]), ("value", words[1])];
    let asked = [&record[..], &[("headers", "x=secret-header"), ("step", "review")]].concat();
    let reviewed = post(&world, Some(token("boss")), Kind::Produce, &asked).await;
    let mut run = hidden(&reviewed.body);
    run.push(("step".to_owned(), "run".to_owned()));
    let run: Vec<_> = run.iter().map(|(name, text)| (&**name, &**text)).collect();
    let done = post(&world, Some(token("boss")), Kind::Produce, &run).await;
    assert_eq!(done.status, 303, "{done:?}");
    for (name, may) in [("boss", true), ("reader", true), ("elsewhere", false)] {
        let says = format!("host: localhost\r\nauthorization: Bearer {}\r\n", token(name));
        for path in ["/api/v1/actions", "/console/actions?id=1", "/console/actions"] {
            let told = send(world.gateway.address(), "GET", path, &says, "").await;
            assert_eq!(told.status, 200, "{path} as {name}: {told:?}");
            let is_list = path == "/console/actions";
            for word in &words[..2] {
                let is_shown = told.body.contains(word);
                assert_eq!(is_shown, may && !is_list, "{path} as {name}: {}", told.body);
            }
            assert!(told.body.contains("orders"), "that it was done may be known: {}", told.body);
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_for_those_who_may_look_and_records_for_those_who_may_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    let people = people(&file);
    let world = World::start_for(&file).await;
    world.create("orders", 1).await;
    world.produce("orders", 0, 1).await;
    let names = [
        "brokers",
        "broker?id=1",
        "topics",
        "topic?name=orders",
        "groups",
        "group?id=none",
        "records?topic=orders&partition=0&offset=earliest",
        "distribution?topic=orders",
        "tail?topic=orders",
        "gateway",
        "moves",
        "actions",
    ];
    let pages = names.map(|name| format!("/console/{name}"));
    let apis = names.map(|name| format!("/api/v1/{name}"));
    let others = ["/console", "/console/do/produce", "/api/v1/cluster", "/api/status/c/topics"];
    let others = others.map(str::to_owned);
    for target in pages.iter().chain(&apis).chain(&others) {
        let ask = async |says: String| {
            send(world.gateway.address(), "GET", target, &format!("host: localhost\r\n{says}"), "")
                .await
        };
        for says in ["", "authorization: Bearer hwt_wrong\r\n", "cookie: highwater-session=x.y\r\n"]
        {
            let answer = ask(says.to_owned()).await;
            assert_eq!(answer.status, 401, "{target} {says}: {}", answer.body);
            assert!(!answer.body.contains("orders"), "{target}: {}", answer.body);
        }
        for (name, _, token) in &people {
            let answer = ask(format!("authorization: Bearer {token}\r\n")).await;
            let is_records = target.contains("/records");
            let may = !is_records || *name != "elsewhere";
            // Forms need what their action needs.
            let is_form = target.contains("/do/");
            assert!(is_form || (answer.status != 403) == may, "{target} as {name}: {answer:?}");
            assert_ne!(answer.status, 401, "{target} as {name}");
        }
    }
    world.stop().await;
}
