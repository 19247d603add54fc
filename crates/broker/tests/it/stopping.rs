//! What a stop, clean or not, leaves of idempotent producers, and what it answers before it goes.

use model::record::BatchBuilder;
use model::{ErrorCode, ProducerEpoch, ProducerId, Sequence, Timestamp};

use crate::fixture::*;

/// As many requests as an idempotent producer may have in flight.
const WINDOW: i32 = 5;
const TOPIC: &str = "once";

async fn producer_id(conn: &mut Conn) -> ProducerId {
    let request = wire::InitProducerIdRequest { transactional_id: None, ..Default::default() };
    let answer = conn.call(&request, 4).await;
    assert_eq!(answer.error(), ErrorCode::None);
    ProducerId(answer.producer_id)
}

/// The batch of this number of a producer; `age_ms` is how old its record says it is.
fn numbered(id: ProducerId, number: i32, age_ms: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new().producer(id, ProducerEpoch(0), Sequence(number));
    builder.add(Timestamp(now_ms() - age_ms), None, Some(b"value"));
    builder.finish()
}

/// Produces the batches again that the producer had in flight: all are answered as the first time.
async fn assert_window(conn: &mut Conn, id: ProducerId, last: i32, what: &str) {
    for number in last - WINDOW + 1..=last {
        let answer = conn.produce(TOPIC, numbered(id, number, 0)).await;
        let found = (answer.error(), answer.base_offset);
        assert_eq!(found, (ErrorCode::None, i64::from(number)), "batch {number} of {last}, {what}");
    }
    assert_eq!(conn.end_offset(TOPIC).await, i64::from(last) + 1, "{what}");
}

#[tokio::test]
async fn the_whole_window_is_known_after_rolling_stops_and_kills() {
    let mut broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic(TOPIC, &[]).await;
    let id = producer_id(&mut conn).await;
    let mut last = -1;
    for round in 0..3 {
        for _ in 0..WINDOW {
            last += 1;
            conn.append(TOPIC, numbered(id, last, 0)).await;
        }
        let copy = broker.start_on_copy().await;
        assert_window(&mut copy.connect().await, id, last, "killed").await;
        copy.stop().await;
        drop(conn);
        broker = broker.restart().await;
        conn = broker.connect().await;
        assert_window(&mut conn, id, last, &format!("stopped for the {round}. time")).await;
    }
    broker.stop().await;
}

#[tokio::test]
async fn a_backfill_of_old_records_is_no_reason_to_forget_its_producer() {
    let settings = [
        ("log.initial.task.delay.ms", "0"),
        ("producer.id.expiration.check.interval.ms", "10"),
        ("log.message.timestamp.before.max.ms", "9223372036854775807"),
    ];
    let broker = Broker::start(&settings).await;
    let mut conn = broker.connect().await;
    conn.create_topic(TOPIC, &[("retention.ms", "-1")]).await;
    let id = producer_id(&mut conn).await;
    const TWO_DAYS_MS: i64 = 2 * 24 * 60 * 60 * 1000;
    for number in 0..WINDOW {
        conn.append(TOPIC, numbered(id, number, TWO_DAYS_MS)).await;
    }
    // Much of this runs behind the next look for producers to be forgotten.
    for _ in 0..20 {
        assert_window(&mut conn, id, WINDOW - 1, "looked for").await;
    }
    let broker = broker.restart().await;
    assert_window(&mut broker.connect().await, id, WINDOW - 1, "stopped").await;
    broker.stop().await;
}

#[tokio::test]
async fn a_stop_answers_what_it_has_appended() {
    let mut broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic(TOPIC, &[]).await;
    let id = producer_id(&mut conn).await;
    let mut next = 0;
    for round in 0..10 {
        let mut waiting = Vec::new();
        for number in next..next + 40 {
            let request = produce_request(TOPIC, -1, numbered(id, number, 0));
            waiting.push(conn.send(&request, PRODUCE).await);
        }
        let answers = async {
            let mut answered = 0;
            while let Some(frame) = conn.receive_frame().await {
                let (correlation, answer) = read_answer::<wire::ProduceRequest>(&frame, PRODUCE);
                assert_eq!(correlation, waiting[answered]);
                let partition = &answer.responses[0].partition_responses[0];
                assert_eq!(partition.error(), ErrorCode::None);
                answered += 1;
            }
            answered as i32
        };
        let (restarted, answered) = tokio::join!(broker.restart(), answers);
        broker = restarted;
        conn = broker.connect().await;
        let end = conn.end_offset(TOPIC).await as i32;
        assert_eq!(end, next + answered, "round {round}: what is in the log was answered");
        next = end;
    }
    broker.stop().await;
}

#[tokio::test]
async fn a_stop_of_very_many_partitions_is_clean_and_keeps_them_all() {
    const PARTITIONS: i32 = 300;
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic_of("many", PARTITIONS, &[]).await;
    for index in (0..PARTITIONS).step_by(3) {
        let mut request = produce_request("many", -1, batch(&["kept"]));
        request.topic_data[0].partition_data[0].index = index;
        let answer = conn.call(&request, PRODUCE).await;
        assert_eq!(answer.responses[0].partition_responses[0].error(), ErrorCode::None);
    }
    drop(conn);
    let stopped = broker.stop_and_keep().await;
    let dir = stopped.dir.path();
    assert!(dir.join(".kafka_cleanshutdown").exists(), "it was a clean stop");
    let running = run(dir, &stopped.settings).await.expect("the broker starts again");
    let mut conn = Conn::open(running.listeners()[0]).await;
    for index in 0..PARTITIONS {
        let mut request = fetch_request("many", 0);
        request.topics[0].partitions[0].partition = index;
        request.max_wait_ms = 0;
        let answer = conn.call(&request, 12).await;
        let found = values(&answer.responses[0].partitions[0]).len();
        assert_eq!(found, usize::from(index % 3 == 0), "partition {index}");
    }
    running.stop().await;
}
