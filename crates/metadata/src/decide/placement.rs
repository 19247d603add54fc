//! Where replicas go: round robin over brokers that serve, alternating racks; brokers that are fenced or
//! about to stop only where there are not enough others (KAFKA-13841).
//!
//! Follows the rules of Kafka's original algorithm: the first replica walks round the brokers,
//! the others are shifted by one more for every full round, so that followers of one leader's
//! partitions spread; with racks, a second replica in a rack comes only when every rack has one.

use super::{Answer, Refusal};
use crate::image::{BrokerImage, ClusterImage};
use model::{BrokerId, ErrorCode};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Replicas of `partitions` new partitions, the leader first. `first` is the number of the first
/// new partition, `start` any number: it says at which broker to begin. With fewer brokers registered
/// than replicas wanted nothing is placed, and whoever asks may ask again: never fewer replicas.
pub(super) fn place(
    image: &ClusterImage,
    partitions: usize,
    factor: usize,
    first: usize,
    start: u64,
) -> Answer<Vec<Vec<BrokerId>>> {
    let registered = image.brokers().count();
    let serves = |broker: &&Arc<BrokerImage>| image.is_eligible(broker.id);
    let active = by_rack(image.brokers().filter(serves).map(|b| &**b));
    let refuse = |message: String| Err(Refusal::new(ErrorCode::InvalidReplicationFactor, message));
    if active.is_empty() {
        return refuse("No broker can lead: all of them are fenced.".into());
    }
    if factor > registered {
        return refuse(format!(
            "Replication factor {factor} is larger than the {registered} broker(s) registered."
        ));
    }
    let fenced = by_rack(image.brokers().filter(|broker| !serves(broker)).map(|b| &**b));
    let start = (start % active.len() as u64) as usize;
    let place_one = |p| place_partition(&active, &fenced, factor, start, first + p);
    Ok((0..partitions).map(place_one).collect())
}

type Placed = (BrokerId, Option<String>);

/// Brokers so that neighbours stand in different racks, as far as that goes.
fn by_rack<'a>(brokers: impl Iterator<Item = &'a BrokerImage>) -> Vec<Placed> {
    let mut racks: BTreeMap<Option<String>, VecDeque<BrokerId>> = BTreeMap::new();
    for broker in brokers {
        racks.entry(broker.rack.clone()).or_default().push_back(broker.id);
    }
    let mut order = Vec::new();
    while racks.values().any(|rack| !rack.is_empty()) {
        for (name, rack) in &mut racks {
            order.extend(rack.pop_front().map(|id| (id, name.clone())));
        }
    }
    order
}

fn place_partition(
    active: &[Placed],
    fenced: &[Placed],
    factor: usize,
    start: usize,
    partition: usize,
) -> Vec<BrokerId> {
    let count = active.len();
    let leader = (start + partition) % count;
    let shift = start + partition / count;
    let others = (0..count.saturating_sub(1)).map(|j| {
        let step = 1 + (shift + j) % (count - 1);
        &active[(leader + step) % count]
    });
    let spare = (0..fenced.len()).map(|j| &fenced[(partition + j) % fenced.len()]);
    let candidates: Vec<&Placed> = others.chain(spare).collect();
    let racks: BTreeSet<_> = active.iter().chain(fenced).map(|(_, rack)| rack).collect();
    let mut chosen = vec![&active[leader]];
    while chosen.len() < factor {
        let used: BTreeSet<_> = chosen.iter().map(|(_, rack)| rack).collect();
        let free = |c: &&&Placed| !chosen.iter().any(|other| other.0 == c.0);
        let fresh = |c: &&&Placed| used.len() == racks.len() || !used.contains(&c.1);
        let next = candidates.iter().filter(free).find(fresh);
        let next = next.or_else(|| candidates.iter().find(free));
        chosen.push(next.expect("the factor is at most the number of brokers"));
    }
    chosen.into_iter().map(|(id, _)| *id).collect()
}

/// Checks replicas that a user chose: known brokers, each once, `factor` of them, one serving.
pub(super) fn check_assignments(
    image: &ClusterImage,
    assigned: &[Vec<BrokerId>],
    factor: usize,
) -> Answer<()> {
    let refuse = |message: String| Err(Refusal::new(ErrorCode::InvalidReplicaAssignment, message));
    for replicas in assigned {
        if replicas.is_empty() {
            return refuse("The manual assignment has a partition without replicas.".into());
        }
        for (i, id) in replicas.iter().enumerate() {
            if image.broker(*id).is_none() {
                return refuse(format!(
                    "The manual assignment names broker {id}: it is not registered."
                ));
            }
            if replicas[..i].contains(id) {
                return refuse(format!("The manual assignment names broker {id} more than once."));
            }
        }
        if replicas.len() != factor {
            let found = replicas.len();
            return refuse(format!(
                "The manual assignment gives one partition {found} replica(s) and others {factor}."
            ));
        }
        if !replicas.iter().any(|id| image.is_eligible(*id)) {
            return refuse(
                "The manual assignment has a partition with fenced brokers only.".into(),
            );
        }
    }
    Ok(())
}
