//! Taking up roles: a replica leads or follows as the newest state of its partition says.
//!
//! A role waits for a cut of the log, or an append, that is under way: a leader epoch begins where the log ends. The cut waits for its disk, and no
//! other partition's role waits with it: such a replica takes its role on a thread of its own, and of all that it was given
//! meanwhile the newest. Of a configuration that came with it, or since, a smaller number of in-sync replicas waits with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use node::Key;
use parking_lot::Mutex;
use partition::{Assignment, Partition, Settings};
use tracing::info;

use crate::clock::Clock;
use crate::vital;

/// What is done as soon as a role is taken.
type Then = Box<dyn FnOnce() + Send>;

/// A role that waits.
struct Role {
    /// Whose. Another replica of the same partition may come in its place.
    partition: Arc<Partition>,
    assignment: Assignment,
    then: Then,
    /// What the replica obeys as soon as it has its role, if that is not what it obeys now.
    settings: Option<Arc<Settings>>,
}

/// The roles that wait for a log's cut: one at most of each partition.
#[derive(Default)]
pub struct Roles {
    waiting: Arc<Mutex<BTreeMap<Key, Role>>>,
}

impl Roles {
    /// Gives a replica its role, and does `then` when it has taken it: now, or behind a cut that is under way. A role that
    /// waits is given up for this one, with what was to be done behind it.
    pub fn give(
        &self,
        key: Key,
        partition: &Arc<Partition>,
        assignment: Assignment,
        clock: &Clock,
        then: impl FnOnce() + Send + 'static,
    ) {
        let mut waiting = self.waiting.lock();
        let before = waiting.get_mut(&key);
        if let Some(before) = before.filter(|it| Arc::ptr_eq(&it.partition, partition)) {
            before.assignment = assignment;
            before.then = Box::new(then);
            return;
        }
        let Err(assignment) = partition.try_assign(assignment, clock.moment()) else {
            drop(waiting);
            return then();
        };
        let (whose, then) = (Arc::clone(partition), Box::new(then));
        waiting.insert(key, Role { partition: whose, assignment, then, settings: None });
        drop(waiting);
        info!(partition = %partition.topic_partition(), "a cut, a new segment or an append is under way at the end of the log: the replica takes its new role behind it");
        let (waiting, partition) = (Arc::clone(&self.waiting), Arc::clone(partition));
        let clock = clock.clone();
        let take = move || {
            vital::thread("a role behind a cut", || {
                take_when_cut(&waiting, key, &partition, &clock)
            });
        };
        let started = std::thread::Builder::new().name("role".to_owned()).spawn(take);
        // Without it the replica would stay what it was, in silence.
        started.expect("a thread for a role that waits can be started");
    }

    /// Before roles are given of a step of the metadata: has a replica ask for as many in-sync replicas as this configuration
    /// does, if that is more ([`node::roles::until_role`]), now and with the role that waits. That role may be replaced by one of
    /// this step, and a smaller number that came before is not to come with it.
    pub fn require_more(&self, key: &Key, partition: &Arc<Partition>, wanted: &Settings) {
        let more = |known: &Settings| node::roles::until_role(known, wanted).map(Arc::new);
        // Held throughout: the role must not be taken in between.
        let mut waiting = self.waiting.lock();
        let role = waiting.get_mut(key).filter(|it| Arc::ptr_eq(&it.partition, partition));
        if let Some(settings) = role.and_then(|role| role.settings.as_mut()) {
            more(settings).into_iter().for_each(|stricter| *settings = stricter);
        }
        more(&partition.settings()).into_iter().for_each(|it| partition.set_settings(it));
    }

    /// Has a replica obey this configuration: now, but for what must wait for its role if that waits
    /// ([`node::roles::while_role_waits`]).
    pub fn obey(&self, key: &Key, partition: &Arc<Partition>, wanted: &Arc<Settings>) {
        // Held throughout: the role must not be taken in between.
        let mut waiting = self.waiting.lock();
        let role = waiting.get_mut(key).filter(|it| Arc::ptr_eq(&it.partition, partition));
        let Some(role) = role else { return partition.set_settings(Arc::clone(wanted)) };
        let until = node::roles::while_role_waits(&partition.settings(), wanted);
        partition.set_settings(Arc::new(until));
        role.settings = Some(Arc::clone(wanted));
    }

    /// The replica goes: it takes no role any more.
    pub fn forget(&self, key: &Key) {
        self.waiting.lock().remove(key);
    }
}

fn take_when_cut(
    waiting: &Mutex<BTreeMap<Key, Role>>,
    key: Key,
    partition: &Arc<Partition>,
    clock: &Clock,
) {
    loop {
        partition.wait_for_cut();
        // Held throughout: a role that is given from now on is taken behind this one.
        let mut waiting = waiting.lock();
        let is_mine = waiting.get(&key).is_some_and(|it| Arc::ptr_eq(&it.partition, partition));
        let Some(role) = is_mine.then(|| waiting.remove(&key)).flatten() else { return };
        match partition.try_assign(role.assignment, clock.moment()) {
            Ok(()) => {
                role.settings.into_iter().for_each(|settings| partition.set_settings(settings));
                return (role.then)();
            }
            // The next cut has begun already.
            Err(assignment) => drop(waiting.insert(key, Role { assignment, ..role })),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;
    use std::time::Duration;

    use model::record::BatchBuilder;
    use model::{
        BrokerEpoch, BrokerId, Durability, LeaderEpoch, Offset, PartitionIndex, Timestamp,
        TopicPartition, Uuid,
    };
    use partition::{
        Acks, Append, AssignedReplica, Followed, ReplicaAnswer, Standing, Status, TruncationLimit,
    };
    use storage::disk::{Disk, GatedDisk, SimDisk};
    use storage::{Log, LogConfig, Opening};

    use super::*;

    const ME: BrokerId = BrokerId(2);
    const OTHER: BrokerId = BrokerId(1);
    const NOW: Timestamp = Timestamp(1_000_000);
    /// How long anything may take on a machine that is busy with much else.
    const PATIENCE: Duration = Duration::from_secs(40);

    fn role(leader: BrokerId, epoch: i32) -> Assignment {
        let replica =
            |broker| AssignedReplica { broker, standing: Standing::Serves(BrokerEpoch(1)) };
        Assignment {
            leader,
            leader_epoch: LeaderEpoch(epoch),
            partition_epoch: epoch,
            replicas: vec![replica(OTHER), replica(ME)],
            isr: vec![OTHER, ME],
            recovering: false,
            truncation: TruncationLimit::Unlimited,
            awaits_durability: false,
        }
    }

    fn key(index: i32) -> Key {
        Key { topic_id: Uuid::from_random([1; 16]), partition: PartitionIndex(index) }
    }

    fn replica(disk: &GatedDisk, index: i32) -> Arc<Partition> {
        replica_that_obeys(disk, index, asks_for(1))
    }

    /// Written positions count, of so many replicas in sync.
    fn asks_for(min_insync_replicas: usize) -> Arc<Settings> {
        let durability = Durability::PageCache;
        Arc::new(Settings { durability, min_insync_replicas, ..Settings::default() })
    }

    fn replica_that_obeys(disk: &GatedDisk, index: i32, settings: Arc<Settings>) -> Arc<Partition> {
        let dir = Path::new("data").join(format!("t-{index}"));
        disk.create_dir_all(&dir).unwrap();
        let (disk, opening) = (Arc::new(disk.clone()), Opening::unknown(NOW));
        let log = Log::open(disk, dir, settings.log.clone(), opening).unwrap();
        let name = TopicPartition::new("t", index);
        let id = key(index).topic_id;
        let queue = Arc::default();
        Partition::new(name, id, ME, log, settings, Offset(0), queue)
    }

    fn answer(epoch: i32, records: &[u8]) -> ReplicaAnswer<'_> {
        ReplicaAnswer {
            asked_in: LeaderEpoch(epoch),
            diverging: None,
            high_watermark: Offset(0),
            log_start: Offset(0),
            records,
        }
    }

    /// A replica with three records that is to be cut behind the first one.
    fn replica_to_be_cut(disk: &GatedDisk, index: i32, clock: &Clock) -> Arc<Partition> {
        let partition = replica(disk, index);
        partition.assign(role(OTHER, 3), clock.moment());
        for offset in 0..3 {
            let mut batch = BatchBuilder::new().placed(Offset(offset), LeaderEpoch(3));
            batch.add(NOW, Some(b"key"), Some(b"value"));
            partition.follow_answer(&answer(3, &batch.finish()), NOW).unwrap();
        }
        partition.assign(role(OTHER, 4), clock.moment());
        let parts =
            ReplicaAnswer { diverging: Some((LeaderEpoch(3), Offset(1))), ..answer(4, &[]) };
        let followed = partition.follow_answer(&parts, NOW).unwrap();
        assert!(matches!(followed, Followed::Cut(_)), "{followed:?}");
        partition
    }

    #[test]
    fn a_cut_that_hangs_holds_up_no_other_role_and_its_own_is_the_newest_one() {
        let disk = GatedDisk::new(Arc::new(SimDisk::new()));
        let clock = Clock::default();
        let (hangs, other) = (replica_to_be_cut(&disk, 0, &clock), replica(&disk, 1));
        disk.close(Path::new("data/t-0"));
        let cutting = Arc::clone(&hangs);
        let cut = std::thread::spawn(move || cutting.cut(Offset(1)).unwrap());
        assert!(disk.wait_for(1, PATIENCE), "the cut gets to the device");

        let (taken, took) = mpsc::channel();
        let tell = move |what: &'static str| {
            let taken = taken.clone();
            move || taken.send(what).unwrap()
        };
        let (one, two) = (Arc::clone(&hangs), Arc::clone(&other));
        let giving = std::thread::spawn(move || {
            let roles = Roles::default();
            roles.give(key(0), &one, role(ME, 5), &clock, tell("an older one"));
            roles.give(key(1), &two, role(ME, 5), &clock, tell("of the other"));
            roles.give(key(0), &one, role(ME, 6), &clock, tell("the newest one"));
            roles
        });
        assert_eq!(took.recv_timeout(PATIENCE), Ok("of the other"));
        assert_eq!(other.status(), Status::Leading);
        let roles = giving.join().unwrap();
        assert_eq!((hangs.status(), hangs.epoch()), (Status::Following, LeaderEpoch(4)));
        assert_eq!(roles.waiting.lock().len(), 1);

        disk.open_gate();
        assert_eq!(took.recv_timeout(PATIENCE), Ok("the newest one"));
        assert_eq!(cut.join().unwrap(), Offset(1));
        assert_eq!((hangs.status(), hangs.epoch()), (Status::Leading, LeaderEpoch(6)));
        let epochs = hangs.with_log(|log| log.epochs().to_vec());
        assert_eq!(epochs.last(), Some(&(LeaderEpoch(6), Offset(1))), "it begins behind the cut");
        assert!(roles.waiting.lock().is_empty());
    }

    fn append(partition: &Arc<Partition>) {
        let mut batch = BatchBuilder::new();
        batch.add(NOW, Some(b"key"), Some(b"value"));
        let how = Append { acks: Acks::Leader, now: NOW, internal: false };
        partition.append(&mut batch.finish(), how).unwrap();
    }

    #[test]
    fn kafka_16540_who_is_deposed_while_a_segment_is_made_commits_by_no_smaller_number() {
        let disk = GatedDisk::new(Arc::new(SimDisk::new()));
        let clock = Clock::default();
        // Each batch in a segment of its own.
        let log = Arc::new(LogConfig { segment_bytes: 100, ..LogConfig::default() });
        let obeying =
            |min| Arc::new(Settings { log: Arc::clone(&log), ..(*asks_for(min)).clone() });
        let partition = replica_that_obeys(&disk, 0, obeying(2));
        let alone = Assignment { isr: vec![ME], ..role(ME, 5) };
        partition.assign(alone, clock.moment());
        append(&partition);
        assert_eq!(partition.high_watermark(), Offset(0), "two are to be in sync");
        disk.close(Path::new("data"));
        let appending = Arc::clone(&partition);
        let appended = std::thread::spawn(move || append(&appending));
        assert!(disk.wait_for(1, PATIENCE), "the roll gets to the device");

        let roles = Roles::default();
        let (taken, took) = mpsc::channel();
        roles.give(key(0), &partition, role(OTHER, 6), &clock, move || taken.send(()).unwrap());
        roles.obey(&key(0), &partition, &obeying(1));
        assert_eq!(partition.settings().min_insync_replicas, 2, "until it has its role");
        assert_eq!(partition.high_watermark(), Offset(0));
        // A role that comes in its place takes the configuration over.
        let (taken, took_newer) = mpsc::channel();
        roles.give(key(0), &partition, role(OTHER, 7), &clock, move || taken.send(()).unwrap());
        assert!(took.recv_timeout(PATIENCE).is_err(), "it was given up");
        assert_eq!((partition.status(), partition.epoch()), (Status::Leading, LeaderEpoch(5)));

        disk.open_gate();
        assert_eq!(took_newer.recv_timeout(PATIENCE), Ok(()));
        appended.join().unwrap();
        assert_eq!((partition.status(), partition.epoch()), (Status::Following, LeaderEpoch(7)));
        assert_eq!(partition.settings().min_insync_replicas, 1);
        assert_eq!(partition.high_watermark(), Offset(0), "nothing of it is committed");
        roles.obey(&key(0), &partition, &obeying(2));
        assert_eq!(partition.settings().min_insync_replicas, 2, "nothing waits any more");
    }

    #[test]
    fn kafka_16540_a_role_that_waits_comes_with_no_smaller_number_than_its_step_of_the_metadata() {
        let disk = GatedDisk::new(Arc::new(SimDisk::new()));
        let clock = Clock::default();
        let partition = replica_to_be_cut(&disk, 0, &clock);
        partition.set_settings(asks_for(2));
        disk.close(Path::new("data/t-0"));
        let cutting = Arc::clone(&partition);
        let cut = std::thread::spawn(move || cutting.cut(Offset(1)).unwrap());
        assert!(disk.wait_for(1, PATIENCE), "the cut gets to the device");

        // Each step as replicas take it in: a larger number, the role, the configuration.
        let roles = Roles::default();
        roles.require_more(&key(0), &partition, &asks_for(1));
        roles.give(key(0), &partition, role(ME, 5), &clock, || {});
        roles.obey(&key(0), &partition, &asks_for(1));
        roles.require_more(&key(0), &partition, &asks_for(2));
        let (taken, took) = mpsc::channel();
        let alone = Assignment { isr: vec![ME], ..role(ME, 6) };
        roles.give(key(0), &partition, alone, &clock, move || taken.send(()).unwrap());
        // The role is taken before the replica is told to obey.
        disk.open_gate();
        assert_eq!(took.recv_timeout(PATIENCE), Ok(()));
        cut.join().unwrap();
        assert_eq!((partition.status(), partition.epoch()), (Status::Leading, LeaderEpoch(6)));
        assert_eq!(partition.settings().min_insync_replicas, 2);
        assert_eq!(partition.high_watermark(), Offset(0), "nothing is committed by one alone");
        roles.obey(&key(0), &partition, &asks_for(1));
        roles.require_more(&key(0), &partition, &asks_for(3));
        assert_eq!(partition.settings().min_insync_replicas, 3, "nothing waits any more");
    }

    #[test]
    fn a_replica_that_goes_while_its_role_waits_takes_none() {
        let disk = GatedDisk::new(Arc::new(SimDisk::new()));
        let clock = Clock::default();
        let hangs = replica_to_be_cut(&disk, 0, &clock);
        disk.close(Path::new("data/t-0"));
        let cutting = Arc::clone(&hangs);
        let cut = std::thread::spawn(move || cutting.cut(Offset(1)).unwrap());
        assert!(disk.wait_for(1, PATIENCE), "the cut gets to the device");
        let (taken, took) = mpsc::channel();
        let one = Arc::clone(&hangs);
        let giving = std::thread::spawn(move || {
            let roles = Roles::default();
            let sender = taken.clone();
            roles.give(key(0), &one, role(ME, 5), &clock, move || sender.send("a role").unwrap());
            roles.forget(&key(0));
            taken.send("it is forgotten").unwrap();
        });
        assert_eq!(took.recv_timeout(PATIENCE), Ok("it is forgotten"));
        giving.join().unwrap();
        disk.open_gate();
        cut.join().unwrap();
        // What was to be done goes with the role, and so does its end of the channel.
        assert_eq!(took.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
        assert_eq!(hangs.epoch(), LeaderEpoch(4));
    }
}
