//! What became of each of several things that were asked for at once.

use model::ErrorCode;

use crate::failure::Failure;

/// Gathers answers, says the good ones, and fails with all of the bad ones.
#[derive(Debug, Default)]
pub struct Outcomes {
    refused: Vec<String>,
    hint: Option<&'static str>,
}

impl Outcomes {
    /// Takes the answer about `name`; `done` is what happened if all went well.
    pub fn take(&mut self, name: &str, done: &str, code: ErrorCode, message: Option<&str>) {
        if code.is_none() {
            println!("{name}: {done}");
            return;
        }
        let message = message.filter(|message| !message.is_empty());
        let words =
            message.map_or_else(|| code.name().to_owned(), |m| format!("{m} ({})", code.name()));
        self.refused.push(format!("{name}: {words}"));
        self.hint = self.hint.or_else(|| hint(code));
    }

    /// The end: a failure called `wanted` if anything was refused.
    pub fn finish(self, wanted: &str) -> Result<(), Failure> {
        if self.refused.is_empty() {
            return Ok(());
        }
        let failure = Failure::new(wanted).detail(self.refused.join("\n"));
        Err(match self.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        })
    }
}

/// What the user can do about an answer that comes often.
pub fn hint(code: ErrorCode) -> Option<&'static str> {
    match code {
        ErrorCode::TopicAlreadyExists => Some("use --if-not-exists to ignore this"),
        ErrorCode::UnknownTopicOrPartition => Some("`highwater topic list` shows what is there"),
        ErrorCode::InvalidReplicationFactor => {
            Some("there cannot be more replicas than brokers: see `highwater cluster info`")
        }
        ErrorCode::NonEmptyGroup | ErrorCode::UnknownMemberId => {
            Some("stop the group's consumers first: see `highwater group describe`")
        }
        ErrorCode::GroupIdNotFound => Some("`highwater group list` shows what is there"),
        _ => None,
    }
}
