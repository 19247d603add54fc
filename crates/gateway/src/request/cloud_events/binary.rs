//! An event whose attributes are the request's headers `ce-NAME`, and whose data are the body.

use std::borrow::Cow;

use hyper::HeaderMap;
use hyper::header::{self, HeaderValue};
use percent_encoding::percent_decode;
use serving::error::{ApiError, Kind};

use super::super::draft::Draft;
use super::{Attribute, CONTENT_TYPE, draft};

/// What begins the name of a header that is an attribute.
const PREFIX: &str = "ce-";

/// Whether a request is such an event.
pub fn is_binary(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with(PREFIX))
}

/// The record of the event that the headers and the body are.
///
/// # Errors
/// An attribute cannot be read, or is missing: the error names it.
pub fn binary<'a>(body: &'a [u8], headers: &'a HeaderMap) -> Result<Draft<'a>, ApiError> {
    let wrong = |why| ApiError::new(Kind::Malformed, why);
    let mut attributes: Vec<Attribute<'a>> = Vec::new();
    for (name, value) in headers {
        let attribute = match name.as_str().strip_prefix(PREFIX) {
            // The type of the body says that.
            Some(CONTENT_TYPE) => continue,
            Some(name) => name,
            None if name == header::CONTENT_TYPE => CONTENT_TYPE,
            None => continue,
        };
        let is_encoded = attribute != CONTENT_TYPE;
        let text = text(value, is_encoded)
            .ok_or_else(|| wrong(format!("the header {name} is not UTF-8, percent-encoded")))?;
        attributes.push((Cow::Borrowed(attribute), text));
    }
    let data = (!body.is_empty()).then_some(Cow::Borrowed(body));
    draft(attributes, data).map_err(wrong)
}

/// The text of a header: without quotes around it, and decoded once.
fn text(value: &HeaderValue, is_encoded: bool) -> Option<Cow<'_, str>> {
    let bytes = value.as_bytes();
    if !is_encoded {
        return std::str::from_utf8(bytes).ok().map(Cow::Borrowed);
    }
    let unquoted = unquoted(bytes);
    match unquoted {
        Cow::Borrowed(bytes) => percent_decode(bytes).decode_utf8().ok(),
        Cow::Owned(bytes) => {
            percent_decode(&bytes).decode_utf8().ok().map(|text| Cow::Owned(text.into_owned()))
        }
    }
}

/// What stands within a quoted string (RFC 9110, 5.6.4); the bytes themselves if they are none.
fn unquoted(bytes: &[u8]) -> Cow<'_, [u8]> {
    let [b'"', within @ .., b'"'] = bytes else { return Cow::Borrowed(bytes) };
    let (mut out, mut is_escaped) = (Vec::with_capacity(within.len()), false);
    for byte in within {
        is_escaped = *byte == b'\\' && !is_escaped;
        if !is_escaped {
            out.push(*byte);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderName;

    use super::*;

    fn headers(more: &[(&'static str, &[u8])]) -> HeaderMap {
        let required: [(&str, &[u8]); 4] =
            [("ce-specversion", b"1.0"), ("ce-id", b"1"), ("ce-source", b"/s"), ("ce-type", b"t")];
        let mut headers = HeaderMap::new();
        for (name, value) in required.iter().chain(more) {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    fn header(draft: &Draft<'_>, wanted: &str) -> Option<String> {
        let (_, value) = draft.headers.iter().find(|(name, _)| name == wanted)?;
        Some(String::from_utf8(value.as_deref().unwrap().to_vec()).unwrap())
    }

    #[test]
    fn headers_are_attributes_and_the_body_is_the_data() {
        let more: [(&str, &[u8]); 5] = [
            ("content-type", b"text/plain; charset=utf-8"),
            ("ce-subject", b"Euro%20%E2%82%AC%25"),
            ("ce-partitionkey", b"\"a\\\"b\\\\\""),
            ("ce-datacontenttype", b"ignored/type"),
            ("user-agent", b"x"),
        ];
        let headers = headers(&more);
        assert!(is_binary(&headers));
        let read = binary(b"data", &headers).unwrap();
        assert_eq!(read.value.as_deref(), Some(&b"data"[..]));
        assert_eq!(read.key.as_deref(), Some(&b"a\"b\\"[..]));
        assert_eq!(header(&read, "ce_subject").as_deref(), Some("Euro \u{20ac}%"));
        assert_eq!(header(&read, "content-type").as_deref(), Some("text/plain; charset=utf-8"));
        assert_eq!(header(&read, "ce_user-agent"), None);
        assert_eq!(read.headers.len(), 7);
        assert_eq!(binary(b"", &headers).unwrap().value, None);
        assert!(!is_binary(&HeaderMap::new()));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (more, words) in [
            (&[("ce-subject", &b"\xff"[..])][..], "ce-subject"),
            (&[("ce-subject", b"%ff")], "ce-subject"),
            (&[("ce-id", b"2")], "id is there twice"),
            (&[("ce-sub-ject", b"2")], "sub-ject"),
        ] {
            let error = binary(b"", &headers(more)).unwrap_err();
            assert!(error.message.contains(words), "{error:?}");
            assert_eq!(error.kind, Kind::Malformed);
        }
        let mut without = headers(&[]);
        without.remove("ce-id");
        assert!(binary(b"", &without).unwrap_err().message.contains("attribute id is missing"));
    }
}
