//! What lies between the place of a reader and a log: nothing, or a gap that the reader must be told of.
//!
//! ```text
//!   retention        start ········ end        cut, if epoch e ended before p
//!       p ------------→|                       p' ←------ p
//! ```

use super::id::Position;

/// Why records are missing, or come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// They were removed by retention before they were read.
    Retention,
    /// The log was cut: what was read from `to` on is in it no more.
    Cut,
    /// The topic was deleted and made anew; this one is read from its beginning.
    Recreated,
    /// The reader asked to jump when it is too slow.
    Slow,
}

impl Reason {
    /// The word in an event.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Retention => "retention",
            Reason::Cut => "cut",
            Reason::Recreated => "recreated",
            Reason::Slow => "slow",
        }
    }
}

/// Offsets that are not read as they follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Why.
    pub reason: Reason,
    /// The offset that would have been next.
    pub from: i64,
    /// The offset that is next; below `from` where the log was cut or made anew.
    pub to: i64,
}

/// What is known of a partition's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// The first offset that can be read.
    pub start: i64,
    /// The offset behind the last one that can be read.
    pub end: i64,
    /// Behind the last record of the reader's leader epoch; nothing if that was not asked or is not known.
    pub epoch_end: Option<i64>,
    /// Whether the topic is another one than the reader's, under the same name.
    pub is_another: bool,
}

/// Where a reader goes on, and what it missed.
pub fn resume(position: Position, log: Log) -> (i64, Option<Gap>) {
    let from = position.next();
    let (reason, to) = if log.is_another {
        (Reason::Recreated, log.start)
    } else if log.epoch_end.is_some_and(|end| end < from) {
        (Reason::Cut, log.epoch_end.unwrap_or(from).max(log.start))
    } else if from > log.end {
        (Reason::Cut, log.end)
    } else if from < log.start {
        (Reason::Retention, log.start)
    } else {
        return (from, None);
    };
    (to, Some(Gap { reason, from, to }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: Log = Log { start: 10, end: 20, epoch_end: None, is_another: false };

    fn resumed(offset: i64, log: Log) -> (i64, Option<(Reason, i64, i64)>) {
        let (next, gap) = resume(Position { offset, leader_epoch: 0 }, log);
        (next, gap.map(|gap| (gap.reason, gap.from, gap.to)))
    }

    #[test]
    fn a_place_within_the_log_has_no_gap() {
        assert_eq!(resumed(9, LOG), (10, None));
        assert_eq!(resumed(19, LOG), (20, None));
        assert_eq!(resumed(14, Log { epoch_end: Some(15), ..LOG }), (15, None));
    }

    #[test]
    fn a_place_outside_of_it_has_one_and_says_why() {
        assert_eq!(resumed(8, LOG), (10, Some((Reason::Retention, 9, 10))));
        assert_eq!(resumed(-1, LOG), (10, Some((Reason::Retention, 0, 10))));
        assert_eq!(resumed(20, LOG), (20, Some((Reason::Cut, 21, 20))));
        let cut = Log { epoch_end: Some(13), ..LOG };
        assert_eq!(resumed(14, cut), (13, Some((Reason::Cut, 15, 13))));
        let below = Log { epoch_end: Some(3), ..LOG };
        assert_eq!(resumed(5, below), (10, Some((Reason::Cut, 6, 10))));
        let another = Log { is_another: true, start: 0, ..LOG };
        assert_eq!(resumed(14, another), (0, Some((Reason::Recreated, 15, 0))));
    }
}
