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
        self.refused.push(format!("{name}: {}", said(code, message)));
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

/// An answer that says no, in words: the broker's own, or what its code means; the code behind them.
pub fn said(code: ErrorCode, message: Option<&str>) -> String {
    let own = message.filter(|message| !message.is_empty() && *message != code.name());
    match own.or_else(|| meaning(code)) {
        Some(words) => format!("{} ({})", words.trim_end_matches('.'), code.name()),
        None => code.name().to_owned(),
    }
}

/// What a code means to somebody who has never seen it.
fn meaning(code: ErrorCode) -> Option<&'static str> {
    Some(match code {
        ErrorCode::UnknownTopicOrPartition => "there is no such topic or partition",
        ErrorCode::UnknownTopicId => "there is no topic with this id",
        ErrorCode::TopicAlreadyExists => "a topic of this name exists",
        ErrorCode::InvalidTopicException => "no topic may have this name",
        ErrorCode::MessageTooLarge => "the topic does not accept records this large",
        ErrorCode::GroupIdNotFound => "there is no such group",
        ErrorCode::InvalidGroupId => "no group may have this name",
        ErrorCode::NonEmptyGroup => "the group has members",
        ErrorCode::UnknownMemberId => "the group does not know this member",
        ErrorCode::CoordinatorNotAvailable => "no broker coordinates the group right now",
        ErrorCode::CoordinatorLoadInProgress => "the group is still being loaded",
        ErrorCode::LeaderNotAvailable => "the partition has no leader right now",
        ErrorCode::NotEnoughReplicas => "too few replicas are in sync (min.insync.replicas)",
        ErrorCode::KafkaStorageError => "the broker cannot use the disk of this partition",
        ErrorCode::OffsetOutOfRange => "there is no record at this offset",
        ErrorCode::NotController => "the broker cannot reach the controller",
        ErrorCode::UnsupportedVersion => "the broker does not offer this",
        _ => return None,
    })
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
        ErrorCode::MessageTooLarge => Some("the topic's max.message.bytes is the limit"),
        ErrorCode::GroupIdNotFound => Some("`highwater group list` shows what is there"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_sentence_with_its_code_once() {
        let of = said;
        assert_eq!(
            of(ErrorCode::GroupIdNotFound, Some("GROUP_ID_NOT_FOUND")),
            "there is no such group (GROUP_ID_NOT_FOUND)"
        );
        assert_eq!(
            of(ErrorCode::InvalidConfig, Some("Invalid value soon.")),
            "Invalid value soon (INVALID_CONFIG)"
        );
        assert_eq!(of(ErrorCode::UnknownServerError, None), "UNKNOWN_SERVER_ERROR");
    }
}
