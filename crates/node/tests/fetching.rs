//! Which requests a follower sends to a leader, and when: partitions on simulated disks, and a clock that is set by hand.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use model::record::BatchBuilder;
use model::{
    BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, Moment, Offset, PartitionIndex, Timestamp,
    TopicPartition, Uuid,
};
use node::{Answered, Ask, Effects, Event, Fetcher, Key, ReplicaAnswerError};
use partition::{
    AssignedReplica, Assignment, Partition, ReplicaAnswer, Settings, Standing, SyncQueue,
    TruncationLimit, Urgency,
};
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
    replica_in(Uuid::from_random([1; 16]), index)
}

/// The same in the topic with this id.
fn replica_in(id: Uuid, index: i32) -> Arc<Partition> {
    let settings = Arc::new(Settings::default());
    let log_dir = LogDir::new(Arc::new(SimDisk::new()), PathBuf::from("data")).unwrap();
    let name = TopicPartition::new("t", index);
    let opening = log_dir.begin_loading().unwrap().opening(&name, CLOCK);
    let (disk, dir) = (Arc::clone(log_dir.disk()), log_dir.partition_dir(&name));
    let mut log = Log::open(disk, dir, Arc::clone(&settings.log), opening).unwrap();
    log.begin_dense();
    let queue = Arc::<SyncQueue>::default();
    let partition = Partition::new(name, id, FOLLOWER, log, settings, Offset(0), queue);
    partition.assign(assignment(3), Moment::START);
    partition
}

fn assignment(epoch: i32) -> Assignment {
    let standing = |broker| AssignedReplica { broker, standing: Standing::Serves(BrokerEpoch(1)) };
    Assignment {
        leader: LEADER,
        leader_epoch: LeaderEpoch(epoch),
        partition_epoch: epoch,
        replicas: vec![standing(LEADER), standing(FOLLOWER)],
        isr: vec![LEADER, FOLLOWER],
        recovering: false,
        truncation: TruncationLimit::Unlimited,
        awaits_durability: false,
    }
}

/// One record, as a leader of leader epoch 1 wrote it.
fn batch() -> Vec<u8> {
    let mut batch = BatchBuilder::new().placed(Offset(0), LeaderEpoch(1));
    batch.add(CLOCK, None, Some(b"v"));
    batch.finish()
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

#[test]
fn other_replicas_that_come_and_go_disturb_no_request() {
    let mut at = At { fetcher: Fetcher::new(LEADER), now: Moment::START };
    let partition = replica(0);
    let (first, _) = at.step(Event::Follow(key(0), Arc::clone(&partition)));
    assert!(first.is_some());
    // The ISR changes, in the same leader epoch.
    let again = Event::Follow(key(0), Arc::clone(&partition));
    assert_eq!(at.step(again), (None, None), "the request holds");
    // In another leader epoch its answer would be of no use.
    partition.assign(assignment(4), Moment::START);
    let (_, look_at) = at.step(Event::Follow(key(0), partition));
    assert!(look_at.is_some(), "the request is not waited for");
    // Nor is one that lacks this replica, because it is another one of the same partition.
    let mut at = At { fetcher: Fetcher::new(LEADER), now: Moment::START };
    at.step(Event::Follow(key(0), replica(0)));
    let (_, look_at) = at.step(Event::Follow(key(0), replica(0)));
    assert!(look_at.is_some());
}

#[test]
fn a_request_waits_at_the_leader_no_longer_than_a_partition_rests() {
    let mut at = At { fetcher: Fetcher::new(LEADER), now: Moment::START };
    let (first, _) = at.step(Event::Follow(key(0), replica(0)));
    at.step(Event::Follow(key(1), replica(1)));
    let (both, _) = at.step(nothing_new(&first.expect("a request")));
    let both = both.expect("the next");
    assert_eq!((both.partitions.len(), both.wait_max), (2, None), "nothing rests");
    let Event::Answered(number, mut answers) = nothing_new(&both) else { unreachable!() };
    answers[1].1 = Err(ReplicaAnswerError::Other(ErrorCode::NotLeaderOrFollower));
    let (one, _) = at.step(Event::Answered(number, answers));
    let one = one.expect("the other one goes on");
    assert_eq!(keys(&one), [key(0)]);
    let rest = one.wait_max.expect("one partition rests");
    assert!(rest <= Duration::from_millis(100), "{rest:?}");
    at.now = at.now.plus(rest);
    let (both, _) = at.step(nothing_new(&one));
    assert_eq!(both.map(|ask| (keys(&ask), ask.wait_max)), Some((vec![key(0), key(1)], None)));
}

/// A leader's answer in leader epoch 3 that brings these records.
fn answer_with(records: &[u8]) -> ReplicaAnswer<'_> {
    ReplicaAnswer {
        asked_in: LeaderEpoch(3),
        diverging: None,
        high_watermark: Offset(0),
        log_start: Offset(0),
        records,
    }
}

#[test]
fn nothing_is_asked_while_a_log_is_to_be_cut() {
    let mut at = At { fetcher: Fetcher::new(LEADER), now: Moment::START };
    let partition = replica(0);
    let record = batch();
    let answer = answer_with(&record);
    partition.follow_answer(&answer, CLOCK).unwrap();
    partition.begin_sync(Urgency::Now).unwrap().run().unwrap();
    let (first, _) = at.step(Event::Follow(key(0), Arc::clone(&partition)));
    at.step(Event::Follow(key(1), replica(1)));
    let (both, _) = at.step(nothing_new(&first.expect("a request")));
    let Event::Answered(number, mut answers) = nothing_new(&both.expect("the next")) else {
        unreachable!()
    };
    answers[0].1.as_mut().unwrap().diverging = Some((LeaderEpoch(0), Offset(0)));
    let mut effects = Effects::default();
    at.fetcher.step(at.now, CLOCK, Event::Answered(number, answers), &mut effects);
    assert_eq!(effects.ask, None, "a request without it would wait at the leader");
    let (_, _, cut) = effects.cuts.pop().expect("a cut");
    partition.cut(cut.to).unwrap();
    let (both, _) = at.step(Event::Look);
    assert_eq!(both.map(|ask| (keys(&ask), ask.wait_max)), Some((vec![key(0), key(1)], None)));
}

#[test]
fn a_cut_that_failed_holds_up_nobody_else() {
    let mut at = At { fetcher: Fetcher::new(LEADER), now: Moment::START };
    let partition = replica(0);
    let record = batch();
    let mut answer = answer_with(&record);
    partition.follow_answer(&answer, CLOCK).unwrap();
    answer.diverging = Some((LeaderEpoch(0), Offset(0)));
    partition.follow_answer(&answer, CLOCK).unwrap();
    let mut effects = Effects::default();
    at.fetcher.step(at.now, CLOCK, Event::Follow(key(0), partition), &mut effects);
    assert_eq!(effects.cuts.len(), 1, "it is still to be made");
    let (ask, _) = at.step(Event::Follow(key(1), replica(1)));
    let ask = ask.expect("the others go on");
    assert_eq!(keys(&ask), [key(1)]);
    let wait = ask.wait_max.expect("until it is tried again");
    at.now = at.now.plus(wait);
    let mut effects = Effects::default();
    at.fetcher.step(at.now, CLOCK, nothing_new(&ask), &mut effects);
    assert_eq!(effects.cuts.len(), 1, "it is tried again");
}

/// The leader has deleted all records that would prove both logs equal.
#[test]
fn a_log_that_starts_over_at_its_end_rests_and_then_takes_what_follows() {
    let mut at = At { fetcher: Fetcher::new(LEADER), now: Moment::START };
    let partition = replica(0);
    partition.follow_answer(&answer_with(&batch()), CLOCK).unwrap();
    partition.begin_sync(Urgency::Now).unwrap().run().unwrap();
    partition.assign(assignment(4), Moment::START);
    let (ask, _) = at.step(Event::Follow(key(0), Arc::clone(&partition)));
    let mut following = BatchBuilder::new().placed(Offset(1), LeaderEpoch(4));
    following.add(CLOCK, None, Some(b"v"));
    let answered = Answered {
        diverging: None,
        high_watermark: Offset(2),
        log_start: Offset(1),
        records: following.finish().into(),
    };
    let answer_to = |ask: Option<Ask>| {
        Event::Answered(ask.expect("a request").number, vec![(key(0), Ok(answered.clone()))])
    };
    let mut effects = Effects::default();
    at.fetcher.step(at.now, CLOCK, answer_to(ask), &mut effects);
    let due = effects.start_overs.pop().expect("the log is to be emptied");
    assert_eq!((due.key, due.leader_epoch, due.start), (key(0), LeaderEpoch(4), Offset(1)));
    assert!(effects.ask.is_none() && !due.takes_committed);
    assert_eq!(partition.with_log(Log::log_end_offset), Offset(1), "nothing is appended before");
    // Where that finds no room, the same answer would arrive again and again.
    let (none, look_at) = at.step(Event::Look);
    assert!(none.is_none(), "it rests");
    partition.start_over(due.leader_epoch, due.start, || Ok(())).unwrap();
    at.now = look_at.expect("not for ever");
    let (ask, _) = at.step(Event::Look);
    at.step(answer_to(ask));
    let ends = partition.with_log(|log| (log.log_start_offset(), log.log_end_offset()));
    assert_eq!(ends, (Offset(1), Offset(2)));
}

/// The journal's entry that there may be gaps may find no room: what was fetched is not fetched again without a pause.
#[test]
fn a_partition_that_may_have_no_gaps_yet_rests_before_it_is_asked_for_again() {
    let mut at = At { fetcher: Fetcher::new(LEADER), now: Moment::START };
    let partition = replica(0);
    let first = self::batch();
    partition.follow_answer(&answer_with(&first), CLOCK).unwrap();
    partition.request_sync();
    partition.begin_sync(Urgency::Now).expect("a record").run().unwrap();
    let (ask, _) = at.step(Event::Follow(key(0), Arc::clone(&partition)));
    let mut batch = BatchBuilder::new().placed(Offset(5), LeaderEpoch(1));
    batch.add(CLOCK, None, Some(b"v"));
    let answered = Answered {
        diverging: None,
        high_watermark: Offset(6),
        log_start: Offset(0),
        records: batch.finish().into(),
    };
    let mut effects = Effects::default();
    let number = ask.unwrap().number;
    let answers = vec![(key(0), Ok(answered))];
    at.fetcher.step(at.now, CLOCK, Event::Answered(number, answers), &mut effects);
    assert_eq!(effects.gaps.len(), 1);
    let (none, look_at) = at.step(Event::Look);
    assert!(none.is_none(), "it rests");
    at.now = look_at.expect("not for ever");
    let (again, _) = at.step(Event::Look);
    assert_eq!(again.map(|ask| keys(&ask)), Some(vec![key(0)]));
}

/// End of the log of a partition that follows the same leader in the same leader epoch as the partition of a deleted topic with the
/// same name and number, when the answer to a request for the deleted one arrives.
fn end_after_an_answer_for_the_deleted_topic() -> Offset {
    let mut at = At { fetcher: Fetcher::new(LEADER), now: Moment::START };
    let (ask, _) = at.step(Event::Follow(key(0), replica(0)));
    let ask = ask.expect("a request for it");
    let id = Uuid::from_random([2; 16]);
    let created = replica_in(id, 0);
    at.step(Event::Leave(key(0)));
    at.step(Event::Follow(Key { topic_id: id, ..key(0) }, Arc::clone(&created)));
    let records = Answered {
        diverging: None,
        high_watermark: Offset(1),
        log_start: Offset(0),
        records: batch().into(),
    };
    at.step(Event::Answered(ask.number, vec![(key(0), Ok(records))]));
    created.with_log(Log::log_end_offset)
}

#[test]
fn a_partition_of_a_topic_that_was_created_again_takes_no_answer_for_the_deleted_one() {
    assert_eq!(end_after_an_answer_for_the_deleted_topic(), Offset(0));
    #[cfg(debug_assertions)]
    {
        node::mutants::plant(Some(node::mutants::Mutant::AnswersByNumber));
        let end = end_after_an_answer_for_the_deleted_topic();
        node::mutants::plant(None);
        assert_eq!(end, Offset(1), "the test finds the rule left out");
    }
}
