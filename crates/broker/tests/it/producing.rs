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

const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

#[tokio::test]
async fn compression_type_decides_how_records_are_stored() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let text = "again and again ".repeat(200);
    for (topic, stored) in [
        ("uncompressed", [Compression::None; 5]),
        ("gzip", [Compression::Gzip; 5]),
        ("snappy", [Compression::Snappy; 5]),
        ("lz4", [Compression::Lz4; 5]),
        ("zstd", [Compression::Zstd; 5]),
        ("producer", CODECS),
    ] {
        conn.create_topic(topic, &[("compression.type", topic)]).await;
        let mut expected = Vec::new();
        for (at, codec) in CODECS.into_iter().enumerate() {
            let sent = compressed(builder(&[&text, "two"]), codec);
            assert_eq!(conn.append(topic, sent).await, at as i64 * 2);
            expected.push((at as i64 * 2, text.clone()));
            expected.push((at as i64 * 2 + 1, "two".to_owned()));
        }
        let fetched = conn.fetch(topic, 0).await;
        let codecs: Vec<_> = headers(&fetched).iter().map(|header| header.compression()).collect();
        assert_eq!(codecs, stored, "{topic}");
        assert_eq!(values(&fetched), expected, "{topic}");
    }
    broker.stop().await;
}

#[tokio::test]
async fn log_append_time_holds_for_compressed_batches_as_well() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let stamped = ("message.timestamp.type", "LogAppendTime");
    conn.create_topic("as-sent", &[stamped]).await;
    conn.create_topic("anew", &[stamped, ("compression.type", "zstd")]).await;
    for topic in ["as-sent", "anew"] {
        let answer = conn.produce(topic, compressed(timed(&[5, 7]), Compression::Gzip)).await;
        assert_eq!(answer.error(), ErrorCode::None, "{topic}");
        let fetched = conn.fetch(topic, 0).await;
        assert_eq!(values(&fetched).len(), 2, "{topic}: the checksum holds");
        let header = headers(&fetched)[0];
        assert_eq!(header.timestamp_type(), TimestampType::LogAppendTime, "{topic}");
        assert_eq!(header.max_timestamp, Timestamp(answer.log_append_time_ms), "{topic}");
    }
    broker.stop().await;
}

#[tokio::test]
async fn many_producers_at_once_share_the_offsets_without_a_gap() {
    let broker = Broker::start(&[]).await;
    broker.connect().await.create_topic("shared", &[]).await;
    let mut producers = tokio::task::JoinSet::new();
    for number in 0..8 {
        let mut conn = broker.connect().await;
        producers.spawn(async move {
            let mut told = Vec::new();
            for round in 0..25 {
                let value = format!("{number}-{round}");
                told.push((conn.append("shared", batch_of(&[&value])).await, value));
            }
            told
        });
    }
    let mut told: Vec<(i64, String)> = producers.join_all().await.concat();
    told.sort();
    assert_eq!(told.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), Vec::from_iter(0..200));
    let fetched = broker.connect().await.fetch("shared", 0).await;
    assert_eq!(values(&fetched), told, "each is where its producer was told");
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

#[tokio::test]
async fn internal_topics_take_nothing_from_clients() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    for topic in ["__consumer_offsets", "__transaction_state", "__share_group_state"] {
        conn.create_topic(topic, &[]).await;
        let answer = conn.produce(topic, batch_of(&["forged"])).await;
        assert_eq!(answer.error(), ErrorCode::InvalidTopicException, "{topic}");
        assert!(answer.error_message.is_some_and(|text| text.contains("internal")), "{topic}");
        assert_eq!(conn.end_offset(topic).await, 0);
        // Without an answer it is the connection that tells.
        let mut silent = broker.connect().await;
        silent.send(&produce_request(topic, 0, batch_of(&["forged"])), PRODUCE).await;
        silent.assert_closed().await;
    }
    broker.stop().await;
}

#[tokio::test]
async fn a_batch_that_becomes_too_large_by_being_stored_anew_is_refused() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let plain = ("compression.type", "uncompressed");
    conn.create_topic("message", &[plain, ("max.message.bytes", "2000")]).await;
    conn.create_topic("segment", &[plain, ("internal.segment.bytes", "2000")]).await;
    let sent = compressed(builder(&[&"x".repeat(10_000)]), Compression::Zstd);
    assert!(sent.len() < 500);
    let answer = conn.produce("message", sent.clone()).await;
    assert_eq!(answer.error(), ErrorCode::MessageTooLarge);
    let answer = conn.produce("segment", sent).await;
    assert_eq!(answer.error(), ErrorCode::RecordListTooLarge);
    for topic in ["message", "segment"] {
        assert_eq!(conn.end_offset(topic).await, 0, "{topic}");
    }
    broker.stop().await;
}

#[tokio::test]
async fn sequences_go_on_at_0_behind_the_largest() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("wrapped", &[]).await;
    let id = producer_id(&mut conn).await;
    conn.append("wrapped", sequenced(id, 0, i32::MAX - 2)).await;
    // Two records: one with the largest sequence, one with 0.
    assert_eq!(conn.append("wrapped", sequenced(id, 0, i32::MAX)).await, 2);
    assert_eq!(conn.append("wrapped", sequenced(id, 0, 1)).await, 4);
    assert_eq!(conn.append("wrapped", sequenced(id, 0, i32::MAX)).await, 2, "a duplicate");
    let gap = conn.produce("wrapped", sequenced(id, 0, 5)).await;
    assert_eq!(gap.error(), ErrorCode::OutOfOrderSequenceNumber);
    broker.stop().await;
}
