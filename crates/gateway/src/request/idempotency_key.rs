//! The header `Idempotency-Key`, and what of a request counts for whether another one with the key asks the same.

use hyper::HeaderMap;
use hyper::header::CONTENT_TYPE;
use serving::error::{ApiError, Kind};

/// Bytes of a key.
const KEY_BYTES_MAX: usize = 255;
/// Headers that become part of a record, or say where it goes, besides the `Content-Type`.
const COUNTING: [&str; 4] = ["x-key", "x-key-base64", "x-partitioner", "x-broker"];
/// What begins the names of more of them.
const COUNTING_PREFIXES: [&str; 2] = ["x-header-", "ce-"];

/// The key of a request, if it has one: any visible characters, taken as they stand.
///
/// # Errors
/// There are two, or it is empty, too long, or has other characters.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut all = headers.get_all("idempotency-key").iter();
    let Some(key) = all.next() else { return Ok(None) };
    if all.next().is_some() {
        let words = "there is more than one header Idempotency-Key";
        return Err(ApiError::new(Kind::Malformed, words));
    }
    let key = key.to_str().unwrap_or_default();
    if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
        let words =
            format!("Idempotency-Key: expected 1 to {KEY_BYTES_MAX} visible ASCII characters");
        return Err(ApiError::new(Kind::Unprocessable, words));
    }
    Ok(Some(key))
}

/// What a request asks, in parts: two requests that differ in one of them ask different things.
pub fn what_is_asked<'a>(
    query: Option<&'a str>,
    headers: &'a HeaderMap,
    body: &'a [u8],
) -> Vec<&'a [u8]> {
    let counts = |name: &str| {
        name == CONTENT_TYPE.as_str()
            || COUNTING.contains(&name)
            || COUNTING_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    let mut counting: Vec<(&str, &[u8])> = (headers.iter())
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .filter(|(name, _)| counts(name))
        .collect();
    // The order of headers with different names says nothing; that of equal names is kept.
    counting.sort_by_key(|(name, _)| *name);
    let parts = [query.unwrap_or_default().as_bytes(), body].into_iter();
    parts.chain(counting.into_iter().flat_map(|(name, value)| [name.as_bytes(), value])).collect()
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &[u8])| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_key_is_one_header_of_visible_characters() {
        let of = |pairs: &[(&'static str, &[u8])]| {
            let headers = headers(pairs);
            idempotency_key(&headers).map(|key| key.map(str::to_owned)).map_err(|error| error.kind)
        };
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[("idempotency-key", b"\"a-1\"")]), Ok(Some("\"a-1\"".to_owned())));
        assert!(of(&[("idempotency-key", &[b'x'; 255])]).is_ok());
        for wrong in [&b""[..], &[b'x'; 256], b"\xe9"] {
            assert_eq!(of(&[("idempotency-key", wrong)]), Err(Kind::Unprocessable), "{wrong:?}");
        }
        let mut two = headers(&[("idempotency-key", b"a")]);
        two.append("idempotency-key", HeaderValue::from_static("b"));
        assert_eq!(idempotency_key(&two).unwrap_err().kind, Kind::Malformed);
    }

    #[test]
    fn what_becomes_part_of_a_record_counts_and_the_rest_does_not() {
        let first = headers(&[("x-key", b"k"), ("ce-id", b"1"), ("user-agent", b"a")]);
        let other = headers(&[("user-agent", b"b"), ("ce-id", b"1"), ("x-key", b"k")]);
        let asked = what_is_asked(None, &first, b"v");
        assert_eq!(asked, what_is_asked(Some(""), &other, b"v"));
        for changed in [
            headers(&[("x-key", b"l"), ("ce-id", b"1")]),
            headers(&[("x-key", b"k")]),
            headers(&[("x-key", b"k"), ("ce-id", b"1"), ("x-header-a", b"")]),
            headers(&[("x-key", b"k"), ("ce-id", b"1"), ("content-type", b"x/y")]),
        ] {
            assert_ne!(asked, what_is_asked(None, &changed, b"v"), "{changed:?}");
        }
        assert_ne!(asked, what_is_asked(Some("partition=1"), &first, b"v"));
        assert_ne!(asked, what_is_asked(None, &first, b"w"));
    }
}
