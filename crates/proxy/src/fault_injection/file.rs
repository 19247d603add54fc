//! Fault rules as text: TOML or JSON.

use super::rule::{FaultPlan, FaultRule, InvalidRule};

/// A text that holds no valid fault rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultFileError {
    /// The text is not TOML or JSON, or a field or value is unknown. The message names line and column.
    #[error("{0}")]
    Syntax(String),
    /// A field has an invalid value.
    #[error(transparent)]
    Rule(#[from] InvalidRule),
}

/// Forms of actions and occurrences, for error messages.
pub const FORMS: &str = "actions: {\"delay\": {\"ms\": 200}}, {\"delay_answer\": {\"ms\": 200}}, \"drop_answer\", \
    \"withhold_answer\", {\"error\": {\"code\": \"NOT_LEADER_OR_FOLLOWER\", \"after_effect\": false}}, \"close\", \
    \"reset\", {\"throttle\": {\"ms\": 500}}, \"duplicate\", \"lose\", \"reorder\", \"damage\", \"kill\", \"move_leader\"; \
    occurrences: \"always\", \"once\", {\"nth\": 3}, {\"every\": 3}, {\"probability\": 0.1}";

/// Reads a plan. A text that begins with `{` is JSON, every other text is TOML.
///
/// # Errors
/// The text is malformed, or a rule is invalid.
pub fn parse_plan(text: &str) -> Result<FaultPlan, FaultFileError> {
    let plan: FaultPlan = from_text(text)?;
    plan.check()?;
    Ok(plan)
}

fn from_text<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, FaultFileError> {
    match text.trim_start().starts_with('{') {
        true => from_json(text),
        false => toml::from_str(text)
            .map_err(|error| FaultFileError::Syntax(error.to_string().trim_end().to_owned())),
    }
}

/// Reads a plan as [`parse_plan`] does, and its seed, if the text names one.
///
/// # Errors
/// As [`parse_plan`].
pub fn parse_plan_and_seed(text: &str) -> Result<(FaultPlan, Option<u64>), FaultFileError> {
    #[derive(serde::Deserialize)]
    struct NamedSeed {
        seed: Option<u64>,
    }
    let plan = parse_plan(text)?;
    let named: NamedSeed = from_text(text)?;
    Ok((plan, named.seed))
}

/// Reads one rule from JSON.
///
/// # Errors
/// The text is malformed, or the rule is invalid.
pub fn parse_rule(json: &str) -> Result<FaultRule, FaultFileError> {
    let rule: FaultRule = from_json(json)?;
    rule.check()?;
    Ok(rule)
}

fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, FaultFileError> {
    serde_json::from_str(text).map_err(|error| FaultFileError::Syntax(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault_injection::rule::{AnswerCode, CountBy, FaultAction, Occurrence};
    use model::ErrorCode;
    use wire::ApiKey;

    const TOML: &str = r#"
seed = 7

[[rules]]
name = "late"
api = "Produce"
topic = "orders*"
partition = 0
client_id = "billing"
occurrence = { nth = 3 }
action = { delay = { ms = 200 } }

[[rules]]
name = "moved"
api = "Fetch"
occurrence = { probability = 0.25 }
count_by = "rule"
limit = 2
action = { error = { code = "NOT_LEADER_OR_FOLLOWER" } }
"#;

    #[test]
    fn a_file_is_read_as_toml_or_json_and_written_back() {
        let plan = parse_plan(TOML).unwrap();
        assert_eq!((plan.seed, plan.rules.len()), (7, 2));
        let [late, moved] = &plan.rules[..] else { panic!("two rules") };
        assert_eq!((late.api, late.partition), (Some(ApiKey::Produce), Some(0)));
        assert_eq!(late.occurrence, Occurrence::Nth(3));
        assert_eq!(late.count_by, CountBy::ClientPartition);
        assert_eq!(late.action, FaultAction::Delay { ms: 200 });
        assert_eq!((moved.count_by, moved.limit), (CountBy::Rule, Some(2)));
        let code = AnswerCode(ErrorCode::NotLeaderOrFollower);
        assert_eq!(moved.action, FaultAction::Error { code, after_effect: false });
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(parse_plan(&json).unwrap(), plan);
    }

    /// Message for a file with one rule that has this field.
    fn refused(field: &str) -> String {
        let known = ["name", "action"].into_iter().filter(|name| !field.starts_with(name));
        let rest: String = known
            .map(|name| match name {
                "name" => "name = \"x\"\n",
                _ => "action = \"close\"\n",
            })
            .collect();
        parse_plan(&format!("[[rules]]\n{field}\n{rest}")).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_line_and_the_allowed_values() {
        for (field, words) in [
            ("topik = \"a\"", &["line 2", "topik", "topic", "client_id"][..]),
            ("api = \"Prodcue\"", &["line 2", "Prodcue", "Produce, Fetch"]),
            ("occurrence = \"often\"", &["line 2", "often", "always", "probability"]),
            ("action = \"explode\"", &["line 2", "explode", "drop_answer", "close"]),
            (
                "action = { error = { code = \"OOPS\" } }",
                &["line 2", "OOPS", "NOT_LEADER_OR_FOLLOWER"],
            ),
            ("action = { delay = { seconds = 1 } }", &["line 2", "seconds", "ms"]),
            ("occurrence = { probability = 1.5 }", &["rule \"x\"", "occurrence", "0 to 1"]),
            ("occurrence = { nth = 0 }", &["occurrence", "from 1"]),
            ("limit = 0", &["limit", "from 1"]),
            ("partition = -1", &["partition", "from 0"]),
            ("api = \"Heartbeat\"\ntopic = \"a\"", &["topic", "Heartbeat", "Produce"]),
            ("api = \"Metadata\"\npartition = 1", &["partition", "Metadata", "Produce"]),
            ("action = \"lose\"\napi = \"Fetch\"", &["api", "lose", "Produce"]),
            ("action = { throttle = { ms = 0 } }\napi = \"Fetch\"", &["action", "1 to 3600000"]),
            ("action = { error = { code = \"NONE\" } }\napi = \"Fetch\"", &["action", "NONE"]),
            ("action = { error = { code = \"NOT_COORDINATOR\" } }", &["api", "error", "Heartbeat"]),
            ("name = \"\"", &["name", "1 to 100"]),
        ] {
            let message = refused(field);
            for word in words {
                assert!(message.contains(word), "{field}: {word} is not in: {message}");
            }
        }
        let json = parse_plan("{\"rules\": [\n{\"name\": \"x\"}]}").unwrap_err().to_string();
        assert!(json.contains("missing field `action`") && json.contains("line 2"), "{json}");
        let twice = parse_plan(&TOML.replace("moved", "late")).unwrap_err().to_string();
        assert!(twice.contains("names are unique"), "{twice}");
    }

    #[test]
    fn a_seed_that_a_text_does_not_name_is_none() {
        let seed = |text: &str| parse_plan_and_seed(text).unwrap().1;
        assert_eq!(
            ["", "seed = 0", "{}", "{\"seed\": 5}"].map(seed),
            [None, Some(0), None, Some(5)]
        );
    }

    #[test]
    fn one_rule_is_read_from_json() {
        let rule = parse_rule(r#"{"name": "x", "action": "close"}"#).unwrap();
        assert_eq!((rule.occurrence, rule.action), (Occurrence::Always, FaultAction::Close));
        assert!(parse_rule(r#"{"name": "x", "action": "lose"}"#).is_err());
        assert!(parse_rule("[]").is_err());
    }

    #[test]
    fn the_forms_of_error_messages_are_valid() {
        let (actions, occurrences) = FORMS.split_once("; occurrences: ").unwrap();
        let actions = actions.strip_prefix("actions: ").unwrap();
        let list = |text: &str| format!("[{text}]");
        let actions: Vec<FaultAction> = serde_json::from_str(&list(actions)).unwrap();
        assert_eq!(actions.len(), 14);
        let occurrences: Vec<Occurrence> = serde_json::from_str(&list(occurrences)).unwrap();
        assert_eq!(occurrences.len(), 5);
    }
}
