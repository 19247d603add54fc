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
    /// `None`: none. Boxed, for every log has a place for it, and hardly one ever needs it.
    met: Mutex<Option<Box<Met>>>,
}

#[derive(Debug)]
struct Met {
    count: u64,
    first: UnreadableBatch,
}

impl Unreadable {
    /// Notes one.
    pub(crate) fn note(&self, batch: UnreadableBatch) {
        let mut met = self.met.lock();
        match &mut *met {
            Some(met) => met.count += 1,
            None => *met = Some(Box::new(Met { count: 1, first: batch })),
        }
    }

    /// How many times one was met since the last call, and the first of them.
    pub(crate) fn take(&self) -> Option<(u64, UnreadableBatch)> {
        let met = *self.met.lock().take()?;
        Some((met.count, met.first))
    }
}
