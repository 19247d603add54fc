//! Fault rules: which requests a rule matches, which of the matching requests get the fault, and the fault.

use super::answer;
use model::ErrorCode;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::HashSet;
use wire::ApiKey;

/// Seed and rules of a proxy, as in a file of faults.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultPlan {
    /// Seed of the rules that fire by probability.
    #[serde(default)]
    pub seed: u64,
    /// Rules in the order of their precedence: the first rule that fires decides the fault of a request.
    #[serde(default)]
    pub rules: Vec<FaultRule>,
}

/// One fault rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// Unique name, 1 to 100 characters. The journal and the counts refer to it.
    pub name: String,
    /// API of the requests; `None` matches every API.
    #[serde(default, with = "api_name", skip_serializing_if = "Option::is_none")]
    pub api: Option<ApiKey>,
    /// Topic of the requests; `*` matches any characters. `None` matches every topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Partition of the requests; `None` matches every partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<i32>,
    /// Client id of the requests; `*` matches any characters. `None` matches every client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Matching requests that get the fault.
    #[serde(default)]
    pub occurrence: Occurrence,
    /// Requests that are counted together.
    #[serde(default)]
    pub count_by: CountBy,
    /// Faults after which the rule fires no more; `None` for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The fault.
    pub action: FaultAction,
}

/// Which of the counted requests get the fault.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Occurrence {
    /// Every request.
    #[default]
    Always,
    /// The first request.
    Once,
    /// The request of this number, from 1.
    Nth(u64),
    /// Each request whose number is a multiple, from 1.
    Every(u64),
    /// Each request with this probability, 0 to 1.
    Probability(f64),
}

/// Which requests of a rule are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountBy {
    /// Requests of one client id to one partition. Requests without partitions are counted by client id.
    /// The faults of a client then do not depend on the other clients.
    #[default]
    ClientPartition,
    /// All requests that the rule matches.
    Rule,
}

/// Error code of an answer, by its name in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerCode(pub ErrorCode);

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FaultAction {
    /// Forwards the request this many milliseconds later. Later requests of the connection wait behind it.
    Delay {
        /// Milliseconds, at most [`DELAY_MS_MAX`].
        ms: u64,
    },
    /// Sends the broker's answer this many milliseconds later. Later answers of the connection wait behind it.
    DelayAnswer {
        /// Milliseconds, at most [`DELAY_MS_MAX`].
        ms: u64,
    },
    /// Forwards the request, drops the broker's answer and closes the connection.
    DropAnswer,
    /// Forwards the request and sends nothing more on the connection, which stays open.
    WithholdAnswer,
    /// Answers with an error code.
    Error {
        /// The code, in every partition or entry of the answer.
        code: AnswerCode,
        /// False: the broker never gets the request. True: the broker carries the request out, and the code
        /// replaces its answer's codes.
        #[serde(default)]
        after_effect: bool,
    },
    /// Closes the connection; the broker never gets the request.
    Close,
    /// Closes the connection with a TCP reset; the broker never gets the request.
    Reset,
    /// Sets the throttle time of the broker's answer.
    Throttle {
        /// Milliseconds, 1 to [`DELAY_MS_MAX`].
        ms: u64,
    },
    /// Forwards the request twice; the client gets the first answer.
    Duplicate,
    /// Acknowledges a produce request that the broker never gets.
    Lose,
    /// Forwards a produce request behind the next one of its connection that writes to a common partition. If none
    /// comes within 100 ms, or another request comes first, it goes unchanged, and the next one is tried.
    Reorder,
    /// Changes the last byte of a record's value in a produce request and corrects the batch's checksum. A request of
    /// compressed batches, or without values, goes unchanged, and the next one is tried.
    Damage,
    /// Forwards the request, waits for the broker's answer and kills the broker's process. The client gets no answer.
    Kill,
    /// Stops the broker of the connection in an orderly way and starts it again, so that other brokers lead its partitions.
    /// The connection closes; the broker never gets the request.
    MoveLeader,
}

/// Longest delay and throttle time of a rule, in milliseconds: an hour.
pub const DELAY_MS_MAX: u64 = 3_600_000;
/// Rules of a plan at most.
pub const RULES_MAX: usize = 1000;
/// Longest name of a rule, in characters.
const NAME_CHARS_MAX: usize = 100;
/// APIs whose requests name partitions.
pub const PARTITION_APIS: &[ApiKey] = &[
    ApiKey::Produce,
    ApiKey::Fetch,
    ApiKey::ListOffsets,
    ApiKey::OffsetCommit,
    ApiKey::OffsetFetch,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::AddPartitionsToTxn,
    ApiKey::TxnOffsetCommit,
];
/// Further APIs whose requests name topics.
pub const TOPIC_APIS: &[ApiKey] =
    &[ApiKey::Metadata, ApiKey::CreateTopics, ApiKey::DeleteTopics, ApiKey::CreatePartitions];

/// A field of a rule that has an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {rule:?}: {field}: {problem}")]
pub struct InvalidRule {
    /// Name of the rule.
    pub rule: String,
    /// Name of the field.
    pub field: &'static str,
    /// The value, and the allowed values.
    pub problem: String,
}

fn names(apis: &[ApiKey]) -> String {
    let names: Vec<&str> = apis.iter().map(|api| api.name()).collect();
    names.join(", ")
}

impl FaultPlan {
    /// Checks all rules and that their names differ.
    ///
    /// # Errors
    /// The first field with an invalid value.
    pub fn check(&self) -> Result<(), InvalidRule> {
        if let Some(rule) = self.rules.get(RULES_MAX) {
            return Err(rule.one_too_many());
        }
        let mut names = HashSet::new();
        for rule in &self.rules {
            rule.check()?;
            if !names.insert(&rule.name) {
                return Err(rule.invalid("name", "two rules have this name; names are unique"));
            }
        }
        Ok(())
    }
}

impl FaultRule {
    /// The rule is above [`RULES_MAX`].
    pub(super) fn one_too_many(&self) -> InvalidRule {
        self.invalid("rules", format!("allowed are at most {RULES_MAX} rules at a time"))
    }

    pub(super) fn invalid(&self, field: &'static str, problem: impl Into<String>) -> InvalidRule {
        InvalidRule { rule: self.name.clone(), field, problem: problem.into() }
    }

    /// Checks the values of the fields, alone and together.
    ///
    /// # Errors
    /// The first field with an invalid value.
    pub fn check(&self) -> Result<(), InvalidRule> {
        let length = self.name.chars().count();
        if !(1..=NAME_CHARS_MAX).contains(&length) || self.name.chars().any(char::is_control) {
            let problem = format!("allowed are 1 to {NAME_CHARS_MAX} printable characters");
            return Err(self.invalid("name", problem));
        }
        self.check_target()?;
        self.check_occurrence()?;
        self.check_action()
    }

    fn check_target(&self) -> Result<(), InvalidRule> {
        if self.topic.as_deref() == Some("") {
            return Err(self.invalid("topic", "allowed are a topic's name and patterns with *"));
        }
        if self.partition.is_some_and(|partition| partition < 0) {
            return Err(self.invalid("partition", "allowed are numbers from 0 on"));
        }
        let Some(api) = self.api else { return Ok(()) };
        if self.partition.is_some() && !PARTITION_APIS.contains(&api) {
            let allowed = names(PARTITION_APIS);
            let problem = format!("requests of {api} name no partition; those of {allowed} do");
            return Err(self.invalid("partition", problem));
        }
        let by_topic = [PARTITION_APIS, TOPIC_APIS].concat();
        if self.topic.is_some() && !by_topic.contains(&api) {
            let problem =
                format!("requests of {api} name no topic; those of {} do", names(&by_topic));
            return Err(self.invalid("topic", problem));
        }
        Ok(())
    }

    fn check_occurrence(&self) -> Result<(), InvalidRule> {
        let problem = match self.occurrence {
            Occurrence::Nth(0) => "nth counts from 1",
            Occurrence::Every(0) => "every is 1 or more",
            Occurrence::Probability(p) if !(0.0..=1.0).contains(&p) => "probability is 0 to 1",
            _ if self.limit == Some(0) => {
                return Err(self.invalid("limit", "allowed are numbers from 1 on"));
            }
            _ => return Ok(()),
        };
        Err(self.invalid("occurrence", problem))
    }

    fn check_action(&self) -> Result<(), InvalidRule> {
        let allowed = match self.action {
            FaultAction::Delay { ms }
            | FaultAction::DelayAnswer { ms }
            | FaultAction::Throttle { ms }
                if !(1..=DELAY_MS_MAX).contains(&ms) =>
            {
                let problem = format!("ms is 1 to {DELAY_MS_MAX}");
                return Err(self.invalid("action", problem));
            }
            FaultAction::Error { code, .. } if code.0 == ErrorCode::None => {
                return Err(self.invalid("action", "NONE is the code of success"));
            }
            FaultAction::Lose | FaultAction::Reorder | FaultAction::Damage => {
                &[ApiKey::Produce][..]
            }
            FaultAction::Error { .. } | FaultAction::Throttle { .. } => answer::ALTERED_APIS,
            _ => return Ok(()),
        };
        if self.api.is_some_and(|api| allowed.contains(&api)) {
            return Ok(());
        }
        let action = self.action.name();
        let problem = format!("action {action} needs one of: {}", names(allowed));
        Err(self.invalid("api", problem))
    }

    /// Whether the rule matches requests of this API.
    pub fn matches_api(&self, api: ApiKey) -> bool {
        self.api.is_none_or(|wanted| wanted == api)
    }

    /// Whether the rule matches requests of this client.
    pub fn matches_client(&self, client_id: &str) -> bool {
        self.client_id.as_deref().is_none_or(|pattern| matches(pattern, client_id))
    }

    /// Whether the rule matches every topic and partition, and requests without them.
    pub fn matches_any_partition(&self) -> bool {
        self.topic.is_none() && self.partition.is_none()
    }

    /// Whether the rule matches this topic and partition. `None`: a topic whose name the proxy has not seen; a request
    /// that names a topic without a partition.
    pub fn matches_partition(&self, topic: Option<&str>, partition: Option<i32>) -> bool {
        let by_topic = match (&self.topic, topic) {
            (None, _) => true,
            (Some(pattern), Some(topic)) => matches(pattern, topic),
            (Some(_), None) => false,
        };
        by_topic && (self.partition.is_none() || self.partition == partition)
    }
}

impl FaultAction {
    /// Name of the action, as in a rule.
    pub fn name(self) -> &'static str {
        match self {
            FaultAction::Delay { .. } => "delay",
            FaultAction::DelayAnswer { .. } => "delay_answer",
            FaultAction::DropAnswer => "drop_answer",
            FaultAction::WithholdAnswer => "withhold_answer",
            FaultAction::Error { .. } => "error",
            FaultAction::Close => "close",
            FaultAction::Reset => "reset",
            FaultAction::Throttle { .. } => "throttle",
            FaultAction::Duplicate => "duplicate",
            FaultAction::Lose => "lose",
            FaultAction::Reorder => "reorder",
            FaultAction::Damage => "damage",
            FaultAction::Kill => "kill",
            FaultAction::MoveLeader => "move_leader",
        }
    }
}

/// Whether `text` has the form of `pattern`, in which `*` matches any characters, also none.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some(at) = text.find(piece) else { return false };
        text = &text[at + piece.len()..];
    }
    text.ends_with(last)
}

/// An API by its name.
mod api_name {
    use super::{ApiKey, Deserialize, Deserializer, Serialize, Serializer};
    use serde::de::Error as _;

    pub fn serialize<S: Serializer>(api: &Option<ApiKey>, to: S) -> Result<S::Ok, S::Error> {
        api.map(ApiKey::name).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ApiKey>, D::Error> {
        let Some(name) = Option::<String>::deserialize(from)? else { return Ok(None) };
        let found = ApiKey::all().iter().find(|api| api.name() == name);
        found.copied().map(Some).ok_or_else(|| {
            let all: Vec<&str> = ApiKey::all().iter().map(|api| api.name()).collect();
            D::Error::custom(format!("unknown api {name:?}; allowed are {}", all.join(", ")))
        })
    }
}

impl Serialize for AnswerCode {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0.name())
    }
}

/// All error codes of the protocol.
fn codes() -> impl Iterator<Item = ErrorCode> {
    (-1..i16::from(u8::MAX)).filter_map(ErrorCode::from_code)
}

impl<'de> Deserialize<'de> for AnswerCode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<AnswerCode, D::Error> {
        let name = String::deserialize(from)?;
        codes().find(|code| code.name() == name).map(AnswerCode).ok_or_else(|| {
            let all: Vec<&str> = codes().map(ErrorCode::name).collect();
            D::Error::custom(format!("unknown error code {name:?}; allowed are {}", all.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_with_any_number_of_stars() {
        for (pattern, text) in [
            ("a", "a"),
            ("*", ""),
            ("*", "abc"),
            ("a*", "a"),
            ("a*c", "abc"),
            ("*b*", "abc"),
            ("a*b*c", "a1b2c"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("a", "ab"), ("a*", "ba"), ("*a", "ab"), ("a*b*c", "acb"), ("a*a", "a")]
        {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_topic_without_a_name_matches_rules_without_a_topic_only() {
        let rule = |topic: Option<&str>| FaultRule {
            topic: topic.map(str::to_owned),
            ..super::super::testing::rule(FaultAction::Close)
        };
        assert!(rule(None).matches_partition(None, Some(0)));
        assert!(!rule(Some("*")).matches_partition(None, Some(0)));
        assert!(rule(Some("*")).matches_partition(Some("t"), None));
    }
}
