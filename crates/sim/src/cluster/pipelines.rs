//! Producers with several batches under way that keep their connection when one of them is refused, as real clients do.
//!
//! The batches behind the refused one arrive when the partition may be able to append again (decision 0093). Brokers remember a
//! refusal by the clock of the wall, so that clock is right in these runs.

use std::collections::BTreeMap;

use partition::PartitionError;

use super::Cluster;
use super::clocks::ClockFaults;
use super::plan::ClusterPlan;
use crate::message::ClientId;
use crate::network::Address;
use crate::producer::Producer;

/// One run in so many is of this kind: seeds that leave this remainder.
const ONE_RUN_IN: u64 = 11;
const REMAINDER: u64 = 8;
/// Batches of each producer.
const BATCHES: u32 = 80;
/// The mean time between two changes of `min.insync.replicas`, in milliseconds.
const CONFIGURE_EVERY_MS: i64 = 40;
/// Longest delay of a request to a broker, in milliseconds, and that of other runs.
const DELAY_MS_MAX: i64 = 60;
const OTHER_DELAY_MS_MAX: i64 = 8;

/// Whether producers keep their connections in a run.
#[derive(Debug)]
pub(super) struct Pipelines {
    is_any: bool,
    /// The last request of each connection that each broker handled.
    handled: BTreeMap<(usize, ClientId, u64), u64>,
}

impl Pipelines {
    /// Chooses whether producers keep their connections. The plan becomes one in which leaders often refuse a batch and append the next one.
    pub(super) fn new(seed: u64, plan: &mut ClusterPlan) -> Pipelines {
        let is_any = seed % ONE_RUN_IN == REMAINDER;
        if is_any {
            let may_be_configured = plan.losses_per_mille == 0;
            *plan = ClusterPlan {
                batches: BATCHES,
                configure_every_ms: if may_be_configured { CONFIGURE_EVERY_MS } else { 0 },
                ..plan.clone()
            };
        }
        Pipelines { is_any, handled: BTreeMap::new() }
    }

    /// Producers begin new connections.
    pub(super) fn none() -> Pipelines {
        Pipelines { is_any: false, handled: BTreeMap::new() }
    }

    /// Whether a broker has handled a later request of the same connection before. Notes the request.
    pub(super) fn is_out_of_order(&mut self, broker: usize, from: Address) -> bool {
        if !self.is_any {
            return false;
        }
        let last = self.handled.entry((broker, from.client, from.link)).or_default();
        let is_late = from.request < *last;
        *last = from.request.max(*last);
        is_late
    }

    /// Longest delay of a request to a broker, in milliseconds.
    pub(super) fn delay_ms_max(&self) -> i64 {
        if self.is_any { DELAY_MS_MAX } else { OTHER_DELAY_MS_MAX }
    }
}

impl Cluster {
    /// Gives idempotent producers the connections of the run.
    pub(super) fn set_pipelines(&mut self, pipelines: Pipelines) {
        if pipelines.is_any {
            self.clock_faults = ClockFaults::none();
            let batches = crate::Plan::of_batches(self.plan.batches);
            for (client, producer) in self.producers.iter_mut().enumerate() {
                if producer.is_idempotent() {
                    *producer = Producer::pipelined(client, &batches);
                }
            }
        }
        self.pipelines = pipelines;
    }
}

/// Whether the refused batch is in no log because of this attempt, and the partition remembers that.
pub(super) fn excludes_append(error: &PartitionError) -> bool {
    matches!(
        error,
        PartitionError::NotLeader
            | PartitionError::NotEnoughReplicas { .. }
            | PartitionError::DiskFull
            | PartitionError::BehindRefused(_)
    )
}
