//! Warnings about fault rules that never fire.

use std::fmt;

use proxy::fault_injection::{FaultAction, FaultRule, Occurrence};

/// Longest name of a topic, in characters.
const TOPIC_CHARS_MAX: usize = 249;

/// A rule that never fires.
#[derive(Debug, PartialEq, Eq)]
pub struct FaultWarning {
    rule: String,
    /// Field of the rule that keeps it from firing.
    field: &'static str,
    reason: String,
}

impl fmt::Display for FaultWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultWarning { rule, field, reason } = self;
        write!(f, "rule {rule:?} never fires: {field}: {reason}")
    }
}

/// The rules, in the order of their precedence, that never fire.
pub fn warnings(rules: &[FaultRule]) -> Vec<FaultWarning> {
    let of_rule = |(at, rule): (usize, &FaultRule)| {
        let (field, reason) = field_reason(rule).or_else(|| earlier_reason(rule, &rules[..at]))?;
        Some(FaultWarning { rule: rule.name.clone(), field, reason })
    };
    rules.iter().enumerate().filter_map(of_rule).collect()
}

/// A field whose value keeps a rule from firing.
fn field_reason(rule: &FaultRule) -> Option<(&'static str, String)> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-*".contains(c);
    if let Some(topic) = &rule.topic {
        if let Some(bad) = topic.chars().find(|c| !is_allowed(*c)) {
            let reason = format!(
                "no topic has {bad:?} in its name; names have letters, digits, '.', '_' and '-'"
            );
            return Some(("topic", reason));
        }
        if topic.chars().filter(|c| *c != '*').count() > TOPIC_CHARS_MAX {
            let reason = format!("no topic has a name of more than {TOPIC_CHARS_MAX} characters");
            return Some(("topic", reason));
        }
    }
    match rule.occurrence {
        Occurrence::Probability(0.0) => Some(("occurrence", "the probability is 0".to_owned())),
        _ => None,
    }
}

/// An earlier rule that fires for every request of this rule.
fn earlier_reason(rule: &FaultRule, earlier: &[FaultRule]) -> Option<(&'static str, String)> {
    let first = earlier.iter().find(|first| always_fires(first) && covers(first, rule))?;
    let reason = format!(
        "rule {:?} stands before it and fires for each of its requests; exchange both rules, or give the first one an \
         occurrence or a limit",
        first.name
    );
    Some(("name", reason))
}

/// Whether a rule fires for every request that it matches.
fn always_fires(rule: &FaultRule) -> bool {
    // These wait for a suitable request.
    let waits = matches!(rule.action, FaultAction::Reorder | FaultAction::Damage);
    rule.occurrence == Occurrence::Always && rule.limit.is_none() && !waits
}

/// Whether a rule matches every request that the other one matches.
fn covers(first: &FaultRule, other: &FaultRule) -> bool {
    let by_text = |first: &Option<String>, other: &Option<String>| {
        first.is_none() || first == other || (first.as_deref() == Some("*") && other.is_some())
    };
    (first.api.is_none() || first.api == other.api)
        && (first.partition.is_none() || first.partition == other.partition)
        && by_text(&first.topic, &other.topic)
        && by_text(&first.client_id, &other.client_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxy::fault_injection::parse_plan;

    /// Rules and fields of the warnings about a plan in TOML.
    fn found(rules: &[&str]) -> Vec<(String, &'static str)> {
        let text: String = rules.iter().map(|rule| format!("[[rules]]\n{rule}\n")).collect();
        let plan = parse_plan(&text).unwrap();
        warnings(&plan.rules).into_iter().map(|warning| (warning.rule, warning.field)).collect()
    }

    #[test]
    fn a_topic_that_cannot_exist_and_a_probability_of_0_are_named() {
        let close = "action = \"close\"\nname = \"x\"\n";
        for (field, line) in [
            ("topic", "topic = \"or ders\"".to_owned()),
            ("topic", "topic = \"orders:3\"".to_owned()),
            ("topic", format!("topic = \"{}\"", "a".repeat(250))),
            ("occurrence", "occurrence = { probability = 0.0 }".to_owned()),
        ] {
            assert_eq!(found(&[&(close.to_owned() + &line)]), [("x".to_owned(), field)], "{line}");
        }
        for line in ["topic = \"or*_.-9\"", "occurrence = { probability = 0.1 }", ""] {
            assert_eq!(found(&[&(close.to_owned() + line)]), [], "{line}");
        }
    }

    #[test]
    fn a_rule_behind_one_that_always_fires_is_named() {
        let first = |rest: &str| format!("name = \"first\"\naction = \"close\"\n{rest}");
        let second = |rest: &str| format!("name = \"second\"\naction = \"reset\"\n{rest}");
        let produce = "api = \"Produce\"\n";
        for (before, behind, warns) in [
            ("", produce, true),
            (produce, produce, true),
            (produce, "", false),
            (produce, "api = \"Fetch\"\n", false),
            ("occurrence = \"once\"\n", produce, false),
            ("limit = 3\n", produce, false),
            ("topic = \"*\"\n", "topic = \"t\"\n", true),
            ("topic = \"*\"\n", "", false),
            ("topic = \"t*\"\n", "topic = \"t*\"\n", true),
            ("topic = \"t\"\npartition = 1\n", "topic = \"t\"\n", false),
            ("client_id = \"a\"\n", "client_id = \"b\"\n", false),
        ] {
            let found = found(&[&first(before), &second(behind)]);
            assert_eq!(!found.is_empty(), warns, "{before} {behind}");
            assert!(found.iter().all(|(rule, field)| rule == "second" && *field == "name"));
        }
        let damage = "name = \"d\"\napi = \"Produce\"\naction = \"damage\"";
        assert_eq!(found(&[damage, &second(produce)]), []);
    }
}
