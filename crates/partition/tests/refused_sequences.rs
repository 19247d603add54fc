//! Batches of an idempotent producer behind one that was refused: the same refusal, and never an append out of order.

use std::path::PathBuf;
use std::sync::Arc;

use model::record::BatchBuilder;
use model::{
    BrokerId, LeaderEpoch, Moment, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp,
    TopicPartition, Uuid,
};
use partition::{
    Acks, Append, AssignedReplica, Assignment, Partition, PartitionError, SequenceRefusal,
    Settings, Standing, SyncQueue,
};
use storage::disk::{Disk, SimDisk};
use storage::{Log, Opening};

const ME: BrokerId = BrokerId(1);
const OTHER: BrokerId = BrokerId(2);
const NOW: Timestamp = Timestamp(1_000_000);
/// Longer than a refused sequence is kept.
const MUCH_LATER: Timestamp = Timestamp(1_000_000 + 60_000);

struct Leader {
    partition: Arc<Partition>,
    queue: Arc<SyncQueue>,
}

impl Leader {
    /// A partition with two replicas, both in sync, that needs both.
    fn new() -> Leader {
        let (disk, dir) = (Arc::new(SimDisk::new()), PathBuf::from("data/t-0"));
        disk.create_dir_all(&dir).unwrap();
        let settings = Arc::new(Settings { min_insync_replicas: 2, ..Settings::default() });
        let log = Log::open(disk, dir, settings.log.clone(), Opening::unknown(NOW)).unwrap();
        let (name, id) = (TopicPartition::new("t", 0), Uuid::from_random([1; 16]));
        let queue = Arc::<SyncQueue>::default();
        let partition = Partition::new(name, id, ME, log, settings, Offset(0), Arc::clone(&queue));
        let leader = Leader { partition, queue };
        leader.assign(0, 3, ME, &[ME, OTHER]);
        leader
    }

    /// Assigns a partition state, by its partition epoch and its leader epoch.
    fn assign(&self, partition_epoch: i32, leader_epoch: i32, leader: BrokerId, isr: &[BrokerId]) {
        let replica = |broker| AssignedReplica { broker, standing: Standing::Absent };
        let assignment = Assignment {
            leader,
            partition_epoch,
            replicas: vec![replica(ME), replica(OTHER)],
            isr: isr.to_vec(),
            ..Assignment::alone(ME, LeaderEpoch(leader_epoch))
        };
        self.partition.assign(assignment, Moment::START);
    }

    /// A batch of one record of producer 9.
    fn append(&self, sequence: i32, now: Timestamp) -> Result<Offset, PartitionError> {
        let producer = (ProducerId(9), ProducerEpoch(0), Sequence(sequence));
        let mut batch = BatchBuilder::new().producer(producer.0, producer.1, producer.2);
        batch.add(NOW, None, Some(b"value"));
        let how = Append { acks: Acks::All, now, internal: false };
        self.partition.append(&mut batch.finish(), how).map(|appended| appended.base_offset)
    }
}

fn is_behind<T>(result: &Result<T, PartitionError>, refusal: SequenceRefusal) -> bool {
    matches!(result, Err(PartitionError::BehindRefused(found)) if *found == refusal)
}

#[test]
fn a_batch_behind_one_without_enough_replicas_gets_the_same_error() {
    let leader = Leader::new();
    assert_eq!(leader.append(0, NOW).unwrap(), Offset(0));
    leader.assign(1, 3, ME, &[ME]);
    let refused = leader.append(1, NOW);
    assert!(matches!(refused, Err(PartitionError::NotEnoughReplicas { .. })), "{refused:?}");
    leader.assign(2, 3, ME, &[ME, OTHER]);
    for _ in 0..2 {
        let behind = leader.append(2, NOW);
        assert!(is_behind(&behind, SequenceRefusal::NotEnoughReplicas), "{behind:?}");
    }
    assert_eq!(leader.append(1, NOW).unwrap(), Offset(1));
    assert_eq!(leader.append(2, NOW).unwrap(), Offset(2));
    let gap = leader.append(4, NOW);
    assert!(matches!(gap, Err(PartitionError::OutOfOrderSequence)), "{gap:?}");
    assert_eq!(leader.append(1, NOW).unwrap(), Offset(1), "a duplicate");
}

#[test]
fn a_batch_behind_the_refused_first_batch_of_a_producer_is_not_appended() {
    let leader = Leader::new();
    leader.partition.set_writable(false);
    let refused = leader.append(0, NOW);
    assert!(matches!(refused, Err(PartitionError::DiskFull)), "{refused:?}");
    leader.partition.set_writable(true);
    let behind = leader.append(1, NOW);
    assert!(is_behind(&behind, SequenceRefusal::Storage), "{behind:?}");
    assert_eq!(leader.append(0, NOW).unwrap(), Offset(0));
    assert_eq!(leader.append(1, NOW).unwrap(), Offset(1));
}

#[test]
fn a_leader_refuses_what_is_behind_a_batch_that_came_before_its_leadership() {
    let leader = Leader::new();
    leader.assign(1, 4, OTHER, &[ME, OTHER]);
    let refused = leader.append(0, NOW);
    assert!(matches!(refused, Err(PartitionError::NotLeader)), "{refused:?}");
    leader.assign(2, 5, ME, &[ME, OTHER]);
    let behind = leader.append(1, NOW);
    assert!(is_behind(&behind, SequenceRefusal::NotLeader), "{behind:?}");
    assert_eq!(leader.append(0, NOW).unwrap(), Offset(0));
}

#[test]
fn a_refused_batch_that_is_in_the_log_hides_no_later_refusal() {
    let leader = Leader::new();
    assert_eq!(leader.append(0, NOW).unwrap(), Offset(0));
    assert_eq!(leader.append(1, NOW).unwrap(), Offset(1));
    leader.assign(1, 4, OTHER, &[ME, OTHER]);
    for sequence in [0, 2] {
        let refused = leader.append(sequence, NOW);
        assert!(matches!(refused, Err(PartitionError::NotLeader)), "{refused:?}");
    }
    leader.assign(2, 5, ME, &[ME, OTHER]);
    let behind = leader.append(3, NOW);
    assert!(is_behind(&behind, SequenceRefusal::NotLeader), "{behind:?}");
    assert_eq!(leader.append(2, NOW).unwrap(), Offset(2));
    assert_eq!(leader.append(3, NOW).unwrap(), Offset(3));
}

#[test]
fn a_producer_that_gave_the_refused_batch_up_learns_of_the_gap() {
    let leader = Leader::new();
    assert_eq!(leader.append(0, NOW).unwrap(), Offset(0));
    leader.partition.set_writable(false);
    assert!(matches!(leader.append(1, NOW), Err(PartitionError::DiskFull)));
    leader.partition.set_writable(true);
    assert!(is_behind(&leader.append(2, NOW), SequenceRefusal::Storage));
    let gap = leader.append(2, MUCH_LATER);
    assert!(matches!(gap, Err(PartitionError::OutOfOrderSequence)), "{gap:?}");
}

#[test]
fn the_memory_of_refused_sequences_is_charged_and_returned() {
    let leader = Leader::new();
    let charged = || leader.queue.held().producer_bytes();
    let refused = || leader.queue.held().refused_bytes();
    let before = charged();
    leader.partition.set_writable(false);
    assert!(matches!(leader.append(1, NOW), Err(PartitionError::DiskFull)));
    assert!(charged() > before);
    assert_eq!(refused(), charged() - before);
    leader.partition.expire_refused(MUCH_LATER);
    assert_eq!(charged(), before);
    assert!(matches!(leader.append(1, NOW), Err(PartitionError::DiskFull)));
    leader.partition.mark_deleted();
    assert_eq!((charged(), refused()), (0, 0));
}
