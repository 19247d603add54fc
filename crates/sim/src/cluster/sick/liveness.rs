//! The promises of a sick run: partitions with enough healthy replicas acknowledge although the fault lasts, a shared disk
//! moves nothing, leaderships do not go to and fro, and a leader in doubt takes no record that another leader's
//! followers drop.

use std::collections::BTreeMap;

use metadata::PartitionImage;
use model::{BrokerId, Timestamp};
use partition::{Acks, Status};

use super::{SESSION_MS, SickEvent, Sickness, writer};
use crate::cluster::controller::Entry;
use crate::cluster::{Cluster, Event, id_of, number_of};
use crate::history::Broken;
use crate::invariant::Invariant;
use crate::message::{ClientId, PartitionId};
use crate::plan::PARTITIONS;

/// Longest time without an acknowledgement: ten seconds of the machines' clock.
const SILENT_MS_MAX: i64 = 1_000;
/// Shortest time between two changes of a leader for flapping disks, a little less than half a minute of the machines'.
const MOVES_APART_MS: i64 = 2_900;
/// Time after a relief in which a broker takes no preferred leadership back: a little less than five minutes of the
/// machines' clock.
const PROBATION_MS: i64 = 29_000;
/// Time between two checks.
const CHECKED_EVERY_MS: i64 = 20;
/// Time for which a healthy broker may still be relieved of the fault before.
const WELL_MS: i64 = 400;

/// Last acknowledgements and changes of leaders.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    /// Last acknowledgement, by partition: of `acks=all`, and of `acks=1`.
    acked_at: [[Timestamp; 2]; PARTITIONS],
    /// Last move of each partition's leadership for a sick disk.
    moved_at: [Option<Timestamp>; PARTITIONS],
    /// Last change of each partition's leader during the fault.
    replaced_at: [Option<Timestamp>; PARTITIONS],
    /// Last relief of each broker with a sick disk.
    relieved_at: BTreeMap<BrokerId, Timestamp>,
    /// Longest time without an acknowledgement.
    pub(super) longest_ms: i64,
}

fn kind_of(acks: Acks) -> usize {
    usize::from(acks != Acks::All)
}

impl Cluster {
    /// A client's batch is acknowledged.
    pub(in crate::cluster) fn note_ack(&mut self, client: ClientId) {
        let (at, acks) = writer(client);
        let now = self.now;
        if let Some(sick) = &mut self.sick {
            let last = &mut sick.liveness.acked_at[at][kind_of(acks)];
            let silent = now.ms_since(*last);
            *last = now;
            if sick.is_on {
                sick.liveness.longest_ms = sick.liveness.longest_ms.max(silent);
            }
        }
    }

    pub(super) fn check_liveness(&mut self) -> Result<(), Broken> {
        if !self.has_faults() {
            return Ok(());
        }
        self.schedule(CHECKED_EVERY_MS, Event::Sick(SickEvent::Check));
        let now = self.now;
        let Some(sick) = &self.sick else { return Ok(()) };
        // All replicas are sick, or two of three in turn.
        if matches!(sick.sickness, Sickness::Shared | Sickness::Flapping) {
            return Ok(());
        }
        for (at, kinds) in sick.liveness.acked_at.iter().enumerate() {
            for (kind, acked) in ["acks=all", "acks=1"].into_iter().zip(kinds) {
                let silent = now.ms_since(*acked);
                // These clients know only the sick broker, which refuses their records.
                if kind == "acks=1" && sick.sickness.supersedes() {
                    continue;
                }
                if silent > SILENT_MS_MAX {
                    let state = self.state_of(at);
                    let what = format!(
                        "{:?} of {}: nothing sent to {at} with {kind} is acknowledged for {silent} ms: {state:?}",
                        sick.sickness, sick.victim
                    );
                    return Err((Invariant::SickBrokersStopNothing, what));
                }
            }
        }
        Ok(())
    }

    /// A partition's state changes by a decision of the controller.
    pub(in crate::cluster) fn check_sick_change(
        &mut self,
        at: PartitionId,
        old: &PartitionImage,
        new: &PartitionImage,
        entry: &Entry,
    ) -> Result<(), Broken> {
        let now = self.now;
        let Some(sick) = self.sick.as_mut().filter(|sick| sick.is_on) else { return Ok(()) };
        let is_moved = new.leader != old.leader;
        if is_moved {
            sick.liveness.replaced_at[at] = Some(now);
        }
        let broken = |what: String| Err((Invariant::SickDisksMoveOnce, what));
        if sick.sickness == Sickness::Shared && (is_moved || entry.relieves.is_some()) {
            return broken(format!("{at} moves on a shared disk: {old:?}, {new:?}"));
        }
        if let Some(broker) = entry.relieves {
            sick.liveness.relieved_at.insert(broker, now);
        }
        if is_moved && entry.relieves.is_some() {
            let before = sick.liveness.moved_at[at].replace(now);
            if let Some(before) = before.filter(|before| now.ms_since(*before) < MOVES_APART_MS) {
                return broken(format!("{at} moved at {before} and moves again: {new:?}"));
            }
        } else if is_moved
            && let Some(before) = sick.liveness.relieved_at.get(&new.leader)
            && now.ms_since(*before) < PROBATION_MS
        {
            return broken(format!("{at} was relieved at {before} and returns: {new:?}"));
        }
        let left = old.isr.iter().find(|id| !new.isr.contains(id)).map(|id| number_of(*id));
        if let Some(member) = left.filter(|member| self.is_well(*member)) {
            let what = format!("{member} is well and leaves the ISR of {at}: {old:?}, {new:?}");
            return Err((Invariant::SickDisksMoveOnce, what));
        }
        Ok(())
    }

    /// Whether nothing was wrong with a broker for a while.
    fn is_well(&self, member: usize) -> bool {
        let Some(sick) = &self.sick else { return true };
        let is_of_all = matches!(sick.sickness, Sickness::Flapping | Sickness::Shared);
        let is_victim = sick.victim == member || is_of_all;
        !is_victim && self.now.ms_since(sick.conditions[member].well_since) > WELL_MS
    }

    /// A leader takes a record with `acks=1`.
    pub(in crate::cluster) fn check_taken(
        &self,
        member: usize,
        at: PartitionId,
    ) -> Result<(), Broken> {
        let (Some(sick), Some(state)) = (&self.sick, self.state_of(at)) else { return Ok(()) };
        let silent = self.now.ms_since(sick.conditions[member].heard_at);
        // The last heartbeat was answered, and the last fetch served, a moment before the cut.
        let is_silent = silent > SESSION_MS + WELL_MS;
        let is_replaced = state.has_leader() && state.leader != id_of(member);
        let replaced_at = sick.liveness.replaced_at[at].filter(|_| sick.sickness.supersedes());
        let replaced_ms = replaced_at.map_or(0, |at| self.now.ms_since(at));
        let replica = self.members[member].broker.as_ref().and_then(|broker| broker.partition(at));
        let leads = replica.is_some_and(|replica| replica.status() == Status::Leading);
        let is_superseded = leads && replaced_ms > SESSION_MS + WELL_MS;
        if is_replaced && (is_silent || is_superseded) {
            let what = format!(
                "{member} heard no controller for {silent} ms, was replaced for {replaced_ms} ms, and takes records of {at}: {state:?}"
            );
            return Err((Invariant::DoubtfulRecordsAreRefused, what));
        }
        Ok(())
    }
}
