//! A line for each record (NDJSON): each an object as in the list of a REST proxy, or the value itself.

use std::borrow::Cow;

use serving::error::{ApiError, Kind};

use super::draft::{Draft, RECORDS_MAX, TOO_MANY, Written, unreadable};
use super::form::Embedded;
use super::object::Object;

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lines {
    /// A record: an object with key, value and the rest.
    Records(Embedded),
    /// The value of a record, as it stands.
    Values,
}

/// The records of a body. Lines without anything on them are left out.
///
/// # Errors
/// There are no lines, or one of them cannot be read.
pub fn drafts_of_lines(body: &[u8], lines: Lines) -> Result<Vec<Draft<'_>>, ApiError> {
    let mut drafts = Vec::new();
    for (number, line) in (1..).zip(body.split(|byte| *byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.iter().all(|byte| matches!(byte, b' ' | b'\t')) {
            continue;
        }
        if drafts.len() == RECORDS_MAX {
            return Err(ApiError::new(Kind::Unprocessable, TOO_MANY));
        }
        drafts.push(draft(line, lines, number)?);
    }
    match drafts.is_empty() {
        true => Err(ApiError::new(Kind::Unprocessable, "expected at least one line")),
        false => Ok(drafts),
    }
}

fn draft(line: &[u8], lines: Lines, number: usize) -> Result<Draft<'_>, ApiError> {
    let Lines::Records(embedded) = lines else {
        return Ok(Draft { value: Some(Cow::Borrowed(line)), ..Draft::default() });
    };
    let place = || format!("line {number}: ");
    let Object::<Written<'_>>(written) =
        serde_json::from_slice(line).map_err(|error| unreadable(&error, &place()))?;
    written.draft(embedded).map_err(|why| ApiError::new(Kind::Unprocessable, place() + &why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(body: &str, lines: Lines) -> Vec<String> {
        let drafts = drafts_of_lines(body.as_bytes(), lines).unwrap();
        let text = |draft: Draft<'_>| String::from_utf8(draft.value.unwrap().into_owned()).unwrap();
        drafts.into_iter().map(text).collect()
    }

    #[test]
    fn each_line_is_a_record() {
        let body =
            "{\"value\":1}\n\n{\"value\": {\"a\": 2}}\r\n   \n{\"value\":\"x\",\"key\":null}";
        let records = Lines::Records(Embedded::Json);
        assert_eq!(values(body, records), ["1", "{\"a\":2}", "\"x\""]);
        let text = Lines::Records(Embedded::Text);
        assert_eq!(values("{\"value\":\"x\"}\n", text), ["x"]);
    }

    #[test]
    fn a_line_may_be_the_value_itself() {
        let body = "{\"a\": 1}\nplain text\r\n";
        assert_eq!(values(body, Lines::Values), ["{\"a\": 1}", "plain text"]);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        for (body, kind, words) in [
            ("{\"value\":1}\n{", Kind::Malformed, "line 2: "),
            ("{\"value\":1}\n\n[1]", Kind::Unprocessable, "line 3: "),
            ("{\"value\":1} {\"value\":2}", Kind::Malformed, "line 1: "),
            ("\n\n", Kind::Unprocessable, "at least one line"),
            ("", Kind::Unprocessable, "at least one line"),
        ] {
            let records = Lines::Records(Embedded::Json);
            let error = drafts_of_lines(body.as_bytes(), records).unwrap_err();
            assert_eq!(error.kind, kind, "{body:?}: {error:?}");
            assert!(error.message.contains(words), "{body:?}: {error:?}");
        }
        let many = "{}\n".repeat(RECORDS_MAX + 1);
        let error = drafts_of_lines(many.as_bytes(), Lines::Records(Embedded::Json)).unwrap_err();
        assert_eq!(error.message, TOO_MANY);
    }
}
