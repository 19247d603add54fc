//! Controllers that die: who leads the metadata log decides at its end, and a decision counts when it is committed.
//!
//! A decision may be lost, or stand without its asker knowing; a controller that is deposed goes on deciding until it
//! hears of it, and nothing of that is ever committed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use metadata::{ClusterImage, MetadataRecord};
use node::Elections;
use node::heartbeats::{Answer, HeartbeatAnswer};

use super::controller::{Ask, Controller, Entry, Told};
use super::elections::ENDS_WAIT_MS;
use super::forwarded::Forwarded;
use super::network::Body;
use super::operator::{OperatorRequest, needs_ends};
use super::sick::SickEvent;
use super::topics::partition_of;
use super::{Cluster, Event, Process, id_of, named, quorum};
use crate::history::Broken;
use crate::invariant::Invariant;
use crate::start::noted_processes;

/// How often a node looks at the clock.
pub(super) const QUORUM_TICK_MS: i64 = 20;
/// While there are faults, one of so many answers about an ISR is lost.
const ANSWERS_A_LOSS: u32 = 2;

/// The controller on one machine, for as long as it leads the metadata log.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) term: u64,
    pub(super) controller: Controller,
    pub(super) elections: Elections,
    /// Requests of a person for which log ends are read.
    pub(super) operator_requests: Vec<OperatorRequest>,
    /// Answers that wait until so many entries are committed.
    held: VecDeque<(usize, Process, Told)>,
}

impl Active {
    pub(super) fn is_of(&self, term: u64) -> bool {
        self.term == term
    }

    pub(super) fn controller(&mut self) -> &mut Controller {
        &mut self.controller
    }
}

impl Cluster {
    pub(super) fn quorum_tick(&mut self, process: Process) {
        if self.running(process).is_none() {
            return;
        }
        let (now, member) = (self.now, process.broker);
        self.members[member].node.tick(now, &mut self.random);
        self.schedule(QUORUM_TICK_MS, Event::QuorumTick(process));
        if let Some(active) = &mut self.members[member].active {
            let entries = active.controller.end_sessions(now);
            for entry in entries {
                self.propose(member, entry);
            }
            self.sweep_soon(member);
        }
        let marks = self.members[member].active.as_mut();
        if let Some(entry) = marks.and_then(|active| active.controller.record_marks(now)) {
            self.propose(member, entry);
        }
        self.elect_by_ends(member);
    }

    /// Asks whom the broker believes to be the controller; the answer may never come.
    pub(super) fn ask_controller(&mut self, process: Process, ask: Ask) {
        if let Some(controller) = self.members[process.broker].node.leader() {
            let body = Body::Ask(process, Forwarded::write(ask));
            self.send_message(process.broker, controller, body);
        }
    }

    pub(super) fn controller_asked(&mut self, member: usize, process: Process, ask: &Ask) {
        let now = self.now;
        if self.sick.is_some() && matches!(ask, Ask::Heartbeat { .. }) {
            self.answer_heartbeat(member, process);
        }
        let noted = match ask {
            Ask::Register(..) => noted_processes(&self.members[process.broker].disk),
            _ => Vec::new(),
        };
        // Who is not the controller (any more) says nothing: the asker's time runs out.
        if self.members[member].active.is_none() {
            return;
        }
        if let Ask::Elect(request) = ask
            && needs_ends(&self.members[member].image, request)
        {
            return self.begin_operator_request(member, request);
        }
        let Some(active) = &mut self.members[member].active else { return };
        let (is_copy, is_behind) = match ask {
            Ask::Register(request, marks) => {
                active.controller.recognise(request, &noted, marks.as_deref())
            }
            _ => (false, false),
        };
        let (entry, told) = active.controller.ask(now, ask);
        let is_taken = matches!(told, Told::Registered(_));
        let counts = active.controller.counts(id_of(process.broker));
        let (is_put_back, own_mark) = {
            let copied = &self.members[process.broker].copied;
            (copied.is_put_back, copied.mark.reported())
        };
        // A request that was sent before the process raised the mark of its directory may arrive at a second controller.
        let is_late = matches!(ask, Ask::Register(_, Some(marks)) if marks.iter().any(|mark| *mark < own_mark));
        let what = match () {
            () if is_taken && is_copy && counts => Some("was put back from a copy, and counts"),
            () if is_taken && is_behind && !is_put_back && !is_late => {
                Some("has its own disk, and is taken for a copy")
            }
            () => None,
        };
        if let Some(what) = what {
            let what = format!("{process:?} {what}: {ask:?}");
            let broken = (0, (Invariant::StatesAreSound, what));
            self.members[member].broker.as_mut().expect("it decides").broken = Some(broken);
        }
        let Some(active) = &mut self.members[member].active else { return };
        if !matches!(ask, Ask::Heartbeat { .. }) {
            self.trace.note(now, format_args!("{process:?} asks {member} for {ask:?}: {told:?}"));
        }
        if let (Some(id), Told::Altered(wish, _)) = (active.controller.another_member(&told), &told)
        {
            let what = format!("another registration of {id} joins: {wish:?}");
            let at = partition_of(named(wish)).expect("it is a partition of this run");
            let broken = (at, (Invariant::StatesAreSound, what));
            self.members[member].broker.as_mut().expect("it decides").broken = Some(broken);
        }
        // An answer without news waits for an entry as well: it is of a controller that still is one.
        if matches!(told, Told::Nothing) && entry.records.is_empty() {
            return;
        }
        if let Some(count) = self.propose(member, entry)
            && let Some(active) = &mut self.members[member].active
        {
            active.held.push_back((count, process, told));
        }
        self.sweep_soon(member);
    }

    fn answer_heartbeat(&mut self, member: usize, process: Process) {
        if self.members[member].active.is_some() {
            let metadata = Some(self.members[member].applied as u64);
            let answer = HeartbeatAnswer { state: Answer::Heard, metadata }.encode();
            self.send_message(member, process.broker, Body::Told(process, 0, Told::Heard(answer)));
        }
    }

    pub(super) fn propose(&mut self, member: usize, entry: Entry) -> Option<usize> {
        let node = &mut self.members[member].node;
        let count = node.propose(Arc::clone(&entry.records))?;
        self.truth.decided(count - 1, node.term(), entry);
        Some(count)
    }

    pub(super) fn sweep_soon(&mut self, member: usize) {
        let Some(active) = &mut self.members[member].active else { return };
        if std::mem::take(&mut active.controller.wants_sweep) {
            let (term, after) = (active.term, self.random.i64(0..30));
            self.schedule(after, Event::Sweep { member, term });
        }
    }

    pub(super) fn sweep(&mut self, member: usize, term: u64) {
        let now = self.now;
        let active = self.members[member].active.as_mut().filter(|active| active.term == term);
        if let Some(active) = active {
            let entry = active.controller.sweep(now);
            self.propose(member, entry);
            self.sweep_soon(member);
        }
    }

    /// Sees to it that whoever leads the metadata log decides, that what is committed is known, and that messages leave.
    pub(super) fn let_quorum_go_on(&mut self) -> Result<(), Broken> {
        for member in 0..self.members.len() {
            if self.members[member].broker.is_none() || self.is_paused(member) {
                continue;
            }
            self.take_office(member)?;
            self.learn_committed(member)?;
            for (to, message) in self.members[member].node.take_outgoing() {
                let sent = quorum::bytes::write(member, to, &message);
                self.send_message(member, to, Body::Quorum(sent));
            }
        }
        Ok(())
    }

    /// A new leader of the log begins with a sweep: who is gone, and what its predecessor did not come to.
    fn take_office(&mut self, member: usize) -> Result<(), Broken> {
        let (term, leads) = (self.members[member].node.term(), self.members[member].node.leads());
        // What a deposed controller holds is never answered.
        let active = &mut self.members[member].active;
        active.take_if(|active| !leads || active.term != term);
        if !leads || active.is_some() {
            return Ok(());
        }
        if let Some(other) = self.truth.elected(term, member) {
            let what = format!("{other} and {member} lead the metadata log in term {term}");
            return Err((Invariant::DecisionsFollow, what));
        }
        self.trace.note(self.now, format_args!("{member} is the controller of term {term}"));
        let mut controller = Controller::new(self.image_at_end(member), self.now);
        if self.sick.is_some() {
            let former = self.truth.former(term).map(id_of);
            controller.begin_probes(id_of(member), former, self.now);
            self.schedule(0, Event::Sick(SickEvent::Probe { member, term }));
        }
        let entry = controller.sweep(self.now);
        let elections = Elections::new(Duration::from_millis(ENDS_WAIT_MS.cast_unsigned()));
        let (operator_requests, held) = (Vec::new(), VecDeque::new());
        self.members[member].active =
            Some(Active { term, controller, elections, operator_requests, held });
        self.controllers += 1;
        self.note_controller();
        self.propose(member, entry);
        self.sweep_soon(member);
        Ok(())
    }

    /// What a node's whole log says, committed or not.
    fn image_at_end(&self, member: usize) -> ClusterImage {
        let member = &self.members[member];
        let mut image = ClusterImage::clone(&member.image);
        for logged in &member.node.log()[member.applied..] {
            for record in &*logged.records {
                image.replay(record).expect("a log contradicts nothing");
            }
        }
        image
    }

    /// Every image that is true, or may become so.
    pub(super) fn possible_images(&self) -> Vec<ClusterImage> {
        let ends = (0..self.members.len()).map(|member| self.image_at_end(member));
        ends.chain([ClusterImage::clone(&self.truth.image)]).collect()
    }

    pub(super) fn learn_committed(&mut self, number: usize) -> Result<(), Broken> {
        let committed = self.members[number].node.committed();
        let first = self.members[number].applied;
        if first == committed {
            return Ok(());
        }
        let news = self.members[number].node.log()[first..committed].to_vec();
        for (at, logged) in (first..).zip(news) {
            if let Some(entry) = self.truth.committed(at, logged.term)? {
                self.commit(&entry)?;
            }
            let member = &mut self.members[number];
            let image = Arc::make_mut(&mut member.image);
            for record in &*logged.records {
                image.replay(record).expect("what is committed contradicts nothing");
                if let MetadataRecord::TopicDeleted { topic_id } = record {
                    member.deleted.insert(*topic_id);
                }
            }
        }
        self.members[number].applied = committed;
        let process = self.process(number);
        let longest = if self.has_faults() { self.plan.image_ms_max } else { 8 };
        let after = self.random.i64(0..longest);
        self.schedule(after, Event::Image(process));
        if let Some(active) = &mut self.members[number].active {
            let mut answers = Vec::new();
            while let Some(first) = active.held.pop_front_if(|held| held.0 <= committed) {
                answers.push(first);
            }
            for (count, process, told) in answers {
                // A connection ends with the answer on its way: what was decided holds, and its leader does not know that.
                let is_answer = matches!(told, Told::Altered(..));
                let may_be_lost = self.has_faults() && self.sick.is_none();
                if is_answer && may_be_lost && self.random.u32(0..ANSWERS_A_LOSS) == 0 {
                    continue;
                }
                self.send_message(number, process.broker, Body::Told(process, count, told));
            }
        }
        Ok(())
    }
}
