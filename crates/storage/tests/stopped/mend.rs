//! A refused partition is served again without what is damaged, and the folder as it was is kept.

use std::path::Path;

use model::{LeaderEpoch, Offset, Uuid};
use storage::disk::{Disk, SimDisk};
use storage::log_dir::{Aside, AsideKind};
use storage::stopped::{Mended, Stopped};

use crate::fixture::{
    COUNT, EPOCH, NOW, append, crashes, cut, dir, expected, files, folder, name, overwrite,
    records, refused, segments, serve, stopped,
};

const UNIQUE: Uuid = Uuid([9; 16]);

fn mend(stopped: &Stopped) -> Mended {
    let ailment = stopped.examine(&name()).unwrap().expect("the partition is refused");
    stopped.mend(&ailment, NOW, UNIQUE).unwrap()
}

/// Damages the second record of the second segment.
fn flipped(disk: &SimDisk) {
    let segment = &segments(disk, &folder())[1];
    disk.flip_bit(segment, bytes_of_one(disk) + 70, 3);
}

/// Bytes of a batch: those of all early ones are of one size.
fn bytes_of_one(disk: &SimDisk) -> u64 {
    let segment = &segments(disk, &folder())[0];
    let bytes = disk.read(segment).unwrap();
    u64::from(u32::from_be_bytes(bytes[8..12].try_into().unwrap())) + 12
}

/// The first offset of a segment.
fn base(path: &Path) -> i64 {
    path.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

/// Mends, starts twice, appends in between; the records that were lost are `lost`.
fn check_mended(disk: &SimDisk, lost: &[i64]) {
    let before = files(disk, &folder());
    let tool = stopped(disk);
    let ailment = tool.examine(&name()).unwrap().unwrap();
    let named: i64 = ailment.survey.lost.iter().map(|lost| lost.to.0 - lost.from.0).sum();
    assert_eq!(named, lost.len() as i64, "{:?}", ailment.survey.lost);
    assert_eq!(files(disk, &folder()), before, "looking changes nothing");
    assert!(serve(disk).is_err(), "looking mends nothing");
    let mended = mend(&tool);
    let (_, known) = tool.partition(&name()).unwrap();
    assert!(known.opened.mended, "a start of a cluster's broker has to know it");
    drop(tool);
    assert_eq!(files(disk, &mended.kept.unwrap()), before, "the folder is kept as it was");
    for start in 0..2 {
        let mut log = serve(disk).unwrap();
        let mut due = expected(lost);
        due.extend((0..start).map(|at| (COUNT + at, format!("value {}", COUNT + at))));
        assert_eq!(records(&log), due);
        assert_eq!(log.log_end_offset(), Offset(COUNT + start), "no offset is given twice");
        append(&mut log, COUNT + start, EPOCH);
        log.close().unwrap();
    }
    assert!(stopped(disk).examine(&name()).unwrap().is_none(), "there is nothing left to mend");
}

#[test]
fn a_flipped_bit_costs_its_batch() {
    let disk = refused(flipped);
    let second = base(&segments(&disk, &folder())[1]);
    check_mended(&disk, &[second + 1]);
}

#[test]
fn a_stamp_that_is_not_its_batchs_costs_that_batch() {
    // The base offset stands outside the checksum.
    let stamp = |disk: &SimDisk| {
        let segment = segments(disk, &folder()).last().unwrap().clone();
        disk.flip_bit(&segment, bytes_of_one(disk) + 7, 4);
        // A start scans only what is not below the recovery point, so something else is wrong too.
        disk.remove_file(&segments(disk, &folder())[0]).unwrap();
    };
    let disk = refused(stamp);
    let segments = segments(&disk, &folder());
    let front: Vec<i64> = (0..base(&segments[0])).collect();
    let last = base(segments.last().unwrap());
    check_mended(&disk, &[front, vec![last + 1]].concat());
}

#[test]
fn a_missing_segment_costs_its_records() {
    for number in 0..3 {
        let mut lost = Vec::new();
        let disk = refused(|disk| {
            let segments = segments(disk, &folder());
            let number = if number == 2 { segments.len() - 1 } else { number };
            let end = segments.get(number + 1).map_or(COUNT, |next| base(next));
            lost.extend(base(&segments[number])..end);
            disk.remove_file(&segments[number]).unwrap();
        });
        assert!(lost.len() > 1, "{lost:?}");
        check_mended(&disk, &lost);
    }
}

#[test]
fn a_log_that_is_cut_goes_on_at_its_old_end() {
    let disk = refused(|disk| {
        let segment = segments(disk, &folder()).last().unwrap().clone();
        cut(disk, &segment, bytes_of_one(disk) + 10);
    });
    let first = base(segments(&disk, &folder()).last().unwrap());
    let lost: Vec<i64> = (first + 1..COUNT).collect();
    check_mended(&disk, &lost);
}

#[test]
fn an_epoch_that_no_leader_had_is_lowered() {
    let disk = refused(|disk| {
        let segment = segments(disk, &folder())[1].clone();
        overwrite(disk, &segment, 12, &(1_i32 << 20).to_be_bytes());
        disk.remove_file(&segments(disk, &folder())[0]).unwrap();
    });
    let lost: Vec<i64> = (0..base(&segments(&disk, &folder())[0])).collect();
    check_mended(&disk, &lost);
    assert_eq!(serve(&disk).unwrap().latest_epoch(), EPOCH.max(LeaderEpoch(0)));
}

#[test]
fn without_its_folder_a_partition_is_served_empty_behind_its_end() {
    let disk = refused(|disk| disk.remove_dir_all(&folder()).unwrap());
    let tool = stopped(&disk);
    let lost = tool.examine(&name()).unwrap().unwrap().survey.lost;
    assert_eq!((lost.len(), lost[0].from, lost[0].to), (1, Offset(0), Offset(COUNT)));
    assert!(mend(&tool).kept.is_none());
    drop(tool);
    let log = serve(&disk).unwrap();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(COUNT), Offset(COUNT)));
}

#[test]
fn a_crash_anywhere_leaves_the_partition_refused_or_mended() {
    let before = refused(flipped);
    let second = base(&segments(&before, &folder())[1]);
    let untouched = files(&before, &folder());
    let (mut refusals, mut served) = (0, 0);
    for disk in crashes(&before, |disk| drop(mend(&stopped(disk)))) {
        match serve(&disk.snapshot()) {
            Ok(log) => {
                served += 1;
                assert_eq!(records(&log), expected(&[second + 1]));
            }
            Err(_) => refusals += 1,
        }
        // The same command again does it.
        let tool = stopped(&disk);
        if let Some(ailment) = tool.examine(&name()).unwrap() {
            tool.mend(&ailment, NOW, Uuid([8; 16])).unwrap();
        }
        drop(tool);
        assert_eq!(records(&serve(&disk).unwrap()), expected(&[second + 1]));
        let names = disk.list(dir()).unwrap();
        let asides: Vec<Aside> = names.iter().filter_map(|name| Aside::parse(name)).collect();
        assert!(
            matches!(&asides[..], [kept] if kept.kind == AsideKind::BeforeMend),
            "one copy of what was there is kept: {asides:?}"
        );
        assert_eq!(files(&disk, &dir().join(asides[0].name())), untouched);
    }
    assert!(refusals > 20 && served > 0, "{refusals} {served}");
}

#[test]
fn what_is_not_refused_and_what_is_not_there_is_left_alone() {
    let disk = refused(flipped);
    mend(&stopped(&disk));
    let before = disk.list(dir()).unwrap();
    let tool = stopped(&disk);
    assert!(tool.examine(&name()).unwrap().is_none());
    assert!(tool.examine(&model::TopicPartition::new("t", 1)).is_err());
    assert_eq!(disk.list(dir()).unwrap(), before);
}
