//! Requests as data, what was answered, and in what two answers differ.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::front::{Answer, ask};

/// How long a step may be asked again.
const PATIENCE: Duration = Duration::from_secs(15);

/// One request.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What is tried, as a heading.
    pub name: String,
    /// Method and target; `$T` stands for a topic and `$G` for a group that no other run has.
    pub ask: String,
    /// `Content-Type`.
    #[serde(default, rename = "type")]
    pub content_type: Option<String>,
    /// `Accept`.
    #[serde(default)]
    pub accept: Option<String>,
    /// The body: a text as it stands, anything else as JSON.
    #[serde(default)]
    pub body: Option<Value>,
    /// Asked again until then.
    #[serde(default)]
    pub until: Option<Until>,
    /// Why the answers differ.
    #[serde(default)]
    pub why: Option<String>,
    /// Where they differ: the status here, and `error_code`.
    #[serde(default)]
    pub here: Option<(u16, Option<i64>)>,
}

/// When an answer is the one that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    /// What is asked for is there: not 404.
    Found,
    /// There are records in it, or an error.
    Records,
}

/// What is compared of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// The status.
    pub status: u16,
    /// The type of the body; empty without a body.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub content_type: String,
    /// `error_code` of the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<i64>,
    /// The body with the kind of each value in its place; null if it is not JSON.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub shape: Value,
}

/// What the bridge has answered.
#[derive(Debug, Serialize, Deserialize)]
pub struct Recording {
    /// Its version.
    pub bridge: String,
    /// The Apache Kafka behind it.
    pub kafka: String,
    /// By step.
    pub answers: BTreeMap<String, Answered>,
}

impl Recording {
    /// As it is kept: an answer a line.
    pub fn text(&self) -> Result<String> {
        let lines: Result<Vec<String>> = self
            .answers
            .iter()
            .map(|(name, answer)| {
                Ok(format!("    {}: {}", json!(name), serde_json::to_string(answer)?))
            })
            .collect();
        Ok(format!(
            "{{\n  \"bridge\": {},\n  \"kafka\": {},\n  \"answers\": {{\n{}\n  }}\n}}\n",
            json!(self.bridge),
            json!(self.kafka),
            lines?.join(",\n")
        ))
    }
}

/// Asks all steps of one server, in their order.
pub fn walk(steps: &[Step], address: &str, word: &str) -> Result<BTreeMap<String, Answered>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let names = [("$T", format!("{word}-{now}")), ("$G", format!("group-{word}-{now}"))];
    let named =
        |text: &str| names.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    let mut answers = BTreeMap::new();
    for step in steps {
        let mut answer = one(step, address, &named).with_context(|| step.name.clone())?;
        // A name may be a field's, and is another one in each run.
        for (to, from) in &names {
            answer.body = answer.body.replace(from, to);
        }
        answers.insert(step.name.clone(), Answered::of(&answer));
    }
    Ok(answers)
}

fn one(step: &Step, address: &str, named: &impl Fn(&str) -> String) -> Result<Answer> {
    let target = named(&step.ask);
    let (method, path) = target.split_once(' ').context("no method")?;
    let mut headers = Vec::new();
    headers.extend(step.content_type.as_deref().map(|value| ("content-type", value)));
    headers.extend(step.accept.as_deref().map(|value| ("accept", value)));
    let body = match &step.body {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(json) => named(&json.to_string()),
    };
    let ends = Instant::now() + PATIENCE;
    loop {
        let answer = ask(address, method, path, &headers, &body)?;
        let is_it = match step.until {
            None => true,
            Some(Until::Found) => answer.status != 404,
            Some(Until::Records) => answer.status >= 400 || answer.json() != json!([]),
        };
        if is_it || Instant::now() > ends {
            return Ok(answer);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Answered {
    fn of(answer: &Answer) -> Answered {
        let body = answer.json();
        Answered {
            status: answer.status,
            content_type: if answer.body.is_empty() {
                String::new()
            } else {
                answer.content_type.clone()
            },
            error_code: body["error_code"].as_i64(),
            // What a server says of itself is its own business.
            shape: if body.get("openapi").is_some() { json!("document") } else { shape(&body) },
        }
    }
}

/// The kind of each value; of a list that of its first. What names a configuration is a matter of the broker.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::Bool(_) => json!("bool"),
        Value::Number(_) => json!("number"),
        Value::String(_) => json!("string"),
        Value::Array(list) => Value::Array(list.first().map(shape).into_iter().collect()),
        Value::Object(fields) => {
            let kind = |(name, value): (&String, &Value)| match name.as_str() {
                "configs" => (name.clone(), json!("configs")),
                _ => (name.clone(), shape(value)),
            };
            Value::Object(fields.iter().map(kind).collect::<Map<_, _>>())
        }
    }
}

/// In what our answer differs. More fields than theirs do not count.
pub fn differences(theirs: &Answered, ours: &Answered) -> Vec<String> {
    let mut found = Vec::new();
    if theirs.status != ours.status {
        found.push(format!("status {} there, {} here", theirs.status, ours.status));
    }
    if theirs.content_type != ours.content_type {
        found.push(format!("type {:?} there, {:?} here", theirs.content_type, ours.content_type));
    }
    if theirs.error_code != ours.error_code {
        let code = |code: Option<i64>| code.map_or("none".to_owned(), |code| code.to_string());
        let (there, here) = (code(theirs.error_code), code(ours.error_code));
        found.push(format!("error code {there} there, {here} here"));
    }
    lacks(&theirs.shape, &ours.shape, "", &mut found);
    found
}

fn lacks(theirs: &Value, ours: &Value, at: &str, found: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            for (name, value) in theirs {
                match ours.get(name) {
                    Some(own) => lacks(value, own, &format!("{at}/{name}"), found),
                    None => found.push(format!("no {at}/{name} here")),
                }
            }
        }
        (Value::Array(theirs), Value::Array(ours)) => {
            if let (Some(their), Some(our)) = (theirs.first(), ours.first()) {
                lacks(their, our, &format!("{at}[]"), found);
            } else if theirs.len() != ours.len() {
                found.push(format!("{at}: one of the lists is empty"));
            }
        }
        (theirs, ours) if theirs != ours => {
            found.push(format!("{at}: {theirs} there, {ours} here"));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, body: Value) -> Answered {
        let content_type = "application/json".to_owned();
        Answered::of(&Answer { status, content_type, body: body.to_string() })
    }

    #[test]
    fn what_is_missing_differs_and_what_is_more_does_not() {
        let theirs = answered(404, json!({"error_code": 40401, "message": "m"}));
        let ours = answered(404, json!({"error_code": 40401, "message": "n", "written": "no"}));
        assert_eq!(differences(&theirs, &ours), Vec::<String>::new());
        assert_eq!(differences(&ours, &theirs), ["no /written here"]);
        let other = answered(422, json!({"error_code": 422, "message": "m"}));
        assert_eq!(differences(&theirs, &other).len(), 2);
    }

    #[test]
    fn lists_are_compared_by_their_first() {
        let theirs = answered(200, json!([{"a": 1}, {"a": 2}]));
        assert!(differences(&theirs, &answered(200, json!([{"a": 7}]))).is_empty());
        assert_eq!(differences(&theirs, &answered(200, json!([{"a": "x"}]))).len(), 1);
        assert_eq!(differences(&theirs, &answered(200, json!([]))).len(), 1);
    }
}
