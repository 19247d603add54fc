//! Requests of the active controller for the partitions that a broker takes back, and the answers, as bytes.
//!
//! A broker with a log directory that is sick or on probation takes back the leaderships of replicas in its other directories
//! only (decision 0050). The controller does not know the directories of replicas, and requests the partitions before an
//! election of preferred leaders.
//!
//! ```text
//! a request:  as for log ends ([`crate::log_ends`])
//! its answer: 1 version (1)   4 count   for each partition, in the order of the request: 1 whether it is taken back
//! ```

/// Version that is written, and the only one that is read.
const VERSION: u8 = 1;

/// Writes an answer.
pub fn encode_answer(taken: &[bool]) -> Vec<u8> {
    let count = u32::try_from(taken.len()).expect("no message has 4 Gi partitions");
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&count.to_be_bytes());
    bytes.extend(taken.iter().map(|taken| u8::from(*taken)));
    bytes
}

/// Reads an answer; `None` if it is of another version or bytes are missing.
pub fn decode_answer(bytes: &[u8]) -> Option<Vec<bool>> {
    let rest = bytes.strip_prefix(&[VERSION])?;
    let (count, rest) = rest.split_first_chunk()?;
    let (taken, _newer) = rest.split_at_checked(u32::from_be_bytes(*count) as usize)?;
    Some(taken.iter().map(|taken| *taken != 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_and_back() {
        let mut bytes = encode_answer(&[true, false]);
        assert_eq!(bytes, [1, 0, 0, 0, 2, 1, 0], "as other releases write it");
        assert_eq!(decode_answer(&bytes), Some(vec![true, false]));
        for cut in 0..bytes.len() {
            assert_eq!(decode_answer(&bytes[..cut]), None);
        }
        bytes.push(9);
        assert_eq!(decode_answer(&bytes), Some(vec![true, false]), "a newer field");
        bytes[0] = 2;
        assert_eq!(decode_answer(&bytes), None, "a newer version");
    }
}
