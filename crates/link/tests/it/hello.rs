//! Hello: who is let in, and what who is not hears.

use crate::support::*;
use link::codec::hello::Versions;
use link::{
    DialFailure, Direction, Event, GreetingError, Identity, LastMetadata, LogPoint, Purpose,
    Refusal, Refused, dial,
};
use model::{BrokerId, Uuid};
use std::sync::Arc;

fn refusal(failure: Option<&GreetingError>) -> Refused {
    failure.and_then(GreetingError::refusal).expect("a refusal").clone()
}

/// Dials, and returns what the dialer and the door heard: they are the same words.
async fn refused(dialer: Identity, door: Identity, wanted: i32) -> Refused {
    let mut node = Node::start(door, config(), Arc::new(Echo)).await;
    let dialed = dial(&node.target(wanted), Purpose::Control, &dialer, &config()).await;
    let Err(DialFailure::Greeting(error)) = dialed else { panic!("{dialed:?}") };
    assert!(matches!(error, GreetingError::RefusedThere(_)), "{error:?}");
    let told = refusal(Some(&error));
    let Event::TurnedAway { error, .. } = node.events.next().await else { panic!() };
    assert_eq!(refusal(Some(&error)), told);
    node.stop().await;
    told
}

#[tokio::test]
async fn peers_know_each_other_once_they_have_said_hello() {
    let point = LogPoint { term: 3, leader: 2, index: 40 };
    let door = Identity {
        directories: vec![Uuid([9; 16])],
        last_metadata: LastMetadata::new(move || Some(point)),
        ..with_secret(identity(2), "s")
    };
    let mut node = Node::start(door, config(), Arc::new(Echo)).await;
    let (link, mut events) = start_link(node.target(2), with_secret(identity(1), "s"), config());
    assert_eq!(echo(&link, b"hello").await.unwrap(), &b"hello"[..]);
    let Event::Up { peer } = events.next().await else { panic!() };
    assert_eq!((peer.hello.node, peer.direction, peer.version), (BrokerId(2), Direction::Out, 1));
    assert_eq!(peer.hello.directories, [Uuid([9; 16])]);
    assert_eq!(peer.hello.last_metadata, Some(point));
    assert_eq!(link.peer().unwrap().hello.incarnation, Uuid([2; 16]));
    let Event::Up { peer } = node.events.next().await else { panic!() };
    assert_eq!((peer.hello.node, peer.direction), (BrokerId(1), Direction::In));
    assert_eq!(peer.hello.wanted, Some(BrokerId(2)));
    link.stop();
    node.events.find(|event| matches!(event, Event::Ended { .. }).then_some(())).await;
    node.stop().await;
}

#[tokio::test]
async fn a_fetcher_gets_its_connection_as_it_is_where_fetchers_are_served() {
    let (sender, mut taken) = tokio::sync::mpsc::unbounded_channel();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let services = link::Services::default();
    let door = link::Door::new(Arc::new(identity(2)), Arc::new(config()), services, Arc::new(()));
    let door = Arc::new(door.with_fetchers(Arc::new(move |established| {
        let _ = sender.send(established);
    })));
    let accepting = tokio::spawn(Arc::clone(&door).accept(listener));
    let purpose = Purpose::Fetcher { slot: 1 };
    let mut mine = dial(&target(address, Some(2)), purpose, &identity(1), &config()).await.unwrap();
    assert_eq!(mine.peer.hello.purpose, purpose);
    let mut theirs = within("the other end", taken.recv()).await.unwrap();
    assert_eq!(theirs.peer.hello.purpose, purpose);
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    mine.stream.write_all(b"fetch").await.unwrap();
    let mut heard = [0; 5];
    within("bytes", theirs.stream.read_exact(&mut heard)).await.unwrap();
    assert_eq!(&heard, b"fetch");
    door.close();
    accepting.await.unwrap();
    // Elsewhere they are told.
    let node = Node::start(identity(2), config(), Arc::new(Echo)).await;
    let dialed = dial(&node.target(2), purpose, &identity(1), &config()).await;
    let failure = dialed.expect_err("it serves none");
    assert_eq!(failure.refusal().unwrap().why, Refusal::Purpose);
}

#[tokio::test]
async fn another_cluster_is_refused() {
    let other = Identity { cluster_id: "another".into(), ..identity(1) };
    let told = refused(other, identity(2), 2).await;
    assert_eq!(told.why, Refusal::Cluster);
    assert!(told.words.contains("another") && told.words.contains(CLUSTER), "{told}");
}

#[tokio::test]
async fn versions_that_do_not_meet_are_refused() {
    let newer = Identity { versions: Versions { min: 7, max: 9 }, ..identity(1) };
    let told = refused(newer, identity(2), 2).await;
    assert_eq!(told.why, Refusal::Version);
    assert!(told.words.contains("7 to 9") && told.words.contains("1 to 1"), "{told}");
}

#[tokio::test]
async fn another_secret_is_refused_and_neither_is_said() {
    let (dialer, door) = (with_secret(identity(1), "hunter2"), with_secret(identity(2), "xyzzy"));
    let told = refused(dialer.clone(), door.clone(), 2).await;
    assert_eq!(told.why, Refusal::Secret);
    assert!(!told.words.contains("hunter2") && !told.words.contains("xyzzy"), "{told}");
    assert_eq!(refused(dialer, identity(2), 2).await.why, Refusal::Secret);
    assert_eq!(refused(identity(1), door, 2).await.why, Refusal::Secret);
}

#[tokio::test]
async fn a_node_with_the_same_id_is_refused() {
    let again = Identity { incarnation: Uuid([7; 16]), ..identity(2) };
    let told = refused(again, identity(2), 2).await;
    assert_eq!(told.why, Refusal::SameNode);
    assert!(told.words.contains("node.id 2"), "{told}");
    let told = refused(identity(2), identity(2), 2).await;
    assert!(told.words.contains("dialed itself"), "{told}");
}

#[tokio::test]
async fn a_node_at_the_address_of_another_is_refused() {
    let told = refused(identity(1), identity(2), 3).await;
    assert_eq!(told.why, Refusal::OtherNode);
    assert!(told.words.contains("node 3") && told.words.contains("node 2"), "{told}");
}

#[tokio::test]
async fn what_was_proven_on_one_connection_proves_nothing_on_another() {
    let door = with_secret(identity(2), "s");
    let mut node = Node::start(door, config(), Arc::new(Echo)).await;
    // A listener in between that keeps what the dialer says.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let between = target(listener.local_addr().unwrap(), Some(2));
    let address = node.address;
    let heard = tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = tokio::net::TcpStream::connect(address).await.unwrap();
        let (mut from_near, mut to_near) = near.split();
        let (mut from_far, mut to_far) = far.split();
        let mut heard = Vec::new();
        let listening = async {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut bytes = [0; 4096];
            loop {
                let count = from_near.read(&mut bytes).await.unwrap();
                if count == 0 {
                    return;
                }
                heard.extend_from_slice(&bytes[..count]);
                to_far.write_all(&bytes[..count]).await.unwrap();
            }
        };
        tokio::select! {
            () = listening => {}
            copied = tokio::io::copy(&mut from_far, &mut to_near) => drop(copied),
        }
        heard
    });
    let established =
        dial(&between, Purpose::Control, &with_secret(identity(1), "s"), &config()).await;
    drop(established.unwrap());
    let heard = within("what was heard", heard).await.unwrap();
    let mut again = Raw::dial(node.address).await;
    again.send(&heard).await;
    again.read_hello().await;
    let link::codec::frame::Frame::Refused(told) = again.read_frame().await else { panic!() };
    assert_eq!(told.why, Refusal::Secret);
    drop(again);
    node.events.find(|event| matches!(event, Event::TurnedAway { .. }).then_some(())).await;
    node.stop().await;
}

#[tokio::test]
async fn strangers_that_say_nothing_do_not_keep_others_out_for_ever() {
    let bounds = link::LinkConfig { unproven_max: 1, ..config() };
    let mut node = Node::start(identity(2), bounds, Arc::new(Echo)).await;
    let silent = Raw::dial(node.address).await;
    // Once the silent one has its place, one more is refused, and told so where the words get through.
    let why = loop {
        let dialed = dial(&node.target(2), Purpose::Control, &identity(1), &config()).await;
        match dialed {
            // The silent one was not taken in yet.
            Ok(established) => drop(established),
            Err(failure) => break failure,
        }
    };
    let Event::TurnedAway { error, .. } = node.events.find(turned_away).await else { panic!() };
    assert_eq!(error.refusal().unwrap().why, Refusal::Busy, "the dialer heard: {why}");
    drop(silent);
    node.events.find(turned_away).await;
    let dialed = dial(&node.target(2), Purpose::Control, &identity(1), &config()).await;
    assert!(dialed.is_ok(), "{dialed:?}");
    node.stop().await;
}

fn turned_away(event: &Event) -> Option<Event> {
    matches!(event, Event::TurnedAway { .. }).then(|| event.clone())
}
