//! Zeros that are being written ahead of a log while something else happens to it. The order of events
//! decides: the writing waits at a gate.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use model::record::BatchBuilder;
use model::{BrokerId, LeaderEpoch, Moment, Offset, Timestamp, TopicPartition, Uuid};
use parking_lot::{Condvar, Mutex};
use partition::{
    Acks, AheadWritten, Append, Assignment, Partition, PartitionError, Settings, Status, SyncQueue,
    Urgency,
};
use rustix::io::Errno;
use storage::disk::{Disk, DiskFile, FileLock, OpenMode, SimDisk};
use storage::{Log, LogConfig, Opening};

/// How long anything may take on a machine that is busy with much else.
const PATIENCE: Duration = Duration::from_secs(40);
/// Bytes of zeros that are written at once.
const PORTION: u32 = 4096;
const NOW: Timestamp = Timestamp(1_000_000);

/// A disk that keeps zeros waiting before they are written.
#[derive(Clone, Debug)]
struct ZerosAtGate {
    disk: SimDisk,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    is_waiting: bool,
    /// Whether the first file that is cut opens the gate.
    opens_at_cut: bool,
}

impl Gate {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        state.is_waiting = state.closed;
        self.changed.notify_all();
        self.changed.wait_while(&mut state, |state| state.closed);
    }

    fn wait_for_zeros(&self) {
        let mut state = self.state.lock();
        let late = |state: &mut State| !state.is_waiting;
        assert!(!self.changed.wait_while_for(&mut state, late, PATIENCE).timed_out());
    }
}

#[derive(Debug)]
struct File {
    file: Arc<dyn DiskFile>,
    gate: Arc<Gate>,
}

impl DiskFile for File {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        if bytes.iter().all(|byte| *byte == 0) {
            self.gate.pass();
        }
        self.file.write_all_at(bytes, position)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        let cut = self.file.truncate(size);
        self.gate.change(|state| state.closed &= !state.opens_at_cut);
        cut
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn preallocate(&self, from: u64, bytes: u64) -> io::Result<()> {
        self.file.preallocate(from, bytes)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_fd()
    }
}

impl Disk for ZerosAtGate {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(path, mode)?;
        Ok(Arc::new(File { file, gate: Arc::clone(&self.gate) }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.disk.read(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn modified(&self, path: &Path) -> io::Result<Timestamp> {
        self.disk.modified(path)
    }

    fn set_modified(&self, path: &Path, time: Timestamp) -> io::Result<()> {
        self.disk.set_modified(path, time)
    }

    fn exists(&self, path: &Path) -> bool {
        self.disk.exists(path)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir_all(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<FileLock>> {
        self.disk.lock(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn sync_all_below(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_all_below(dir)
    }
}

struct Bench {
    disk: ZerosAtGate,
    queue: Arc<SyncQueue>,
    partition: Arc<Partition>,
}

fn dir() -> PathBuf {
    Path::new("data").join("t-0")
}

impl Bench {
    /// A log that wants zeros now.
    fn new() -> Bench {
        let disk = ZerosAtGate { disk: SimDisk::new(), gate: Arc::default() };
        disk.create_dir_all(Path::new("data")).unwrap();
        let log = LogConfig { ahead_bytes: PORTION, ahead_after_syncs: 3, ..LogConfig::default() };
        let settings = Arc::new(Settings { log: Arc::new(log), ..Settings::default() });
        let opening = Opening::unknown(NOW);
        let opened = Arc::new(disk.clone());
        let log = Log::open(opened, dir(), Arc::clone(&settings.log), opening).unwrap();
        let (name, me) = (TopicPartition::new("t", 0), BrokerId(1));
        let (id, queue) = (Uuid::from_random([1; 16]), Arc::new(SyncQueue::default()));
        let small_syncs = settings.log.ahead_after_syncs;
        let partition = Partition::new(name, id, me, log, settings, Offset(0), Arc::clone(&queue));
        partition.assign(Assignment::alone(me, LeaderEpoch(0)), Moment::START);
        (0..small_syncs).for_each(|_| append_and_sync(&partition));
        Bench { disk, queue, partition }
    }

    /// As [`Bench::new`], with zeros between the end of the log and those that it wants.
    fn with_zeros() -> Bench {
        let bench = Bench::new();
        assert!(matches!(bench.partition.write_ahead(), AheadWritten::Done));
        while bench.partition.with_log(Log::ahead_bytes) > u64::from(PORTION) / 2 {
            append_and_sync(&bench.partition);
        }
        bench
    }

    fn file_bytes(&self) -> u64 {
        self.disk.disk.size(&dir().join(format!("{:020}.log", 0))).unwrap()
    }

    /// Does `work` while zeros wait to be written, which lets them go on.
    fn while_zeros_wait(&self, opens_at_cut: bool, work: impl FnOnce(&Arc<Partition>)) {
        self.disk.gate.change(|state| (state.closed, state.opens_at_cut) = (true, opens_at_cut));
        let writing = Arc::clone(&self.partition);
        let writing = std::thread::spawn(move || writing.write_ahead());
        self.disk.gate.wait_for_zeros();
        work(&self.partition);
        self.disk.gate.change(|state| state.closed = false);
        assert!(matches!(writing.join().unwrap(), AheadWritten::Done));
    }
}

fn append(partition: &Arc<Partition>) -> Result<(), PartitionError> {
    let mut batch = BatchBuilder::new();
    batch.add(NOW, None, Some(b"value"));
    let how = Append { acks: Acks::Leader, now: NOW, internal: false };
    partition.append(&mut batch.finish(), how).map(drop)
}

fn append_and_sync(partition: &Arc<Partition>) {
    append(partition).unwrap();
    partition.request_sync();
    partition.begin_sync(Urgency::Now).unwrap().run().unwrap();
}

#[test]
fn a_partition_that_is_deleted_while_zeros_are_written_holds_nothing_afterwards() {
    let bench = Bench::new();
    // Nothing of it is checkpointed, so it would hold more than zeros.
    assert!(bench.queue.held().unchecked_bytes() > 0);
    bench.while_zeros_wait(false, |partition| {
        let deleting = Arc::clone(partition);
        // The deletion waits for the chunk that is being written.
        let deleting = std::thread::spawn(move || deleting.mark_deleted());
        while partition.status() != Status::Deleted {
            std::thread::yield_now();
        }
        bench.disk.gate.change(|state| state.closed = false);
        deleting.join().unwrap();
    });
    let held = bench.queue.held();
    let sums = (held.unchecked_bytes(), held.producer_bytes(), held.ahead_bytes());
    assert_eq!(sums, (0, 0, 0));
}

#[test]
fn a_write_that_fails_leaves_no_zeros_behind_its_cut() {
    let bench = Bench::with_zeros();
    let size = bench.partition.with_log(Log::size_bytes);
    bench.while_zeros_wait(true, |partition| {
        let disk = &bench.disk.disk;
        disk.fail_at(disk.operation_count(), Errno::IO);
        append(partition).expect_err("the disk fails");
    });
    assert_eq!(bench.partition.with_log(Log::size_bytes), size);
    assert!(!bench.partition.with_log(Log::is_ahead));
    assert_eq!(bench.file_bytes(), size, "cut where the log ends");
}

#[test]
fn zeros_without_room_that_cannot_be_cut_off_are_a_failure_that_is_told() {
    let bench = Bench::new();
    let disk = &bench.disk.disk;
    disk.limit_capacity(Some(disk.used_bytes() + 1000));
    // The zeros find no room, and the cut behind them fails.
    disk.fail_at(disk.operation_count() + 1, Errno::IO);
    let written = bench.partition.write_ahead();
    assert!(matches!(&written, AheadWritten::Failed(PartitionError::Storage(_))), "{written:?}");
    assert_eq!(bench.partition.status(), Status::Offline);
}
