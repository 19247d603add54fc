//! How far a consumer group is behind: in records ([`records`]), in time ([`arrivals`]), and over a day ([`history`]).

pub mod arrivals;
pub mod history;
pub mod kept;

/// How many records of a partition a group has not read, if it committed `committed` and the log reaches from `start` to
/// `end` (exclusive). What retention has deleted is not counted: it cannot be read any more. A commit beyond the end,
/// which a log that was cut or made anew leaves behind, is 0.
///
/// CMAK subtracts the sums of a topic instead, and so shows a negative number there.
pub fn records(committed: i64, start: i64, end: i64) -> u64 {
    let unread = end.saturating_sub(committed.max(start));
    u64::try_from(unread).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_records_are_those_that_can_still_be_read() {
        assert_eq!(records(10, 0, 25), 15);
        assert_eq!(records(25, 0, 25), 0);
        assert_eq!(records(10, 20, 25), 5, "retention has passed the group");
        assert_eq!(records(40, 0, 25), 0, "the log was cut");
        assert_eq!(records(i64::MIN, i64::MIN, i64::MAX), i64::MAX as u64);
    }
}
