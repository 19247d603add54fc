//! Calls: many in flight, answered in any order, all bounded.

use crate::support::*;
use bytes::Bytes;
use link::{Answering, CallError, Decline, Declined, LinkConfig, Peer, Service};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Answers `wait` once somebody has said `go`; all else at once.
struct Gate(Semaphore);

impl Gate {
    fn new() -> Arc<Gate> {
        Arc::new(Gate(Semaphore::new(0)))
    }
}

impl Service for Gate {
    fn answer<'a>(&'a self, _: &'a Arc<Peer>, message: Bytes) -> Answering<'a> {
        Box::pin(async move {
            match &message[..] {
                b"wait" => self.0.acquire().await.expect("it is never closed").forget(),
                b"go" => self.0.add_permits(1),
                b"panic" => panic!("as it was asked to"),
                b"fail" => return Err(Declined::new(Decline::Failed, "as it was asked to")),
                b"much" => return Ok(vec![1; 5000]),
                _ => {}
            }
            Ok(message.to_vec())
        })
    }
}

async fn linked(config: LinkConfig) -> (Node, link::Link) {
    let node = Node::start(identity(2), config.clone(), Gate::new()).await;
    let (link, _) = start_link(node.target(2), identity(1), config);
    (node, link)
}

#[tokio::test]
async fn the_second_call_is_answered_before_the_first() {
    let (node, link) = linked(config()).await;
    let first = tokio::spawn({
        let link = link.clone();
        async move { echo(&link, b"wait").await }
    });
    // The first is answered only because the second was.
    assert_eq!(echo(&link, b"go").await.unwrap(), &b"go"[..]);
    assert_eq!(within("the first", first).await.unwrap().unwrap(), &b"wait"[..]);
    link.stop();
    node.stop().await;
}

#[tokio::test]
async fn large_and_small_messages_come_back_as_they_were() {
    let (node, link) = linked(config()).await;
    let asked = (0..40usize).map(|i| {
        let message: Vec<u8> = (0..i * i * 100).map(|at| (at * 7 + i) as u8).collect();
        let link = link.clone();
        tokio::spawn(async move {
            let answer = echo(&link, &message).await.unwrap();
            assert!(answer == message, "message {i}");
        })
    });
    for asked in asked.collect::<Vec<_>>() {
        within("an answer", asked).await.unwrap();
    }
    link.stop();
    node.stop().await;
}

#[tokio::test]
async fn a_full_queue_refuses_at_once() {
    let bounds = LinkConfig { calls_max: 2, queued_bytes_max: 1000, ..config() };
    let (node, link) = linked(bounds).await;
    assert_eq!(echo(&link, &[0; 1000]).await, Err(CallError::QueueFull), "too many bytes");
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let link = link.clone();
            tokio::spawn(async move {
                loop {
                    match echo(&link, b"wait").await {
                        Err(CallError::QueueFull) => tokio::task::yield_now().await,
                        other => return other,
                    }
                }
            })
        })
        .collect();
    // Both have their places once one more has none.
    within("a refusal", async {
        while echo(&link, b"ask").await != Err(CallError::QueueFull) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!CallError::QueueFull.may_have_happened());
    link.stop();
    for waiting in waiting {
        let answer = within("an end", waiting).await.unwrap();
        assert!(answer.is_ok() || answer.unwrap_err().may_have_happened());
    }
    node.stop().await;
}

#[tokio::test]
async fn whoever_answers_declines_what_is_too_much() {
    let bounds = LinkConfig { served_max: 1, frame_bytes_max: 4096, ..config() };
    let (node, link) = linked(bounds).await;
    let first = tokio::spawn({
        let link = link.clone();
        async move { echo(&link, b"wait").await }
    });
    let busy = within("a refusal", async {
        loop {
            // Until the first has its place, this one may have it.
            if let Err(error) = echo(&link, b"ask").await {
                return error;
            }
        }
    })
    .await;
    let CallError::Declined(declined) = &busy else { panic!("{busy}") };
    assert_eq!(declined.why, Decline::Busy);
    assert!(!busy.may_have_happened());
    first.abort();
    let too_large = echo(&link, &[0; 4096]).await;
    assert_eq!(too_large, Err(CallError::TooLarge { bytes: 4096, max: 4085 }));
    link.stop();
    node.stop().await;
}

#[tokio::test]
async fn what_cannot_be_answered_is_declined_in_words() {
    let bounds = LinkConfig { frame_bytes_max: 4096, ..config() };
    let (node, link) = linked(bounds).await;
    for (message, why) in [
        (&b"panic"[..], Decline::Failed),
        (b"fail", Decline::Failed),
        (b"much", Decline::AnswerTooLarge),
    ] {
        let error = echo(&link, message).await.unwrap_err();
        let CallError::Declined(declined) = &error else { panic!("{error}") };
        assert_eq!(declined.why, why);
        assert!(error.may_have_happened());
    }
    let unknown = link.call(1234, Vec::new(), PATIENCE).await.unwrap_err();
    let CallError::Declined(declined) = &unknown else { panic!("{unknown}") };
    assert_eq!(declined.why, Decline::NoService);
    // None of it has cost the connection.
    assert_eq!(echo(&link, b"still there").await.unwrap(), &b"still there"[..]);
    link.stop();
    node.stop().await;
}

#[tokio::test]
async fn a_call_that_is_not_answered_ends_at_its_deadline_and_costs_nobody() {
    let bounds = LinkConfig { calls_max: 1, served_max: 1, ..config() };
    let (node, link) = linked(bounds).await;
    assert_eq!(echo(&link, b"there").await.unwrap(), &b"there"[..]);
    for _ in 0..3 {
        let late = link.call(ECHO, b"wait".to_vec(), Duration::from_millis(20)).await;
        // The other end may still be about to give the one before up.
        let busy = matches!(&late, Err(CallError::Declined(told)) if told.why == Decline::Busy);
        assert!(busy || late == Err(CallError::TimedOut), "{late:?}");
    }
    // Both ends have given the calls up, the other end a moment later perhaps.
    within("a turn", async { while echo(&link, b"on").await.is_err() {} }).await;
    link.stop();
    node.stop().await;
}

#[tokio::test]
async fn calls_that_wait_are_told_when_the_link_stops() {
    let (node, link) = linked(config()).await;
    assert!(echo(&link, b"there").await.is_ok());
    let waiting = tokio::spawn({
        let link = link.clone();
        async move { echo(&link, b"wait").await }
    });
    tokio::task::yield_now().await;
    link.stop();
    let told = within("an end", waiting).await.unwrap().unwrap_err();
    assert!(matches!(told, CallError::Ended(_) | CallError::NotConnected(_)), "{told:?}");
    let after = within("a refusal", async {
        loop {
            match echo(&link, b"?").await {
                Err(error @ CallError::NotConnected(_)) => return error,
                _ => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    assert!(!after.may_have_happened());
    node.stop().await;
}
