//! What clients have to do with a cluster: connections, whom they ask, and what they are told.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use model::{ErrorCode, LeaderEpoch, Timestamp};
use partition::Acks;

use super::topics::partitions_in;
use super::{Cluster, Event, number_of, sick};
use crate::history::Broken;
use crate::message::{ClientId, PartitionId, Request, Response};
use crate::network::{Address, Link};

/// A client's connections, and the answers that wait for those to earlier requests.
#[derive(Debug, Default)]
pub(super) struct Wire {
    pub(super) link: Link,
    pending: VecDeque<(u64, Option<Response>)>,
    /// Who leads which partition, as it was last told, and in which leader epoch: never an older one than before.
    leaders: BTreeMap<PartitionId, (usize, LeaderEpoch)>,
    /// What it saw cannot go on: an election has cost what it knew, and it was allowed to.
    pub(super) is_abandoned: bool,
    /// Send time of the first request that waits for an answer.
    asked_at: Timestamp,
}

impl Cluster {
    /// Breaks a client's connections; the client learns of it later.
    pub(super) fn disconnect(&mut self, client: ClientId) {
        let wire = &mut self.wires[client];
        wire.link.reset();
        wire.pending.clear();
        let (after, link) = (self.random.i64(1..60), wire.link.number);
        self.schedule(after, Event::Disconnected { client, link });
    }

    pub(super) fn disconnected(&mut self, client: ClientId, link: u64) {
        if self.wires[client].link.number == link {
            self.wires[client].link.is_broken = false;
            match self.producers.get_mut(client) {
                Some(producer) => producer.disconnected(),
                None => self.consumers[client - self.plan.producers].disconnected(),
            }
        }
    }

    pub(super) fn wake(&mut self, client: ClientId) {
        if self.sick.is_some() {
            self.end_late_request(client);
        }
        let is_open = |wire: &Wire| !wire.link.is_broken && !wire.is_abandoned;
        if is_open(&self.wires[client]) {
            self.ask_for_leaders(client);
        }
        if is_open(&self.wires[client]) {
            self.send_requests(client);
        }
        let after = if self.sick.is_some() { 30..60 } else { 1..25 };
        let after = self.random.i64(after);
        self.schedule(after, Event::Wake(client));
    }

    /// A client of a sick run gives a request up after a while.
    fn end_late_request(&mut self, client: ClientId) {
        let wire = &self.wires[client];
        let waits = wire.pending.front().is_some_and(|(_, response)| response.is_none());
        if waits && self.now.ms_since(wire.asked_at) > sick::REQUEST_MS {
            self.disconnect(client);
        }
    }

    pub(super) fn send_requests(&mut self, client: ClientId) {
        let calm = !self.has_faults();
        let (random, history) = (&mut self.random, &mut self.history);
        let requests = match self.producers.get_mut(client) {
            Some(producer) => producer.wake(self.now, random, history),
            None => {
                let consumer = &mut self.consumers[client - self.plan.producers];
                consumer.wake(random, history, calm).into_iter().collect()
            }
        };
        for (request, body) in requests {
            let from = Address { client, link: self.wires[client].link.number, request };
            let Some((broker, epoch)) = self.leader_for(client, &body) else {
                self.disconnect(client);
                break;
            };
            if let Some(producer) = self.producers.get_mut(client) {
                producer.note_target(request, broker);
            }
            if self.wires[client].pending.is_empty() {
                self.wires[client].asked_at = self.now;
            }
            self.wires[client].pending.push_back((request, None));
            let delay = self.random.i64(0..self.pipelines.delay_ms_max());
            let at = self.wires[client].link.reach_broker(self.now, delay);
            self.schedule(at.ms_since(self.now), Event::ToBroker(broker, epoch, from, body));
        }
    }

    /// Any broker that runs tells what it knows (Metadata).
    fn ask_for_leaders(&mut self, client: ClientId) {
        let cut_off = self.cut_off_with(client);
        let asked = cut_off.unwrap_or_else(|| self.random.usize(0..self.members.len()));
        let Some(broker) = self.members[asked].broker.as_ref().filter(|_| !self.is_paused(asked))
        else {
            return;
        };
        let topic = partitions_in(&broker.image);
        let known = self.topic_of(client).start;
        if !topic.is_empty() && self.truth.is_newer(topic.start, known) {
            return self.adopt_topic(client, topic);
        }
        // The broker may not have the deletion of an earlier topic yet.
        let topic = if topic.start == known { topic } else { 0..0 };
        let leaders = &mut self.wires[client].leaders;
        for at in topic {
            let Some((leader, epoch)) = broker.leader_of(at) else { continue };
            if leaders.get(&at).is_none_or(|(_, known)| epoch >= *known) {
                leaders.insert(at, (number_of(leader), epoch));
            }
        }
    }

    fn topic_of(&self, client: ClientId) -> &Range<PartitionId> {
        match self.producers.get(client) {
            Some(producer) => producer.topic(),
            None => self.consumers[client - self.plan.producers].topic(),
        }
    }

    /// A client learns that the topic was created again: of the deleted topic it expects nothing any more.
    fn adopt_topic(&mut self, client: ClientId, topic: Range<PartitionId>) {
        self.trace.note(self.now, format_args!("{client} learns of partitions {topic:?}"));
        match self.producers.get_mut(client) {
            Some(producer) => producer.use_topic(topic),
            None => self.consumers[client - self.plan.producers].use_topic(topic),
        }
        self.wires[client].leaders.clear();
        self.disconnect(client);
    }

    /// Where a client sends this, as far as it knows.
    fn leader_for(&self, client: ClientId, request: &Request) -> Option<(usize, LeaderEpoch)> {
        match request {
            Request::Produce { partition, .. } | Request::Fetch { partition, .. } => {
                self.wires[client].leaders.get(partition).copied()
            }
            _ => Some((0, LeaderEpoch::NONE)),
        }
    }

    pub(super) fn arrive_at_broker(
        &mut self,
        broker: usize,
        epoch: LeaderEpoch,
        from: Address,
        request: Request,
    ) -> Result<(), Broken> {
        if self.wires[from.client].link.number != from.link {
            return Ok(());
        }
        if self.pipelines.is_out_of_order(broker, from) {
            // Events of a broker that was paused come in another order; those of a connection never do.
            self.disconnect(from.client);
            return Ok(());
        }
        let now = self.wall_of(broker);
        let doubtful = match &request {
            Request::Produce { partition, acks, .. } if *acks != Acks::All => Some(*partition),
            _ => None,
        };
        let is_refused = doubtful.is_some_and(|at| self.is_in_doubt(broker, at));
        if let Some(at) = doubtful.filter(|_| !is_refused) {
            self.check_taken(broker, at)?;
        }
        let Some(running) = &mut self.members[broker].broker else {
            match request {
                Request::CommitOffsets { .. } | Request::FetchOffsets => self.store(from, request),
                _ => self.disconnect(from.client),
            }
            return Ok(());
        };
        match request {
            Request::Produce { .. } if is_refused => running.refuse_batch(from),
            Request::Produce { partition, acks, records } => {
                running.produce(now, from, partition, acks, records);
            }
            Request::Fetch { partition, offset } => running.fetch(from, epoch, partition, offset),
            other => self.store(from, other),
        }
        Ok(())
    }

    /// Groups' offsets are kept by somebody who never forgets.
    pub(super) fn store(&mut self, from: Address, request: Request) {
        let stored = &mut self.stored[from.client - self.plan.producers];
        let response = match request {
            Request::CommitOffsets { offsets } => {
                *stored = offsets;
                Response::Committed(ErrorCode::None)
            }
            _ => Response::Offsets(Ok(stored.clone())),
        };
        self.schedule_soon(Event::ToClient(from, response));
    }

    pub(super) fn arrive_at_client(
        &mut self,
        to: Address,
        response: Response,
    ) -> Result<(), Broken> {
        let wire = &mut self.wires[to.client];
        if wire.link.number != to.link {
            return Ok(());
        }
        self.trace.note(self.now, format_args!("{to:?}: {response:?}"));
        let mut pending = wire.pending.iter_mut();
        if let Some((_, answer)) = pending.find(|(request, _)| *request == to.request) {
            *answer = Some(response);
        }
        // Answers of different brokers come in any order; a client takes them in that of its requests.
        while let Some((request, Some(_))) = self.wires[to.client].pending.front() {
            let request = *request;
            let front = self.wires[to.client].pending.pop_front();
            let response = front.and_then(|(_, response)| response).expect("it was looked at");
            if self.deliver(to.client, request, response)? {
                self.disconnect(to.client);
            }
        }
        Ok(())
    }

    pub(super) fn deliver(
        &mut self,
        client: ClientId,
        request: u64,
        response: Response,
    ) -> Result<bool, Broken> {
        let acked = self.history.acked_count;
        if matches!(response, Response::Produced(Ok(_))) {
            self.note_ack(client);
        }
        let delivered = match self.producers.get_mut(client) {
            Some(producer) => producer.receive(request, response, &mut self.history),
            None => {
                self.consumers[client - self.plan.producers].receive(response, &mut self.history)
            }
        };
        if delivered.as_ref().is_err_and(|broken| self.truth.may_show(broken.0)) {
            self.wires[client].is_abandoned = true;
            return Ok(true);
        }
        let goes_on = delivered?;
        if self.history.acked_count > acked {
            self.check_leaders()?;
        }
        Ok(goes_on)
    }
}
