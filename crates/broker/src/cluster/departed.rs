//! Brokers that were fenced a moment ago: the first Metadata answer on a connection behind that names them still, with other leaders
//! for what they led, and the next one leaves them out.
//!
//! A broker of Kafka's that dies is named for as long as its session lasts, because nobody knows better. Here the
//! controller knows within milliseconds, and an answer that leaves the broker out reaches clients before they have moved
//! what they were sending to it. librdkafka 2.15 then closes the broker's handle under the partitions that are still
//! delegated to it, loses their new leader with it, and finds it again with its next look around, up to a second later.
//! It asks twice as soon as a connection breaks: told of the new leader by the first answer, it moves its partitions; told by the
//! second that the broker is gone, it closes the handle, and with it forgets that it wanted to wait up to ten seconds before it
//! connects there again.
//!
//! Whoever is named here leads nothing, so clients send nothing there; one that asks it for metadata is refused at
//! once and asks another.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use metadata::{BrokerImage, ImageUpdate};
use model::{BrokerEpoch, BrokerId, Moment};
use parking_lot::Mutex;

/// So many connections are told of a broker once more; there are hardly more within a session.
const TOLD_MAX: usize = 10_000;

/// Which brokers were fenced lately, as this broker saw it happen.
#[derive(Debug)]
pub struct Departed {
    named_for: Duration,
    seen: Mutex<BTreeMap<BrokerId, Seen>>,
}

/// A registration that served when it was looked at.
#[derive(Debug)]
struct Seen {
    epoch: BrokerEpoch,
    fenced_since: Option<Moment>,
    /// The clients that it was named to since.
    told: HashSet<SocketAddr>,
}

impl Departed {
    /// Fenced brokers are named for `named_for`: as long as a session, they would be by Kafka's brokers.
    pub fn new(named_for: Duration) -> Departed {
        Departed { named_for, seen: Mutex::default() }
    }

    /// Takes notice of what a step of the metadata did to brokers. What a broker finds fenced when it starts has been so for
    /// nobody knows how long, and is not named.
    pub fn step(&self, update: &ImageUpdate, now: Moment) {
        if update.delta.brokers.is_empty() {
            return;
        }
        let mut seen = self.seen.lock();
        for id in &update.delta.brokers {
            let before = seen.remove(id);
            let after = update.after.broker(*id).and_then(|broker| Seen::of(before, broker, now));
            seen.extend(after.map(|after| (*id, after)));
        }
    }

    /// Whether Metadata names a fenced broker to the client behind a connection: once. The image that says so may be newer than
    /// the last step.
    pub fn name_to(&self, client: SocketAddr, broker: &BrokerImage, now: Moment) -> bool {
        let mut seen = self.seen.lock();
        let known = seen.get_mut(&broker.id).filter(|known| known.epoch == broker.epoch);
        let Some(known) = known else { return false };
        if known.fenced_since.is_some_and(|since| now.since(since) >= self.named_for) {
            known.told = HashSet::new();
            return false;
        }
        known.told.len() < TOLD_MAX && known.told.insert(client)
    }
}

impl Seen {
    fn of(before: Option<Seen>, broker: &BrokerImage, now: Moment) -> Option<Seen> {
        let epoch = broker.epoch;
        if !broker.fenced {
            return Some(Seen { epoch, fenced_since: None, told: HashSet::new() });
        }
        let known = before.filter(|known| known.epoch == epoch)?;
        Some(Seen { fenced_since: known.fenced_since.or(Some(now)), ..known })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use metadata::record::{BrokerRecord, MetadataRecord};
    use metadata::{ClusterImage, ImageDelta};
    use model::Uuid;

    use super::*;

    const NAMED_FOR: Duration = Duration::from_secs(9);
    const TWO: BrokerId = BrokerId(2);

    fn registered(epoch: i64, fenced: bool) -> MetadataRecord {
        MetadataRecord::BrokerRegistered(BrokerRecord {
            broker: TWO,
            incarnation: Uuid::from_random([epoch as u8; 16]),
            epoch: BrokerEpoch(epoch),
            endpoints: Vec::new(),
            rack: None,
            log_dirs: Vec::new(),
            fenced,
            software: None,
        })
    }

    fn fenced() -> MetadataRecord {
        MetadataRecord::BrokerFenced { broker: TWO }
    }

    fn unfenced() -> MetadataRecord {
        MetadataRecord::BrokerUnfenced { broker: TWO }
    }

    fn at(seconds: u64) -> Moment {
        Moment::START.plus(Duration::from_secs(seconds))
    }

    /// A broker that saw these steps, each some seconds after the start, and the image behind the last.
    fn seen(steps: &[(u64, MetadataRecord)]) -> (Departed, Arc<ClusterImage>) {
        let departed = Departed::new(NAMED_FOR);
        let mut image = ClusterImage::default();
        image.replay(&MetadataRecord::ClusterCreated { cluster_id: "c".into() }).unwrap();
        let mut image = Arc::new(image);
        for (seconds, record) in steps {
            let (mut after, mut delta) = ((*image).clone(), ImageDelta::default());
            delta.note(&after, record);
            after.replay(record).unwrap();
            let (before, after) = (image, Arc::new(after));
            image = Arc::clone(&after);
            let update = ImageUpdate { index: 1, before, after, delta: Arc::new(delta) };
            departed.step(&update, at(*seconds));
        }
        (departed, image)
    }

    fn client(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn is_named(steps: &[(u64, MetadataRecord)], seconds: u64) -> bool {
        let (departed, image) = seen(steps);
        departed.name_to(client(1), image.broker(TWO).unwrap(), at(seconds))
    }

    #[test]
    fn each_connection_is_told_once_for_each_fencing() {
        let mut steps = vec![(0, registered(1, false)), (10, fenced())];
        let (departed, image) = seen(&steps);
        let two = image.broker(TWO).unwrap();
        assert!(departed.name_to(client(1), two, at(10)));
        assert!(!departed.name_to(client(1), two, at(10)));
        assert!(departed.name_to(client(2), two, at(11)));
        steps.extend([(12, unfenced()), (13, fenced())]);
        assert!(is_named(&steps, 13));
    }

    #[test]
    fn who_was_fenced_is_named_for_a_session_and_not_longer() {
        let steps = [(0, registered(1, false)), (10, fenced())];
        assert!(is_named(&steps, 10));
        assert!(is_named(&steps, 18));
        assert!(!is_named(&steps, 19));
    }

    #[test]
    fn who_was_never_seen_to_serve_is_not_named() {
        assert!(!is_named(&[(0, registered(1, true))], 0));
    }

    #[test]
    fn who_is_fenced_by_an_image_that_was_not_acted_upon_is_named_already() {
        let (departed, _) = seen(&[(0, registered(1, false))]);
        let (_, image) = seen(&[(0, registered(1, false)), (10, fenced())]);
        assert!(departed.name_to(client(1), image.broker(TWO).unwrap(), at(10)));
    }

    #[test]
    fn a_step_that_changes_something_else_of_a_fenced_broker_does_not_name_it_anew() {
        let again = [(0, registered(1, false)), (10, fenced()), (18, fenced())];
        assert!(!is_named(&again, 19));
    }

    #[test]
    fn who_came_back_fenced_is_another_registration() {
        let steps = [(0, registered(1, false)), (10, fenced()), (11, registered(2, true))];
        assert!(!is_named(&steps, 11));
    }

    #[test]
    fn each_fencing_is_counted_from_its_own_time() {
        let steps = [(0, registered(1, false)), (1, fenced()), (2, unfenced()), (20, fenced())];
        assert!(is_named(&steps, 28));
        assert!(!is_named(&steps, 29));
    }
}
