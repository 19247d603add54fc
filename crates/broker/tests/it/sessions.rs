//! Fetch sessions (KIP-227): what is said once is remembered, and only news is answered.

use std::time::Instant;

use model::ErrorCode;
use wire::fetch::{FetchResponse, FetchTopic, ForgottenTopic};

use crate::fixture::*;

/// A session over the first `partitions` partitions of a topic, from their start.
struct Session {
    conn: Conn,
    topic: &'static str,
    id: i32,
    epoch: i32,
}

impl Session {
    async fn open(conn: Conn, topic: &'static str, partitions: i32) -> (Session, FetchResponse) {
        Session::open_with(conn, topic, partitions, 50 << 20).await
    }

    /// As [`Session::open`], with a first answer of about so many bytes.
    async fn open_with(
        mut conn: Conn,
        topic: &'static str,
        partitions: i32,
        max_bytes: i32,
    ) -> (Session, FetchResponse) {
        let mut request = fetch_request(topic, 0);
        (request.session_epoch, request.max_bytes) = (0, max_bytes);
        request.topics[0].partitions =
            (0..partitions).map(|partition| fetch_partition(partition, 0)).collect();
        let answer = conn.call(&request, FETCH).await;
        assert_eq!(answer.error(), ErrorCode::None);
        assert_ne!(answer.session_id, 0, "a session was made");
        let id = answer.session_id;
        (Session { conn, topic, id, epoch: 1 }, answer)
    }

    /// A request with these changes only: partitions with the offsets wanted of them.
    fn request(&self, changes: &[(i32, i64)]) -> wire::FetchRequest {
        let partitions = changes.iter().map(|(index, from)| fetch_partition(*index, *from));
        let topic = FetchTopic {
            topic: self.topic.to_owned(),
            partitions: partitions.collect(),
            ..Default::default()
        };
        wire::FetchRequest {
            max_bytes: 50 << 20,
            session_id: self.id,
            session_epoch: self.epoch,
            topics: if changes.is_empty() { Vec::new() } else { vec![topic] },
            ..Default::default()
        }
    }

    async fn call(&mut self, request: &wire::FetchRequest) -> FetchResponse {
        let answer = self.conn.call(request, FETCH).await;
        if answer.error() == ErrorCode::None {
            self.epoch += 1;
        }
        answer
    }

    async fn fetch(&mut self, changes: &[(i32, i64)]) -> FetchResponse {
        self.fetch_at_least(changes, 0).await
    }

    /// As [`Session::fetch`], once there are so many bytes: a producer may be answered a moment before sessions are told.
    async fn fetch_at_least(&mut self, changes: &[(i32, i64)], min_bytes: usize) -> FetchResponse {
        let mut request = self.request(changes);
        if min_bytes > 0 {
            (request.min_bytes, request.max_wait_ms) = (min_bytes as i32, FOREVER_MS);
        }
        let answer = self.call(&request).await;
        assert_eq!((answer.error(), answer.session_id), (ErrorCode::None, self.id));
        answer
    }
}

/// No partition at all.
const NONE: [i32; 0] = [];

fn partitions_in(answer: &FetchResponse) -> Vec<i32> {
    let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
    let mut indexes: Vec<i32> = partitions.map(|partition| partition.partition_index).collect();
    indexes.sort_unstable();
    indexes
}

async fn append_to(conn: &mut Conn, topic: &str, partition: i32, value: &str) {
    let mut request = produce_request(topic, -1, batch(&[value]));
    request.topic_data[0].partition_data[0].index = partition;
    let answer = conn.call(&request, PRODUCE).await;
    assert_eq!(answer.responses[0].partition_responses[0].error(), ErrorCode::None);
}

#[tokio::test]
async fn an_incremental_fetch_returns_only_what_is_new() {
    let broker = Broker::start(&[]).await;
    let mut producer = broker.connect().await;
    producer.create_topic_of("news", 4, &[]).await;
    let (mut session, first) = Session::open(broker.connect().await, "news", 4).await;
    assert_eq!(partitions_in(&first), [0, 1, 2, 3], "the first answer has them all");
    assert_eq!(partitions_in(&session.fetch(&[]).await), NONE, "nothing is new");

    append_to(&mut producer, "news", 2, "hello").await;
    let answer = session.fetch_at_least(&[], 1).await;
    assert_eq!(partitions_in(&answer), [2]);
    assert_eq!(values(&answer.responses[0].partitions[0]), [(0, "hello".to_owned())]);
    // Until the client moves on, it gets the same again.
    assert_eq!(partitions_in(&session.fetch(&[]).await), [2]);
    assert_eq!(partitions_in(&session.fetch(&[(2, 1)]).await), NONE);

    append_to(&mut producer, "news", 0, "a").await;
    append_to(&mut producer, "news", 2, "b").await;
    let answer = session.fetch_at_least(&[], 2 * batch(&["a"]).len()).await;
    assert_eq!(partitions_in(&answer), [0, 2]);
    broker.stop().await;
}

#[tokio::test]
async fn an_append_wakes_the_long_poll_of_a_session() {
    let broker = Broker::start(&[]).await;
    let mut producer = broker.connect().await;
    producer.create_topic_of("wake", 3, &[]).await;
    let (mut session, _) = Session::open(broker.connect().await, "wake", 3).await;
    for round in 0..10 {
        let changes = if round == 0 { vec![] } else { vec![(1, round)] };
        let mut poll = session.request(&changes);
        (poll.min_bytes, poll.max_wait_ms) = (1, FOREVER_MS);
        let correlation = session.conn.send(&poll, FETCH).await;
        append_to(&mut producer, "wake", 1, "news").await;
        let answer = session.conn.receive::<wire::FetchRequest>(FETCH, correlation).await;
        session.epoch += 1;
        assert_eq!(partitions_in(&answer), [1]);
        assert_eq!(values(&answer.responses[0].partitions[0]), [(round, "news".to_owned())]);
    }
    broker.stop().await;
}

#[tokio::test]
async fn forgotten_partitions_are_fetched_no_more() {
    let broker = Broker::start(&[]).await;
    let mut producer = broker.connect().await;
    producer.create_topic_of("forget", 2, &[]).await;
    let (mut session, _) = Session::open(broker.connect().await, "forget", 2).await;
    let mut request = session.request(&[]);
    request.forgotten_topics_data = vec![ForgottenTopic {
        topic: "forget".to_owned(),
        partitions: vec![1],
        ..Default::default()
    }];
    assert_eq!(session.call(&request).await.error(), ErrorCode::None);
    append_to(&mut producer, "forget", 0, "kept").await;
    append_to(&mut producer, "forget", 1, "forgotten").await;
    assert_eq!(partitions_in(&session.fetch(&[]).await), [0]);
    // It may come back.
    assert_eq!(partitions_in(&session.fetch(&[(1, 0)]).await), [0, 1]);
    broker.stop().await;
}

#[tokio::test]
async fn a_wrong_epoch_is_error_71_and_an_unknown_session_error_70() {
    let broker = Broker::start(&[]).await;
    broker.connect().await.create_topic("epochs", &[]).await;
    let (mut session, _) = Session::open(broker.connect().await, "epochs", 1).await;
    for wrong in [2, 7, i32::MAX] {
        let mut request = session.request(&[]);
        request.session_epoch = wrong;
        assert_eq!(session.call(&request).await.error_code, 71, "epoch {wrong}");
    }
    session.fetch(&[]).await;
    let mut request = session.request(&[]);
    request.session_epoch = 1;
    assert_eq!(session.call(&request).await.error_code, 71, "an epoch that was used");

    let mut request = session.request(&[]);
    request.session_id = session.id.wrapping_add(1).max(1);
    assert_eq!(session.call(&request).await.error_code, 70);

    // The last epoch ends the session, and answers once more.
    let mut request = session.request(&[(0, 0)]);
    request.session_epoch = -1;
    let answer = session.conn.call(&request, FETCH).await;
    assert_eq!((answer.error_code, answer.session_id), (0, 0));
    let request = session.request(&[]);
    assert_eq!(session.call(&request).await.error_code, 70);
    broker.stop().await;
}

#[tokio::test]
async fn without_room_for_sessions_fetches_are_full_ones() {
    let broker = Broker::start(&[("max.incremental.fetch.session.cache.slots", "0")]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("full", &[]).await;
    conn.append("full", batch(&["value"])).await;
    let mut request = fetch_request("full", 0);
    request.session_epoch = 0;
    let answer = conn.call(&request, FETCH).await;
    assert_eq!((answer.error_code, answer.session_id), (0, 0));
    assert_eq!(values(&answer.responses[0].partitions[0]).len(), 1);
    broker.stop().await;
}

/// A session over four partitions that hold four batches of a thousand bytes each.
/// The first answer has room for one of them.
async fn open_full(broker: &Broker) -> Session {
    let mut producer = broker.connect().await;
    producer.create_topic_of("full", 4, &[]).await;
    for partition in 0..4 {
        for _ in 0..4 {
            append_to(&mut producer, "full", partition, &"x".repeat(1000)).await;
        }
    }
    let (session, answer) = Session::open_with(broker.connect().await, "full", 4, 1200).await;
    assert_eq!(partitions_in(&answer), [0, 1, 2, 3]);
    assert_eq!(served_in(&answer).len(), 1);
    session
}

/// The partitions of which there are records in the answer.
fn served_in(answer: &FetchResponse) -> Vec<i32> {
    let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
    let full = partitions.filter(|partition| !headers(partition).is_empty());
    full.map(|partition| partition.partition_index).collect()
}

#[tokio::test]
async fn no_partition_starves_behind_one_that_is_always_full() {
    let broker = Broker::start(&[]).await;
    let mut session = open_full(&broker).await;
    let mut served = Vec::new();
    for _ in 0..4 {
        // Room for one batch; the client never moves on.
        let mut request = session.request(&[]);
        request.max_bytes = 1200;
        served.extend(served_in(&session.call(&request).await));
    }
    served.sort_unstable();
    assert_eq!(served, [0, 1, 2, 3], "each in its turn");
    broker.stop().await;
}

#[tokio::test]
async fn what_an_answer_had_no_room_for_comes_without_being_asked_for_again() {
    let broker = Broker::start(&[]).await;
    let mut session = open_full(&broker).await;
    let mut next = [0; 4];
    let mut changes = Vec::new();
    // A client mentions only the partitions of which it got something.
    for _ in 0..16 {
        let mut request = session.request(&changes);
        (request.max_bytes, request.min_bytes, request.max_wait_ms) = (1200, 1200, 50);
        let answer = session.call(&request).await;
        let [partition] = served_in(&answer)[..] else { panic!("stuck at {next:?}") };
        next[partition as usize] += 1;
        changes = vec![(partition, next[partition as usize])];
    }
    assert_eq!(next, [4; 4], "all was read");
    assert_eq!(served_in(&session.fetch(&changes).await), NONE);
    broker.stop().await;
}

/// Files that this process holds open whose path names the topic.
fn open_files_of(topic: &str) -> Vec<String> {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("it is Linux").flatten();
    let links = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.map(|path| path.display().to_string()).filter(|path| path.contains(topic)).collect()
}

#[tokio::test]
async fn a_session_does_not_keep_a_deleted_topics_files_open() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("outlived", &[]).await;
    conn.append("outlived", batch(&["a record that takes its place on the disk"])).await;
    let (session, _) = Session::open(broker.connect().await, "outlived", 1).await;
    assert!(!open_files_of("/outlived-0").is_empty(), "the test sees open files");
    let delete = wire::DeleteTopicsRequest {
        topic_names: vec!["outlived".to_owned()],
        timeout_ms: 30_000,
        ..Default::default()
    };
    assert_eq!(conn.call(&delete, 5).await.responses[0].error(), ErrorCode::None);
    // The session is there, and remembers the partition.
    let began = Instant::now();
    while !open_files_of("/outlived-0").is_empty() && began.elapsed() < PATIENCE {
        broker.assert_serves().await;
    }
    assert_eq!(open_files_of("/outlived-0"), Vec::<String>::new());
    drop(session);
    broker.stop().await;
}
