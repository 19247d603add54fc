//! Peers that break the rules: they cost themselves their connection, and nobody else anything.

use crate::support::*;
use bytes::Bytes;
use link::codec::frame::Frame;
use link::{
    CallError, DialFailure, Ending, Event, GreetingError, LinkConfig, Purpose, Refusal, dial,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

fn turned_away(event: &Event) -> Option<GreetingError> {
    match event {
        Event::TurnedAway { error, .. } => Some(error.clone()),
        _ => None,
    }
}

fn ended(event: &Event) -> Option<Ending> {
    match event {
        Event::Ended { ending, .. } => Some(ending.clone()),
        _ => None,
    }
}

async fn door(config: LinkConfig) -> Node {
    Node::start(identity(2), config, Arc::new(Echo)).await
}

/// The node still answers who keeps the rules.
async fn check_unharmed(node: Node) {
    let (link, _events) = start_link(node.target(2), identity(1), config());
    assert_eq!(echo(&link, b"well?").await.unwrap(), &b"well?"[..]);
    link.stop();
    node.stop().await;
}

#[tokio::test]
async fn a_hello_that_drips_is_cut_off() {
    let mut node = door(LinkConfig { hello_timeout: Duration::from_millis(300), ..config() }).await;
    let mut raw = Raw::dial(node.address).await;
    let bytes = Raw::hello(1).encode();
    use tokio::io::AsyncWriteExt;
    // How slowly the peer writes is what is tested: one byte at each tick.
    let mut pace = tokio::time::interval(Duration::from_millis(5));
    let dripping = async {
        // All but the last byte, as slowly as it takes: the door does not wait for it.
        for byte in bytes[..bytes.len() - 1].iter().cycle() {
            if raw.stream.write_all(&[*byte]).await.is_err() {
                return;
            }
            pace.tick().await;
        }
    };
    // The clock of the door and the end of its Hello race; it is either too late or no Hello.
    let error = tokio::select! {
        error = node.events.find(turned_away) => error,
        () = dripping => node.events.find(turned_away).await,
    };
    let told = matches!(&error, GreetingError::RefusedHere(r) if r.why == Refusal::Malformed);
    assert!(error == GreetingError::TooSlow || told, "{error:?}");
    drop(raw);
    check_unharmed(node).await;
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_left() {
    let mut node = door(LinkConfig { hello_timeout: Duration::from_millis(50), ..config() }).await;
    let mut raw = Raw::dial(node.address).await;
    assert_eq!(node.events.find(turned_away).await, GreetingError::TooSlow);
    assert_eq!(raw.read_to_end().await, b"");
    node.door.close();
    // And a dialer leaves an acceptor that says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = target(listener.local_addr().unwrap(), None);
    let hasty = LinkConfig { hello_timeout: Duration::from_millis(50), ..config() };
    let dialed = dial(&silent, Purpose::Control, &identity(1), &hasty).await;
    assert_eq!(dialed.err(), Some(DialFailure::Greeting(GreetingError::TooSlow)));
}

#[tokio::test]
async fn lengths_that_lie_end_the_connection_before_anything_is_kept() {
    let mut node = door(config()).await;
    for lie in [&b"HWLK\xff\xff\xff\xff"[..], b"HWLK\0\0\0\0", b"HWLK\0\0\x10\x01", b"\0\x20\0\0"] {
        let mut raw = Raw::dial(node.address).await;
        raw.send(lie).await;
        let error = node.events.find(turned_away).await;
        assert!(matches!(error, GreetingError::Ended(Ending::Misbehaved(_))), "{error:?}");
        assert_eq!(raw.read_to_end().await, b"");
    }
    for lie in [[0xff; 4], [0; 4], [0, 0x20, 0, 1]] {
        let mut raw = Raw::greet(node.address, 1).await;
        raw.send(&lie).await;
        let ending = node.events.find(ended).await;
        assert!(matches!(ending, Ending::Misbehaved(_)), "{ending:?}");
        assert_eq!(raw.read_to_end().await, b"");
    }
    check_unharmed(node).await;
}

#[tokio::test]
async fn garbage_is_left_or_told_what_is_wrong() {
    let mut node = door(config()).await;
    for garbage in [
        &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
        b"\0\0\0\x1b\0\x12\0\x03\0\0\0\x01\0\x07librdka\0\x08clientid",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
    ] {
        let mut raw = Raw::dial(node.address).await;
        raw.send(garbage).await;
        node.events.find(turned_away).await;
        raw.read_to_end().await;
    }
    // What begins like a Hello and is none is told so.
    let mut raw = Raw::dial(node.address).await;
    raw.send(b"HWLK\0\0\0\x05abcde").await;
    let Frame::Refused(told) = raw.read_frame().await else { panic!() };
    assert_eq!(told.why, Refusal::Malformed);
    drop(raw);
    assert_eq!(
        node.events.find(turned_away).await.refusal().map(|refused| refused.why),
        Some(Refusal::Malformed)
    );
    // Frames that are none, and frames that only the other side sends.
    let answer = Frame::Answer { id: 0, message: Bytes::new() }.encode();
    for frame in [&b"\0\0\0\x03\xffab"[..], b"\0\0\0\x02\x04a", &answer] {
        let mut raw = Raw::greet(node.address, 1).await;
        raw.send(frame).await;
        let ending = node.events.find(ended).await;
        assert!(matches!(ending, Ending::Misbehaved(_)), "{ending:?}");
        raw.read_to_end().await;
    }
    check_unharmed(node).await;
}

#[tokio::test]
async fn a_peer_that_closes_in_the_middle_has_finished() {
    let mut node = door(config()).await;
    let hello = Raw::hello(1).encode();
    for cut in [0, 3, 4, 8, 40, hello.len() - 1] {
        let mut raw = Raw::dial(node.address).await;
        raw.send(&hello[..cut]).await;
        drop(raw);
        let error = node.events.find(turned_away).await;
        assert_eq!(error, GreetingError::Ended(Ending::Finished), "cut at {cut}");
    }
    let message = Bytes::from_static(b"abc");
    let call = Frame::Call { id: 0, service: ECHO, patience_ms: 1000, message }.encode();
    for cut in [0, 1, 4, call.len() - 1] {
        let mut raw = Raw::greet(node.address, 1).await;
        raw.send(&call[..cut]).await;
        drop(raw);
        assert_eq!(node.events.find(ended).await, Ending::Finished, "cut at {cut}");
    }
    let raw = Raw::greet(node.address, 1).await;
    raw.reset();
    assert_eq!(node.events.find(ended).await, Ending::Reset);
    check_unharmed(node).await;
}

/// A link to a peer made by hand, and its first call, which the peer has read.
async fn asked(config: LinkConfig) -> (TcpListener, Raw, Events, tokio::task::JoinHandle<Asked>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = target(listener.local_addr().unwrap(), Some(2));
    let (link, events) = start_link(to, identity(1), config);
    let call = tokio::spawn(async move {
        let answer = echo(&link, b"asked").await;
        (link, answer)
    });
    let mut raw = Raw::take(&listener, 2).await;
    assert!(matches!(raw.read_frame().await, Frame::Call { id: 0, service: ECHO, .. }));
    (listener, raw, events, call)
}

type Asked = (link::Link, Result<Bytes, CallError>);

#[tokio::test]
async fn a_caller_learns_how_the_connection_ended() {
    for reset in [false, true] {
        let (_listener, raw, mut events, call) = asked(config()).await;
        let ending = if reset { Ending::Reset } else { Ending::Finished };
        match reset {
            true => raw.reset(),
            false => drop(raw),
        }
        let (link, answer) = within("an end", call).await.unwrap();
        assert_eq!(answer, Err(CallError::Ended(ending.clone())));
        assert!(answer.unwrap_err().may_have_happened());
        assert_eq!(events.find(ended).await, ending);
        link.stop();
    }
}

#[tokio::test]
async fn a_caller_leaves_a_peer_that_answers_with_nonsense() {
    let call = Frame::Call { id: 0, service: 1, patience_ms: 1, message: Bytes::new() }.encode();
    for nonsense in [&b"\0\0\0\x01\xee"[..], b"\x7f\0\0\0", &call] {
        let (_listener, mut raw, mut events, call) = asked(config()).await;
        raw.send(nonsense).await;
        let (link, answer) = within("an end", call).await.unwrap();
        let Err(CallError::Ended(ending)) = answer else { panic!("{answer:?}") };
        assert!(matches!(ending, Ending::Misbehaved(_)), "{ending:?}");
        assert_eq!(events.find(ended).await, ending);
        link.stop();
    }
}

#[tokio::test]
async fn an_answer_that_nobody_waits_for_changes_nothing() {
    let (_listener, mut raw, _events, call) = asked(config()).await;
    let stray = Frame::Answer { id: 4711, message: Bytes::from_static(b"stray") };
    raw.send(&stray.encode()).await;
    let answer = Frame::Answer { id: 0, message: Bytes::from_static(b"yours") };
    raw.send(&answer.encode()).await;
    let (link, answer) = within("an answer", call).await.unwrap();
    assert_eq!(answer.unwrap(), &b"yours"[..]);
    link.stop();
}

#[tokio::test]
async fn an_answer_that_drips_is_given_up() {
    let hasty = LinkConfig { frame_timeout: Duration::from_millis(100), ..config() };
    let (_listener, mut raw, mut events, call) = asked(hasty).await;
    raw.send(b"\0\0\0\x0e\x05\0\0\0").await;
    let (link, answer) = within("an end", call).await.unwrap();
    assert!(matches!(answer, Err(CallError::Ended(Ending::Misbehaved(_)))), "{answer:?}");
    assert!(matches!(events.find(ended).await, Ending::Misbehaved(_)));
    link.stop();
}

/// A process that stands still ends the connection, once there is more to send than its system takes.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_peer_that_reads_nothing_ends_the_connection_by_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = target(listener.local_addr().unwrap(), Some(2));
    let (link, mut events) = start_link(to, identity(1), config());
    let sending = async {
        loop {
            tokio::select! {
                ending = events.find(ended) => return ending,
                // Refused once the queue is full, which it is soon.
                _ = link.call(ECHO, vec![0; 1 << 20], Duration::from_millis(20)) => {
                    tokio::task::yield_now().await;
                }
            }
        }
    };
    let (raw, ending) = tokio::join!(Raw::take(&listener, 2), within("an end", sending));
    assert_eq!(ending, Ending::TimedOut);
    drop(raw);
    link.stop();
}
