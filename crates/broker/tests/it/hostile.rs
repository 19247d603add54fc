//! Peers that send nonsense, or nothing, or do not read: they lose their connection at most, and
//! nobody else notices.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use wire::metadata::MetadataRequestTopic;
use wire::{ApiKey, MetadataRequest, Writer, frame};

use crate::fixture::*;

#[tokio::test]
async fn lengths_that_no_frame_may_have_close_the_connection() {
    let broker = Broker::start(&[]).await;
    for length in [i32::MAX, i32::MIN, -1, 0, 1, 7] {
        let mut conn = broker.connect().await;
        conn.write(&length.to_be_bytes()).await;
        if (1..8).contains(&length) {
            // Too short for a header, but whole.
            conn.write(&vec![0; length as usize]).await;
        }
        conn.assert_closed().await;
        broker.assert_serves().await;
    }
    broker.stop().await;
}

#[tokio::test]
async fn a_frame_of_the_largest_size_is_accepted_and_one_byte_more_is_not() {
    let broker = Broker::start(&[("socket.request.max.bytes", "2000")]).await;
    let mut conn = broker.connect().await;
    let mut request = frame_of(&wire::ApiVersionsRequest::default(), 0, 1);
    // What follows a message is left unread.
    request.resize(4 + 2000, 0);
    request[..4].copy_from_slice(&2000i32.to_be_bytes());
    conn.write(&request).await;
    conn.receive::<wire::ApiVersionsRequest>(0, 1).await;
    conn.write(&2001i32.to_be_bytes()).await;
    conn.assert_closed().await;
    broker.stop().await;
}

fn metadata_request() -> MetadataRequest {
    let topic = MetadataRequestTopic { name: Some("some-topic".to_owned()), ..Default::default() };
    MetadataRequest { topics: Some(vec![topic]), ..Default::default() }
}

#[tokio::test]
async fn frames_cut_by_the_peers_end_get_no_answer() {
    let broker = Broker::start(&[]).await;
    let whole = frame_of(&metadata_request(), 9, 1);
    for cut in 0..whole.len() {
        let mut conn = broker.connect().await;
        conn.write(&whole[..cut]).await;
        conn.stream.shutdown().await.unwrap();
        conn.assert_closed().await;
    }
    broker.assert_serves().await;
    broker.stop().await;
}

#[tokio::test]
async fn messages_that_end_too_early_close_the_connection() {
    let broker = Broker::start(&[]).await;
    broker.connect().await.create_topic("cut", &[]).await;
    let frames = [
        frame_of(&metadata_request(), 9, 1),
        frame_of(&produce_request("cut", -1, batch(&["value"])), PRODUCE, 1),
        frame_of(&fetch_request("cut", 0), FETCH, 1),
    ];
    for whole in frames {
        for cut in 4..whole.len() {
            let mut conn = broker.connect().await;
            let mut shorter = whole[..cut].to_vec();
            shorter[..4].copy_from_slice(&(cut as i32 - 4).to_be_bytes());
            conn.write(&shorter).await;
            conn.assert_closed().await;
        }
    }
    let mut conn = broker.connect().await;
    assert_eq!(conn.end_offset("cut").await, 0, "nothing of them was appended");
    broker.stop().await;
}

#[tokio::test]
async fn garbage_closes_the_connection() {
    let broker = Broker::start(&[]).await;
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..200 {
        let garbage: Vec<u8> = (0..random.usize(1..2000)).map(|_| random.u8(..)).collect();
        let mut conn = broker.connect().await;
        // The broker may be gone before all of it is written.
        let _ = conn.stream.write_all(&garbage).await;
        let _ = conn.stream.shutdown().await;
        let mut answer = Vec::new();
        let read = timeout(PATIENCE, conn.stream.read_to_end(&mut answer)).await;
        read.expect("the connection is closed").ok();
    }
    broker.assert_serves().await;
    broker.stop().await;
}

/// A request whose message consists of these bytes.
pub fn raw_frame(api: ApiKey, version: i16, message: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new();
    let start = frame::begin(&mut writer);
    frame::write_request_head(&mut writer, api, version, 1, Some("test")).unwrap();
    writer.buffer().extend_from_slice(message);
    frame::end(&mut writer, start).unwrap();
    writer.into_bytes()
}

/// Messages with an array of which the count says the most that it can.
pub fn enormous_arrays() -> Vec<Vec<u8>> {
    let count = i32::MAX.to_be_bytes();
    let compact = [0xff, 0xff, 0xff, 0xff, 0x0f];
    let fetch = [&[0xff; 4][..], &[0; 4], &[0; 4], &[0x7f; 4], &[0]].concat();
    vec![
        raw_frame(ApiKey::Metadata, 1, &count),
        raw_frame(ApiKey::Metadata, 12, &compact),
        raw_frame(ApiKey::Produce, 3, &[&[0xff, 0xff, 0, 1, 0, 0, 0, 9][..], &count].concat()),
        raw_frame(ApiKey::Fetch, 4, &[&fetch[..], &count].concat()),
        raw_frame(ApiKey::ListOffsets, 1, &[&[0xff; 4][..], &count].concat()),
        raw_frame(ApiKey::CreateTopics, 2, &count),
        raw_frame(ApiKey::CreateTopics, 7, &compact),
        raw_frame(ApiKey::DeleteTopics, 1, &count),
        raw_frame(ApiKey::DescribeGroups, 0, &count),
        raw_frame(ApiKey::FindCoordinator, 4, &[&[0][..], &compact].concat()),
        raw_frame(ApiKey::DescribeConfigs, 1, &count),
        raw_frame(ApiKey::OffsetFetch, 8, &compact),
    ]
}

#[tokio::test]
async fn counts_that_the_frame_cannot_hold_close_the_connection() {
    let broker = Broker::start(&[]).await;
    for frame in enormous_arrays() {
        let mut conn = broker.connect().await;
        conn.write(&frame).await;
        conn.assert_closed().await;
    }
    broker.assert_serves().await;
    broker.stop().await;
}

#[tokio::test]
async fn a_request_that_trickles_in_is_answered_and_disturbs_nobody() {
    let broker = Broker::start(&[]).await;
    let mut other = broker.connect().await;
    other.create_topic("busy", &[]).await;
    let mut slow = broker.connect().await;
    let bytes = frame_of(&metadata_request(), 9, 9);
    for (at, byte) in bytes.iter().enumerate() {
        slow.write(&[*byte]).await;
        assert_eq!(other.append("busy", batch(&["meanwhile"])).await, at as i64);
    }
    slow.receive::<MetadataRequest>(9, 9).await;
    broker.stop().await;
}
