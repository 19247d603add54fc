//! Every bit flipped, every length cut to, every file removed: noticed, or without effect.

use std::sync::Arc;

use fastrand::Rng;
use model::{BrokerEpoch, Offset, Timestamp, Uuid};
use proptest::prelude::*;
use storage::disk::{Disk, OpenMode, SimDisk};
use storage::journal::{Entry, Fact, JOURNAL, Journal, SNAPSHOT, State, Unreadable, decode};

use crate::fixture::{created, created_with, dir, key, newest, opened, properties, random_entry};

/// A small journal with its snapshot, all of it durable.
fn files(rewrites: bool) -> (Vec<u8>, Vec<u8>, State) {
    files_after(rewrites, 6)
}

fn files_after(rewrites: bool, rounds: u8) -> (Vec<u8>, Vec<u8>, State) {
    let disk = SimDisk::new();
    let journal = created(&disk);
    let mut rng = Rng::with_seed(5);
    for number in 0..rounds {
        journal.commit(&[Entry::Of(key(number), opened("orders"))]).unwrap();
        journal.commit(&[random_entry(&mut rng), random_entry(&mut rng)]).unwrap();
        if rewrites && number == 3 {
            journal.rewrite().unwrap();
        }
        journal.note_synced([(key(number), Offset(77))]).unwrap();
    }
    journal.maintain().unwrap();
    let read = |name| disk.read(&dir().join(name)).unwrap();
    (read(SNAPSHOT), read(JOURNAL), journal.with_state(State::clone))
}

#[test]
fn every_flipped_bit_is_noticed_or_without_effect() {
    for rewrites in [false, true] {
        let (snapshot, journal, state) = files(rewrites);
        assert_eq!(decode(&snapshot, &journal).unwrap().state, state);
        let flipped = |bytes: &[u8], bit: usize| {
            let mut bytes = bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        };
        let mut passed = 0;
        for bit in 0..snapshot.len() * 8 {
            if let Ok(found) = decode(&flipped(&snapshot, bit), &journal) {
                assert_eq!(found.state, state, "bit {bit} of the snapshot");
                passed += 1;
            }
        }
        assert!(passed <= 2 * 12 * 8, "only the slots may be passed over, not {passed} bits");
        for bit in 0..journal.len() * 8 {
            let found = decode(&snapshot, &flipped(&journal, bit));
            assert!(found.is_err(), "bit {bit} of the journal");
        }
    }
}

#[test]
fn every_cut_and_every_byte_too_much_is_noticed() {
    let (snapshot, journal, state) = files(true);
    for size in 0..snapshot.len() {
        assert!(decode(&snapshot[..size], &journal).is_err(), "snapshot cut to {size}");
    }
    for size in 0..journal.len() {
        assert!(decode(&snapshot, &journal[..size]).is_err(), "journal cut to {size}");
    }
    let longer = [&snapshot[..], b"x"].concat();
    assert!(decode(&longer, &journal).is_err());
    // Behind the last frame an incomplete write is usual.
    let longer = [&journal[..], b"incomplete"].concat();
    let found = decode(&snapshot, &longer).unwrap();
    assert_eq!((found.state, found.cut_bytes), (state, 10));
}

#[test]
fn a_file_that_is_gone_is_missed() {
    for name in [SNAPSHOT, JOURNAL] {
        let disk = SimDisk::new();
        created(&disk);
        disk.remove_file(&dir().join(name)).unwrap();
        let error = Journal::open(Arc::new(disk), dir(), true).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("missing"), "{error}");
    }
    let disk = SimDisk::new();
    created(&disk);
    disk.remove_file(&dir().join(SNAPSHOT)).unwrap();
    assert!(
        Journal::open(Arc::new(disk), dir(), false).is_err(),
        "the other file is witness enough"
    );
    let error = Journal::open(Arc::new(SimDisk::new()), dir(), true).unwrap_err().to_string();
    assert!(error.contains("missing"), "{error}");
    assert!(Journal::open(Arc::new(SimDisk::new()), dir(), false).unwrap().is_none());
}

#[test]
fn a_snapshot_from_another_moment_is_noticed() {
    let (old, old_journal, _) = files(false);
    let (new, new_journal, state) = files(true);
    assert!(decode(&old, &new_journal).is_err());
    let (_, earlier, _) = files_after(false, 5);
    assert!(decode(&new, &earlier).is_err(), "frames are missing that were durable");
    // What a crash leaves between the two renames: the journal from before tells all that is behind the
    // snapshot.
    assert_eq!(decode(&new, &old_journal).unwrap().state, state);
}

#[test]
fn the_journal_of_another_directory_is_refused() {
    // Both directories have taken the same steps, so sequence numbers fit. Frames behind the snapshot, and frames that it holds.
    for is_behind in [true, false] {
        let files = [1, 2].map(|directory| {
            let disk = SimDisk::new();
            let journal = created_with(&disk, &properties(Uuid([directory; 16]), newest()));
            journal.commit(&[Entry::Of(key(0), opened("t"))]).unwrap();
            let begun = [SNAPSHOT, JOURNAL].map(|name| disk.read(&dir().join(name)).unwrap());
            journal.rewrite().unwrap();
            let snapshot = disk.read(&dir().join(SNAPSHOT)).unwrap();
            [if is_behind { begun[0].clone() } else { snapshot }, begun[1].clone()]
        });
        assert_eq!(decode(&files[0][0], &files[0][1]).unwrap().state.partitions.len(), 1);
        let (name, Unreadable(reason)) = decode(&files[0][0], &files[1][1]).unwrap_err();
        assert_eq!(name, JOURNAL);
        assert!(reason.contains("Put the journal of this directory back"), "{reason}");
    }
}

#[test]
fn a_bad_end_that_nobody_relied_on_is_cut() {
    let disk = SimDisk::new();
    let journal = created(&disk);
    journal.commit(&[Entry::Of(key(0), opened("t"))]).unwrap();
    journal.append(&[Entry::Of(key(0), Fact::Start(Offset(4)))]).unwrap();
    let path = dir().join(JOURNAL);
    let last = disk.size(&path).unwrap() - 1;
    disk.flip_bit(&path, last, 0);
    let journal = Journal::open(Arc::new(disk.clone()), dir(), true).unwrap().unwrap();
    assert_eq!(journal.partition(&key(0)).unwrap().log_start, Offset(0));
    journal.close(&[], BrokerEpoch(1), Timestamp(0)).unwrap();
}

#[test]
fn a_bad_frame_before_one_that_calls_it_durable_is_damage() {
    let disk = SimDisk::new();
    let journal = created(&disk);
    let path = dir().join(JOURNAL);
    journal.commit(&[Entry::Of(key(0), opened("t"))]).unwrap();
    let position = disk.size(&path).unwrap();
    journal.commit(&[Entry::Of(key(0), Fact::Start(Offset(4)))]).unwrap();
    journal.append(&[Entry::Of(key(0), Fact::Start(Offset(5)))]).unwrap();
    // As after a power failure that took the slots' last values.
    let snapshot = disk.open(&dir().join(SNAPSHOT), OpenMode::ReadWrite).unwrap();
    let mut fresh = [0; 12];
    let made = SimDisk::new();
    created(&made);
    let made = made.read(&dir().join(SNAPSHOT)).unwrap();
    fresh.copy_from_slice(&made[8..20]);
    snapshot.write_all_at(&fresh, 8).unwrap();
    fresh.copy_from_slice(&made[20..32]);
    snapshot.write_all_at(&fresh, 20).unwrap();
    // Also when it is the length that cannot be read.
    for byte in [0, 3, 10, 30] {
        let disk = disk.snapshot();
        disk.flip_bit(&path, position + byte, 1);
        let error = Journal::open(Arc::new(disk), dir(), true).unwrap_err().to_string();
        assert!(error.contains("damaged at byte"), "{error}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_reading_panic(snapshot: Vec<u8>, journal: Vec<u8>) {
        let _ = decode(&snapshot, &journal);
    }

    #[test]
    fn damaged_entries_under_a_good_checksum_do_not_panic(seed: u64, at: usize, to: u8) {
        let mut rng = Rng::with_seed(seed);
        let mut state = State::default();
        for _ in 0..20 {
            let _ = state.apply(&random_entry(&mut rng));
        }
        let mut bytes = state.encode_entries();
        if bytes.is_empty() {
            return Ok(());
        }
        let at = at % bytes.len();
        bytes[at] = to;
        let _ = State::default().decode_entries(&bytes);
    }
}
