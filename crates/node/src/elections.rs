//! Elections by log ends, on the active controller: which brokers to request ends from, and when to elect.
//!
//! An election opens when a partition without a leader has only candidates that registered again (`metadata::decide`). The
//! controller requests the ends of all candidates. It elects as soon as all of them have answered and no complete replica is
//! fenced; at the latest when the wait is over, by the answers that it has. Without an answer the election stays open.
//!
//! An answer holds for the process that gave it and for the partition's leader epoch: a replica without a leader appends nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metadata::ClusterImage;
use metadata::decide::{
    BrokerRef, ElectByEnds, PendingElection, ReplicaEnd, ReplicaEnds, SWEEP_PARTITIONS_MAX,
};
use model::{LeaderEpoch, Moment, PartitionIndex, TopicId};

use crate::mutants::{Mutant, is_planted};

/// Pause before a broker is requested again that did not answer, or not for all partitions.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// A partition.
pub type NamedPartition = (TopicId, PartitionIndex);

/// The open elections of one controller.
#[derive(Debug)]
pub struct Elections {
    wait: Duration,
    open: BTreeMap<NamedPartition, Election>,
    /// Brokers with a request under way.
    requested: BTreeSet<BrokerRef>,
    /// Brokers that are requested again at this time.
    retries: BTreeMap<BrokerRef, Moment>,
}

#[derive(Debug)]
struct Election {
    pending: PendingElection,
    opened: Moment,
    ends: BTreeMap<BrokerRef, ReplicaEnd>,
    /// Proposed to the controller in this very state.
    is_proposed: bool,
}

impl Election {
    fn missing(&self) -> impl Iterator<Item = BrokerRef> {
        let candidates = self.pending.candidates.iter().copied();
        candidates.filter(|who| !self.ends.contains_key(who))
    }

    /// Ends of the present candidates.
    fn known(&self) -> Vec<ReplicaEnd> {
        let candidates = self.pending.candidates.iter();
        candidates.filter_map(|who| self.ends.get(who).copied()).collect()
    }

    fn is_due(&self, now: Moment, wait: Duration) -> bool {
        let has_all = self.missing().next().is_none() && self.pending.absent.is_empty();
        let is_over = now.since(self.opened) >= wait || is_planted(Mutant::ElectsByFirstEnd);
        let has_any = self.pending.candidates.iter().any(|who| self.ends.contains_key(who));
        !self.is_proposed && has_any && (has_all || is_over)
    }
}

impl Elections {
    /// No open election. `wait`: how long an election waits for complete replicas that are fenced or do not answer.
    pub fn new(wait: Duration) -> Elections {
        let (open, requested, retries) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Elections { wait, open, requested, retries }
    }

    /// Opens and closes elections by the image.
    pub fn observe(&mut self, now: Moment, image: &ClusterImage) {
        let mut before = std::mem::take(&mut self.open);
        for pending in image.pending_elections() {
            let named = (pending.topic_id, pending.partition);
            let known = before.remove(&named);
            let known = known.filter(|of| of.pending.leader_epoch == pending.leader_epoch);
            let election = match known {
                Some(known) => Election {
                    is_proposed: known.is_proposed && known.pending == pending,
                    pending,
                    ..known
                },
                None => {
                    Election { pending, opened: now, ends: BTreeMap::new(), is_proposed: false }
                }
            };
            self.open.insert(named, election);
        }
        let is_candidate = |who: &BrokerRef| {
            self.open.values().any(|election| election.pending.candidates.contains(who))
        };
        self.retries.retain(|who, _| is_candidate(who));
    }

    /// Whether an election is open.
    pub fn is_any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The requests to send now: at most one for each broker at a time. Each must be followed by
    /// [`Elections::note_answer`] or [`Elections::note_failure`].
    pub fn take_requests(&mut self, now: Moment) -> Vec<(BrokerRef, Vec<NamedPartition>)> {
        let mut wanted: BTreeMap<BrokerRef, Vec<NamedPartition>> = BTreeMap::new();
        for (named, election) in &self.open {
            for who in election.missing() {
                let is_waiting = self.retries.get(&who).is_some_and(|at| *at > now);
                if !is_waiting && !self.requested.contains(&who) {
                    let partitions = wanted.entry(who).or_default();
                    if partitions.len() < SWEEP_PARTITIONS_MAX {
                        partitions.push(*named);
                    }
                }
            }
        }
        self.requested.extend(wanted.keys());
        wanted.into_iter().collect()
    }

    /// Takes the answer to a request: the end of each partition, in the order of the request; `None` for a replica that cannot be
    /// read now.
    pub fn note_answer(
        &mut self,
        now: Moment,
        who: BrokerRef,
        partitions: &[NamedPartition],
        ends: &[Option<(LeaderEpoch, model::Offset)>],
    ) {
        self.requested.remove(&who);
        for (named, end) in partitions.iter().zip(ends) {
            let (Some(election), Some((last_epoch, end))) = (self.open.get_mut(named), end) else {
                continue;
            };
            let end = ReplicaEnd { broker: who, last_epoch: *last_epoch, end: *end };
            election.ends.insert(who, end);
        }
        if ends.len() < partitions.len() || ends.iter().any(Option::is_none) {
            self.retries.insert(who, now.plus(RETRY_AFTER));
        }
    }

    /// A request was not answered in time. Returns whether it was under way.
    pub fn note_failure(&mut self, now: Moment, who: BrokerRef) -> bool {
        let was_under_way = self.requested.remove(&who);
        if was_under_way {
            self.retries.insert(who, now.plus(RETRY_AFTER));
        }
        was_under_way
    }

    /// The elections to propose now; `None` for none.
    pub fn take_due(&mut self, now: Moment) -> Option<ElectByEnds> {
        let wait = self.wait;
        let due = self.open.values_mut().filter(|election| election.is_due(now, wait));
        let partitions: Vec<ReplicaEnds> = due
            .take(SWEEP_PARTITIONS_MAX)
            .map(|election| {
                election.is_proposed = true;
                let PendingElection { topic_id, partition, partition_epoch, .. } = election.pending;
                ReplicaEnds { topic_id, partition, partition_epoch, ends: election.known() }
            })
            .collect();
        (!partitions.is_empty()).then_some(ElectByEnds { partitions })
    }

    /// A proposed election may stay undecided, so it is proposed again.
    pub fn propose_again(&mut self) {
        self.open.values_mut().for_each(|election| election.is_proposed = false);
    }

    /// When something is due without an answer or another image.
    pub fn due_at(&self) -> Option<Moment> {
        let waits = self.open.values().filter(|election| !election.is_proposed);
        let waits = waits.map(|election| election.opened.plus(self.wait));
        waits.chain(self.retries.values().copied()).min()
    }
}

#[cfg(test)]
mod tests {
    use metadata::MetadataRecord;
    use metadata::record::{BrokerRecord, COPIES_LEVEL, PartitionRecord};
    use model::{BrokerEpoch, BrokerId, Offset, Timestamp, Uuid};

    use super::*;

    const TOPIC: TopicId = Uuid([7; 16]);
    const AT: NamedPartition = (TOPIC, PartitionIndex(0));
    const WAIT: Duration = Duration::from_secs(5);

    fn moment(millis: u64) -> Moment {
        Moment::START.plus(Duration::from_millis(millis))
    }

    fn who(broker: i32) -> BrokerRef {
        BrokerRef { broker: BrokerId(broker), epoch: BrokerEpoch(broker.into()) }
    }

    /// A partition without a leader: three eligible replicas that registered again, on brokers that are fenced.
    fn image() -> ClusterImage {
        let mut image = ClusterImage::default();
        let name = metadata::image::HIGHWATER_VERSION.to_owned();
        image.replay(&MetadataRecord::FeatureLevelSet { name, level: COPIES_LEVEL }).unwrap();
        let ids: Vec<BrokerId> = (1..=3).map(BrokerId).collect();
        for id in &ids {
            let record = BrokerRecord {
                broker: *id,
                incarnation: Uuid([id.0 as u8; 16]),
                epoch: BrokerEpoch(id.0.into()),
                endpoints: Vec::new(),
                rack: None,
                log_dirs: Vec::new(),
                fenced: true,
                software: None,
            };
            image.replay(&MetadataRecord::BrokerRegistered(record)).unwrap();
        }
        let state = PartitionRecord {
            partition: PartitionIndex(0),
            replicas: ids.clone(),
            isr: Vec::new(),
            elr: ids.clone(),
            restarted: ids,
            leader: BrokerId::NONE,
            last_known_leader: BrokerId::NONE,
            leader_epoch: LeaderEpoch(4),
            partition_epoch: 9,
            recovering: false,
            durable: true,
        };
        let created = MetadataRecord::TopicCreated2 {
            topic_id: TOPIC,
            name: "t".into(),
            created: Timestamp(0),
            partitions: vec![state],
        };
        image.replay(&created).unwrap();
        image
    }

    fn unfence(image: &mut ClusterImage, broker: i32) {
        image.replay(&MetadataRecord::BrokerUnfenced { broker: BrokerId(broker) }).unwrap();
    }

    fn answer(elections: &mut Elections, broker: i32, end: i64) {
        let ends = [Some((LeaderEpoch(3), Offset(end)))];
        elections.note_answer(moment(10), who(broker), &[AT], &ends);
    }

    fn elected_by(request: Option<ElectByEnds>) -> Vec<(i32, i64)> {
        let partitions = request.map(|request| request.partitions).unwrap_or_default();
        let ends = partitions.into_iter().flat_map(|of| of.ends);
        ends.map(|end| (end.broker.broker.0, end.end.0)).collect()
    }

    #[test]
    fn nothing_opens_while_all_complete_replicas_are_fenced() {
        let mut elections = Elections::new(WAIT);
        elections.observe(moment(0), &image());
        assert!(!elections.is_any_open() && elections.due_at().is_none());
        assert_eq!(elections.take_requests(moment(0)), []);
    }

    #[test]
    fn an_election_waits_for_fenced_replicas_until_the_wait_is_over() {
        let (mut image, mut elections) = (image(), Elections::new(WAIT));
        unfence(&mut image, 2);
        elections.observe(moment(0), &image);
        assert_eq!(elections.take_requests(moment(0)), [(who(2), vec![AT])]);
        assert_eq!(elections.take_requests(moment(0)), [], "one request at a time");
        answer(&mut elections, 2, 20);
        assert_eq!(elections.take_due(moment(4_999)), None);
        assert_eq!(elections.due_at(), Some(moment(5_000)));
        let due = elections.take_due(moment(5_000));
        assert_eq!(due.as_ref().map(|request| request.partitions[0].partition_epoch), Some(9));
        assert_eq!(elected_by(due), [(2, 20)]);
        assert_eq!(elections.take_due(moment(5_001)), None, "it is proposed once");
        elections.propose_again();
        assert_eq!(elected_by(elections.take_due(moment(5_002))), [(2, 20)]);
    }

    #[test]
    fn an_election_is_due_when_all_complete_replicas_have_answered() {
        let (mut image, mut elections) = (image(), Elections::new(WAIT));
        for broker in 1..=3 {
            unfence(&mut image, broker);
        }
        elections.observe(moment(0), &image);
        assert_eq!(elections.take_requests(moment(0)).len(), 3);
        answer(&mut elections, 1, 10);
        answer(&mut elections, 2, 30);
        assert_eq!(elections.take_due(moment(10)), None);
        answer(&mut elections, 3, 20);
        assert_eq!(elected_by(elections.take_due(moment(10))), [(1, 10), (2, 30), (3, 20)]);
    }

    #[test]
    fn a_broker_that_does_not_answer_is_requested_again_and_not_waited_for_beyond_the_wait() {
        let (mut image, mut elections) = (image(), Elections::new(WAIT));
        for broker in 1..=3 {
            unfence(&mut image, broker);
        }
        elections.observe(moment(0), &image);
        elections.take_requests(moment(0));
        answer(&mut elections, 1, 10);
        elections.note_failure(moment(10), who(2));
        elections.note_answer(moment(10), who(3), &[AT], &[None]);
        assert_eq!(elections.take_requests(moment(10)), []);
        assert_eq!(elections.due_at(), Some(moment(110)));
        let again = elections.take_requests(moment(110));
        assert_eq!(again, [(who(2), vec![AT]), (who(3), vec![AT])]);
        assert_eq!(elections.take_due(moment(4_999)), None);
        assert_eq!(elected_by(elections.take_due(moment(5_000))), [(1, 10)]);
    }

    #[test]
    fn the_answer_of_an_earlier_process_does_not_count() {
        let (mut image, mut elections) = (image(), Elections::new(WAIT));
        unfence(&mut image, 1);
        elections.observe(moment(0), &image);
        elections.take_requests(moment(0));
        answer(&mut elections, 1, 10);
        let mut record = BrokerRecord {
            broker: BrokerId(1),
            incarnation: Uuid([9; 16]),
            epoch: BrokerEpoch(9),
            endpoints: Vec::new(),
            rack: None,
            log_dirs: Vec::new(),
            fenced: true,
            software: None,
        };
        image.replay(&MetadataRecord::BrokerRegistered(record.clone())).unwrap();
        record.fenced = false;
        image.replay(&MetadataRecord::BrokerRegistered(record)).unwrap();
        elections.observe(moment(100), &image);
        assert_eq!(elections.take_due(moment(6_000)), None);
        let new = BrokerRef { broker: BrokerId(1), epoch: BrokerEpoch(9) };
        assert_eq!(elections.take_requests(moment(6_000)), [(new, vec![AT])]);
    }

    #[test]
    fn a_leader_closes_the_election() {
        let (mut image, mut elections) = (image(), Elections::new(WAIT));
        unfence(&mut image, 1);
        elections.observe(moment(0), &image);
        assert!(elections.is_any_open());
        let state = image.topic_by_id(TOPIC).unwrap().partition(PartitionIndex(0)).unwrap();
        let mut state = state.to_record(PartitionIndex(0));
        (state.leader, state.isr) = (BrokerId(1), vec![BrokerId(1)]);
        (state.elr, state.restarted) = (Vec::new(), Vec::new());
        state.leader_epoch = LeaderEpoch(5);
        state.partition_epoch = 10;
        let changed = MetadataRecord::PartitionChanged2 { topic_id: TOPIC, state };
        image.replay(&changed).unwrap();
        elections.observe(moment(1), &image);
        assert!(!elections.is_any_open());
    }
}
