//! Records that are deleted from the front of logs: by DeleteRecords, which a client waits for, and by retention, which
//! each broker does alone. An acknowledged deletion must hold on each later leader (KIP-107).

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use model::{Offset, Timestamp};
use partition::{Partition, Status};

use super::broker::is_fatal;
use super::topics::partitions_in;
use super::{Cluster, ClusterBroker, ClusterPlan, Event, Process, id_of};
use crate::history::Broken;
use crate::invariant::Invariant;
use crate::message::PartitionId;

/// Tells these random numbers from those of the same seed that all else is made of.
const OWN_NUMBERS: u64 = 0xde1e7e;
/// Bytes of a log from which on retention deletes segments, where it does.
const RETENTION_BYTES: i64 = 6_000;

/// Whether and when records are deleted, and the random numbers for it: none is taken from those that the rest of a run
/// is made of.
#[derive(Debug)]
pub(super) struct Deletions {
    random: Rng,
    /// The mean time between two DeleteRecords requests; 0 for none.
    every_ms: i64,
    /// `retention.bytes` of the topic; -1 for none.
    pub(super) retention_bytes: i64,
    /// By partition: every record below was deleted, as a client was told.
    acknowledged: BTreeMap<PartitionId, Offset>,
}

impl Deletions {
    pub(super) fn new(seed: u64, plan: &ClusterPlan) -> Deletions {
        let mut random = Rng::with_seed(seed ^ OWN_NUMBERS);
        // A replica without records beyond the end of an uncleanly elected leader is made anew, which is not simulated.
        let every_ms = match plan.unclean {
            true => 0,
            false => [0, 0, 0, 0, 0, 40, 150, 400][random.usize(0..8)],
        };
        let retention_bytes = match every_ms {
            0 => -1,
            _ => [-1, -1, RETENTION_BYTES][random.usize(0..3)],
        };
        Deletions { random, every_ms, retention_bytes, acknowledged: BTreeMap::new() }
    }

    /// No records are deleted.
    pub(super) fn none() -> Deletions {
        let (random, acknowledged) = (Rng::with_seed(0), BTreeMap::new());
        Deletions { random, every_ms: 0, retention_bytes: -1, acknowledged }
    }
}

impl Deletions {
    /// Whether records are deleted in this run.
    pub(super) fn is_any(&self) -> bool {
        self.every_ms > 0
    }
}

impl Cluster {
    pub(super) fn schedule_deletion(&mut self) {
        let every = self.deletions.every_ms;
        if every > 0 && self.has_faults() {
            let after = self.deletions.random.i64(1..2 * every);
            self.schedule(after, Event::Delete);
        }
    }

    /// A client deletes records at a broker that takes itself for the leader.
    pub(super) fn delete_records(&mut self) {
        self.schedule_deletion();
        let partitions = self.partitions();
        if partitions.is_empty() {
            return;
        }
        let first = partitions.start;
        let random = &mut self.deletions.random;
        let (at, number) = (random.usize(partitions), random.usize(0..self.members.len()));
        if self.now < self.members[number].paused_until {
            return;
        }
        let Some(broker) = &mut self.members[number].broker else { return };
        // Of the topic that the broker knows, which may be a deleted one.
        let at = partitions_in(&broker.image).start + at - first;
        let Some(replica) = broker.partition(at) else { return };
        if replica.status() != Status::Leading {
            return;
        }
        let committed = replica.high_watermark();
        let start = replica.with_log(storage::Log::log_start_offset);
        if start >= committed {
            return;
        }
        let to = Offset(random.i64(start.0..=committed.0));
        // Whether it happens, the answer may never come.
        self.history.may_start_at(at, to);
        self.trace.note(self.now, format_args!("{number} deletes records of {at} below {to}"));
        broker.delete_records(at, to);
    }

    /// A broker has answered that records are deleted.
    pub(super) fn deleted(&mut self, at: PartitionId, start: Offset) -> Result<(), Broken> {
        self.trace.note(self.now, format_args!("records of {at} below {start} are deleted"));
        let known = self.deletions.acknowledged.entry(at).or_insert(start);
        *known = start.max(*known);
        self.check_leaders()
    }

    /// A replica that counts has deleted everything of which the deletion is acknowledged, durably.
    pub(super) fn check_deleted(
        &self,
        at: PartitionId,
        broker: &ClusterBroker,
    ) -> Result<(), Broken> {
        let durable = |replica: &Arc<Partition>| replica.durable_log_start();
        let log_start = broker.partition(at).map_or(Offset(0), durable);
        let acknowledged = self.deletions.acknowledged.get(&at).copied().unwrap_or(Offset(0));
        if log_start < acknowledged {
            let what = format!(
                "{} counts for {at}, durably begins at {log_start}, and {acknowledged} is acknowledged",
                broker.id
            );
            return Err((Invariant::DeletionHolds, what));
        }
        Ok(())
    }

    /// Log starts are to be durable soon: as long as a device takes.
    pub(super) fn commit_starts_soon(&mut self, number: usize) {
        let process = self.process(number);
        let Some(broker) = &mut self.members[number].broker else { return };
        if std::mem::take(&mut broker.owes_starts) {
            let after = self.deletions.random.i64(0..self.plan.sync_ms_max);
            self.schedule(after, Event::CommitStarts(process));
        }
    }

    pub(super) fn commit_starts(&mut self, process: Process) {
        let (now, clock) = (self.moment_of(process.broker), self.wall_of(process.broker));
        let Some(broker) = self.running(process) else { return };
        broker.commit_starts();
        broker.look(now, clock);
    }

    /// Retention, on every replica of every broker that runs.
    pub(super) fn retain(&mut self) {
        if self.deletions.retention_bytes < 0 {
            return;
        }
        for number in 0..self.members.len() {
            if self.is_paused(number) {
                continue;
            }
            let clock = self.wall_of(number);
            let Some(broker) = &mut self.members[number].broker else { continue };
            for (at, start) in broker.retain(clock) {
                self.history.may_start_at(at, start);
                let id = id_of(number);
                self.trace.note(self.now, format_args!("retention: {id} of {at} from {start}"));
            }
        }
    }
}

impl ClusterBroker {
    /// Makes log starts durable. On a full disk it tries again later.
    pub(crate) fn commit_starts(&mut self) {
        let starts = |partition: &Arc<Partition>| partition.with_log(|log| log.log_start_offset());
        let starts: Vec<Offset> = self.partitions.values().map(starts).collect();
        match self.log_dirs.store_offsets_of_replicas(&self.partitions) {
            Ok(()) => self
                .partitions
                .values()
                .zip(starts)
                .for_each(|(partition, start)| partition.log_start_synced(start)),
            Err(error) => {
                self.is_failed |= error.is_fatal();
                self.owes_starts = true;
            }
        }
    }

    /// Deletes segments that are past their retention; returns what logs start at then.
    pub(crate) fn retain(&mut self, clock: Timestamp) -> Vec<(PartitionId, Offset)> {
        let mut starts = Vec::new();
        let is_in_reach = |(at, _): &(&PartitionId, _)| !self.out_of_reach.contains(at);
        for (at, partition) in self.partitions.iter().filter(is_in_reach) {
            let retained = partition.plan_retention(clock).and_then(|start| {
                let Some(start) = start else { return Ok(()) };
                starts.push((*at, start));
                partition.maintain(|log, _| log.delete_records_before(start))?;
                self.log_dirs.store_offsets_of_replicas(&self.partitions)?;
                partition.log_start_synced(start);
                partition.retain_from(start).map(drop)
            });
            self.is_failed |= retained.is_err_and(|error| is_fatal(&error));
        }
        starts
    }
}
