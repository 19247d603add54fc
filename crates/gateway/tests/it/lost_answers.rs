//! Answers that are lost between the gateway and its broker while the broker refuses records of other clients.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serde_json::json;

use crate::fixture::World;

const TEXT: &str = "application/vnd.kafka.text.v2+json";
/// Answers that are lost.
const LOST: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_doubles_no_record_while_another_topic_refuses_records() {
    let (world, gate) = World::start_behind_gate().await;
    world.create("kept", 1, &[]).await;
    world.create("refusing", 1, &[("message.timestamp.after.max.ms", "1000")]).await;
    let (is_over, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let mut other = world.connect().await;
    let refusing = tokio::spawn({
        let (is_over, refused) = (is_over.clone(), refused.clone());
        async move {
            let far = json!({"records": [{"value": "x", "timestamp": 32_503_680_000_000_i64}]});
            while !is_over.load(Ordering::Acquire) {
                let answer = other.post("/topics/refusing", TEXT, far.to_string()).await;
                // 504 where an answer of this topic shared the connection that was ended.
                assert!(matches!(answer.status, 422 | 504), "{answer:?}");
                refused.fetch_add(1, Ordering::AcqRel);
            }
        }
    });
    let mut connection = world.connect().await;
    for number in 0..LOST {
        let value = format!("kept-{number}-end");
        gate.lose_answer(&value);
        let before = refused.load(Ordering::Acquire);
        let body = json!({"records": [{"value": value}]}).to_string();
        let answer = connection.post("/topics/kept", TEXT, body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert!(gate.has_lost());
        // Each round has a refusal: else it tries nothing.
        while refused.load(Ordering::Acquire) == before && !refusing.is_finished() {
            tokio::task::yield_now().await;
        }
    }
    is_over.store(true, Ordering::Release);
    refusing.await.unwrap();
    let mut counts: HashMap<Vec<u8>, u32> = HashMap::new();
    for record in world.read("kept").await {
        *counts.entry(record.value.unwrap()).or_default() += 1;
    }
    assert_eq!(counts.len(), LOST);
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
    world.stop().await;
}
