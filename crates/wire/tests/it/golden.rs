//! What Kafka's own classes wrote is read as the values that they say it holds, and written again
//! as the same bytes.

use bytes::Bytes;
use serde_json::Value;
use std::fmt::Debug;
use wire::{Message, Reader};

/// One line of a golden file.
pub struct Line {
    pub role: String,
    pub version: i16,
    pub filling: String,
    pub bytes: Vec<u8>,
    json: Value,
}

/// The lines of one golden file.
pub fn lines(file: &str) -> Vec<Line> {
    let path = format!("{}/testdata/golden/{file}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.lines().map(line).collect()
}

fn line(text: &str) -> Line {
    let parts: Vec<&str> = text.splitn(5, ' ').collect();
    Line {
        role: parts[0].to_owned(),
        version: parts[1].parse().unwrap(),
        filling: parts[2].to_owned(),
        bytes: hex(parts[3]),
        json: serde_json::from_str(parts[4]).unwrap(),
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

pub fn snake(camel: &str) -> String {
    let mut out = String::new();
    for c in camel.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// Checks the lines of one role; returns the versions that they cover.
fn check<M: Message + Default + Debug + PartialEq>(file: &str, role: &str) -> Vec<i16> {
    let mut versions = Vec::new();
    for line in lines(file).into_iter().filter(|line| line.role == role) {
        let what = format!("{} v{} {}", M::NAME, line.version, line.filling);
        let frame = Bytes::from(line.bytes.clone());
        let mut reader = Reader::shared(&frame);
        let message =
            M::decode(&mut reader, line.version).unwrap_or_else(|e| panic!("{what}: {e}"));
        reader.finish().unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(message, wire::decode(&line.bytes, line.version).unwrap(), "{what}: copied");
        assert_eq!(wire::encode(&message, line.version).unwrap(), line.bytes, "{what}");
        if line.filling == "default" {
            assert_eq!(message, M::default(), "{what}");
        }
        check_values(&what, &format!("{message:?}"), &line.json);
        versions.push(line.version);
    }
    versions.dedup();
    versions
}

/// Every field that Kafka's JSON names must stand in the debug text with the same value.
fn check_values(what: &str, text: &str, json: &Value) {
    match json {
        Value::Object(fields) => {
            for (name, value) in fields {
                check_value(what, text, name, value);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|e| check_values(what, text, e)),
        _ => {}
    }
}

fn check_value(what: &str, text: &str, name: &str, value: &Value) {
    let snake = snake(name);
    let expected = match value {
        Value::Null => "None".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(string) => string.clone(),
        Value::Object(_) | Value::Array(_) => return check_values(what, text, value),
    };
    // Kafka's JSON has only the size of records, and bytes in another notation.
    let opaque = [format!("{snake}: b\""), format!("{snake}: Some(b\"")];
    if name.ends_with("SizeInBytes") || opaque.iter().any(|o| text.contains(o)) {
        return;
    }
    let quoted = format!("{expected:?}");
    let found = ["", "_"].iter().any(|suffix| {
        [&expected, &quoted].iter().any(|value| {
            text.contains(&format!("{snake}{suffix}: {value}"))
                || text.contains(&format!("{snake}{suffix}: Some({value}"))
        })
    });
    assert!(found, "{what}: {name} = {value} is not in {text}");
}

fn range<M: Message>() -> Vec<i16> {
    (M::MIN_VERSION..=M::MAX_VERSION).collect()
}

macro_rules! check_apis {
    ($($api:ident $request:ident $response:ident,)*) => {
        #[test]
        fn every_version_of_every_api_is_as_kafka_writes_it() {
            $(
                let file = snake(stringify!($api));
                assert_eq!(check::<wire::$request>(&file, "request"), range::<wire::$request>());
                assert_eq!(check::<wire::$response>(&file, "response"), range::<wire::$response>());
            )*
        }
    };
}

wire::for_each_api!(check_apis);

#[test]
fn headers_and_what_consumers_exchange_are_as_kafka_writes_them() {
    fn check_single<M: Message + Default + Debug + PartialEq>() {
        assert_eq!(check::<M>(&snake(M::NAME), "message"), range::<M>());
    }
    check_single::<wire::RequestHeader>();
    check_single::<wire::ResponseHeader>();
    check_single::<wire::ConsumerProtocolAssignment>();
    check_single::<wire::ConsumerProtocolSubscription>();
}

#[test]
fn requests_and_responses_of_an_api_have_the_same_versions() {
    macro_rules! check_ranges {
        ($($api:ident $request:ident $response:ident,)*) => {$(
            assert_eq!(range::<wire::$request>(), range::<wire::$response>());
            let key = wire::ApiKey::$api;
            assert_eq!(range::<wire::$request>(), (key.min_version()..=key.max_version()).collect::<Vec<_>>());
            assert_eq!(wire::ApiKey::from_code(key.code()), Some(key));
        )*};
    }
    wire::for_each_api!(check_ranges);
}
