//! Whether a cluster has come to rest, and whether everything is there then.

use std::collections::BTreeSet;

use metadata::PartitionImage;
use model::{BrokerId, Offset, Timestamp};

use super::topics::{key_of, name_of, partitions_in};
use super::{Cluster, number_of};
use crate::consumer::decode;
use crate::history::Broken;
use crate::invariant::Invariant;
use crate::message::PartitionId;

/// How long after the last fault everything must have come to rest.
const REST_MS: i64 = 60_000;

impl Cluster {
    /// Whether the run is over.
    pub(super) fn check_progress(&mut self) -> Result<bool, Broken> {
        if self.has_faults() {
            return Ok(false);
        }
        if self.is_at_rest() {
            return Ok(true);
        }
        if self.now < Timestamp(self.plan.faults_until_ms + REST_MS) {
            return Ok(false);
        }
        let waiting: Vec<_> =
            (0..self.producers.len()).filter(|id| !self.producers[*id].is_done()).collect();
        let states: Vec<_> = self.partitions().map(|at| self.state_of(at)).collect();
        let what = format!("producers {waiting:?} or a consumer are not done: {states:?}");
        Err((Invariant::EverybodyIsAnswered, what))
    }

    /// Everybody has everything, and every replica is in sync again.
    fn is_at_rest(&self) -> bool {
        let serves = |member: &super::Member| {
            let active = |id| self.truth.image.is_eligible(id);
            let is_well = member
                .broker
                .as_ref()
                .is_some_and(|broker| active(broker.id) && broker.out_of_reach.is_empty());
            is_well && !member.has_lost && !member.lacks_second && member.stopping_since.is_none()
        };
        let is_abandoned = |client: usize| self.wires[client].is_abandoned;
        let has_read = |(i, consumer): (usize, &crate::consumer::Consumer), at, end| {
            is_abandoned(self.plan.producers + i) || consumer.has_reached(at, end)
        };
        !self.partitions().is_empty()
            && self.members.iter().all(serves)
            && self.have_settled()
            && (0..self.producers.len()).all(|id| is_abandoned(id) || self.producers[id].is_done())
            && self.partitions().all(|at| {
                let Some(state) = self.state_of(at) else { return false };
                if !state.has_leader() || state.isr.len() < state.replicas.len() {
                    return false;
                }
                if !self.has_deleted(at, state) {
                    return false;
                }
                let ends = state.replicas.iter().map(|id| self.log_end(number_of(*id), at));
                let ends: Vec<Offset> = ends.collect();
                let leader = self.members[number_of(state.leader)].broker.as_ref();
                let replica = leader.and_then(|leader| leader.partition(at));
                let committed = replica.map(|replica| replica.high_watermark());
                ends.iter().all(|end| Some(*end) == committed)
                    && self.consumers.iter().enumerate().all(|one| has_read(one, at, ends[0]))
            })
    }

    /// All brokers act upon the same topic, and no folder of a deleted one is on its way out.
    fn have_settled(&self) -> bool {
        let mut brokers = self.members.iter().filter_map(|member| member.broker.as_ref());
        brokers.all(|it| partitions_in(&it.image) == self.partitions() && it.folders.is_settled())
    }

    /// No folder of a deleted topic is left where the metadata proves the deletion.
    fn check_folders(&self) -> Result<(), Broken> {
        let names: BTreeSet<String> = self.partitions().map(|at| name_of(at).to_string()).collect();
        for broker in self.members.iter().filter_map(|member| member.broker.as_ref()) {
            let folders = &broker.folders;
            let is_left = |at: &PartitionId| !self.partitions().contains(at);
            let left =
                folders.live().into_iter().find(is_left).map(|at| format!("{:?}", key_of(at)));
            let left = left.or_else(|| folders.names().into_iter().find(|it| !names.contains(it)));
            if let Some(left) = left {
                let what = format!("{} keeps {left} of a deleted topic", broker.id);
                return Err((Invariant::DeletedTopicsLeaveNothing, what));
            }
        }
        Ok(())
    }

    /// No deletion is under way, and every follower has deleted the records that its leader has deleted. A follower may
    /// have deleted more, by an unacknowledged deletion of the leader before.
    fn has_deleted(&self, at: PartitionId, state: &PartitionImage) -> bool {
        let running = |id: &BrokerId| self.members[number_of(*id)].broker.as_ref();
        let Some(leader) = running(&state.leader) else { return false };
        let first = leader.log_start(at);
        leader.has_deleted()
            && state
                .replicas
                .iter()
                .all(|id| running(id).is_some_and(|it| it.log_start(at) >= first))
    }

    fn log_end(&self, broker: usize, at: PartitionId) -> Offset {
        let broker = self.members[broker].broker.as_ref();
        let has_replica = |broker: &&super::ClusterBroker| broker.partition(at).is_some();
        broker.filter(has_replica).map_or(Offset(-1), |broker| broker.log_end(at))
    }

    /// Every acknowledged record is there, and all replicas have the same bytes (R2).
    pub(super) fn final_scan(&mut self) -> Result<(), Broken> {
        self.check_folders()?;
        for at in self.partitions() {
            let state = self.state_of(at).expect("the topic is there").clone();
            let broker = |id: &BrokerId| {
                let broker = self.members[number_of(*id)].broker.as_ref();
                broker.expect("all brokers run at rest")
            };
            let log_start = broker(&state.leader).log_start(at);
            let expected = broker(&state.leader).log_bytes(at, log_start);
            for id in &state.replicas {
                let from = broker(id).log_start(at).max(log_start);
                let bytes_of = |id: &BrokerId| broker(id).log_bytes(at, from);
                if bytes_of(id) != bytes_of(&state.leader) {
                    let what = format!("brokers {} and {id} differ in {at}", state.leader);
                    return Err((Invariant::ReplicasAgree, what));
                }
            }
            self.history.final_scan(at, log_start, &decode(&expected))?;
        }
        Ok(())
    }
}
