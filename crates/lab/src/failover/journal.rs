//! What a producing client has said so far: acknowledgements, errors, its end. Written by whoever listens to the client, read
//! by the session.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use experiment::failover::{Acknowledged, Window, flow, longest_gap_us};

/// Errors that are kept in words; the others are only counted.
const ERRORS_KEPT: usize = 5;

/// A client's journal; clones are the same one.
#[derive(Debug, Clone, Default)]
pub(super) struct Journal(Arc<Mutex<Said>>);

#[derive(Debug, Default)]
struct Said {
    /// The client's version, once it is ready.
    version: Option<String>,
    acknowledged: Vec<Acknowledged>,
    /// When acknowledgements came, by partition. Invariant: each list ascends.
    times: BTreeMap<i32, Vec<u64>>,
    failed: u64,
    errors: Vec<String>,
    /// How the client ended, once it has.
    ended: Option<String>,
}

/// Now, microseconds since 1970.
pub(super) fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

impl Journal {
    fn said(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ready(&self, version: &str) {
        self.said().version = Some(version.to_owned());
    }

    pub(super) fn acknowledge(&self, record: Acknowledged) {
        let said = &mut *self.said();
        let times = said.times.entry(record.partition).or_default();
        // Two threads of a client may write their lines in another order than they looked at the clock.
        times.push(times.last().map_or(record.at_us, |last| record.at_us.max(*last)));
        said.acknowledged.push(record);
    }

    pub(super) fn fail(&self, error: &str) {
        let said = &mut *self.said();
        said.failed += 1;
        if said.errors.len() < ERRORS_KEPT && !said.errors.iter().any(|known| known == error) {
            said.errors.push(error.to_owned());
        }
    }

    pub(super) fn end(&self, how: &str) {
        self.said().ended.get_or_insert_with(|| how.to_owned());
    }

    pub(super) fn version(&self) -> Option<String> {
        self.said().version.clone()
    }

    pub(super) fn ended(&self) -> Option<String> {
        self.said().ended.clone()
    }

    /// Records that failed, and some of the errors in words.
    pub(super) fn failures(&self) -> (u64, Vec<String>) {
        let said = self.said();
        (said.failed, said.errors.clone())
    }

    pub(super) fn acknowledged(&self) -> Vec<Acknowledged> {
        self.said().acknowledged.clone()
    }

    /// The longest gap of a partition within a window, microseconds.
    pub(super) fn longest_gap_us(&self, partition: i32, window: Window) -> u64 {
        let said = self.said();
        longest_gap_us(said.times.get(&partition).map_or(&[], Vec::as_slice), window)
    }

    /// Whether a partition's acknowledgements came throughout a window.
    pub(super) fn flows(&self, partition: i32, window: Window, gap_max_us: u64) -> bool {
        let said = self.said();
        flow(said.times.get(&partition).map_or(&[], Vec::as_slice), window, gap_max_us)
    }
}
