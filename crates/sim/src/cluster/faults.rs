//! What goes wrong with machines: processes that die, power that fails, disks and folders that are gone.

use metadata::decide::NewIsr;
use model::{BrokerId, Durability, Timestamp};

use super::controller::require_in_sync;
use super::topics::{partition_of, partitions_in};
use super::{Cluster, Event, id_of, named, number_of};
use crate::machine::Stop;
use crate::message::PartitionId;
use crate::start;

impl Cluster {
    pub(super) fn has_faults(&self) -> bool {
        self.now < Timestamp(self.plan.faults_until_ms)
    }

    pub(super) fn schedule_stop(&mut self) {
        if self.plan.stop_every_ms > 0 && self.has_faults() {
            let after = self.random.i64(1..2 * self.plan.stop_every_ms);
            self.schedule(after, Event::Stop);
        }
    }

    pub(super) fn schedule_configure(&mut self) {
        if self.plan.configure_every_ms > 0 && self.has_faults() {
            let after = self.random.i64(1..2 * self.plan.configure_every_ms);
            self.schedule(after, Event::Configure);
        }
    }

    /// Somebody asks for more in-sync replicas, or for fewer.
    pub(super) fn configure(&mut self) {
        let broker = self.random.usize(0..self.members.len());
        let count = self.random.usize(1..3);
        if self.members[broker].broker.is_some() {
            self.ask_controller(self.process(broker), require_in_sync(count));
        }
        self.schedule_configure();
    }

    pub(super) fn stop_somebody(&mut self) {
        let dice = self.random.u32(0..1000);
        let is_blackout = self.random.u32(0..1000) < self.plan.blackouts_per_mille;
        let broker = self.random.usize(0..self.members.len());
        let fails = self.plan.failures_per_mille > 0
            && self.random.u32(0..1000) < self.plan.failures_per_mille;
        if fails {
            self.fail_disks(broker);
        } else if dice < self.plan.losses_per_mille && self.may_lose(broker) {
            self.lose(broker);
        } else if is_blackout {
            for broker in 0..self.members.len() {
                self.stop(broker, self.kind_of_stop(0));
            }
        } else {
            let kind = self.random.usize(0..3);
            match self.kind_of_stop(kind) {
                Stop::Clean if self.plan.controlled_shutdown => {
                    self.members[broker].stopping_since.get_or_insert(self.now);
                }
                kind => self.stop(broker, kind),
            }
        }
        self.schedule_stop();
    }

    /// The disk of one replica of a broker fails, while the broker runs; sometimes that of another replica of the partition
    /// at the same moment.
    fn fail_disks(&mut self, broker: usize) {
        if self.plan.version < 2 && self.members.iter().any(|member| member.has_lost) {
            return;
        }
        let partitions = self.partitions();
        if partitions.is_empty() {
            return;
        }
        let at = self.random.usize(partitions);
        let other = self.random.usize(0..self.members.len());
        let many = if self.random.bool() { &[broker, other][..] } else { &[broker][..] };
        for broker in many {
            let process = self.process(*broker);
            let is_assigned =
                |state: &metadata::PartitionImage| state.replicas.contains(&id_of(*broker));
            let has_replica = self.state_of(at).is_some_and(is_assigned);
            let Some(running) = self.running(process).filter(|_| has_replica) else { continue };
            running.fail(at);
            if !running.out_of_reach.contains(&at) {
                continue;
            }
            self.members[*broker].may_give_up = true;
            self.trace.note(self.now, format_args!("{process:?}: the disk of {at} fails"));
            let after = self.random.i64(100..1_500);
            self.schedule(after, Event::Repair(process));
        }
    }

    /// With `page-cache` a power failure may cost what is acknowledged ([`Cluster::lose`]), and a process that dies
    /// may have lost it, as far as the controller knows: none dies while a replica is lost.
    fn kind_of_stop(&self, kind: usize) -> Stop {
        let in_memory = self.plan.durability == Durability::PageCache;
        let is_fragile = in_memory && self.members.iter().any(|member| member.has_lost);
        match kind {
            _ if is_fragile => Stop::Clean,
            0 if !in_memory => Stop::PowerFailure,
            0 | 1 => Stop::Kill,
            _ => Stop::Clean,
        }
    }

    pub(super) fn stop(&mut self, broker: usize, how: Stop) {
        if self.members[broker].broker.is_none() {
            return;
        }
        self.trace.note(self.now, format_args!("stop {broker}: {how:?}"));
        self.stops += 1;
        self.end(broker, how);
        for client in 0..self.wires.len() {
            self.disconnect(client);
        }
        let after = self.random.i64(1..900);
        self.schedule(after, Event::Start(broker));
    }

    /// A replica without records cannot begin in the middle of its leader's first batch: it is removed and begun again. The
    /// product does that while the broker runs; here the process ends, and the next one finds no folder.
    pub(super) fn make_anew(&mut self, broker: usize, at: PartitionId) {
        if self.may_lose(broker) {
            self.stop(broker, Stop::Kill);
            start::remove_folder(&self.members[broker].disk, at);
            self.members[broker].has_lost = true;
            self.members[broker].lost_at = Some(self.now);
        }
    }

    /// Whether what a machine has may be lost: no other one has lost anything of which the controller does not know, and
    /// every partition has another replica that is complete.
    pub(super) fn may_lose(&self, broker: usize) -> bool {
        let id = id_of(broker);
        let in_memory = self.plan.durability == Durability::PageCache;
        // Where it is not known which replicas are out of reach, one is given up for another one that is taken for complete.
        let gives_up = self.plan.version < 2;
        let is_sound = |number: usize| {
            let member = &self.members[number];
            if gives_up && member.may_give_up {
                return false;
            }
            let known = self.truth.image.broker(id_of(number));
            let serves = |broker: &super::ClusterBroker| {
                known.is_some_and(|known| known.epoch == broker.epoch && !known.fenced)
            };
            // Under `page-cache` one that is down may have lost something, as far as the controller knows.
            let is_whole = !member.has_lost && !member.lacks_second && !member.copied.is_stale;
            is_whole && (!in_memory || member.broker.as_ref().is_some_and(serves))
        };
        let has_other = |image: &metadata::ClusterImage, at: usize| {
            let state = super::broker::state_of(image, at);
            state.is_some_and(|state| {
                !state.replicas.contains(&id)
                    || state.replicas.iter().any(|other| *other != id && state.is_complete(*other))
            })
        };
        let images = self.possible_images();
        !self.members[broker].has_lost
            && (0..self.members.len()).filter(|other| *other != broker).all(is_sound)
            && images.iter().all(|image| partitions_in(image).all(|at| has_other(image, at)))
    }

    /// The worst moment to lose everything: while the controller is being asked to take the replica into the ISR. Says
    /// whether that happened.
    pub(super) fn lose_who_joins(&mut self, wish: &NewIsr) -> bool {
        let dice = self.random.u32(0..1000);
        if !self.has_faults() || dice >= self.plan.losses_per_mille / 4 {
            return false;
        }
        let Some(state) = partition_of(named(wish)).and_then(|at| self.state_of(at)) else {
            return false;
        };
        let is_new = |id: &BrokerId| !state.isr.contains(id);
        let joining = wish.isr.iter().map(|(id, _)| *id).find(is_new).map(number_of);
        let Some(broker) = joining.filter(|broker| self.may_lose(*broker)) else { return false };
        self.trace.note(self.now, format_args!("as it joins: {wish:?}"));
        self.lose(broker);
        // Back before anybody misses it.
        let after = self.random.i64(1..20);
        self.schedule(after, Event::Start(broker));
        true
    }

    /// Takes from a machine what it has.
    fn lose(&mut self, broker: usize) {
        let in_memory = self.plan.durability == Durability::PageCache;
        let kind = self.random.usize(0..if in_memory { 5 } else { 3 });
        self.trace.note(self.now, format_args!("{broker} loses what it has: {kind}"));
        let counts =
            |at: &usize| self.state_of(*at).is_some_and(|state| state.is_complete(id_of(broker)));
        let counted = self.partitions().find(counts);
        let folder = match self.partitions() {
            none if none.is_empty() => 0,
            partitions => counted.unwrap_or_else(|| self.random.usize(partitions)),
        };
        let ran = self.members[broker].broker.is_some();
        let copy = self.members[broker].copy.clone();
        match (kind, copy) {
            (2, Some(copy)) => {
                let how = if self.random.bool() && !in_memory { Stop::Kill } else { Stop::Clean };
                self.stop(broker, how);
                self.members[broker].disk = copy.snapshot();
                self.members[broker].copied.is_put_back = true;
            }
            (0 | 2, _) => {
                self.stop(broker, Stop::Kill);
                let has_second = self.missing_directories.is_any();
                self.members[broker].replace_disk(has_second);
            }
            (1, _) => {
                let how = if self.random.bool() && !in_memory { Stop::Kill } else { Stop::Clean };
                self.stop(broker, how);
                start::remove_folder(&self.members[broker].disk, folder);
            }
            _ if ran => self.stop(broker, Stop::PowerFailure),
            _ => return,
        }
        self.members[broker].has_lost = true;
        self.members[broker].lost_at = Some(self.now);
    }
}
