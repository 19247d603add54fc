//! A topic that is to be created, in the words of Strimzi's bridge: `{"topic_name":…,"partitions_count":…,"replication_factor":…}`,
//! and with `configs`.

use std::collections::BTreeMap;

use client::admin::NewTopic;
use serde::Deserialize;
use serving::error::{ApiError, Kind};

use super::instances::object;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    topic_name: String,
    #[serde(default)]
    partitions_count: Option<i32>,
    #[serde(default)]
    replication_factor: Option<i16>,
    #[serde(default)]
    configs: Option<BTreeMap<String, String>>,
}

/// The topic that a body describes; a number that it does not name is the brokers' default.
///
/// # Errors
/// The body is not JSON, not of this form, or has a number below 1.
pub fn new_topic(body: &[u8]) -> Result<NewTopic, ApiError> {
    let written: Written = object(body)?;
    if model::topic_name::validate(&written.topic_name).is_err() {
        let words = "topic_name: expected 1 to 249 letters, digits, dots, underscores and hyphens";
        return Err(ApiError::new(Kind::Unprocessable, words));
    }
    for (name, number) in [
        ("partitions_count", written.partitions_count),
        ("replication_factor", written.replication_factor.map(i32::from)),
    ] {
        if number.is_some_and(|number| number < 1) {
            let words = format!("{name}: expected a number of at least 1");
            return Err(ApiError::new(Kind::Unprocessable, words));
        }
    }
    Ok(NewTopic {
        name: written.topic_name,
        partitions: written.partitions_count,
        replication_factor: written.replication_factor,
        configs: written.configs.unwrap_or_default().into_iter().collect(),
        assignments: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_has_what_the_body_says_and_defaults_otherwise() {
        let body = br#"{"topic_name":"t","partitions_count":3,"configs":{"retention.ms":"1000"}}"#;
        let topic = new_topic(body).unwrap();
        assert_eq!((topic.name.as_str(), topic.partitions), ("t", Some(3)));
        assert_eq!(topic.replication_factor, None);
        assert_eq!(topic.configs, [("retention.ms".to_owned(), "1000".to_owned())]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (body, kind) in [
            ("", Kind::Malformed),
            ("{}", Kind::Unprocessable),
            (r#"["t"]"#, Kind::Unprocessable),
            (r#"{"topic_name":""}"#, Kind::Unprocessable),
            (r#"{"topic_name":"a/b"}"#, Kind::Unprocessable),
            (r#"{"topic_name":"t","partitions_count":0}"#, Kind::Unprocessable),
            (r#"{"topic_name":"t","replication_factor":-1}"#, Kind::Unprocessable),
            (r#"{"topic_name":"t","partition_count":3}"#, Kind::Unprocessable),
        ] {
            assert_eq!(new_topic(body.as_bytes()).unwrap_err().kind, kind, "{body}");
        }
    }
}
