//! Files of logs on the machine's own disk, of which only so many may be open: who is woken when one is
//! closed, and that no file is open of which the thread that closes files does not know.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use model::record::BatchBuilder;
use model::{BrokerId, LeaderEpoch, Moment, Offset, Timestamp, TopicPartition, Uuid};
use parking_lot::{Mutex, MutexGuard};
use partition::{
    Acks, AheadWritten, Append, Assignment, Isolation, OffsetQuery, Partition, ReadRequest,
    Settings, Urgency,
};
use storage::disk::{Disk, OpenMode, RealDisk, reserve};
use storage::{CleanupPolicy, Log, LogConfig, Opening};
use tempfile::TempDir;

const NOW: Timestamp = Timestamp(1_000_000);
/// Far more than any test tries, for tests that would go on for ever.
const ATTEMPTS_MAX: usize = 100;

/// What is counted is counted for the whole process.
static TURN: Mutex<()> = Mutex::new(());

/// A turn in which no other test opens files; all may be open again afterwards.
struct Turn(#[allow(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

impl Turn {
    fn take() -> Turn {
        let turn = Turn(TURN.lock());
        assert_eq!(reserve::open_files(), 0);
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        reserve::bound_files(usize::MAX);
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Woken {
    /// How often since the last call.
    fn taken(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

fn task() -> (Arc<Woken>, Waker) {
    let woken = Arc::new(Woken::default());
    (Arc::clone(&woken), Waker::from(woken))
}

#[test]
fn a_closed_file_wakes_one_task_once_in_the_order_in_which_they_asked() {
    let _turn = Turn::take();
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str| RealDisk.open(&dir.path().join(name), OpenMode::Create).unwrap();
    let (first, second, third) = (open("1"), open("2"), open("3"));
    let ((early, early_waker), (late, late_waker)) = (task(), task());
    let before = reserve::closings();
    reserve::on_room(&early_waker, before);
    reserve::on_room(&early_waker, before);
    reserve::on_room(&late_waker, before);
    assert_eq!((early.taken(), late.taken()), (0, 0));
    drop(first);
    assert_eq!((early.taken(), late.taken()), (1, 0));
    drop(second);
    assert_eq!((early.taken(), late.taken()), (0, 1));
    // Closed between the attempt and the question: that is told no more, so the task is woken now.
    let before = reserve::closings();
    drop(third);
    assert_eq!((early.taken(), late.taken()), (0, 0), "each asks anew");
    reserve::on_room(&early_waker, before);
    assert_eq!(early.taken(), 1);
    drop(open("4"));
}

#[test]
fn tasks_that_the_system_refuses_wake_neither_themselves_nor_each_other() {
    let _turn = Turn::take();
    let dir = tempfile::tempdir().unwrap();
    let (missing, there) = (dir.path().join("missing"), dir.path().join("there"));
    let held = RealDisk.open(&dir.path().join("held"), OpenMode::Create).unwrap();
    let attempt = || {
        reserve::at_once(|| {
            // One file can be opened, and not the next one, as when the system has one descriptor left.
            let _closed_again = RealDisk.open(&there, OpenMode::Create).unwrap();
            RealDisk.open(&missing, OpenMode::Read).expect_err("it is not there");
        });
    };
    let tasks = [task(), task()];
    let mut attempts = 0;
    let mut try_all = |is_due: &dyn Fn(&Woken) -> bool| {
        let mut tried = false;
        for (woken, waker) in &tasks {
            if is_due(woken) {
                let before = reserve::closings();
                attempt();
                reserve::on_room(waker, before);
                (attempts, tried) = (attempts + 1, true);
            }
        }
        tried && attempts < ATTEMPTS_MAX
    };
    try_all(&|_| true);
    while try_all(&|woken| woken.taken() > 0) {}
    assert_eq!(attempts, tasks.len(), "each tries once and is woken by nobody");
    drop(held);
    assert_eq!(tasks[0].0.taken(), 1, "a file that others had open is closed");
    drop(RealDisk.open(&there, OpenMode::Create).unwrap());
    assert_eq!(tasks[1].0.taken(), 1);
}

struct Bench {
    _turn: Turn,
    dir: TempDir,
    partition: Arc<Partition>,
}

/// A partition on the machine's disk, with an index entry for almost every batch.
fn bench(log: LogConfig) -> Bench {
    let (turn, dir) = (Turn::take(), tempfile::tempdir().unwrap());
    let log = LogConfig { index_interval_bytes: 1, ..log };
    let settings = Arc::new(Settings { log: Arc::new(log), ..Settings::default() });
    let opening = Opening::unknown(NOW);
    let path = dir.path().join("t-0");
    let log = Log::open(Arc::new(RealDisk), path, Arc::clone(&settings.log), opening).unwrap();
    let (name, me) = (TopicPartition::new("t", 0), BrokerId(1));
    let id = Uuid::from_random([1; 16]);
    let partition = Partition::new(name, id, me, log, settings, Offset(0), Arc::default());
    partition.assign(Assignment::alone(me, LeaderEpoch(0)), Moment::START);
    Bench { _turn: turn, dir, partition }
}

impl Bench {
    /// As many batches of one record, each a millisecond younger than the one before.
    fn append(&self, batches: usize) {
        for _ in 0..batches {
            let end = self.partition.with_log(Log::log_end_offset);
            let mut batch = BatchBuilder::new();
            batch.add(NOW.plus_ms(end.0), Some(b"key"), Some(&[7; 60]));
            let how = Append { acks: Acks::Leader, now: NOW, internal: false };
            self.partition.append(&mut batch.finish(), how).unwrap();
        }
    }

    fn sync(&self) {
        self.partition.request_sync();
        self.partition.begin_sync(Urgency::Now).unwrap().run().unwrap();
    }

    /// Makes the log have zeros ahead.
    fn write_ahead(&self) {
        loop {
            self.append(1);
            self.sync();
            match self.partition.write_ahead() {
                AheadWritten::Nothing => {}
                AheadWritten::Done => return,
                AheadWritten::Failed(cause) => panic!("{cause}"),
            }
        }
    }

    /// Does `work`, of which nothing was open before; all that it opened is known, and closed then.
    fn is_known_after(&self, what: &str, work: impl FnOnce(&Partition)) {
        assert_eq!((reserve::open_files(), self.partition.may_hold_files()), (0, false), "{what}");
        work(&self.partition);
        assert!(reserve::open_files() > 0, "{what} opens files");
        assert!(self.partition.may_hold_files(), "{what}");
        // The first look finds them used, the second does not.
        for _ in 0..2 {
            self.partition.release_files_in_need(Log::release_idle_files).unwrap();
            let is_open = reserve::open_files() > 0;
            assert!(self.partition.may_hold_files() || !is_open, "{what}");
        }
        assert_eq!((reserve::open_files(), self.partition.may_hold_files()), (0, false), "{what}");
        work_is_closed_at_once(&self.partition);
    }

    fn file_bytes(&self) -> u64 {
        let base = self.partition.with_log(Log::active_base_offset);
        let path = self.dir.path().join(Path::new("t-0")).join(format!("{:020}.log", base.0));
        std::fs::metadata(path).unwrap().len()
    }
}

fn work_is_closed_at_once(partition: &Partition) {
    partition.read(&ReadRequest::at(Offset(1), 1 << 20, Isolation::LogEnd)).unwrap();
    assert!(partition.may_hold_files());
    partition.release_files_in_need(Log::release_files).unwrap();
    assert_eq!((reserve::open_files(), partition.may_hold_files()), (0, false));
}

fn find(partition: &Partition, query: OffsetQuery) -> Offset {
    partition.find_offset(query, None).unwrap().expect("there are such records").offset
}

#[test]
fn no_file_is_open_of_which_the_partition_does_not_know() {
    let bench = bench(LogConfig { segment_bytes: 20_000, ..LogConfig::default() });
    bench.append(20);
    bench.sync();
    bench.partition.release_files_in_need(Log::release_files).unwrap();
    bench.is_known_after("a checkpoint", |partition| {
        assert_eq!(partition.checkpoint(1).unwrap(), Some(Offset(20)));
    });
    bench.is_known_after("a search for a time", |partition| {
        assert_eq!(find(partition, OffsetQuery::Timestamp(NOW.plus_ms(15))), Offset(15));
    });
    bench.is_known_after("a search for the newest record", |partition| {
        assert_eq!(find(partition, OffsetQuery::MaxTimestamp), Offset(19));
    });
    bench.write_ahead();
    bench.partition.release_files_in_need(Log::release_files).unwrap();
    bench.is_known_after("giving zeros back", |partition| partition.give_back_ahead().unwrap());
    bench.is_known_after("a roll", |partition| {
        assert!(partition.roll_if_due(NOW.plus_ms(i64::from(u32::MAX))).unwrap());
    });
}

#[test]
fn what_retention_opens_is_known() {
    let bench = bench(LogConfig {
        segment_bytes: 300,
        retention_ms: 1000,
        cleanup: CleanupPolicy { delete: true, compact: false },
        ..LogConfig::default()
    });
    bench.append(20);
    bench.sync();
    bench.partition.checkpoint(1).unwrap();
    bench.partition.release_files_in_need(Log::release_files).unwrap();
    let late = NOW.plus_ms(1_000_000);
    let mut start = None;
    bench.is_known_after("planning retention", |partition| {
        start = partition.plan_retention(late).unwrap();
    });
    let start = start.expect("all are too old");
    bench.partition.retain_from(start).unwrap();
    bench.partition.release_files_in_need(Log::release_files).unwrap();
    assert_eq!((reserve::open_files(), bench.partition.may_hold_files()), (0, false));
}

/// Lets all files be opened from the moment on at which one is refused, before the thread that wants it waits.
struct Relief;

impl Wake for Relief {
    fn wake(self: Arc<Self>) {
        reserve::bound_files(usize::MAX);
    }
}

#[test]
fn zeros_that_cannot_be_given_back_for_lack_of_a_file_are_not_waited_for_and_not_forgotten() {
    let bench = bench(LogConfig::default());
    bench.write_ahead();
    let zeros = bench.partition.with_log(Log::ahead_bytes);
    assert!(zeros > 0);
    bench.partition.release_files_in_need(Log::release_files).unwrap();
    let held = |name| RealDisk.open(&bench.dir.path().join(name), OpenMode::Create).unwrap();
    let held = ["1", "2", "3", "4"].map(held);
    reserve::bound_files(held.len());
    // Whoever waits, while appends wait, finds that it may open the file after all.
    reserve::on_shortage(Waker::from(Arc::new(Relief)));
    bench.partition.give_back_ahead().expect("the disk is well");
    assert_eq!(bench.partition.with_log(Log::ahead_bytes), zeros, "nothing was waited for");
    let size = || bench.partition.with_log(Log::size_bytes);
    assert_eq!(bench.file_bytes(), size() + zeros);

    bench.append(1);
    bench.sync();
    bench.partition.give_back_unused_ahead().unwrap();
    assert!(bench.partition.with_log(Log::is_ahead), "a sync since the last look");
    bench.partition.give_back_unused_ahead().unwrap();
    assert!(!bench.partition.with_log(Log::is_ahead));
    assert_eq!(bench.file_bytes(), size());
    bench.partition.release_files_in_need(Log::release_files).unwrap();
}
