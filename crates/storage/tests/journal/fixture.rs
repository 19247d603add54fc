//! Random entries, and a journal on a simulated disk.

use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use model::level::{newest_journal, newest_version};
use model::{BrokerId, LeaderEpoch, Offset, PartitionIndex, Timestamp, Uuid};
use storage::disk::{Disk, SimDisk};
use storage::journal::{
    Checkpoint, Entry, Fact, Journal, Key, MetadataNote, Opened, Refused, State,
};
use storage::log_dir::MetaProperties;
use storage::{ActiveSegment, Derived, SealedSegment};

pub fn dir() -> &'static Path {
    Path::new("data")
}

/// The properties of a log directory with this id and levels of the journal and of the metadata.
pub fn properties(directory_id: Uuid, levels: (u8, u8)) -> MetaProperties {
    MetaProperties {
        node_id: BrokerId(1),
        cluster_id: "c".to_owned(),
        directory_id,
        journal_level: levels.0,
        metadata_level: levels.1,
        unknown_lines: Vec::new(),
    }
}

/// The newest levels.
pub fn newest() -> (u8, u8) {
    (newest_journal(), newest_version() as u8)
}

pub fn created(disk: &SimDisk) -> Journal {
    created_with(disk, &properties(Uuid([9; 16]), newest()))
}

pub fn created_with(disk: &SimDisk, properties: &MetaProperties) -> Journal {
    disk.create_dir_all(dir()).unwrap();
    disk.sync_dir(Path::new("")).unwrap();
    let state = State { meta: properties.encode().into_bytes(), ..State::default() };
    Journal::create(Arc::new(disk.clone()), dir(), state).unwrap()
}

pub fn key(number: u8) -> Key {
    Key { topic_id: Uuid([number / 3 + 1; 16]), partition: PartitionIndex(i32::from(number % 3)) }
}

pub fn opened(topic: &str) -> Fact {
    Fact::Opened(Opened {
        topic: topic.into(),
        dense_from: Some(Offset(0)),
        fsync: true,
        image_index: 7,
        mended: topic == "t",
    })
}

/// An entry about one of nine partitions, most of which are open.
pub fn random_entry(rng: &mut Rng) -> Entry {
    random_entry_of(9, 1000, rng)
}

/// An entry about one of so many partitions, with offsets below this one: few and low ones meet.
pub fn random_entry_of(partitions: u8, offsets: i64, rng: &mut Rng) -> Entry {
    if rng.u8(..40) == 0 {
        let process = Uuid([rng.u8(..9); 16]);
        return match rng.u8(..5) {
            0 => Entry::Started(Timestamp(rng.i64(0..1000))),
            3 => Entry::Marked(rng.u64(0..1000)),
            2 => {
                let (member, index) = (rng.u64(0..9), rng.u64(0..1000));
                Entry::MetadataNoted(MetadataNote { member, index, term: rng.u64(0..9) })
            }
            1 => Entry::Begun(process),
            _ => Entry::Joined(process),
        };
    }
    Entry::Of(key(rng.u8(..partitions)), random_fact(offsets, rng))
}

fn random_fact(offsets: i64, rng: &mut Rng) -> Fact {
    let offset = Offset(rng.i64(0..offsets));
    match rng.u8(..18) {
        0..3 => opened(["orders", "a.b", "t"][rng.usize(..3)]),
        3 => Fact::Checkpoint(random_checkpoint(offsets, rng)),
        4 => Fact::Sealed { complete: rng.bool(), segments: random_segments(offsets, rng) },
        5 => Fact::Swapped(
            random_segments(offsets, rng).iter().map(|segment| segment.base).collect(),
        ),
        6 => Fact::Start(offset),
        7 => Fact::Truncated(offset),
        8 => Fact::Closed(offset),
        9 => Fact::Refused(Refused {
            offset: rng.bool().then_some(offset),
            reason: "damaged at byte 360".into(),
        }),
        10 => Fact::SyncFailed("input/output error".into()),
        11 => Fact::Mended,
        12 => Fact::Deleted { aside: "t-0.ab-delete".into() },
        13 => Fact::Forgotten,
        14 => Fact::Derived(Derived {
            end: offset,
            epochs: (0..rng.i32(0..3)).map(|n| (LeaderEpoch(n), Offset(i64::from(n)))).collect(),
            has_producers: rng.bool(),
            tells_newer: rng.bool(),
        }),
        16 => Fact::Compacted(
            random_segments(offsets, rng).iter().map(|segment| segment.base).collect(),
        ),
        15 => Fact::Epoch(LeaderEpoch(rng.i32(0..9)), offset),
        _ => Fact::Synced(offset),
    }
}

fn random_checkpoint(offsets: i64, rng: &mut Rng) -> Checkpoint {
    let end = rng.i64(0..offsets);
    let active = ActiveSegment {
        base: Offset(rng.i64(0..=end)),
        end: Offset(end),
        size_bytes: rng.u64(0..1 << 30),
    };
    Checkpoint {
        recovery_point: Offset(end),
        active: rng.bool().then_some(active),
        epoch: LeaderEpoch(rng.i32(-1..9)),
        high_watermark: Offset(rng.i64(0..=end)),
        cleaned_below: Offset(0),
        at: Timestamp(rng.i64(0..1000)),
    }
}

fn random_segments(offsets: i64, rng: &mut Rng) -> Vec<SealedSegment> {
    let mut bases: Vec<i64> = (0..rng.usize(..5)).map(|_| rng.i64(0..offsets)).collect();
    bases.sort_unstable();
    bases.dedup();
    let size_bytes = rng.u64(0..1 << 30);
    bases.into_iter().map(|base| SealedSegment { base: Offset(base), size_bytes }).collect()
}
