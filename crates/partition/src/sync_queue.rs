//! Which partitions of one log directory hold bytes that are not synced, and how urgent each is.
//!
//! Demand decides when a log is synced, not the append: a producer with `acks=all`, a coordinator or
//! an administrator's request waits ([`Urgency::Now`]); a consumer has reached the high watermark and
//! there is more behind it ([`Urgency::Reader`]); or no caller waits ([`Urgency::Later`]). Partitions
//! enter here by themselves, under their lock; the flusher of the device takes the partitions of a
//! whole round at once with [`SyncQueue::take`]. There is no clock here: how long each urgency may
//! wait is the caller's decision.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::Waker;

use parking_lot::Mutex;

use crate::held::HeldSums;
use crate::partition::Partition;

/// Bytes that no caller waits for and that one log directory may hold unsynced: from here on they are
/// synced at once, so that the next sync that a caller waits for does not have to write them.
pub const UNSYNCED_BYTES_MAX: u64 = 4 << 20;

/// How urgent the sync of a partition is, the least urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// No caller waits: the sync is due `sync.delay.ms` after the first such write.
    Later,
    /// A consumer waits for records that are written and not synced. Consumers alone cause at most
    /// one round a millisecond.
    Reader,
    /// A producer, a coordinator or a request waits: the next round takes the partition.
    Now,
}

/// How many values [`Urgency`] has.
pub(crate) const URGENCIES: usize = 3;

/// Whether appends to the partitions of a log directory are admitted, as the age of its oldest unfinished write says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum AppendAdmission {
    /// Writes end in time.
    #[default]
    Admitted,
    /// A write hangs: further requests wait in front of the partition, where they hold no thread.
    Deferred,
    /// A write hangs for long: requests are refused, so that those behind them on the same connection go on.
    Refused,
}

/// The partitions of one log directory that want to be synced.
#[derive(Debug, Default)]
pub struct SyncQueue {
    /// The [`AppendAdmission`].
    admission: AtomicU8,
    lists: Mutex<Lists>,
    /// Bytes appended in this directory and not covered by a sync that has begun.
    unsynced_bytes: AtomicU64,
    held: HeldSums,
}

#[derive(Debug, Default)]
struct Lists {
    /// By urgency. Invariant: a partition is in each list at most once; the flags in its state tell.
    waiting: [Vec<Arc<Partition>>; URGENCIES],
    /// The bytes that no caller waits for have become too many.
    is_full: bool,
    /// Who sleeps, and the urgency that the sleeper knew of.
    sleeper: Option<(Option<Urgency>, Waker)>,
}

impl Lists {
    fn most_urgent(&self) -> Option<Urgency> {
        let [later, reader, now] = &self.waiting;
        match (later.is_empty(), reader.is_empty(), now.is_empty()) {
            (_, _, false) => Some(Urgency::Now),
            (false, _, _) if self.is_full => Some(Urgency::Now),
            (_, false, _) => Some(Urgency::Reader),
            (false, _, _) => Some(Urgency::Later),
            (true, true, true) => None,
        }
    }

    /// The sleeper, if there is something more urgent than the sleeper knew.
    fn take_sleeper(&mut self) -> Option<Waker> {
        let urgency = self.most_urgent();
        let (_, waker) = self.sleeper.take_if(|(known, _)| urgency > *known)?;
        Some(waker)
    }
}

impl SyncQueue {
    /// Whether and how appends are admitted. Cheap: one relaxed load.
    pub fn admission(&self) -> AppendAdmission {
        match self.admission.load(Ordering::Relaxed) {
            0 => AppendAdmission::Admitted,
            1 => AppendAdmission::Deferred,
            _ => AppendAdmission::Refused,
        }
    }

    /// Admits, defers or refuses appends from now on. Returns the former admission.
    pub fn set_admission(&self, admission: AppendAdmission) -> AppendAdmission {
        let before = self.admission();
        self.admission.store(admission as u8, Ordering::Relaxed);
        before
    }

    /// What the partitions of this directory hold together.
    pub fn held(&self) -> &HeldSums {
        &self.held
    }

    /// The most urgent demand there is; `None` when all partitions are synced or being synced.
    pub fn most_urgent(&self) -> Option<Urgency> {
        self.lists.lock().most_urgent()
    }

    /// Has `waker` woken once something more urgent than `known` enters. Returns false, and does
    /// nothing, when that is so already.
    pub fn sleep(&self, known: Option<Urgency>, waker: &Waker) -> bool {
        let mut lists = self.lists.lock();
        if lists.most_urgent() > known {
            return false;
        }
        lists.sleeper = Some((known, waker.clone()));
        true
    }

    /// Takes the partitions of one round, those that somebody waits for first; those that nobody
    /// waits for only with `also_later`, or when they hold too many bytes. Each is to be given to
    /// [`Partition::begin_sync`] with its urgency.
    pub fn take(&self, also_later: bool) -> Vec<(Urgency, Arc<Partition>)> {
        let mut lists = self.lists.lock();
        lists.sleeper = None;
        let also_later = also_later || std::mem::take(&mut lists.is_full);
        let mut taken = Vec::new();
        for urgency in [Urgency::Now, Urgency::Reader, Urgency::Later] {
            if urgency != Urgency::Later || also_later {
                let list = &mut lists.waiting[urgency as usize];
                taken.extend(list.drain(..).map(|partition| (urgency, partition)));
            }
        }
        taken
    }

    /// Adds a partition, which is not in this list. Whoever is returned must be woken, preferably
    /// when no lock is held any more.
    #[must_use]
    pub(crate) fn push(&self, urgency: Urgency, partition: Arc<Partition>) -> Option<Waker> {
        let mut lists = self.lists.lock();
        lists.waiting[urgency as usize].push(partition);
        lists.take_sleeper()
    }

    /// Counts bytes that were appended and are not synced. Whoever is returned must be woken.
    #[must_use]
    pub(crate) fn appended(&self, bytes: u64) -> Option<Waker> {
        let before = self.unsynced_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before >= UNSYNCED_BYTES_MAX || before + bytes < UNSYNCED_BYTES_MAX {
            return None;
        }
        let mut lists = self.lists.lock();
        lists.is_full = true;
        lists.take_sleeper()
    }

    /// A sync of `bytes` bytes has begun, or they will never be synced.
    pub(crate) fn taken_care_of(&self, bytes: u64) {
        self.unsynced_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
