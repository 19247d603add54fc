//! CloudEvents over HTTP, and what they are as records.

use serde_json::{Value, json};

use crate::fixture::{Kept, World};

/// The header of a record, as text.
fn header<'a>(kept: &'a Kept, wanted: &str) -> Option<&'a str> {
    let (_, value) = kept.headers.iter().find(|(name, _)| name == wanted)?;
    Some(std::str::from_utf8(value.as_deref().unwrap()).unwrap())
}

fn event(id: &str, more: Value) -> Value {
    let mut event = json!({"specversion": "1.0", "id": id, "source": "/shop", "type": "ordered"});
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_every_mode_are_records_of_the_binary_mode() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    let structured = event("1", json!({"data": {"n": 1}, "partitionkey": "k", "amount": 5}));
    let structured = structured.to_string();
    let answer =
        connection.post("/topics/t", "application/cloudevents+json; charset=utf-8", structured);
    let answer = answer.await;
    assert_eq!((answer.status, &answer.json()["offset"]), (200, &json!(0)), "{answer:?}");
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "2"),
        ("ce-source", "/shop"),
        ("ce-type", "ordered"),
        ("ce-subject", "caf%C3%A9"),
        ("ce-partitionkey", "k"),
        ("content-type", "image/png"),
    ];
    let answer = connection.ask("POST", "/topics/t/partitions/0", &headers, b"\0\xff").await;
    assert_eq!((answer.status, &answer.json()["offset"]), (200, &json!(1)), "{answer:?}");
    let batch = json!([
        event("3", json!({"data": "<a/>", "datacontenttype": "text/xml"})),
        event("4", json!({"data_base64": "AP8=", "datacontenttype": "a/b"})),
        event("5", json!({})),
    ]);
    let answer =
        connection.post("/topics/t", "application/cloudevents-batch+json", batch.to_string());
    let answer = answer.await.json();
    let offsets: Vec<&Value> =
        answer["offsets"].as_array().unwrap().iter().map(|one| &one["offset"]).collect();
    assert_eq!(offsets, [&json!(2), &json!(3), &json!(4)]);

    let kept = world.read("t").await;
    let told: Vec<_> = kept
        .iter()
        .map(|kept| (header(kept, "ce_id"), header(kept, "content-type"), kept.value.as_deref()))
        .collect();
    let expected = [
        (Some("1"), Some("application/json"), Some(&b"{\"n\":1}"[..])),
        (Some("2"), Some("image/png"), Some(&[0, 255])),
        (Some("3"), Some("text/xml"), Some(b"<a/>")),
        (Some("4"), Some("a/b"), Some(&[0, 255])),
        (Some("5"), None, None),
    ];
    assert_eq!(told, expected);
    for kept in &kept {
        assert_eq!(header(kept, "ce_specversion"), Some("1.0"));
        assert_eq!(
            (header(kept, "ce_source"), header(kept, "ce_type")),
            (Some("/shop"), Some("ordered"))
        );
    }
    assert_eq!((kept[0].key.as_deref(), kept[2].key.as_deref()), (Some(&b"k"[..]), None));
    assert_eq!(
        (header(&kept[0], "ce_partitionkey"), header(&kept[0], "ce_amount")),
        (Some("k"), Some("5"))
    );
    assert_eq!(
        (kept[1].key.as_deref(), header(&kept[1], "ce_subject")),
        (Some(&b"k"[..]), Some("café"))
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_lacks_something_is_refused_by_its_name() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    let all = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "/s"), ("ce-type", "t")];
    for name in ["specversion", "id", "source", "type"] {
        let headers: Vec<_> =
            all.into_iter().filter(|(known, _)| *known != format!("ce-{name}")).collect();
        let binary = connection.ask("POST", "/topics/t", &headers, b"v").await;
        let mut event = event("1", json!({}));
        event.as_object_mut().unwrap().remove(name);
        let structured =
            connection.post("/topics/t", "application/cloudevents+json", event.to_string()).await;
        let batch = json!([event]).to_string();
        let batch = connection.post("/topics/t", "application/cloudevents-batch+json", batch).await;
        for answer in [binary, structured, batch] {
            assert_eq!((answer.status, &answer.json()["written"]), (400, &json!("no")));
            let words = format!("attribute {name} is missing");
            assert!(answer.body.contains(&words), "{answer:?}");
        }
    }
    assert_eq!(world.ends("t").await, [0]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_covers_the_attributes_of_an_event() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    let mut statuses = Vec::new();
    for id in ["1", "1", "2"] {
        let headers = [
            ("idempotency-key", "a"),
            ("ce-specversion", "1.0"),
            ("ce-id", id),
            ("ce-source", "/s"),
            ("ce-type", "t"),
        ];
        statuses.push(connection.ask("POST", "/topics/t", &headers, b"v").await.status);
    }
    assert_eq!((statuses, world.ends("t").await), (vec![200, 200, 422], vec![1]));
    world.stop().await;
}
