//! What the cluster's image means for one replica.

use metadata::{ClusterImage, PartitionImage};
use partition::{AssignedReplica, Assignment, Standing};

/// What a replica must know of its partition's state, and of the brokers that hold the other replicas.
pub fn assignment(image: &ClusterImage, state: &PartitionImage) -> Assignment {
    let replica = |broker: &model::BrokerId| {
        let registered = image.broker(*broker).filter(|_| image.is_eligible(*broker));
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

#[cfg(test)]
mod tests {
    use metadata::record::{BrokerRecord, MetadataRecord};
    use model::{BrokerEpoch, BrokerId, LeaderEpoch, Uuid};

    use super::*;

    #[test]
    fn who_is_fenced_or_about_to_stop_is_not_taken_in() {
        let mut image = ClusterImage::default();
        for broker in 1..=3 {
            let record = BrokerRecord {
                broker: BrokerId(broker),
                incarnation: Uuid::from_random([broker as u8; 16]),
                epoch: BrokerEpoch(i64::from(broker)),
                endpoints: Vec::new(),
                rack: None,
                log_dirs: Vec::new(),
                fenced: false,
            };
            image.replay(&MetadataRecord::BrokerRegistered(record)).unwrap();
        }
        image.replay(&MetadataRecord::BrokerFenced { broker: BrokerId(2) }).unwrap();
        image.replay(&MetadataRecord::ControlledShutdownBegun { broker: BrokerId(3) }).unwrap();
        let replicas = vec![BrokerId(1), BrokerId(2), BrokerId(3), BrokerId(4)];
        let state = PartitionImage {
            isr: replicas[..1].to_vec(),
            replicas,
            leader: BrokerId(1),
            last_known_leader: BrokerId::NONE,
            leader_epoch: LeaderEpoch(0),
            partition_epoch: 0,
            elr: Vec::new(),
            recovering: false,
            durable: false,
        };
        let standings: Vec<Standing> =
            assignment(&image, &state).replicas.iter().map(|replica| replica.standing).collect();
        let serves = Standing::Serves(BrokerEpoch(1));
        assert_eq!(standings, [serves, Standing::Absent, Standing::Absent, Standing::Absent]);
    }
}
