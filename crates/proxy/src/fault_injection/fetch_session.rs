//! Fetch sessions (KIP-227): an incremental request names only the partitions of its session that change.

use crate::produced::TopicKey;
use model::Uuid;
use std::collections::BTreeSet;
use wire::FetchRequest;
use wire::fetch::{FetchPartition, FetchTopic};

/// A topic by name or id, and a partition; `None` if the request names the topic alone.
pub(super) type RequestedPartition = (TopicKey, Option<i32>);

/// Bytes of the partitions of a session that a connection keeps.
const SESSION_BYTES_MAX: usize = 1 << 20;

/// Session epochs of fetch requests that name all their partitions: a request that starts a session, and one outside of
/// sessions.
const NEW_SESSION_EPOCH: i32 = 0;
const NO_SESSION_EPOCH: i32 = -1;

/// Version from which fetch requests name topics by id.
const IDS_FROM: i16 = 13;

/// The topic of a fetch request or answer.
pub(super) fn fetched_topic(name: String, id: Uuid, version: i16) -> TopicKey {
    if version >= IDS_FROM { TopicKey::Id(id) } else { TopicKey::Name(name) }
}

/// Bytes that a kept partition takes.
pub fn partition_bytes((topic, _): &(TopicKey, i32)) -> usize {
    let name_bytes = match topic {
        TopicKey::Name(name) => name.len(),
        TopicKey::Id(_) => 0,
    };
    size_of::<(TopicKey, i32)>() + name_bytes
}

/// Partitions of the fetch session of one connection.
#[derive(Debug, Default)]
pub struct FetchSession {
    /// `None`: the connection has not carried the first request of the session, or its partitions take more than
    /// [`SESSION_BYTES_MAX`].
    partitions: Option<BTreeSet<(TopicKey, i32)>>,
    kept_bytes: usize,
    is_incremental: bool,
}

impl FetchSession {
    /// Applies a request to the session, and returns all partitions that the request concerns; none unless `is_listed`.
    pub(super) fn apply(
        &mut self,
        request: FetchRequest,
        version: i16,
        is_listed: bool,
    ) -> Vec<RequestedPartition> {
        let key = |name: String, id: Uuid| fetched_topic(name, id, version);
        let epoch = request.session_epoch;
        self.is_incremental = ![NEW_SESSION_EPOCH, NO_SESSION_EPOCH].contains(&epoch);
        let known = self.partitions.take().filter(|_| self.is_incremental);
        let is_known = epoch == NEW_SESSION_EPOCH || known.is_some();
        let mut bytes = if known.is_some() { self.kept_bytes } else { 0 };
        let mut partitions = known.unwrap_or_default();
        for forgotten in request.forgotten_topics_data {
            let topic = key(forgotten.topic, forgotten.topic_id);
            for partition in forgotten.partitions {
                let partition = (topic.clone(), partition);
                if partitions.remove(&partition) {
                    bytes -= partition_bytes(&partition);
                }
            }
        }
        for named in request.topics {
            let topic = key(named.topic, named.topic_id);
            for at in named.partitions {
                let partition = (topic.clone(), at.partition);
                let partition_bytes = partition_bytes(&partition);
                if partitions.insert(partition) {
                    bytes += partition_bytes;
                }
            }
        }
        let concerned = match is_listed {
            true => partitions.iter().map(|(topic, at)| (topic.clone(), Some(*at))).collect(),
            false => Vec::new(),
        };
        let is_kept = is_known && bytes <= SESSION_BYTES_MAX;
        self.kept_bytes = if is_kept { bytes } else { 0 };
        self.partitions = is_kept.then_some(partitions);
        concerned
    }

    /// Whether the last request was incremental, and the partitions of its session are unknown.
    pub fn is_unknown(&self) -> bool {
        self.is_incremental && self.partitions.is_none()
    }

    /// Partitions of the session that the last request may have left out.
    pub fn unnamed(&self) -> impl Iterator<Item = &(TopicKey, i32)> {
        self.partitions.iter().filter(|_| self.is_incremental).flatten()
    }

    /// All partitions of the session of an incremental request, in the form of a request that names them; `None` for a
    /// request that names them itself.
    pub(super) fn topics(&self) -> Option<Vec<FetchTopic>> {
        if !self.is_incremental {
            return None;
        }
        let mut topics: Vec<FetchTopic> = Vec::new();
        for (key, partition) in self.unnamed() {
            let (topic, topic_id) = match key {
                TopicKey::Name(name) => (name.clone(), Uuid::default()),
                TopicKey::Id(id) => (String::new(), *id),
            };
            let partition = FetchPartition { partition: *partition, ..FetchPartition::default() };
            match topics.last_mut().filter(|it| it.topic == topic && it.topic_id == topic_id) {
                Some(last) => last.partitions.push(partition),
                None => topics.push(FetchTopic { topic, topic_id, partitions: vec![partition] }),
            }
        }
        Some(topics)
    }

    /// Bytes of the kept partitions.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::fetch::ForgottenTopic;

    fn fetch(session_epoch: i32, topic: &str, partitions: &[i32]) -> FetchRequest {
        let partition = |at: &i32| FetchPartition { partition: *at, ..FetchPartition::default() };
        let topic = FetchTopic {
            topic: topic.to_owned(),
            partitions: partitions.iter().map(partition).collect(),
            ..FetchTopic::default()
        };
        FetchRequest { session_epoch, topics: vec![topic], ..FetchRequest::default() }
    }

    #[test]
    fn a_session_is_known_from_its_first_request_to_its_end() {
        let mut session = FetchSession::default();
        let mut is_unknown = |epoch, partitions: &[i32]| {
            session.apply(fetch(epoch, "t", partitions), 12, true);
            session.is_unknown()
        };
        assert!(is_unknown(3, &[]), "a session of another connection");
        assert!(is_unknown(4, &[1]), "its partitions stay unknown");
        assert!(!is_unknown(0, &[0, 1]));
        assert!(!is_unknown(1, &[]));
        assert!(!is_unknown(-1, &[7]));
        assert!(is_unknown(2, &[]), "the session has ended");
    }

    #[test]
    fn an_incremental_request_concerns_all_partitions_of_its_session() {
        let mut session = FetchSession::default();
        session.apply(fetch(0, "t", &[0, 1]), 12, true);
        assert_eq!((session.topics(), session.unnamed().count()), (None, 0));
        session.apply(fetch(1, "u", &[5]), 12, true);
        let topics = session.topics().unwrap();
        let shown: Vec<_> = topics
            .iter()
            .map(|it| (it.topic.as_str(), it.partitions.iter().map(|p| p.partition).collect()))
            .collect();
        assert_eq!(shown, [("t", vec![0, 1]), ("u", vec![5])]);
    }

    #[test]
    fn a_session_keeps_a_limited_number_of_bytes() {
        let mut session = FetchSession::default();
        let name = "t".repeat(1000);
        let few: Vec<i32> = (0..10).collect();
        session.apply(fetch(0, &name, &few), 12, true);
        assert!((10_000..20_000).contains(&session.kept_bytes()), "{}", session.kept_bytes());
        let many: Vec<i32> = (0..2000).collect();
        assert_eq!(session.apply(fetch(1, &name, &many), 12, true).len(), 2000);
        assert_eq!(session.kept_bytes(), 0);
        assert!(session.is_unknown());
    }

    #[test]
    fn the_bytes_of_a_session_follow_its_changes() {
        let (mut session, mut random) = (FetchSession::default(), fastrand::Rng::with_seed(7));
        session.apply(fetch(0, "t", &[]), 12, false);
        for epoch in 1..500 {
            let mut partitions = |count| -> Vec<i32> {
                std::iter::repeat_with(|| random.i32(0..20)).take(count).collect()
            };
            let forgotten = ForgottenTopic {
                topic: "topic".to_owned(),
                partitions: partitions(3),
                ..ForgottenTopic::default()
            };
            let request = FetchRequest {
                forgotten_topics_data: vec![forgotten],
                ..fetch(epoch, "topic", &partitions(2))
            };
            let is_listed = epoch % 2 == 0;
            let concerned = session.apply(request, 12, is_listed);
            let bytes: usize = session.unnamed().map(partition_bytes).sum();
            assert_eq!(session.kept_bytes(), bytes);
            assert_eq!(concerned.len(), if is_listed { session.unnamed().count() } else { 0 });
        }
        assert!(session.kept_bytes() > 0);
    }
}
