//! The journal of a run: its plan and its faults, a JSON object a line, enough to play the faults back.

use super::rule::FaultPlan;
use serde::{Deserialize, Serialize};

/// One fault: the rule, and the request by its number among those that are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultEvent {
    /// Name of the rule.
    pub rule: String,
    /// How often a rule of this name was set before in the run.
    #[serde(default)]
    pub generation: u32,
    /// API of the request.
    pub api: String,
    /// Client id; empty if the client sent none, or if the rule counts all its requests together.
    pub client_id: String,
    /// Topic; `None` if the request names none, or the rule counts all its requests together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Partition, as `topic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<i32>,
    /// Number of the request, from 1.
    pub number: u64,
    /// Name of the action.
    pub action: String,
}

/// One line of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalLine {
    /// The plan at the beginning of a run, and after each change of rules.
    Plan(FaultPlan),
    /// A fault.
    Fault(FaultEvent),
}

/// A journal that cannot be played back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// A line is not one of a journal.
    #[error("line {line}: {problem}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Why.
        problem: String,
    },
    /// The first line is not a plan.
    #[error("line 1: a journal begins with {{\"plan\": …}}")]
    NoPlan,
}

/// Reads a journal: the plan of its beginning, and all faults. A last line without a line feed is left out: the process
/// may have been killed while it wrote.
///
/// # Errors
/// A line is malformed, or the first line is not a plan.
pub fn parse_journal(text: &str) -> Result<(FaultPlan, Vec<FaultEvent>), JournalError> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let (mut plan, mut events) = (None, Vec::new());
    for (at, line) in whole.lines().enumerate() {
        let parsed = serde_json::from_str(line)
            .map_err(|error| JournalError::Line { line: at + 1, problem: error.to_string() })?;
        match parsed {
            JournalLine::Plan(first) if at == 0 => {
                let valid = first
                    .check()
                    .map_err(|error| JournalError::Line { line: 1, problem: error.to_string() });
                plan = Some(valid.map(|()| first)?);
            }
            // The test that replays the journal repeats the changes.
            JournalLine::Plan(_) => {}
            JournalLine::Fault(_) if at == 0 => return Err(JournalError::NoPlan),
            JournalLine::Fault(event) => events.push(event),
        }
    }
    plan.map(|plan| (plan, events)).ok_or(JournalError::NoPlan)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str = r#"{"fault":{"rule":"r","api":"Produce","client_id":"c","topic":"t","partition":0,"number":3,"action":"close"}}"#;

    #[test]
    fn a_journal_is_its_first_plan_and_its_faults() {
        let plan = r#"{"plan":{"seed":7,"rules":[{"name":"r","action":"close"}]}}"#;
        let text = format!("{plan}\n{EVENT}\n{{\"plan\":{{}}}}\n{EVENT}\n{{\"fault\":{{\"ru");
        let (plan, events) = parse_journal(&text).unwrap();
        assert_eq!((plan.seed, plan.rules.len()), (7, 1));
        assert_eq!(events.len(), 2);
        assert_eq!((events[0].number, events[0].generation), (3, 0));
        let line = serde_json::to_string(&JournalLine::Fault(events[0].clone())).unwrap();
        assert_eq!(
            serde_json::from_str::<JournalLine>(&line).unwrap(),
            JournalLine::Fault(events[0].clone())
        );
    }

    #[test]
    fn errors_name_the_line() {
        let problem = |text: &str| parse_journal(text).unwrap_err().to_string();
        assert!(problem("").contains("begins with"));
        assert!(problem(&format!("{EVENT}\n")).contains("line 1"));
        assert!(problem("{\"plan\":{}}\nx\n").starts_with("line 2: "));
        assert!(
            problem("{\"plan\":{\"rules\":[{\"name\":\"\",\"action\":\"close\"}]}}\n")
                .contains("name")
        );
    }
}
