//! Reading a partition's records in their order: how a coordinator loads its state, and keeps up with one that another broker
//! leads.
//!
//! Every batch is checked: its checksum, that it stands behind the one before, and that the last one
//! ends where the log does. What cannot be read ends the reading with an error; nothing is skipped.
//! Compressed batches are read in a stream: what is in memory at once does not depend on what they expand to.

use std::sync::Arc;

use compression::records::RecordStream;
use coordinator::Loader;
use coordinator::records::RecordError;
use model::batch::Batches;
use model::{BatchHeader, Offset, ProducerId};
use partition::{Isolation, Partition, PartitionError, ReadRequest};
use storage::{ReadCursor, TransactionMarker};

/// Bytes read at once; a larger batch is read whole.
const CHUNK_BYTES: u32 = 1 << 20;
/// Bytes of one record that is kept whole while it is taken. A batch may expand to any number of records: they pass by
/// in a window.
const RECORD_BYTES_MAX: usize = 64 << 20;

/// Why the records could not be read to the end.
#[derive(Debug, thiserror::Error)]
pub enum ReadLogError {
    /// The partition refused.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// The file could not be read.
    #[error("cannot read a segment: {0}")]
    Io(#[from] std::io::Error),
    /// What was read is not what was written.
    #[error("the log is damaged at offset {offset}: {reason}")]
    Malformed {
        /// The offset that was due.
        offset: Offset,
        /// What is wrong.
        reason: String,
    },
}

/// Which of a partition's records are read.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The first offset, where a batch begins or one lacked; `None`: the first there is.
    pub from: Option<Offset>,
    /// How far: to the high watermark of the beginning, or to the log's end of then.
    pub isolation: Isolation,
    /// Whether also where this broker does not lead.
    pub any_role: bool,
}

impl Range {
    /// Everything that the leader has.
    pub const ALL: Range = Range { from: None, isolation: Isolation::LogEnd, any_role: false };
}

/// One entry of a partition's log.
#[derive(Clone, Copy, Debug)]
pub enum LogEntry<'a> {
    /// A record.
    Record {
        /// Its offset.
        offset: Offset,
        /// Producer of the transaction that the record belongs to, if it belongs to one.
        transaction: Option<ProducerId>,
        /// Key of the record.
        key: Option<&'a [u8]>,
        /// Value of the record; `None` for a tombstone.
        value: Option<&'a [u8]>,
    },
    /// The end of a transaction.
    TransactionEnd {
        /// Producer of the transaction.
        producer: ProducerId,
        /// Whether the transaction is committed; otherwise it is aborted.
        is_committed: bool,
    },
}

/// Replays an entry of `__consumer_offsets`.
pub fn replay_entry(loader: &mut Loader, entry: LogEntry<'_>) -> Result<(), RecordError> {
    match entry {
        LogEntry::Record { offset, transaction, key: Some(key), value } => {
            loader.replay_at(offset, transaction, key, value)
        }
        LogEntry::Record { key: None, .. } => Ok(()),
        LogEntry::TransactionEnd { producer, is_committed } => {
            loader.end_transaction(producer, is_committed);
            Ok(())
        }
    }
}

/// Calls `take` with every record and every end of a transaction, in order. Returns the end of the range, which is that
/// of the range at the beginning. Fails with the first record that `take` refuses.
pub fn for_each_entry<E: std::fmt::Display>(
    partition: &Arc<Partition>,
    range: Range,
    mut take: impl FnMut(LogEntry<'_>) -> Result<(), E>,
) -> Result<Offset, ReadLogError> {
    let (start, log_end) = partition.with_log(|log| (log.log_start_offset(), log.log_end_offset()));
    let end = match range.isolation {
        Isolation::LogEnd => log_end,
        Isolation::Committed | Isolation::Stable => partition.high_watermark().min(log_end),
    };
    let mut offset = range.from.unwrap_or(start);
    let mut cursor = ReadCursor::default();
    let (mut chunk, mut window) = (Vec::new(), Vec::new());
    while offset < end {
        let request = ReadRequest {
            cursor,
            any_role: range.any_role,
            ..ReadRequest::at(offset, CHUNK_BYTES, range.isolation)
        };
        let Some(slice) = partition.read(&request)?.slice else {
            let reason = format!("nothing stands there, and the log ends at {end}");
            return Err(ReadLogError::Malformed { offset, reason });
        };
        cursor = slice.next;
        chunk.resize(slice.size_bytes as usize, 0);
        let read = slice.file.read_at(&mut chunk, slice.position)?;
        chunk.truncate(read);
        let before = offset;
        let due = Due { offset, end, is_log_start: offset == start };
        offset = each_in(&chunk, &due, &mut window, &mut take)?;
        if offset <= before {
            let reason = "nothing could be read".to_owned();
            return Err(ReadLogError::Malformed { offset, reason });
        }
    }
    Ok(end)
}

/// What a chunk must hold.
struct Due {
    /// The first offset that was not taken yet.
    offset: Offset,
    /// The log's end.
    end: Offset,
    /// Whether the offset is the log's start, which may lie within a batch.
    is_log_start: bool,
}

/// Takes the records of a chunk. Returns the offset behind the last batch.
fn each_in<E: std::fmt::Display>(
    chunk: &[u8],
    due: &Due,
    window: &mut Vec<u8>,
    take: &mut impl FnMut(LogEntry<'_>) -> Result<(), E>,
) -> Result<Offset, ReadLogError> {
    let mut next = due.offset;
    for batch in Batches::new(chunk) {
        let malformed = |reason: String| ReadLogError::Malformed { offset: next, reason };
        let (_, bytes) = batch.map_err(|error| malformed(error.to_string()))?;
        let header =
            BatchHeader::decode_checked(bytes).map_err(|error| malformed(error.to_string()))?;
        if header.base_offset >= due.end {
            // Written, or committed, since the beginning.
            break;
        }
        let may_begin_earlier = due.is_log_start && next == due.offset;
        let goes_back = header.base_offset < next && !may_begin_earlier;
        if goes_back || header.next_offset() <= next || header.next_offset() > due.end {
            let (first, last, end) = (header.base_offset, header.last_offset(), due.end);
            let reason =
                format!("a batch there has offsets {first} to {last}, and the log ends at {end}");
            return Err(malformed(reason));
        }
        if let Some(marker) = TransactionMarker::read(&header, bytes) {
            let producer = header.producer_id;
            let end = LogEntry::TransactionEnd { producer, is_committed: !marker.aborts };
            take(end).map_err(|error| malformed(error.to_string()))?;
        }
        if !header.is_control() {
            let transaction = header.is_transactional().then_some(header.producer_id);
            let mut records = RecordStream::new(&header, bytes, u64::MAX, window);
            while let Some(record) = records.next_within(RECORD_BYTES_MAX) {
                let (record, _) = record.map_err(|error| malformed(error.to_string()))?;
                let offset = header.base_offset.plus(i64::from(record.offset_delta));
                if offset >= due.offset {
                    let (key, value) = (record.key, record.value);
                    let taken = take(LogEntry::Record { offset, transaction, key, value });
                    taken.map_err(|error| ReadLogError::Malformed {
                        offset,
                        reason: error.to_string(),
                    })?;
                }
            }
            records.finish().map_err(|error| malformed(error.to_string()))?;
        }
        next = header.next_offset();
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use model::record::BatchBuilder;
    use model::{BrokerId, Compression, LeaderEpoch, Moment, Timestamp, TopicPartition, Uuid};
    use partition::{Acks, Append, Assignment, Settings};
    use storage::disk::{Disk, SimDisk};
    use storage::{Log, LogConfig, Opening};

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);
    const MIB: usize = 1 << 20;
    /// How many records of one MiB the batch has.
    const COUNT: i32 = 256;

    /// A batch of zeros, a thousandth of their size.
    fn zeros(codec: Compression) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        let value = vec![0; MIB];
        (0..COUNT).for_each(|_| builder.add(NOW, Some(b"key"), Some(&value)));
        let mut compressed = Vec::new();
        compression::compress(codec, None, builder.records(), &mut compressed);
        builder.finish_compressed(codec, &compressed)
    }

    fn partition_of(mut batch: Vec<u8>) -> Arc<Partition> {
        let disk = SimDisk::new();
        disk.create_dir_all(Path::new("data/t-0")).unwrap();
        let log = LogConfig { max_message_bytes: 4 << 20, ..LogConfig::default() };
        let log = Arc::new(log);
        let settings = Settings { log, expanded_bytes_max: usize::MAX, ..Settings::default() };
        let (dir, opening) = (Path::new("data/t-0").to_owned(), Opening::unknown(NOW));
        let log = Log::open(Arc::new(disk), dir, settings.log.clone(), opening).unwrap();
        let (name, me, id) = (TopicPartition::new("t", 0), BrokerId(1), Uuid::from_random([1; 16]));
        let settings = Arc::new(settings);
        let partition = Partition::new(name, id, me, log, settings, Offset(0), Arc::default());
        partition.assign(Assignment::alone(me, LeaderEpoch(0)), Moment::START);
        let how = Append { acks: Acks::Leader, now: NOW, internal: false };
        partition.append(&mut batch, how).expect("it is appended");
        partition
    }

    fn status_bytes(field: &str) -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
    }

    const CHILD: &str = "HIGHWATER_TEST_READ_LOG";

    /// Memory is measured of the process, so this is done in one of its own, without other tests.
    #[test]
    fn a_batch_that_expands_a_thousandfold_is_read_in_little_memory() {
        if std::env::var_os(CHILD).is_none() {
            let name =
                "read_log::tests::a_batch_that_expands_a_thousandfold_is_read_in_little_memory";
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args([name, "--exact", "--nocapture"]).env(CHILD, "1");
            let output = child.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
            return;
        }
        for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd] {
            let batch = zeros(codec);
            assert!(batch.len() < COUNT as usize * MIB / 200, "{codec:?}: {} bytes", batch.len());
            let partition = partition_of(batch);
            // Makes the kernel forget the peak so far.
            std::fs::write("/proc/self/clear_refs", "5").unwrap();
            let before = status_bytes("VmRSS:");
            let mut count = 0;
            let end = for_each_entry(&partition, Range::ALL, |entry| {
                let LogEntry::Record { key, value, .. } = entry else { unreachable!() };
                assert_eq!((key, value.map(<[u8]>::len)), (Some(&b"key"[..]), Some(MIB)));
                count += 1;
                Ok::<_, String>(())
            });
            assert_eq!((end.unwrap(), count), (Offset(i64::from(COUNT)), COUNT), "{codec:?}");
            let grown = status_bytes("VmHWM:").saturating_sub(before) / MIB;
            assert!(grown < 96, "{codec:?}: {grown} MiB");
        }
    }
}
