//! Elections by log ends: the controller's requests, the brokers' answers, and what the controller makes of them.

use std::sync::Arc;

use metadata::decide::BrokerRef;
use model::{Moment, Timestamp};
use node::Key;
use node::log_ends::{self, LogEnd, LogEndsError};

use super::network::{Body, EndsUse};
use super::topics::partition_of;
use super::{CALL_MS, Cluster, Event, Process, number_of};

/// How long an election by log ends waits for complete replicas, in milliseconds.
pub(super) const ENDS_WAIT_MS: i64 = 600;
/// How long such an election waits at most, however often replicas answer and go missing again, in milliseconds.
pub(super) const ENDS_WAIT_MS_MAX: i64 = 2 * ENDS_WAIT_MS;

fn moment(now: Timestamp) -> Moment {
    Moment(now.0.cast_unsigned() * 1_000)
}

impl Cluster {
    /// The controller of a machine requests log ends, and elects by them.
    pub(super) fn elect_by_ends(&mut self, member: usize) {
        let (now, image) = (self.now, Arc::clone(&self.members[member].image));
        let process = self.process(member);
        let Some(active) = &mut self.members[member].active else { return };
        active.elections.observe(moment(now), &image);
        let (term, requests) = (active.term, active.elections.take_requests(moment(now)));
        let due = active.elections.take_due(moment(now));
        let entry = due.map(|request| active.controller.elect_by_ends(now, request));
        for (who, partitions) in requests {
            let request = log_ends::encode_request(&partitions);
            self.schedule(CALL_MS, Event::Unended { controller: member, term, who });
            let body = Body::AskEnds(process, EndsUse::Elections(term), request);
            self.send_message(member, number_of(who.broker), body);
        }
        if let Some(entry) = entry {
            self.trace.note(now, format_args!("{member} elects by log ends: {:?}", entry.records));
            self.propose(member, entry);
            self.sweep_soon(member);
        }
    }

    /// A broker answers a request for log ends.
    pub(super) fn answer_ends(
        &mut self,
        number: usize,
        asker: Process,
        of: EndsUse,
        request: Vec<u8>,
    ) -> Result<(), LogEndsError> {
        let partitions = log_ends::decode_request(&request)?;
        let Some(broker) = &self.members[number].broker else { return Ok(()) };
        let end_of = |(topic, partition): &node::elections::NamedPartition| -> LogEnd {
            let at = partition_of(Key { topic_id: *topic, partition: *partition })?;
            let replica = broker.partition(at).filter(|_| !broker.out_of_reach.contains(&at));
            replica.map(|replica| replica.synced_end())
        };
        let ends: Vec<LogEnd> = partitions.iter().map(end_of).collect();
        let who = BrokerRef { broker: broker.id, epoch: broker.epoch };
        let answer = log_ends::encode_answer(who, &ends);
        self.send_message(number, asker.broker, Body::Ends(asker, of, request, answer));
        Ok(())
    }

    /// The controller gets an answer.
    pub(super) fn take_ends(
        &mut self,
        member: usize,
        asker: Process,
        of: EndsUse,
        request: &[u8],
        answer: &[u8],
    ) -> Result<(), LogEndsError> {
        let partitions = log_ends::decode_request(request)?;
        let (who, ends) = log_ends::decode_answer(answer)?;
        let is_it = self.process(member) == asker;
        let term = match of {
            EndsUse::Elections(term) => term,
            EndsUse::Operator(number) => {
                self.take_operator_ends(member, number, &partitions, (who, ends));
                return Ok(());
            }
        };
        let active = self.members[member].active.as_mut();
        if let Some(active) = active.filter(|active| is_it && active.term == term) {
            active.elections.note_answer(moment(self.now), who, &partitions, &ends);
            self.elect_by_ends(member);
        }
        Ok(())
    }

    /// A request may not have been answered.
    pub(super) fn end_request(&mut self, controller: usize, term: u64, who: BrokerRef) {
        let now = moment(self.now);
        let active = self.members[controller].active.as_mut();
        let active = active.filter(|active| active.term == term);
        if active.is_some_and(|active| active.elections.note_failure(now, who)) {
            self.note_unanswered(number_of(who.broker));
        }
    }
}
