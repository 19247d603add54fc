//! What every log does: append, read, roll, open again.

use std::path::Path;
use std::sync::Arc;

use model::{LeaderEpoch, Offset, Timestamp};
use storage::disk::{Disk, OpenMode, SimDisk};
use storage::{LogConfig, OnDamage, Opening, ProducerVerdict, StorageError};

use crate::fixture::*;

fn filled(place: &Place, count: usize) -> (storage::Log, Vec<u8>) {
    let mut log = place.open_unclean(Offset(0));
    let mut all = Vec::new();
    for n in 0..count {
        all.extend(append(&mut log, &Batch::of(1 + n % 3, NOW.plus_ms(n as i64))));
    }
    (log, all)
}

#[test]
fn logs_may_be_opened_and_read_on_any_thread() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<storage::Log>();
    is_shared::<storage::SyncTicket>();
    is_shared::<storage::CheckpointTicket>();
    is_shared::<storage::compaction::CompactionPlan>();
}

#[test]
fn what_was_appended_is_read_in_pieces_of_any_size() {
    let place = Place::small();
    let (log, all) = filled(&place, 60);
    assert!(log.segment_count() > 5, "{} segments", log.segment_count());
    for max_bytes in [1, 100, 111, 250, 999, 1 << 20] {
        assert!(read_all(&log, Offset(0), max_bytes) == all, "in pieces of {max_bytes}");
    }
}

#[test]
fn reading_begins_with_the_batch_that_contains_the_offset() {
    let place = Place::small();
    let (log, _) = filled(&place, 40);
    for offset in 0..log.log_end_offset().0 {
        let slice = log.read(Offset(offset), log.log_end_offset(), 1, true).unwrap().unwrap();
        let mut header = [0; 61];
        slice.file.read_at(&mut header, slice.position).unwrap();
        let header = model::BatchHeader::decode(&header).unwrap();
        assert!(header.base_offset <= Offset(offset) && Offset(offset) <= header.last_offset());
        assert_eq!(slice.size_bytes, header.size_bytes, "one batch for one byte");
    }
}

#[test]
fn reading_stops_at_the_limit_and_knows_the_ends() {
    let place = Place::small();
    let (log, _) = filled(&place, 40);
    let end = log.log_end_offset();
    assert!(log.read(end, end, 100, true).unwrap().is_none());
    assert!(log.read(Offset(3), Offset(3), 100, true).unwrap().is_none());
    assert!(log.read(Offset(0), end, 10, false).unwrap().is_none(), "the batch is larger");
    let below = read_to(&log, Offset(0), Offset(6), 1 << 20);
    assert!(read_all(&log, Offset(0), 1 << 20).starts_with(&below));
    assert_eq!(model::batch::Batches::new(&below).count(), 3, "1 + 2 + 3 records");
    for outside in [Offset(-1), end.next()] {
        let error = log.read(outside, end, 100, true).unwrap_err();
        assert!(matches!(error, StorageError::OutOfRange { .. }), "{error}");
    }
}

#[test]
fn a_closed_log_opens_as_it_was() {
    let place = Place::small();
    let (mut log, all) = filled(&place, 40);
    log.close().unwrap();
    let (end, size, segments) = (log.log_end_offset(), log.size_bytes(), log.segment_count());
    assert_eq!(log.recovery_point(), end);
    drop(log);
    let mut log = place.open_clean();
    assert_eq!((log.log_end_offset(), log.size_bytes()), (end, size));
    assert_eq!(log.segment_count(), segments);
    assert!(log.recovery().is_none());
    assert!(read_all(&log, Offset(0), 300) == all);
    assert_eq!(log.latest_epoch(), LeaderEpoch(0));
    let more = append(&mut log, &Batch::of(1, NOW));
    assert!(read_all(&log, end, 300) == more);
}

#[test]
fn after_a_crash_a_torn_tail_is_cut() {
    let place = Place::small();
    let (log, all) = filled(&place, 40);
    let end = log.log_end_offset();
    let active = place.path(&format!("{:020}.log", log.active_base_offset().0));
    drop(log);
    let mut bytes = std::fs::read(&active).unwrap();
    let whole = bytes.len();
    bytes.extend_from_slice(&Batch::of(1, NOW).bytes(end)[..70]);
    std::fs::write(&active, &bytes).unwrap();
    let log = place.open_unclean(Offset(0));
    assert_eq!(log.recovery().unwrap().cut_bytes, 70);
    assert_eq!(std::fs::metadata(&active).unwrap().len(), whole as u64);
    assert_eq!(log.log_end_offset(), end);
    assert!(read_all(&log, Offset(0), 300) == all);
}

#[test]
fn only_what_lies_past_the_recovery_point_is_scanned() {
    let place = Place::small();
    let (mut log, _) = filled(&place, 40);
    let point = checkpoint(&mut log);
    assert_eq!(point, log.log_end_offset());
    let mut behind = 0;
    for n in 0..2 {
        behind += append(&mut log, &Batch::of(2, NOW.plus_ms(n)).epoch(1)).len() as u64;
    }
    let end = log.log_end_offset();
    drop(log);
    let log = place.open_unclean(point);
    let scanned = log.recovery().unwrap().scanned_bytes;
    assert!(scanned >= behind && scanned < behind + 500, "{scanned} of {behind}");
    assert_eq!(log.log_end_offset(), end);
    assert_eq!(log.epochs(), [(LeaderEpoch(0), Offset(0)), (LeaderEpoch(1), point)]);
}

#[test]
fn damage_below_the_recovery_point_is_never_cut_away() {
    let place = Place::small();
    let (mut log, all) = filled(&place, 10);
    let point = checkpoint(&mut log);
    let active = place.path(&format!("{:020}.log", log.active_base_offset().0));
    drop(log);
    let good = std::fs::read(&active).unwrap();
    let mut bytes = good.clone();
    let at = bytes.len() - 10;
    bytes[at] ^= 1;
    std::fs::write(&active, &bytes).unwrap();
    let opening = Opening { recovery_point: point, ..Opening::unknown(NOW) };
    let error = place.try_open(opening.clone()).unwrap_err();
    assert!(matches!(error, StorageError::Damaged(_)), "{error}");
    assert!(error.to_string().contains("checksum"), "{error}");
    assert_eq!(std::fs::read(&active).unwrap(), bytes, "nothing was changed");

    let aside = Opening { on_damage: OnDamage::SetAside, ..opening.clone() };
    let log = place.try_open(aside).unwrap();
    let damage = log.recovery().unwrap().set_aside.clone().unwrap();
    assert_eq!(damage.offset, log.log_end_offset());
    assert!(log.log_end_offset() < point);
    assert!(all.starts_with(&read_all(&log, Offset(0), 300)));
    assert!(place.names().iter().any(|name| name.ends_with(".damaged")));
    let end = log.log_end_offset();
    drop(log);
    // The old recovery point still stands in the log directory's file; it must not be believed.
    assert_eq!(place.try_open(opening).unwrap().log_end_offset(), end);
}

#[test]
fn truncation_below_a_written_recovery_point_survives_a_crash() {
    let place = Place::small();
    let (mut log, all) = filled(&place, 40);
    let point = checkpoint(&mut log);
    log.truncate_to(Offset(30)).unwrap();
    let end = log.log_end_offset();
    assert!(end <= Offset(30) && end >= Offset(28), "{end}");
    let kept = read_all(&log, Offset(0), 300);
    assert!(all.starts_with(&kept));
    let more = append(&mut log, &Batch::of(2, NOW).epoch(4));
    drop(log);
    let mut log = place.open_unclean(point);
    assert!(read_all(&log, Offset(0), 300) == [kept, more].concat());
    assert_eq!(log.epochs(), [(LeaderEpoch(0), Offset(0)), (LeaderEpoch(4), end)]);
    assert!(log.recovery_point() <= end);
    append(&mut log, &Batch::of(60, NOW).epoch(4));
    assert_eq!(checkpoint(&mut log), log.log_end_offset());
    assert!(!place.names().iter().any(|name| name.contains("ceiling")), "{:?}", place.names());
}

#[test]
fn behind_a_cut_no_offset_may_be_missing_where_none_was() {
    let place = Place::small();
    drop(filled(&place, 20));
    let mut log = place.open_unclean(Offset(0));
    assert!(log.may_have_gap_at(log.log_end_offset()), "nothing is known of it");
    log.begin_dense();
    assert!(!log.may_have_gap_at(log.log_end_offset()));
    log.truncate_to(Offset(10)).unwrap();
    assert!(!log.may_have_gap_at(log.log_end_offset()), "appended to from an earlier end on");
    log.truncate_fully_and_start_at(Offset(5)).unwrap();
    assert!(!log.may_have_gap_at(log.log_end_offset()));
    log.allow_gaps();
    log.begin_dense();
    assert!(!log.may_have_gap_at(log.log_end_offset()), "from the end on");
    assert!(log.may_have_gap_at(Offset(log.log_end_offset().0 - 1)), "before it there may be some");
    log.allow_gaps();
    assert!(log.may_have_gap_at(log.log_end_offset()));
}

#[test]
fn producers_are_known_again_after_a_clean_stop_and_after_a_crash() {
    let place = Place::small();
    let mut log = place.open_unclean(Offset(0));
    for n in 0..30 {
        append(&mut log, &Batch::of(2, NOW.plus_ms(n)).producer(n % 3, 0, 2 * (n as i32 / 3)));
    }
    let last = Batch::of(2, NOW.plus_ms(29)).producer(2, 0, 18).bytes(Offset(0));
    let last = model::BatchHeader::decode(&last).unwrap();
    let expected = ProducerVerdict::Duplicate {
        base_offset: Offset(58),
        last_offset: Offset(59),
        timestamp: NOW.plus_ms(29),
    };
    assert_eq!(log.check_producer(&last), expected);
    let known: Vec<_> = log.producers().collect();
    assert_eq!(known.len(), 3);
    drop(log);
    let mut log = place.open_unclean(Offset(0));
    assert_eq!(log.producers().collect::<Vec<_>>(), known);
    assert_eq!(log.check_producer(&last), expected);
    log.close().unwrap();
    let log = place.open_clean();
    assert_eq!(log.producers().collect::<Vec<_>>(), known);
    assert_eq!(log.check_producer(&last), expected);
}

#[test]
fn records_are_found_by_time_to_the_record() {
    let place = Place::small();
    let mut log = place.open_unclean(Offset(0));
    // Times run backwards within batches and jump ahead between them.
    let mut times = Vec::new();
    for n in 0..40i64 {
        let batch: Vec<_> = (0..3)
            .map(|i| (Timestamp(1000 + (n * 37 % 29) * 10 - i), None, Some(vec![0; 40])))
            .collect();
        times.extend(batch.iter().map(|(t, _, _)| *t));
        append(&mut log, &Batch::records(batch));
    }
    let check = |log: &storage::Log| {
        for wanted in (980..1300).map(Timestamp) {
            let first = times.iter().position(|t| *t >= wanted).map(|at| (at as i64, times[at]));
            let found = log.find_by_timestamp(wanted, log.log_end_offset()).unwrap();
            assert_eq!(found.map(|f| (f.offset.0, f.timestamp)), first, "first at {wanted}");
        }
        for limit in 1..=times.len() {
            let most = times[..limit].iter().max().unwrap();
            let first = times.iter().position(|t| t == most).unwrap() as i64;
            let found = log.find_max_timestamp(Offset(limit as i64)).unwrap().unwrap();
            assert_eq!((found.timestamp, found.offset.0), (*most, first), "below {limit}");
        }
    };
    check(&log);
    log.close().unwrap();
    check(&place.open_clean());
    check(&place.open_unclean(Offset(0)));
}

#[test]
fn retention_by_size_time_and_request() {
    let mut place = Place::small();
    place.config.retention_bytes = 2500;
    let (mut log, _) = filled(&place, 60);
    let end = log.log_end_offset();
    assert!(log.retain(NOW, Offset(0)).unwrap().is_empty(), "nothing below the high watermark");
    let deleted = log.retain(NOW, end).unwrap();
    assert!(!deleted.is_empty());
    assert!(log.size_bytes() >= 2500 && log.size_bytes() < 3500, "{}", log.size_bytes());
    assert!(log.log_start_offset() > Offset(0));
    assert!(place.names().iter().any(|name| name.contains(".log.") && name.ends_with(".deleted")));
    deleted.iter().for_each(|segment| segment.remove(&storage::disk::RealDisk).unwrap());
    assert!(!place.names().iter().any(|name| name.ends_with(".deleted")));

    let start = log.log_start_offset().plus(20);
    log.delete_records_before(start).unwrap();
    assert_eq!(log.log_start_offset(), start);
    assert!(log.read(start.plus(-1), end, 100, true).is_err());
    assert_eq!(log.epochs(), [(LeaderEpoch(0), start)]);
    assert!(log.delete_records_before(end.next()).is_err());
    log.delete_records_before(end).unwrap();
    let _ = log.retain(NOW, end).unwrap();
    assert_eq!(log.segment_count(), 1, "all but the active segment lie before the log start");

    let week = NOW.plus_ms(8 * 24 * 60 * 60 * 1000);
    let _ = log.retain(week, end).unwrap();
    assert_eq!((log.size_bytes(), log.log_start_offset()), (0, end), "the active one was rolled");
}

#[test]
fn deleting_a_segment_takes_all_its_snapshots() {
    let mut place = Place::small();
    place.config.retention_bytes = 300;
    let mut log = place.open_unclean(Offset(0));
    append(&mut log, &Batch::of(1, NOW).producer(7, 0, 0));
    checkpoint(&mut log);
    while log.segment_count() < 3 {
        append(&mut log, &Batch::of(1, NOW));
    }
    let deleted = log.retain(NOW, log.log_end_offset()).unwrap();
    deleted.iter().for_each(|segment| segment.remove(&*place.disk()).unwrap());
    log.truncate_fully_and_start_at(Offset(0)).unwrap();
    append(&mut log, &Batch::of(3, NOW));
    drop(log);
    assert!(!place.names().iter().any(|name| name.ends_with(".snapshot")), "{:?}", place.names());
    assert_eq!(place.open_unclean(Offset(0)).producers().count(), 0, "none of this life");
}

#[test]
fn a_segment_rolls_by_age_and_by_a_full_index() {
    let mut place = Place::new();
    place.config.segment_ms = 1000;
    place.config.index_interval_bytes = 1;
    let mut log = place.open_unclean(Offset(0));
    append(&mut log, &Batch::of(1, NOW));
    append(&mut log, &Batch::of(1, NOW.plus_ms(1000)));
    assert_eq!(log.segment_count(), 1);
    append(&mut log, &Batch::of(1, NOW.plus_ms(1001)));
    assert_eq!(log.segment_count(), 2);
    assert!(!log.roll_if_due(NOW.plus_ms(2001)).unwrap());
    assert!(log.roll_if_due(NOW.plus_ms(2002)).unwrap());
    assert!(!log.roll_if_due(NOW.plus_ms(9999)).unwrap(), "an empty segment stays");
    let mut config = place.config.clone();
    config.segment_index_bytes = 80;
    log.set_config(config.into());
    for n in 0..25 {
        append(&mut log, &Batch::of(1, NOW.plus_ms(2003 + n)));
    }
    assert!(log.segment_count() > 4, "{}", log.segment_count());
}

#[test]
fn an_append_of_many_batches_fills_several_segments() {
    let place = Place::small();
    let mut log = place.open_unclean(Offset(0));
    let mut bytes = Vec::new();
    let mut end = 0;
    for n in 0..50 {
        bytes.extend(Batch::of(2, NOW.plus_ms(n)).bytes(Offset(end)));
        end += 2;
    }
    append_bytes(&mut log, &bytes);
    assert!(log.segment_count() > 5);
    assert!(read_all(&log, Offset(0), 1 << 20) == bytes);
    let back = Batch::of(1, NOW).bytes(Offset(end - 1));
    let header = model::BatchHeader::decode(&back).unwrap();
    let error = log.append(&back, &[header], NOW).unwrap_err();
    assert!(matches!(error, StorageError::OutOfOrder { .. }), "{error}");
}

#[test]
fn a_gap_wider_than_an_index_can_tell_begins_a_segment() {
    let place = Place::new();
    let mut log = place.open_unclean(Offset(0));
    append_bytes(&mut log, &Batch::of(1, NOW).bytes(Offset(0)));
    let far = Offset(1 << 40);
    let bytes = Batch::of(1, NOW).bytes(far);
    append_bytes(&mut log, &bytes);
    assert_eq!((log.segment_count(), log.active_base_offset()), (2, far));
    assert!(read_all(&log, Offset(1), 100) == bytes);
    drop(log);
    assert_eq!(place.open_unclean(Offset(0)).log_end_offset(), far.next());
}

#[test]
fn emptying_a_log_starts_it_elsewhere() {
    let place = Place::small();
    let (mut log, _) = filled(&place, 40);
    let point = checkpoint(&mut log);
    log.truncate_fully_and_start_at(Offset(500)).unwrap();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(500), Offset(500)));
    assert_eq!((log.segment_count(), log.size_bytes()), (1, 0));
    let bytes = append(&mut log, &Batch::of(1, NOW).epoch(9));
    drop(log);
    let log = place.open_unclean(point);
    assert_eq!(log.log_start_offset(), Offset(500));
    assert!(read_all(&log, Offset(500), 100) == bytes);
    assert_eq!(log.epochs(), [(LeaderEpoch(9), Offset(500))]);
}

#[test]
fn emptying_a_log_is_done_or_left_whole_whatever_room_the_disk_has() {
    let config = Arc::new(Place::small().config);
    for (batches, room) in [0, 1, 2].into_iter().flat_map(|n| (0..300).map(move |room| (n, room))) {
        let disk = SimDisk::new();
        disk.create_dir_all("data".as_ref()).unwrap();
        let open = || {
            let (opened, config): (Arc<dyn Disk>, _) =
                (Arc::new(disk.clone()), Arc::clone(&config));
            storage::Log::open(opened, "data/t-0".into(), config, Opening::unknown(NOW)).unwrap()
        };
        let mut log = open();
        (0..batches).for_each(|n| drop(append(&mut log, &Batch::of(3, NOW).epoch(n))));
        sync(&mut log);
        checkpoint(&mut log);
        let end = log.log_end_offset();
        disk.limit_capacity(Some(room));
        let mut ticket = log.begin_start_over(Offset(500)).unwrap();
        let result = ticket.run();
        let emptied = log.finish_cut(ticket, result);
        let what = format!("{batches} batches, room for {room} bytes: {emptied:?}");
        assert!(log.failure().is_none(), "{what}");
        disk.limit_capacity(None);
        if emptied.is_err() {
            assert_eq!(log.log_end_offset(), end, "{what}");
            continue;
        }
        // Where the epochs found no room their file is that of a crash right before the write.
        assert_eq!(open().log_end_offset(), Offset(500), "{what}");
        append(&mut log, &Batch::of(1, NOW).epoch(9));
        sync(&mut log);
        checkpoint(&mut log);
        drop(log);
        assert_eq!(open().epochs(), [(LeaderEpoch(9), Offset(500))], "{what}");
    }
}

#[test]
fn an_idle_log_holds_no_file_open() {
    let place = Place::small();
    let (mut log, all) = filled(&place, 40);
    let open = || {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap();
        let links = fds.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
        links.filter(|to| to.starts_with(place.dir())).count()
    };
    sync(&mut log);
    checkpoint(&mut log);
    assert!(read_all(&log, Offset(0), 300) == all);
    assert!(open() > 0);
    log.release_idle_files();
    assert!(open() > 0, "used a moment ago");
    log.release_idle_files();
    assert_eq!(open(), 0);
    assert!(read_all(&log, Offset(0), 300) == all);
    append(&mut log, &Batch::of(1, NOW));
    log.close().unwrap();
    assert_eq!(open(), 0);
    let log = place.open_clean();
    assert_eq!(open(), 0, "opening leaves none open");
    drop(log);
}

#[test]
fn broken_indexes_are_made_anew() {
    let place = Place::small();
    let (mut log, all) = filled(&place, 40);
    log.close().unwrap();
    drop(log);
    for damage in 0..4 {
        for name in place.names() {
            if !name.ends_with("index") {
                continue;
            }
            let path = place.path(&name);
            let mut bytes = std::fs::read(&path).unwrap();
            match damage {
                0 => std::fs::remove_file(&path).unwrap(),
                1 => std::fs::write(&path, [1, 2, 3]).unwrap(),
                2 => std::fs::write(&path, vec![0xff; bytes.len()]).unwrap(),
                _ => {
                    bytes.iter_mut().for_each(|b| *b ^= 0x04);
                    std::fs::write(&path, &bytes).unwrap();
                }
            }
        }
        let mut log = place.open_clean();
        assert!(read_all(&log, Offset(0), 170) == all, "damage {damage}");
        let found = log.find_by_timestamp(NOW.plus_ms(20), log.log_end_offset()).unwrap();
        assert_eq!(found.unwrap().timestamp, NOW.plus_ms(20), "damage {damage}");
        log.close().unwrap();
    }
}

#[test]
fn an_epoch_that_was_led_in_vain_is_not_that_of_older_records_copied_later() {
    let place = Place::new();
    let mut log = place.open_clean();
    append(&mut log, &Batch::of(3, NOW).epoch(1));
    let end = log.log_end_offset();
    // It led in epoch 3, and wrote nothing. The leader of epoch 4 has records of epoch 2.
    log.assign_epoch(LeaderEpoch(3));
    let copied = append(&mut log, &Batch::of(2, NOW).epoch(2));
    assert_eq!(log.epochs(), [(LeaderEpoch(1), Offset(0)), (LeaderEpoch(2), end)]);
    assert_eq!(log.epoch_at(end), LeaderEpoch(2));
    assert_eq!(read_all(&log, end, 1 << 20), copied);
}

/// A file may be made for records that are refused then, and the process stops.
#[test]
fn the_first_records_in_a_file_of_the_process_before_make_its_name_durable() {
    for seed in 0..20 {
        let disk = SimDisk::new();
        let dir = Path::new("data/orders-0");
        disk.create_dir_all(dir.parent().unwrap()).unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        let open = |disk: &SimDisk, clean| {
            let opening = Opening { clean, ..Opening::unknown(NOW) };
            let config = Arc::new(LogConfig::default());
            storage::Log::open(Arc::new(disk.clone()), dir.to_owned(), config, opening).unwrap()
        };
        open(&disk, false).close().unwrap();
        disk.open(&dir.join("00000000000000000000.log"), OpenMode::Create).unwrap();
        let mut log = open(&disk, true);
        append(&mut log, &Batch::of(3, NOW));
        let synced = sync(&mut log);
        drop(log);
        assert_eq!(open(&disk.after_crash(seed), false).log_end_offset(), synced, "seed {seed}");
    }
}
