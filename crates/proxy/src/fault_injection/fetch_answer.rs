//! Fetch answers of sessions (KIP-227): the refusal of an unknown session, and partitions that a broker leaves out.

use super::answer::written;
use super::fetch_session::fetched_topic;
use crate::frames::Broken;
use crate::produced::TopicKey;
use bytes::Bytes;
use model::ErrorCode;
use std::collections::{HashMap, HashSet};
use wire::frame::{LENGTH_BYTES, RequestHead, read_response_head};
use wire::{ApiKey, FetchResponse, Reader, fetch};

/// The answer to an incremental fetch request whose session is unknown: the client starts a session with a request that
/// names all its partitions. `None` if this version has no sessions.
pub fn refuse_session(head: &RequestHead<'_>) -> Option<Bytes> {
    let error_code = ErrorCode::FetchSessionIdNotFound as i16;
    let answer = FetchResponse { error_code, ..FetchResponse::default() };
    written(&answer, head.api_key, head.version, head.correlation_id)
}

/// Adds partitions that a broker's fetch answer lacks, without records. An answer with an error stays as it is.
///
/// # Errors
/// The answer is malformed.
pub fn complete_fetch(
    frame: &[u8],
    version: i16,
    partitions: &[(TopicKey, i32)],
) -> Result<Bytes, Broken> {
    let mut reader = Reader::new(&frame[LENGTH_BYTES..]);
    let correlation_id = read_response_head(&mut reader, ApiKey::Fetch, version)?;
    let mut answer = FetchResponse::decode(&mut reader, version)?;
    if answer.error_code == ErrorCode::None as i16 {
        add_partitions(&mut answer, version, partitions);
    }
    let completed = written(&answer, ApiKey::Fetch, version, correlation_id);
    Ok(completed.unwrap_or_else(|| Bytes::copy_from_slice(frame)))
}

fn add_partitions(answer: &mut FetchResponse, version: i16, partitions: &[(TopicKey, i32)]) {
    let mut topics: HashMap<TopicKey, usize> = HashMap::new();
    let mut present = HashSet::new();
    for (at, topic) in answer.responses.iter().enumerate() {
        let key = fetched_topic(topic.topic.clone(), topic.topic_id, version);
        present.extend(topic.partitions.iter().map(|it| (key.clone(), it.partition_index)));
        topics.insert(key, at);
    }
    for named in partitions.iter().filter(|named| !present.contains(named)) {
        let (key, partition) = named;
        let at = *topics.entry(key.clone()).or_insert_with(|| {
            let mut topic = fetch::FetchableTopicResponse::default();
            match key {
                TopicKey::Name(name) => topic.topic = name.clone(),
                TopicKey::Id(id) => topic.topic_id = *id,
            }
            answer.responses.push(topic);
            answer.responses.len() - 1
        });
        answer.responses[at].partitions.push(fetch::PartitionData {
            partition_index: *partition,
            records: Some(Bytes::new()),
            ..Default::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Uuid;

    #[test]
    fn a_fetch_answer_gets_the_partitions_that_it_lacks() {
        let partition =
            |index| fetch::PartitionData { partition_index: index, ..Default::default() };
        for (version, topic, topic_id, key) in [
            (12, "t", Uuid::default(), TopicKey::Name("t".to_owned())),
            (16, "", Uuid([3; 16]), TopicKey::Id(Uuid([3; 16]))),
        ] {
            let topic = fetch::FetchableTopicResponse {
                topic: topic.to_owned(),
                topic_id,
                partitions: vec![partition(1)],
            };
            let other = TopicKey::Name("u".to_owned());
            let lacking = [(key.clone(), 0), (key, 1), (other, 4)];
            let lacking = if version < 13 { &lacking[..] } else { &lacking[..2] };
            let completed = |error_code| {
                let responses = vec![topic.clone()];
                let answer = FetchResponse { error_code, responses, ..FetchResponse::default() };
                let frame = written(&answer, ApiKey::Fetch, version, 7).unwrap();
                let frame = complete_fetch(&frame, version, lacking).unwrap();
                let mut reader = Reader::new(&frame[LENGTH_BYTES..]);
                read_response_head(&mut reader, ApiKey::Fetch, version).unwrap();
                let answer = FetchResponse::decode(&mut reader, version).unwrap();
                let of = |it: fetch::FetchableTopicResponse| {
                    it.partitions.iter().map(|p| p.partition_index).collect::<Vec<_>>()
                };
                answer.responses.into_iter().map(of).collect::<Vec<_>>()
            };
            assert_eq!(completed(0)[0], [1, 0], "version {version}");
            assert_eq!(completed(0).get(1), (version < 13).then(|| vec![4]).as_ref());
            assert_eq!(completed(71), [[1]], "an answer with an error");
        }
    }
}
