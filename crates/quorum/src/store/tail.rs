//! The end of the log in memory: the newest entries, and every entry that the file lacks.
//!
//! The raft task changes the tail at once. The writer follows on its own thread, in the same order, so the file may
//! lack the newest entries and may still hold entries that a queued truncation removes. Readers take from the tail
//! every entry that the file lacks.

use crate::raft::{Entry, LogId};
use std::collections::VecDeque;

/// Entries that stay decoded although the file has them.
const RECENT_MAX: usize = 64;
/// Bytes of those entries in the log. A larger entry is read again from the file.
const RECENT_BYTES_MAX: u64 = 1 << 20;

/// The newest entries and the sizes of all entries that are not purged.
#[derive(Debug)]
pub(super) struct LogTail {
    /// The newest entry, purged or not.
    last: Option<LogId>,
    /// Invariant: consecutive, ending with `last` unless empty; holds every entry at or above `in_file_below`.
    recent: VecDeque<Entry>,
    /// Index and bytes of every entry that is not purged. Invariant: consecutive, ending with `last` unless empty.
    sizes: VecDeque<(u64, u32)>,
    /// Sum of `sizes`.
    size_bytes: u64,
    /// The file has every entry below this index that is not purged.
    in_file_below: u64,
    /// The first index that each queued truncation removes.
    truncations: VecDeque<u64>,
}

impl LogTail {
    /// The tail of a log whose entries are all in its file.
    pub(super) fn new(last: Option<LogId>, sizes: VecDeque<(u64, u32)>) -> LogTail {
        let in_file_below = last.map_or(0, |id| id.index + 1);
        let (recent, truncations) = (VecDeque::new(), VecDeque::new());
        let mut tail = LogTail { last, recent, sizes, size_bytes: 0, in_file_below, truncations };
        tail.count_bytes();
        tail
    }

    /// The newest entry, purged or not.
    pub(super) fn last(&self) -> Option<LogId> {
        self.last
    }

    /// Bytes of the entries that are not purged.
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Entries that are kept decoded.
    #[cfg(test)]
    pub(super) fn recent_count(&self) -> usize {
        self.recent.len()
    }

    /// The file has every entry below this index that is not purged.
    pub(super) fn in_file_below(&self) -> u64 {
        self.in_file_below
    }

    /// Appends an entry that takes `bytes` bytes in the file.
    pub(super) fn append(&mut self, entry: Entry, bytes: u32) {
        let index = entry.log_id.index;
        self.last = Some(entry.log_id);
        self.recent.push_back(entry);
        self.sizes.push_back((index, bytes));
        self.size_bytes += u64::from(bytes);
    }

    /// Notes that the writer has written the entries below `next`.
    pub(super) fn note_written(&mut self, next: u64) {
        self.in_file_below = self.in_file_below.max(self.valid_below(next));
        self.drop_surplus();
    }

    /// `next`, or the lowest index that a queued truncation removes if that is lower.
    pub(super) fn valid_below(&self, next: u64) -> u64 {
        self.truncations.iter().fold(next, |valid, cut| valid.min(*cut))
    }

    /// Removes the entries from `next` on; `keep` is the newest entry below it.
    pub(super) fn truncate(&mut self, keep: Option<LogId>, next: u64) {
        self.truncations.push_back(next);
        self.in_file_below = self.in_file_below.min(next);
        if self.last.is_some_and(|last| last.index >= next) {
            self.last = keep;
        }
        self.recent.retain(|entry| entry.log_id.index < next);
        self.keep_sizes(0, next);
    }

    /// Notes that the writer has carried out the oldest truncation.
    pub(super) fn note_truncated(&mut self) {
        self.truncations.pop_front();
    }

    /// Removes the entries up to `purged`.
    pub(super) fn purge(&mut self, purged: LogId) {
        let next = purged.index + 1;
        self.recent.retain(|entry| entry.log_id.index >= next);
        self.keep_sizes(next, u64::MAX);
        self.in_file_below = self.in_file_below.max(next);
        if self.last.is_none_or(|last| last.index < next) {
            self.last = Some(purged);
        }
    }

    /// Entries from `from` to `until` (exclusive), up to `max_bytes` bytes and at least one if there is one. `None`:
    /// the first of these entries has to be read from the file.
    pub(super) fn read(&self, from: u64, until: u64, max_bytes: u32) -> Option<Vec<Entry>> {
        let first = self.recent.front()?.log_id.index;
        if from < first {
            return None;
        }
        let mut bytes = 0;
        let sizes = self.sizes.iter().skip(self.sizes.len() - self.recent.len());
        let wanted = self.recent.iter().zip(sizes);
        let wanted = wanted.filter(|(entry, _)| (from..until).contains(&entry.log_id.index));
        let fitting = wanted.enumerate().take_while(|(position, (_, (_, size)))| {
            bytes += u64::from(*size);
            *position == 0 || bytes <= u64::from(max_bytes)
        });
        Some(fitting.map(|(_, (entry, _))| entry.clone()).collect())
    }

    /// Whether this entry is among those that are kept decoded.
    pub(super) fn has(&self, id: LogId) -> bool {
        self.recent.iter().any(|entry| entry.log_id == id)
    }

    /// Drops the oldest decoded entries until few and small ones are left; keeps those that the file lacks.
    fn drop_surplus(&mut self) {
        let newest = self.sizes.iter().rev().take(RECENT_MAX.min(self.recent.len()));
        let mut bytes = 0;
        let kept = newest.take_while(|(_, size)| {
            bytes += u64::from(*size);
            bytes <= RECENT_BYTES_MAX
        });
        let surplus = self.recent.len() - kept.count();
        let below = self.in_file_below;
        let in_file = self.recent.iter().take_while(|entry| entry.log_id.index < below).count();
        self.recent.drain(..surplus.min(in_file));
    }

    fn keep_sizes(&mut self, from: u64, until: u64) {
        self.sizes.retain(|(index, _)| (from..until).contains(index));
        self.count_bytes();
    }

    fn count_bytes(&mut self) {
        self.size_bytes = self.sizes.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::{LeaderId, Payload};

    fn id(term: u64, index: u64) -> LogId {
        LogId::new(LeaderId { term, node_id: 1 }, index)
    }

    fn append(tail: &mut LogTail, term: u64, indexes: std::ops::Range<u64>) {
        for index in indexes {
            tail.append(Entry { log_id: id(term, index), payload: Payload::Blank }, 100);
        }
    }

    fn ids(tail: &LogTail, from: u64, until: u64) -> Option<Vec<LogId>> {
        let entries = tail.read(from, until, u32::MAX)?;
        Some(entries.iter().map(|entry| entry.log_id).collect())
    }

    #[test]
    fn entries_that_the_file_lacks_stay_in_memory() {
        let mut tail = LogTail::new(None, VecDeque::new());
        append(&mut tail, 1, 0..200);
        assert_eq!(ids(&tail, 0, 2), Some(vec![id(1, 0), id(1, 1)]), "none is in the file");
        tail.note_written(150);
        assert_eq!(ids(&tail, 135, 137), None, "64 entries stay, and all behind 150");
        assert_eq!(ids(&tail, 136, 138), Some(vec![id(1, 136), id(1, 137)]));
        tail.note_written(200);
        assert_eq!(tail.recent_count(), RECENT_MAX);
    }

    #[test]
    fn a_queued_truncation_keeps_readers_from_the_entries_that_it_removes() {
        let mut tail = LogTail::new(None, VecDeque::new());
        append(&mut tail, 1, 0..10);
        tail.truncate(Some(id(1, 5)), 6);
        append(&mut tail, 2, 6..8);
        tail.note_written(10);
        assert_eq!(tail.in_file_below(), 6, "the file has 6 to 9 of the earlier leader");
        tail.note_truncated();
        tail.note_written(8);
        assert_eq!((tail.in_file_below(), tail.last()), (8, Some(id(2, 7))));
    }

    #[test]
    fn a_read_takes_at_most_so_many_bytes_and_at_least_one_entry() {
        let mut tail = LogTail::new(None, VecDeque::new());
        append(&mut tail, 1, 0..9);
        assert_eq!(tail.read(2, 9, 250).unwrap().len(), 2);
        assert_eq!(tail.read(2, 9, 1).unwrap().len(), 1);
        assert_eq!(tail.read(9, 12, 1), Some(Vec::new()));
    }
}
