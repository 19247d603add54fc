//! A disk that says it has synced and has not: the power failure behind the lie costs what was acknowledged with it. No promise
//! holds for what is acknowledged then, for a synced replica counts although its process was not stopped cleanly; all others
//! do: every broker starts, replicas agree, no two lead at once, and the cluster serves again (S2). A process that
//! ends in another way finds all that it wrote, for the device writes everything in the end.

use std::path::Path;

use fastrand::Rng;
use model::Durability;
use storage::disk::Disk;

use super::plan::ClusterPlan;
use super::{Cluster, Event, Process};
use crate::machine::Stop;

/// The longest lie, in milliseconds.
const LIE_MS_MAX: i64 = 300;
/// Tells these random numbers from those of the same seed that all else is made of.
const OWN_NUMBERS: u64 = 0x11ed;

/// When disks lie, and the random numbers for it: none is taken from those that the rest of a run is made of.
#[derive(Debug)]
pub(super) struct Lies {
    random: Rng,
    /// The mean time between two lies; 0 for none.
    every_ms: i64,
}

impl Lies {
    pub(super) fn new(seed: u64, plan: &ClusterPlan, recreates: bool) -> Lies {
        let mut random = Rng::with_seed(seed ^ OWN_NUMBERS);
        let every_ms = [0, 200, 600][random.usize(0..3)];
        // Under `page-cache` nothing is synced before it is acknowledged. And a replica that is set aside is lost: where that
        // may be, two are asked for, and the controller knows which are complete.
        // And a name that is not durable may be that of a deleted topic's folder again.
        let costs = plan.losses_per_mille > 0 && plan.durability == Durability::Fsync && !recreates;
        Lies { random, every_ms: if costs { every_ms } else { 0 } }
    }

    /// Whether disks lie in this run.
    pub(super) fn is_any(&self) -> bool {
        self.every_ms > 0
    }
}

impl Cluster {
    pub(super) fn schedule_lie(&mut self) {
        let every = self.lies.every_ms;
        if every > 0 && self.has_faults() {
            let after = self.lies.random.i64(1..2 * every);
            self.schedule(after, Event::Lie);
        }
    }

    /// From now on the disk of one broker lies.
    pub(super) fn lie(&mut self) {
        let broker = self.lies.random.usize(0..self.members.len());
        let after = self.lies.random.i64(1..=LIE_MS_MAX);
        let process = self.process(broker);
        let member = &mut self.members[broker];
        if member.broker.is_some() && !member.lies {
            member.lies = true;
            member.disk.lie_about_syncs(true);
            self.trace.note(self.now, format_args!("{process:?}: the disk lies"));
            self.schedule(after, Event::FoundOut(process));
        }
        self.schedule_lie();
    }

    /// The power of a broker fails whose disk has lied.
    pub(super) fn find_out(&mut self, process: Process) {
        let broker = process.broker;
        if self.running(process).is_none() || !self.members[broker].lies {
            return;
        }
        // A replica that its start refuses waits for another one, or for a person: there is another one here.
        if !self.has_faults() || !self.may_lose(broker) {
            return self.write_out(broker);
        }
        for at in self.partitions() {
            self.truth.forgiven.insert(at);
            self.history.forgive(at);
        }
        let member = &mut self.members[broker];
        member.lies = false;
        member.lied = true;
        member.disk.lie_about_syncs(false);
        self.stop(broker, Stop::PowerFailure);
        // The writes that the disk reported as synced may include its mark.
        (self.members[broker].has_lost, self.members[broker].copied.is_put_back) = (true, true);
    }

    /// A device that lied writes all that it was given, and lies no more.
    pub(super) fn write_out(&mut self, broker: usize) {
        let member = &mut self.members[broker];
        if std::mem::take(&mut member.lies) {
            member.disk.lie_about_syncs(false);
            member.disk.sync_all_below(Path::new("")).expect("a sound disk syncs");
        }
    }
}
