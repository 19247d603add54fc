//! Book of the active controller about the answers to its probes, and the decisions that follow: suspected brokers, brokers
//! that may take leaderships, and brokers that may not join an ISR.
//!
//! A disk that does nothing looks healthy. It counts as healthy beside a hung disk only if a write or sync ended there after
//! the hang began: then the two do not share a device. While a disk hangs, probes demand such a proof of idle disks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metadata::ClusterImage;
use metadata::decide::RelieveReplicas;
use metadata::image::TopicImage;
use model::{BrokerEpoch, BrokerId, Moment, PartitionIndex, TopicId};

use crate::disks::{DiskMoves, hangs, is_healthy, may_hang};
use crate::elections::NamedPartition;
use crate::mutants::{Mutant, is_planted};
use crate::probes::ProbeReport;
use crate::suspicion::{ProbeTimes, Suspicion, SuspicionDue};

/// Answers to the probes of the active controller on this node.
#[derive(Debug)]
pub struct ProbeBook {
    me: BrokerId,
    times: ProbeTimes,
    suspicion: Suspicion,
    /// Report of each broker to the newest probe that was answered, and the time at which that probe was sent.
    reports: BTreeMap<BrokerId, (Moment, ProbeReport)>,
    /// Broker epoch at the poll that first found the report of a broker, and the time of that report.
    registrations: BTreeMap<BrokerId, (Moment, BrokerEpoch)>,
    moves: DiskMoves,
}

impl ProbeBook {
    /// This node becomes the active controller after `former`.
    pub fn begin(
        me: BrokerId,
        times: ProbeTimes,
        former: Option<BrokerId>,
        now: Moment,
    ) -> ProbeBook {
        let suspicion = Suspicion::begin(times, former, now);
        let (reports, moves) = (BTreeMap::new(), DiskMoves::default());
        let registrations = BTreeMap::new();
        ProbeBook { me, times, suspicion, reports, registrations, moves }
    }

    /// Takes the answer to a probe that was sent at `sent_at`. Returns the length of the suspicion that the answer ends.
    pub fn answered(
        &mut self,
        now: Moment,
        sent_at: Moment,
        broker: BrokerId,
        report: ProbeReport,
    ) -> Option<Duration> {
        let is_newest = self.reports.get(&broker).is_none_or(|(known, _)| *known <= sent_at);
        if is_newest {
            self.reports.insert(broker, (sent_at, report));
        }
        self.suspicion.answered(now, sent_at, broker, &report.pauses)
    }

    /// Takes the report of this node.
    pub fn note_own(&mut self, now: Moment, report: ProbeReport) {
        self.reports.insert(self.me, (now, report));
    }

    /// Decides which brokers to redial and which to suspect. Called once every `times.every`.
    pub fn poll(&mut self, now: Moment, image: &ClusterImage) -> SuspicionDue {
        for (id, (sent_at, _)) in &self.reports {
            let Some(broker) = image.broker(*id) else { continue };
            let known = self.registrations.get(id);
            if known.is_none_or(|(noted, _)| noted < sent_at) {
                self.registrations.insert(*id, (*sent_at, broker.epoch));
            }
        }
        self.suspicion.poll(now, image, self.me)
    }

    /// Whether a broker is suspected.
    pub fn has_suspects(&self) -> bool {
        self.suspicion.has_suspects()
    }

    /// Whether this broker is suspected.
    pub fn is_suspected(&self, broker: BrokerId) -> bool {
        self.suspicion.is_suspected(broker)
    }

    /// Whether idle disks have to prove that they work: a disk of some broker may hang.
    pub fn demands_proof(&self, now: Moment) -> bool {
        self.fresh(now).any(|(_, _, report)| may_hang(report))
    }

    fn fresh(&self, now: Moment) -> impl Iterator<Item = (BrokerId, Moment, &ProbeReport)> {
        let reports = self.reports.iter().map(|(id, (at, report))| (*id, *at, report));
        reports.filter(move |(_, at, _)| now.since(*at) <= self.times.fresh)
    }

    fn fresh_report(&self, now: Moment, broker: BrokerId) -> Option<&ProbeReport> {
        let (at, report) = self.reports.get(&broker)?;
        (now.since(*at) <= self.times.fresh).then_some(report)
    }

    /// Brokers that answered a probe of the last half second, and this node, unless one of their disks hangs.
    pub fn answering(&self, now: Moment, image: &ClusterImage) -> Vec<BrokerId> {
        let answers = |id: &BrokerId| *id == self.me || self.suspicion.is_fresh(now, *id);
        let hangs = |id: &BrokerId| self.fresh_report(now, *id).is_some_and(hangs);
        let may_lead = |id: &BrokerId| answers(id) && !hangs(id);
        image.brokers().map(|broker| broker.id).filter(may_lead).collect()
    }

    /// Brokers that answered a probe of this time, and this node.
    pub fn heard_within(
        &self,
        now: Moment,
        image: &ClusterImage,
        within: Duration,
    ) -> Vec<BrokerId> {
        let is_heard = |id: &BrokerId| {
            let report = self.reports.get(id);
            *id == self.me || report.is_some_and(|(at, _)| now.since(*at) <= within)
        };
        image.brokers().map(|broker| broker.id).filter(is_heard).collect()
    }

    /// Brokers that may not join an ISR led by `leader`: suspected ones and those with a sick disk. Where the leader has
    /// no room itself, others need none.
    pub fn unfit(&self, now: Moment, image: &ClusterImage, leader: BrokerId) -> Vec<BrokerId> {
        let needs_room = self.fresh_report(now, leader).is_none_or(|report| !report.lacks_room);
        let is_sick = |report: &ProbeReport| hangs(report) || report.lacks_room && needs_room;
        let is_unfit = |id: &BrokerId| {
            self.suspicion.is_suspected(*id) || self.fresh_report(now, *id).is_some_and(is_sick)
        };
        image.brokers().map(|broker| broker.id).filter(is_unfit).collect()
    }

    /// Adds the brokers with healthy disks to a request for relief, and leaves out leaderships that moved a while ago.
    pub fn complete_relief(&self, now: Moment, image: &ClusterImage, relief: &mut RelieveReplicas) {
        let hung_for = Duration::from_millis(relief.hung_ms);
        let hung_since = Moment(now.0.saturating_sub(hung_for.as_micros() as u64));
        let has_proof = |at: Moment, report: &ProbeReport| {
            let ended_at = at.0.checked_sub(report.last_ended.as_micros() as u64);
            let is_proof = ended_at.is_some_and(|ended_at| ended_at >= hung_since.0);
            hung_for.is_zero() || is_proof || is_planted(Mutant::IdleDisksAreHealthy)
        };
        let healthy = self.fresh(now).filter(|(_, at, it)| is_healthy(it) && has_proof(*at, it));
        relief.healthy = healthy.map(|(id, ..)| id).collect();
        let broker = relief.broker.broker;
        let may_move = |(topic, at): &(TopicId, PartitionIndex)| {
            !leads(image, broker, *topic, *at) || self.moves.may_move(now, *topic, *at)
        };
        if let Some(partitions) = &mut relief.partitions {
            partitions.retain(may_move);
        }
    }

    /// Takes note of leaderships that relief has moved, and returns their number. `image` is from before the decision.
    pub fn note_moves(
        &mut self,
        now: Moment,
        image: &ClusterImage,
        broker: BrokerId,
        changed: impl Iterator<Item = (TopicId, PartitionIndex)>,
    ) -> usize {
        let moved = changed.filter(|(topic, at)| leads(image, broker, *topic, *at));
        moved.map(|(topic, at)| self.moves.moved(now, topic, at)).count()
    }

    /// Whether a broker declines leaderships by its last report. A slow answer ends no probation: an old report counts as long as
    /// the broker is registered as it was then.
    fn declines(&self, now: Moment, image: &ClusterImage, broker: BrokerId) -> bool {
        let epoch = image.broker(broker).map(|broker| broker.epoch);
        let is_registered = || {
            let noted = self.registrations.get(&broker).map(|(_, noted)| *noted);
            noted.is_some() && noted == epoch
        };
        self.reports.get(&broker).is_some_and(|(at, report)| {
            let is_fresh = now.since(*at) <= self.times.fresh;
            report.declines_leaderships && (is_fresh || is_registered())
        })
    }

    /// Brokers that decline leaderships, ascending: a log directory is sick or on probation.
    pub fn declining(&self, now: Moment, image: &ClusterImage) -> Vec<BrokerId> {
        let ids = self.reports.keys().copied();
        ids.filter(|id| self.declines(now, image, *id)).collect()
    }

    /// Partitions whose preferred leaders take leaderships back; `None`: all. `taken`: those that brokers on
    /// [`ProbeBook::declining`] take back all the same, because the replica is in a healthy directory.
    pub fn preferred_by_health(
        &self,
        now: Moment,
        image: &ClusterImage,
        taken: &BTreeSet<NamedPartition>,
    ) -> Option<Vec<(String, PartitionIndex)>> {
        let declining = self.declining(now, image);
        if declining.is_empty() {
            return None;
        }
        let of_topic = |topic: &std::sync::Arc<TopicImage>| {
            let back = topic.partitions().filter(|(at, state)| {
                let preferred = state.preferred_leader();
                let takes = !declining.contains(&preferred) || taken.contains(&(topic.id, *at));
                state.leader != preferred && takes
            });
            back.map(|(at, _)| (topic.name.to_string(), at)).collect::<Vec<_>>()
        };
        Some(image.topics().flat_map(of_topic).collect())
    }
}

fn leads(image: &ClusterImage, broker: BrokerId, topic: TopicId, at: PartitionIndex) -> bool {
    let state = image.topic_by_id(topic).and_then(|topic| topic.partition(at));
    state.is_some_and(|state| state.leader == broker)
}

#[cfg(test)]
mod tests {
    use metadata::record::{BrokerRecord, MetadataRecord, PartitionRecord};
    use model::{LeaderEpoch, Timestamp, Uuid};

    use super::*;

    const ME: BrokerId = BrokerId(1);
    const TWO: BrokerId = BrokerId(2);

    fn at(ms: u64) -> Moment {
        Moment::START.plus(Duration::from_millis(ms))
    }

    fn register(image: &mut ClusterImage, broker: BrokerId, epoch: i64) {
        let record = BrokerRecord {
            broker,
            incarnation: Uuid::from_random([epoch as u8; 16]),
            epoch: BrokerEpoch(epoch),
            endpoints: Vec::new(),
            rack: None,
            log_dirs: Vec::new(),
            fenced: false,
            software: None,
        };
        image.replay(&MetadataRecord::BrokerRegistered(record)).unwrap();
    }

    /// Two brokers, and a partition of the second one that the first one leads.
    fn image() -> ClusterImage {
        let mut image = ClusterImage::default();
        register(&mut image, ME, 1);
        register(&mut image, TWO, 2);
        let state = PartitionRecord {
            partition: PartitionIndex(0),
            replicas: vec![TWO, ME],
            isr: vec![ME, TWO],
            elr: Vec::new(),
            restarted: Vec::new(),
            leader: ME,
            last_known_leader: BrokerId::NONE,
            leader_epoch: LeaderEpoch(4),
            partition_epoch: 9,
            recovering: false,
            durable: false,
        };
        let created = MetadataRecord::TopicCreated2 {
            topic_id: Uuid::from_random([1; 16]),
            name: "t".into(),
            created: Timestamp(0),
            partitions: vec![state],
        };
        image.replay(&created).unwrap();
        image
    }

    /// Number of leaderships that return, while no broker on probation takes one back.
    fn back(book: &ProbeBook, now: Moment, image: &ClusterImage) -> Option<usize> {
        book.preferred_by_health(now, image, &BTreeSet::new()).map(|back| back.len())
    }

    #[test]
    fn a_leadership_in_a_healthy_directory_returns_while_another_directory_is_on_probation() {
        let times = ProbeTimes::with_after(Duration::from_millis(1_500));
        let mut book = ProbeBook::begin(ME, times, None, at(0));
        let image = image();
        let report = ProbeReport { declines_leaderships: true, ..ProbeReport::default() };
        book.answered(at(0), at(0), TWO, report);
        book.poll(at(0), &image);
        assert_eq!(book.declining(at(100), &image), [TWO]);
        let partition = (Uuid::from_random([1; 16]), PartitionIndex(0));
        for (taken, returned) in [(partition, 1), ((partition.0, PartitionIndex(1)), 0)] {
            let back = book.preferred_by_health(at(100), &image, &BTreeSet::from([taken]));
            assert_eq!(back.map(|back| back.len()), Some(returned));
        }
    }

    #[test]
    fn a_broker_on_probation_that_answers_late_takes_no_leadership_back() {
        let times = ProbeTimes::with_after(Duration::from_millis(1_500));
        let mut book = ProbeBook::begin(ME, times, None, at(0));
        let mut image = image();
        let report = ProbeReport { declines_leaderships: true, ..ProbeReport::default() };
        book.answered(at(0), at(0), TWO, report);
        book.poll(at(0), &image);
        for ms in [100, 600, 60_000] {
            assert_eq!(back(&book, at(ms), &image), Some(0), "after {ms} ms");
        }
        register(&mut image, TWO, 3);
        assert_eq!(back(&book, at(60_100), &image), None, "another process");
        book.answered(at(60_200), at(60_200), TWO, report);
        book.poll(at(60_200), &image);
        assert_eq!(back(&book, at(70_000), &image), Some(0));
        book.answered(at(70_100), at(70_100), TWO, ProbeReport::default());
        assert_eq!(back(&book, at(70_100), &image), None, "the end of the probation");
    }
}
