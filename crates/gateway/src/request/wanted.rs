//! How records are to be produced, by the parameters and headers of a request.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use serving::choice::{BrokerStrategy, Pair, Strategy};
use serving::error::{ApiError, Kind};

use super::cloud_events::{batch, structured};
use super::draft::{Draft, since_1970};
use super::form::{Embedded, Form};
use super::lines::{Lines, drafts_of_lines};
use super::parameters::Parameters;
use super::records::drafts;

/// What begins the name of a header that becomes a header of the record.
const RECORD_HEADER: &str = "x-header-";

/// How records are to be produced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// How broker and partition are chosen.
    pub pair: Pair,
    /// Whether the answer is not to wait for acknowledgements, and to promise nothing.
    pub is_async: bool,
    /// Whether the answer is to say where the time went.
    pub is_timed: bool,
}

/// How the records of this request are to be produced; `by_default` counts where it names no partitioner.
///
/// # Errors
/// A strategy has no such name, or a flag says neither yes nor no.
pub fn wanted(
    parameters: &Parameters<'_>,
    headers: &HeaderMap,
    by_default: Strategy,
) -> Result<Wanted, ApiError> {
    let said = |name, header| {
        let of_header = || headers.get(header).and_then(|value: &HeaderValue| value.to_str().ok());
        parameters.get(name).or_else(of_header)
    };
    let broker = match said("broker", "x-broker") {
        None | Some("none") => None,
        Some(name) => Some(BrokerStrategy::from_name(name).ok_or_else(|| {
            let names = BrokerStrategy::ALL.map(BrokerStrategy::name).join(", ");
            unknown("broker", &format!("none, {names}"))
        })?),
    };
    let partition = match said("partitioner", "x-partitioner") {
        None => by_default,
        Some(name) => Strategy::from_name(name).ok_or_else(|| {
            unknown("partitioner", &Strategy::names().collect::<Vec<_>>().join(", "))
        })?,
    };
    Ok(Wanted {
        pair: Pair { broker, partition },
        is_async: parameters.is_set("async")?,
        is_timed: parameters.is_set("timing")?,
    })
}

fn unknown(what: &str, names: &str) -> ApiError {
    ApiError::new(Kind::Unprocessable, format!("{what}: expected one of {names}"))
}

/// How the records stand in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// In one object.
    Records(Embedded),
    /// On a line each.
    Lines(Lines),
    /// As one event in JSON.
    Event,
    /// As a list of events in JSON.
    Events,
}

/// How the records stand in the body of this request.
///
/// # Errors
/// Its form is not known.
pub fn reading(parameters: &Parameters<'_>, headers: &HeaderMap) -> Result<Reading, ApiError> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    match Form::of(content_type.unwrap_or_default()) {
        Some(Form::Records(embedded)) => Ok(Reading::Records(embedded)),
        Some(Form::Event) => Ok(Reading::Event),
        Some(Form::Events) => Ok(Reading::Events),
        Some(Form::Lines) => lines(parameters).map(Reading::Lines),
        None => {
            let found = content_type.unwrap_or("missing");
            let words = format!("Content-Type is {found:?}: expected {}", Form::ACCEPTED);
            Err(ApiError::new(Kind::MediaType, words))
        }
    }
}

fn lines(parameters: &Parameters<'_>) -> Result<Lines, ApiError> {
    let format = match parameters.get("format") {
        None => Embedded::Json,
        Some(name) => {
            Embedded::from_name(name).ok_or_else(|| unknown("format", "json, binary, text"))?
        }
    };
    match parameters.get("lines") {
        None | Some("records") => Ok(Lines::Records(format)),
        Some("values") => Ok(Lines::Values),
        Some(_) => Err(unknown("lines", "records, values")),
    }
}

impl Reading {
    /// The records of a body.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn drafts(self, body: &[u8]) -> Result<Vec<Draft<'_>>, ApiError> {
        match self {
            Reading::Records(embedded) => drafts(body, embedded),
            Reading::Lines(lines) => drafts_of_lines(body, lines),
            Reading::Event => Ok(vec![structured(body)?]),
            Reading::Events => batch(body),
        }
    }
}

/// The one record whose value is the body: its key is `key` or the header `X-Key`, its headers are those that begin
/// with `X-Header-`.
///
/// # Errors
/// A parameter cannot be read.
pub fn raw<'a>(
    body: &'a [u8],
    parameters: &'a Parameters<'_>,
    headers: &'a HeaderMap,
) -> Result<Draft<'a>, ApiError> {
    Ok(Draft {
        key: raw_key(parameters, headers)?,
        value: Some(Cow::Borrowed(body)),
        headers: headers
            .iter()
            .filter_map(|(name, value)| {
                let name =
                    name.as_str().strip_prefix(RECORD_HEADER).filter(|name| !name.is_empty());
                Some((Cow::Borrowed(name?), Some(Cow::Borrowed(value.as_bytes()))))
            })
            .collect(),
        partition: number(parameters, "partition")?,
        timestamp_ms: number(parameters, "timestamp")?
            .map(since_1970)
            .transpose()
            .map_err(|words| ApiError::new(Kind::Unprocessable, words))?,
    })
}

fn raw_key<'a>(
    parameters: &'a Parameters<'_>,
    headers: &'a HeaderMap,
) -> Result<Option<Cow<'a, [u8]>>, ApiError> {
    if let Some(key) = parameters.get("key") {
        return Ok(Some(Cow::Borrowed(key.as_bytes())));
    }
    if let Some(key) = headers.get("x-key") {
        return Ok(Some(Cow::Borrowed(key.as_bytes())));
    }
    let Some(key) = headers.get("x-key-base64") else { return Ok(None) };
    let bytes = STANDARD.decode(key.as_bytes());
    bytes
        .map(|bytes| Some(Cow::Owned(bytes)))
        .map_err(|_| ApiError::new(Kind::Unprocessable, "X-Key-Base64: expected base64"))
}

fn number<T: std::str::FromStr>(
    parameters: &Parameters<'_>,
    name: &str,
) -> Result<Option<T>, ApiError> {
    let Some(text) = parameters.get(name) else { return Ok(None) };
    let wrong = || ApiError::new(Kind::Unprocessable, format!("{name}: expected a number"));
    text.parse().map(Some).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            (hyper::header::HeaderName::from_static(name), HeaderValue::from_static(value))
        });
        pairs.collect()
    }

    #[test]
    fn strategies_are_named_by_parameters_or_else_by_headers() {
        let of = |query, pairs| {
            wanted(&Parameters::of(Some(query)), &headers(pairs), Strategy::default())
        };
        assert_eq!(of("", &[]).unwrap().pair, Pair::default());
        let both = of("broker=cs6-mod", &[("x-broker", "random"), ("x-partitioner", "crc32")]);
        let pair = Pair { broker: Some(BrokerStrategy::Cs6Mod), partition: Strategy::Crc32 };
        assert_eq!(both.unwrap().pair, pair);
        assert_eq!(of("broker=none", &[]).unwrap().pair.broker, None);
        let topics = |query| {
            let wanted = wanted(&Parameters::of(Some(query)), &headers(&[]), Strategy::Random);
            wanted.unwrap().pair.partition
        };
        assert_eq!(topics("broker=random"), Strategy::Random);
        assert_eq!(topics("partitioner=murmur2"), Strategy::Murmur2);
        assert!(of("async=true&timing=1", &[]).is_ok_and(|w| w.is_async && w.is_timed));
        for query in ["broker=sticky", "broker=", "partitioner=murmur", "partitioner=Random"] {
            let error = of(query, &[]).unwrap_err();
            assert_eq!(error.kind, Kind::Unprocessable, "{query}");
            assert!(error.message.contains("hash-mod"), "{error:?}");
        }
    }

    #[test]
    fn a_body_is_read_as_its_type_says() {
        let of = |query, content_type| {
            reading(&Parameters::of(Some(query)), &headers(&[("content-type", content_type)]))
        };
        let json = Reading::Records(Embedded::Json);
        assert_eq!(of("lines=values", "application/vnd.kafka.json.v2+json"), Ok(json));
        let lines = |lines| Ok(Reading::Lines(lines));
        assert_eq!(of("", "application/x-ndjson"), lines(Lines::Records(Embedded::Json)));
        assert_eq!(
            of("format=text", "application/x-ndjson"),
            lines(Lines::Records(Embedded::Text))
        );
        assert_eq!(of("lines=values", "application/x-ndjson"), lines(Lines::Values));
        assert_eq!(of("lines=x", "application/x-ndjson").unwrap_err().kind, Kind::Unprocessable);
        assert_eq!(of("", "text/plain").unwrap_err().kind, Kind::MediaType);
        let untold = reading(&Parameters::default(), &HeaderMap::new()).unwrap_err();
        assert!(untold.message.contains("missing"), "{untold:?}");
    }

    #[test]
    fn a_raw_body_is_the_value_of_a_record_that_headers_describe() {
        let headers = headers(&[
            ("x-key", "60819"),
            ("x-header-trace", "1"),
            ("x-header-", "none"),
            ("content-type", "image/png"),
        ]);
        let parameters = Parameters::of(Some("partition=2&timestamp=5"));
        let draft = raw(b"\0\xff", &parameters, &headers).unwrap();
        assert_eq!(draft.key.as_deref(), Some(&b"60819"[..]));
        assert_eq!(draft.value.as_deref(), Some(&b"\0\xff"[..]));
        assert_eq!(draft.headers, [("trace".into(), Some(Cow::Borrowed(&b"1"[..])))]);
        assert_eq!((draft.partition, draft.timestamp_ms), (Some(2), Some(5)));
        let named = Parameters::of(Some("key=a%20b"));
        assert_eq!(raw(b"", &named, &headers).unwrap().key.as_deref(), Some(&b"a b"[..]));
        for wrong in ["partition=x", "timestamp=-1"] {
            let wrong = Parameters::of(Some(wrong));
            assert_eq!(raw(b"", &wrong, &headers).unwrap_err().kind, Kind::Unprocessable);
        }
    }

    #[test]
    fn a_key_of_any_bytes_stands_in_base64() {
        let of = |value| {
            let headers = headers(&[("x-key-base64", value)]);
            raw_key(&Parameters::default(), &headers).map(|key| key.map(Cow::into_owned))
        };
        assert_eq!(of("AP8="), Ok(Some(vec![0, 255])));
        assert!(of("*").is_err());
    }
}
