//! What is to be read of a partition, by the parameters of a request and its header `Accept`.

use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::ACCEPT;
use serving::error::{ApiError, Kind};

use super::form::Embedded;
use super::parameters::Parameters;

/// Bytes of keys and values of an answer, unless the request says otherwise.
const BYTES_DEFAULT: usize = 1 << 20;
/// Bytes of keys and values of an answer.
pub const BYTES_MAX: usize = 8 << 20;
/// Records of an answer.
pub const RECORDS_MAX: usize = 20_000;
/// How long records are waited for, in milliseconds.
pub const WAIT_MAX_MS: u64 = 30_000;

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At this offset.
    Offset(i64),
    /// At the first record that there is.
    Earliest,
    /// Behind the last record.
    Latest,
    /// At the first record that is not older than this, in milliseconds since 1970.
    Time(i64),
}

/// How records are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// How keys and values stand in JSON.
    pub embedded: Embedded,
    /// The `Content-Type`.
    pub content_type: &'static str,
}

/// What is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where to begin.
    pub start: Start,
    /// Bytes of keys and values; one record is read, however large it is.
    pub bytes_max: usize,
    /// Records.
    pub records_max: usize,
    /// How long the first record is waited for.
    pub wait: Duration,
    /// Whether aborted transactions are left out.
    pub read_committed: bool,
    /// How they are written.
    pub format: Format,
}

/// What this request wants to read.
///
/// # Errors
/// A parameter cannot be used, or the form is not known.
pub fn piece(parameters: &Parameters<'_>, headers: &HeaderMap) -> Result<Piece, ApiError> {
    let between = |name, default, max| number(parameters, name, default, 1..=max);
    Ok(Piece {
        start: start(parameters)?,
        bytes_max: between("max_bytes", BYTES_DEFAULT as u64, BYTES_MAX as u64)? as usize,
        records_max: between("max_records", RECORDS_MAX as u64, RECORDS_MAX as u64)? as usize,
        wait: Duration::from_millis(number(parameters, "timeout", 0, 0..=WAIT_MAX_MS)?),
        read_committed: read_committed(parameters)?,
        format: format(parameters, headers)?,
    })
}

fn start(parameters: &Parameters<'_>) -> Result<Start, ApiError> {
    let wrong = |words| Err(ApiError::new(Kind::Unprocessable, words));
    let number = |text: &str| text.parse::<i64>().ok().filter(|number| *number >= 0);
    match (parameters.get("offset"), parameters.get("timestamp")) {
        (Some(_), Some(_)) => wrong("expected one of offset and timestamp, and both are there"),
        (Some("earliest"), None) => Ok(Start::Earliest),
        (Some("latest"), None) => Ok(Start::Latest),
        (Some(text), None) => match number(text) {
            Some(offset) => Ok(Start::Offset(offset)),
            None => wrong("offset: expected a number of at least 0, earliest or latest"),
        },
        (None, Some(text)) => match number(text) {
            Some(time) => Ok(Start::Time(time)),
            None => wrong("timestamp: expected milliseconds since 1970"),
        },
        (None, None) => wrong("offset: expected a number, earliest or latest; or timestamp"),
    }
}

fn read_committed(parameters: &Parameters<'_>) -> Result<bool, ApiError> {
    match parameters.get("isolation") {
        None | Some("read_uncommitted") => Ok(false),
        Some("read_committed") => Ok(true),
        Some(_) => {
            let words = "isolation: expected read_uncommitted or read_committed";
            Err(ApiError::new(Kind::Unprocessable, words))
        }
    }
}

/// A number within `range`, or `default` if the parameter is not there.
fn number(
    parameters: &Parameters<'_>,
    name: &str,
    default: u64,
    range: std::ops::RangeInclusive<u64>,
) -> Result<u64, ApiError> {
    let Some(text) = parameters.get(name) else { return Ok(default) };
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        let words = format!("{name}: expected a number of {} to {}", range.start(), range.end());
        ApiError::new(Kind::Unprocessable, words)
    })
}

/// `?format=`, or else the form in `Accept` that is liked best, or else base64: it has room for any bytes.
fn format(parameters: &Parameters<'_>, headers: &HeaderMap) -> Result<Format, ApiError> {
    if let Some(name) = parameters.get("format") {
        let unknown =
            || ApiError::new(Kind::Unprocessable, "format: expected json, binary or text");
        return Embedded::from_name(name).map(Format::of).ok_or_else(unknown);
    }
    accepted(headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()))
}

/// The form that is liked best of those that these headers `Accept` name (RFC 9110, 12.5.1).
fn accepted<'a>(headers: impl Iterator<Item = &'a str>) -> Result<Format, ApiError> {
    let (mut best, mut is_asked): (Option<(f32, Format)>, bool) = (None, false);
    for range in headers.flat_map(|header| header.split(',')) {
        let (name, weight) = media_range(range);
        is_asked |= !name.is_empty();
        let Some(format) = Format::named(&name).filter(|_| weight > 0.0) else { continue };
        if best.is_none_or(|(known, _)| weight > known) {
            best = Some((weight, format));
        }
    }
    match best {
        Some((_, format)) => Ok(format),
        None if !is_asked => Ok(Format::of(Embedded::Binary)),
        None => Err(ApiError::new(Kind::NotAcceptable, Format::OFFERED)),
    }
}

/// The form of the records of a consumer instance, which was told when it was made, if this request takes it.
///
/// # Errors
/// The request takes other forms only.
pub fn form_of_instance(headers: &HeaderMap, embedded: Embedded) -> Result<Format, ApiError> {
    let own = Format::of(embedded);
    let accept = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut is_asked = false;
    for range in accept.flat_map(|header| header.split(',')) {
        let (name, weight) = media_range(range);
        is_asked |= !name.is_empty();
        let of_range = match &*name {
            "*/*" | "application/*" | "application/vnd.kafka.v2+json" => Some(own),
            name => Format::named(name).filter(|format| format.embedded == embedded),
        };
        if let Some(format) = of_range.filter(|_| weight > 0.0) {
            return Ok(format);
        }
    }
    let words = || format!("Accept: this instance gives {} and nothing else", own.content_type);
    if is_asked { Err(ApiError::new(Kind::NotAcceptable, words())) } else { Ok(own) }
}

/// The name of a media range, in lower case, and how much it is liked.
fn media_range(range: &str) -> (String, f32) {
    let mut parts = range.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default().to_ascii_lowercase();
    let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
    (name, weight)
}

impl Format {
    const OFFERED: &'static str = "Accept: expected application/vnd.kafka.json.v2+json, \
        application/vnd.kafka.binary.v2+json, application/vnd.kafka.text.v2+json or application/json";

    /// This form, under the name that REST proxies have for it.
    pub const fn of(embedded: Embedded) -> Format {
        let content_type = match embedded {
            Embedded::Json => "application/vnd.kafka.json.v2+json",
            Embedded::Binary => "application/vnd.kafka.binary.v2+json",
            Embedded::Text => "application/vnd.kafka.text.v2+json",
        };
        Format { embedded, content_type }
    }

    /// The form of a media range in lower case.
    fn named(range: &str) -> Option<Format> {
        match range {
            "application/json" => {
                Some(Format { embedded: Embedded::Json, content_type: "application/json" })
            }
            "*/*" | "application/*" => Some(Format::of(Embedded::Binary)),
            _ => [Embedded::Json, Embedded::Binary, Embedded::Text]
                .map(Format::of)
                .into_iter()
                .find(|format| format.content_type == range),
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn of(query: &str, accept: &[&'static str]) -> Result<Piece, ApiError> {
        let headers = accept.iter().map(|value| (ACCEPT, HeaderValue::from_static(value)));
        piece(&Parameters::of(Some(query)), &headers.collect())
    }

    #[test]
    fn a_request_says_where_to_begin_and_how_much_it_wants() {
        let all = "offset=7&max_bytes=1000&max_records=5&timeout=250&isolation=read_committed";
        let piece = of(all, &[]).unwrap();
        assert_eq!(piece.start, Start::Offset(7));
        assert_eq!((piece.bytes_max, piece.records_max), (1000, 5));
        assert_eq!((piece.wait, piece.read_committed), (Duration::from_millis(250), true));
        let least = of("offset=earliest", &[]).unwrap();
        assert_eq!((least.start, least.wait), (Start::Earliest, Duration::ZERO));
        assert_eq!(of("offset=latest", &[]).unwrap().start, Start::Latest);
        assert_eq!(
            of("timestamp=1700000000000", &[]).unwrap().start,
            Start::Time(1_700_000_000_000)
        );
    }

    #[test]
    fn parameters_that_make_no_sense_are_named() {
        for (query, word) in [
            ("", "offset"),
            ("offset=-1", "offset"),
            ("offset=x", "offset"),
            ("offset=9223372036854775808", "offset"),
            ("offset=1&timestamp=1", "both"),
            ("timestamp=-5", "timestamp"),
            ("offset=1&max_bytes=0", "max_bytes"),
            ("offset=1&max_bytes=8388609", "max_bytes"),
            ("offset=1&max_records=20001", "max_records"),
            ("offset=1&timeout=30001", "timeout"),
            ("offset=1&timeout=-1", "timeout"),
            ("offset=1&isolation=all", "isolation"),
            ("offset=1&format=avro", "format"),
        ] {
            let error = of(query, &[]).unwrap_err();
            assert_eq!(error.kind, Kind::Unprocessable, "{query}");
            assert!(error.message.contains(word), "{query}: {error:?}");
        }
    }

    #[test]
    fn the_form_is_the_one_that_is_liked_best() {
        let form = |query: &str, accept: &[&'static str]| {
            of(&format!("offset=0{query}"), accept).map(|piece| piece.format)
        };
        let [json, binary, text] =
            [Embedded::Json, Embedded::Binary, Embedded::Text].map(|form| Ok(Format::of(form)));
        assert_eq!(form("", &[]), binary);
        assert_eq!(form("", &["*/*"]), binary);
        assert_eq!(form("", &["Application/vnd.kafka.JSON.v2+json"]), json);
        assert_eq!(form("", &["application/vnd.kafka.text.v2+json; charset=utf-8"]), text);
        assert_eq!(form("&format=text", &["application/vnd.kafka.json.v2+json"]), text);
        let several = ["text/html, application/vnd.kafka.json.v2+json;q=0.5", "*/*;q=0.1"];
        assert_eq!(form("", &several), json);
        assert_eq!(form("", &["application/json"]).unwrap().content_type, "application/json");
        for refused in ["text/html", "application/vnd.kafka.avro.v2+json", "application/json;q=0"] {
            assert_eq!(form("", &[refused]).unwrap_err().kind, Kind::NotAcceptable, "{refused}");
        }
    }
}
