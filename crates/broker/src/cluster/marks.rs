//! Marks of log directories on the active controller: heartbeats report marks, and one entry of the metadata records all
//! marks that are news.
//!
//! A reported mark is durable in the journal of its directory (`node::marks`). A broker reports its marks again to each new
//! controller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metadata::decide::{BrokerMarks, BrokerRef, RaiseMarks};
use metadata::{ClusterImage, Request};
use model::Uuid;
use parking_lot::Mutex;
use quorum::{Quorum, QuorumError};
use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use super::links::ClusterLinks;

/// The newest marks that each registration has reported to this node.
#[derive(Debug, Default)]
pub(super) struct ReportedMarks(Mutex<BTreeMap<BrokerRef, Vec<(Uuid, u64)>>>);

impl ReportedMarks {
    /// Takes in the marks of a heartbeat.
    pub(super) fn note(&self, who: BrokerRef, marks: Vec<(Uuid, u64)>) {
        if !marks.is_empty() {
            self.0.lock().insert(who, marks);
        }
    }

    /// The marks that are greater than the recorded ones. Forgets earlier registrations.
    fn news(&self, image: &ClusterImage) -> Vec<BrokerMarks> {
        let mut reported = self.0.lock();
        reported.retain(|who, _| {
            image.broker(who.broker).is_some_and(|known| known.epoch == who.epoch)
        });
        let of_broker = |(who, marks): (&BrokerRef, &Vec<(Uuid, u64)>)| {
            let is_news = |(directory, mark): &&(Uuid, u64)| {
                *mark > image.directory_mark(who.broker, *directory)
            };
            let marks: Vec<(Uuid, u64)> = marks.iter().filter(is_news).copied().collect();
            (!marks.is_empty()).then_some(BrokerMarks { broker: *who, marks })
        };
        reported.iter().filter_map(of_broker).collect()
    }
}

/// Records marks in this interval while this node is the active controller, until the quorum stops.
pub(super) async fn run(quorum: Arc<Quorum>, links: Arc<ClusterLinks>, every: Duration) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let image = quorum.image();
        if !quorum.is_leader() || !image.detects_copies() {
            continue;
        }
        let brokers = links.marks().news(&image);
        if brokers.is_empty() {
            continue;
        }
        match quorum.propose(Request::RaiseMarks(RaiseMarks { brokers })).await {
            Ok(_) => {}
            Err(QuorumError::Stopped(_)) => return,
            Err(cause) => debug!(%cause, "cannot record marks of log directories; retried"),
        }
    }
}

#[cfg(test)]
mod tests {
    use metadata::MetadataRecord;
    use metadata::record::{BrokerRecord, DirectoryMark};
    use model::{BrokerEpoch, BrokerId};

    use super::*;

    #[test]
    fn marks_are_recorded_that_are_news_of_the_present_registration() {
        let directory = Uuid([7; 16]);
        let record = BrokerRecord {
            broker: BrokerId(1),
            incarnation: Uuid([1; 16]),
            epoch: BrokerEpoch(5),
            endpoints: Vec::new(),
            rack: None,
            log_dirs: vec![directory],
            fenced: false,
            software: None,
        };
        let mut image = ClusterImage::default();
        image.replay(&MetadataRecord::BrokerRegistered(record)).unwrap();
        let who = |epoch| BrokerRef { broker: BrokerId(1), epoch: BrokerEpoch(epoch) };
        let reported = ReportedMarks::default();
        reported.note(who(4), vec![(directory, 9)]);
        assert_eq!(reported.news(&image), [], "of an earlier registration");
        reported.note(who(5), vec![(directory, 3)]);
        let news = BrokerMarks { broker: who(5), marks: vec![(directory, 3)] };
        assert_eq!(reported.news(&image), [news]);
        let mark = DirectoryMark { broker: BrokerId(1), directory, mark: 3 };
        image.replay(&MetadataRecord::DirectoryMarksRaised { marks: vec![mark] }).unwrap();
        assert_eq!(reported.news(&image), [], "it is recorded");
    }
}
