//! Elections by log ends, on the active controller: which brokers to request ends from, and when to elect.
//!
//! An election opens when a partition without a leader has only candidates that registered again (`metadata::decide`). The
//! controller requests the ends of all candidates. It elects as soon as all of them have answered and no complete replica is
//! fenced; at the latest when it has waited long enough for each missing replica, by the answers that it has. Without an answer the
//! election stays open.
//!
//! An answer holds for the process that gave it and for the partition's leader epoch: a replica without a leader appends nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metadata::ClusterImage;
use metadata::decide::{
    BrokerRef, ElectByEnds, PendingElection, ReplicaEnd, ReplicaEnds, SWEEP_PARTITIONS_MAX,
};
use model::{BrokerId, LeaderEpoch, Moment, PartitionIndex, TopicId};

use crate::mutants::{Mutant, is_planted};

/// An election waits at most this many times as long as for one replica: replicas that are fenced in turn leave no partition without a
/// leader.
const WAITS_MAX: u32 = 2;

/// Least time between the first answer and an election without a candidate that serves and has not answered: after an outage of all
/// links the answers of several candidates arrive one after the other.
const ANSWERS_MIN: Duration = Duration::from_millis(500);

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
    /// Brokers whose next request waits until this time.
    retries: BTreeMap<BrokerRef, Moment>,
}

#[derive(Debug)]
struct Election {
    pending: PendingElection,
    opened: Moment,
    ends: BTreeMap<BrokerRef, ReplicaEnd>,
    /// Complete replicas that are fenced or have not answered, and the time since which. A replica that answered and is fenced
    /// afterwards is waited for again: it has the log, and its broker may return.
    missing_since: BTreeMap<BrokerId, Moment>,
    /// When the first answer arrived.
    first_answer: Option<Moment>,
    /// Proposed to the controller in this very state.
    is_proposed: bool,
}

impl Election {
    /// An election that waits for every complete replica from `now` on.
    fn open(pending: PendingElection, now: Moment) -> Election {
        let (ends, missing_since) = (BTreeMap::new(), BTreeMap::new());
        let mut election = Election {
            pending,
            opened: now,
            ends,
            missing_since,
            first_answer: None,
            is_proposed: false,
        };
        election.note_missing(now);
        election
    }

    /// Candidates without an answer.
    fn unanswered(&self) -> impl Iterator<Item = BrokerRef> {
        let candidates = self.pending.candidates.iter().copied();
        candidates.filter(|who| !self.ends.contains_key(who))
    }

    /// Notes since when each replica is missing.
    fn note_missing(&mut self, now: Moment) {
        let unanswered = self.unanswered().map(|who| who.broker);
        let missing: BTreeSet<BrokerId> =
            unanswered.chain(self.pending.absent.iter().copied()).collect();
        if !is_planted(Mutant::WaitsFromOpening) {
            self.missing_since.retain(|broker, _| missing.contains(broker));
        }
        for broker in missing {
            self.missing_since.entry(broker).or_insert(now);
        }
        if !self.has_any_answer() {
            self.first_answer = None;
        }
    }

    /// When no missing replica is waited for any longer; `None` if no replica is missing. At most [`WAITS_MAX`] times `wait` after the
    /// election opened, however often replicas answer and go missing again, or [`ANSWERS_MIN`] after the first answer.
    fn waits_until(&self, wait: Duration) -> Option<Moment> {
        let since = self.missing_since.values();
        let latest = match is_planted(Mutant::WaitsFromOpening) {
            true => since.min(),
            false => since.max(),
        };
        let until = latest?.plus(wait).min(self.opened.plus(wait * WAITS_MAX));
        let may_answer =
            self.unanswered().next().is_some() && !is_planted(Mutant::ElectsLateAnswerAtOnce);
        let first = self.first_answer.filter(|_| may_answer);
        Some(first.map_or(until, |first| until.max(first.plus(wait.min(ANSWERS_MIN)))))
    }

    fn has_any_answer(&self) -> bool {
        self.pending.candidates.iter().any(|who| self.ends.contains_key(who))
    }

    /// Ends of the present candidates.
    fn known(&self) -> Vec<ReplicaEnd> {
        let candidates = self.pending.candidates.iter();
        candidates.filter_map(|who| self.ends.get(who).copied()).collect()
    }

    fn is_due(&self, now: Moment, wait: Duration) -> bool {
        let is_over = self.waits_until(wait).is_none_or(|until| until <= now)
            || is_planted(Mutant::ElectsByFirstEnd);
        !self.is_proposed && self.has_any_answer() && is_over
    }
}

impl Elections {
    /// No open election. `wait`: how long an election waits for each complete replica that is fenced or does not answer.
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
                Some(mut known) => {
                    known.is_proposed &= known.pending == pending;
                    known.pending = pending;
                    known.note_missing(now);
                    known
                }
                None => Election::open(pending, now),
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
            for who in election.unanswered() {
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
        self.retries.retain(|_, at| *at > now);
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
            election.first_answer.get_or_insert(now);
            election.note_missing(now);
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

    /// When an election or a request is due without an answer or another image. After [`Elections::take_requests`] and
    /// [`Elections::take_due`] at a time, it is later than that time.
    pub fn due_at(&self) -> Option<Moment> {
        let waits = self.open.values().filter(|it| !it.is_proposed && it.has_any_answer());
        let waits = waits.filter_map(|election| election.waits_until(self.wait));
        waits.chain(self.retries.values().copied()).min()
    }
}

#[cfg(test)]
mod tests {
    use metadata::MetadataRecord;
    use metadata::record::{BrokerRecord, COPIES_LEVEL, PartitionRecord};
    use model::{BrokerEpoch, Offset, Timestamp, Uuid};

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
        answer_at(elections, 10, broker, end);
    }

    fn answer_at(elections: &mut Elections, at: u64, broker: i32, end: i64) {
        let ends = [Some((LeaderEpoch(3), Offset(end)))];
        elections.note_answer(moment(at), who(broker), &[AT], &ends);
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

    /// Registers another process of a broker, and unfences it.
    fn register(image: &mut ClusterImage, who: BrokerRef) {
        let mut record = BrokerRecord {
            broker: who.broker,
            incarnation: Uuid([who.epoch.0 as u8; 16]),
            epoch: who.epoch,
            endpoints: Vec::new(),
            rack: None,
            log_dirs: Vec::new(),
            fenced: true,
            software: None,
        };
        image.replay(&MetadataRecord::BrokerRegistered(record.clone())).unwrap();
        record.fenced = false;
        image.replay(&MetadataRecord::BrokerRegistered(record)).unwrap();
    }

    /// Fences a broker: its session has ended.
    fn fence(image: &mut ClusterImage, broker: i32) {
        image.replay(&MetadataRecord::BrokerFenced { broker: BrokerId(broker) }).unwrap();
    }

    /// Replica 1 answers and is fenced at 4 s, when the others come up. Returns the elections due at 8,999 ms.
    fn elections_with_a_late_absence() -> (ClusterImage, Elections, Option<ElectByEnds>) {
        let (mut image, mut elections) = (image(), Elections::new(WAIT));
        unfence(&mut image, 1);
        elections.observe(moment(0), &image);
        elections.take_requests(moment(0));
        answer(&mut elections, 1, 30);
        fence(&mut image, 1);
        unfence(&mut image, 2);
        unfence(&mut image, 3);
        elections.observe(moment(4_000), &image);
        elections.take_requests(moment(4_000));
        answer(&mut elections, 2, 10);
        answer(&mut elections, 3, 20);
        let due = elections.take_due(moment(8_999));
        (image, elections, due)
    }

    #[test]
    fn a_replica_that_is_fenced_after_its_answer_is_waited_for_again() {
        let (_, mut elections, due) = elections_with_a_late_absence();
        assert_eq!(due, None);
        assert_eq!(elections.due_at(), Some(moment(9_000)));
        assert_eq!(elected_by(elections.take_due(moment(9_000))), [(2, 10), (3, 20)]);
    }

    #[cfg(debug_assertions)]
    #[test]
    fn a_wait_since_the_opening_elects_without_a_replica_that_has_just_been_fenced() {
        crate::mutants::plant(Some(Mutant::WaitsFromOpening));
        let (_, _, due) = elections_with_a_late_absence();
        crate::mutants::plant(None);
        assert_eq!(elected_by(due), [(2, 10), (3, 20)]);
    }

    /// Replica 3 does not come. Replicas 1 and 2 have answered, and one of them is always fenced.
    #[test]
    fn replicas_that_are_fenced_in_turn_leave_no_partition_without_a_leader() {
        let (mut image, mut elections) = (image(), Elections::new(WAIT));
        unfence(&mut image, 1);
        unfence(&mut image, 2);
        elections.observe(moment(0), &image);
        elections.take_requests(moment(0));
        answer(&mut elections, 1, 30);
        answer(&mut elections, 2, 20);
        for at in [2_000, 4_000, 6_000, 8_000] {
            let (gone, back) = if at % 4_000 == 0 { (1, 2) } else { (2, 1) };
            unfence(&mut image, back);
            fence(&mut image, gone);
            elections.observe(moment(at), &image);
            assert_eq!(elections.take_due(moment(at)), None, "at {at} ms");
        }
        assert_eq!(elections.due_at(), Some(moment(10_000)));
        assert_eq!(elected_by(elections.take_due(moment(10_000))), [(2, 20)]);
    }

    /// No link works for longer than the wait. The copy on broker 1 answers first.
    #[test]
    fn a_first_answer_after_the_wait_elects_nobody_before_others_can_answer() {
        let (mut image, mut elections) = (image(), Elections::new(WAIT));
        (1..=3).for_each(|broker| unfence(&mut image, broker));
        elections.observe(moment(0), &image);
        elections.take_requests(moment(0));
        answer_at(&mut elections, 60_000, 1, 10);
        assert_eq!(elections.take_due(moment(60_000)), None);
        assert_eq!(elections.due_at(), Some(moment(60_500)));
        answer_at(&mut elections, 60_001, 2, 30);
        answer_at(&mut elections, 60_002, 3, 20);
        let elected = elected_by(elections.take_due(moment(60_002)));
        assert_eq!(elected, [(1, 10), (2, 30), (3, 20)]);
    }

    #[cfg(debug_assertions)]
    #[test]
    fn a_first_answer_after_the_wait_elects_its_replica_without_the_pause() {
        let (mut image, mut elections) = (image(), Elections::new(WAIT));
        (1..=3).for_each(|broker| unfence(&mut image, broker));
        elections.observe(moment(0), &image);
        elections.take_requests(moment(0));
        answer_at(&mut elections, 60_000, 1, 10);
        crate::mutants::plant(Some(Mutant::ElectsLateAnswerAtOnce));
        let due = elections.take_due(moment(60_000));
        crate::mutants::plant(None);
        assert_eq!(elected_by(due), [(1, 10)]);
    }

    #[test]
    fn a_restarted_broker_is_waited_for_since_it_was_fenced() {
        let (mut image, mut elections, _) = elections_with_a_late_absence();
        let restarted = BrokerRef { broker: BrokerId(1), epoch: BrokerEpoch(9) };
        register(&mut image, restarted);
        elections.observe(moment(8_999), &image);
        assert_eq!(elections.take_requests(moment(8_999)), [(restarted, vec![AT])]);
        assert_eq!(elections.take_due(moment(8_999)), None);
        let ends = [Some((LeaderEpoch(3), Offset(30)))];
        elections.note_answer(moment(8_999), restarted, &[AT], &ends);
        let elected = elected_by(elections.take_due(moment(8_999)));
        assert_eq!(elected, [(1, 30), (2, 10), (3, 20)]);
    }

    #[test]
    fn nothing_is_due_in_the_past_while_candidates_do_not_answer() {
        let (mut image, mut elections) = (image(), Elections::new(WAIT));
        unfence(&mut image, 2);
        elections.observe(moment(0), &image);
        let mut now = 0;
        while now < 20_000 {
            let requests = elections.take_requests(moment(now));
            assert_eq!(elections.take_due(moment(now)), None);
            assert!(elections.due_at().is_none_or(|at| at > moment(now)), "at {now} ms");
            now += 30;
            for (who, _) in requests {
                assert!(elections.note_failure(moment(now), who));
            }
            elections.observe(moment(now), &image);
        }
    }

    #[test]
    fn the_answer_of_an_earlier_process_does_not_count() {
        let (mut image, mut elections) = (image(), Elections::new(WAIT));
        unfence(&mut image, 1);
        elections.observe(moment(0), &image);
        elections.take_requests(moment(0));
        answer(&mut elections, 1, 10);
        let new = BrokerRef { broker: BrokerId(1), epoch: BrokerEpoch(9) };
        register(&mut image, new);
        elections.observe(moment(100), &image);
        assert_eq!(elections.take_due(moment(6_000)), None);
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
