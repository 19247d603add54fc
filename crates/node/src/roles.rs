//! What the cluster's image means for one replica.

use metadata::{ClusterImage, PartitionImage};
use partition::{AssignedReplica, Assignment, Standing};

/// What a replica must know of its partition's state, and of the brokers that hold the other replicas.
pub fn assignment(image: &ClusterImage, state: &PartitionImage) -> Assignment {
    let replica = |broker: &model::BrokerId| {
        let registered = image.broker(*broker).filter(|broker| !broker.fenced);
        let standing = registered.map_or(Standing::Absent, |broker| Standing::Serves(broker.epoch));
        AssignedReplica { broker: *broker, standing }
    };
    Assignment {
        leader: state.leader,
        leader_epoch: state.leader_epoch,
        partition_epoch: state.partition_epoch,
        replicas: state.replicas.iter().map(replica).collect(),
        isr: state.isr.clone(),
        recovering: state.recovering,
    }
}
