//! Probes of the active controller, and requests for relief, by the product's machines.

use std::collections::BTreeSet;

use metadata::decide::{BrokerRef, RelieveReplicas};
use metadata::{Request, Response};
use model::{BrokerId, Moment, Timestamp};
use node::disks::{DirectoryCondition, ReliefRound, reported_hang_ms};
use node::pauses::RecentPauses;
use node::probe_book::ProbeBook;
use node::probes::{ProbeReport, ProbeRequest};
use node::{ProbeTimes, doubt};

use super::{OBSERVED_EVERY_MS, REQUESTED_EVERY_MS, SESSION_MS, SickEvent, length, moment};
use crate::cluster::controller::{Ask, Controller, Entry};
use crate::cluster::network::Body;
use crate::cluster::topics::key_of;
use crate::cluster::{Cluster, Event, Process, id_of};
use crate::message::PartitionId;

/// `highwater.suspect.after.ms` on the machines' clock.
const SUSPECT_AFTER_MS: u64 = 1_500;
/// Of so many probes one is followed by an election of preferred leaders.
const PREFERRED_EVERY: i64 = 1_000;

fn times() -> ProbeTimes {
    ProbeTimes::with_after(std::time::Duration::from_millis(SUSPECT_AFTER_MS))
}

impl Controller {
    /// Begins to probe in the place of `former`.
    pub(in crate::cluster) fn begin_probes(
        &mut self,
        me: BrokerId,
        former: Option<BrokerId>,
        now: Timestamp,
    ) {
        self.session_ms = SESSION_MS;
        self.book = Some(ProbeBook::begin(me, times(), former, moment(now)));
    }

    /// Relief of suspected brokers, and elections of preferred leaders when all answer.
    fn poll_probes(&mut self, now: Timestamp, own: ProbeReport) -> Vec<Entry> {
        let Some(book) = &mut self.book else { return Vec::new() };
        book.note_own(moment(now), own);
        let due = book.poll(moment(now), &self.image);
        let healthy = book.answering(moment(now), &self.image);
        let preferred = book.preferred_by_health(moment(now), &self.image, &BTreeSet::new());
        let has_suspects = book.has_suspects();
        let relieve = |broker: BrokerRef| {
            let healthy = healthy.clone();
            Request::RelieveReplicas(RelieveReplicas {
                broker,
                partitions: None,
                healthy,
                hung_ms: 0,
            })
        };
        let mut requests: Vec<Request> = due.suspects.into_iter().map(relieve).collect();
        if !has_suspects && now.0 % PREFERRED_EVERY < 25 {
            requests.push(Request::ElectLeaders(metadata::decide::ElectLeaders {
                kind: metadata::decide::ElectionKind::Preferred,
                partitions: preferred,
            }));
        }
        requests.into_iter().map(|request| self.decide(now, &request).0).collect()
    }

    /// Decides a broker's request for relief. Returns whether anything moved.
    pub(in crate::cluster) fn relieve(
        &mut self,
        now: Timestamp,
        relief: &RelieveReplicas,
    ) -> (Entry, bool) {
        let mut relief = relief.clone();
        let Some(book) = &mut self.book else { return (Entry::default(), false) };
        book.complete_relief(moment(now), &self.image, &mut relief);
        let (before, broker) = (self.image.clone(), relief.broker.broker);
        let (mut entry, response) = self.decide(now, &Request::RelieveReplicas(relief));
        entry.relieves = Some(broker);
        let Response::EmptyReplicas(Ok(changed)) = response else {
            return (entry, false);
        };
        let moved = changed.iter().map(|(topic, at, _)| (*topic, *at));
        if let Some(book) = &mut self.book {
            book.note_moves(moment(now), &before, broker, moved);
        }
        (entry, !changed.is_empty())
    }
}

impl Cluster {
    /// The active controller probes all brokers, and acts upon what is due.
    pub(super) fn probe(&mut self, member: usize, term: u64) {
        let now = self.now;
        let own = self.report_of(member);
        let active = self.members[member].active.as_mut().filter(|active| active.is_of(term));
        let Some(active) = active else { return };
        let demands =
            active.controller().book.as_ref().is_some_and(|book| book.demands_proof(moment(now)));
        let entries = active.controller().poll_probes(now, own);
        for entry in entries {
            self.propose(member, entry);
        }
        let request = ProbeRequest { demands_proof: demands }.encode();
        for other in (0..self.members.len()).filter(|other| *other != member) {
            let from = self.process(member);
            self.send_message(member, other, Body::Probe(from, now, request.clone()));
        }
        if demands {
            self.prove_disk(member);
        }
        self.schedule(25, Event::Sick(SickEvent::Probe { member, term }));
    }

    /// A broker answers a probe.
    pub(in crate::cluster) fn probed(
        &mut self,
        member: usize,
        from: Process,
        sent_at: Timestamp,
        request: &[u8],
    ) {
        let report = self.report_of(member).encode();
        if ProbeRequest::decode(request).demands_proof {
            self.prove_disk(member);
        }
        self.send_message(member, from.broker, Body::Probed(sent_at, report));
    }

    /// The controller takes the answer to a probe.
    pub(in crate::cluster) fn probe_answered(
        &mut self,
        member: usize,
        from: usize,
        sent_at: Timestamp,
        report: &[u8],
    ) {
        let now = self.now;
        let Some(active) = &mut self.members[member].active else { return };
        let report = ProbeReport::decode(report).unwrap_or_default();
        if let Some(book) = &mut active.controller().book {
            book.answered(moment(now), moment(sent_at), id_of(from), report);
        }
    }

    fn report_of(&self, member: usize) -> ProbeReport {
        let Some(sick) = &self.sick else { return ProbeReport::default() };
        let condition = &sick.conditions[member];
        let held_for = condition.held_since.map_or(0, |since| self.now.ms_since(since));
        ProbeReport {
            oldest_operation: length(held_for),
            last_ended: length(self.now.ms_since(condition.ended_at)),
            lacks_room: condition.is_full,
            declines_leaderships: condition.declines,
            pauses: RecentPauses::default(),
        }
    }

    /// A small write to an idle disk: it ends at once, or hangs.
    fn prove_disk(&mut self, member: usize) {
        let now = self.now;
        let Some(sick) = &mut self.sick else { return };
        let condition = &mut sick.conditions[member];
        match condition.is_hung {
            true => drop(condition.held_since.get_or_insert(now)),
            false => condition.ended_at = now,
        }
    }

    /// A broker observes its disk, and requests relief while the disk is sick.
    pub(super) fn observe_disk(&mut self, process: Process) {
        if self.running(process).is_none() {
            return;
        }
        self.schedule(OBSERVED_EVERY_MS, Event::Sick(SickEvent::Observe(process)));
        let (now, member) = (self.now, process.broker);
        let report = self.report_of(member);
        let epoch = self.members[member].broker.as_ref().expect("it runs").epoch;
        let image = std::sync::Arc::clone(&self.members[member].image);
        let Some(sick) = &mut self.sick else { return };
        let condition = &mut sick.conditions[member];
        let found =
            condition.health.observe(moment(now), report.oldest_operation, report.lacks_room);
        condition.declines = found != DirectoryCondition::Healthy;
        let is_early =
            condition.requested_at.is_some_and(|at| now.ms_since(at) < REQUESTED_EVERY_MS);
        if found != DirectoryCondition::Sick || is_early {
            return;
        }
        condition.requested_at = Some(now);
        let all = self.partitions().map(key_of);
        let all = all.map(|key| (key.topic_id, key.partition)).collect();
        let partitions = ReliefRound::default().next_request(&image, id_of(member), all);
        if partitions.is_empty() {
            return;
        }
        let relief = RelieveReplicas {
            broker: BrokerRef { broker: id_of(member), epoch },
            partitions: Some(partitions),
            healthy: Vec::new(),
            hung_ms: reported_hang_ms(report.oldest_operation),
        };
        self.ask_controller(process, Ask::Relieve(relief));
    }

    /// Other brokers took over replicas of a broker.
    pub(in crate::cluster) fn relieved(&mut self, member: usize) {
        let now = self.now;
        if let Some(sick) = &mut self.sick {
            sick.conditions[member].health.relieved(moment(now));
        }
    }

    /// Whether a leader refuses records with `acks=1`, because another leader may have been elected.
    pub(in crate::cluster) fn is_in_doubt(&self, member: usize, at: PartitionId) -> bool {
        let (Some(sick), Some(broker)) = (&self.sick, &self.members[member].broker) else {
            return false;
        };
        let condition = &sick.conditions[member];
        let current_at = condition.contact.0.current_at();
        if !doubt::are_in_doubt(moment(self.now), current_at, length(SESSION_MS)) {
            return false;
        }
        let (Some(state), Some(replica)) = (broker.known_state(at), broker.partition(at)) else {
            return false;
        };
        let now = self.moment_of(member);
        let since = Moment(now.0.saturating_sub(SESSION_MS as u64 * 1_000));
        let was_here = |id: BrokerId| condition.fetched_at.get(&id).is_some_and(|at| *at >= since);
        doubt::is_superseded(replica, state, since, was_here)
    }
}
