//! The network between brokers: messages that are late, lost or doubled, and cuts, both ways or one way.

use std::collections::BTreeMap;

use model::Timestamp;

use super::controller::Told;
use super::forwarded::Forwarded;
use super::{Cluster, Event, Process, id_of, quorum};
use crate::history::Broken;
use crate::invariant::Invariant;

/// What one machine says to another.
#[derive(Clone, Debug)]
pub(super) enum Body {
    Quorum(quorum::bytes::Sent),
    /// To the controller, if it is there.
    Ask(Process, Forwarded),
    /// The answer, and so many entries of the log are behind it.
    Told(Process, usize, Told),
    /// A replica's fetch as a frame, and its number: the answers on a connection come in the order of the requests.
    Fetch(Process, u64, Vec<u8>),
    /// The answer to the fetch of this number.
    Fetched(Process, u64, Vec<u8>),
    /// A request for log ends, by a process that is the controller.
    AskEnds(Process, EndsUse, Vec<u8>),
    /// The answer, and the request.
    Ends(Process, EndsUse, Vec<u8>, Vec<u8>),
    /// A probe of the active controller, and the time at which it was sent.
    Probe(Process, Timestamp, Vec<u8>),
    /// The report to the probe that was sent at this time.
    Probed(Timestamp, Vec<u8>),
}

impl Body {
    /// Whether the message comes back on the connection of a request. Observers of the quorum receive no answers.
    fn is_answer(&self) -> bool {
        matches!(self, Body::Told(..) | Body::Fetched(..) | Body::Ends(..) | Body::Probed(..))
    }
}

/// The decision for which a controller requests log ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum EndsUse {
    /// Elections in this term.
    Elections(u64),
    /// A person's request, by its number.
    Operator(u64),
}

/// Which ways are cut, and until when.
#[derive(Debug, Default)]
pub(super) struct Cuts(BTreeMap<(usize, usize), Timestamp>);

impl Cuts {
    pub(super) fn cut(&mut self, from: usize, to: usize, until: Timestamp) {
        let known = self.0.entry((from, to)).or_insert(until);
        *known = until.max(*known);
    }

    /// Whether any way is cut.
    pub(super) fn is_any(&self, now: Timestamp) -> bool {
        self.0.values().any(|until| now < *until)
    }

    fn is_cut(&self, from: usize, to: usize, now: Timestamp) -> bool {
        self.0.get(&(from, to)).is_some_and(|until| now < *until)
    }
}

impl Cluster {
    pub(super) fn is_lost(&mut self) -> bool {
        self.has_faults() && self.random.u32(0..1000) < self.plan.lost_per_mille
    }

    /// Sends a message, which may come late, twice or never. What a broker tells itself comes.
    pub(super) fn send_message(&mut self, from: usize, to: usize, body: Body) {
        if from == to {
            return self.schedule_soon(Event::Arrive { from, to, body });
        }
        let is_of_quorum = matches!(body, Body::Quorum(_));
        if self.is_lost() || is_of_quorum && self.lacks_quorum() {
            return;
        }
        // A connection doubles nothing; who asks again, or sends on two connections, does.
        let doubled = self.has_faults() && self.random.u32(0..1000) < self.plan.doubled_per_mille;
        if doubled {
            let after = self.delay();
            self.schedule(after, Event::Arrive { from, to, body: body.clone() });
        }
        let after = self.delay();
        self.schedule(after, Event::Arrive { from, to, body });
    }

    fn delay(&mut self) -> i64 {
        let is_slow = self.has_faults() && self.random.u32(0..1000) < self.plan.slow_per_mille;
        let longest = if is_slow { 400 } else { 8 };
        self.random.i64(0..longest)
    }

    /// Fails if a message cannot be read: it is lost then, and whoever wrote it was not to be understood.
    pub(super) fn arrive(&mut self, from: usize, to: usize, body: Body) -> Result<(), Broken> {
        let is_lost = self.cuts.is_cut(from, to, self.now)
            || from != to && !body.is_answer() && self.is_unreached(to);
        if is_lost || self.members[to].broker.is_none() {
            return Ok(());
        }
        let read = match body {
            Body::Quorum(sent) => quorum::bytes::read(from, to, &sent).map(|message| {
                let (now, random) = (self.now, &mut self.random);
                self.members[to].node.receive(now, random, from, message);
            }),
            Body::Ask(process, ask) => {
                ask.read(id_of(from)).map(|ask| self.controller_asked(to, process, &ask))
            }
            Body::Told(process, count, told) => {
                self.told(process, count, told);
                Ok(())
            }
            Body::Fetch(process, number, frame) => self.serve(process, to, number, &frame),
            Body::Fetched(process, number, frame) => {
                self.leader_answered(process, from, number, &frame)
            }
            Body::AskEnds(process, of, request) => {
                self.answer_ends(to, process, of, request).map_err(|error| error.to_string())
            }
            Body::Ends(process, of, request, answer) => self
                .take_ends(to, process, of, &request, &answer)
                .map_err(|error| error.to_string()),
            Body::Probe(process, sent_at, request) => {
                self.probed(to, process, sent_at, &request);
                Ok(())
            }
            Body::Probed(sent_at, report) => {
                self.probe_answered(to, from, sent_at, &report);
                Ok(())
            }
        };
        read.map_err(|error| {
            (Invariant::MessagesAreRead, format!("what {from} sent to {to}: {error}"))
        })
    }

    pub(super) fn schedule_cut(&mut self) {
        if self.plan.cut_every_ms > 0 && self.has_faults() {
            let after = self.random.i64(1..2 * self.plan.cut_every_ms);
            self.schedule(after, Event::Cut);
        }
    }

    /// Cuts some ways between machines for a while.
    pub(super) fn cut_somebody(&mut self) {
        let count = self.members.len();
        let until = self.now.plus_ms(self.random.i64(20..1_500));
        let until = until.min(Timestamp(self.plan.faults_until_ms));
        let (one, kind) = (self.random.usize(0..count), self.random.usize(0..6));
        let other = self.random.usize(0..count);
        self.trace.note(self.now, format_args!("cut {kind} of {one} and {other} until {until}"));
        let side = self.random.usize(1..(1 << count) - 1);
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                let is_cut = match kind {
                    0 => from == one || to == one,
                    1 => to == one,
                    2 => from == one,
                    3 => (from, to) == (one, other) || (from, to) == (other, one),
                    4 => (from, to) == (one, other),
                    _ => (side >> from) & 1 != (side >> to) & 1,
                };
                if is_cut {
                    self.cuts.cut(from, to, until);
                }
            }
        }
        self.schedule_cut();
    }

    pub(super) fn schedule_pause(&mut self) {
        if self.plan.pause_every_ms > 0 && self.has_faults() {
            let after = self.random.i64(1..2 * self.plan.pause_every_ms);
            self.schedule(after, Event::Pause);
        }
    }

    /// A machine does nothing for a while, and then goes on with what it knew.
    pub(super) fn pause_somebody(&mut self) {
        let one = self.random.usize(0..self.members.len());
        let until = self.now.plus_ms(self.random.i64(20..1_500));
        if self.members[one].broker.is_some() {
            self.trace.note(self.now, format_args!("{one} does nothing until {until}"));
            self.members[one].paused_until = until;
        }
        self.schedule_pause();
    }
}
