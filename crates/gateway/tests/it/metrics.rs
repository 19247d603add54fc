//! What the gateway counts of itself is what was done.

use std::path::Path;

use serde_json::json;

use crate::event_stream::{EventStream, Said};
use crate::fixture::World;

const JSON: &str = "application/vnd.kafka.json.v2+json";

/// The value of a line of metrics; 0 if there is none.
fn value(text: &str, line: &str) -> f64 {
    let found = text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' '));
    found.map_or(0.0, |number| number.parse().unwrap())
}

async fn shown(world: &World) -> String {
    let answer = world.connect().await.get("/metrics").await;
    assert_eq!(answer.status, 200);
    let content_type = answer.header("content-type").unwrap();
    assert!(content_type.starts_with("application/openmetrics-text"), "{content_type}");
    assert!(answer.body.ends_with("# EOF\n"));
    answer.body
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_by_pattern_and_status_and_records_when_they_are_acknowledged() {
    let world = World::start().await;
    world.create("orders", 2, &[]).await;
    let mut connection = world.connect().await;
    let body = json!({"records": [{"value": 1}, {"value": 2}, {"value": 3}]}).to_string();
    assert_eq!(connection.post("/topics/orders", JSON, &body).await.status, 200);
    assert_eq!(connection.post("/topics/orders", JSON, &body).await.status, 200);
    assert_eq!(connection.post("/topics/missing", JSON, &body).await.status, 404);
    assert_eq!(connection.post("/topics/orders/partitions/x", JSON, &body).await.status, 404);
    assert_eq!(connection.get("/nothing/here/at/all").await.status, 404);
    let keyed =
        connection.ask("POST", "/topics/orders/raw", &[("idempotency-key", "k")], b"hello").await;
    assert_eq!(keyed.status, 200);
    let text = shown(&world).await;
    let requests = |method, route, code| {
        let line = format!(
            "highwater_gateway_requests_total{{method=\"{method}\",route=\"{route}\",code=\"{code}\"}}"
        );
        value(&text, &line)
    };
    assert_eq!(requests("POST", "/topics/{topic}", "200"), 2.0);
    assert_eq!(requests("POST", "/topics/{topic}", "404"), 1.0);
    assert_eq!(requests("", "none", "404"), 2.0);
    assert_eq!(requests("POST", "/topics/{topic}/raw", "200"), 1.0);
    let took = "highwater_gateway_request_seconds_count{method=\"POST\",route=\"/topics/{topic}\"}";
    assert_eq!(value(&text, took), 3.0);
    assert_eq!(value(&text, "highwater_gateway_produced_records_total"), 7.0);
    assert_eq!(value(&text, "highwater_gateway_idempotency_entries"), 1.0);
    assert_eq!(value(&text, "highwater_gateway_buffer_bytes{for=\"records\"}"), 0.0);
    // This one, and the one that asks.
    assert_eq!(value(&text, "highwater_gateway_connections{kind=\"http\"}"), 2.0);
    assert!(
        !text.contains("orders") && !text.contains("missing"),
        "no name from outside is a label"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_streams_are_counted_from_their_first_byte_to_why_they_ended() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let mut live = EventStream::open(world.gateway.address(), "/topics/t/events", None).await;
    // The first id: from here on it waits at the end of the log.
    while live.next().await.unwrap() != Said::Id {}
    world.fill("t", 0, (0..10).map(|n| n.to_string())).await;
    let mut seen = 0;
    while seen < 10 {
        seen += usize::from(matches!(live.next().await.unwrap(), Said::Event { .. }));
    }
    let mut past =
        EventStream::open(world.gateway.address(), "/topics/t/events?from=earliest&limit=4", None)
            .await;
    while past.next().await.is_some() {}
    let text = loop {
        let text = shown(&world).await;
        if value(&text, "highwater_gateway_closed_total{reason=\"ended\"}") == 1.0 {
            break text;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(value(&text, "highwater_gateway_events_total{kind=\"sse\"}"), 14.0);
    assert_eq!(value(&text, "highwater_gateway_connections{kind=\"sse\"}"), 1.0);
    assert_eq!(value(&text, "highwater_gateway_subscribers{state=\"tail\"}"), 1.0);
    assert_eq!(value(&text, "highwater_gateway_subscribers{state=\"blocked\"}"), 0.0);
    assert!(value(&text, "highwater_gateway_sent_bytes_total") > 14.0);
    // Once for each piece that was waited for: the other reader has read the past.
    let delivered = value(&text, "highwater_gateway_delivery_seconds_count");
    assert!((1.0..=10.0).contains(&delivered), "{delivered}");
    let opened = "highwater_gateway_requests_total{method=\"GET\",route=\"/topics/{topics}/events\",code=\"200\"}";
    assert_eq!(value(&text, opened), 2.0);
    drop(live);
    world.until_count("readers", 0).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_of_the_gateway_is_listed_in_the_documentation() {
    let world = World::start().await;
    let text = metrics::text(&world.gateway.metrics());
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    metrics::documented::check(&text, Path::new(page), "metric of the gateway");
    world.stop().await;
}
