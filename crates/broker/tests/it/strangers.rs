//! What one connection may cost the others: bytes that it only announces, requests behind requests,
//! names that it repeats, sessions that it leaves behind.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use model::ErrorCode;
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};
use wire::describe_configs::DescribeConfigsResource;
use wire::join_group::JoinGroupRequestProtocol;
use wire::metadata::MetadataRequestTopic;

use crate::fixture::*;

#[tokio::test]
async fn what_is_announced_and_not_sent_stops_nobody() {
    let broker = Broker::start(&[]).await;
    let mut honest = broker.connect().await;
    honest.create_topic("large", &[]).await;
    let mut slow = Vec::new();
    for _ in 0..3 {
        let mut conn = broker.connect().await;
        conn.write(&(100i32 << 20).to_be_bytes()).await;
        conn.write(&vec![0; 90_000]).await;
        slow.push(conn);
    }
    for round in 0..5 {
        let large = batch(&[&"x".repeat(300_000)]);
        assert_eq!(honest.append("large", large).await, round);
    }
    drop(slow);
    broker.stop().await;
}

#[tokio::test]
async fn requests_of_a_connection_have_the_effect_of_their_order() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    // Both are there before the first is looked at.
    let create = wire::CreateTopicsRequest {
        topics: vec![wire::create_topics::CreatableTopic {
            name: "ordered".to_owned(),
            num_partitions: 1,
            replication_factor: 1,
            ..Default::default()
        }],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let produce = produce_request("ordered", -1, batch(&["at once"]));
    let frames = [frame_of(&create, 7, 1), frame_of(&produce, PRODUCE, 2)].concat();
    conn.write(&frames).await;
    conn.receive::<wire::CreateTopicsRequest>(7, 1).await;
    let answer = conn.receive::<wire::ProduceRequest>(PRODUCE, 2).await;
    let answer = &answer.responses[0].partition_responses[0];
    assert_eq!((answer.error(), answer.base_offset), (ErrorCode::None, 0), "{answer:?}");
    broker.stop().await;
}

fn join(group: &str, metadata: usize) -> wire::JoinGroupRequest {
    wire::JoinGroupRequest {
        group_id: group.to_owned(),
        session_timeout_ms: 300_000,
        rebalance_timeout_ms: FOREVER_MS,
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".to_owned(),
            metadata: vec![0; metadata].into(),
        }],
        ..Default::default()
    }
}

/// A group of two of which the first member does not come back, so that the second one's request takes
/// minutes. Behind that request `behind` is sent, in one packet. Returns when the request was taken in, and the first
/// member's id too.
async fn join_for_long(broker: &Broker, behind: &[u8]) -> (Conn, String, Conn) {
    let (mut first, mut second) = (broker.connect().await, broker.connect().await);
    let find = wire::FindCoordinatorRequest {
        coordinator_keys: vec!["waiting".to_owned()],
        ..Default::default()
    };
    let deadline = Instant::now() + PATIENCE;
    let member = loop {
        first.call(&find, 4).await;
        let answer = first.call(&join("waiting", 10), 3).await;
        if answer.error() == ErrorCode::None {
            break answer.member_id;
        }
        assert!(Instant::now() < deadline, "the group does not come up: {answer:?}");
    };
    second.write(&[&frame_of(&join("waiting", 10), 3, 1), behind].concat()).await;
    // An answer on another connection says nothing of this one; the group does.
    let describe =
        wire::DescribeGroupsRequest { groups: vec!["waiting".to_owned()], ..Default::default() };
    while first.call(&describe, 5).await.groups[0].members.len() < 2 {
        assert!(Instant::now() < deadline, "the second member is never taken in");
    }
    (first, member, second)
}

/// Waits until there is room for a new connection among `max.connections`.
async fn assert_room_comes(broker: &Broker) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut conn = broker.connect().await;
        conn.send(&wire::ApiVersionsRequest::default(), 0).await;
        if conn.receive_frame().await.is_some() {
            return;
        }
        assert!(Instant::now() < deadline, "a connection that was left takes its place for ever");
    }
}

#[tokio::test]
async fn a_hang_up_is_noticed_while_nothing_is_read() {
    // Nothing behind the request; and requests that nobody will ever take in.
    let more = frame_of(&wire::ApiVersionsRequest::default(), 0, 9).repeat(3);
    for behind in [Vec::new(), more] {
        let broker = Broker::start(&[("max.connections", "2")]).await;
        let (first, _, second) = join_for_long(&broker, &behind).await;
        let _reserve = broker.take_reserve().await;
        drop(second);
        assert_room_comes(&broker).await;
        drop(first);
        broker.stop().await;
    }
}

#[tokio::test]
async fn behind_a_request_that_waits_nothing_is_taken_in() {
    let broker = Broker::start(&[]).await;
    let behind = frame_of(&wire::ApiVersionsRequest::default(), 0, 9);
    let (mut first, member, mut second) = join_for_long(&broker, &behind).await;
    let peeked = timeout(Duration::from_millis(200), second.stream.peek(&mut [0; 1])).await;
    assert!(peeked.is_err(), "no answer before its turn");
    // The first member comes back: both are answered, and then what stood behind.
    let mut again = join("waiting", 10);
    again.member_id = member;
    let answered = first.send(&again, 3).await;
    first.receive::<wire::JoinGroupRequest>(3, answered).await;
    second.receive::<wire::JoinGroupRequest>(3, 1).await;
    second.receive::<wire::ApiVersionsRequest>(0, 9).await;
    broker.stop().await;
}

#[tokio::test]
async fn what_is_named_twice_is_answered_once() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("twice", &[]).await;
    let named =
        |name: &str| MetadataRequestTopic { name: Some(name.to_owned()), ..Default::default() };
    let topics = ["twice", "none", "twice", "none", "twice"].map(named).to_vec();
    let request = wire::MetadataRequest { topics: Some(topics), ..Default::default() };
    let answer = conn.call(&request, 9).await;
    let names: Vec<_> = answer.topics.iter().map(|topic| topic.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["twice", "none"]);
    let resource = DescribeConfigsResource {
        resource_type: 2,
        resource_name: "twice".to_owned(),
        ..Default::default()
    };
    let request =
        wire::DescribeConfigsRequest { resources: vec![resource; 1000], ..Default::default() };
    assert_eq!(conn.call(&request, 4).await.results.len(), 1);
    broker.stop().await;
}

#[tokio::test]
async fn a_fetch_of_more_partitions_than_there_can_be_closes_its_connection() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let mut request = fetch_request("nowhere", 0);
    request.session_epoch = 0;
    request.topics[0].partitions = (0..100_000).map(|index| fetch_partition(index, 0)).collect();
    conn.send(&request, FETCH).await;
    conn.assert_closed().await;
    // A client may be behind: topics that are not known here are answered, and keep their session.
    let mut conn = broker.connect().await;
    request.topics[0].partitions.truncate(3000);
    let answer = conn.call(&request, FETCH).await;
    assert_eq!(answer.responses[0].partitions.len(), 3000);
    assert_ne!(answer.session_id, 0);
    broker.stop().await;
}

#[tokio::test]
async fn a_fetch_session_ends_with_its_connection() {
    let broker = Broker::start(&[]).await;
    let mut other = broker.connect().await;
    other.create_topic("left", &[]).await;
    let mut conn = broker.connect().await;
    let mut request = fetch_request("left", 0);
    request.session_epoch = 0;
    let session_id = conn.call(&request, FETCH).await.session_id;
    assert_ne!(session_id, 0);
    // A wrong epoch tells that the session is there, and does not make `other` a user of it.
    let look = wire::FetchRequest { session_id, session_epoch: 77, ..Default::default() };
    assert_eq!(other.call(&look, FETCH).await.error_code, 71);
    drop(conn);
    let deadline = Instant::now() + PATIENCE;
    while other.call(&look, FETCH).await.error_code != 70 {
        assert!(Instant::now() < deadline, "the session outlives its connection");
    }
    broker.stop().await;
}

#[tokio::test]
async fn a_session_is_told_that_only_the_log_start_moved() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("moved", &[]).await;
    conn.append("moved", batch(&["one", "two", "three"])).await;
    let mut request = fetch_request("moved", 3);
    request.session_epoch = 0;
    let session_id = conn.call(&request, FETCH).await.session_id;
    let mut next = wire::FetchRequest { session_id, max_bytes: 1 << 20, ..Default::default() };
    next.session_epoch = 1;
    assert!(conn.call(&next, FETCH).await.responses.is_empty(), "nothing is new");
    let delete = wire::DeleteRecordsRequest {
        topics: vec![wire::delete_records::DeleteRecordsTopic {
            name: "moved".to_owned(),
            partitions: vec![wire::delete_records::DeleteRecordsPartition {
                partition_index: 0,
                offset: 2,
            }],
        }],
        timeout_ms: 30_000,
    };
    conn.call(&delete, 1).await;
    next.session_epoch = 2;
    let answer = conn.call(&next, FETCH).await;
    let told = &answer.responses[0].partitions[0];
    assert_eq!((told.error(), told.log_start_offset), (ErrorCode::None, 2));
    broker.stop().await;
}

#[tokio::test]
async fn a_session_without_partitions_has_no_id() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("forgotten", &[]).await;
    let mut request = fetch_request("forgotten", 0);
    request.session_epoch = 0;
    let session_id = conn.call(&request, FETCH).await.session_id;
    let forget = wire::FetchRequest {
        session_id,
        session_epoch: 1,
        forgotten_topics_data: vec![wire::fetch::ForgottenTopic {
            topic: "forgotten".to_owned(),
            partitions: vec![0],
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = conn.call(&forget, FETCH).await;
    assert_eq!((answer.error_code, answer.session_id), (0, 0));
    broker.stop().await;
}

/// Sends what the broker takes, and gives up when it takes no more.
pub async fn send_what_is_taken(conn: &mut Conn, bytes: &[u8]) {
    let _ = timeout(Duration::from_millis(500), conn.stream.write_all(bytes)).await;
}

/// A client that always has another request under way: it writes the same one again and again, on a thread of its own.
struct Greedy {
    stream: TcpStream,
    answer_bytes: usize,
}

impl Greedy {
    /// Returns when the first answer has come.
    fn start(address: SocketAddr, frame: Vec<u8>) -> Greedy {
        let mut stream = TcpStream::connect(address).unwrap();
        let (mut writing, many) = (stream.try_clone().unwrap(), frame.repeat(100));
        // It ends when the connection is shut down.
        std::thread::spawn(move || while writing.write_all(&many).is_ok() {});
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let answer_bytes = 4 + i32::from_be_bytes(length) as usize;
        let mut greedy = Greedy { stream, answer_bytes };
        greedy.stream.read_exact(&mut vec![0; answer_bytes - 4]).unwrap();
        greedy
    }

    /// Reads answers that are there, at most so many. They are all of one length: their bytes tell how many they are.
    fn read_answers(&mut self, count_max: usize) -> usize {
        let bytes = self.stream.read(&mut vec![0; count_max * self.answer_bytes]).unwrap();
        assert!(bytes > 0, "the broker closed the connection");
        bytes
    }

    /// How many requests of it are answered while another client's waits, which is sent in the midst of them.
    fn answered_beside(&mut self, other: &mut TcpStream, frame: &[u8]) -> usize {
        while readable([&self.stream], Duration::ZERO) == [true] {
            self.read_answers(1000);
        }
        assert_eq!(readable([&self.stream], PATIENCE), [true], "it is answered no more");
        other.write_all(frame).unwrap();
        let mut bytes = 0;
        loop {
            let [answered, more] = readable([&*other, &self.stream], PATIENCE);
            if answered {
                break;
            }
            assert!(more, "neither of them is answered");
            bytes += self.read_answers(1);
            assert!(bytes / self.answer_bytes < 20_000, "the other one has no turn at all");
        }
        let mut length = [0; 4];
        other.read_exact(&mut length).unwrap();
        other.read_exact(&mut vec![0; i32::from_be_bytes(length) as usize]).unwrap();
        bytes / self.answer_bytes
    }
}

impl Drop for Greedy {
    fn drop(&mut self) {
        // Gone already where the broker has closed it.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Which of these have something to be read, once any has or the time is over.
fn readable<const N: usize>(streams: [&TcpStream; N], patience: Duration) -> [bool; N] {
    let mut asked = streams.map(|stream| PollFd::new(stream, PollFlags::IN));
    let patience = Timespec::try_from(patience).unwrap();
    rustix::event::poll(&mut asked, Some(&patience)).unwrap();
    asked.map(|asked| !asked.revents().is_empty())
}

/// Costly requests that are answered while another client waits for its turn: some dozens at most in the turn of a
/// millisecond, and between a hundred and thirty and some hundreds without turns, however fast the machine is.
const COSTLY_IN_A_TURN_MAX: usize = 100;

#[tokio::test]
async fn one_who_always_has_another_costly_request_leaves_the_others_their_turns() {
    const HONEST: usize = 41;
    let broker = Broker::start(&[("num.network.threads", "1")]).await;
    broker.connect().await.create_topic("turns", &[]).await;
    let topic = MetadataRequestTopic { name: Some("turns".to_owned()), ..Default::default() };
    let costly = wire::MetadataRequest { topics: Some(vec![topic; 200]), ..Default::default() };
    let (address, costly) = (broker.address(), frame_of(&costly, 4, 1));
    // It waits for no disk: only for its turn.
    let honest = frame_of(&produce_request("turns", 1, batch(&["turn"])), PRODUCE, 1);
    let asked = tokio::task::spawn_blocking(move || {
        let (mut greedy, mut other) =
            (Greedy::start(address, costly), TcpStream::connect(address).unwrap());
        let beside = |_| greedy.answered_beside(&mut other, &honest);
        (0..HONEST).map(beside).collect::<Vec<usize>>()
    });
    let mut beside = asked.await.unwrap();
    eprintln!("{beside:?}");
    assert_eq!(broker.connect().await.append("turns", batch(&["last"])).await, HONEST as i64);
    // Where a thread of this test has not had its turn some count too many; not most of them.
    beside.sort_unstable();
    let usual = beside[HONEST / 2];
    assert!(usual < COSTLY_IN_A_TURN_MAX, "so many costly requests beside one: {beside:?}");
    broker.stop().await;
}
