//! Records in one JSON object, as REST proxies have it: `{"records":[{"key":…,"value":…}]}`.

use serde::Deserialize;
use serving::error::{ApiError, Kind};

use super::draft::{Draft, Several, Written, unreadable};
use super::form::Embedded;
use super::object::Object;

/// What else the object has (schemas, by Confluent's proxy) is for formats that are not served.
#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    records: Several<Written<'a>>,
}

/// The records of a body.
///
/// # Errors
/// The body is not JSON, or not of this form.
pub fn drafts(body: &[u8], embedded: Embedded) -> Result<Vec<Draft<'_>>, ApiError> {
    let Object::<Body<'_>>(body) =
        serde_json::from_slice(body).map_err(|error| unreadable(&error, ""))?;
    let Several(records) = body.records;
    if records.is_empty() {
        return Err(ApiError::new(Kind::Unprocessable, "records: expected at least one"));
    }
    let drafts = records.into_iter().enumerate().map(|(at, record)| {
        record
            .draft(embedded)
            .map_err(|why| ApiError::new(Kind::Unprocessable, format!("records[{at}].{why}")))
    });
    drafts.collect()
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::request::draft::RECORDS_MAX;

    fn one(body: &str, embedded: Embedded) -> Draft<'_> {
        let mut drafts = drafts(body.as_bytes(), embedded).unwrap();
        assert_eq!(drafts.len(), 1);
        drafts.remove(0)
    }

    fn bytes(text: &str) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(text.as_bytes()))
    }

    #[test]
    fn the_three_formats_have_three_ways_to_write_the_same_bytes() {
        let binary = one(r#"{"records":[{"key":"YQ==","value":"eyJiIjoxfQ"}]}"#, Embedded::Binary);
        assert_eq!((binary.key, binary.value), (bytes("a"), bytes(r#"{"b":1}"#)));
        let text = one(r#"{"records":[{"key":"a","value":"{\"b\":1}"}]}"#, Embedded::Text);
        assert_eq!((text.key, text.value), (bytes("a"), bytes(r#"{"b":1}"#)));
        let json = one(r#"{"records":[{"key":"a","value":{ "b" : 1 }}]}"#, Embedded::Json);
        assert_eq!((json.key, json.value), (bytes(r#""a""#), bytes(r#"{"b":1}"#)));
    }

    #[test]
    fn null_and_nothing_are_null() {
        for body in [r#"{"records":[{"key":null,"value":null}]}"#, r#"{"records":[{}]}"#] {
            for embedded in [Embedded::Json, Embedded::Binary, Embedded::Text] {
                assert_eq!(one(body, embedded), Draft::default());
            }
        }
        let empty = one(r#"{"records":[{"value":""}]}"#, Embedded::Text);
        assert_eq!(empty.value, bytes(""));
    }

    #[test]
    fn a_record_may_name_partition_time_and_headers() {
        let body = r#"{"records":[{"value":1,"partition":3,"timestamp":1700000000000,
            "headers":[{"key":"trace","value":"AP8="},{"key":"none","value":null}]}],
            "value_schema_id":null}"#;
        let draft = one(body, Embedded::Json);
        assert_eq!((draft.partition, draft.timestamp_ms), (Some(3), Some(1_700_000_000_000)));
        let value: Option<Cow<'_, [u8]>> = Some(Cow::Borrowed(&[0, 255]));
        assert_eq!(draft.headers, [("trace".into(), value), ("none".into(), None)]);
    }

    #[test]
    fn a_body_that_makes_no_sense_is_refused_with_the_place() {
        for (body, embedded, kind, words) in [
            ("", Embedded::Json, Kind::Malformed, "EOF"),
            ("{", Embedded::Json, Kind::Malformed, "EOF"),
            (r#"{"records":[{"value":01}]}"#, Embedded::Json, Kind::Malformed, "line 1"),
            ("{\"records\":[{\"value\":\"\u{7}\"}]}", Embedded::Json, Kind::Malformed, "control"),
            (r#"{"records":[]}"#, Embedded::Json, Kind::Unprocessable, "at least one"),
            (r#"{"record":[]}"#, Embedded::Json, Kind::Unprocessable, "missing field `records`"),
            (r#"[[{"value":1}]]"#, Embedded::Json, Kind::Unprocessable, "an object"),
            (r#"{"records":[[1,2]]}"#, Embedded::Json, Kind::Unprocessable, "an object"),
            (
                r#"{"records":[{"headers":[["a","b"]]}]}"#,
                Embedded::Json,
                Kind::Unprocessable,
                "an object",
            ),
            (r#"{"records":{}}"#, Embedded::Json, Kind::Unprocessable, "a list of records"),
            (r#"{"records":[{"vlaue":1}]}"#, Embedded::Json, Kind::Unprocessable, "vlaue"),
            (r#"{"records":[{"value":1,"value":2}]}"#, Embedded::Json, Kind::Unprocessable, "dup"),
            (r#"{"records":[{"value":1}]} x"#, Embedded::Json, Kind::Malformed, "trailing"),
            (
                r#"{"records":[{},{"key":5}]}"#,
                Embedded::Text,
                Kind::Unprocessable,
                "records[1].key",
            ),
            (r#"{"records":[{"value":"*"}]}"#, Embedded::Binary, Kind::Unprocessable, "base64"),
            (r#"{"records":[{"partition":1.5}]}"#, Embedded::Json, Kind::Unprocessable, "i32"),
            (r#"{"records":[{"timestamp":-1}]}"#, Embedded::Json, Kind::Unprocessable, "1970"),
            (
                r#"{"records":[{"headers":[{"key":"k","value":"*"}]}]}"#,
                Embedded::Json,
                Kind::Unprocessable,
                "records[0].headers",
            ),
        ] {
            let error = drafts(body.as_bytes(), embedded).unwrap_err();
            assert_eq!(error.kind, kind, "{body}: {error:?}");
            assert!(error.message.contains(words), "{body}: {error:?}");
        }
        assert_eq!(drafts(b"\xff", Embedded::Json).unwrap_err().kind, Kind::Malformed);
    }

    #[test]
    fn records_without_number_are_refused_before_they_are_kept() {
        let body = |count| format!(r#"{{"records":[{}]}}"#, vec!["{}"; count].join(","));
        assert_eq!(
            drafts(body(RECORDS_MAX).as_bytes(), Embedded::Json).unwrap().len(),
            RECORDS_MAX
        );
        let error = drafts(body(RECORDS_MAX + 1).as_bytes(), Embedded::Json).unwrap_err();
        assert_eq!(error.kind, Kind::Unprocessable, "{error:?}");
    }
}
