//! What a client is told that asks the wrong broker, or waits at one that does not lead any more (KIP-951): the new
//! leader together with its address, and only what the client does not know.

use std::io::Read;

use client::{Connection, ConnectionConfig};
use model::record::BatchBuilder;
use model::{ErrorCode, Timestamp, Uuid};
use wire::create_topics::{CreatableReplicaAssignment, CreatableTopic};
use wire::describe_log_dirs::DescribableLogDirTopic;
use wire::fetch::{FetchPartition, FetchTopic};
use wire::metadata::MetadataRequestTopic;
use wire::produce::{PartitionProduceData, TopicProduceData};
use wire::{
    CreateTopicsRequest, DescribeLogDirsRequest, ElectLeadersRequest, FetchRequest, FetchResponse,
    MetadataRequest, ProduceRequest, ProduceResponse,
};

use super::quorum::controller;
use super::*;

/// Longer than any test.
const FOREVER_MS: i32 = 600_000;
/// Versions that name topics by name and by id, the last without hints and the first with them.
const PRODUCE: (i16, i16) = (9, 10);
const FETCH: (i16, i16) = (15, 16);
/// Less than what a broker waits for news of a leader whose link ended.
const WAITED: Duration = Duration::from_millis(200);

/// What an answer says of who leads: broker, leader epoch, and where that broker is.
type Hint = Option<(i32, i32, String)>;

pub async fn open(address: &str) -> Connection {
    Connection::open(address, &ConnectionConfig::default()).await.unwrap()
}

/// A topic of one partition with these replicas, the preferred one first; its id.
pub async fn create(at: &Connection, name: &str, replicas: &[i32]) -> Uuid {
    let broker_ids = replicas.to_vec();
    let topic = CreatableTopic {
        name: name.to_owned(),
        num_partitions: -1,
        replication_factor: -1,
        assignments: vec![CreatableReplicaAssignment { partition_index: 0, broker_ids }],
        ..Default::default()
    };
    let request =
        CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
    let created = at.call(&request).await.unwrap().topics.remove(0);
    assert_eq!(created.error(), ErrorCode::None, "{created:?}");
    created.topic_id
}

/// Leader, leader epoch and in-sync replicas, as this broker knows them.
async fn led(at: &Connection, name: &str) -> (i32, i32, Vec<i32>) {
    let topic = MetadataRequestTopic { name: Some(name.to_owned()), ..Default::default() };
    let request = MetadataRequest { topics: Some(vec![topic]), ..Default::default() };
    let mut answer = at.call(&request).await.unwrap();
    match answer.topics.remove(0).partitions.first() {
        Some(found) => (found.leader_id, found.leader_epoch, found.isr_nodes.clone()),
        None => (-1, -1, Vec::new()),
    }
}

/// Asks a broker again and again until it says so.
pub async fn until_led(at: &str, name: &str, is_so: impl Fn(&(i32, i32, Vec<i32>)) -> bool) -> i32 {
    let (at, deadline) = (open(at).await, Instant::now() + LIMIT);
    loop {
        let found = led(&at, name).await;
        if is_so(&found) {
            return found.1;
        }
        assert!(Instant::now() < deadline, "{name}: {found:?}");
    }
}

fn record() -> ProduceRequest {
    let mut batch = BatchBuilder::new();
    batch.add(Timestamp(1), None, Some(b"value"));
    let records = Some(batch.finish().into());
    ProduceRequest {
        acks: -1,
        timeout_ms: FOREVER_MS,
        topic_data: vec![TopicProduceData {
            name: "moved".to_owned(),
            partition_data: vec![PartitionProduceData { index: 0, records }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// Has a record taken. The leader may act some milliseconds later upon the in-sync replicas that it tells of.
async fn first_record(at: &Connection) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let answer = at.call_version(&record(), PRODUCE.1).await.unwrap();
        match of_produce(&answer) {
            (ErrorCode::None, None) => return,
            (ErrorCode::NotEnoughReplicas, None) => assert!(Instant::now() < deadline),
            other => panic!("{other:?}"),
        }
    }
}

/// A fetch that waits, by a client that knows this leader epoch.
fn waiting_fetch(topic_id: Uuid, known_epoch: i32, from: i64) -> FetchRequest {
    FetchRequest {
        max_wait_ms: FOREVER_MS,
        min_bytes: 1,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic_id,
            partitions: vec![FetchPartition {
                partition: 0,
                current_leader_epoch: known_epoch,
                fetch_offset: from,
                partition_max_bytes: 1 << 20,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn of_produce(answer: &ProduceResponse) -> (ErrorCode, Hint) {
    let found = &answer.responses[0].partition_responses[0];
    let leader = &found.current_leader;
    let place = answer.node_endpoints.iter().find(|place| place.node_id == leader.leader_id);
    assert_eq!(answer.node_endpoints.len(), usize::from(place.is_some()), "{answer:?}");
    assert_eq!(leader.leader_id >= 0, place.is_some(), "never one without the other: {answer:?}");
    let place = place.map(|place| format!("{}:{}", place.host, place.port));
    (found.error(), place.map(|place| (leader.leader_id, leader.leader_epoch, place)))
}

fn of_fetch(answer: &FetchResponse) -> (ErrorCode, Hint) {
    let found = &answer.responses[0].partitions[0];
    let leader = &found.current_leader;
    let place = answer.node_endpoints.iter().find(|place| place.node_id == leader.leader_id);
    assert_eq!(answer.node_endpoints.len(), usize::from(place.is_some()), "{answer:?}");
    assert_eq!(leader.leader_id >= 0, place.is_some(), "never one without the other: {answer:?}");
    let place = place.map(|place| format!("{}:{}", place.host, place.port));
    (found.error(), place.map(|place| (leader.leader_id, leader.leader_epoch, place)))
}

pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

#[test]
fn who_asks_the_wrong_broker_is_told_the_leader_with_its_address() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    block_on(async {
        let first = open(&up.brokers[0].address).await;
        let id = create(&first, "moved", &[1, 2]).await;
        let hint: Hint = Some((1, 0, up.brokers[0].address.clone()));
        // One that follows, and one without a replica.
        for wrong in [2, 3] {
            let address = &up.brokers[wrong - 1].address;
            until_led(address, "moved", |(leader, ..)| *leader == 1).await;
            let wrong = open(address).await;
            let produced = wrong.call_version(&record(), PRODUCE.1).await.unwrap();
            assert_eq!(of_produce(&produced), (ErrorCode::NotLeaderOrFollower, hint.clone()));
            let produced = wrong.call_version(&record(), PRODUCE.0).await.unwrap();
            assert_eq!(of_produce(&produced), (ErrorCode::NotLeaderOrFollower, None));
            let fetch = waiting_fetch(id, -1, 0);
            let fetched = wrong.call_version(&fetch, FETCH.1).await.unwrap();
            assert_eq!(of_fetch(&fetched), (ErrorCode::NotLeaderOrFollower, hint.clone()));
            let fetched = wrong.call_version(&fetch, FETCH.0).await.unwrap();
            assert_eq!(of_fetch(&fetched), (ErrorCode::NotLeaderOrFollower, None));
            // It knows the leader epoch, so it knows the leader.
            let fetched = wrong.call_version(&waiting_fetch(id, 0, 0), FETCH.1).await.unwrap();
            assert_eq!(of_fetch(&fetched), (ErrorCode::NotLeaderOrFollower, None));
        }
    });
    up.stop();
}

/// A client hears that its broker was killed by the end of its connection, and asks another broker at once. The links between
/// the brokers ended before that, so nobody is sent back to the dead one without the broker having waited for news.
#[test]
fn who_hears_of_a_kill_and_asks_at_once_is_not_sent_back_to_the_dead() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    let deciding = controller(&up.bootstrap);
    let others: Vec<i32> = (1..=3).filter(|id| *id != deciding).collect();
    let (victim, asked) = (others[0], others[1]);
    let address = |id: i32| up.brokers[id as usize - 1].address.clone();
    block_on(async {
        let leader = open(&address(victim)).await;
        create(&leader, "moved", &[victim, asked, deciding]).await;
        first_record(&leader).await;
        until_led(&address(asked), "moved", |(leader, ..)| *leader == victim).await;
        let at = open(&address(asked)).await;
        let connect = |_| std::net::TcpStream::connect(address(victim)).unwrap();
        let mut connections: Vec<_> = (0..500).map(connect).collect();
        up.brokers[victim as usize - 1].signal(Signal::KILL);
        // The system closes the newest first, so the first of them is among the last.
        for connection in [499, 0] {
            let read = connections[connection].read(&mut [0]);
            assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
            let began = Instant::now();
            let (leader, ..) = led(&at, "moved").await;
            let waited = began.elapsed();
            assert!(leader != victim || waited >= WAITED, "sent back after {waited:?}");
        }
    });
    drop(up);
}

/// Another broker may name a leader some milliseconds before that leader acts upon the metadata.
#[test]
fn a_batch_for_a_leader_that_was_killed_waits_at_its_successor() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    let deciding = controller(&up.bootstrap);
    let (successor, third) = (deciding % 3 + 1, (deciding + 1) % 3 + 1);
    let address = |id: i32| up.brokers[id as usize - 1].address.clone();
    block_on(async {
        // Its successor is elected by a controller that is elected first.
        let leader = open(&address(deciding)).await;
        create(&leader, "moved", &[deciding, successor, third]).await;
        first_record(&leader).await;
        let in_sync =
            |(leader, _, isr): &(i32, i32, Vec<i32>)| *leader == deciding && isr.len() == 3;
        until_led(&address(successor), "moved", in_sync).await;
        let at = open(&address(successor)).await;
        let connect = |_| std::net::TcpStream::connect(address(deciding)).unwrap();
        let mut connections: Vec<_> = (0..500).map(connect).collect();
        up.brokers[deciding as usize - 1].signal(Signal::KILL);
        // As above.
        for connection in [499, 0] {
            let read = connections[connection].read(&mut [0]);
            assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
        }
        let began = Instant::now();
        let answer = at.call_version(&record(), PRODUCE.1).await.unwrap();
        let waited = began.elapsed();
        let (code, _) = of_produce(&answer);
        assert!(code == ErrorCode::None || waited >= WAITED, "{code} after {waited:?}");
        until_led(&address(successor), "moved", |(leader, ..)| *leader == successor).await;
        let answer = at.call_version(&record(), PRODUCE.1).await.unwrap();
        assert_eq!(of_produce(&answer), (ErrorCode::None, None));
    });
    drop(up);
}

#[test]
fn who_waits_at_a_leader_that_hands_over_is_told_where_to_go() {
    let (_place, folder) = place();
    let mut up = Up::of(
        &folder,
        3,
        &[
            "--restart",
            "--set",
            "auto.leader.rebalance.enable=false",
            // A silent broker stays in sync until the test is over.
            "--set",
            "highwater.suspect.after.ms=0",
            "--set",
            "broker.session.timeout.ms=600000",
            "--set",
            "replica.lag.time.max.ms=600000",
        ],
    );
    let deciding = controller(&up.bootstrap);
    let others: Vec<i32> = (1..=3).filter(|id| *id != deciding).collect();
    let (leader, preferred) = (others[0], others[1]);
    let address = |up: &Up, id: i32| up.brokers[id as usize - 1].address.clone();
    let (at_leader, at_preferred) = (address(&up, leader), address(&up, preferred));
    let id = block_on(async {
        let at = open(&address(&up, deciding)).await;
        create(&at, "moved", &[preferred, leader]).await
    });
    // Its end makes the other one lead; then it is back in sync, and preferred.
    up.brokers[preferred as usize - 1].signal(Signal::KILL);
    let said = up.says(&format!("broker {preferred} was started again, process "));
    let process: u32 = said.rsplit_once(' ').unwrap().1.parse().unwrap();
    up.brokers[preferred as usize - 1].pid = process;
    block_on(async {
        let old = until_led(&at_leader, "moved", |(now, _, isr)| *now == leader && isr.len() == 2);
        let old = old.await;
        let asking = open(&at_leader).await;
        let (readers, writers) = (open(&at_leader).await, open(&at_leader).await);
        first_record(&writers).await;
        // In sync and silent: what is produced now waits for it.
        up.brokers[preferred as usize - 1].pause();
        let before = size(&asking).await;
        let reading = tokio::spawn(async move {
            readers.call_version(&waiting_fetch(id, old, 1), FETCH.1).await.unwrap()
        });
        let writing =
            tokio::spawn(async move { writers.call_version(&record(), PRODUCE.1).await.unwrap() });
        let topic =
            wire::elect_leaders::TopicPartitions { topic: "moved".to_owned(), partitions: vec![0] };
        until_written(&asking, before).await;
        let elect = ElectLeadersRequest {
            election_type: 0,
            topic_partitions: Some(vec![topic]),
            timeout_ms: 30_000,
        };
        let elected = asking.call(&elect).await.unwrap();
        let (code, results) = (elected.error(), &elected.replica_election_results);
        assert_eq!(code, ErrorCode::None, "{results:?}");
        assert_eq!(results[0].partition_result[0].error(), ErrorCode::None, "{results:?}");
        let hint: Hint = Some((preferred, old + 1, at_preferred.clone()));
        let (code, found) = of_produce(&writing.await.unwrap());
        assert_eq!((code, found), (ErrorCode::NotLeaderOrFollower, hint.clone()));
        let (code, found) = of_fetch(&reading.await.unwrap());
        let is_moved = [ErrorCode::NotLeaderOrFollower, ErrorCode::FencedLeaderEpoch];
        assert!(is_moved.contains(&code), "{code}");
        assert_eq!(found, hint);
        up.brokers[preferred as usize - 1].resume();
    });
    up.stop();
}

/// Waits until the log is larger.
async fn until_written(at: &Connection, before: i64) {
    let deadline = Instant::now() + LIMIT;
    while size(at).await <= before {
        assert!(Instant::now() < deadline, "not written");
    }
}

/// Bytes of the log at this broker.
async fn size(at: &Connection) -> i64 {
    let topic = DescribableLogDirTopic { topic: "moved".to_owned(), partitions: vec![0] };
    let answer = at.call(&DescribeLogDirsRequest { topics: Some(vec![topic]) }).await.unwrap();
    let topics = answer.results.iter().flat_map(|dir| &dir.topics);
    topics.flat_map(|topic| &topic.partitions).map(|found| found.partition_size).sum()
}
