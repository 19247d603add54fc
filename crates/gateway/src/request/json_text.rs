//! The text of a JSON value without the blanks between its parts: two texts of one key that differ in blanks alone must
//! go to one partition. Numbers and strings stay as they were written.

use std::borrow::Cow;

/// The text without blanks outside of strings. `json` is the text of one JSON value.
pub fn compact(json: &str) -> Cow<'_, [u8]> {
    let bytes = json.as_bytes();
    let mut outside = Outside::default();
    if bytes.iter().all(|byte| outside.keeps(*byte)) {
        return Cow::Borrowed(bytes);
    }
    let mut outside = Outside::default();
    Cow::Owned(bytes.iter().copied().filter(|byte| outside.keeps(*byte)).collect())
}

/// Where in a text one is.
#[derive(Default)]
struct Outside {
    in_string: bool,
    is_escaped: bool,
}

impl Outside {
    /// Whether the next byte is more than a blank between parts.
    fn keeps(&mut self, byte: u8) -> bool {
        if !self.in_string {
            self.in_string = byte == b'"';
            return !matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        }
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = true,
            b'"' => self.in_string = false,
            _ => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blanks_between_parts_go_and_all_else_stays() {
        for (text, expected) in [
            ("1.50", "1.50"),
            (" { \"a b\" : [ 1 , 2e3 ] ,\n\t\"c\":null }\r\n", r#"{"a b":[1,2e3],"c":null}"#),
            (r#""a \" b \\" "#, r#""a \" b \\""#),
            (r#"{"\\": " "}"#, r#"{"\\":" "}"#),
            (r#"12345678901234567890.000"#, r#"12345678901234567890.000"#),
        ] {
            assert_eq!(String::from_utf8_lossy(&compact(text)), expected);
        }
        assert!(matches!(compact(r#"{"a":"b c"}"#), Cow::Borrowed(_)));
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            ".*".prop_map(serde_json::Value::String),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::Array),
                prop::collection::btree_map(".*", inner, 0..4)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_value_written_with_blanks_is_the_value_written_without(value in json()) {
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            prop_assert_eq!(&*compact(&pretty), serde_json::to_vec(&value).unwrap());
        }
    }
}
