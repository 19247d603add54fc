//! What is known of idempotent producers after a stop, a kill and the loss of files, for how long, and
//! what a checkpoint holds of aborted transactions.

use model::{BatchHeader, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use storage::{CleanupPolicy, Log, LogConfig, Opening, ProducerVerdict};

use crate::fixture::{Batch, NOW, Place, append, append_bytes, checkpoint};

const PRODUCER: i64 = 7;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// As many batches as a producer may have in flight.
const WINDOW: i32 = 5;

/// The batch of a window, as a producer sends it: without an offset.
fn batch(number: i32, timestamp: Timestamp) -> Batch {
    Batch::of(1, timestamp).producer(PRODUCER, 0, number)
}

fn header(number: i32) -> BatchHeader {
    BatchHeader::decode(&batch(number, NOW).bytes(Offset(0))).unwrap()
}

/// Asks for the batches up to `last` that the producer may retry: all are duplicates at the offsets that
/// they have, for every batch has one record.
#[track_caller]
fn assert_window(log: &Log, last: i32) {
    for number in (last - WINDOW + 1).max(0)..=last {
        let verdict = log.check_producer(&header(number));
        let expected = Offset(number as i64);
        let ProducerVerdict::Duplicate { base_offset, last_offset, .. } = verdict else {
            panic!("batch {number} of {last}: {verdict:?}");
        };
        assert_eq!((base_offset, last_offset), (expected, expected));
    }
    assert_eq!(log.check_producer(&header(last + 1)), ProducerVerdict::Accept);
}

#[test]
fn a_retried_window_is_recognised_after_any_row_of_stops_and_kills() {
    for kills in 0u32..32 {
        let place = Place::small();
        let mut log = place.open_unclean(Offset(0));
        let mut last = -1;
        for round in 0..5 {
            for _ in 0..WINDOW {
                last += 1;
                append(&mut log, &batch(last, NOW));
            }
            if kills & 1 << round == 0 {
                log.close().unwrap();
                drop(log);
                log = place.open_clean();
            } else {
                let point = if round % 2 == 0 { checkpoint(&mut log) } else { Offset(0) };
                drop(log);
                log = place.open_unclean(point);
            }
            assert_window(&log, last);
        }
    }
}

#[test]
fn without_our_file_or_with_a_damaged_one_the_window_is_known_all_the_same() {
    let place = Place::small();
    let mut log = place.open_unclean(Offset(0));
    (0..20).for_each(|number| drop(append(&mut log, &batch(number, NOW))));
    log.close().unwrap();
    drop(log);
    let own = place.path(&format!("{:020}.producers", 20));
    let whole = std::fs::read(&own).unwrap();
    for at in (0..whole.len()).step_by(3) {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        std::fs::write(&own, &damaged).unwrap();
        assert_window(&place.open_clean(), 19);
        assert!(!own.exists(), "a damaged one goes");
        std::fs::write(&own, &whole[..at]).unwrap();
        assert_window(&place.open_clean(), 19);
    }
    for name in place.names() {
        if name.ends_with(".producers") || name.ends_with(".snapshot") {
            std::fs::remove_file(place.path(&name)).unwrap();
            assert_window(&place.open_clean(), 19);
        }
    }
}

#[test]
fn kafkas_snapshot_tells_of_a_producer_whose_batches_were_deleted() {
    let place = Place::small();
    let mut log = place.open_unclean(Offset(0));
    append(&mut log, &batch(0, NOW));
    (0..40).for_each(|_| drop(append(&mut log, &Batch::of(1, NOW))));
    log.close().unwrap();
    log.delete_records_before(Offset(30)).unwrap();
    for segment in log.retain(NOW, Offset(41)).unwrap() {
        segment.remove(&*place.disk()).unwrap();
    }
    log.close().unwrap();
    drop(log);
    for name in place.names().iter().filter(|name| name.ends_with(".producers")) {
        std::fs::remove_file(place.path(name)).unwrap();
    }
    let opening = Opening { clean: true, log_start_offset: Offset(30), ..Opening::unknown(NOW) };
    assert_window(&place.try_open(opening).unwrap(), 0);
}

#[test]
fn a_backfill_is_forgotten_by_the_time_of_its_appends_not_of_its_records() {
    for old in [NOW.plus_ms(-30 * DAY_MS), Timestamp(-1), NOW.plus_ms(30 * DAY_MS)] {
        let place = Place::small();
        let mut log = place.open_unclean(Offset(0));
        let append_at = |log: &mut Log, number: i32, now: Timestamp| {
            let bytes = batch(number, old).bytes(log.log_end_offset());
            log.append(&bytes, &[BatchHeader::decode(&bytes).unwrap()], now).unwrap();
        };
        (0..WINDOW).for_each(|number| append_at(&mut log, number, NOW));
        log.expire_producers(NOW.plus_ms(DAY_MS - 1), DAY_MS);
        assert_window(&log, WINDOW - 1);
        log.close().unwrap();
        drop(log);
        let later = NOW.plus_ms(DAY_MS - 1);
        let opening = Opening { clean: true, ..Opening::unknown(later) };
        let mut log = place.try_open(opening).unwrap();
        log.expire_producers(later, DAY_MS);
        assert_window(&log, WINDOW - 1);
        log.expire_producers(later.plus_ms(1), DAY_MS);
        assert_eq!(log.producers().count(), 0, "the time is kept in our file");
        drop(log);
        // Nobody noted when they appended: as if they had when the log was opened.
        for name in place.names().iter().filter(|name| name.ends_with(".producers")) {
            std::fs::remove_file(place.path(name)).unwrap();
        }
        let opening = Opening { clean: true, ..Opening::unknown(later) };
        let mut log = place.try_open(opening).unwrap();
        log.expire_producers(later.plus_ms(DAY_MS - 1), DAY_MS);
        assert_window(&log, WINDOW - 1);
        append_at(&mut log, WINDOW, later.plus_ms(2 * DAY_MS));
        log.expire_producers(later.plus_ms(2 * DAY_MS), DAY_MS);
        log.truncate_to(Offset(WINDOW as i64)).unwrap();
        log.expire_producers(later.plus_ms(2 * DAY_MS), DAY_MS);
        assert_window(&log, WINDOW - 1);
    }
}

#[test]
fn nothing_is_written_where_no_producer_is_known_unless_much_would_have_to_be_read() {
    let files = |place: &Place, suffix: &str| {
        place.names().iter().filter(|name| name.ends_with(suffix)).count()
    };
    let place = Place::new();
    let mut log = place.open_unclean(Offset(0));
    append(&mut log, &Batch::of(10, NOW));
    log.close().unwrap();
    assert_eq!((files(&place, ".snapshot"), files(&place, ".producers")), (0, 0));
    append(&mut log, &Batch::of(2000, NOW));
    log.close().unwrap();
    assert_eq!((files(&place, ".snapshot"), files(&place, ".producers")), (1, 0));
    append(&mut log, &Batch::of(1, NOW).producer(PRODUCER, 0, 0));
    log.close().unwrap();
    assert_eq!((files(&place, ".snapshot"), files(&place, ".producers")), (1, 1));
}

#[test]
fn a_checkpoint_survives_the_deletion_of_a_segment_with_aborted_transactions() {
    let delete = CleanupPolicy { delete: true, compact: false };
    let config = LogConfig { retention_ms: 1000, cleanup: delete, ..LogConfig::default() };
    let place = Place::with(config);
    let mut log = place.open_unclean(Offset(0));
    append(&mut log, &Batch::of(1, NOW).producer(PRODUCER, 0, 0).flags(0x10));
    let abort = (NOW, Some(vec![0; 4]), Some(vec![0; 6]));
    let marker = Batch::records(vec![abort]).producer(PRODUCER, 0, -1).flags(0x30);
    append(&mut log, &marker);
    let ticket = log.begin_checkpoint().unwrap().unwrap();
    for segment in log.retain(NOW.plus_ms(10_000), Offset(2)).unwrap() {
        segment.remove(&*place.disk()).unwrap();
    }
    assert!(!place.path(&format!("{:020}.txnindex", 0)).exists());
    let result = ticket.run();
    log.finish_checkpoint(ticket, result).unwrap();
    let more = Batch::of(1, NOW).bytes(log.log_end_offset());
    append_bytes(&mut log, &more);
    let known = log.producers().next().unwrap();
    assert_eq!(
        (known.producer_id, known.epoch, known.last_sequence),
        (ProducerId(PRODUCER), ProducerEpoch(0), Sequence(0))
    );
}
