//! What the cluster's image means for one replica.

use metadata::{ClusterImage, PartitionImage};
use model::{BrokerId, Durability, LeaderEpoch, PartitionIndex, TopicId};
use partition::{AssignedReplica, Assignment, Settings, Standing, TruncationLimit};

/// What a replica must know of the state of its partition, `at` in `topic`, and of the brokers that hold the other replicas.
pub fn assignment(
    image: &ClusterImage,
    (topic, at): (TopicId, PartitionIndex),
    state: &PartitionImage,
) -> Assignment {
    let replica = |broker: &BrokerId| {
        let is_eligible = image.is_eligible_replica(*broker, topic, at);
        let registered = image.broker(*broker).filter(|_| is_eligible);
        let standing = registered.map_or(Standing::Absent, |broker| Standing::Serves(broker.epoch));
        AssignedReplica { broker: *broker, standing }
    };
    // Records of a partition that is not durable may be gone everywhere after a power failure, acknowledged ones too.
    let truncation = match image.detects_copies() && state.durable {
        true => TruncationLimit::Committed(allowed_truncation(image, topic, at)),
        false => TruncationLimit::Unlimited,
    };
    Assignment {
        leader: state.leader,
        leader_epoch: state.leader_epoch,
        partition_epoch: state.partition_epoch,
        replicas: state.replicas.iter().map(replica).collect(),
        isr: state.isr.clone(),
        recovering: state.recovering,
        truncation,
        // An eligible replica out of sync has not proved that it synced.
        awaits_durability: image.detects_copies() && !state.durable && state.elr.is_empty(),
    }
}

fn allowed_truncation(image: &ClusterImage, topic: TopicId, at: PartitionIndex) -> LeaderEpoch {
    image.topic_by_id(topic).map_or(LeaderEpoch::NONE, |topic| topic.truncation_allowed(at))
}

/// What a replica obeys until it has taken its role, in a step of the metadata that may change both: it asks for as many
/// in-sync replicas as the `known` configuration or the `wanted` one, whichever asks for more (KAFKA-16540). With fewer in sync
/// than that, another replica may be elected that lacks what this one alone would commit. It counts synced positions only, if the
/// wanted configuration does: a fetch in the new leader epoch acknowledges synced records. `None`: it asks for enough.
pub fn until_role(known: &Settings, wanted: &Settings) -> Option<Settings> {
    let min_insync_replicas = wanted.min_insync_replicas.max(known.min_insync_replicas);
    let durability = match wanted.durability {
        Durability::Fsync => Durability::Fsync,
        Durability::PageCache => known.durability,
    };
    let asks_for_more = min_insync_replicas > known.min_insync_replicas;
    let is_stricter = asks_for_more || durability != known.durability;
    is_stricter.then(|| Settings { min_insync_replicas, durability, ..known.clone() })
}

/// What a replica obeys of the `wanted` configuration while the role that came with it waits for the end of its log, as it does
/// while that is cut or a segment is made: all of it, but no smaller number of in-sync replicas than the `known` one asks for
/// (KAFKA-16540). A leader that is deposed would commit alone what its successor lacks, in the epoch that is over.
pub fn while_role_waits(known: &Settings, wanted: &Settings) -> Settings {
    let min_insync_replicas = known.min_insync_replicas.max(wanted.min_insync_replicas);
    Settings { min_insync_replicas, ..wanted.clone() }
}

/// Whether a replica that its broker refuses to open is to be copied anew: nothing counts on it any more, and another one
/// has everything that was acknowledged. Otherwise what is left of it may be all that there is.
pub fn is_copied_anew(state: &PartitionImage, me: BrokerId) -> bool {
    let complete = || state.isr.iter().chain(&state.elr);
    state.replicas.contains(&me) && complete().all(|id| *id != me) && complete().next().is_some()
}

/// Whether a replica whose log directory has failed may leave the in-sync and the eligible replicas: it is one of them,
/// and another one is complete as well. The only complete replica stays what it is, because no other one has everything. By an image that
/// may be old: the controller judges again.
pub fn is_given_up(state: &PartitionImage, me: BrokerId) -> bool {
    let complete = || state.isr.iter().chain(&state.elr);
    complete().any(|id| *id == me) && complete().any(|id| *id != me)
}

#[cfg(test)]
mod tests {
    use metadata::record::{BrokerRecord, MetadataRecord, TopicReplicas};
    use model::level::HIGHWATER_VERSION;
    use model::{BrokerEpoch, Uuid};

    use super::*;

    fn state(replicas: &[i32], isr: &[i32], elr: &[i32]) -> PartitionImage {
        let ids = |ids: &[i32]| ids.iter().copied().map(BrokerId).collect::<Vec<_>>();
        PartitionImage {
            replicas: ids(replicas),
            isr: ids(isr),
            elr: ids(elr),
            leader: isr.first().map_or(BrokerId::NONE, |id| BrokerId(*id)),
            restarted: Vec::new(),
            last_known_leader: BrokerId::NONE,
            leader_epoch: LeaderEpoch(0),
            partition_epoch: 0,
            recovering: false,
            durable: true,
        }
    }

    #[test]
    fn a_refused_replica_is_copied_anew_when_nothing_counts_on_it_and_another_is_complete() {
        let anew = |state: PartitionImage| is_copied_anew(&state, BrokerId(1));
        assert!(anew(state(&[1, 2, 3], &[2, 3], &[])));
        assert!(anew(state(&[1, 2, 3], &[], &[3])));
        assert!(!anew(state(&[1, 2, 3], &[1, 2], &[])), "it is counted");
        assert!(!anew(state(&[1, 2, 3], &[2], &[1])), "it may be elected");
        assert!(!anew(state(&[1, 2, 3], &[], &[])), "nobody has everything");
        assert!(!anew(state(&[1], &[1], &[])), "it is the only one");
        assert!(!anew(state(&[2, 3], &[2], &[])), "it is none");
    }

    #[test]
    fn a_replica_on_a_failed_disk_is_given_up_if_another_one_is_complete() {
        let given_up = |state: PartitionImage| is_given_up(&state, BrokerId(1));
        assert!(given_up(state(&[1, 2, 3], &[1, 2], &[])));
        assert!(given_up(state(&[1, 2, 3], &[2], &[1])));
        assert!(given_up(state(&[1, 2, 3], &[1], &[3])));
        assert!(!given_up(state(&[1, 2, 3], &[2, 3], &[])), "it is out already");
        assert!(!given_up(state(&[1, 2, 3], &[1], &[])), "nobody else has everything");
        assert!(!given_up(state(&[1], &[1], &[])), "it is the only one");
    }

    #[test]
    fn a_larger_number_of_in_sync_replicas_counts_before_the_role_and_a_smaller_one_behind_it() {
        let asks = |min_insync_replicas| Settings { min_insync_replicas, ..Settings::default() };
        let until = |known, wanted| {
            until_role(&asks(known), &asks(wanted)).map(|it| it.min_insync_replicas)
        };
        assert_eq!(until(1, 2), Some(2));
        assert_eq!(until(2, 2), None);
        assert_eq!(until(2, 1), None, "it goes on asking for two");
        let waits =
            |known, wanted| while_role_waits(&asks(known), &asks(wanted)).min_insync_replicas;
        assert_eq!([waits(1, 2), waits(2, 2), waits(2, 1)], [2, 2, 2]);
        let durable = Settings { durability: Durability::PageCache, ..asks(1) };
        let waits = while_role_waits(&asks(2), &durable);
        assert_eq!(waits, Settings { min_insync_replicas: 2, ..durable }, "all else is obeyed");
    }

    #[test]
    fn fsync_counts_before_the_role_and_page_cache_behind_it() {
        let by = |durability| Settings { durability, ..Settings::default() };
        let (fsync, cached) = (by(Durability::Fsync), by(Durability::PageCache));
        assert_eq!(until_role(&cached, &fsync), Some(fsync.clone()));
        assert_eq!(until_role(&fsync, &cached), None);
        let fewer = Settings { min_insync_replicas: 1, ..fsync.clone() };
        let more = Settings { min_insync_replicas: 2, ..cached };
        let until = until_role(&more, &fewer).map(|it| (it.min_insync_replicas, it.durability));
        assert_eq!(until, Some((2, Durability::Fsync)), "each from the stricter one");
    }

    #[test]
    fn a_partition_that_is_not_durable_awaits_the_proof_and_has_no_bound() {
        let mut image = ClusterImage::default();
        let at = (TopicId::from_random([1; 16]), PartitionIndex(0));
        let of = |image: &ClusterImage, durable, elr: &[i32]| {
            let state = PartitionImage { durable, ..state(&[1, 2, 3], &[1], elr) };
            let assigned = assignment(image, at, &state);
            (assigned.awaits_durability, assigned.truncation)
        };
        let bound = TruncationLimit::Committed(LeaderEpoch::NONE);
        assert_eq!(of(&image, false, &[]), (false, TruncationLimit::Unlimited), "earlier levels");
        let (name, level) = (HIGHWATER_VERSION.to_owned(), 4);
        image.replay(&MetadataRecord::FeatureLevelSet { name, level }).unwrap();
        assert_eq!(of(&image, false, &[]), (true, TruncationLimit::Unlimited));
        assert_eq!(of(&image, false, &[2]), (false, TruncationLimit::Unlimited));
        assert_eq!(of(&image, true, &[]), (false, bound));
    }

    #[test]
    fn who_is_fenced_or_about_to_stop_or_cannot_serve_is_not_taken_in() {
        let mut image = ClusterImage::default();
        for broker in 1..=5 {
            let record = BrokerRecord {
                broker: BrokerId(broker),
                incarnation: Uuid::from_random([broker as u8; 16]),
                epoch: BrokerEpoch(i64::from(broker)),
                endpoints: Vec::new(),
                rack: None,
                log_dirs: Vec::new(),
                fenced: false,
                software: None,
            };
            image.replay(&MetadataRecord::BrokerRegistered(record)).unwrap();
        }
        image.replay(&MetadataRecord::BrokerFenced { broker: BrokerId(2) }).unwrap();
        image.replay(&MetadataRecord::ControlledShutdownBegun { broker: BrokerId(3) }).unwrap();
        let (topic, at) = (TopicId::from_random([1; 16]), PartitionIndex(0));
        for (broker, partition) in [(4, at), (5, PartitionIndex(1))] {
            let replicas = vec![TopicReplicas { topic_id: topic, partitions: vec![partition] }];
            let broker = BrokerId(broker);
            image.replay(&MetadataRecord::ReplicasOffline { broker, replicas }).unwrap();
        }
        let replicas: Vec<BrokerId> = (1..=6).map(BrokerId).collect();
        let state = PartitionImage {
            isr: replicas[..1].to_vec(),
            replicas,
            leader: BrokerId(1),
            restarted: Vec::new(),
            last_known_leader: BrokerId::NONE,
            leader_epoch: LeaderEpoch(0),
            partition_epoch: 0,
            elr: Vec::new(),
            recovering: false,
            durable: false,
        };
        let assigned = assignment(&image, (topic, at), &state);
        let standings: Vec<Standing> =
            assigned.replicas.iter().map(|replica| replica.standing).collect();
        let serves = |epoch| Standing::Serves(BrokerEpoch(epoch));
        let absent = Standing::Absent;
        assert_eq!(standings, [serves(1), absent, absent, absent, serves(5), absent]);
    }
}
