//! Zeros ahead of logs on a volume that has no room left.

use std::cell::RefCell;

use partition::AheadWritten;
use rustix::io::Errno;

use super::*;

#[test]
fn that_zeros_cannot_be_cut_off_on_a_full_volume_is_told() {
    let disk = SimDisk::new();
    let logs = start(&disk, &["data"]).unwrap();
    settle(&logs, None).unwrap();
    let wanted = Wanted {
        name: name(),
        topic_id: FIRST,
        config: Arc::default(),
        durability: Durability::Fsync,
        epoch: LeaderEpoch(3),
    };
    let opened = logs.open(&[wanted], 5, 2, NOW).remove(0).unwrap();
    let (checkpointed, queue) = (opened.high_watermark, opened.sync_queue);
    let settings = Arc::default();
    let partition = Partition::new(name(), FIRST, ME, opened.log, settings, checkpointed, queue);
    logs.register(&partition);
    partition.assign(Assignment::alone(ME, LeaderEpoch(3)), Moment::START);
    loop {
        append(&logs, &partition, &["a"]);
        match partition.write_ahead() {
            AheadWritten::Nothing => {}
            AheadWritten::Done => break,
            AheadWritten::Failed(cause) => panic!("{cause}"),
        }
    }
    logs.fill(&partition);
    disk.fail_at(disk.operation_count(), Errno::IO);
    let told = RefCell::new(Vec::new());
    logs.give_back_zeros(logs.directory_of(&partition), &|partition, given_back| {
        told.borrow_mut().push((partition.status(), given_back));
    });
    let told = told.into_inner();
    let [(Status::Offline, Err(PartitionError::Storage(cause)))] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(cause.is_fatal(), "{cause}");
}
