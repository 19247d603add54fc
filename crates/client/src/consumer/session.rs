//! An incremental fetch session with one broker (KIP-227): what the broker knows already is not
//! said again.

use model::{ErrorCode, LeaderEpoch, Offset, TopicId, TopicPartition};
use std::collections::{BTreeMap, HashMap, HashSet};
use wire::FetchRequest;
use wire::fetch::{FetchPartition, FetchTopic, ForgottenTopic};

/// What is wanted of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) topic_id: TopicId,
    pub(super) offset: Offset,
    pub(super) leader_epoch: LeaderEpoch,
    pub(super) max_bytes: i32,
}

/// The client's side of a session.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// 0 while there is none.
    id: i32,
    /// The epoch of the next request; 0 asks for a new session.
    epoch: i32,
    /// What the broker knows. Invariant: empty while `epoch` is 0.
    known: HashMap<TopicPartition, Wanted>,
}

/// The first version with sessions.
const SESSIONS_FROM: i16 = 7;

impl Session {
    /// Fills the partitions into `request`. False if there is nothing to ask for and nothing to
    /// forget either.
    pub(super) fn fill(
        &mut self,
        request: &mut FetchRequest,
        version: i16,
        wanted: HashMap<TopicPartition, Wanted>,
    ) -> bool {
        if version < SESSIONS_FROM {
            self.forget();
            (request.session_id, request.session_epoch) = (0, -1);
        } else {
            (request.session_id, request.session_epoch) = (self.id, self.epoch);
        }
        let changed = wanted.iter().filter(|(p, w)| self.known.get(p) != Some(w));
        request.topics = topics_of(changed);
        let dropped: HashSet<_> = self.known.keys().filter(|p| !wanted.contains_key(p)).collect();
        request.forgotten_topics_data = forgotten(&self.known, &dropped);
        let any = !wanted.is_empty() || !dropped.is_empty();
        if version >= SESSIONS_FROM {
            self.known = wanted;
        }
        any
    }

    /// Takes the answer's part on the session.
    pub(super) fn answered(&mut self, session_id: i32, error: ErrorCode) {
        if !error.is_none() {
            let lost = error == ErrorCode::FetchSessionIdNotFound;
            self.forget();
            if lost {
                self.id = 0;
            }
            return;
        }
        if session_id == 0 {
            // The broker keeps no session for us: everything is said each time.
            self.forget();
        } else {
            self.epoch = if self.epoch == i32::MAX { 1 } else { self.epoch + 1 };
        }
        self.id = session_id;
    }

    /// The next request asks for a new session, in place of the old one if the broker has it still.
    pub(super) fn forget(&mut self) {
        self.epoch = 0;
        self.known.clear();
    }
}

pub(super) fn topics_of<'a>(
    partitions: impl Iterator<Item = (&'a TopicPartition, &'a Wanted)>,
) -> Vec<FetchTopic> {
    let mut topics: BTreeMap<&str, FetchTopic> = BTreeMap::new();
    for (partition, wanted) in partitions {
        let topic = topics.entry(&partition.topic).or_insert_with(|| FetchTopic {
            topic: partition.topic.to_string(),
            topic_id: wanted.topic_id,
            ..Default::default()
        });
        topic.partitions.push(FetchPartition {
            partition: partition.partition.0,
            current_leader_epoch: wanted.leader_epoch.0,
            fetch_offset: wanted.offset.0,
            partition_max_bytes: wanted.max_bytes,
            ..Default::default()
        });
    }
    topics.into_values().collect()
}

fn forgotten(
    known: &HashMap<TopicPartition, Wanted>,
    dropped: &HashSet<&TopicPartition>,
) -> Vec<ForgottenTopic> {
    let mut topics: BTreeMap<&str, ForgottenTopic> = BTreeMap::new();
    for partition in dropped {
        let topic = topics.entry(&partition.topic).or_insert_with(|| ForgottenTopic {
            topic: partition.topic.to_string(),
            topic_id: known[*partition].topic_id,
            ..Default::default()
        });
        topic.partitions.push(partition.partition.0);
    }
    topics.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(offsets: &[(i32, i64)]) -> HashMap<TopicPartition, Wanted> {
        let one = |(partition, offset): &(i32, i64)| {
            let wanted = Wanted {
                topic_id: TopicId::ZERO,
                offset: Offset(*offset),
                leader_epoch: LeaderEpoch(0),
                max_bytes: 1,
            };
            (TopicPartition::new("t", *partition), wanted)
        };
        offsets.iter().map(one).collect()
    }

    fn ask(session: &mut Session, offsets: &[(i32, i64)]) -> (i32, i32, Vec<i32>, Vec<i32>) {
        let mut request = FetchRequest::default();
        session.fill(&mut request, 12, wanted(offsets));
        let asked = request.topics.iter().flat_map(|t| &t.partitions).map(|p| p.partition);
        let mut asked: Vec<_> = asked.collect();
        asked.sort();
        let gone = request.forgotten_topics_data.iter().flat_map(|t| t.partitions.clone());
        (request.session_id, request.session_epoch, asked, gone.collect())
    }

    #[test]
    fn only_what_changed_is_said_again() {
        let mut session = Session::default();
        assert_eq!(ask(&mut session, &[(0, 5), (1, 7)]), (0, 0, vec![0, 1], vec![]));
        session.answered(99, ErrorCode::None);
        assert_eq!(ask(&mut session, &[(0, 6), (1, 7)]), (99, 1, vec![0], vec![]));
        session.answered(99, ErrorCode::None);
        assert_eq!(ask(&mut session, &[(0, 6)]), (99, 2, vec![], vec![1]));
    }

    #[test]
    fn a_lost_session_begins_anew() {
        let mut session = Session::default();
        ask(&mut session, &[(0, 5)]);
        session.answered(99, ErrorCode::None);
        ask(&mut session, &[(0, 6)]);
        session.answered(0, ErrorCode::FetchSessionIdNotFound);
        assert_eq!(ask(&mut session, &[(0, 6)]), (0, 0, vec![0], vec![]));
    }

    #[test]
    fn a_broker_without_room_for_sessions_hears_everything_each_time() {
        let mut session = Session::default();
        ask(&mut session, &[(0, 5)]);
        session.answered(0, ErrorCode::None);
        assert_eq!(ask(&mut session, &[(0, 5)]), (0, 0, vec![0], vec![]));
    }
}
