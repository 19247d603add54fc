//! What an opening makes of what its caller knows: the bound below which nothing is an incomplete
//! tail, offsets and leader epochs that cannot be, segments that must be there, log starts that
//! cannot be.

use std::path::PathBuf;

use model::{Durability, LeaderEpoch, Offset};
use storage::{ActiveSegment, Log, OnDamage, Opening, SealedSegment, StorageError};

use crate::fixture::{Batch, NOW, Place, append, checkpoint, read_all};

/// Records in every batch that `filled` appends.
const RECORDS: usize = 2;

/// A log of several segments with batches of two records, forgotten without being closed.
fn filled(place: &Place, batches: usize) -> Log {
    let mut log = place.open_unclean(Offset(0));
    for n in 0..batches {
        let epoch = 3 * n as i32 / batches as i32;
        append(&mut log, &Batch::of(RECORDS, NOW.plus_ms(n as i64)).epoch(epoch));
    }
    log
}

fn log_file(place: &Place, base: Offset) -> PathBuf {
    place.path(&format!("{:020}.log", base.0))
}

/// The bases of all segments, in order.
fn bases(place: &Place) -> Vec<Offset> {
    let names = place.names();
    let logs = names.iter().filter_map(|name| name.strip_suffix(".log"));
    logs.map(|digits| Offset(digits.parse().unwrap())).collect()
}

fn size(place: &Place, base: Offset) -> u64 {
    std::fs::metadata(log_file(place, base)).unwrap().len()
}

/// What somebody who listed the files of this log knows of them.
fn listed(place: &Place, log_end: Offset) -> Opening {
    let mut sealed: Vec<_> = bases(place)
        .into_iter()
        .map(|base| SealedSegment { base, size_bytes: size(place, base) })
        .collect();
    let last = sealed.pop().unwrap();
    let active = ActiveSegment { base: last.base, end: log_end, size_bytes: last.size_bytes };
    Opening { sealed: Some(sealed), active: Some(active), ..Opening::unknown(NOW) }
}

/// Flips a bit of a byte of the batch that begins at `offset`.
fn flip(place: &Place, offset: Offset, byte: usize, bit: u8) {
    for base in bases(place) {
        let mut bytes = std::fs::read(log_file(place, base)).unwrap();
        let mut position = 0;
        let batches: Vec<_> = model::batch::Batches::new(&bytes).map(|b| b.unwrap()).collect();
        let sizes: Vec<_> = batches.iter().map(|(h, b)| (h.base_offset, b.len())).collect();
        for (begins, size) in sizes {
            if begins == offset {
                bytes[position + byte] ^= 1 << bit;
                std::fs::write(log_file(place, base), &bytes).unwrap();
                return;
            }
            position += size;
        }
    }
    panic!("no batch begins at {offset}");
}

/// The files of the segments, to see that nothing was changed.
fn contents(place: &Place) -> Vec<(Offset, Vec<u8>)> {
    let read = |base| (base, std::fs::read(log_file(place, base)).unwrap());
    bases(place).into_iter().map(read).collect()
}

/// Opens twice, for a refusal must not make the next opening think otherwise.
#[track_caller]
fn refused(place: &Place, opening: &Opening) -> String {
    let before = contents(place);
    let mut reasons = Vec::new();
    for _ in 0..2 {
        match place.try_open(opening.clone()) {
            Err(StorageError::Damaged(damage)) => reasons.push(damage.reason),
            other => panic!("{:?}", other.map(|log| log.log_end_offset())),
        }
        assert!(contents(place) == before, "a refusal changes nothing");
    }
    assert_eq!(reasons[0], reasons[1]);
    reasons.remove(0)
}

/// Opens as a follower does that has a leader to ask, and then again without one.
#[track_caller]
fn set_aside(place: &Place, opening: &Opening) -> Log {
    let aside = Opening { on_damage: OnDamage::SetAside, ..opening.clone() };
    let log = place.try_open(aside).unwrap();
    assert!(log.recovery().unwrap().set_aside.is_some());
    log
}

const PAYLOAD: usize = 70;
const BASE_OFFSET: usize = 5;
const LEADER_EPOCH: usize = 12;

#[test]
fn what_was_synced_is_no_incomplete_tail_though_it_lies_above_the_recovery_point() {
    let place = Place::small();
    let mut log = filled(&place, 20);
    let recovery_point = checkpoint(&mut log);
    for n in 0..20 {
        append(&mut log, &Batch::of(RECORDS, NOW.plus_ms(n)).epoch(2));
    }
    let synced = log.log_end_offset();
    drop(log);
    flip(&place, Offset(60), PAYLOAD, 3);
    let opening = Opening { recovery_point, synced, ..Opening::unknown(NOW) };
    assert!(refused(&place, &opening).contains("checksum"));
    assert!(
        refused(&place, &Opening { synced: Offset(61), ..opening.clone() }).contains("checksum")
    );

    let log = place.try_open(Opening { synced: Offset(60), ..opening }).unwrap();
    assert_eq!(log.log_end_offset(), Offset(60));
    let recovery = log.recovery().unwrap();
    assert!(recovery.cut_whole_batches && recovery.dropped_segments > 0, "{recovery:?}");
}

#[test]
fn a_base_offset_with_a_flipped_bit_is_believed_nowhere() {
    let place = Place::small();
    drop(filled(&place, 40));
    flip(&place, Offset(50), BASE_OFFSET, 0);
    let dense = Opening { dense_from: Some(Offset(0)), ..Opening::unknown(NOW) };
    let synced = Opening { synced: Offset(80), ..dense.clone() };
    assert_eq!(refused(&place, &synced), "offset 65586 follows where 50 is due");
    let log = place.try_open(dense).unwrap();
    assert_eq!(log.log_end_offset(), Offset(50), "nothing is skipped");
}

#[test]
fn gaps_below_the_offset_from_which_the_log_is_dense_are_served() {
    let place = Place::small();
    let mut log = place.open_unclean(Offset(0));
    for base in [0, 10, 20, 22] {
        let bytes = Batch::of(RECORDS, NOW).bytes(Offset(base));
        let header = model::BatchHeader::decode(&bytes).unwrap();
        log.append(&bytes, &[header], NOW).unwrap();
    }
    let all = read_all(&log, Offset(0), 300);
    drop(log);
    for dense_from in [None, Some(Offset(20))] {
        let opening = Opening { dense_from, synced: Offset(12), ..Opening::unknown(NOW) };
        assert!(read_all(&place.try_open(opening).unwrap(), Offset(0), 300) == all);
    }
    let dense =
        Opening { dense_from: Some(Offset(2)), synced: Offset(24), ..Opening::unknown(NOW) };
    assert_eq!(refused(&place, &dense), "offset 10 follows where 2 is due");
    // Compaction does not excuse one.
    let compacted = Opening { cleaned_below: Offset(20), ..dense };
    assert_eq!(refused(&place, &compacted), "offset 10 follows where 2 is due");
}

#[test]
fn a_leader_epoch_that_nobody_gave_is_damage_even_above_what_was_synced() {
    let place = Place::small();
    drop(filled(&place, 40));
    let known = Opening {
        dense_from: Some(Offset(0)),
        epoch_max: Some(LeaderEpoch(2)),
        ..Opening::unknown(NOW)
    };
    assert_eq!(place.try_open(known.clone()).unwrap().latest_epoch(), LeaderEpoch(2));
    let low = LEADER_EPOCH + 3;
    flip(&place, Offset(70), LEADER_EPOCH, 6);
    let reason = refused(&place, &known);
    assert_eq!(reason, "leader epoch 1073741826, and the metadata knows none above 2");
    let adopted = Opening { dense_from: Some(Offset(80)), ..known.clone() };
    assert_eq!(place.try_open(adopted).unwrap().log_end_offset(), Offset(80), "Kafka's epochs");
    flip(&place, Offset(70), LEADER_EPOCH, 6);
    flip(&place, Offset(70), low, 1);
    assert_eq!(refused(&place, &known), "leader epoch 0 follows 2");
    assert_eq!(set_aside(&place, &known).log_end_offset(), Offset(70));
}

#[test]
fn a_log_start_behind_the_end_never_empties_a_log_whose_records_were_synced() {
    let place = Place::small();
    let mut log = filled(&place, 10);
    log.close().unwrap();
    let end = log.log_end_offset();
    drop(log);
    let start = Opening { log_start_offset: end.plus(68), ..Opening::unknown(NOW) };
    for clean in [true, false] {
        let fsync = Opening { clean, durability: Durability::Fsync, ..start.clone() };
        let reason = refused(&place, &fsync);
        assert_eq!(
            reason,
            format!("the log ends here, before its start at offset {}", end.plus(68))
        );
    }
    refused(&place, &Opening { clean: true, ..start.clone() });
    refused(&place, &Opening { synced: end.next(), ..start.clone() });
    let log = set_aside_copies(&place, &Opening { durability: Durability::Fsync, ..start.clone() });
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (end.plus(68), end.plus(68)));
    drop(log);

    let place = Place::small();
    drop(filled(&place, 10));
    let log = place.try_open(start).unwrap();
    assert_eq!(log.log_start_offset(), end.plus(68), "the page cache went with the power");
}

fn set_aside_copies(place: &Place, opening: &Opening) -> Log {
    let aside = Opening { on_damage: OnDamage::SetAside, ..opening.clone() };
    let log = place.try_open(aside).unwrap();
    assert!(place.names().iter().any(|name| name.ends_with(".damaged")), "{:?}", place.names());
    log
}

#[test]
fn a_segment_that_is_missing_or_has_another_size_is_refused() {
    for clean in [true, false] {
        let fresh = || {
            let place = Place::small();
            let mut log = filled(&place, 40);
            log.close().unwrap();
            let opening = Opening { clean, synced: Offset(80), ..listed(&place, Offset(80)) };
            let opening = Opening { recovery_point: Offset(80), ..opening };
            assert_eq!(place.try_open(opening.clone()).unwrap().log_end_offset(), Offset(80));
            (place, opening)
        };
        let count = bases(&fresh().0).len();
        assert!(count > 4);
        for number in 0..count {
            let (place, opening) = fresh();
            let base = bases(&place)[number];
            let whole = std::fs::read(log_file(&place, base)).unwrap();
            let first = model::batch::Batches::new(&whole).next().unwrap().unwrap().1.len();
            std::fs::write(log_file(&place, base), &whole[..whole.len() - first]).unwrap();
            assert!(refused(&place, &opening).contains("it must have"), "cut {base}");
            let behind = [&whole[..], &[1]].concat();
            std::fs::write(log_file(&place, base), behind).unwrap();
            if clean || number + 1 < count {
                assert!(refused(&place, &opening).contains("it must have"), "longer {base}");
            }
            // Zeros are what was written ahead, and are cut off.
            let behind = [&whole[..], &[0; 700]].concat();
            std::fs::write(log_file(&place, base), behind).unwrap();
            assert_eq!(place.try_open(opening.clone()).unwrap().log_end_offset(), Offset(80));
            assert_eq!(std::fs::read(log_file(&place, base)).unwrap(), whole);
            std::fs::remove_file(log_file(&place, base)).unwrap();
            assert!(refused(&place, &opening).contains("is missing"), "without {base}");
            let log = set_aside(&place, &opening);
            assert_eq!(log.log_end_offset(), base, "a follower keeps what is before it");
        }
    }
}

#[test]
fn all_segments_missing_is_noticed_though_the_directory_itself_is_gone() {
    let place = Place::small();
    let mut log = filled(&place, 40);
    log.close().unwrap();
    drop(log);
    let known = Opening { clean: true, ..listed(&place, Offset(80)) };
    std::fs::remove_dir_all(place.dir()).unwrap();
    let refused = place.try_open(known.clone()).unwrap_err().to_string();
    assert!(refused.contains("all segments are gone"), "{refused}");
    let aside = Opening { on_damage: OnDamage::SetAside, ..known };
    std::fs::remove_dir_all(place.dir()).unwrap();
    assert_eq!(place.try_open(aside).unwrap().log_end_offset(), Offset(0));
}

#[test]
fn segments_that_were_deleted_or_never_synced_need_not_be_there() {
    let place = Place::small();
    drop(filled(&place, 40));
    let all = bases(&place);
    let known = listed(&place, Offset(80));
    let (second, last) = (all[1], all[all.len() - 1]);
    std::fs::remove_file(log_file(&place, all[0])).unwrap();
    let deleted = Opening { log_start_offset: second, ..known.clone() };
    let synced = Opening { synced: Offset(80), ..deleted.clone() };
    assert_eq!(place.try_open(synced).unwrap().log_start_offset(), second);
    // The power failed: the last two segments were in the page cache.
    std::fs::remove_file(log_file(&place, last)).unwrap();
    let before = all[all.len() - 2];
    std::fs::write(log_file(&place, before), b"").unwrap();
    let lost = Opening { synced: before, ..deleted.clone() };
    assert_eq!(place.try_open(lost).unwrap().log_end_offset(), before);
    refused(&place, &Opening { synced: before.next(), ..deleted });
}

#[test]
fn a_clean_stop_that_left_another_end_is_no_clean_stop() {
    let place = Place::small();
    let mut log = filled(&place, 40);
    log.close().unwrap();
    drop(log);
    let known = listed(&place, Offset(80));
    let active = known.active.unwrap();
    let whole = std::fs::read(log_file(&place, active.base)).unwrap();
    flip(&place, Offset(78), 26, 0);
    let clean = Opening { clean: true, dense_from: Some(Offset(0)), ..known };
    refused(&place, &clean);
    std::fs::write(log_file(&place, active.base), &whole).unwrap();
    let longer = ActiveSegment { end: Offset(82), ..active };
    let reason = refused(&place, &Opening { active: Some(longer), ..clean.clone() });
    assert_eq!(reason, "the log ends here, and ended at 82 when it was closed");
    // A caller who knows nothing but the recovery point of the checkpoint file.
    let unlisted = Opening { clean: true, recovery_point: Offset(82), ..Opening::unknown(NOW) };
    assert_eq!(refused(&place, &unlisted), "the log ends here, and was synced below offset 82");
    std::fs::write(log_file(&place, active.base), &whole[..whole.len() - 10]).unwrap();
    refused(&place, &Opening { clean: true, ..Opening::unknown(NOW) });
}

#[test]
fn the_epoch_history_of_a_clean_stop_is_compared_with_the_batches() {
    let place = Place::small();
    let mut log = filled(&place, 40);
    log.close().unwrap();
    let epochs = log.epochs().to_vec();
    drop(log);
    let file = place.path("leader-epoch-checkpoint");
    let bytes = std::fs::read(&file).unwrap();
    let known = Opening {
        clean: true,
        epoch_max: Some(LeaderEpoch(2)),
        dense_from: Some(Offset(0)),
        ..listed(&place, Offset(80))
    };
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            std::fs::write(&file, &damaged).unwrap();
            let log = place.try_open(known.clone()).unwrap();
            assert_eq!(log.epochs(), epochs, "byte {at}, bit {bit}");
        }
    }
}
