//! How fast a log grows, by its ends: Kafka numbers every record, so two looks at the end give records a second.
//!
//! Control records of transactions and, in a compacted log, records that are gone count too: offsets are counted.

/// The end of a log at some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// The next offset to be written.
    pub end: i64,
    /// When that was so, in milliseconds.
    pub at_ms: i64,
}

/// Records a second between two looks; `None` if no time lies between them, or the log was cut or made anew.
pub fn per_second(before: Seen, after: Seen) -> Option<f64> {
    let took_ms = after.at_ms.checked_sub(before.at_ms).filter(|ms| *ms > 0)?;
    let records = after.end.checked_sub(before.end).filter(|records| *records >= 0)?;
    Some(records as f64 * 1000.0 / took_ms as f64)
}

/// The sum of what is known; `None` if nothing is.
pub fn sum(rates: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    rates.into_iter().flatten().fold(None, |sum, rate| Some(sum.unwrap_or(0.0) + rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(before: (i64, i64), after: (i64, i64)) -> Option<f64> {
        let seen = |(end, at_ms)| Seen { end, at_ms };
        per_second(seen(before), seen(after))
    }

    #[test]
    fn records_are_counted_by_offsets() {
        assert_eq!(between((100, 0), (250, 15_000)), Some(10.0));
        assert_eq!(between((100, 0), (100, 1)), Some(0.0));
    }

    #[test]
    fn what_cannot_be_known_is_no_number() {
        assert_eq!(between((100, 5), (200, 5)), None);
        assert_eq!(between((100, 5), (200, 4)), None);
        assert_eq!(between((100, 5), (99, 6)), None);
        assert_eq!(between((i64::MIN, 5), (i64::MAX, 6)), None);
        assert_eq!(between((1, i64::MIN), (2, i64::MAX)), None);
    }

    #[test]
    fn a_sum_is_known_if_one_part_is() {
        assert_eq!(sum([Some(1.0), None, Some(2.0)]), Some(3.0));
        assert_eq!(sum([None, None]), None);
    }
}
