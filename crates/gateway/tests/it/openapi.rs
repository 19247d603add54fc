//! The document of all routes, and the one route that changes a cluster.

use gateway::Access;
use serde_json::json;

use crate::fixture::World;

const JSON: &str = "application/json";

#[tokio::test(flavor = "multi_thread")]
async fn the_document_has_every_path_under_each_of_its_names() {
    let world = World::start().await;
    let mut connection = world.connect().await;
    let document = connection.get("/openapi").await;
    assert_eq!((document.status, document.header("content-type")), (200, Some(JSON)));
    for name in ["/openapi.json", "/openapi/v3"] {
        assert_eq!(connection.get(name).await.body, document.body, "{name}");
    }
    let document = document.json();
    assert_eq!(document["openapi"], "3.1.0");
    let route = gateway::request::TABLE.iter().find(|entry| entry.id == "records").unwrap();
    let answers = &document["paths"][route.pattern]["get"]["responses"];
    assert_eq!(answers["416"]["$ref"], "#/components/responses/Error");
    assert!(connection.get("/").await.json()["bridge_version"].is_string());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_record_and_no_error_in_json_is_in_the_document_too() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    let document = connection.get("/openapi").await.json();
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let reader = "/ws/v2/reader/persistent/public/default/";
    for (method, pattern, path, headers, status) in [
        ("POST", "/console/login", "/console/login".to_owned(), &form[..], 403),
        ("POST", "/console/login", "/console/login".to_owned(), &[], 415),
        ("POST", "/console/logout", "/console/logout".to_owned(), &[], 303),
        ("GET", "/ws/topics/{topics}", "/ws/topics/t".to_owned(), &[], 426),
        ("GET", &format!("{reader}{{topic}}"), format!("{reader}t?receiverQueueSize=x"), &[], 426),
    ] {
        let answer = connection.ask(method, &path, headers, b"").await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        let operation = &document["paths"][pattern][method.to_lowercase()];
        let mut known = &operation["responses"][status.to_string()];
        if let Some(reference) = known["$ref"].as_str() {
            known = document.pointer(reference.trim_start_matches('#')).unwrap();
        }
        assert!(known.is_object(), "{path}: {status} is not in the document");
        let content_type = answer.header("content-type").unwrap_or_default();
        let content_type = content_type.split(';').next().unwrap();
        let described = &known["content"];
        assert!(described.is_null() || described[content_type].is_object(), "{path}: {answer:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_created_once_and_can_be_written_to_at_once() {
    let world = World::start().await;
    let mut connection = world.connect().await;
    assert_eq!(connection.post("/topics/new/raw", "text/plain", "x").await.status, 404);
    let body =
        json!({"topic_name": "new", "partitions_count": 3, "configs": {"retention.ms": "60000"}});
    let created = connection.post("/admin/topics", JSON, body.to_string()).await;
    assert_eq!((created.status, created.json()), (201, json!({})));
    assert_eq!(connection.post("/topics/new/raw", "text/plain", "x").await.status, 200);
    let topic = connection.get("/topics/new").await.json();
    assert_eq!(topic["partitions"].as_array().unwrap().len(), 3);
    assert_eq!(topic["configs"]["retention.ms"], "60000");
    let again = connection.post("/admin/topics", JSON, body.to_string()).await;
    assert_eq!((again.status, &again.json()["error_code"]), (409, &json!(40904)));
    for (body, status) in [
        (json!({"topic_name": "x", "replication_factor": 7}), 422),
        (json!({"topic_name": "x", "configs": {"no.such.key": "1"}}), 422),
        (json!({"topic_name": ".."}), 422),
        (json!({"topic": "x"}), 422),
        // Longer than a text may be in Kafka's protocol.
        (json!({"topic_name": "x", "configs": {"a".repeat(40_000): "1"}}), 422),
        (json!({"topic_name": "x", "configs": {"retention.ms": "1".repeat(40_000)}}), 422),
    ] {
        let answer = connection.post("/admin/topics", JSON, body.to_string()).await;
        assert_eq!(answer.status, status, "{body}: {answer:?}");
    }
    assert_eq!(connection.post("/admin/topics", "text/plain", "x").await.status, 415);
    assert_eq!(connection.get("/topics").await.json(), json!(["new"]));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_topic_is_created_where_writing_is_not_allowed() {
    for access in [Access::Health, Access::Read] {
        let world = World::start_with(|settings| gateway::Settings { access, ..settings }).await;
        let mut connection = world.connect().await;
        let refused = connection.post("/admin/topics", JSON, r#"{"topic_name":"t"}"#).await;
        assert_eq!(refused.status, 403, "{refused:?}");
        assert_eq!(connection.get("/openapi").await.status, 200, "the document is everybody's");
        world.stop().await;
    }
}
