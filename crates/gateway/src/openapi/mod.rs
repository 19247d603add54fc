//! The OpenAPI document of all routes. Paths and methods come from the router's own table; what the table does not know
//! (parameters, bodies, answers) stands in `document.json` under the id of each row. A row without words there is a bug
//! that a test finds.

use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::answer::OF_PROXIES;
use crate::request::{Entry, TABLE, Verb};

const SOURCE: &str = include_str!("document.json");

/// Statuses that every route may answer: what cannot be read, and who may not ask.
const ALWAYS: [u16; 3] = [400, 401, 403];

/// The document as it is sent.
pub(crate) fn document() -> Bytes {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    DOCUMENT.get_or_init(|| Bytes::from(made().to_string())).clone()
}

fn made() -> Value {
    let source: Value = serde_json::from_str(SOURCE).expect("a test has read it");
    let mut paths = Map::new();
    for entry in TABLE {
        let item = paths.entry(entry.pattern).or_insert_with(|| json!({}));
        item[verb(entry.verb)] = operation(entry, &source["operations"][entry.id]);
    }
    let mut info = source["info"].clone();
    info["version"] = json!(env!("CARGO_PKG_VERSION"));
    let error = |content_type: &str| {
        json!({
            "description": "Why not, and whether records are written",
            "content": { content_type: { "schema": { "$ref": "#/components/schemas/Error" } } },
        })
    };
    json!({
        "openapi": source["openapi"],
        "info": info,
        "tags": source["tags"],
        "paths": paths,
        "components": {
            "schemas": source["schemas"],
            "parameters": parameters(&source["parameters"]),
            "responses": { "Error": error(OF_PROXIES), "OwnError": error("application/json") },
        },
    })
}

fn verb(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "get",
        Verb::Post => "post",
        Verb::Delete => "delete",
    }
}

/// The parameters under names that a reference may have.
fn parameters(source: &Value) -> Map<String, Value> {
    let all = source.as_object().expect("an object of parameters");
    all.iter().map(|(name, parameter)| (component(name), parameter.clone())).collect()
}

fn component(name: &str) -> String {
    name.replace(':', ".")
}

fn operation(entry: &Entry, source: &Value) -> Value {
    let mut operation = source.clone();
    let fields = operation.as_object_mut().expect("each row of the table has an operation");
    let reference =
        |name: &str| json!({ "$ref": format!("#/components/parameters/{}", component(name)) });
    let of_path = entry.pattern.split('/').filter_map(|segment| segment.strip_prefix('{'));
    let of_path = of_path.map(|name| reference(&format!("path:{}", name.trim_end_matches('}'))));
    let named = fields.remove("parameters").unwrap_or_else(|| json!([]));
    let named = named.as_array().into_iter().flatten().filter_map(Value::as_str).map(reference);
    let parameters: Vec<Value> = of_path.chain(named).collect();
    if !parameters.is_empty() {
        fields.insert("parameters".to_owned(), Value::Array(parameters));
    }
    fields.insert("operationId".to_owned(), json!(entry.id));
    let error = if entry.is_of_proxies() { "Error" } else { "OwnError" };
    let errors = fields.remove("errors").unwrap_or_else(|| json!([]));
    let errors = errors.as_array().into_iter().flatten().map(Value::to_string);
    let responses = fields["responses"].as_object_mut().expect("answers by status");
    for status in errors.chain(ALWAYS.map(|status| status.to_string())) {
        responses
            .entry(status)
            .or_insert_with(|| json!({ "$ref": format!("#/components/responses/{error}") }));
    }
    operation
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::request::Embedded;

    /// Everything that the document refers to.
    fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| match value {
                Value::String(path) if name == "$ref" => drop(found.insert(path)),
                other => references(other, found),
            }),
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_route_is_in_the_document_and_nothing_else_is() {
        let source: Value = serde_json::from_str(SOURCE).unwrap();
        let described: BTreeSet<&str> =
            source["operations"].as_object().unwrap().keys().map(String::as_str).collect();
        let routed: BTreeSet<&str> = TABLE.iter().map(|entry| entry.id).collect();
        assert_eq!(described, routed);
        assert_eq!(routed.len(), TABLE.len(), "each row has an id of its own");
        let document = made();
        for entry in TABLE {
            let operation = &document["paths"][entry.pattern][verb(entry.verb)];
            assert_eq!(operation["operationId"], entry.id, "{}", entry.pattern);
            let open = entry.pattern.matches('{').count();
            let given = operation["parameters"].as_array().map_or(0, Vec::len);
            assert!(given >= open, "{}", entry.pattern);
        }
    }

    #[test]
    fn the_pattern_of_filters_takes_what_is_a_filter_and_nothing_else() {
        let document = made();
        let pattern = &document["components"]["parameters"]["filter"]["schema"]["pattern"];
        let pattern = regex::Regex::new(pattern.as_str().unwrap()).unwrap();
        let seventeen = vec!["key:a"; 17].join(",");
        for text in [
            "",
            "key:",
            "key:user-*",
            "key:a,",
            "key:a,,",
            ",key:a",
            "key:a,header:kind=order,header:kind=*",
            r"key:a\,b\*\",
            r"key:a\,b\*\\",
            r"key:a\",
            "key:a*b",
            "key:a\n*",
            "header:=x",
            "header:x",
            "header:a=b=c",
            r"header:\=b",
            r"header:a\=b",
            r"header:a\,b=c",
            "yå",
            &seventeen,
            &seventeen[6..],
        ] {
            let is_filter = serving::events::Filter::read(text).is_ok();
            assert_eq!(pattern.is_match(text), is_filter, "{text:?}");
        }
    }

    #[test]
    fn the_pattern_of_base64_takes_what_the_records_may_have_and_nothing_else() {
        let source: Value = serde_json::from_str(SOURCE).unwrap();
        let header = &source["schemas"]["RecordHeader"]["properties"]["value"]["pattern"];
        let pattern = regex::Regex::new(header.as_str().unwrap()).unwrap();
        for text in [
            "", "Zg==", "Zg=", "Zg", "Zh==", "Zm8=", "Zm8", "Zm9=", "Zm9v", "Z", "Zg===", "Zm9v=",
            "Zm-_",
        ] {
            let body = format!(r#"{{"records":[{{"value":"{text}"}}]}}"#);
            let is_taken =
                crate::request::records::drafts(body.as_bytes(), Embedded::Binary).is_ok();
            assert_eq!(pattern.is_match(text), is_taken, "{text:?}");
        }
    }

    #[test]
    fn what_the_document_refers_to_is_there_and_what_is_there_is_referred_to() {
        let document = made();
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        for path in &found {
            let pointer = path.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{path}");
        }
        for kind in ["schemas", "parameters"] {
            for name in document["components"][kind].as_object().unwrap().keys() {
                let path = format!("#/components/{kind}/{name}");
                assert!(found.contains(path.as_str()), "nothing refers to {path}");
            }
        }
    }
}
