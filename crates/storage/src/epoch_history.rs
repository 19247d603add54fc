//! Where each leader epoch began in this log: the answer to "how far do we agree?" (KIP-101).
//!
//! It can be derived from the batches' headers; the file `leader-epoch-checkpoint` saves reading
//! them. Not here: who leads.

use model::{LeaderEpoch, Offset};

use crate::StorageError;
use crate::checkpoint;
use crate::error::Context;
use crate::names::{Home, LEADER_EPOCHS};

/// The epochs of a log and the offset at which each began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EpochHistory {
    /// Invariant: epochs and start offsets rise strictly.
    entries: Vec<(LeaderEpoch, Offset)>,
}

impl EpochHistory {
    /// These entries; `None` if epochs or offsets do not rise.
    pub(crate) fn of(entries: Vec<(LeaderEpoch, Offset)>) -> Option<EpochHistory> {
        let rise = entries.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1);
        rise.then_some(EpochHistory { entries })
    }

    /// The largest epoch; [`LeaderEpoch::NONE`] if there is none.
    pub(crate) fn latest(&self) -> LeaderEpoch {
        self.entries.last().map_or(LeaderEpoch::NONE, |(epoch, _)| *epoch)
    }

    /// All epochs with their start offsets.
    pub(crate) fn entries(&self) -> &[(LeaderEpoch, Offset)] {
        &self.entries
    }

    /// Notes that the leader epoch `epoch` began at `start`; says whether that was new. Entries that
    /// contradict it go: an epoch at least as large, or one that began no earlier.
    pub(crate) fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> bool {
        if epoch <= self.latest() || epoch < LeaderEpoch(0) {
            return false;
        }
        while self.entries.last().is_some_and(|(_, begun)| *begun >= start) {
            self.entries.pop();
        }
        if self.entries.is_empty() {
            // Most logs have no other.
            self.entries.reserve_exact(1);
        }
        self.entries.push((epoch, start));
        true
    }

    /// Whether the newest epoch begins at `offset`.
    pub(crate) fn begins_at(&self, offset: Offset) -> bool {
        self.entries.last().is_some_and(|(_, start)| *start == offset)
    }

    /// The epochs of which there are records before `log_end`.
    pub(crate) fn written_before(&self, log_end: Offset) -> &[(LeaderEpoch, Offset)] {
        &self.entries[..self.entries.partition_point(|(_, start)| *start < log_end)]
    }

    /// The epoch that `offset` was or will be written in; [`LeaderEpoch::NONE`] before the first.
    pub(crate) fn epoch_at(&self, offset: Offset) -> LeaderEpoch {
        self.entry_at(offset).map_or(LeaderEpoch::NONE, |(epoch, _)| epoch)
    }

    /// The epoch that `offset` was or will be written in, and where it began; `None` before the first.
    pub(crate) fn entry_at(&self, offset: Offset) -> Option<(LeaderEpoch, Offset)> {
        let begun = self.entries.partition_point(|(_, start)| *start <= offset);
        begun.checked_sub(1).map(|last| self.entries[last])
    }

    /// The largest epoch not above `epoch`, and the offset where the next larger one begins, or the
    /// log ends. Epoch and offset -1: nothing is known of so large an epoch.
    pub(crate) fn end_offset_for(
        &self,
        epoch: LeaderEpoch,
        log_end: Offset,
    ) -> (LeaderEpoch, Offset) {
        const UNDEFINED: (LeaderEpoch, Offset) = (LeaderEpoch::NONE, Offset(-1));
        if epoch < LeaderEpoch(0) {
            return UNDEFINED;
        }
        if epoch == self.latest() {
            return (epoch, log_end);
        }
        let larger = self.entries.partition_point(|(known, _)| *known <= epoch);
        let Some((_, end)) = self.entries.get(larger) else { return UNDEFINED };
        // An epoch below all known ones is answered with itself: the log began later.
        let floor = if larger == 0 { epoch } else { self.entries[larger - 1].0 };
        (floor, *end)
    }

    /// Forgets epochs that begin at or behind the log's new end; says whether there were any.
    pub(crate) fn truncate_end(&mut self, log_end: Offset) -> bool {
        let keep = self.entries.partition_point(|(_, start)| *start < log_end);
        let changed = keep < self.entries.len();
        self.entries.truncate(keep);
        changed
    }

    /// Forgets epochs that end at or before the log's new start; the one that `log_start` lies in
    /// begins there from now on. Says whether anything changed.
    pub(crate) fn truncate_start(&mut self, log_start: Offset) -> bool {
        let begun = self.entries.partition_point(|(_, start)| *start <= log_start);
        if begun == 0 || (begun == 1 && self.entries[0].1 == log_start) {
            return false;
        }
        self.entries.drain(..begun - 1);
        self.entries[0].1 = log_start;
        true
    }

    /// The file's content.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let lines = self.entries.iter().map(|(epoch, start)| format!("{epoch} {start}"));
        checkpoint::encode(lines)
    }

    /// Understands a file's content; the error says what is wrong with it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<EpochHistory, String> {
        let mut history = EpochHistory::default();
        for line in checkpoint::decode(bytes)? {
            let (epoch, start) = line.split_once(' ').ok_or("a line is not a pair")?;
            let epoch = LeaderEpoch(epoch.parse().map_err(|_| "invalid leader epoch")?);
            let start = Offset(start.parse().map_err(|_| "invalid offset")?);
            if history.entries.last().is_some_and(|(e, s)| *e >= epoch || *s >= start) {
                return Err("epochs or offsets do not rise".to_owned());
            }
            if epoch < LeaderEpoch(0) || start < Offset(0) {
                return Err("an epoch or offset is negative".to_owned());
            }
            history.entries.push((epoch, start));
        }
        Ok(history)
    }

    /// Reads the file of a partition. `None`: there is none, or it makes no sense; then the batches
    /// are to be asked.
    pub(crate) fn load(home: &Home) -> Result<Option<EpochHistory>, StorageError> {
        let path = home.path(LEADER_EPOCHS);
        match home.disk.read(&path) {
            Ok(bytes) => Ok(EpochHistory::decode(&bytes).ok()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).during("read", &path),
        }
    }

    /// Writes the file of a partition, durably.
    pub(crate) fn store(&self, home: &Home) -> Result<(), StorageError> {
        let path = home.path(LEADER_EPOCHS);
        home.disk.write_atomically(&path, &self.encode()).during("write", &path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(entries: &[(i32, i64)]) -> EpochHistory {
        let entries = entries.iter().map(|(e, s)| (LeaderEpoch(*e), Offset(*s))).collect();
        EpochHistory { entries }
    }

    #[test]
    fn end_of_an_epoch_is_where_the_next_larger_one_begins() {
        let known = history(&[(2, 10), (4, 20), (5, 30)]);
        let end = |epoch| {
            let (epoch, offset) = known.end_offset_for(LeaderEpoch(epoch), Offset(35));
            (epoch.0, offset.0)
        };
        assert_eq!(end(5), (5, 35), "the latest ends where the log does");
        assert_eq!(end(4), (4, 30));
        assert_eq!(end(3), (2, 20), "never heard of: the one before it");
        assert_eq!(end(1), (1, 10), "before the log begins");
        assert_eq!(end(6), (-1, -1), "from a future that this log has not seen");
        assert_eq!(end(-1), (-1, -1));
    }

    #[test]
    fn an_epoch_that_wrote_nothing_gives_way_to_the_next() {
        let mut known = history(&[(1, 0)]);
        assert!(known.assign(LeaderEpoch(2), Offset(10)));
        assert!(known.assign(LeaderEpoch(3), Offset(10)));
        assert!(!known.assign(LeaderEpoch(3), Offset(12)), "known already");
        assert_eq!(known, history(&[(1, 0), (3, 10)]));
    }

    #[test]
    fn truncation_at_both_ends() {
        let mut known = history(&[(1, 0), (2, 10), (3, 20)]);
        assert!(known.truncate_start(Offset(15)));
        assert_eq!(known, history(&[(2, 15), (3, 20)]));
        assert!(!known.truncate_start(Offset(15)));
        assert!(known.truncate_end(Offset(20)));
        assert_eq!(known, history(&[(2, 15)]));
        assert!(!known.truncate_end(Offset(16)));
        assert_eq!(known.epoch_at(Offset(14)), LeaderEpoch::NONE);
        assert_eq!(known.epoch_at(Offset(99)), LeaderEpoch(2));
    }

    #[test]
    fn the_file_is_kafkas() {
        let known = history(&[(0, 0), (7, 123)]);
        assert_eq!(known.encode(), b"0\n2\n0 0\n7 123\n");
        assert_eq!(EpochHistory::decode(&known.encode()), Ok(known));
        for bad in ["", "1\n0\n", "0\n2\n0 0\n", "0\n1\n0\n", "0\n2\n3 0\n2 5\n", "0\n1\nx y\n"] {
            assert!(EpochHistory::decode(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
