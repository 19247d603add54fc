//! From Kafka's names to Rust's, and from versions to conditions and prose.

use super::schema::{Message, Versions};

/// `ReplicaIdAndEpoch` as `replica_id_and_epoch`.
pub fn snake(camel: &str) -> String {
    let chars: Vec<char> = camel.chars().collect();
    let mut out = String::new();
    for (i, c) in chars.iter().enumerate() {
        let after_lower = i > 0 && !chars[i - 1].is_uppercase();
        let before_lower = i > 0 && chars.get(i + 1).is_some_and(|n| n.is_lowercase());
        if c.is_uppercase() && i > 0 && (after_lower || before_lower) {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// The name of a field; Rust's keywords get an underscore.
pub fn field_name(camel: &str) -> String {
    match snake(camel) {
        name if matches!(name.as_str(), "type" | "match" | "ref" | "in") => name + "_",
        name => name,
    }
}

/// "Version 3", "Versions 3 to 5", "Versions 3 and up".
pub fn prose(versions: Versions) -> String {
    match (versions.low, versions.high) {
        (low, i16::MAX) => format!("Versions {low} and up"),
        (low, high) if low == high => format!("Version {low}"),
        (low, high) => format!("Versions {low} to {high}"),
    }
}

/// What of `versions` is valid in the message, as a condition on `version`; `None` for always.
/// "false" when no version of the message is among them.
pub fn condition(versions: Versions, message: &Message) -> Option<String> {
    let valid = message.versions;
    let both = versions.and(valid);
    match (both.low == valid.low, both.high == valid.high) {
        _ if both.is_empty() => Some("false".to_owned()),
        (true, true) => None,
        (true, false) => Some(format!("version <= {}", both.high)),
        (false, true) => Some(format!("version >= {}", both.low)),
        _ if both.low == both.high => Some(format!("version == {}", both.low)),
        _ => Some(format!("({}..={}).contains(&version)", both.low, both.high)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn camel_case_becomes_snake_case() {
        for (camel, expected) in [
            ("ErrorCode", "error_code"),
            ("topicId", "topic_id"),
            ("KRaftVersion", "k_raft_version"),
            ("AbortedTransactions", "aborted_transactions"),
        ] {
            assert_eq!(snake(camel), expected);
        }
        assert_eq!(field_name("Match"), "match_");
    }
}
