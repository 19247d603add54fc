//! What is written by hand for produce and fetch gives and takes the bytes of the generated codec.

use crate::golden::lines;
use model::{
    BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionIndex, ProducerId, Timestamp,
};
use wire::hot::Topic;
use wire::hot::fetch_response::{FetchResponder, FetchResponseHead, FetchedPartition, Records};
use wire::hot::produce_response::{PartitionAnswer, ProduceResponder};
use wire::{ApiKey, FetchRequest, FetchResponse, ProduceRequest, ProduceResponse, Writer};
use wire::{decode, encode, frame, hot};

/// Bytes in front of a message, so that ranges must be those of the frame.
const BODY_FROM: usize = 7;

fn framed(bytes: &[u8]) -> Vec<u8> {
    [&[0xee; BODY_FROM][..], bytes].concat()
}

fn topic<'a>(by_id: bool, name: &'a str, id: model::Uuid) -> Topic<'a> {
    if by_id { Topic::Id(id) } else { Topic::Name(name) }
}

#[test]
fn a_produce_request_is_walked_as_it_is_decoded() {
    for line in lines("produce").iter().filter(|line| line.role == "request") {
        let frame = framed(&line.bytes);
        let expected: ProduceRequest = decode(&line.bytes, line.version).unwrap();
        let (head, walk) = hot::produce::walk(&frame, BODY_FROM, line.version).unwrap();
        assert_eq!(head.transactional_id, expected.transactional_id.as_deref());
        assert_eq!((head.acks, head.timeout_ms), (expected.acks, expected.timeout_ms));
        let mut walk = walk.map(|partition| partition.unwrap());
        for data in &expected.topic_data {
            for (i, partition) in data.partition_data.iter().enumerate() {
                let found = walk.next().unwrap();
                assert_eq!(found.topic, topic(line.version >= 13, &data.name, data.topic_id));
                assert_eq!((found.partition, found.first_of_topic), (partition.index, i == 0));
                let records = found.records.map(|range| &frame[range]);
                assert_eq!(records, partition.records.as_deref());
            }
        }
        assert_eq!(walk.next(), None);
    }
}

#[test]
fn a_topic_without_partitions_is_walked_over() {
    for version in ApiKey::Produce.min_version()..=12 {
        let mut request = ProduceRequest { acks: -1, ..Default::default() };
        for (name, count) in [("empty", 0), ("full", 2), ("bare", 0)] {
            let data = (0..count).map(|index| wire::produce::PartitionProduceData {
                index,
                records: Some(bytes::Bytes::from_static(b"xyz")),
            });
            request.topic_data.push(wire::produce::TopicProduceData {
                name: name.to_owned(),
                partition_data: data.collect(),
                ..Default::default()
            });
        }
        let bytes = encode(&request, version).unwrap();
        let (_, walk) = hot::produce::walk(&bytes, 0, version).unwrap();
        let found: Vec<_> = walk.map(|p| p.map(|p| (p.topic, p.partition)).unwrap()).collect();
        assert_eq!(found, [(Topic::Name("full"), 0), (Topic::Name("full"), 1)]);
    }
}

#[test]
fn a_damaged_produce_request_is_an_error_wherever_it_is_cut() {
    for line in lines("produce").iter().filter(|line| line.role == "request") {
        for cut in 0..line.bytes.len() {
            let walk = hot::produce::walk(&line.bytes[..cut], 0, line.version);
            let failed = walk.is_err() || walk.unwrap().1.any(|partition| partition.is_err());
            assert!(failed, "v{} cut at {cut}", line.version);
        }
        let longer = [&line.bytes[..], &[0]].concat();
        let (_, mut walk) = hot::produce::walk(&longer, 0, line.version).unwrap();
        assert!(walk.any(|partition| partition.is_err()), "v{} with a tail", line.version);
    }
}

/// The frame that holds this response, by the generated codec.
fn whole_frame<M: wire::Message>(message: &M, api: ApiKey, version: i16) -> Vec<u8> {
    let mut writer = Writer::over(b"before".to_vec());
    frame::write_response(&mut writer, message, api, version, 77).unwrap();
    writer.into_bytes()
}

fn error_code(code: i16) -> ErrorCode {
    ErrorCode::from_code(code).unwrap()
}

fn write_produce_response(response: &ProduceResponse, version: i16) -> Vec<u8> {
    let mut writer = Writer::over(b"before".to_vec());
    let count = response.responses.len();
    let mut out = ProduceResponder::begin(&mut writer, version, 77, count).unwrap();
    for data in &response.responses {
        let named = topic(version >= 13, &data.name, data.topic_id);
        out.topic(named, data.partition_responses.len()).unwrap();
        for p in &data.partition_responses {
            let answer = PartitionAnswer {
                partition: PartitionIndex(p.index),
                error_code: error_code(p.error_code),
                base_offset: Offset(p.base_offset),
                log_append_time: Timestamp(p.log_append_time_ms),
                log_start_offset: Offset(p.log_start_offset),
                record_errors: &p.record_errors,
                error_message: p.error_message.as_deref(),
                current_leader: Some(p.current_leader.clone()),
            };
            out.partition(&answer).unwrap();
        }
    }
    out.end(response.throttle_time_ms, &response.node_endpoints).unwrap();
    writer.into_bytes()
}

#[test]
fn a_produce_response_is_written_as_it_is_encoded() {
    for line in lines("produce").iter().filter(|line| line.role == "response") {
        let mut response: ProduceResponse = decode(&line.bytes, line.version).unwrap();
        // The golden file counts its error codes up; only known ones can be answered.
        for data in &mut response.responses {
            for (i, partition) in data.partition_responses.iter_mut().enumerate() {
                partition.error_code = i as i16;
            }
        }
        let expected = whole_frame(&response, ApiKey::Produce, line.version);
        assert_eq!(write_produce_response(&response, line.version), expected, "v{}", line.version);
    }
}

#[test]
fn a_fetch_request_is_read_as_it_is_decoded() {
    // One value for all lines: what an earlier request left must not show.
    let mut request = hot::fetch::FetchRequest::default();
    for line in lines("fetch").iter().filter(|line| line.role == "request") {
        let expected: FetchRequest = decode(&line.bytes, line.version).unwrap();
        request.decode(&line.bytes, line.version).unwrap();
        check_fetch_head(&request, &expected, line.version);
        check_fetch_partitions(&request, &expected, line.version >= 13);
        let mut fresh = hot::fetch::FetchRequest::default();
        fresh.decode(&line.bytes, line.version).unwrap();
        assert_eq!(fresh, request);
    }
}

fn check_fetch_head(found: &hot::fetch::FetchRequest, expected: &FetchRequest, version: i16) {
    let state = &expected.replica_state;
    let id = if version >= 15 { state.replica_id } else { expected.replica_id };
    assert_eq!(found.replica_id, BrokerId(id));
    assert_eq!(found.replica_epoch, BrokerEpoch(state.replica_epoch));
    assert_eq!(found.max_wait_ms, expected.max_wait_ms);
    assert_eq!((found.min_bytes, found.max_bytes), (expected.min_bytes, expected.max_bytes));
    assert_eq!(found.isolation_level, expected.isolation_level);
    assert_eq!(found.session_id, expected.session_id);
    assert_eq!(found.session_epoch, expected.session_epoch);
    assert_eq!(found.rack_id, expected.rack_id);
}

fn check_fetch_partitions(found: &hot::fetch::FetchRequest, expected: &FetchRequest, by_id: bool) {
    let mut partitions = found.partitions.iter();
    for named in &expected.topics {
        for p in &named.partitions {
            let found_partition = partitions.next().unwrap();
            let found_topic = found.topic(found_partition.topic);
            assert_eq!(found_topic, topic(by_id, &named.topic, named.topic_id));
            let as_hot = hot::fetch::FetchPartition {
                topic: found_partition.topic,
                partition: PartitionIndex(p.partition),
                current_leader_epoch: LeaderEpoch(p.current_leader_epoch),
                fetch_offset: Offset(p.fetch_offset),
                last_fetched_epoch: LeaderEpoch(p.last_fetched_epoch),
                log_start_offset: Offset(p.log_start_offset),
                partition_max_bytes: p.partition_max_bytes,
                replica_directory_id: p.replica_directory_id,
                high_watermark: Offset(p.high_watermark),
            };
            assert_eq!(*found_partition, as_hot);
        }
    }
    assert_eq!(partitions.next(), None);
    let forgotten = found.forgotten.iter().map(|f| (found.topic(f.topic), f.partition.0));
    let expected = expected
        .forgotten_topics_data
        .iter()
        .flat_map(|f| f.partitions.iter().map(move |p| (topic(by_id, &f.topic, f.topic_id), *p)));
    assert!(forgotten.eq(expected));
}

/// How the records get into the frame.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Copied,
    Reserved,
    Spliced,
}

fn fetched<'a>(
    p: &wire::fetch::PartitionData,
    aborted: &'a Option<Vec<(ProducerId, Offset)>>,
) -> FetchedPartition<'a> {
    FetchedPartition {
        partition: PartitionIndex(p.partition_index),
        error_code: error_code(p.error_code),
        high_watermark: Offset(p.high_watermark),
        last_stable_offset: Offset(p.last_stable_offset),
        log_start_offset: Offset(p.log_start_offset),
        aborted_transactions: aborted.as_deref(),
        preferred_read_replica: BrokerId(p.preferred_read_replica),
        diverging_epoch: Some(p.diverging_epoch.clone()),
        current_leader: Some(p.current_leader.clone()),
    }
}

fn aborted_of(p: &wire::fetch::PartitionData) -> Option<Vec<(ProducerId, Offset)>> {
    let pair =
        |a: &wire::fetch::AbortedTransaction| (ProducerId(a.producer_id), Offset(a.first_offset));
    p.aborted_transactions.as_ref().map(|list| list.iter().map(pair).collect())
}

fn write_fetch_response(response: &FetchResponse, version: i16, how: How) -> Vec<u8> {
    let mut writer = Writer::over(b"before".to_vec());
    let head = FetchResponseHead {
        throttle_time_ms: response.throttle_time_ms,
        error_code: error_code(response.error_code),
        session_id: response.session_id,
    };
    let count = response.responses.len();
    let mut out = FetchResponder::begin(&mut writer, version, 77, head, count).unwrap();
    let mut splices = Vec::new();
    for data in &response.responses {
        let named = topic(version >= 13, &data.topic, data.topic_id);
        out.topic(named, data.partitions.len()).unwrap();
        for p in &data.partitions {
            let records = match (&p.records, how) {
                (None, _) => Records::Null,
                (Some(bytes), How::Copied) => Records::Copied(bytes),
                (Some(bytes), How::Reserved) => Records::Reserved(bytes.len()),
                (Some(bytes), How::Spliced) => Records::Spliced(bytes.len()),
            };
            let place = out.partition(&fetched(p, &aborted_of(p)), records).unwrap();
            splices.push((place, p.records.clone().unwrap_or_default()));
        }
    }
    let total = out.end(&response.node_endpoints).unwrap();
    let mut frame = writer.into_bytes();
    if how != How::Copied {
        for (place, records) in splices.into_iter().rev() {
            frame.splice(place, records);
        }
    }
    assert_eq!(total, frame.len() - b"before".len());
    frame
}

#[test]
fn a_fetch_response_is_written_as_it_is_encoded_however_its_records_travel() {
    for line in lines("fetch").iter().filter(|line| line.role == "response") {
        let mut response: FetchResponse = decode(&line.bytes, line.version).unwrap();
        response.error_code = 0;
        for data in &mut response.responses {
            for (i, partition) in data.partitions.iter_mut().enumerate() {
                partition.error_code = i as i16;
                // For the controllers' own log only, so not written by hand.
                partition.snapshot_id = Default::default();
            }
        }
        let expected = whole_frame(&response, ApiKey::Fetch, line.version);
        for how in [How::Copied, How::Reserved, How::Spliced] {
            let written = write_fetch_response(&response, line.version, how);
            assert_eq!(written, expected, "v{} {}", line.version, line.filling);
        }
    }
}
