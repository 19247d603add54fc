//! What the log costs: appends of three sizes, reads, index look-ups, recovery, opening.
//!
//! `cargo bench -p storage`. The directory is a temporary one; `TMPDIR` chooses the disk. Nothing is
//! synced: these are the costs that are paid per request, not those that a flusher pays for many.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use model::record::BatchBuilder;
use model::{BatchHeader, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use storage::disk::RealDisk;
use storage::{Log, LogConfig, Opening};

const NOW: Timestamp = Timestamp(1_700_000_000_000);
/// A log that grew so large starts anew, so that the page cache stays within bounds.
const LOG_BYTES_MAX: u64 = 1 << 30;

fn batch(size: usize, producer: bool) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    if producer {
        builder = builder.producer(ProducerId(1), ProducerEpoch(0), Sequence(0));
    }
    let value = vec![b'v'; 100.min(size - 75)];
    while builder.is_empty() || builder.size_bytes() + 110 < size {
        builder.add(NOW, None, Some(&value));
    }
    builder.finish()
}

fn config() -> Arc<LogConfig> {
    Arc::new(LogConfig { segment_bytes: 256 << 20, ..LogConfig::default() })
}

fn open(dir: PathBuf, opening: Opening) -> Log {
    Log::open(Arc::new(RealDisk), dir, config(), opening).expect("the directory can be used")
}

/// Appends the batch at the log's end, as a leader stamps it.
fn append(log: &mut Log, bytes: &mut [u8], header: &mut BatchHeader) {
    header.base_offset = log.log_end_offset();
    model::batch::stamp(bytes, header.base_offset, LeaderEpoch(0));
    log.append(bytes, std::slice::from_ref(header), NOW).expect("the disk takes it");
    if header.producer_id.is_idempotent() {
        header.base_sequence = header.last_sequence().plus(1);
    }
}

fn filled(dir: PathBuf, bytes: u64, size: usize) -> Log {
    let mut log = open(dir, Opening::unknown(NOW));
    let mut batch = batch(size, false);
    let mut header = BatchHeader::decode(&batch).expect("a batch");
    while log.size_bytes() < bytes {
        append(&mut log, &mut batch, &mut header);
    }
    log
}

fn appends(c: &mut Criterion) {
    let mut group = c.benchmark_group("append");
    let sizes = [("1 KiB", 1 << 10), ("16 KiB", 16 << 10), ("1 MiB", 1 << 20)];
    for ((name, size), producer) in sizes.into_iter().flat_map(|s| [(s, false), (s, true)]) {
        let mut bytes = batch(size, producer);
        let mut header = BatchHeader::decode(&bytes).expect("a batch");
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        let name = if producer { format!("{name}, idempotent") } else { name.to_owned() };
        group.bench_function(name, |b| {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let mut log = open(dir.path().join("t-0"), Opening::unknown(NOW));
            b.iter_custom(|count| {
                let mut spent = Duration::ZERO;
                for _ in 0..count {
                    if log.size_bytes() > LOG_BYTES_MAX {
                        log.truncate_fully_and_start_at(Offset(0)).expect("the disk empties it");
                    }
                    let start = Instant::now();
                    append(&mut log, &mut bytes, &mut header);
                    spent += start.elapsed();
                }
                spent
            });
        });
    }
    group.finish();
}

fn reads(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let log = filled(dir.path().join("t-0"), 600 << 20, 4 << 10);
    let end = log.log_end_offset();
    let mut group = c.benchmark_group("read");
    let mut offset = 0i64;
    group.bench_function("look-up of any offset", |b| {
        b.iter(|| {
            offset = (offset + 7_919_993) % end.0;
            black_box(log.read(Offset(offset), end, 1 << 20, true).expect("it is there"))
        });
    });
    let tail = Offset(end.0 - 30);
    group.bench_function("look-up near the end", |b| {
        b.iter(|| black_box(log.read(tail, end, 1 << 20, true).expect("it is there")));
    });
    let before = log.read(Offset(0), tail, 1, true).expect("it is there").expect("it is there");
    group.bench_function("by cursor, 1 MiB", |b| {
        let mut cursor = before.next;
        let mut offset = Offset(-1);
        b.iter(|| {
            let mut slice = log.read_from(&cursor, offset, end, 1 << 20, true).ok().flatten();
            if slice.is_none() {
                slice = log.read(Offset(0), end, 1 << 20, true).expect("it is there");
            }
            let slice = slice.expect("it is there");
            offset = slice.next.offset().unwrap_or(Offset(-1));
            cursor = slice.next;
            black_box(slice.size_bytes)
        });
    });
    let mut buffer = vec![0; 1 << 20];
    group.throughput(Throughput::Bytes(1 << 20));
    group.bench_function("copy of 1 MiB", |b| {
        let slice = log.read(Offset(0), end, 1 << 20, true).expect("it is there").expect("data");
        b.iter(|| slice.file.read_at(black_box(&mut buffer), slice.position).expect("it is there"));
    });
    group.finish();
}

fn times(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut log = open(dir.path().join("t-0"), Opening::unknown(NOW));
    for n in 0..100_000i64 {
        let mut builder = BatchBuilder::new().placed(log.log_end_offset(), LeaderEpoch(0));
        (0..10).for_each(|i| builder.add(NOW.plus_ms(n * 10 + i), None, Some(&[b'v'; 100])));
        let bytes = builder.finish();
        let header = BatchHeader::decode(&bytes).expect("a batch");
        log.append(&bytes, &[header], NOW).expect("the disk takes it");
    }
    let mut at = 0i64;
    c.bench_function("look-up by time", |b| {
        b.iter(|| {
            at = (at + 7_919) % 1_000_000;
            black_box(log.find_by_timestamp(NOW.plus_ms(at), log.log_end_offset()).expect("ok"))
        });
    });
}

fn recovery(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("t-0");
    let size = filled(path.clone(), 256 << 20, 16 << 10).size_bytes();
    let mut group = c.benchmark_group("recovery");
    group.throughput(Throughput::Bytes(size)).sample_size(10);
    group.bench_function("of everything", |b| {
        b.iter(|| {
            let log = open(path.clone(), Opening::unknown(NOW));
            assert_eq!(log.recovery().expect("it was not closed").scanned_bytes, size);
        });
    });
    group.finish();
}

fn openings(c: &mut Criterion) {
    const PARTITIONS: usize = 1000;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = |n: usize| dir.path().join(format!("t-{n}"));
    for n in 0..PARTITIONS {
        let mut log = filled(path(n), 20_000, 1 << 10);
        log.close().expect("the disk takes it");
    }
    let mut group = c.benchmark_group("opening");
    group.throughput(Throughput::Elements(PARTITIONS as u64)).sample_size(10);
    let clean = || Opening { clean: true, ..Opening::unknown(NOW) };
    group.bench_function("clean, of 1000 partitions", |b| {
        b.iter(|| (0..PARTITIONS).map(|n| open(path(n), clean())).collect::<Vec<_>>());
    });
    group.finish();
}

criterion_group!(benches, appends, reads, times, recovery, openings);
criterion_main!(benches);
