//! Actions: what is reviewed is done, once, and written down; nothing else is.

use serde_json::Value;

use crate::fixture::{Answer, World, hidden, send};

/// Reviews an action.
async fn review(world: &World, kind: &str, fields: &[(&str, &str)]) -> Answer {
    let mut fields = fields.to_vec();
    fields.push(("step", "review"));
    world.post(&format!("/console/do/{kind}"), &fields).await
}

/// Carries out what was reviewed; `more`: what is typed besides.
async fn confirm(world: &World, kind: &str, review: &Answer, more: &[(&str, &str)]) -> Answer {
    let hidden = hidden(&review.body);
    let mut fields: Vec<(&str, &str)> =
        hidden.iter().map(|(name, text)| (&**name, &**text)).collect();
    fields.extend(more);
    fields.push(("step", "run"));
    world.post(&format!("/console/do/{kind}"), &fields).await
}

/// Reviews, carries out, and gives the entry of the log.
async fn act(world: &World, kind: &str, fields: &[(&str, &str)], more: &[(&str, &str)]) -> Value {
    let reviewed = review(world, kind, fields).await;
    assert_eq!(reviewed.status, 200, "{reviewed:?}");
    let done = confirm(world, kind, &reviewed, more).await;
    assert_eq!(done.status, 303, "{kind}: {}", done.body);
    let log = world.get("/api/v1/actions").await.json();
    log["actions"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_made_grown_changed_and_deleted() {
    let world = World::start_open().await;
    let fields = [("topic", "orders"), ("partitions", "2"), ("settings", "retention.ms=60000\r\n")];
    let reviewed = review(&world, "create-topic", &fields).await;
    assert!(reviewed.body.contains("highwater topic create --partitions 2"), "{}", reviewed.body);
    assert!(world.admin().describe_all().await.unwrap().topics.is_empty(), "a review does nothing");
    let entry = act(&world, "create-topic", &fields, &[]).await;
    assert_eq!((&entry["end"], &entry["subject"]), (&"done".into(), &"orders".into()));
    assert_eq!(world.get("/console/topic?name=orders").await.status, 200, "the next page knows it");

    let entry = act(&world, "add-partitions", &[("topic", "orders"), ("total", "3")], &[]).await;
    assert_eq!(entry["end"], "done", "{entry}");
    let refused = review(&world, "add-partitions", &[("topic", "orders"), ("total", "3")]).await;
    assert!(refused.body.contains("has 3 partitions already"), "{}", refused.body);
    assert!(!refused.body.contains("value=\"run\""), "what cannot be done has no button");

    let change = [("topic", "orders"), ("set", "retention.ms=90000"), ("delete", "")];
    let reviewed = review(&world, "alter-topic", &change).await;
    assert!(
        reviewed.body.contains("60000") && reviewed.body.contains("90000"),
        "{}",
        reviewed.body
    );
    assert_eq!(act(&world, "alter-topic", &change, &[]).await["end"], "done");
    let nonsense = [("topic", "orders"), ("set", "retention.ms=soon")];
    let refused = review(&world, "alter-topic", &nonsense).await;
    assert!(!refused.body.contains("value=\"run\""), "{}", refused.body);

    let reviewed = review(&world, "delete-topic", &[("topic", "orders")]).await;
    for typed in [&[][..], &[("typed", "order")][..]] {
        let refused = confirm(&world, "delete-topic", &reviewed, typed).await;
        assert_eq!(refused.status, 409, "{}", refused.body);
    }
    assert!(world.admin().describe_all().await.unwrap().topics.contains_key("orders"));
    let done = confirm(&world, "delete-topic", &reviewed, &[("typed", "orders")]).await;
    assert_eq!(done.status, 303, "{}", done.body);
    assert!(!world.admin().describe_all().await.unwrap().topics.contains_key("orders"));
    // Everything is on the disk.
    let kept = world.kept.as_ref().unwrap().path().join("actions.jsonl");
    let text = std::fs::read_to_string(kept).unwrap();
    let ends = text.lines().filter(|line| line.contains("\"end\":\"done\"")).count();
    assert_eq!((ends, text.lines().filter(|line| !line.is_empty()).count()), (4, 8), "{text}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_go_where_the_strategy_says_and_are_counted() {
    let world = World::start_open().await;
    world.create("t", 3).await;
    let fields = [
        ("topic", "t"),
        ("partitioner", "round-robin"),
        ("key", "k{n}"),
        ("value", "line\r\n{n}"),
        ("headers", "h=1"),
        ("count", "6"),
    ];
    let entry = act(&world, "produce", &fields, &[]).await;
    assert_eq!(entry["end"], "done", "{entry}");
    assert_eq!(entry["lines"].as_array().unwrap().len(), 6);
    let counts = world.get("/api/v1/gateway/distribution?topic=t").await.json();
    assert_eq!(counts["counts"].as_array().unwrap().len(), 3);
    assert!(counts["counts"].as_array().unwrap().iter().all(|row| row["records"] == 2), "{counts}");
    let page = world.get("/console/do/produce?topic=t").await;
    assert!(page.body.contains("round-robin") && page.body.contains("6 records"), "{}", page.body);
    let read = world.json_when("/api/v1/records?topic=t&partition=0&offset=earliest", |read| {
        read["records"].as_array().is_some_and(|records| records.len() == 2)
    });
    let read = read.await;
    let value = read["records"][0]["value"]["text"].as_str().unwrap_or_default().to_owned();
    assert!(value.starts_with("line\n"), "{read}");
    // A strategy that needs a key is refused before anything is sent.
    let refused = review(&world, "produce", &[("topic", "t"), ("partitioner", "cs6-mod")]).await;
    assert_eq!(refused.status, 422, "{}", refused.body);
    let gone = act(&world, "produce", &[("topic", "nowhere")], &[]).await;
    assert_eq!(gone["end"], "failed", "{gone}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_moved_where_the_dry_run_says() {
    let world = World::start_open().await;
    world.create("t", 2).await;
    world.produce("t", 0, 10).await;
    world.produce("t", 1, 4).await;
    world.commit("g", "t", 0, 5).await;
    world.commit("g", "t", 1, 1).await;
    let at = async |partition: i32| {
        let offsets = world.admin().group_offsets("g").await.unwrap();
        offsets[&model::TopicPartition::new("t", partition)].offset.0
    };
    for (to, more, expected) in [
        ("shift", ("shift", "-2"), (3, 0)),
        ("latest", ("offset", ""), (10, 4)),
        ("earliest", ("offset", ""), (0, 0)),
        ("offset", ("offset", "7"), (7, 4)),
        ("time", ("time", "2020-01-31T12:00"), (0, 0)),
    ] {
        let fields = [("group", "g"), ("to", to), more];
        let reviewed = review(&world, "move-group", &fields).await;
        assert_eq!(reviewed.status, 200, "{to}: {}", reviewed.body);
        let before = (at(0).await, at(1).await);
        assert!(reviewed.body.contains("nothing has been done"), "{}", reviewed.body);
        let done = confirm(&world, "move-group", &reviewed, &[]).await;
        assert_eq!(done.status, 303, "{to} from {before:?}: {}", done.body);
        assert_eq!((at(0).await, at(1).await), expected, "{to}");
    }
    // A group that went on after the review stays where it is.
    let reviewed = review(&world, "move-group", &[("group", "g"), ("to", "latest")]).await;
    world.commit("g", "t", 0, 2).await;
    confirm(&world, "move-group", &reviewed, &[]).await;
    let entry = world.get("/api/v1/actions").await.json()["actions"][0].clone();
    assert_eq!(entry["end"], "failed", "{entry}");
    assert_eq!((at(0).await, at(1).await), (2, 0));
    // Nor does one that is read by members.
    let member = world.member("g", "t", 2).await;
    let refused = review(&world, "move-group", &[("group", "g"), ("to", "latest")]).await;
    assert!(refused.body.contains("stop its consumers first"), "{}", refused.body);
    assert!(!refused.body.contains("value=\"run\""));
    drop(member);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_of_any_name_is_deleted() {
    let world = World::start_open().await;
    world.create("t", 1).await;
    world.produce("t", 0, 1).await;
    for name in ["plain", "<script>alert(1)</script>", "a\"b'&\u{202e}", " two\nlines "] {
        world.commit(name, "t", 0, 1).await;
        let entry = act(&world, "delete-group", &[("group", name)], &[]).await;
        assert_eq!((&entry["end"], &entry["subject"]), (&"done".into(), &name.into()), "{entry}");
        let left = world.admin().list_groups().await.unwrap();
        assert!(left.iter().all(|group| group.group_id != name), "{name:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_done_twice_or_without_a_review() {
    let world = World::start_open().await;
    world.create("t", 1).await;
    let path = "/console/do/produce";
    let fields = [("topic", "t"), ("value", "x"), ("step", "run")];
    assert_eq!(world.post(path, &fields).await.status, 409, "without a token");
    let reviewed = review(&world, "produce", &[("topic", "t"), ("value", "x")]).await;
    let mut other: Vec<(String, String)> = hidden(&reviewed.body);
    other.iter_mut().filter(|(name, _)| name == "value").for_each(|(_, text)| text.push('y'));
    other.push(("step".to_owned(), "run".to_owned()));
    let other: Vec<_> = other.iter().map(|(name, text)| (&**name, &**text)).collect();
    assert_eq!(world.post(path, &other).await.status, 409, "another value than was reviewed");
    let first = confirm(&world, "produce", &reviewed, &[]).await;
    let again = confirm(&world, "produce", &reviewed, &[]).await;
    assert_eq!((first.status, again.status), (303, 303));
    let location = |answer: &Answer| {
        answer.head.lines().find(|line| line.starts_with("location")).unwrap().to_owned()
    };
    assert_eq!(location(&first), location(&again), "the second is shown what the first did");
    // Two at once.
    let reviewed = review(&world, "produce", &[("topic", "t"), ("value", "x")]).await;
    let (one, two) = tokio::join!(
        confirm(&world, "produce", &reviewed, &[]),
        confirm(&world, "produce", &reviewed, &[])
    );
    assert!([one.status, two.status].iter().all(|status| [303, 409].contains(status)));
    let metadata = world.admin().describe_all().await.unwrap();
    let partition = model::TopicPartition::new("t", 0);
    let end = world.admin().log_offset(&metadata, &partition, client::OffsetSpec::Latest).await;
    assert_eq!(end.unwrap().offset.unwrap().0, 2, "one of each review");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_strangers_have_nothing_done() {
    let world = World::start_open().await;
    let form = "topic=t&step=review";
    let length = format!("content-length: {}\r\n", form.len());
    let of_form = "content-type: application/x-www-form-urlencoded\r\n";
    for (headers, status) in [
        (format!("host: localhost\r\norigin: https://evil.example.com\r\n{of_form}"), 403),
        (format!("host: localhost\r\nsec-fetch-site: cross-site\r\n{of_form}"), 403),
        (format!("host: evil.example.com\r\n{of_form}"), 403),
        ("host: localhost\r\ncontent-type: text/plain\r\n".to_owned(), 415),
        ("host: localhost\r\n".to_owned(), 415),
        (format!("host: localhost\r\norigin: http://localhost\r\n{of_form}"), 200),
    ] {
        let headers = format!("{headers}{length}");
        let path = "/console/do/create-topic";
        let answer = send(world.gateway.address(), "POST", path, &headers, form).await;
        assert_eq!(answer.status, status, "{headers}: {}", answer.body);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_console_that_only_reads_takes_no_form() {
    let world = World::start().await;
    world.create("t", 1).await;
    for kind in serving::operation::Kind::ALL {
        let path = format!("/console/do/{}", kind.name());
        let form = world.get(&path).await;
        assert_eq!(form.status, 403, "{path}");
        assert!(form.body.contains("console.write=true"), "{}", form.body);
        for step in ["review", "run"] {
            let answer = world.post(&path, &[("topic", "t"), ("group", "g"), ("step", step)]).await;
            assert_eq!(answer.status, 403, "{path}: {}", answer.body);
        }
    }
    let page = world.get("/console/topic?name=t").await;
    assert!(!page.body.contains("/console/do/"), "nothing is offered");
    assert!(page.body.contains("Reads only"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_brokers_refuse_is_told_in_words() {
    let world = World::start_open().await;
    world.create("t", 2).await;
    let moves = world.get("/console/moves").await;
    assert_eq!(moves.status, 200, "{}", moves.body);
    let elected = review(&world, "elect-leaders", &[("topic", "t")]).await;
    assert!(elected.body.contains("there is nothing to be done"), "{}", elected.body);
    let plan = "{\"partitions\":[{\"topic\":\"t\",\"partition\":0,\"replicas\":[99]}]}";
    let refused = review(&world, "reassign", &[("moves", plan)]).await;
    assert!(refused.body.contains("the cluster has no broker 99"), "{}", refused.body);
    let even = world.get("/console/do/reassign?topic=t&on=1&propose=1").await;
    assert!(
        even.body.contains("even share") || even.body.contains("expected at least"),
        "{}",
        even.body
    );
    for form in
        ["create-topic", "produce", "alter-topic", "move-group", "reassign", "lift-throttle"]
    {
        let page = world.get(&format!("/console/do/{form}?topic=t&group=g")).await;
        assert_eq!(page.status, 200, "{form}");
        assert!(page.body.contains("<form"), "{form}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_only_read_has_nothing_done() {
    let settings = console::Settings { write: true, ..console::Settings::default() };
    let world = World::start_as(gateway::Access::Read, settings).await;
    for kind in serving::operation::Kind::ALL {
        let path = format!("/console/do/{}", kind.name());
        for step in ["review", "run"] {
            let fields = [("topic", "t"), ("group", "g"), ("total", "2"), ("step", step)];
            assert_eq!(world.post(&path, &fields).await.status, 403, "{path} {step}");
        }
    }
    assert!(world.admin().describe_all().await.unwrap().topics.is_empty());
    world.stop().await;
}
