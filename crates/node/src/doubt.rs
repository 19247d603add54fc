//! Leaderships in doubt: a broker that has had no current answer of a controller for a session may have lost its partitions to
//! others.
//!
//! An answer to a heartbeat names the newest metadata of the controller. The answer is current once the broker has acted upon that
//! metadata: up to the answer, no other leader was elected that the broker does not know of. Where only the way from the controller to the
//! broker is cut, heartbeats are answered and metadata does not arrive (decision 0099).
//!
//! Until an answer is current, the broker takes `acks=0` and `acks=1` only for partitions of which every other replica
//! that may be elected follows it. A replica that follows it was not elected, and follows no other leader.

use std::time::Duration;

use metadata::PartitionImage;
use model::{BrokerId, Moment};
use partition::Partition;

use crate::mutants::{Mutant, is_planted};

/// Answers that wait for metadata are at least this part of a session apart: of a session so many are kept, and one more.
const WAITING_PER_SESSION: u32 = 16;

/// The answers of controllers to the heartbeats of a broker.
#[derive(Debug)]
pub struct ControllerContact {
    /// Silence of controllers from which leaderships are in doubt.
    session: Duration,
    /// Time of the newest current answer.
    current_at: Moment,
    /// Later answers that name metadata which the broker has not acted upon, oldest first.
    waiting: Vec<WaitingAnswer>,
}

/// An answer that names metadata which the broker has not acted upon.
#[derive(Clone, Copy, Debug)]
struct WaitingAnswer {
    at: Moment,
    /// Index of the newest metadata that the controller had.
    metadata: u64,
}

impl ControllerContact {
    /// Contact of a broker that has acted upon all metadata `now`.
    pub fn begin(session: Duration, now: Moment) -> ControllerContact {
        ControllerContact { session, current_at: now, waiting: Vec::new() }
    }

    /// Notes an answer. `metadata`: index of the newest metadata of the controller; `None` from a release that does not name
    /// it, whose answer is current at once. `acted_upon`: index of the newest metadata that the broker has acted upon.
    pub fn note_answer(&mut self, at: Moment, metadata: Option<u64>, acted_upon: u64) {
        self.note_metadata(acted_upon);
        match metadata.filter(|_| !is_planted(Mutant::CountsOutdatedAnswers)) {
            Some(metadata) if acted_upon < metadata => {
                let apart = self.session / WAITING_PER_SESSION;
                if self.waiting.last().is_none_or(|last| at.since(last.at) >= apart) {
                    self.waiting.push(WaitingAnswer { at, metadata });
                }
            }
            _ => self.current_at = self.current_at.max(at),
        }
        // Older answers end no doubt.
        let session = self.session;
        self.waiting.retain(|answer| at.since(answer.at) <= session);
    }

    /// Notes the index of the newest metadata that the broker has acted upon: answers that name no later metadata are current.
    pub fn note_metadata(&mut self, acted_upon: u64) {
        let is_current = |answer: &&WaitingAnswer| answer.metadata <= acted_upon;
        let newest = self.waiting.iter().filter(is_current).map(|answer| answer.at).max();
        self.current_at = self.current_at.max(newest.unwrap_or(self.current_at));
        self.waiting.retain(|answer| answer.metadata > acted_upon);
    }

    /// Time of the newest current answer.
    pub fn current_at(&self) -> Moment {
        self.current_at
    }
}

/// Whether no answer of a controller was current for a session. `current_at`: time of the last current answer.
pub fn are_in_doubt(now: Moment, current_at: Moment, session: Duration) -> bool {
    now.since(current_at) > session && !is_planted(Mutant::DoubtsNever)
}

/// Whether another leader may have been elected for a partition whose leadership is in doubt. `since`: begin of the
/// session that ends now. `was_here`: whether a broker has fetched any partition from this one since then.
pub fn is_superseded(
    partition: &Partition,
    state: &PartitionImage,
    since: Moment,
    was_here: impl Fn(BrokerId) -> bool,
) -> bool {
    // A proposal of this leader that the image does not have yet is in the leader's own book.
    let others: Vec<BrokerId> = state.isr.iter().chain(&state.elr).copied().collect();
    is_planted(Mutant::DoubtsFollowers) || !partition.is_followed(&others, since, was_here)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: Duration = Duration::from_secs(9);

    fn at(seconds: u64) -> Moment {
        Moment::START.plus(Duration::from_secs(seconds))
    }

    fn is_in_doubt(contact: &ControllerContact, now: u64) -> bool {
        are_in_doubt(at(now), contact.current_at(), SESSION)
    }

    #[test]
    fn leaderships_are_in_doubt_a_session_after_the_first_decision_that_the_broker_lacks() {
        let mut contact = ControllerContact::begin(SESSION, at(0));
        for second in (0..100).step_by(2) {
            contact.note_answer(at(second), Some(7), 7);
            assert!(!is_in_doubt(&contact, second));
        }
        // The controller decides, and its metadata does not arrive.
        for second in (100..=106).step_by(2) {
            contact.note_answer(at(second), Some(second), 7);
        }
        assert!(!is_in_doubt(&contact, 98 + 9), "the answer of second 98 was current");
        for second in (108..200).step_by(2) {
            contact.note_answer(at(second), Some(second), 7);
            assert!(is_in_doubt(&contact, second), "{second}");
        }
        contact.note_metadata(198);
        assert!(!is_in_doubt(&contact, 198 + 9));
    }

    #[test]
    fn a_broker_that_is_less_than_a_session_behind_is_not_in_doubt_however_much_is_decided() {
        let mut contact = ControllerContact::begin(SESSION, at(0));
        for second in 1..1_000u64 {
            // A decision a second, each of which arrives eight seconds later.
            let acted_upon = second.saturating_sub(8);
            contact.note_answer(at(second), Some(second), acted_upon);
            assert!(!is_in_doubt(&contact, second), "{second}");
            assert!(contact.waiting.len() <= WAITING_PER_SESSION as usize + 1);
        }
    }

    #[test]
    fn metadata_that_arrives_after_the_last_answer_makes_it_current() {
        let mut contact = ControllerContact::begin(SESSION, at(0));
        contact.note_answer(at(20), Some(8), 7);
        assert!(is_in_doubt(&contact, 21));
        contact.note_metadata(7);
        assert!(is_in_doubt(&contact, 21));
        contact.note_metadata(8);
        assert!(!is_in_doubt(&contact, 29) && is_in_doubt(&contact, 30));
    }

    #[test]
    fn an_answer_of_a_controller_with_less_metadata_is_current() {
        let mut contact = ControllerContact::begin(SESSION, at(0));
        contact.note_answer(at(10), Some(9), 8);
        // Another controller, which has not applied the last decision yet.
        contact.note_answer(at(12), Some(8), 8);
        assert!(!is_in_doubt(&contact, 21));
        // A release that names no metadata.
        contact.note_answer(at(30), None, 8);
        assert!(!is_in_doubt(&contact, 39));
    }

    #[test]
    fn many_answers_of_a_session_wait_as_a_few() {
        let mut contact = ControllerContact::begin(SESSION, at(0));
        for millisecond in 0..20_000 {
            let now = Moment::START.plus(Duration::from_millis(millisecond));
            contact.note_answer(now, Some(millisecond + 1), 0);
            assert!(contact.waiting.len() <= WAITING_PER_SESSION as usize + 1);
        }
        // One of the last sixteenth of a session is among them.
        contact.note_metadata(20_000);
        assert!(contact.current_at() >= Moment::START.plus(Duration::from_millis(19_400)));
    }
}
