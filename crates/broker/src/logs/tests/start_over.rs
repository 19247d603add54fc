//! A follower's log that is emptied at its own end, with a crash or a lack of room at every operation of the disk.

use super::deleting::may_lack_room;
use super::*;

const END: i64 = 12;

fn answer(epoch: i32, log_start: i64, records: &[u8]) -> ReplicaAnswer<'_> {
    ReplicaAnswer {
        asked_in: LeaderEpoch(epoch),
        diverging: None,
        high_watermark: Offset(0),
        log_start: Offset(log_start),
        records,
    }
}

fn sync(logs: &Logs, partition: &Arc<Partition>) {
    partition.request_sync();
    if let Some(synced) = partition.begin_sync(Urgency::Now).and_then(|it| it.run().unwrap()) {
        logs.note_synced(0, &[(Arc::clone(partition), synced)]);
    }
    logs.sync_journals();
}

/// A follower with several segments of an idempotent producer, of which nothing is known to be committed. The leader of
/// epoch 5 has deleted everything below this log's end.
fn unproven(disk: &SimDisk) -> (Logs, Arc<Partition>) {
    let logs = start(disk, &["data"]).unwrap();
    settle(&logs, None).unwrap();
    let partition = open(&logs, FIRST).unwrap();
    partition.assign(following_in(4), Moment::START);
    for offset in (0..END).step_by(3) {
        let producer = model::ProducerId(7);
        let (epoch, sequence) = (model::ProducerEpoch(0), model::Sequence(offset as i32));
        let batch = BatchBuilder::new().placed(Offset(offset), LeaderEpoch(4));
        let mut batch = batch.producer(producer, epoch, sequence);
        (0..3).for_each(|_| batch.add(NOW, Some(b"key"), Some(&[7; 40])));
        let taken = partition.follow_answer(&answer(4, 0, &batch.finish()), NOW).unwrap();
        assert!(matches!(taken, Followed::Appended { .. }), "{taken:?}");
        sync(&logs, &partition);
    }
    assert!(log_files(disk).len() > 2, "several segments go one by one");
    partition.assign(following_in(5), Moment::START);
    let followed = partition.follow_answer(&answer(5, END, &[]), NOW).unwrap();
    assert_eq!(followed, Followed::StartOver(Offset(END)));
    (logs, partition)
}

/// Ends of the log and the number of its producers, as the next process opens it.
fn opened(disk: &SimDisk, what: &str) -> ((i64, i64), usize) {
    let logs = start(disk, &["data"]).unwrap_or_else(|error| panic!("{what}: {error}"));
    settle(&logs, Some(FIRST)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let opened = open_in(&logs, FIRST, LeaderEpoch(6));
    let partition = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
    partition.resume().unwrap_or_else(|error| panic!("{what}: {error}"));
    (ends(&partition), partition.with_log(|log| log.producers().count()))
}

const WHOLE: ((i64, i64), usize) = ((0, END), 1);

#[test]
fn a_log_that_starts_over_is_whole_or_empty_without_producers_whatever_crash_comes() {
    for start_at in [END, END + 28] {
        let disk = SimDisk::new();
        disk.keep_history();
        let (logs, partition) = unproven(&disk);
        let from = disk.operation_count() as usize;
        logs.start_over(&partition, LeaderEpoch(5), Offset(start_at)).unwrap();
        let emptied = ((start_at, start_at), 0);
        assert_eq!(ends(&partition), emptied.0);
        let done = disk.operation_count() as usize;
        logs.sync_journals();
        let (mut wholes, mut emptied_count) = (0, 0);
        for (at, found) in disk.history().into_iter().enumerate().skip(from) {
            for crash in 0..4 {
                let what = format!("to {start_at}: operation {at} ({from}, {done}), crash {crash}");
                // The process is killed, or the power fails.
                let left = if crash == 0 { found.snapshot() } else { found.after_crash(crash) };
                left.keep_history();
                let state = opened(&left, &what);
                assert!(state == emptied || state == WHOLE && at < done, "{what}: {state:?}");
                wholes += usize::from(state == WHOLE);
                emptied_count += usize::from(state == emptied);
                for (at, again) in left.history().into_iter().enumerate() {
                    let what = format!("{what}, then power fails at operation {at}");
                    assert_eq!(opened(&again.after_crash(crash), &what), state, "{what}");
                }
            }
        }
        assert!(wholes > 0 && emptied_count > 0, "{wholes} whole, {emptied_count} empty");
    }
}

/// A full volume must not leave a log that the journal calls empty with its records: the next sync would be noted beyond
/// the new start, and the next opening would keep the producers.
#[test]
fn a_start_over_that_finds_no_room_is_made_later_or_by_the_next_process() {
    let (mut refused, mut step) = (0, 0);
    loop {
        let disk = SimDisk::new();
        let (logs, partition) = unproven(&disk);
        let at = disk.operation_count() + step;
        step += 1;
        disk.fail_at(at, Errno::NOSPC);
        let made = logs.start_over(&partition, LeaderEpoch(5), Offset(END));
        if disk.operation_count() <= at {
            break;
        }
        if !may_lack_room(&disk, at) {
            continue;
        }
        let what = format!("step {step}: {made:?}");
        let is_served = partition.status() != Status::Offline;
        if made.is_err() && is_served {
            refused += 1;
            assert_eq!(ends(&partition), WHOLE.0, "{what}");
        }
        logs.checkpoint_logs(&[Arc::clone(&partition)]);
        logs.checkpoint(NOW);
        sync(&logs, &partition);
        let state = opened(&disk.snapshot(), &what);
        let is_whole = state == WHOLE && made.is_err();
        assert!(is_whole || state == ((END, END), 0), "{what}: {state:?}");
        if made.is_err() && is_served {
            logs.start_over(&partition, LeaderEpoch(5), Offset(END)).unwrap();
            assert_eq!(opened(&disk.snapshot(), &what), ((END, END), 0), "{what}");
        }
    }
    assert!(refused >= 2, "{refused} operations met a lack of room: of the bound, of the journal");
}
