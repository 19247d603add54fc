//! Records without a timestamp (-1): a segment of them is as old as its file, as in Apache Kafka.

use model::{Offset, Timestamp};
use storage::disk::{Disk, RealDisk};
use storage::{CleanupPolicy, Log};

use crate::fixture::*;

const HOUR_MS: i64 = 60 * 60 * 1000;

fn place(cleanup: CleanupPolicy) -> Place {
    let mut place = Place::small();
    place.config.cleanup = cleanup;
    place.config.retention_ms = HOUR_MS;
    place.config.min_cleanable_dirty_ratio = 0.0;
    place
}

/// Appends batches until the log has `segments` segments.
fn fill(log: &mut Log, segments: usize, timestamp: Timestamp) {
    while log.segment_count() < segments {
        let value = Some(vec![b'x'; 300]);
        let batch = Batch::records(vec![(timestamp, Some(b"key".to_vec()), value)]);
        let bytes = batch.bytes(log.log_end_offset());
        let headers: Vec<_> =
            model::batch::Batches::new(&bytes).map(|batch| batch.unwrap().0).collect();
        log.append(&bytes, &headers, NOW).unwrap();
    }
    sync(log);
}

/// Dates the files of all segments.
fn date(place: &Place, time: Timestamp) {
    for name in place.names().iter().filter(|name| name.ends_with(".log")) {
        RealDisk.set_modified(&place.path(name), time).unwrap();
    }
}

/// Time of the last change of the oldest segment's file.
fn oldest_file_time(place: &Place) -> Timestamp {
    let name = place.names().into_iter().find(|name| name.ends_with(".log")).unwrap();
    RealDisk.modified(&place.path(&name)).unwrap()
}

#[test]
fn retention_removes_segments_by_the_age_of_their_files() {
    let place = place(CleanupPolicy { delete: true, compact: false });
    let mut log = place.open_unclean(Offset(0));
    fill(&mut log, 3, Timestamp::NONE);
    let end = log.log_end_offset();
    date(&place, NOW);
    assert!(log.retain(NOW.plus_ms(HOUR_MS), end).unwrap().is_empty(), "an hour is kept");
    let _ = log.retain(NOW.plus_ms(HOUR_MS + 1), end).unwrap();
    assert_eq!((log.log_start_offset(), log.size_bytes()), (end, 0), "all files are old");
}

#[test]
fn undated_segments_do_not_hold_up_dated_ones_behind_them() {
    let place = place(CleanupPolicy { delete: true, compact: false });
    let mut log = place.open_unclean(Offset(0));
    fill(&mut log, 3, Timestamp::NONE);
    let dated_from = log.active_base_offset();
    fill(&mut log, 6, NOW);
    date(&place, NOW.plus_ms(-2 * HOUR_MS));
    let end = log.log_end_offset();
    let _ = log.retain(NOW, end).unwrap();
    assert_eq!(log.log_start_offset(), dated_from);
    let _ = log.retain(NOW.plus_ms(2 * HOUR_MS), end).unwrap();
    assert_eq!(log.log_start_offset(), end);
}

#[test]
fn an_append_behind_the_look_keeps_the_active_segment() {
    let place = place(CleanupPolicy { delete: true, compact: false });
    let mut log = place.open_unclean(Offset(0));
    fill(&mut log, 2, Timestamp::NONE);
    let active = log.active_base_offset();
    date(&place, NOW.plus_ms(-2 * HOUR_MS));
    log.retention_look().run(NOW).unwrap();
    let bytes = Batch::of(1, Timestamp::NONE).bytes(log.log_end_offset());
    let headers: Vec<_> =
        model::batch::Batches::new(&bytes).map(|batch| batch.unwrap().0).collect();
    log.append(&bytes, &headers, NOW).unwrap();
    let due = log.retention_due(NOW, log.log_end_offset()).unwrap();
    assert_eq!(due, storage::RetentionDue::Before(active), "its file is young again");
}

#[test]
fn compaction_waits_for_the_age_of_the_file() {
    let mut place = place(CleanupPolicy { delete: false, compact: true });
    place.config.min_compaction_lag_ms = HOUR_MS;
    let mut log = place.open_unclean(Offset(0));
    fill(&mut log, 3, Timestamp::NONE);
    date(&place, NOW);
    let end = log.log_end_offset();
    assert!(log.plan_compaction(NOW.plus_ms(HOUR_MS - 1), end).unwrap().is_none());
    assert!(log.plan_compaction(NOW.plus_ms(HOUR_MS), end).unwrap().is_some());
}

#[test]
fn compaction_makes_no_segment_younger() {
    let place = place(CleanupPolicy { delete: true, compact: true });
    let mut log = place.open_unclean(Offset(0));
    fill(&mut log, 3, Timestamp::NONE);
    date(&place, NOW);
    let end = log.log_end_offset();
    let plan = log.plan_compaction(NOW, end).unwrap().expect("there are old values");
    let compaction = plan.run(1 << 20, [7, 11], &mut |_| true).unwrap().unwrap();
    let _ = log.finish_compaction(compaction).unwrap();
    assert_eq!(oldest_file_time(&place), NOW);
    let _ = log.retain(NOW.plus_ms(HOUR_MS + 1), end).unwrap();
    assert_eq!(log.log_start_offset(), end);
}
