//! Where a group goes: a place that means another offset in each partition.

use super::fields::{Fields, Invalid};
use serde_json::{Value, json};

/// Rows of one reset.
const ROWS_MAX: usize = 100_000;

/// A place in partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The first record that is there.
    Earliest,
    /// Behind the last one.
    Latest,
    /// This offset, or the nearest that is there.
    Offset(i64),
    /// The first record that is not older: milliseconds since 1970.
    Time(i64),
    /// So many records on from where the group is; back, if negative.
    Shift(i64),
}

/// What is known of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Known {
    /// Where the group is; `None` if it has committed nothing there.
    pub committed: Option<i64>,
    /// The first offset of the log.
    pub start: i64,
    /// Behind its last record.
    pub end: i64,
    /// The first record that is not older than the time of [`Target::Time`]; `None`: all are older.
    pub at_time: Option<i64>,
}

/// One partition of a reset.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Where the group was when this was reviewed.
    pub from: Option<i64>,
    /// Where it goes.
    pub to: i64,
}

impl Target {
    /// The offset in a partition, never outside of what is there; `None` for a shift of a group that is nowhere.
    pub fn resolve(self, known: &Known) -> Option<i64> {
        let wanted = match self {
            Target::Earliest => known.start,
            Target::Latest => known.end,
            Target::Offset(offset) => offset,
            Target::Time(_) => known.at_time.unwrap_or(known.end),
            Target::Shift(by) => known.committed?.saturating_add(by),
        };
        Some(wanted.clamp(known.start, known.end.max(known.start)))
    }
}

/// The target that a form names: `to`, and the field that goes with it.
///
/// # Errors
/// There is none, or it cannot be used.
pub fn target_of(fields: &Fields) -> Result<Target, Invalid> {
    let needed = |name: &'static str, from: i64| {
        let missing = || Invalid::new(name, "expected a number");
        fields.number(name, from, i64::MAX)?.ok_or_else(missing)
    };
    match fields.get("to") {
        Some("earliest") => Ok(Target::Earliest),
        Some("latest") => Ok(Target::Latest),
        Some("offset") => Ok(Target::Offset(needed("offset", 0)?)),
        Some("time") => Ok(Target::Time(needed("time", 0)?)),
        Some("shift") => Ok(Target::Shift(needed("shift", i64::MIN)?)),
        _ => Err(Invalid::new("to", "expected earliest, latest, offset, time or shift")),
    }
}

/// Rows as a text that a form carries from the review to the doing.
pub fn text_of(rows: &[Row]) -> String {
    let row = |row: &Row| json!([row.topic, row.partition, row.from, row.to]);
    Value::from(rows.iter().map(row).collect::<Vec<_>>()).to_string()
}

/// The rows of such a text; none of an empty one.
///
/// # Errors
/// It is none.
pub fn rows_of(text: &str) -> Result<Vec<Row>, Invalid> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let unreadable = || Invalid::new("rows", "expected the rows of a review");
    let value: Value = serde_json::from_str(text).map_err(|_| unreadable())?;
    let rows = value.as_array().filter(|rows| rows.len() <= ROWS_MAX).ok_or_else(unreadable)?;
    let row = |value: &Value| {
        let [topic, partition, from, to] = value.as_array()?.as_slice() else { return None };
        let offset = |value: &Value| value.as_i64().filter(|offset| *offset >= 0);
        Some(Row {
            topic: topic.as_str()?.to_owned(),
            partition: i32::try_from(partition.as_i64()?).ok().filter(|index| *index >= 0)?,
            from: if from.is_null() { None } else { Some(offset(from)?) },
            to: offset(to)?,
        })
    };
    rows.iter().map(|value| row(value).ok_or_else(unreadable)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KNOWN: Known = Known { committed: Some(50), start: 10, end: 100, at_time: Some(70) };

    #[test]
    fn a_place_is_an_offset_that_is_there() {
        for (target, offset) in [
            (Target::Earliest, 10),
            (Target::Latest, 100),
            (Target::Offset(42), 42),
            (Target::Offset(5), 10),
            (Target::Offset(i64::MAX), 100),
            (Target::Time(0), 70),
            (Target::Shift(7), 57),
            (Target::Shift(-70), 10),
            (Target::Shift(i64::MAX), 100),
        ] {
            assert_eq!(target.resolve(&KNOWN), Some(offset), "{target:?}");
        }
        let nowhere = Known { committed: None, at_time: None, ..KNOWN };
        assert_eq!(Target::Shift(1).resolve(&nowhere), None);
        assert_eq!(Target::Time(9).resolve(&nowhere), Some(100), "all records are older");
    }

    #[test]
    fn a_text_that_is_no_review_is_refused() {
        for text in [
            "x",
            "{}",
            "[1]",
            "[[\"t\",0,null]]",
            "[[\"t\",-1,null,0]]",
            "[[\"t\",0,-1,0]]",
            "[[\"t\",0,null,-1]]",
            "[[\"t\",4294967296,null,1]]",
            "[[1,0,null,1]]",
        ] {
            assert!(rows_of(text).is_err(), "{text}");
        }
        assert_eq!(rows_of(""), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn rows_come_back(topic: String, partition in 0i32.., from in prop::option::of(0i64..), to in 0i64..) {
            let rows = vec![Row { topic, partition, from, to }];
            prop_assert_eq!(rows_of(&text_of(&rows)), Ok(rows));
        }

        #[test]
        fn no_place_is_outside(committed in prop::option::of(any::<i64>()), start in 0i64..1000, length in 0i64..1000, n: i64) {
            let known = Known { committed, start, end: start + length, at_time: Some(n) };
            for target in [Target::Offset(n), Target::Time(n), Target::Shift(n)] {
                if let Some(offset) = target.resolve(&known) {
                    prop_assert!((start..=start + length).contains(&offset));
                }
            }
        }
    }
}
