//! Targets and headers of requests: no text panics, a topic is a piece of its path, and no page of a stranger is let in. The lines
//! of the input are the method, the target, and headers.

#![no_main]

use gateway::request::read::{BYTES_MAX, RECORDS_MAX, piece};
use gateway::request::wanted::{raw, reading, wanted};
use gateway::request::cloud_events::{binary, is_binary};
use gateway::request::draft::Draft;
use gateway::request::{Parameters, Route, Trace, idempotency_key, route, what_is_asked};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method};
use libfuzzer_sys::fuzz_target;
use serving::choice::Strategy;
use serving::visitors::{Doorkeeper, Visit};

fuzz_target!(|input: &[u8]| {
    let mut lines = input.split(|byte| *byte == b'\n');
    let method = lines.next().and_then(|line| Method::from_bytes(line).ok()).unwrap_or(Method::POST);
    let Some(target) = lines.next().and_then(|line| std::str::from_utf8(line).ok()) else { return };
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let mut headers = HeaderMap::new();
    for line in lines {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = parts.next().and_then(|name| HeaderName::from_bytes(name).ok());
        let value = parts.next().and_then(|value| HeaderValue::from_bytes(value).ok());
        if let (Some(name), Some(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    if let Ok(Route::Produce { topic, partition, .. }) = route(&method, path) {
        assert!(topic.len() <= path.len() && partition.is_none_or(|partition| partition >= 0));
    }
    let parameters = Parameters::of(query);
    let _ = wanted(&parameters, &headers, Strategy::default());
    let (trace, mut traced) = (Trace::of(&headers), Draft::default());
    trace.add_to(&mut traced);
    assert!(traced.headers.first().is_none_or(|(name, _)| name == "traceparent"));
    assert!(traced.headers.iter().flat_map(|(_, value)| value).map(|value| value.len()).sum::<usize>() <= 1024);
    let _ = reading(&parameters, &headers);
    if let Ok(draft) = raw(b"value", &parameters, &headers) {
        assert!(draft.headers.len() <= headers.len());
    }
    if let Ok(draft) = binary(b"data", &headers) {
        assert!(is_binary(&headers) && draft.headers.len() <= headers.len());
        assert!(draft.headers.iter().all(|(name, _)| name.starts_with("ce_") || name == "content-type"));
    }
    if let Ok(Some(key)) = idempotency_key(&headers) {
        assert!((1..=255).contains(&key.len()));
    }
    let asked = what_is_asked(query, &headers, b"body");
    assert!(asked.len() >= 2 && asked.len() <= 2 + 2 * headers.len());
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Ok(piece) = piece(&parameters, &headers) {
        assert!((1..=BYTES_MAX).contains(&piece.bytes_max) && (1..=RECORDS_MAX).contains(&piece.records_max));
    }
    let visit = Visit {
        host: text("host"),
        origin: text("origin"),
        fetch_site: text("sec-fetch-site"),
        reads: method == Method::GET,
    };
    let keeper = Doorkeeper::new(Some("http://gateway.example.org"), ["https://app.example.org"]);
    if keeper.admit(&visit).is_ok() {
        let host = visit.host.expect("a host is named").to_ascii_lowercase();
        let name = host.rsplit_once(':').map_or(&*host, |(name, _)| name).trim_end_matches('.');
        let is_number = name.chars().all(|c| c.is_ascii_digit() || c == '.');
        let is_known = name.ends_with(".localhost") || name == "gateway.example.org";
        assert!(!name.contains('.') || is_number || is_known || host.starts_with('['), "{host}");
        if let (Some(origin), false) = (visit.origin, visit.reads) {
            let origin = origin.to_ascii_lowercase();
            assert!(origin == "https://app.example.org" || origin.contains(&host));
        }
    }
});
