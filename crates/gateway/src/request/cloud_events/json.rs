//! Events in JSON: one object, or a list of them.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serving::error::{ApiError, Kind};

use super::super::draft::{Draft, Several, Text, bytes as data_bytes, unreadable};
use super::super::form::Embedded;
use super::super::object::Object;
use super::{Attribute, CONTENT_TYPE, draft};

/// What data are that do not say it.
const JSON: &str = "application/json";

/// The members of an object, in their order.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'a>, D::Error> {
        struct Fields<'a>(PhantomData<&'a ()>);

        impl<'de: 'a, 'a> Visitor<'de> for Fields<'a> {
            type Value = Members<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Members<'a>, A::Error> {
                let mut members = Vec::new();
                while let Some((Text(name), value)) = fields.next_entry::<Text<'de>, _>()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Fields(PhantomData))
    }
}

/// The record of the event that the body is.
///
/// # Errors
/// The body is not JSON, or not an event: the error names the attribute that is wrong.
pub fn structured(body: &[u8]) -> Result<Draft<'_>, ApiError> {
    let Object::<Members<'_>>(members) =
        serde_json::from_slice(body).map_err(|error| unreadable(&error, ""))?;
    members.draft().map_err(|why| ApiError::new(Kind::Malformed, why))
}

/// The records of the events that the body has in a list.
///
/// # Errors
/// The body is not JSON, or has too many events, or none, or one that is wrong: none is to be sent then.
pub fn batch(body: &[u8]) -> Result<Vec<Draft<'_>>, ApiError> {
    let Several::<Members<'_>>(events) =
        serde_json::from_slice(body).map_err(|error| unreadable(&error, ""))?;
    if events.is_empty() {
        return Err(ApiError::new(Kind::Unprocessable, "expected at least one event"));
    }
    let drafts = events.into_iter().enumerate().map(|(at, members)| {
        let wrong = |why| ApiError::new(Kind::Malformed, format!("event {at}: {why}"));
        members.draft().map_err(wrong)
    });
    drafts.collect()
}

impl<'a> Members<'a> {
    fn draft(self) -> Result<Draft<'a>, String> {
        let (mut attributes, mut data) = (Vec::<Attribute<'a>>::new(), Vec::new());
        for (name, json) in self.0 {
            match &*name {
                // Null is as if it were not there.
                _ if json.get() == "null" => {}
                "data" | "data_base64" => data.push((name == "data_base64", json)),
                _ => {
                    let value = attribute(json).ok_or_else(|| {
                        format!("the attribute {name} is not a string, a number or a boolean")
                    })?;
                    attributes.push((name, value));
                }
            }
        }
        let data = match data.as_slice() {
            [] => None,
            [(true, json)] => {
                let decoded = data_bytes(Embedded::Binary, json);
                Some(decoded.map_err(|why| format!("data_base64: {why}"))?)
            }
            [(false, json)] => {
                let said = attributes.iter().find(|(name, _)| name == CONTENT_TYPE);
                let is_json = said.is_none_or(|(_, said)| says_json(said));
                if said.is_none() {
                    attributes.push((Cow::Borrowed(CONTENT_TYPE), Cow::Borrowed(JSON)));
                }
                Some(plain(json, is_json))
            }
            _ => {
                return Err("there are data twice: expected one of data and data_base64".to_owned());
            }
        };
        draft(attributes, data)
    }
}

/// The text of an attribute; `None` if it has a type that no attribute has.
fn attribute(json: &RawValue) -> Option<Cow<'_, str>> {
    let text = json.get();
    match text.as_bytes()[0] {
        b'"' => serde_json::from_str::<Text<'_>>(text).ok().map(|Text(text)| text),
        b'{' | b'[' => None,
        _ => Some(Cow::Borrowed(text)),
    }
}

/// The bytes of data that stand in JSON: a text's own where they are something other than JSON.
fn plain(json: &RawValue, is_json: bool) -> Cow<'_, [u8]> {
    let is_text = !is_json && json.get().starts_with('"');
    let embedded = if is_text { Embedded::Text } else { Embedded::Json };
    data_bytes(embedded, json).unwrap_or_else(|_| Cow::Borrowed(json.get().as_bytes()))
}

/// Whether data of this type are JSON.
fn says_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.ends_with("/json") || essence.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event with these members besides the attributes that all have.
    fn event(members: &str) -> String {
        format!(r#"{{"specversion":"1.0","id":"1","source":"/s","type":"t"{members}}}"#)
    }

    /// The value of the record, and its content type.
    fn read(members: &str) -> (Option<String>, Option<String>) {
        let event = event(members);
        let draft = structured(event.as_bytes()).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let said = draft.headers.iter().find(|(name, _)| name == "content-type");
        (draft.value.as_deref().map(text), said.and_then(|(_, said)| said.as_deref()).map(text))
    }

    #[test]
    fn data_are_what_their_type_says() {
        let both = |value: &str, said: &str| (Some(value.to_owned()), Some(said.to_owned()));
        assert_eq!(read(r#","data":{"a": [1.0]}"#), both(r#"{"a":[1.0]}"#, JSON));
        assert_eq!(read(r#","data":"x\n""#), both(r#""x\n""#, JSON));
        let xml = r#","datacontenttype":"text/xml","data":"<a>é\"</a>""#;
        assert_eq!(read(xml), both("<a>é\"</a>", "text/xml"));
        let vendor = r#","data":"x","datacontenttype":"Application/vnd.a+JSON; v=1""#;
        assert_eq!(read(vendor), both("\"x\"", "Application/vnd.a+JSON; v=1"));
        assert_eq!(read(r#","datacontenttype":"text/xml","data":5"#), both("5", "text/xml"));
        assert_eq!(read(r#","data_base64":"aGk=","datacontenttype":"a/b""#), both("hi", "a/b"));
        assert_eq!(read(r#","data_base64":"aGk=""#), (Some("hi".to_owned()), None));
        assert_eq!(read(""), (None, None));
        assert_eq!(read(r#","data":null,"subject":null"#), (None, None));
    }

    #[test]
    fn attributes_have_their_text() {
        let event = event(r#","number":-5,"yes":true,"subject":"\u00e9","partitionkey":"k""#);
        let draft = structured(event.as_bytes()).unwrap();
        let of = |wanted: &str| {
            let (_, value) = draft.headers.iter().find(|(name, _)| name == wanted).unwrap();
            String::from_utf8(value.as_deref().unwrap().to_vec()).unwrap()
        };
        assert_eq!(
            (of("ce_number"), of("ce_yes"), of("ce_subject")),
            ("-5".into(), "true".into(), "é".into())
        );
        assert_eq!(draft.key.as_deref(), Some(&b"k"[..]));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (members, words) in [
            (r#","extension":{}"#, "the attribute extension is not a string"),
            (r#","id":"2""#, "id is there twice"),
            (r#","data":1,"data_base64":"aGk=""#, "there are data twice"),
            (r#","data_base64":"*""#, "data_base64: expected base64"),
            (r#","Upper":"1""#, "\"Upper\" cannot be"),
        ] {
            let event = event(members);
            let error = structured(event.as_bytes()).unwrap_err();
            assert_eq!(error.kind, Kind::Malformed);
            assert!(error.message.contains(words), "{error:?}");
        }
        for name in ["id", "source", "type", "specversion"] {
            let event = event("").replace(&format!("\"{name}\":"), "\"other\":");
            let error = structured(event.as_bytes()).unwrap_err();
            assert!(error.message.contains(&format!("attribute {name} is missing")), "{error:?}");
        }
        for (body, kind) in
            [("{", Kind::Malformed), ("[]", Kind::Unprocessable), ("", Kind::Malformed)]
        {
            assert_eq!(structured(body.as_bytes()).unwrap_err().kind, kind, "{body}");
        }
    }

    #[test]
    fn a_batch_is_a_list_of_events_of_which_all_can_be_read() {
        let list = |events: &[String]| format!("[{}]", events.join(","));
        let two = list(&[event(""), event(r#","data":1"#)]);
        assert_eq!(batch(two.as_bytes()).unwrap().len(), 2);
        assert_eq!(batch(b"[]").unwrap_err().kind, Kind::Unprocessable);
        assert_eq!(batch(event("").as_bytes()).unwrap_err().kind, Kind::Unprocessable);
        let wrong = list(&[event(""), "{}".to_owned()]);
        assert!(
            batch(wrong.as_bytes()).unwrap_err().message.starts_with("event 1: the attribute id")
        );
        let many = list(&vec![event(""); 20_001]);
        assert_eq!(batch(many.as_bytes()).unwrap_err().kind, Kind::Unprocessable);
    }
}
