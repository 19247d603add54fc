//! Requests of the active controller for the ends of replicas' logs, and the answers, as bytes.
//!
//! ```text
//! a request:  1 version (1)   4 count   for each partition: 16 topic id   4 partition
//! its answer: 1 version (1)   4 broker   8 broker epoch   4 count
//!             for each partition, in the order of the request: 1 whether the replica can be read
//!                                                              4 last leader epoch   8 synced end
//! ```

use metadata::decide::BrokerRef;
use model::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionIndex, Uuid};

use crate::elections::NamedPartition;

/// The version that is written, and the only one that is read.
const VERSION: u8 = 1;

/// (last leader epoch, synced end) of a replica; `None` if it cannot be read.
pub type LogEnd = Option<(LeaderEpoch, Offset)>;

/// Why bytes are not a request for ends, or not an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogEndsError {
    /// Written by another release.
    #[error("log ends of version {0}, and this release reads version {VERSION}")]
    Version(u8),
    /// Bytes are missing.
    #[error("log ends that are cut off")]
    Short,
}

/// A request for the ends of these replicas.
pub fn encode_request(partitions: &[NamedPartition]) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&count_of(partitions.len()));
    for (topic, partition) in partitions {
        bytes.extend_from_slice(&topic.0);
        bytes.extend_from_slice(&partition.0.to_be_bytes());
    }
    bytes
}

/// The partitions of a request.
pub fn decode_request(bytes: &[u8]) -> Result<Vec<NamedPartition>, LogEndsError> {
    let mut rest = versioned(bytes)?;
    let count = u32::from_be_bytes(take(&mut rest)?);
    let mut partitions = Vec::new();
    for _ in 0..count {
        let topic = Uuid(take(&mut rest)?);
        partitions.push((topic, PartitionIndex(i32::from_be_bytes(take(&mut rest)?))));
    }
    Ok(partitions)
}

/// The answer of a process with this registration.
pub fn encode_answer(who: BrokerRef, ends: &[LogEnd]) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&who.broker.0.to_be_bytes());
    bytes.extend_from_slice(&who.epoch.0.to_be_bytes());
    bytes.extend_from_slice(&count_of(ends.len()));
    for end in ends {
        let (epoch, offset) = end.unwrap_or((LeaderEpoch::NONE, Offset(0)));
        bytes.push(end.is_some().into());
        bytes.extend_from_slice(&epoch.0.to_be_bytes());
        bytes.extend_from_slice(&offset.0.to_be_bytes());
    }
    bytes
}

/// The process that answered, and the ends.
pub fn decode_answer(bytes: &[u8]) -> Result<(BrokerRef, Vec<LogEnd>), LogEndsError> {
    let mut rest = versioned(bytes)?;
    let broker = BrokerId(i32::from_be_bytes(take(&mut rest)?));
    let epoch = BrokerEpoch(i64::from_be_bytes(take(&mut rest)?));
    let count = u32::from_be_bytes(take(&mut rest)?);
    let mut ends = Vec::new();
    for _ in 0..count {
        let [is_readable] = take(&mut rest)?;
        let last_epoch = LeaderEpoch(i32::from_be_bytes(take(&mut rest)?));
        let end = Offset(i64::from_be_bytes(take(&mut rest)?));
        ends.push((is_readable != 0).then_some((last_epoch, end)));
    }
    Ok((BrokerRef { broker, epoch }, ends))
}

fn count_of(count: usize) -> [u8; 4] {
    u32::try_from(count).expect("no message has 4 Gi partitions").to_be_bytes()
}

fn versioned(bytes: &[u8]) -> Result<&[u8], LogEndsError> {
    match bytes.split_first() {
        None => Err(LogEndsError::Short),
        Some((&VERSION, rest)) => Ok(rest),
        Some((other, _)) => Err(LogEndsError::Version(*other)),
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], LogEndsError> {
    let (taken, behind) = rest.split_first_chunk().ok_or(LogEndsError::Short)?;
    *rest = behind;
    Ok(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_and_back() {
        let partitions = [(Uuid([1; 16]), PartitionIndex(2)), (Uuid([3; 16]), PartitionIndex(0))];
        let bytes = encode_request(&partitions);
        assert_eq!(decode_request(&bytes).as_deref(), Ok(&partitions[..]));
        for cut in 0..bytes.len() {
            assert_eq!(decode_request(&bytes[..cut]), Err(LogEndsError::Short));
        }
        assert_eq!(decode_request(&[9]), Err(LogEndsError::Version(9)));
        let newer = [&bytes[..], &[1, 2]].concat();
        assert_eq!(decode_request(&newer).as_deref(), Ok(&partitions[..]), "a newer field");
    }

    #[test]
    fn an_answer_and_back() {
        let who = BrokerRef { broker: BrokerId(3), epoch: BrokerEpoch(1 << 40) };
        let ends = [Some((LeaderEpoch(5), Offset(1 << 33))), None];
        let bytes = encode_answer(who, &ends);
        assert_eq!(decode_answer(&bytes), Ok((who, ends.to_vec())));
        for cut in 0..bytes.len() {
            assert_eq!(decode_answer(&bytes[..cut]), Err(LogEndsError::Short));
        }
        assert_eq!(decode_answer(&[2]), Err(LogEndsError::Version(2)));
        let newer = [&bytes[..], &[1, 2]].concat();
        assert_eq!(decode_answer(&newer), Ok((who, ends.to_vec())), "a newer field");
    }
}
