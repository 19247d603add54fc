//! Batches whose records cannot be read: they cost whoever met them these records, and are told of
//! once each time somebody asks.

use std::path::PathBuf;

use model::Offset;
use parking_lot::Mutex;

/// A batch of which the records cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableBatch {
    /// The segment's file.
    pub path: PathBuf,
    /// Where in the file the batch begins, in bytes.
    pub position: u64,
    /// Its base offset.
    pub offset: Offset,
    /// What is wrong with it.
    pub reason: String,
}

/// What was met since it was last asked for.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    met: Mutex<Met>,
}

#[derive(Debug, Default)]
struct Met {
    count: u64,
    first: Option<UnreadableBatch>,
}

impl Unreadable {
    /// Notes one.
    pub(crate) fn note(&self, batch: UnreadableBatch) {
        let mut met = self.met.lock();
        met.count += 1;
        met.first.get_or_insert(batch);
    }

    /// How many times one was met since the last call, and the first of them.
    pub(crate) fn take(&self) -> Option<(u64, UnreadableBatch)> {
        let met = std::mem::take(&mut *self.met.lock());
        met.first.map(|first| (met.count, first))
    }
}
