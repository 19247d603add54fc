//! Links that are dialed again, and what is told of it.

use crate::support::*;
use link::{
    CallError, DialFailure, Event, Identity, Jitter, LinkConfig, Purpose, Refusal, Target, dial,
};
use model::Uuid;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;

fn failure(event: &Event) -> Option<DialFailure> {
    match event {
        Event::NotDialed { failure, .. } => Some(failure.clone()),
        _ => None,
    }
}

/// A port at which nobody listens.
async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn a_peer_that_is_gone_ends_refuses_and_comes_back_as_another() {
    let mut node = Node::start(identity(2), config(), Arc::new(Echo)).await;
    let address = node.address;
    let (link, mut events) = start_link(node.target(2), identity(1), config());
    assert!(echo(&link, b"there?").await.is_ok());
    node.events.next().await;
    node.stop().await;
    // What a controller waits for: the end, then the refusal.
    let Event::Up { .. } = events.next().await else { panic!() };
    let Event::Ended { ending, peer } = events.next().await else { panic!() };
    assert!(ending.is_of_peer(), "{ending:?}");
    assert_eq!(peer.hello.incarnation, Uuid([2; 16]));
    events.find(|event| (failure(event)? == DialFailure::Refused).then_some(())).await;
    let error = within("a refusal", async {
        loop {
            match echo(&link, b"?").await {
                Err(error @ CallError::NotConnected(_)) => return error,
                _ => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    assert!(!error.may_have_happened());
    let again = Identity { incarnation: Uuid([22; 16]), ..identity(2) };
    let node = Node::at(address, again, config(), Arc::new(Echo)).await;
    let peer = events
        .find(|event| match event {
            Event::Up { peer } => Some(Arc::clone(peer)),
            _ => None,
        })
        .await;
    assert_eq!(peer.hello.incarnation, Uuid([22; 16]));
    assert!(echo(&link, b"again").await.is_ok());
    link.stop();
    node.stop().await;
}

#[tokio::test]
async fn refused_is_told_from_silence() {
    let refused = target(nobody().await, None);
    let dialed = dial(&refused, Purpose::Control, &identity(1), &config()).await;
    assert_eq!(dialed.err(), Some(DialFailure::Refused));
    // A listener that takes nobody, with its backlog full: the system drops what more comes.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    full.bind(&any.into()).unwrap();
    full.listen(1).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let connecting = tokio::net::TcpStream::connect(address);
        match tokio::time::timeout(Duration::from_millis(200), connecting).await {
            Ok(stream) => waiting.push(stream.unwrap()),
            Err(_) => break,
        }
    }
    let hasty = LinkConfig { dial_timeout: Duration::from_millis(300), ..config() };
    let dialed = dial(&target(address, None), Purpose::Control, &identity(1), &hasty).await;
    assert_eq!(dialed.err(), Some(DialFailure::TimedOut));
}

#[tokio::test]
async fn a_name_without_an_address_is_told() {
    let nowhere = Target { node: None, host: "no-such-host.invalid".into(), port: 1 };
    let dialed = dial(&nowhere, Purpose::Control, &identity(1), &config()).await;
    assert!(matches!(dialed.err(), Some(DialFailure::Unresolved(_))));
}

#[tokio::test]
async fn waits_grow_and_are_drawn_outside() {
    let asked = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&asked);
    let jitter = Jitter::new(move |due| {
        seen.fetch_max(due.as_millis() as u64, Ordering::Relaxed);
        Duration::ZERO
    });
    let (link, mut events) =
        start_link(target(nobody().await, Some(2)), identity(1), LinkConfig { jitter, ..config() });
    let failures = events
        .find(|event| match event {
            Event::NotDialed { failures, .. } if *failures > 9 => Some(*failures),
            _ => None,
        })
        .await;
    assert_eq!(failures, 10);
    assert_eq!(asked.load(Ordering::Relaxed), 1000);
    link.stop();
}

#[tokio::test]
async fn a_lasting_refusal_is_not_asked_again_in_haste() {
    let asked = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&asked);
    let jitter = Jitter::new(move |due| {
        seen.store(due.as_millis() as u64, Ordering::Relaxed);
        Duration::ZERO
    });
    let node = Node::start(with_secret(identity(2), "s"), config(), Arc::new(Echo)).await;
    let (link, mut events) =
        start_link(node.target(2), identity(1), LinkConfig { jitter, ..config() });
    let why = events.find(|event| failure(event)?.refusal().map(|refused| refused.why)).await;
    assert_eq!(why, Refusal::Secret);
    events.find(failure).await;
    assert_eq!(asked.load(Ordering::Relaxed), 1000);
    link.stop();
    node.stop().await;
}

#[tokio::test]
async fn a_call_waits_for_the_first_dial() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = target(listener.local_addr().unwrap(), Some(2));
    let (link, _events) = start_link(to, identity(1), config());
    let call = tokio::spawn({
        let link = link.clone();
        async move { echo(&link, b"early").await }
    });
    tokio::task::yield_now().await;
    let mut raw = Raw::take(&listener, 2).await;
    let link::codec::frame::Frame::Call { id, message, .. } = raw.read_frame().await else {
        panic!()
    };
    assert_eq!(message, &b"early"[..]);
    raw.send(&link::codec::frame::Frame::Answer { id, message }.encode()).await;
    assert_eq!(within("an answer", call).await.unwrap().unwrap(), &b"early"[..]);
    drop(raw);
    let ended = async {
        let mut state = link.peer();
        while state.is_some() {
            tokio::task::yield_now().await;
            state = link.peer();
        }
    };
    within("the end", ended).await;
    link.stop();
}

#[tokio::test]
async fn that_the_peer_closed_is_known_before_the_task_of_the_link_hears_of_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (link, mut events) = start_link(target(address, Some(2)), identity(1), config());
    assert!(!link.is_open(), "nobody was there yet");
    let peer = Raw::take(&listener, 2).await;
    events.find(|event| matches!(event, Event::Up { .. }).then_some(())).await;
    assert!(link.is_open());
    drop(peer);
    // Nothing is awaited in between: on the only thread of this test the task has had no turn.
    assert!(link.peer().is_some() && !link.is_open());
    events.find(|event| matches!(event, Event::Ended { .. }).then_some(())).await;
    assert!(!link.is_open());
    link.stop();
}
