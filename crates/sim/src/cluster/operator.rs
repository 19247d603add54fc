//! The person who ends what only a person may end: a follower that refuses to truncate its log.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::controller::elect_uncleanly;
use super::plan::ClusterPlan;
use super::{Cluster, Event};
use crate::message::PartitionId;

/// How long a person needs to find out that a follower refuses to truncate its log, at most, in milliseconds.
const NOTICED_MS_MAX: i64 = 3_000;
/// Tells these random numbers from those of the same seed that all else is made of.
const OWN_NUMBERS: u64 = 0xc0b1e5;

/// What a person does, and the random numbers for it: none is taken from those that the rest of a run is made of.
#[derive(Debug)]
pub(super) struct Operator {
    random: Rng,
    /// Whether the person is about to look at a partition.
    looks: BTreeSet<PartitionId>,
}

impl Operator {
    /// Raises the version of a cluster to the one from which on followers refuse to truncate committed records.
    pub(super) fn new(seed: u64, plan: &mut ClusterPlan) -> Operator {
        let mut random = Rng::with_seed(seed ^ OWN_NUMBERS);
        if plan.version > 0 && random.bool() {
            plan.version = metadata::record::COPIES_LEVEL;
        }
        Operator { random, looks: BTreeSet::new() }
    }
}

impl Cluster {
    /// A follower refuses to truncate its log: a person notices that after a while.
    pub(super) fn schedule_operator(&mut self, at: PartitionId) {
        if self.operator.looks.insert(at) {
            let after = self.operator.random.i64(1..NOTICED_MS_MAX);
            self.schedule(after, Event::Operate(at));
        }
    }

    /// A person asks for an unclean election of a partition of which a follower refuses to truncate its log, until that has helped.
    pub(super) fn operate(&mut self, at: PartitionId) {
        self.operator.looks.remove(&at);
        let refuses = |member: &super::Member| {
            let broker = member.broker.as_ref();
            let replica = broker.and_then(|broker| broker.partition(at));
            replica.is_some_and(|replica| replica.refused_truncation().is_some())
        };
        if !self.members.iter().any(refuses) {
            return;
        }
        let asker = (0..self.members.len()).find(|number| self.members[*number].broker.is_some());
        if let Some(asker) = asker {
            self.ask_controller(self.process(asker), elect_uncleanly(at));
        }
        self.schedule_operator(at);
    }
}
