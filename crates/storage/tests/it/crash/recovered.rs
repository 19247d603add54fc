//! What must hold of a log that was opened after a crash (S2, S3, S4, S5, S6, S7).

use std::collections::BTreeMap;
use std::path::Path;

use model::batch::Batches;
use model::{BatchHeader, LeaderEpoch, Offset, ProducerId, Sequence, Timestamp};
use storage::disk::{Disk, SimDisk};
use storage::{Log, ProducerVerdict};

use super::load::partition_dir;
use super::timeline::{Batch, Timeline};

/// All batches of the log, read the way a consumer does, and the bytes of each.
pub fn read_all(log: &Log) -> Vec<(BatchHeader, Vec<u8>)> {
    let mut found = Vec::new();
    let (mut offset, end) = (log.log_start_offset(), log.log_end_offset());
    while offset < end {
        let slice = log.read(offset, end, 700, true).unwrap().expect("there is more below the end");
        let mut bytes = vec![0; slice.size_bytes as usize];
        let read = slice.file.read_at(&mut bytes, slice.position).unwrap();
        assert_eq!(read, bytes.len(), "the slice lies within its file");
        let before = offset;
        for batch in Batches::new(&bytes) {
            let (header, bytes) = batch.expect("a slice is whole batches");
            assert_eq!(BatchHeader::decode_checked(bytes), Ok(header), "served bytes are whole");
            assert!(header.last_offset() >= offset, "nothing is served twice");
            offset = header.next_offset();
            found.push((header, bytes.to_vec()));
        }
        assert!(offset > before, "a read gets on");
    }
    assert_eq!(offset, end, "the log ends behind its last batch");
    found
}

/// Checks the log against the history that it must be a prefix of. Returns an error in words, since
/// after a crash in the middle of a step one of two histories will do.
pub fn check(log: &Log, timeline: &Timeline, durable: Offset) -> Result<(), String> {
    let end = log.log_end_offset();
    if end < durable {
        return Err(format!("the log ends at {end}, but {durable} was synced"));
    }
    if end > timeline.log_end() {
        return Err(format!("the log ends at {end}, behind all that was appended"));
    }
    check_bytes(log, timeline)?;
    check_any_offset(log, timeline)?;
    check_epochs(log, timeline)?;
    check_producers(log, timeline)?;
    check_windows(log, timeline)?;
    check_times(log, timeline)
}

fn check_bytes(log: &Log, timeline: &Timeline) -> Result<(), String> {
    for (header, bytes) in read_all(log) {
        let offset = header.base_offset;
        let Some(expected) = timeline.batch_at(offset) else {
            return Err(format!("the batch at {offset} was never appended"));
        };
        if expected.bytes[..] != bytes[..] {
            return Err(format!("the batch at {offset} has other bytes"));
        }
    }
    Ok(())
}

/// A read at any offset begins with the batch that holds it.
fn check_any_offset(log: &Log, timeline: &Timeline) -> Result<(), String> {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    for offset in (start.0..end.0).step_by(7).map(Offset) {
        let slice = log.read(offset, end, 1, true).map_err(|e| e.to_string())?;
        let slice = slice.ok_or_else(|| format!("nothing is read at {offset}"))?;
        let expected = timeline.batch_at(offset).ok_or("an offset without a batch")?;
        if slice.first_offset != expected.header.base_offset
            || slice.size_bytes as usize != expected.bytes.len()
        {
            return Err(format!("a read at {offset} begins at {}", slice.first_offset));
        }
    }
    Ok(())
}

/// S7: the epochs are those of the batches.
pub fn check_epochs(log: &Log, timeline: &Timeline) -> Result<(), String> {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    let mut last = LeaderEpoch::NONE;
    for Batch { header, .. } in &timeline.batches {
        if header.last_offset() < start || header.base_offset >= end {
            continue;
        }
        last = header.leader_epoch;
        let known = log.epoch_at(header.base_offset.max(start));
        if known != last {
            return Err(format!("epoch {known} at {}, not {last}", header.base_offset));
        }
    }
    if last != LeaderEpoch::NONE && log.latest_epoch() != last {
        return Err(format!("the latest epoch is {}, not {last}", log.latest_epoch()));
    }
    Ok(())
}

/// S6: producers are what replaying all batches makes of them.
pub fn check_producers(log: &Log, timeline: &Timeline) -> Result<(), String> {
    let end = log.log_end_offset();
    let prefix = Timeline {
        batches: timeline.batches.iter().filter(|b| b.header.base_offset < end).cloned().collect(),
        ..timeline.clone()
    };
    for (id, producer) in prefix.producers(log.log_start_offset()) {
        let verdict = |epoch: i16, base: Sequence, delta: i32| {
            log.check_producer(&probe(id, producer.epoch.0 + epoch, base, delta))
        };
        let next = producer.last_sequence.plus(1);
        let delta = (producer.last_offset.0 - producer.last_base_offset.0) as i32;
        let first_of_last = Sequence(producer.last_sequence.0 - delta);
        let last_again = verdict(0, first_of_last, delta);
        let is_duplicate = matches!(last_again, ProducerVerdict::Duplicate { base_offset, last_offset, .. }
            if base_offset == producer.last_base_offset && last_offset == producer.last_offset);
        let found = [
            (verdict(0, next, 0) == ProducerVerdict::Accept, "its next batch is refused"),
            (is_duplicate, "its last batch is no duplicate"),
            (
                verdict(0, next.plus(1), 0) == ProducerVerdict::OutOfOrderSequence,
                "a gap is accepted",
            ),
            (verdict(1, Sequence(0), 0) == ProducerVerdict::Accept, "its next epoch is refused"),
            (
                producer.epoch.0 == 0 || verdict(-1, next, 0) == ProducerVerdict::InvalidEpoch,
                "an old epoch is accepted",
            ),
        ];
        if let Some((_, wrong)) = found.iter().find(|(holds, _)| !holds) {
            return Err(format!("producer {id} of {producer:?}: {wrong}"));
        }
    }
    Ok(())
}

/// C4: of the batches that a producer may have in flight, every one that is in the log is known.
fn check_windows(log: &Log, timeline: &Timeline) -> Result<(), String> {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    let there = timeline.batches.iter().map(|batch| &batch.header);
    let there: Vec<&BatchHeader> = there.filter(|header| header.base_offset < end).collect();
    for id in (1..4).map(ProducerId) {
        let own = there.iter().rev().filter(|header| header.producer_id == id);
        let newest = own.clone().next().map(|header| header.producer_epoch);
        let window = own.take_while(|header| Some(header.producer_epoch) == newest).take(5);
        for header in window.filter(|header| header.base_offset >= start) {
            let known = matches!(log.check_producer(header), ProducerVerdict::Duplicate { base_offset, .. }
                if base_offset == header.base_offset);
            if !known {
                return Err(format!("the batch of producer {id} at {} is new", header.base_offset));
            }
        }
    }
    Ok(())
}

fn probe(
    id: ProducerId,
    epoch: i16,
    base_sequence: Sequence,
    last_offset_delta: i32,
) -> BatchHeader {
    BatchHeader {
        base_offset: Offset(0),
        size_bytes: 100,
        leader_epoch: LeaderEpoch(0),
        crc: 0,
        attributes: 0,
        last_offset_delta,
        base_timestamp: Timestamp(0),
        max_timestamp: Timestamp(0),
        producer_id: id,
        producer_epoch: model::ProducerEpoch(epoch),
        base_sequence,
        record_count: last_offset_delta + 1,
    }
}

/// Look-ups by time find the first record that is as late.
fn check_times(log: &Log, timeline: &Timeline) -> Result<(), String> {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    let mut records: Vec<(Timestamp, Offset)> = Vec::new();
    let mut buffer = Vec::new();
    for Batch { header, bytes } in &timeline.batches {
        if header.base_offset >= end || header.last_offset() < start {
            continue;
        }
        let all = compression::records::read(header, bytes, 1 << 20, &mut buffer)
            .map_err(|e| e.to_string())?;
        for record in all.map(|record| record.expect("we wrote it")) {
            let offset = header.base_offset.plus(record.offset_delta as i64);
            if offset >= start {
                records.push((header.base_timestamp.plus_ms(record.timestamp_delta), offset));
            }
        }
    }
    let step = (records.len() / 6).max(1);
    let probes = records.iter().step_by(step).map(|(at, _)| *at);
    for time in probes.chain([Timestamp(0), timeline.latest_timestamp().plus_ms(1)]) {
        let expected = records.iter().find(|(at, _)| *at >= time).copied();
        let found = log.find_by_timestamp(time, end).map_err(|e| e.to_string())?;
        let found = found.map(|found| (found.timestamp, found.offset));
        if found != expected {
            return Err(format!("at {time} there is {found:?}, not {expected:?}"));
        }
    }
    Ok(())
}

/// S4: every entry of every index file names a batch that is there. Read by the documented format;
/// holds once the log was closed: until then its files may hold entries that it does not believe.
pub fn check_index_files(log: &Log, disk: &SimDisk, timeline: &Timeline) -> Result<(), String> {
    let dir = partition_dir();
    for name in disk.list(&dir).map_err(|e| e.to_string())? {
        let Some((digits, suffix)) = name.split_once('.') else { continue };
        let Ok(base) = digits.parse::<i64>() else { continue };
        let path = dir.join(&name);
        match suffix {
            "index" => check_offset_index(disk, &path, base, timeline)?,
            "timeindex" => check_time_index(disk, &path, base, log, timeline)?,
            _ => {}
        }
    }
    Ok(())
}

/// A closed log has its segments' files, snapshots, and nothing else.
pub fn check_no_leftovers(log: &Log, disk: &SimDisk) -> Result<(), String> {
    let names = disk.list(&partition_dir()).map_err(|e| e.to_string())?;
    let has = |name: String| names.contains(&name);
    for name in &names {
        let known = match name.split_once('.') {
            None => matches!(&**name, "leader-epoch-checkpoint" | "recovery-point-ceiling"),
            Some((_, "log")) => true,
            Some((base, "index" | "timeindex" | "txnindex")) => has(format!("{base}.log")),
            // One whose removal a crash has undone goes with the next checkpoint.
            Some((at, "snapshot" | "producers")) => {
                at.parse().is_ok_and(|at| Offset(at) <= log.log_end_offset())
            }
            Some(_) => false,
        };
        if !known {
            return Err(format!("{name} is left over"));
        }
    }
    Ok(())
}

/// Where each batch of the segment begins, by its last offset.
fn batch_positions(disk: &SimDisk, index: &Path) -> BTreeMap<i64, u64> {
    let bytes = disk.read(&index.with_extension("log")).unwrap_or_default();
    let mut position = 0;
    let mut positions = BTreeMap::new();
    for (header, batch) in Batches::new(&bytes).map_while(Result::ok) {
        positions.insert(header.last_offset().0, position);
        position += batch.len() as u64;
    }
    positions
}

fn check_offset_index(
    disk: &SimDisk,
    path: &Path,
    base: i64,
    timeline: &Timeline,
) -> Result<(), String> {
    let positions = batch_positions(disk, path);
    let mut last = i64::MIN;
    for entry in disk.read(path).map_err(|e| e.to_string())?.chunks(8) {
        let entry: [u8; 8] = entry.try_into().map_err(|_| format!("{path:?} has half an entry"))?;
        let number = u64::from_be_bytes(entry);
        let (offset, position) = (base + (number >> 32) as i64, number & u32::MAX as u64);
        if offset <= last {
            return Err(format!("{path:?}: offset {offset} behind {last}"));
        }
        if positions.get(&offset) != Some(&position) {
            return Err(format!("{path:?}: no batch at {position} ends with {offset}"));
        }
        if timeline.batch_at(Offset(offset)).is_none() {
            return Err(format!("{path:?}: {offset} was never appended"));
        }
        last = offset;
    }
    Ok(())
}

fn check_time_index(
    disk: &SimDisk,
    path: &Path,
    base: i64,
    log: &Log,
    timeline: &Timeline,
) -> Result<(), String> {
    let mut last = (i64::MIN, i64::MIN);
    for entry in disk.read(path).map_err(|e| e.to_string())?.chunks(12) {
        if entry.len() < 12 {
            return Err(format!("{path:?} has half an entry"));
        }
        let time = i64::from_be_bytes(entry[..8].try_into().expect("eight bytes"));
        let offset = base + u32::from_be_bytes(entry[8..].try_into().expect("four bytes")) as i64;
        if time <= last.0 || offset < last.1 {
            return Err(format!("{path:?}: {time} at {offset} behind {last:?}"));
        }
        last = (time, offset);
        let covered = timeline.batches.iter().filter(|batch| {
            (base..=offset).contains(&batch.header.base_offset.0)
                && batch.header.base_offset < log.log_end_offset()
        });
        let largest = covered.map(|batch| batch.header.max_timestamp.0).max();
        if largest != Some(time) {
            return Err(format!("{path:?}: {time} up to {offset}, where it is {largest:?}"));
        }
    }
    Ok(())
}
