//! A log in a temporary directory, and short words for what the tests do with it.

use std::path::PathBuf;
use std::sync::Arc;

use model::batch::Batches;
use model::record::{BatchBuilder, Records};
use model::{BatchHeader, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use storage::disk::{Disk, RealDisk};
use storage::{Log, LogConfig, Opening, StorageError};

pub const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// A directory with a partition's directory in it; gone when dropped.
pub struct Place {
    root: tempfile::TempDir,
    pub config: LogConfig,
}

impl Place {
    pub fn new() -> Place {
        Place::with(LogConfig::default())
    }

    pub fn with(config: LogConfig) -> Place {
        Place { root: tempfile::tempdir().unwrap(), config }
    }

    /// Segments and index intervals so small that a test meets their ends.
    pub fn small() -> Place {
        Place::with(LogConfig {
            segment_bytes: 1000,
            index_interval_bytes: 150,
            ..LogConfig::default()
        })
    }

    pub fn dir(&self) -> PathBuf {
        self.root.path().join("orders-0")
    }

    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::new(RealDisk)
    }

    pub fn try_open(&self, opening: Opening) -> Result<Log, StorageError> {
        Log::open(self.disk(), self.dir(), Arc::new(self.config.clone()), opening)
    }

    /// Opens what was closed.
    pub fn open_clean(&self) -> Log {
        self.try_open(Opening { clean: true, ..Opening::unknown(NOW) }).unwrap()
    }

    /// Opens after a crash.
    pub fn open_unclean(&self, recovery_point: Offset) -> Log {
        self.try_open(Opening { recovery_point, ..Opening::unknown(NOW) }).unwrap()
    }

    /// The names in the partition's directory.
    pub fn names(&self) -> Vec<String> {
        self.disk().list(&self.dir()).unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }
}

/// A record to be: timestamp, key, value.
pub type RecordOf = (Timestamp, Option<Vec<u8>>, Option<Vec<u8>>);

/// A batch to be.
#[derive(Clone, Debug)]
pub struct Batch {
    pub records: Vec<RecordOf>,
    pub epoch: LeaderEpoch,
    pub producer: (ProducerId, ProducerEpoch, Sequence),
    pub flags: i16,
}

impl Batch {
    /// `count` records at one time, without keys.
    pub fn of(count: usize, timestamp: Timestamp) -> Batch {
        let value = Some(vec![b'v'; 40]);
        Batch::records(vec![(timestamp, None, value); count])
    }

    pub fn records(records: Vec<RecordOf>) -> Batch {
        Batch {
            records,
            epoch: LeaderEpoch(0),
            producer: (ProducerId::NONE, ProducerEpoch::NONE, Sequence::NONE),
            flags: 0,
        }
    }

    pub fn epoch(mut self, epoch: i32) -> Batch {
        self.epoch = LeaderEpoch(epoch);
        self
    }

    pub fn producer(mut self, id: i64, epoch: i16, sequence: i32) -> Batch {
        self.producer = (ProducerId(id), ProducerEpoch(epoch), Sequence(sequence));
        self
    }

    pub fn flags(mut self, flags: i16) -> Batch {
        self.flags = flags;
        self
    }

    pub fn bytes(&self, base: Offset) -> Vec<u8> {
        let (id, epoch, sequence) = self.producer;
        let mut builder = BatchBuilder::new()
            .producer(id, epoch, sequence)
            .flags(self.flags)
            .placed(base, self.epoch);
        for (timestamp, key, value) in &self.records {
            builder.add(*timestamp, key.as_deref(), value.as_deref());
        }
        builder.finish()
    }
}

/// Appends at the log end; returns the bytes that were appended.
pub fn append(log: &mut Log, batch: &Batch) -> Vec<u8> {
    let bytes = batch.bytes(log.log_end_offset());
    append_bytes(log, &bytes);
    bytes
}

pub fn append_bytes(log: &mut Log, bytes: &[u8]) {
    let headers: Vec<BatchHeader> = Batches::new(bytes).map(|b| b.unwrap().0).collect();
    let now = headers.last().map_or(NOW, |header| header.max_timestamp);
    log.append(bytes, &headers, now).unwrap();
}

/// Syncs and takes note of it.
pub fn sync(log: &mut Log) -> Offset {
    match log.begin_sync() {
        Some(ticket) => {
            let result = ticket.run();
            log.finish_sync(ticket, result).unwrap()
        }
        None => log.synced_below(),
    }
}

/// Checkpoints; returns the recovery point.
pub fn checkpoint(log: &mut Log) -> Offset {
    match log.begin_checkpoint().unwrap() {
        Some(ticket) => {
            let result = ticket.run();
            log.finish_checkpoint(ticket, result).unwrap()
        }
        None => log.recovery_point(),
    }
}

/// All batches from `offset` to the log end, as a reader gets them in steps of `max_bytes`.
pub fn read_all(log: &Log, offset: Offset, max_bytes: u32) -> Vec<u8> {
    read_to(log, offset, log.log_end_offset(), max_bytes)
}

pub fn read_to(log: &Log, mut offset: Offset, limit: Offset, max_bytes: u32) -> Vec<u8> {
    let mut all = Vec::new();
    let mut cursor = None;
    loop {
        let slice = match &cursor {
            None => log.read(offset, limit, max_bytes, true).unwrap(),
            Some(cursor) => {
                let by_cursor = log.read_from(cursor, offset, limit, max_bytes, true).unwrap();
                let by_offset = log.read(offset, limit, max_bytes, true).unwrap();
                assert_eq!(
                    by_cursor.as_ref().map(|s| (s.position, s.size_bytes)),
                    by_offset.as_ref().map(|s| (s.position, s.size_bytes)),
                    "a cursor reads what an offset does"
                );
                by_cursor
            }
        };
        let Some(slice) = slice else { return all };
        let mut bytes = vec![0; slice.size_bytes as usize];
        let got = slice.file.read_at(&mut bytes, slice.position).unwrap();
        assert_eq!(got, bytes.len(), "the range is in the file");
        for batch in Batches::new(&bytes) {
            let (header, bytes) = batch.expect("a slice is whole batches");
            BatchHeader::decode_checked(bytes).unwrap();
            assert!(header.last_offset() >= offset, "no batch is sent twice");
            offset = header.next_offset();
        }
        all.extend_from_slice(&bytes);
        cursor = Some(slice.next);
    }
}

/// A record read: offset, key, value.
pub type ValueAt = (i64, Option<Vec<u8>>, Option<Vec<u8>>);

/// The values of all records from `offset` on, with their offsets.
pub fn values(log: &Log, offset: Offset) -> Vec<ValueAt> {
    let bytes = read_all(log, offset, 1 << 20);
    let mut found = Vec::new();
    for batch in Batches::new(&bytes) {
        let (header, bytes) = batch.unwrap();
        for record in Records::new(&bytes[model::batch::HEADER_BYTES..], header.record_count) {
            let record = record.unwrap();
            let offset = header.base_offset.0 + record.offset_delta as i64;
            let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
            found.push((offset, owned(record.key), owned(record.value)));
        }
    }
    found
}
