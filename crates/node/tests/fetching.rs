//! Which requests a follower sends to a leader, and when: partitions on simulated disks, and a clock that is set by hand.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use model::{
    BrokerEpoch, BrokerId, LeaderEpoch, Moment, Offset, PartitionIndex, Timestamp, TopicPartition,
    Uuid,
};
use node::{Answered, Ask, Effects, Event, Fetcher, Key};
use partition::{AssignedReplica, Assignment, Partition, Settings, Standing, SyncQueue};
use storage::Log;
use storage::disk::SimDisk;
use storage::log_dir::LogDir;

const LEADER: BrokerId = BrokerId(1);
const FOLLOWER: BrokerId = BrokerId(2);
const CLOCK: Timestamp = Timestamp(1_000_000);

fn key(index: i32) -> Key {
    Key { topic_id: Uuid::from_random([1; 16]), partition: PartitionIndex(index) }
}

/// An empty replica that follows the leader.
fn replica(index: i32) -> Arc<Partition> {
    let settings = Arc::new(Settings::default());
    let log_dir = LogDir::new(Arc::new(SimDisk::new()), PathBuf::from("data")).unwrap();
    let name = TopicPartition::new("t", index);
    let opening = log_dir.begin_loading().unwrap().opening(&name, CLOCK);
    let (disk, dir) = (Arc::clone(log_dir.disk()), log_dir.partition_dir(&name));
    let log = Log::open(disk, dir, Arc::clone(&settings.log), opening).unwrap();
    let (id, queue) = (Uuid::from_random([1; 16]), Arc::<SyncQueue>::default());
    let partition = Partition::new(name, id, FOLLOWER, log, settings, Offset(0), queue);
    let standing = |broker| AssignedReplica { broker, standing: Standing::Serves(BrokerEpoch(1)) };
    let assignment = Assignment {
        leader: LEADER,
        leader_epoch: LeaderEpoch(3),
        partition_epoch: 3,
        replicas: vec![standing(LEADER), standing(FOLLOWER)],
        isr: vec![LEADER, FOLLOWER],
        recovering: false,
    };
    partition.assign(assignment, Moment::START);
    partition
}

/// A fetcher at a time.
struct At {
    fetcher: Fetcher,
    now: Moment,
}

impl At {
    /// What is sent because of this event, and when the fetcher wants to look again.
    fn step(&mut self, event: Event) -> (Option<Ask>, Option<Moment>) {
        let mut effects = Effects::default();
        self.fetcher.step(self.now, CLOCK, event, &mut effects);
        (effects.ask, effects.look_at)
    }
}

fn keys(ask: &Ask) -> Vec<Key> {
    ask.partitions.iter().map(|(key, _)| *key).collect()
}

/// An answer without records.
fn nothing_new(ask: &Ask) -> Event {
    let nothing = |_| {
        Ok(Answered {
            diverging: None,
            high_watermark: Offset(0),
            log_start: Offset(0),
            records: Default::default(),
        })
    };
    Event::Answered(ask.number, keys(ask).into_iter().map(|key| (key, nothing(key))).collect())
}

#[test]
fn a_request_that_lacks_a_new_partition_is_not_waited_for() {
    let mut at = At { fetcher: Fetcher::new(LEADER), now: Moment::START };
    let (first, _) = at.step(Event::Follow(key(0), replica(0)));
    let first = first.expect("a request for it");
    // The leader has nothing new and lets the request wait; then its neighbour ends, and more partitions come here.
    at.now = at.now.plus(Duration::from_millis(100));
    for index in 1..4 {
        let (ask, look_at) = at.step(Event::Follow(key(index), replica(index)));
        assert_eq!(ask, None, "others may come with it");
        assert!(look_at.is_some_and(|look_at| look_at <= at.now.plus(Duration::from_millis(20))));
    }
    let (ask, look_at) = at.step(Event::Look);
    assert_eq!(ask, None, "too soon");
    at.now = look_at.expect("it is not forgotten");
    let (second, look_at) = at.step(Event::Look);
    let second = second.expect("a request in place of the one that waits");
    assert_eq!(keys(&second), [key(0), key(1), key(2), key(3)]);
    assert!(second.number > first.number);
    assert_eq!(look_at, None);
    // An answer to the one before has no meaning any more.
    assert_eq!(at.step(nothing_new(&first)), (None, None));
    let (third, _) = at.step(nothing_new(&second));
    assert_eq!(third.map(|ask| ask.number), Some(second.number + 1));
}

#[test]
fn an_answer_that_comes_in_time_is_taken_and_the_next_request_has_the_new_partition() {
    let mut at = At { fetcher: Fetcher::new(LEADER), now: Moment::START };
    let (first, _) = at.step(Event::Follow(key(0), replica(0)));
    let (_, look_at) = at.step(Event::Follow(key(1), replica(1)));
    assert!(look_at.is_some());
    let (second, look_at) = at.step(nothing_new(&first.expect("a request")));
    assert_eq!(keys(&second.expect("the next")), [key(0), key(1)]);
    assert_eq!(look_at, None);
    at.now = at.now.plus(Duration::from_secs(10));
    assert_eq!(at.step(Event::Look), (None, None), "it lacks nothing: it may wait at the leader");
}
