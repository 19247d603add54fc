//! Produce: what is accepted, what is refused with which error, and what is stored.

use model::{
    Compression, ErrorCode, ProducerEpoch, ProducerId, Sequence, Timestamp, TimestampType,
};
use model::{batch, record::BatchBuilder};

use crate::fixture::{batch as batch_of, *};

#[tokio::test]
async fn acks_0_gets_no_answer_and_its_record_is_there() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("silent", &[]).await;
    conn.send(&produce_request("silent", 0, batch_of(&["quiet"])), PRODUCE).await;
    // The next answer on this connection is to the next request: receive() compares.
    assert_eq!(conn.append("silent", batch_of(&["loud"])).await, 1);
    let fetched = conn.fetch("silent", 0).await;
    assert_eq!(values(&fetched), [(0, "quiet".to_owned()), (1, "loud".to_owned())]);
    broker.stop().await;
}

#[tokio::test]
async fn an_error_under_acks_0_closes_the_connection() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.send(&produce_request("absent", 0, batch_of(&["lost"])), PRODUCE).await;
    conn.assert_closed().await;
    broker.assert_serves().await;
    broker.stop().await;
}

#[tokio::test]
async fn a_record_without_a_key_is_refused_in_a_compacted_topic() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("compacted", &[("cleanup.policy", "compact")]).await;
    for codec in [Compression::None, Compression::Zstd] {
        let mut builder = BatchBuilder::new();
        builder.add(Timestamp(now_ms()), Some(b"key"), Some(b"good"));
        builder.add(Timestamp(now_ms()), None, Some(b"bad"));
        let answer = conn.produce("compacted", compressed(builder, codec)).await;
        assert_eq!(answer.error(), ErrorCode::InvalidRecord);
        assert_eq!(answer.base_offset, -1);
        let [error] = &answer.record_errors[..] else { panic!("{answer:?}") };
        assert_eq!(error.batch_index, 1, "the one that has no key");
        assert!(
            error.batch_index_error_message.as_deref().is_some_and(|text| text.contains("key"))
        );
    }
    assert_eq!(conn.end_offset("compacted").await, 0);
    assert_eq!(conn.append("compacted", batch_of(&["keyed"])).await, 0);
    broker.stop().await;
}

#[tokio::test]
async fn a_batch_beyond_max_message_bytes_is_refused() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let fits = batch_of(&["x".repeat(900).as_str()]);
    let limit = fits.len().to_string();
    conn.create_topic("small", &[("max.message.bytes", &limit)]).await;
    assert_eq!(conn.append("small", fits).await, 0, "the limit itself is allowed");
    let answer = conn.produce("small", batch_of(&["x".repeat(901).as_str()])).await;
    assert_eq!(answer.error(), ErrorCode::MessageTooLarge);
    assert_eq!(conn.end_offset("small").await, 1);
    broker.stop().await;
}

#[tokio::test]
async fn a_bad_checksum_is_refused_and_nothing_is_appended() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("checked", &[]).await;
    let mut broken = batch_of(&["value"]);
    *broken.last_mut().unwrap() ^= 1;
    assert_eq!(conn.produce("checked", broken).await.error(), ErrorCode::CorruptMessage);
    let cut = batch_of(&["value"]);
    let cut = cut[..cut.len() - 1].to_vec();
    assert_eq!(conn.produce("checked", cut).await.error(), ErrorCode::CorruptMessage);
    let fetched = conn.fetch("checked", 0).await;
    assert_eq!((fetched.high_watermark, headers(&fetched).len()), (0, 0));
    assert_eq!(conn.append("checked", batch_of(&["good"])).await, 0);
    broker.stop().await;
}

#[tokio::test]
async fn log_append_time_replaces_the_producers_times() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("stamped", &[("message.timestamp.type", "LogAppendTime")]).await;
    let before = now_ms();
    let answer = conn.produce("stamped", timed(&[5, 7]).finish()).await;
    assert_eq!(answer.error(), ErrorCode::None);
    let stamped = answer.log_append_time_ms;
    assert!((before..=now_ms()).contains(&stamped), "{stamped} is the broker's time");
    let fetched = conn.fetch("stamped", 0).await;
    let [header] = headers(&fetched)[..] else { panic!("{fetched:?}") };
    assert_eq!(header.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(header.max_timestamp, Timestamp(stamped));
    assert_eq!(values(&fetched).len(), 2, "the checksum covers the stamp");

    conn.create_topic("created", &[]).await;
    let answer = conn.produce("created", batch_of(&["value"])).await;
    assert_eq!(answer.log_append_time_ms, -1);
    broker.stop().await;
}

#[tokio::test]
async fn compression_type_zstd_recompresses_what_comes() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("zstd", &[("compression.type", "zstd")]).await;
    conn.create_topic("as-sent", &[]).await;
    let text = "again and again ".repeat(200);
    for codec in [Compression::None, Compression::Gzip, Compression::Zstd, Compression::Lz4] {
        conn.append("zstd", compressed(builder(&[&text, "two"]), codec)).await;
        conn.append("as-sent", compressed(builder(&[&text, "two"]), codec)).await;
    }
    let (ours, as_sent) = (conn.fetch("zstd", 0).await, conn.fetch("as-sent", 0).await);
    let codecs = |fetched| -> Vec<_> {
        headers(fetched).iter().map(|header| header.compression()).collect()
    };
    assert_eq!(codecs(&ours), [Compression::Zstd; 4]);
    use Compression::{Gzip, Lz4, None, Zstd};
    assert_eq!(codecs(&as_sent), [None, Gzip, Zstd, Lz4]);
    assert_eq!(values(&ours), values(&as_sent), "the records are the same");
    broker.stop().await;
}

#[tokio::test]
async fn timestamps_out_of_range_are_refused() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let hour = "3600000";
    conn.create_topic(
        "timely",
        &[("message.timestamp.before.max.ms", hour), ("message.timestamp.after.max.ms", hour)],
    )
    .await;
    let day = 24 * 3_600_000;
    let now = now_ms();
    for bad in [now - day, now + day] {
        let answer = conn.produce("timely", timed(&[now, bad]).finish()).await;
        assert_eq!(answer.error(), ErrorCode::InvalidTimestamp);
        assert_eq!(answer.record_errors[0].batch_index, 1);
    }
    let compressed_late = compressed(timed(&[now + day]), Compression::Lz4);
    let answer = conn.produce("timely", compressed_late).await;
    assert_eq!(answer.error(), ErrorCode::InvalidTimestamp);
    assert_eq!(conn.append("timely", timed(&[now]).finish()).await, 0);
    broker.stop().await;
}

async fn producer_id(conn: &mut Conn) -> ProducerId {
    let request = wire::InitProducerIdRequest { transactional_id: None, ..Default::default() };
    let answer = conn.call(&request, 4).await;
    assert_eq!(answer.error(), ErrorCode::None);
    ProducerId(answer.producer_id)
}

/// A batch of two records of an idempotent producer.
fn sequenced(id: ProducerId, epoch: i16, first: i32) -> Vec<u8> {
    let mut builder = BatchBuilder::new().producer(id, ProducerEpoch(epoch), Sequence(first));
    builder.add(Timestamp(now_ms()), None, Some(b"one"));
    builder.add(Timestamp(now_ms()), None, Some(b"two"));
    builder.finish()
}

#[tokio::test]
async fn a_duplicate_of_an_idempotent_producer_is_answered_with_its_first_offset() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("once", &[]).await;
    let id = producer_id(&mut conn).await;
    for at in 0..5 {
        assert_eq!(conn.append("once", sequenced(id, 0, at * 2)).await, i64::from(at) * 2);
    }
    for at in [0, 2, 4] {
        assert_eq!(conn.append("once", sequenced(id, 0, at * 2)).await, i64::from(at) * 2);
    }
    assert_eq!(conn.end_offset("once").await, 10, "duplicates are not appended");

    // A clean restart knows it as well, and so does a broker that finds what a crash leaves.
    let copy = broker.start_on_copy().await;
    assert_eq!(copy.connect().await.append("once", sequenced(id, 0, 8)).await, 8);
    copy.stop().await;
    let broker = broker.restart().await;
    let mut conn = broker.connect().await;
    assert_eq!(conn.append("once", sequenced(id, 0, 8)).await, 8);
    assert_eq!(conn.end_offset("once").await, 10);
    broker.stop().await;
}

#[tokio::test]
async fn a_gap_in_the_sequence_and_an_old_epoch_are_refused() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("gaps", &[]).await;
    let id = producer_id(&mut conn).await;
    conn.append("gaps", sequenced(id, 1, 0)).await;
    let gap = conn.produce("gaps", sequenced(id, 1, 4)).await;
    assert_eq!(gap.error(), ErrorCode::OutOfOrderSequenceNumber);
    let old = conn.produce("gaps", sequenced(id, 0, 0)).await;
    assert_eq!(old.error(), ErrorCode::InvalidProducerEpoch);
    assert_eq!(conn.append("gaps", sequenced(id, 1, 2)).await, 2, "the right one still goes");
    assert_eq!(conn.end_offset("gaps").await, 4);
    broker.stop().await;
}

#[tokio::test]
async fn what_only_brokers_may_write_is_refused() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("plain", &[]).await;
    for flags in [0x10, 0x20, 0x30] {
        let mut builder = BatchBuilder::new().flags(flags);
        builder.add(Timestamp(now_ms()), None, Some(b"value"));
        let answer = conn.produce("plain", builder.finish()).await;
        assert_eq!(answer.error(), ErrorCode::InvalidRecord, "attributes {flags:#x}");
    }
    let two = [batch_of(&["one"]), batch_of(&["two"])].concat();
    assert_ne!(conn.produce("plain", two).await.error(), ErrorCode::None, "one batch a request");
    let mut wrong_magic = batch_of(&["value"]);
    wrong_magic[16] = 1;
    batch::write_checksum(&mut wrong_magic);
    assert_ne!(conn.produce("plain", wrong_magic).await.error(), ErrorCode::None);
    assert_eq!(conn.end_offset("plain").await, 0);
    broker.stop().await;
}
