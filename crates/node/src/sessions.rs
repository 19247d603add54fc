//! Sessions of brokers with the active controller: who is alive, and who is to be fenced.
//!
//! A broker whose process ended is fenced at once: its links ended, and its address refuses or another process is
//! there. One that is merely silent is fenced when its session is over. A new controller counts every session anew,
//! because it has heard nobody yet, and a controller that ran late itself (its machine stood still, or it was
//! overloaded) grants everybody the time for which it heard nothing (KAFKA-14392, KAFKA-15019).

use std::collections::BTreeMap;
use std::time::Duration;

use metadata::ClusterImage;
use metadata::decide::BrokerRef;
use model::{BrokerEpoch, BrokerId, Moment, Uuid};

/// What the controller has heard of the brokers.
#[derive(Debug)]
pub struct Sessions {
    /// How long a broker may be silent.
    length: Duration,
    heard: BTreeMap<BrokerId, Heard>,
    /// When the controller last looked.
    looked_at: Moment,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    /// Which registration.
    epoch: BrokerEpoch,
    /// When, at the latest.
    at: Moment,
    /// Its process, if that is known to have ended.
    gone: Option<Uuid>,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Brokers to be fenced.
    pub fence: Vec<BrokerRef>,
    /// When to look again although nothing was heard; `None` without brokers that are not fenced.
    pub look_at: Option<Moment>,
}

impl Sessions {
    /// This node is the active controller since `now`.
    pub fn begin(length: Duration, now: Moment) -> Sessions {
        Sessions { length, heard: BTreeMap::new(), looked_at: now }
    }

    /// A broker was heard under this registration.
    pub fn heard(&mut self, now: Moment, who: BrokerRef) {
        let heard =
            self.heard.entry(who.broker).or_insert(Heard { epoch: who.epoch, at: now, gone: None });
        // A message of an earlier process may arrive late.
        if who.epoch >= heard.epoch {
            let gone = heard.gone.filter(|_| who.epoch == heard.epoch);
            *heard = Heard { epoch: who.epoch, at: now, gone };
        }
    }

    /// The process of a broker ended; it is told apart from one that came after it by its incarnation.
    pub fn gone(&mut self, now: Moment, image: &ClusterImage, broker: BrokerId, incarnation: Uuid) {
        let Some(known) = image.broker(broker) else { return };
        if known.incarnation == incarnation {
            let heard = Heard { epoch: known.epoch, at: now, gone: Some(incarnation) };
            self.heard.insert(broker, heard);
        }
    }

    /// A process lives after all that was taken for ended: its address had refused for another reason.
    pub fn lives(&mut self, broker: BrokerId, incarnation: Uuid) {
        if let Some(heard) = self.heard.get_mut(&broker) {
            heard.gone = heard.gone.filter(|gone| *gone != incarnation);
        }
    }

    /// Whether a broker that is registered may still be alive.
    pub fn may_be_alive(&self, image: &ClusterImage, broker: BrokerId) -> bool {
        let Some(known) = image.broker(broker).filter(|known| !known.fenced) else { return false };
        self.heard
            .get(&broker)
            .is_none_or(|heard| heard.epoch != known.epoch || heard.gone.is_none())
    }

    /// Who is to be fenced now.
    pub fn look(&mut self, now: Moment, image: &ClusterImage) -> Due {
        self.grant_lateness(now);
        let mut due = Due::default();
        for broker in image.brokers().filter(|broker| !broker.fenced) {
            let heard = self.heard.entry(broker.id).or_insert(Heard {
                epoch: broker.epoch,
                at: now,
                gone: None,
            });
            if heard.epoch < broker.epoch {
                // It registered a moment ago.
                *heard = Heard { epoch: broker.epoch, at: now, gone: None };
            }
            let ends = heard.at.plus(self.length);
            if heard.gone.is_some() || ends <= now {
                due.fence.push(BrokerRef { broker: broker.id, epoch: broker.epoch });
            } else {
                let at = due.look_at.get_or_insert(ends);
                *at = (*at).min(ends);
            }
        }
        self.heard.retain(|id, _| image.broker(*id).is_some());
        // So often does the controller look that it knows when it was late itself.
        let often = now.plus(self.length / 4);
        due.look_at = due.look_at.map(|at| at.min(often));
        due
    }

    /// Who could not be heard because the controller itself stood still is granted that time.
    fn grant_lateness(&mut self, now: Moment) {
        let late = now.since(self.looked_at).saturating_sub(self.length / 2);
        self.looked_at = now;
        if !late.is_zero() {
            self.heard.values_mut().for_each(|heard| heard.at = heard.at.plus(late).min(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use metadata::record::{BrokerRecord, MetadataRecord};

    use super::*;

    const LENGTH: Duration = Duration::from_secs(4);

    fn incarnation(epoch: i64) -> Uuid {
        Uuid::from_random([epoch as u8; 16])
    }

    fn image(brokers: &[(i32, i64)]) -> ClusterImage {
        let mut image = ClusterImage::default();
        for (broker, epoch) in brokers {
            let record = BrokerRecord {
                broker: BrokerId(*broker),
                incarnation: incarnation(*epoch),
                epoch: BrokerEpoch(*epoch),
                endpoints: Vec::new(),
                rack: None,
                log_dirs: Vec::new(),
                fenced: false,
                software: None,
            };
            image.replay(&MetadataRecord::BrokerRegistered(record)).unwrap();
        }
        image
    }

    fn at(ms: u64) -> Moment {
        Moment::START.plus(Duration::from_millis(ms))
    }

    fn who(broker: i32, epoch: i64) -> BrokerRef {
        BrokerRef { broker: BrokerId(broker), epoch: BrokerEpoch(epoch) }
    }

    #[test]
    fn a_silent_broker_is_fenced_when_its_session_is_over() {
        let image = image(&[(1, 1), (2, 2)]);
        let mut sessions = Sessions::begin(LENGTH, at(0));
        for ms in (0..=4000).step_by(1000) {
            sessions.heard(at(ms), who(1, 1));
            let due = sessions.look(at(ms), &image);
            let fenced = if ms < 4000 { vec![] } else { vec![who(2, 2)] };
            assert_eq!(due.fence, fenced, "after {ms} ms");
            assert!(due.look_at > Some(at(ms)));
        }
    }

    #[test]
    fn a_process_that_ended_is_fenced_at_once_and_its_successor_is_not() {
        let mut sessions = Sessions::begin(LENGTH, at(0));
        let before = image(&[(1, 1), (2, 2)]);
        assert_eq!(sessions.look(at(0), &before).fence, []);
        sessions.gone(at(1), &before, BrokerId(2), incarnation(7));
        assert_eq!(sessions.look(at(1), &before).fence, [], "that was another process");
        sessions.gone(at(2), &before, BrokerId(2), incarnation(2));
        assert!(!sessions.may_be_alive(&before, BrokerId(2)));
        sessions.heard(at(3), who(2, 2));
        assert_eq!(sessions.look(at(3), &before).fence, [who(2, 2)], "a message that came late");
        let after = image(&[(1, 1), (2, 3)]);
        assert_eq!(sessions.look(at(4), &after).fence, []);
        sessions.gone(at(5), &after, BrokerId(2), incarnation(2));
        assert_eq!(sessions.look(at(5), &after).fence, [], "the end of the process before");
        assert!(sessions.may_be_alive(&after, BrokerId(2)));
    }

    #[test]
    fn a_process_that_was_wrongly_taken_for_ended_is_believed_again() {
        let image = image(&[(1, 1)]);
        let mut sessions = Sessions::begin(LENGTH, at(0));
        sessions.gone(at(1), &image, BrokerId(1), incarnation(1));
        assert_eq!(sessions.look(at(1), &image).fence, [who(1, 1)]);
        sessions.lives(BrokerId(1), incarnation(7));
        assert!(
            !sessions.may_be_alive(&image, BrokerId(1)),
            "another process says nothing of this one"
        );
        sessions.lives(BrokerId(1), incarnation(1));
        sessions.heard(at(2), who(1, 1));
        assert_eq!(sessions.look(at(2), &image).fence, []);
        assert!(sessions.may_be_alive(&image, BrokerId(1)));
    }

    #[test]
    fn a_controller_that_stood_still_fences_nobody_for_that() {
        let image = image(&[(1, 1)]);
        let mut sessions = Sessions::begin(LENGTH, at(0));
        sessions.look(at(0), &image);
        assert_eq!(sessions.look(at(60_000), &image).fence, []);
        assert_eq!(sessions.look(at(61_000), &image).fence, []);
        assert_eq!(sessions.look(at(62_000), &image).fence, [who(1, 1)], "2 s were its own");
    }

    #[test]
    fn whoever_is_fenced_already_has_no_session() {
        let mut image = image(&[(1, 1)]);
        image.replay(&MetadataRecord::BrokerFenced { broker: BrokerId(1) }).unwrap();
        let mut sessions = Sessions::begin(LENGTH, at(0));
        assert_eq!(sessions.look(at(9000), &image), Due::default());
        assert!(!sessions.may_be_alive(&image, BrokerId(1)));
    }
}
