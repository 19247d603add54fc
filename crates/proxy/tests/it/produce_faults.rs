//! Faults of produce requests alone: records that are lost, duplicated, reordered and damaged.

use crate::rules::every;
use crate::server::{Raw, Server};
use model::batch::HEADER_BYTES;
use model::record::{BatchBuilder, Records};
use model::{BatchHeader, Timestamp};
use proxy::fault_injection::FaultAction;
use proxy::{FaultedRecords, Proxy, ProxyConfig};
use wire::frame::RequestHead;
use wire::produce::{PartitionProduceData, TopicProduceData};
use wire::{ApiKey, MetadataRequest, ProduceRequest, ProduceResponse};

/// Version of the produce requests.
pub const VERSION: i16 = 9;

/// A proxy with a fault in every so-manieth produce request of all clients.
async fn faulty(server: &Server, faults: &[(u64, FaultAction)]) -> Proxy {
    let faults = Some(every(faults));
    Proxy::start(ProxyConfig { faults, ..ProxyConfig::new(&server.address) }).await.unwrap()
}

/// A request with one record for partition 0 of topic `t`.
pub fn request(value: &str, acks: i16) -> ProduceRequest {
    let mut batch = BatchBuilder::new();
    batch.add(Timestamp(1), None, Some(value.as_bytes()));
    let partition = PartitionProduceData { index: 0, records: Some(batch.finish().into()) };
    ProduceRequest {
        acks,
        topic_data: vec![TopicProduceData {
            name: "t".to_owned(),
            partition_data: vec![partition],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

/// The value in a request that reached the server; its checksum must be right.
fn value(frame: &[u8]) -> String {
    let head = RequestHead::parse(frame).unwrap();
    let request: ProduceRequest = wire::decode(&frame[head.body_from..], head.version).unwrap();
    let batch = request.topic_data[0].partition_data[0].records.clone().unwrap();
    let header = BatchHeader::decode_checked(&batch).unwrap();
    let record = Records::new(&batch[HEADER_BYTES..], header.record_count).next();
    String::from_utf8_lossy(record.unwrap().unwrap().value.unwrap()).into_owned()
}

/// Values in the requests that reached the server, in their order.
pub fn values(server: &Server) -> Vec<String> {
    server.produced.lock().unwrap().iter().map(|frame| value(frame)).collect()
}

/// Sends values in one go; returns the base offsets of the answers, whose order must be right.
async fn produce(proxy: &Proxy, values: &[&str]) -> Vec<i64> {
    let mut client = Raw::connect(proxy.bootstrap()).await;
    let requests: Vec<_> = values.iter().map(|value| request(value, -1)).collect();
    // In one piece: the proxy waits for a request that is to overtake another, but not for long.
    client.send_all(&requests, VERSION, 0).await;
    let mut offsets = Vec::new();
    for id in 0..values.len() as i32 {
        let (answered, message): (_, ProduceResponse) =
            client.message(ApiKey::Produce, VERSION).await;
        assert_eq!(answered, id);
        let partition = &message.responses[0].partition_responses[0];
        assert_eq!(partition.error_code, 0);
        offsets.push(partition.base_offset);
    }
    offsets
}

#[tokio::test]
async fn a_lost_request_is_acknowledged_where_it_would_have_gone() {
    let server = Server::start().await;
    let proxy = faulty(&server, &[(3, FaultAction::Lose)]).await;
    let mut client = Raw::connect(proxy.bootstrap()).await;
    let mut offsets = Vec::new();
    for (id, text) in ["a", "b", "c", "d"].into_iter().enumerate() {
        client.send(&request(text, -1), VERSION, id as i32).await;
        let (_, message): (_, ProduceResponse) = client.message(ApiKey::Produce, VERSION).await;
        offsets.push(message.responses[0].partition_responses[0].base_offset);
    }
    assert_eq!(values(&server), ["a", "b", "d"]);
    assert_eq!(offsets, [100, 200, 201, 300]);
    let lost = FaultedRecords { lost_requests: 1, lost_records: 1, ..FaultedRecords::default() };
    assert_eq!(proxy.faulted_records(), lost);
}

#[tokio::test]
async fn a_repeated_request_has_one_answer() {
    let server = Server::start().await;
    let proxy = faulty(&server, &[(2, FaultAction::Duplicate)]).await;
    let offsets = produce(&proxy, &["a", "b", "c"]).await;
    assert_eq!(values(&server), ["a", "b", "b", "c"]);
    assert_eq!(offsets, [100, 200, 400]);
    assert_eq!(proxy.faulted_records().duplicated_records, 1);
}

#[tokio::test]
async fn reordered_requests_are_answered_in_the_clients_order() {
    let server = Server::start().await;
    let proxy = faulty(&server, &[(2, FaultAction::Reorder)]).await;
    let offsets = produce(&proxy, &["a", "b", "c", "d"]).await;
    assert_eq!(values(&server), ["a", "c", "b", "d"]);
    assert_eq!(offsets, [100, 300, 200, 400]);
    assert_eq!(proxy.faulted_records().reordered_pairs, 1);
}

#[tokio::test]
async fn a_request_that_nothing_overtakes_goes_all_the_same() {
    let server = Server::start().await;
    let proxy = faulty(&server, &[(1, FaultAction::Reorder)]).await;
    assert_eq!(produce(&proxy, &["a"]).await, [100]);
    let mut client = Raw::connect(proxy.bootstrap()).await;
    client.send(&request("b", -1), VERSION, 1).await;
    client.send(&MetadataRequest::default(), 12, 2).await;
    assert_eq!((client.answered().await, client.answered().await), (1, 2));
    assert_eq!(values(&server), ["a", "b"]);
    assert_eq!(proxy.faulted_records(), FaultedRecords::default());
}

#[tokio::test]
async fn what_the_proxy_cannot_read_overtakes_nothing() {
    let server = Server::start().await;
    let proxy = faulty(&server, &[(1, FaultAction::Reorder)]).await;
    let mut client = Raw::connect(proxy.bootstrap()).await;
    client.send(&request("a", -1), VERSION, 1).await;
    // A byte too many: the proxy leaves it to the server to say so, behind the first.
    let mut writer = wire::Writer::new();
    wire::frame::write_request(&mut writer, &request("b", -1), 3, 2, Some("raw")).unwrap();
    writer.buffer().push(0);
    let length = writer.bytes().len() as i32 - 4;
    writer.buffer()[..4].copy_from_slice(&length.to_be_bytes());
    tokio::io::AsyncWriteExt::write_all(&mut client.0, writer.bytes()).await.unwrap();
    assert_eq!((client.answered().await, client.answered().await), (1, 2));
    assert_eq!(proxy.faulted_records(), FaultedRecords::default());
}

#[tokio::test]
async fn a_damaged_value_has_a_right_checksum() {
    let server = Server::start().await;
    let proxy = faulty(&server, &[(2, FaultAction::Damage)]).await;
    produce(&proxy, &["aa", "", "bb", "cc"]).await;
    // The empty value has no byte to change, so the next one is.
    assert_eq!(values(&server), ["aa", "", "bc", "cb"]);
    assert_eq!(proxy.faulted_records().damaged_records, 2);
}

#[tokio::test]
async fn what_is_not_acknowledged_is_lost_and_repeated_in_silence() {
    let server = Server::start().await;
    let plan = [(2, FaultAction::Lose), (3, FaultAction::Duplicate)];
    let proxy = faulty(&server, &plan).await;
    let mut client = Raw::connect(proxy.bootstrap()).await;
    for value in ["a", "b", "c", "d"] {
        client.send(&request(value, 0), VERSION, 1).await;
    }
    client.send_echo(9, 10).await;
    assert_eq!(client.answered().await, 9);
    assert_eq!(values(&server), ["a", "c", "c"]);
}
