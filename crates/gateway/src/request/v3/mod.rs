//! Records in version 3 of Confluent's REST proxy: an object for each, one behind the other. [`split`] finds where each
//! ends, [`record`] reads one.

mod record;
mod split;

pub use record::{Described, Record, Type, Unread, record};
pub use split::{NotSplit, Splitter};

use serving::error::{ApiError, Kind};

use super::draft::RECORDS_MAX;

/// The records of a whole body.
///
/// # Errors
/// The body has none, or too many, or one of them cannot be read; then none is to be sent.
pub fn records(body: &[u8]) -> Result<Vec<Record<'_>>, ApiError> {
    let wrong = |number: usize, kind, why: &str| {
        Err(ApiError::new(kind, format!("object {number}: {why}")))
    };
    let (mut records, mut splitter, mut at) = (Vec::new(), Splitter::default(), 0);
    loop {
        let number = records.len() + 1;
        match splitter.next(&body[at..]) {
            Ok(Some(object)) => {
                if records.len() == RECORDS_MAX {
                    return Err(ApiError::new(Kind::Unprocessable, super::draft::TOO_MANY));
                }
                match record(&body[at + object.start..at + object.end]) {
                    Ok(record) => records.push(record),
                    Err(unread) => return wrong(number, unread.kind(), unread.why()),
                }
                at += object.end;
            }
            Ok(None) if splitter.is_within() => {
                return wrong(number, Kind::Malformed, "the body ends within it");
            }
            Ok(None) if records.is_empty() => {
                return Err(ApiError::new(
                    Kind::Unprocessable,
                    "expected a record, and the body is empty",
                ));
            }
            Ok(None) => return Ok(records),
            Err(not_split) => return wrong(number, Kind::Malformed, &not_split.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_one_object_or_several() {
        let count = |body: &str| {
            records(body.as_bytes())
                .map(|records| records.len())
                .map_err(|error| error.message.into_owned())
        };
        assert_eq!(count("{}"), Ok(1));
        assert_eq!(count(" {}{} \r\n{\"value\":{\"type\":\"STRING\",\"data\":\"}{\"}}\n"), Ok(3));
        for (body, words) in [
            ("", "expected a record"),
            (" \n", "expected a record"),
            ("{}[]", "object 2: "),
            ("{},{}", "object 2: "),
            ("{}{", "object 2: the body ends within it"),
            ("{}{\"value\":1}", "object 2: "),
            ("{}{'a'}", "object 2: "),
        ] {
            let error = count(body).unwrap_err();
            assert!(error.starts_with(words), "{body}: {error}");
        }
        let many = "{}".repeat(RECORDS_MAX);
        assert_eq!(count(&many), Ok(RECORDS_MAX));
        assert!(count(&(many + "{}")).is_err());
    }
}
