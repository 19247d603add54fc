//! A write that hangs holds the lock of its partition. No other request waits for that lock.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use model::record::BatchBuilder;
use model::{BrokerEpoch, BrokerId, LeaderEpoch, Moment, Offset, Timestamp, TopicPartition, Uuid};
use partition::{
    Acks, Append, AppendAdmission, Appended, AssignedReplica, Assignment, Isolation, Partition,
    PartitionError, ReadRequest, Settings, Standing, Status, SyncQueue,
};
use storage::disk::{Disk, GatedDisk, SimDisk};
use storage::{Log, Opening};

const ME: BrokerId = BrokerId(1);
const NOW: Timestamp = Timestamp(1_000_000);
/// Limit of anything on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// A partition that leads, in a log directory of its own.
fn leader(disk: &GatedDisk, index: i32) -> (Arc<Partition>, Arc<SyncQueue>) {
    let dir = Path::new("data").join(format!("t-{index}"));
    disk.create_dir_all(&dir).unwrap();
    let settings = Arc::new(Settings::default());
    let (disk, opening) = (Arc::new(disk.clone()), Opening::unknown(NOW));
    let log = Log::open(disk, dir, settings.log.clone(), opening).unwrap();
    let (name, id) = (TopicPartition::new("t", index), Uuid::from_random([1; 16]));
    let queue = Arc::<SyncQueue>::default();
    let partition = Partition::new(name, id, ME, log, settings, Offset(0), Arc::clone(&queue));
    partition.assign(Assignment::alone(ME, LeaderEpoch(0)), Moment::START);
    (partition, queue)
}

fn append(partition: &Partition) -> Result<Appended, PartitionError> {
    let mut batch = BatchBuilder::new();
    batch.add(NOW, None, Some(b"value"));
    let how = Append { acks: Acks::Leader, now: NOW, internal: false };
    partition.append(&mut batch.finish(), how)
}

fn hangs<T>(result: Result<T, PartitionError>) -> bool {
    matches!(result, Err(PartitionError::DirectoryHangs))
}

#[test]
fn requests_for_a_partition_in_a_write_that_hangs_are_given_back() {
    let disk = GatedDisk::new(Arc::new(SimDisk::new()));
    let ((stuck, queue), (other, _)) = (leader(&disk, 0), leader(&disk, 1));
    append(&stuck).unwrap();
    disk.close_to_writes(Path::new("data/t-0"));
    let appending = Arc::clone(&stuck);
    let hung = std::thread::spawn(move || append(&appending).unwrap());
    assert!(disk.wait_for(1, PATIENCE), "the write gets to the device");

    let read = ReadRequest::at(Offset(0), 1 << 20, Isolation::LogEnd);
    let next = Assignment::alone(ME, LeaderEpoch(1));
    // Before anybody observed the hang, and behind that.
    for admission in
        [AppendAdmission::Admitted, AppendAdmission::Deferred, AppendAdmission::Refused]
    {
        queue.set_admission(admission);
        assert!(hangs(append(&stuck)));
        assert!(hangs(stuck.read(&read)));
        assert!(hangs(stuck.check_lockable()));
        assert!(stuck.try_assign(next.clone(), Moment::START).is_err(), "a role waits");
    }
    assert_eq!(append(&other).unwrap().base_offset, Offset(0));

    disk.open_gate();
    assert_eq!(hung.join().unwrap().base_offset, Offset(1));
    assert!(hangs(append(&stuck)), "appends wait until the directory is observed to work");
    assert!(stuck.read(&read).is_ok() && stuck.try_assign(next, Moment::START).is_ok());
    queue.set_admission(AppendAdmission::Admitted);
    assert_eq!(append(&stuck).unwrap().base_offset, Offset(2));
}

#[test]
fn a_replica_that_leads_no_more_says_so_while_its_directory_hangs() {
    let (partition, queue) = leader(&GatedDisk::new(Arc::new(SimDisk::new())), 0);
    queue.set_admission(AppendAdmission::Refused);
    let other = BrokerId(2);
    let replica = |broker| AssignedReplica { broker, standing: Standing::Serves(BrokerEpoch(1)) };
    let elsewhere = Assignment {
        leader: other,
        replicas: vec![replica(ME), replica(other)],
        isr: vec![ME, other],
        ..Assignment::alone(ME, LeaderEpoch(1))
    };
    partition.try_assign(elsewhere, Moment::START).unwrap();
    assert_eq!(partition.status(), Status::Following);
    assert!(matches!(append(&partition), Err(PartitionError::NotLeader)));
}
