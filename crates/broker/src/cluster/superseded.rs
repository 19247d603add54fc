//! Superseded leaders: a broker that has had no current answer of a controller for a session may have lost its partitions to
//! others. An answer is current once the broker has acted upon the metadata that the answer names ([`doubt::ControllerContact`]).
//!
//! Until an answer is current, the broker takes `acks=0` and `acks=1` only for partitions of which every other member of ISR and
//! ELR has fetched in its leader epoch within that session: then no other replica was elected. The new leader's
//! followers would drop such records. Reads of committed records, `acks=all`, and partitions without another member go on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use model::{BrokerId, Moment};
use node::doubt;
use node::doubt::ControllerContact;
use parking_lot::{Mutex, RwLock};
use partition::{Partition, Status};
use tracing::{info, warn};

use crate::counters::Counter;
use crate::server::Server;

/// Contacts of this broker with controllers and followers.
#[derive(Debug)]
pub struct Contacts {
    /// Silence of controllers from which leaderships are in doubt; `None`: never, as in Kafka.
    session: Option<Duration>,
    controller: Mutex<ControllerContact>,
    /// Time of the last current answer of a controller, in microseconds of [`Moment`]: a copy that is read without a lock.
    current_at: AtomicU64,
    /// Last fetch of each follower, of whatever partition.
    followers: RwLock<BTreeMap<BrokerId, Moment>>,
    is_in_doubt: AtomicBool,
    refused: Counter,
}

impl Contacts {
    /// Contacts that begin `now`. `session`: see [`Contacts`].
    pub fn begin(session: Option<Duration>, now: Moment) -> Contacts {
        Contacts {
            session,
            controller: Mutex::new(ControllerContact::begin(session.unwrap_or_default(), now)),
            current_at: AtomicU64::new(now.0),
            followers: RwLock::default(),
            is_in_doubt: AtomicBool::new(false),
            refused: Counter::default(),
        }
    }

    /// Notes an answer of a controller at `heard`. `metadata`: index of the newest metadata that the answer names, if any.
    /// `acted_upon`: index of the newest metadata that this broker has acted upon.
    pub(super) fn note_controller(
        &self,
        heard: Moment,
        metadata: Option<u64>,
        acted_upon: u64,
        now: Moment,
    ) {
        let mut controller = self.controller.lock();
        controller.note_answer(heard, metadata, acted_upon);
        self.current_at.store(controller.current_at().0, Ordering::Relaxed);
        drop(controller);
        if !self.are_in_doubt(now) && self.is_in_doubt.swap(false, Ordering::Relaxed) {
            info!(
                "this broker acts upon current metadata again: leaderships are not in doubt any more"
            );
        }
    }

    /// Notes the index of the newest metadata that this broker has acted upon.
    fn note_metadata(&self, acted_upon: u64) {
        let mut controller = self.controller.lock();
        controller.note_metadata(acted_upon);
        self.current_at.store(controller.current_at().0, Ordering::Relaxed);
    }

    /// A follower fetched.
    pub(crate) fn note_follower(&self, follower: BrokerId, now: Moment) {
        let known = self.followers.read().get(&follower).copied();
        // Followers fetch often; a tenth of a second is exact enough.
        if known.is_none_or(|known| now.since(known) >= Duration::from_millis(100)) {
            self.followers.write().insert(follower, now);
        }
    }

    /// Whether no answer of a controller was current for a session, as of the last heartbeat.
    fn are_in_doubt(&self, now: Moment) -> bool {
        let current_at = Moment(self.current_at.load(Ordering::Relaxed));
        self.session.is_some_and(|session| doubt::are_in_doubt(now, current_at, session))
    }

    /// Batches that were refused because their leadership is in doubt.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// Whether a follower fetched anything since `since`.
    fn was_fetched_by(&self, follower: BrokerId, since: Moment) -> bool {
        self.followers.read().get(&follower).is_some_and(|at| *at >= since)
    }
}

/// Whether no answer of a controller was current for a session: leaderships are in doubt.
pub(crate) fn are_in_doubt(server: &Server) -> bool {
    let (contacts, now) = (&server.contacts, server.clock.moment());
    if !contacts.are_in_doubt(now) {
        return false;
    }
    // Metadata that this broker acted upon after the last heartbeat may make an answer current.
    contacts.note_metadata(server.acting.acted_upon());
    contacts.are_in_doubt(now)
}

/// Partitions that this broker leads and for which another leader may have been elected.
pub(crate) fn count_superseded(server: &Server) -> usize {
    if !are_in_doubt(server) {
        return 0;
    }
    let topics = server.topics.snapshot();
    let led = topics.partitions().filter(|partition| partition.status() == Status::Leading);
    led.filter(|partition| may_be_led_elsewhere(server, partition)).count()
}

/// Whether another leader may have been elected for a partition that this broker leads. Counts and reports it.
pub(crate) fn is_superseded(server: &Server, partition: &Partition) -> bool {
    let is_superseded = may_be_led_elsewhere(server, partition);
    let contacts = &server.contacts;
    if is_superseded {
        contacts.refused.add(1);
        if !contacts.is_in_doubt.swap(true, Ordering::Relaxed) {
            warn!(
                "no controller answered for a session, or its metadata did not arrive: records with acks=0 or acks=1 are refused \
                 where another leader may have been elected; check the connections with the voters in both directions"
            );
        }
    }
    is_superseded
}

fn may_be_led_elsewhere(server: &Server, partition: &Partition) -> bool {
    let (contacts, now) = (&server.contacts, server.clock.moment());
    if !are_in_doubt(server) {
        return false;
    }
    let since =
        Moment(now.0.saturating_sub(contacts.session.unwrap_or_default().as_micros() as u64));
    let image = server.image();
    let topic = image.topic_by_id(partition.topic_id());
    let state = topic.and_then(|it| it.partition(partition.topic_partition().partition));
    let Some(state) = state else { return false };
    let was_here = |member: BrokerId| contacts.was_fetched_by(member, since);
    doubt::is_superseded(partition, state, since, was_here)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::START.plus(Duration::from_secs(seconds))
    }

    #[test]
    fn leaderships_are_in_doubt_after_a_session_without_a_controller() {
        let contacts = Contacts::begin(Some(Duration::from_secs(9)), at(0));
        assert!(!contacts.are_in_doubt(at(9)) && contacts.are_in_doubt(at(10)));
        contacts.note_controller(at(10), None, 0, at(10));
        assert!(!contacts.are_in_doubt(at(19)) && contacts.are_in_doubt(at(20)));
        contacts.is_in_doubt.store(true, Ordering::Relaxed);
        // An active controller that its voters answered long ago.
        contacts.note_controller(at(10), None, 0, at(21));
        assert!(contacts.are_in_doubt(at(21)) && contacts.is_in_doubt.load(Ordering::Relaxed));
        contacts.note_controller(at(20), None, 0, at(21));
        assert!(!contacts.are_in_doubt(at(21)) && !contacts.is_in_doubt.load(Ordering::Relaxed));
        let kafka = Contacts::begin(None, at(0));
        assert!(!kafka.are_in_doubt(at(1_000)));
    }

    #[test]
    fn an_answer_counts_when_the_broker_has_acted_upon_the_metadata_that_it_names() {
        let contacts = Contacts::begin(Some(Duration::from_secs(9)), at(0));
        for second in (1..=11).step_by(2) {
            contacts.note_controller(at(second), Some(8), 7, at(second));
        }
        assert!(contacts.are_in_doubt(at(11)));
        contacts.note_metadata(8);
        assert!(!contacts.are_in_doubt(at(11)));
    }

    #[test]
    fn a_follower_counts_from_its_last_fetch() {
        let contacts = Contacts::begin(Some(Duration::from_secs(9)), at(0));
        assert!(!contacts.was_fetched_by(BrokerId(2), at(0)));
        contacts.note_follower(BrokerId(2), at(5));
        assert!(contacts.was_fetched_by(BrokerId(2), at(5)));
        assert!(!contacts.was_fetched_by(BrokerId(2), at(6)));
    }
}
