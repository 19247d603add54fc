//! Records in one JSON object, as REST proxies have it: `{"records":[{"key":…,"value":…}]}`.

use serde::Deserialize;
use serving::error::{ApiError, Kind};

use super::draft::{Draft, Several, Written, unreadable};
use super::form::Embedded;
use super::object::Object;
use super::plain;

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
    let plain = (embedded != Embedded::Json).then(|| plain::drafts(body, embedded)).flatten();
    plain.map_or_else(|| of_json(body, embedded), Ok)
}

/// The records of any body.
fn of_json(body: &[u8], embedded: Embedded) -> Result<Vec<Draft<'_>>, ApiError> {
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

    use proptest::prelude::*;

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

    #[test]
    fn plain_bodies_are_read_in_one_pass() {
        let texts = "{ \"records\" : [ {\"value\":\"YQ\"} , { \"key\" : null , \"value\" : \"YWI=\",\n\"partition\":0,\"timestamp\":12}, {}]}\r\n";
        for embedded in [Embedded::Binary, Embedded::Text] {
            let read = plain::drafts(texts.as_bytes(), embedded).unwrap();
            assert_eq!(
                (read.len(), read[1].partition, read[1].timestamp_ms),
                (3, Some(0), Some(12))
            );
            assert_eq!(read, of_json(texts.as_bytes(), embedded).unwrap());
        }
        let body = |count| format!(r#"{{"records":[{}]}}"#, vec!["{}"; count].join(","));
        assert!(plain::drafts(body(RECORDS_MAX).as_bytes(), Embedded::Text).is_some());
        assert!(plain::drafts(body(RECORDS_MAX + 1).as_bytes(), Embedded::Text).is_none());
    }

    /// What a body may be made of.
    const PIECES: [&str; 34] = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        " ",
        "\n",
        "\"",
        "\\",
        "{\"records\":[",
        "]}",
        "\"records\"",
        "\"key\":",
        "\"value\":",
        "\"partition\":",
        "\"timestamp\":",
        "\"headers\":[]",
        "\"YQ==\"",
        "\"YWI\"",
        "\"a\\\"b\"",
        "\"\u{7}\"",
        "\"\u{e9}\"",
        "\"\\ud800\"",
        "null",
        "0",
        "01",
        "-1",
        "1e3",
        "2147483648",
        "99999999999999999999",
        "{\"value\":\"YQ==\"},",
        "{}",
        "{\"key\":\"YWI\",\"value\":null}",
    ];

    /// Fields of a record, and blanks.
    const FIELDS: [&str; 12] = [
        "\"key\":\"YQ==\"",
        "\"value\":\"YWI\"",
        "\"key\" : null",
        "\"value\":\"\"",
        "\"partition\":7",
        "\"timestamp\":1700000000000",
        "\"timestamp\":null",
        "\"partition\":99999999999",
        "\"headers\":[]",
        "\"value\":\"YWJj\\u0061\"",
        " \n\"value\"\t:\r\"AAAA\"",
        "\"key\":5",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 10_000, ..ProptestConfig::default() })]

        #[test]
        fn nothing_is_read_in_one_pass_in_another_way(
            pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..8),
            embedded in prop::sample::select(&[Embedded::Binary, Embedded::Text][..]),
        ) {
            let body = pieces.concat();
            if let Some(read) = plain::drafts(body.as_bytes(), embedded) {
                prop_assert_eq!(Ok(read), of_json(body.as_bytes(), embedded));
            }
        }

        #[test]
        fn nor_is_a_body_that_is_damaged(
            records in prop::collection::vec(prop::collection::vec(prop::sample::select(&FIELDS[..]), 0..3), 1..4),
            damage in prop::option::of((any::<prop::sample::Index>(), any::<u8>(), any::<bool>())),
            embedded in prop::sample::select(&[Embedded::Binary, Embedded::Text][..]),
        ) {
            let records: Vec<_> =
                records.iter().map(|fields| format!("{{{}}}", fields.join(","))).collect();
            let mut body = format!("{{\"records\":[{}]}}", records.join(" , ")).into_bytes();
            if let Some((at, byte, goes)) = damage {
                let at = at.index(body.len());
                match goes {
                    true => drop(body.remove(at)),
                    false => body[at] = byte,
                }
            }
            if let Some(read) = plain::drafts(&body, embedded) {
                prop_assert_eq!(Ok(read), of_json(&body, embedded));
            }
        }
    }
}
