//! Produce: what is accepted, what is refused with which error, and what is stored.

use model::{
    BatchHeader, Compression, ErrorCode, ProducerEpoch, ProducerId, Sequence, Timestamp,
    TimestampType,
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
async fn a_written_batch_is_acknowledged_whatever_the_time_out() {
    let broker = Broker::start(&[("durability", "fsync")]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("hasty", &[]).await;
    for timeout_ms in [0, -1, 1] {
        let mut request = produce_request("hasty", -1, batch_of(&["value"]));
        request.timeout_ms = timeout_ms;
        let answer = conn.call(&request, PRODUCE).await;
        let error = answer.responses[0].partition_responses[0].error();
        assert_eq!(error, ErrorCode::None, "time-out {timeout_ms} ms");
    }
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
    // All that are refused are named, however many, and a few of them in words.
    let mut builder = BatchBuilder::new();
    for at in 0..1000 {
        builder.add(Timestamp(now_ms()), (at % 2 == 0).then_some(&b"key"[..]), Some(b"value"));
    }
    let errors = conn.produce("compacted", builder.finish()).await.record_errors;
    let named: Vec<i32> = errors.iter().map(|error| error.batch_index).collect();
    assert_eq!(named, (0..1000).filter(|at| at % 2 == 1).collect::<Vec<_>>());
    let told = errors.iter().filter(|error| error.batch_index_error_message.is_some()).count();
    assert_eq!(told, 16);
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

/// Produces the batch with header fields other than its builder made them, the checksum right.
async fn produce_with(
    conn: &mut Conn,
    topic: &str,
    batch: Vec<u8>,
    change: impl FnOnce(&mut BatchHeader),
) -> wire::produce::PartitionProduceResponse {
    let mut batch = batch;
    let mut header = BatchHeader::decode(&batch).unwrap();
    change(&mut header);
    header.encode(&mut batch);
    batch::write_checksum(&mut batch);
    conn.produce(topic, batch).await
}

#[tokio::test]
async fn a_wrong_largest_timestamp_is_made_true() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("true", &[]).await;
    let now = now_ms();
    let mut offset = 0;
    for codec in CODECS {
        for lie in [-1, 0, 5, now - 1, now + 3_000, 1 << 61, i64::MIN] {
            let sent = compressed(timed(&[now, now - 7, now + 3, now - 3]), codec);
            let lied = |header: &mut BatchHeader| header.max_timestamp = Timestamp(lie);
            let answer = produce_with(&mut conn, "true", sent, lied).await;
            assert_eq!(answer.error(), ErrorCode::None, "{codec:?} {lie}: {answer:?}");
            let fetched = conn.fetch("true", offset).await;
            assert_eq!(headers(&fetched)[0].max_timestamp, Timestamp(now + 3), "{codec:?} {lie}");
            assert_eq!(values(&fetched).len(), 4, "the checksum holds");
            offset += 4;
        }
    }
    broker.stop().await;
}

#[tokio::test]
async fn the_largest_timestamp_of_records_without_one_is_none() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("none", &[]).await;
    for (offset, time) in [(0, -1), (1, -2), (2, -1000)] {
        let lied = |header: &mut BatchHeader| header.max_timestamp = Timestamp(now_ms());
        let answer = produce_with(&mut conn, "none", timed(&[time]).finish(), lied).await;
        assert_eq!(answer.error(), ErrorCode::None);
        let fetched = conn.fetch("none", offset).await;
        assert_eq!(headers(&fetched)[0].max_timestamp, Timestamp::NONE, "{time}");
    }
    broker.stop().await;
}

#[tokio::test]
async fn a_timestamp_out_of_range_does_not_hide_behind_the_header() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("timely", &[("message.timestamp.after.max.ms", "3600000")]).await;
    let now = now_ms();
    for codec in CODECS {
        for bad in [now + (1 << 40), i64::MAX] {
            let sent = compressed(timed(&[now, bad]), codec);
            let lied = |header: &mut BatchHeader| header.max_timestamp = Timestamp(now);
            let answer = produce_with(&mut conn, "timely", sent, lied).await;
            assert_eq!(answer.error(), ErrorCode::InvalidTimestamp, "{codec:?}");
            assert_eq!(answer.record_errors[0].batch_index, 1, "{codec:?}");
        }
    }
    assert_eq!(conn.end_offset("timely").await, 0);
    broker.stop().await;
}

#[tokio::test]
async fn attributes_that_are_not_the_producers_to_decide() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("created", &[]).await;
    conn.create_topic("stamped", &[("message.timestamp.type", "LogAppendTime")]).await;
    // As seen on Kafka 4.3.1, but for the delete horizon, which Kafka stores.
    for (sent, stored) in [
        (0x08, 0),
        (0x40, 0),
        (0x48, 0),
        (0x80, 0x80),
        (0x88, 0),
        (0x100, 0x100),
        (0x4000, 0x4000),
        (i16::MIN, i16::MIN),
    ] {
        for codec in CODECS {
            let marked = |header: &mut BatchHeader| header.attributes |= sent;
            let batch = compressed(builder(&["value"]), codec);
            let answer = produce_with(&mut conn, "created", batch.clone(), marked).await;
            assert_eq!(answer.error(), ErrorCode::None, "{sent:#x}");
            let fetched = conn.fetch("created", answer.base_offset).await;
            let header = headers(&fetched)[0];
            assert_eq!(header.attributes, stored | codec.code(), "{sent:#x}");
            assert_eq!(header.timestamp_type(), TimestampType::CreateTime);
            assert_eq!(values(&fetched).len(), 1, "the checksum holds");

            let answer = produce_with(&mut conn, "stamped", batch, marked).await;
            if sent & 0x08 != 0 {
                assert_eq!(answer.error(), ErrorCode::InvalidTimestamp, "{sent:#x}");
                continue;
            }
            let fetched = conn.fetch("stamped", answer.base_offset).await;
            assert_eq!(headers(&fetched)[0].attributes, 0x08 | codec.code(), "{sent:#x}");
        }
    }
    broker.stop().await;
}

#[tokio::test]
async fn counts_that_contradict_the_records_are_refused() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("counted", &[]).await;
    for codec in CODECS {
        for (count, last) in [
            (1, 0),
            (3, 2),
            (0, 0),
            (0, -1),
            (-1, 0),
            (2, 0),
            (2, i32::MAX),
            (i32::MAX, i32::MAX - 1),
            (i32::MAX, i32::MAX),
            (i32::MIN, i32::MAX),
        ] {
            let lied = |header: &mut BatchHeader| {
                (header.record_count, header.last_offset_delta) = (count, last);
            };
            let batch = compressed(builder(&["one", "two"]), codec);
            let answer = produce_with(&mut conn, "counted", batch, lied).await;
            assert_eq!(answer.error(), ErrorCode::InvalidRecord, "{codec:?}: {count} to {last}");
        }
    }
    assert_eq!(conn.end_offset("counted").await, 0);
    assert_eq!(conn.append("counted", batch_of(&["good"])).await, 0);
    broker.stop().await;
}

/// A batch that says to hold `count` records, with these bytes behind the header.
fn forged(codec: Compression, payload: &[u8], count: usize) -> Vec<u8> {
    builder(&vec!["v"; count]).finish_compressed(codec, payload)
}

/// A record as it is encoded, uncompressed.
fn encoded(offset_delta: i32, size_bytes: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.add_at(offset_delta, Timestamp(1), Some(b"k"), Some(&vec![b'v'; size_bytes]), &[]);
    builder.records().to_vec()
}

#[tokio::test]
async fn compressed_bytes_that_are_not_the_records_promised_are_refused() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("walked", &[]).await;
    for codec in &CODECS[1..] {
        let made = |plain: &[u8], count| {
            let mut bytes = Vec::new();
            compression::compress(*codec, None, plain, &mut bytes);
            forged(*codec, &bytes, count)
        };
        let two = [encoded(0, 1), encoded(1, 1)].concat();
        let mut cut = made(&two, 2);
        cut.truncate(cut.len() - 3);
        let length = (cut.len() - 12) as i32;
        cut[8..12].copy_from_slice(&length.to_be_bytes());
        batch::write_checksum(&mut cut);
        for (what, batch) in [
            ("garbage", forged(*codec, b"garbage", 1)),
            ("nothing", forged(*codec, b"", 1)),
            ("one declared, two inside", made(&two, 1)),
            ("three declared, two inside", made(&two, 3)),
            ("offsets with a gap", made(&[encoded(0, 1), encoded(2, 1)].concat(), 2)),
            ("offsets that fall", made(&[encoded(1, 1), encoded(0, 1)].concat(), 2)),
            ("bytes behind the records", made(&[&two[..], b"xyz"].concat(), 2)),
            ("a record that is cut", made(&two[..two.len() - 1], 2)),
            ("compressed bytes that are cut", cut),
        ] {
            let answer = conn.produce("walked", batch).await;
            assert_eq!(answer.error(), ErrorCode::InvalidRecord, "{codec:?}: {what}: {answer:?}");
        }
    }
    assert_eq!(conn.end_offset("walked").await, 0);
    broker.stop().await;
}

#[tokio::test]
async fn the_expansion_of_a_batch_is_bounded_per_topic_and_broker() {
    let broker = Broker::start(&[("records.expanded.max.bytes", "3000000")]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("broker-wide", &[]).await;
    conn.create_topic("wider", &[("records.expanded.max.bytes", "9000000")]).await;
    conn.create_topic("anew", &[("compression.type", "lz4")]).await;
    conn.create_topic("compacted", &[("cleanup.policy", "compact")]).await;
    for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd] {
        let fits = || compressed(builder(&[&"x".repeat(2_999_900)]), codec);
        let beyond = || compressed(builder(&[&"x".repeat(3_000_000)]), codec);
        for topic in ["broker-wide", "anew", "compacted"] {
            let answer = conn.produce(topic, beyond()).await;
            assert_eq!(answer.error(), ErrorCode::InvalidRecord, "{topic} {codec:?}");
            let told = answer.error_message.unwrap();
            assert!(told.contains("3000000") && told.contains("records.expanded.max.bytes"));
            conn.append(topic, fits()).await;
        }
        conn.append("wider", beyond()).await;
    }
    broker.stop().await;
}

#[tokio::test]
async fn with_header_validation_compressed_records_are_believed_unless_a_rule_needs_them() {
    let broker = Broker::start(&[("records.validation", "header")]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("believed", &[]).await;
    conn.create_topic("checked", &[("records.validation", "full")]).await;
    conn.create_topic("keyed", &[("cleanup.policy", "compact")]).await;
    conn.create_topic("anew", &[("compression.type", "zstd")]).await;
    let garbage = || forged(Compression::Gzip, b"garbage", 1);
    assert_eq!(conn.append("believed", garbage()).await, 0);
    for topic in ["checked", "keyed", "anew"] {
        let answer = conn.produce(topic, garbage()).await;
        assert_eq!(answer.error(), ErrorCode::InvalidRecord, "{topic}");
    }
    // What is uncompressed costs little to look into.
    let answer = conn.produce("believed", forged(Compression::None, b"garbage", 1)).await;
    assert_eq!(answer.error(), ErrorCode::InvalidRecord);
    broker.stop().await;
}

#[tokio::test]
async fn large_compressed_batches_keep_their_place_among_the_requests_of_a_connection() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("ordered", &[("max.message.bytes", "10000000")]).await;
    // Bytes that codecs cannot shrink: large on the wire, so looked into beside other work.
    let mut random = fastrand::Rng::with_seed(7);
    let noise: String = (0..300_000).map(|_| random.alphanumeric()).collect();
    let mut correlations = Vec::new();
    for round in 0..12 {
        let batch = match round % 3 {
            0 => compressed(builder(&[&noise]), Compression::Gzip),
            1 => batch_of(&["small"]),
            // Small on the wire, and large behind it.
            _ => compressed(builder(&[&"zero".repeat(1 << 20)]), Compression::Zstd),
        };
        correlations.push(conn.send(&produce_request("ordered", 1, batch), PRODUCE).await);
    }
    for (round, correlation) in correlations.into_iter().enumerate() {
        let answer = conn.receive::<wire::ProduceRequest>(PRODUCE, correlation).await;
        let answer = &answer.responses[0].partition_responses[0];
        assert_eq!(answer.error(), ErrorCode::None, "{answer:?}");
        assert_eq!(answer.base_offset, round as i64);
    }
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
