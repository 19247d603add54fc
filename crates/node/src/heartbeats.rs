//! What brokers tell the active controller of being alive, and what it answers, as bytes.
//!
//! ```text
//! a heartbeat: 1 version (1)   4 broker   8 broker epoch   fields of newer releases, which older ones skip:
//!              1 kind   4 length   so many bytes
//!                kind 1  marks of log directories: of each 16 directory id   8 mark (`highwater.version` 4)
//! its answer:  1 state of the broker       0 it is not the active controller
//!                                        1 heard
//!                                        2 heard, and fenced
//!                                        3 heard, and registered differently, or not at all
//!             8 index of the newest metadata of the active controller (earlier releases: absent)   fields of newer releases
//! ```

use metadata::ClusterImage;
use metadata::decide::BrokerRef;
use model::{BrokerEpoch, BrokerId, Uuid, later_release};

use crate::mutants::{Mutant, is_planted};

/// The version that is written, and the only one that is read.
const VERSION: u8 = 1;
/// Bytes of a heartbeat.
const BYTES: usize = 13;

/// Kind of the field with marks of log directories.
const MARKS: u8 = 1;
/// Bytes of one mark.
const MARK_BYTES: usize = 24;

/// Why bytes are not a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeartbeatError {
    /// It is of a version that this release does not know.
    #[error("a heartbeat of the unknown version {0}")]
    Version(u8),
    /// It is too short.
    #[error("a heartbeat of {0} bytes; at least {BYTES} are expected")]
    Length(usize),
}

/// A heartbeat of this process.
pub fn encode(who: BrokerRef) -> Vec<u8> {
    let epoch = match is_planted(Mutant::DropsHeartbeatEpochs) {
        true => BrokerEpoch(-1),
        false => who.epoch,
    };
    let mut bytes = Vec::with_capacity(BYTES);
    bytes.push(VERSION);
    bytes.extend_from_slice(&who.broker.0.to_be_bytes());
    bytes.extend_from_slice(&epoch.0.to_be_bytes());
    if later_release::is_played() {
        bytes.extend_from_slice(&[7, 0, 0, 0, 3, 7, 7, 7]);
    }
    bytes
}

/// A heartbeat with the marks that the log directories of the broker have in their journals, durably. For clusters that
/// detect copies.
pub fn encode_with_marks(who: BrokerRef, marks: &[(Uuid, u64)]) -> Vec<u8> {
    let mut bytes = encode(who);
    let length = u32::try_from(marks.len() * MARK_BYTES).expect("a broker has few directories");
    bytes.push(MARKS);
    bytes.extend_from_slice(&length.to_be_bytes());
    for (directory, mark) in marks {
        bytes.extend_from_slice(&directory.0);
        bytes.extend_from_slice(&mark.to_be_bytes());
    }
    bytes
}

/// The marks of log directories that a heartbeat reports. None of one that has no such field.
pub fn decode_marks(bytes: &[u8]) -> Vec<(Uuid, u64)> {
    let mut rest = bytes.get(BYTES..).unwrap_or_default();
    while let Some((kind, behind)) = rest.split_first() {
        let Some((length, behind)) = behind.split_first_chunk() else { break };
        let length = u32::from_be_bytes(*length) as usize;
        let Some((field, behind)) = behind.split_at_checked(length) else { break };
        if *kind == MARKS {
            return field.chunks_exact(MARK_BYTES).filter_map(read_mark).collect();
        }
        rest = behind;
    }
    Vec::new()
}

fn read_mark(bytes: &[u8]) -> Option<(Uuid, u64)> {
    let (directory, mark) = bytes.split_first_chunk()?;
    Some((Uuid(*directory), u64::from_be_bytes(mark.try_into().ok()?)))
}

/// Whose heartbeat this is.
pub fn decode(bytes: &[u8]) -> Result<BrokerRef, HeartbeatError> {
    let length = HeartbeatError::Length(bytes.len());
    let (version, rest) = bytes.split_first().ok_or(length)?;
    if *version != VERSION {
        return Err(HeartbeatError::Version(*version));
    }
    let (broker, rest) = rest.split_first_chunk().ok_or(length)?;
    let (epoch, _newer) = rest.split_first_chunk().ok_or(length)?;
    Ok(BrokerRef {
        broker: BrokerId(i32::from_be_bytes(*broker)),
        epoch: BrokerEpoch(i64::from_be_bytes(*epoch)),
    })
}

/// What whoever gets a heartbeat knows of the process that sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing: it is not the active controller.
    Elsewhere,
    /// It was heard.
    Heard,
    /// It was heard, and is fenced.
    Fenced,
    /// It was heard, and its broker is registered differently, or not at all.
    Unknown,
}

impl Answer {
    /// What the active controller says by its image.
    pub fn by(image: &ClusterImage, who: BrokerRef) -> Answer {
        match image.broker(who.broker).filter(|known| known.epoch == who.epoch) {
            Some(known) if known.fenced => Answer::Fenced,
            Some(_) => Answer::Heard,
            None => Answer::Unknown,
        }
    }

    /// The answer's only byte.
    pub fn to_byte(self) -> u8 {
        match self {
            Answer::Elsewhere => 0,
            Answer::Heard => 1,
            Answer::Fenced => 2,
            Answer::Unknown => 3,
        }
    }

    /// Reads an answer. What only a newer release says is said by a controller that has heard.
    pub fn from_byte(byte: u8) -> Answer {
        match byte {
            0 => Answer::Elsewhere,
            2 => Answer::Fenced,
            3 => Answer::Unknown,
            _ => Answer::Heard,
        }
    }
}

/// The answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatAnswer {
    /// State of the broker.
    pub state: Answer,
    /// Index of the newest metadata of the active controller; `None` if its release does not name it.
    pub metadata: Option<u64>,
}

impl HeartbeatAnswer {
    /// Writes the answer.
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = vec![self.state.to_byte()];
        if let Some(index) = self.metadata {
            bytes.extend_from_slice(&index.to_be_bytes());
        }
        bytes
    }

    /// Reads an answer; `None` if `bytes` is empty. Ignores bytes behind the known fields.
    pub fn decode(bytes: &[u8]) -> Option<HeartbeatAnswer> {
        let (state, rest) = bytes.split_first()?;
        let metadata = rest.split_first_chunk().map(|(index, _newer)| u64::from_be_bytes(*index));
        Some(HeartbeatAnswer { state: Answer::from_byte(*state), metadata })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_and_back() {
        let who = BrokerRef { broker: BrokerId(3), epoch: BrokerEpoch(1 << 40) };
        let mut bytes = encode(who);
        assert_eq!(bytes, [1, 0, 0, 0, 3, 0, 0, 1, 0, 0, 0, 0, 0], "as other releases write it");
        assert_eq!(decode(&bytes), Ok(who));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), Err(HeartbeatError::Length(cut)));
        }
        bytes[0] = 9;
        assert_eq!(decode(&bytes), Err(HeartbeatError::Version(9)));
    }

    #[test]
    fn an_older_release_skips_fields_of_a_newer_heartbeat() {
        let who = BrokerRef { broker: BrokerId(3), epoch: BrokerEpoch(4) };
        let mut bytes = encode(who);
        for field in 0..9 {
            bytes.push(field);
            assert_eq!(decode(&bytes), Ok(who));
        }
    }

    #[test]
    fn marks_and_back() {
        let who = BrokerRef { broker: BrokerId(3), epoch: BrokerEpoch(4) };
        let marks = [(Uuid([7; 16]), 1 << 40), (Uuid([8; 16]), 0)];
        let bytes = encode_with_marks(who, &marks);
        assert_eq!((decode(&bytes), decode_marks(&bytes)), (Ok(who), marks.to_vec()));
        assert_eq!(decode_marks(&encode(who)), []);
        for cut in 0..bytes.len() {
            assert!(decode_marks(&bytes[..cut]).is_empty(), "{cut}");
        }
        // Behind a field of another kind.
        let mut newer = encode(who);
        newer.extend_from_slice(&[9, 0, 0, 0, 2, 1, 1]);
        newer.extend_from_slice(&bytes[BYTES..]);
        assert_eq!(decode_marks(&newer), marks);
    }

    #[test]
    fn an_answer_and_back() {
        let answers = [Answer::Elsewhere, Answer::Heard, Answer::Fenced, Answer::Unknown];
        for (byte, answer) in (0..).zip(answers) {
            assert_eq!((answer.to_byte(), Answer::from_byte(byte)), (byte, answer));
        }
        assert_eq!(Answer::from_byte(200), Answer::Heard, "of a newer release");
    }

    #[test]
    fn an_answer_with_metadata_and_back() {
        let answer = HeartbeatAnswer { state: Answer::Heard, metadata: Some(1 << 40) };
        let mut bytes = answer.encode();
        assert_eq!(bytes, [1, 0, 0, 1, 0, 0, 0, 0, 0], "as other releases write it");
        assert_eq!(HeartbeatAnswer::decode(&bytes), Some(answer));
        bytes.push(9);
        assert_eq!(HeartbeatAnswer::decode(&bytes), Some(answer), "a newer field");
        let earlier = HeartbeatAnswer { state: Answer::Heard, metadata: None };
        assert_eq!(earlier.encode(), [1], "as release 0.1.0 writes and reads it");
        for cut in 1..9 {
            assert_eq!(HeartbeatAnswer::decode(&bytes[..cut]), Some(earlier), "{cut}");
        }
        assert_eq!(HeartbeatAnswer::decode(&[]), None);
    }
}
