//! CloudEvents 1.0 over HTTP, and the records that their Kafka protocol binding makes of them, in its binary content mode:
//! an attribute is a header `ce_NAME`, the data are the value, their type is the header `content-type`, and the extension
//! `partitionkey` is the key. [`json`] reads events that stand in JSON, [`binary`] one whose attributes are headers.

mod binary;
mod json;

use std::borrow::Cow;

pub use binary::{binary, is_binary};
pub use json::{batch, structured};

use super::draft::{Draft, Header};

/// Attributes that every event has.
const REQUIRED: [&str; 4] = ["id", "source", "specversion", "type"];
/// The version that is understood.
const VERSION: &str = "1.0";
/// The attribute that says what the data are.
const CONTENT_TYPE: &str = "datacontenttype";
/// The extension whose value is the record's key.
const PARTITION_KEY: &str = "partitionkey";

/// An attribute and its value.
type Attribute<'a> = (Cow<'a, str>, Cow<'a, str>);

/// The record of an event. An event without data is a record whose value is null.
///
/// # Errors
/// An attribute is missing, there twice, or has a name that none can have: the error names it.
fn draft<'a>(
    attributes: Vec<Attribute<'a>>,
    data: Option<Cow<'a, [u8]>>,
) -> Result<Draft<'a>, String> {
    check(&attributes)?;
    let mut draft = Draft { value: data, ..Draft::default() };
    draft.headers.reserve_exact(attributes.len());
    for (name, value) in attributes {
        let value = bytes(value);
        if name == PARTITION_KEY {
            draft.key = Some(value.clone());
        }
        let header: Header<'a> = match &*name {
            CONTENT_TYPE => (Cow::Borrowed("content-type"), Some(value)),
            name => (Cow::Owned(format!("ce_{name}")), Some(value)),
        };
        draft.headers.push(header);
    }
    Ok(draft)
}

fn check(attributes: &[Attribute<'_>]) -> Result<(), String> {
    let of = |wanted: &str| attributes.iter().find(|(name, _)| name == wanted);
    for name in REQUIRED {
        match of(name) {
            None => return Err(format!("the attribute {name} is missing, which every event has")),
            Some((_, value)) if value.is_empty() => {
                return Err(format!("the attribute {name} is empty, and must not be"));
            }
            Some(_) => {}
        }
    }
    let version = of("specversion").map(|(_, version)| &**version).unwrap_or_default();
    if version != VERSION {
        return Err(format!("the attribute specversion is {version:?}: expected {VERSION:?}"));
    }
    let mut names: Vec<&str> = attributes.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("the attribute {} is there twice", pair[0]));
    }
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    match names.iter().find(|name| !is_name(name)) {
        Some(wrong) => Err(format!(
            "an attribute {wrong:?} cannot be: expected a name of lower-case letters and digits"
        )),
        None => Ok(()),
    }
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes<'a>(more: &[(&'a str, &'a str)]) -> Vec<Attribute<'a>> {
        let required = [("specversion", "1.0"), ("id", "1"), ("source", "/s"), ("type", "t")];
        let all = required.iter().chain(more);
        all.map(|(name, value)| (Cow::Borrowed(*name), Cow::Borrowed(*value))).collect()
    }

    #[test]
    fn an_event_is_a_record_of_the_binary_mode() {
        let more = [("datacontenttype", "text/plain"), ("partitionkey", "k"), ("subject", "é")];
        let read = draft(attributes(&more), Some(Cow::Borrowed(b"data"))).unwrap();
        assert_eq!(read.key.as_deref(), Some(&b"k"[..]));
        assert_eq!(read.value.as_deref(), Some(&b"data"[..]));
        let headers: Vec<(&str, &str)> = (read.headers.iter())
            .map(|(name, value)| (&**name, std::str::from_utf8(value.as_deref().unwrap()).unwrap()))
            .collect();
        let expected = [
            ("ce_specversion", "1.0"),
            ("ce_id", "1"),
            ("ce_source", "/s"),
            ("ce_type", "t"),
            ("content-type", "text/plain"),
            ("ce_partitionkey", "k"),
            ("ce_subject", "é"),
        ];
        assert_eq!(headers, expected);
        assert_eq!(draft(attributes(&[]), None).unwrap().value, None);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for name in REQUIRED {
            let mut without = attributes(&[]);
            without.retain(|(known, _)| known != name);
            assert!(draft(without.clone(), None).unwrap_err().contains(name));
            without.push((Cow::Borrowed(name), Cow::Borrowed("")));
            assert!(draft(without, None).unwrap_err().contains(&format!("{name} is empty")));
        }
        for (name, words) in [
            ("id", "id is there twice"),
            ("Subject", "\"Subject\" cannot be"),
            ("sub_ject", "\"sub_ject\" cannot be"),
            ("", "\"\" cannot be"),
        ] {
            let error = draft(attributes(&[(name, "x")]), None).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        let mut old = attributes(&[]);
        old[0].1 = Cow::Borrowed("0.3");
        assert!(draft(old, None).unwrap_err().contains("specversion is \"0.3\""));
    }
}
