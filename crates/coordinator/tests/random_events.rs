//! Random requests, commits, failures, restarts and passing time. Checked after every step:
//!
//! - every request gets exactly one answer;
//! - replaying what is appended gives the live durable state;
//! - an acknowledged offset is in the committed log, and later fetches show it or a later one (C13);
//! - one generation has one assignment, and commits of older generations are refused (C14);
//! - deadlines come: left alone, every group loses its members, then its offsets, then itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coordinator::records::Record;
use coordinator::request::*;
use coordinator::{
    Effects, Event, GroupConfig, GroupId, Loader, MemberId, RecordBytes, ReplyTo, Response, Shard,
    WriteId,
};
use model::{ErrorCode, GenerationId, LeaderEpoch, Offset, PartitionIndex, Timestamp, Uuid};
use proptest::prelude::*;

/// One random step. The numbers choose among what there is.
#[derive(Clone, Debug)]
enum Op {
    Join { group: u8, who: u8, is_static: bool, is_old_client: bool, protocols: u8, timeouts: u8 },
    Sync { who: u8, old_generation: bool },
    Heartbeat { who: u8, old_generation: bool },
    Leave { who: u8, by_instance: bool },
    Commit { who: u8, as_nobody: bool, old_generation: bool, partition: u8 },
    Fetch { group: u8 },
    DeleteOffsets { group: u8, partition: u8 },
    Describe { group: u8 },
    List,
    Delete { group: u8 },
    TopicsDeleted { topic: u8 },
    Committed { count: u8 },
    Fail { keep: u8 },
    Restart { with_tail: u8 },
    Wait { ms: u16 },
}

fn op() -> impl Strategy<Value = Op> {
    use Op::*;
    let (group, who) = (0u8..2, any::<u8>());
    prop_oneof![
        8 => (group.clone(), who, any::<(bool, bool)>(), 0u8..3, any::<u8>()).prop_map(
            |(group, who, (is_static, is_old_client), protocols, timeouts)| {
                Join { group, who, is_static, is_old_client, protocols, timeouts }
            }
        ),
        8 => (who, any::<u8>()).prop_map(|(who, n)| Sync { who, old_generation: n < 20 }),
        3 => (who, any::<u8>())
            .prop_map(|(who, n)| Heartbeat { who, old_generation: n < 30 }),
        2 => (who, any::<bool>()).prop_map(|(who, by_instance)| Leave { who, by_instance }),
        5 => (who, any::<u8>(), any::<u8>(), 0u8..4).prop_map(|(who, a, b, partition)| Commit {
            who, as_nobody: a < 60, old_generation: b < 60, partition,
        }),
        3 => group.clone().prop_map(|group| Fetch { group }),
        1 => (group.clone(), 0u8..4)
            .prop_map(|(group, partition)| DeleteOffsets { group, partition }),
        1 => group.clone().prop_map(|group| Describe { group }),
        1 => Just(List),
        1 => group.prop_map(|group| Delete { group }),
        1 => (0u8..2).prop_map(|topic| TopicsDeleted { topic }),
        10 => (1u8..4).prop_map(|count| Committed { count }),
        1 => any::<u8>().prop_map(|keep| Fail { keep }),
        1 => any::<u8>().prop_map(|with_tail| Restart { with_tail }),
        6 => (0u16..12_000).prop_map(|ms| Wait { ms }),
    ]
}

/// What a client remembers of one of its joins.
#[derive(Clone, Debug)]
struct Membership {
    group: GroupId,
    member: MemberId,
    instance: Option<String>,
    generation: i32,
    /// Everyone, if it leads.
    members: Vec<MemberId>,
}

type Key = (GroupId, String, i32);

struct World {
    now: Timestamp,
    config: GroupConfig,
    shard: Option<Shard>,
    /// What is committed, decoded too.
    log: Vec<(RecordBytes, Record)>,
    tail: Vec<(WriteId, Vec<RecordBytes>)>,
    requests: u64,
    open: BTreeMap<ReplyTo, Request>,
    memberships: Vec<Membership>,
    /// Where in the log the last acknowledged offset of a partition stands, by the time of a fetch.
    acked: BTreeMap<Key, usize>,
    acked_at_fetch: BTreeMap<ReplyTo, BTreeMap<Key, usize>>,
    /// Which assignment a generation has.
    assignments: BTreeMap<(GroupId, i32), String>,
    /// The latest generation that anybody was told of.
    generations: BTreeMap<GroupId, i32>,
    /// Commits that were sent with a generation known to be over.
    outdated: BTreeSet<ReplyTo>,
}

use coordinator::Request;

fn config() -> GroupConfig {
    GroupConfig {
        group_size_max: 4,
        offsets_retention_ms: 100_000,
        offsets_retention_check_interval_ms: 10_000,
        new_member_join_timeout_ms: 30_000,
        ..GroupConfig::default()
    }
}

fn group_of(number: u8) -> GroupId {
    ["g", "h"][number as usize % 2].into()
}

fn key(group: &GroupId, topic: &str, partition: i32) -> Key {
    (group.clone(), topic.to_owned(), partition)
}

impl World {
    fn new() -> World {
        let now = Timestamp(1_000);
        World {
            now,
            config: config(),
            shard: Some(Shard::new(config(), now)),
            log: Vec::new(),
            tail: Vec::new(),
            requests: 0,
            open: BTreeMap::new(),
            memberships: Vec::new(),
            acked: BTreeMap::new(),
            acked_at_fetch: BTreeMap::new(),
            assignments: BTreeMap::new(),
            generations: BTreeMap::new(),
            outdated: BTreeSet::new(),
        }
    }

    fn step(&mut self, event: Event) {
        let mut effects = Effects::default();
        let shard = self.shard.as_mut().expect("there is one between two restarts");
        shard.step(self.now, event, &mut effects);
        shard.assert_consistent();
        self.carry_out(effects);
        self.check_replay();
    }

    fn carry_out(&mut self, effects: Effects) {
        for write in effects.writes {
            assert!(self.tail.last().is_none_or(|(last, _)| *last < write.id), "ids rise");
            self.tail.push((write.id, write.records));
        }
        for reply in effects.replies {
            let request = self.open.remove(&reply.to);
            let request = request.unwrap_or_else(|| panic!("{reply:?} to no open request"));
            self.answered(reply.to, request, reply.response);
        }
    }

    fn check_replay(&self) {
        let mut loader = Loader::new(self.config.clone());
        let tail = self.tail.iter().flat_map(|(_, records)| records);
        for record in self.log.iter().map(|(bytes, _)| bytes).chain(tail) {
            loader.replay(&record.key, record.value.as_deref()).expect("it was encoded here");
        }
        let (replayed, _) = loader.finish(self.now, |_, _| Default::default());
        let shard = self.shard.as_ref().expect("there is one between two restarts");
        assert_eq!(replayed.durable(), shard.durable());
    }

    fn answered(&mut self, to: ReplyTo, request: Request, response: Response) {
        match (request, response) {
            (Request::JoinGroup(request), Response::JoinGroup(response)) => {
                let is_member = response.error == ErrorCode::None;
                if !is_member && response.error != ErrorCode::MemberIdRequired {
                    return;
                }
                let generation = response.generation_id.0;
                if is_member {
                    let known = self.generations.entry(request.group.clone()).or_insert(0);
                    *known = generation.max(*known);
                    assert!(response.skip_assignment || response.protocol.is_some());
                }
                self.memberships.push(Membership {
                    group: request.group,
                    member: response.member,
                    instance: request.instance.map(|own| own.to_string()),
                    generation,
                    members: response.members.into_iter().map(|m| m.member).collect(),
                });
            }
            (Request::SyncGroup(request), Response::SyncGroup(response)) => {
                if response.error == ErrorCode::None && !response.assignment.is_empty() {
                    let told = String::from_utf8(response.assignment.to_vec()).expect("ours");
                    let generation = (request.group, request.generation_id.0);
                    let first = self.assignments.entry(generation).or_insert(told.clone());
                    assert_eq!(*first, told, "one generation has one assignment");
                }
            }
            (Request::OffsetCommit(request), Response::OffsetCommit(response)) => {
                let error = response.topics[0].1[0].1;
                if error == ErrorCode::None {
                    assert!(!self.outdated.contains(&to), "an older generation stored {request:?}");
                    self.acknowledged(&request);
                }
            }
            (Request::OffsetFetch(request), Response::OffsetFetch(response)) => {
                let acked = self.acked_at_fetch.remove(&to).expect("kept when it was sent");
                if response.error == ErrorCode::None {
                    for topic in response.topics {
                        for fetched in topic.1 {
                            let key = key(&request.group, &topic.0, fetched.partition.0);
                            self.check_fetched(&acked, &key, fetched.offset.0);
                        }
                    }
                }
            }
            (Request::Heartbeat(_), Response::Heartbeat(_))
            | (Request::LeaveGroup(_), Response::LeaveGroup(_))
            | (Request::OffsetDelete(_), Response::OffsetDelete(_))
            | (Request::DescribeGroup(_), Response::DescribeGroup(_))
            | (Request::ListGroups(_), Response::ListGroups(_))
            | (Request::DeleteGroup(_), Response::DeleteGroup(_)) => {}
            (request, response) => panic!("{response:?} to {request:?}"),
        }
    }

    /// Where the log says something of a partition, and what.
    fn history<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = (usize, Option<i64>)> + 'a {
        self.log.iter().enumerate().filter_map(move |(at, (_, record))| match record {
            Record::OffsetCommit { group, partition, value }
                if *group == key.0
                    && *partition.topic == *key.1
                    && partition.partition.0 == key.2 =>
            {
                Some((at, value.as_ref().map(|value| value.offset.0)))
            }
            _ => None,
        })
    }

    fn acknowledged(&mut self, request: &OffsetCommit) {
        let topic = &request.topics[0];
        let commit = &topic.partitions[0];
        let key = key(&request.group, &topic.topic, commit.partition.0);
        let stored = self.history(&key).find(|(_, offset)| *offset == Some(commit.offset.0));
        let (at, _) = stored.expect("an acknowledged offset is in the committed log");
        let last = self.acked.entry(key).or_insert(at);
        *last = at.max(*last);
    }

    fn check_fetched(&self, acked: &BTreeMap<Key, usize>, key: &Key, offset: i64) {
        let acked = acked.get(key).copied();
        let wanted = (offset != -1).then_some(offset);
        // Nothing may be known of the partition at all; else what was told stands in the log, at or
        // behind what was acknowledged before the question.
        let nothing = wanted.is_none() && acked.is_none();
        let told = self.history(key).any(|(at, stored)| stored == wanted && acked <= Some(at));
        assert!(nothing || told, "{key:?} is {offset}, acknowledged at {acked:?}");
    }

    fn request(&mut self, request: Request) {
        self.requests += 1;
        let reply_to = ReplyTo(self.requests);
        if let Request::OffsetFetch(_) = request {
            self.acked_at_fetch.insert(reply_to, self.acked.clone());
        }
        if let Request::OffsetCommit(commit) = &request {
            let known = self.generations.get(&commit.group).copied().unwrap_or(0);
            if commit.generation_id.0 >= 0 && commit.generation_id.0 < known {
                self.outdated.insert(reply_to);
            }
        }
        self.open.insert(reply_to, request.clone());
        self.step(Event::Request { reply_to, request });
    }

    fn membership(&self, who: u8) -> Option<Membership> {
        // The later ones are more interesting.
        let recent = self.memberships.len().min(8);
        let at = self.memberships.len()
            - 1
            - who as usize % recent.max(1).min(self.memberships.len().max(1));
        self.memberships.get(at).cloned()
    }

    fn run(&mut self, op: Op) {
        let has_members = !self.memberships.is_empty();
        match op {
            Op::Join { group, who, is_static, is_old_client, protocols, timeouts } => {
                let join = self.join(group, who, is_static, is_old_client, protocols, timeouts);
                self.request(Request::JoinGroup(join));
            }
            Op::Sync { who, old_generation } if has_members => self.sync(who, old_generation),
            Op::Heartbeat { who, old_generation } if has_members => {
                let own = self.membership(who).expect("there are some");
                let generation_id = GenerationId(own.generation - i32::from(old_generation));
                let (group, member, instance) =
                    (own.group, own.member, own.instance.as_deref().map(Into::into));
                let request = Heartbeat { group, member, instance, generation_id };
                self.request(Request::Heartbeat(request));
            }
            Op::Leave { who, by_instance } if has_members => {
                let own = self.membership(who).expect("there are some");
                let by_instance = by_instance && own.instance.is_some();
                let member = if by_instance { MemberId::default() } else { own.member };
                let instance = own.instance.as_deref().map(Into::into);
                let members = vec![Leaving { member, instance, reason: None }];
                self.request(Request::LeaveGroup(LeaveGroup { group: own.group, members }));
            }
            Op::Commit { who, as_nobody, old_generation, partition } => {
                self.commit(who, as_nobody || !has_members, old_generation, partition);
            }
            Op::Fetch { group } => {
                let partitions = vec![PartitionIndex(0), PartitionIndex(1)];
                let of = |topic: &str| TopicPartitions {
                    topic: topic.into(),
                    partitions: partitions.clone(),
                };
                let (group, topics) = (group_of(group), Some(vec![of("t"), of("u")]));
                let request = OffsetFetch { group, topics, require_stable: true };
                self.request(Request::OffsetFetch(request));
            }
            Op::DeleteOffsets { group, partition } => {
                let (topic, partition) = partition_of(partition);
                let topics = vec![TopicPartitions { topic, partitions: vec![partition] }];
                let request = OffsetDelete { group: group_of(group), topics };
                self.request(Request::OffsetDelete(request));
            }
            Op::Describe { group } => self.request(Request::DescribeGroup(group_of(group))),
            Op::List => self.request(Request::ListGroups(ListGroups::default())),
            Op::Delete { group } => {
                // A group that is made again begins with generation 0.
                let group = group_of(group);
                self.request(Request::DeleteGroup(group.clone()));
                if self.shard.as_ref().expect("it runs").durable().group(&group).is_none() {
                    self.forget_generations(&group);
                }
            }
            Op::TopicsDeleted { topic } => {
                let name = Arc::from(["t", "u"][topic as usize % 2]);
                let topics = vec![(name, Uuid::ZERO)];
                self.step(Event::TopicsDeleted { topics });
            }
            Op::Committed { count } => self.committed(count as usize),
            Op::Fail { keep } if !self.tail.is_empty() => {
                let keep = keep as usize % self.tail.len();
                let from = self.tail[keep].0;
                self.tail.truncate(keep);
                self.step(Event::AppendFailed { from, error: ErrorCode::NotEnoughReplicas });
            }
            Op::Restart { with_tail } => {
                let count = with_tail as usize % (self.tail.len() + 1);
                self.restart(count);
            }
            Op::Wait { ms } => self.wait(ms as i64),
            _ => {}
        }
    }

    fn forget_generations(&mut self, group: &GroupId) {
        self.generations.remove(group);
        self.assignments.retain(|(own, _), _| own != group);
        self.memberships.retain(|own| own.group != *group);
    }

    fn join(
        &mut self,
        group: u8,
        who: u8,
        is_static: bool,
        is_old_client: bool,
        protocols: u8,
        timeouts: u8,
    ) -> JoinGroup {
        let known = (who < 180 && !self.memberships.is_empty())
            .then(|| self.membership(who).expect("there are some"));
        let instance = match &known {
            Some(known) => known.instance.clone(),
            None => is_static.then(|| format!("i{}", who % 3)),
        };
        // A static member that comes back has often forgotten its id.
        let member = match &known {
            Some(known) if known.instance.is_none() || !who.is_multiple_of(3) => {
                known.member.clone()
            }
            _ => MemberId::default(),
        };
        let names: &[&str] =
            [&["range"][..], &["range", "sticky"], &["sticky", "range"]][protocols as usize % 3];
        let topic = if who.is_multiple_of(2) { "t" } else { "u" };
        let protocol = |name: &&str| {
            let metadata = [&[0, 0, 0, 0, 0, 1, 0, 1][..], topic.as_bytes()].concat().into();
            Protocol { name: (*name).into(), metadata }
        };
        let mut uuid = [0; 16];
        uuid[8..].copy_from_slice(&(self.requests + 1).to_be_bytes());
        JoinGroup {
            lent_identity: coordinator::request::Lent::default(),
            lent: coordinator::request::Lent::default(),
            group: known.map_or_else(|| group_of(group), |known| known.group),
            member,
            uuid: Uuid(uuid),
            client_id: "c".into(),
            client_host: "/127.0.0.1".into(),
            instance: instance.as_deref().map(Into::into),
            session_timeout_ms: 6_000 + (timeouts as i32 % 4) * 5_000,
            rebalance_timeout_ms: (timeouts as i32 / 4 % 4) * 6_000,
            protocol_type: "consumer".into(),
            protocols: names.iter().map(protocol).collect(),
            reason: None,
            require_known_member_id: !is_old_client,
            supports_skip_assignment: timeouts.is_multiple_of(2),
        }
    }

    fn sync(&mut self, who: u8, old_generation: bool) {
        let own = self.membership(who).expect("there are some");
        // Every assignment is another one, and names itself to everyone.
        let name = format!("assignment {}", self.requests);
        let assignments = own.members.iter().map(|m| (m.clone(), Arc::from(name.as_bytes())));
        let request = SyncGroup {
            group: own.group,
            member: own.member,
            instance: own.instance.as_deref().map(Into::into),
            generation_id: GenerationId(own.generation - i32::from(old_generation)),
            protocol_type: None,
            protocol: None,
            require_protocol: false,
            assignments: assignments.collect(),
            lent: coordinator::request::Lent::default(),
        };
        self.request(Request::SyncGroup(request));
    }

    fn commit(&mut self, who: u8, as_nobody: bool, old_generation: bool, partition: u8) {
        let own = (!as_nobody).then(|| self.membership(who).expect("there are some"));
        let (topic, partition) = partition_of(partition);
        let commit = PartitionCommit {
            partition,
            offset: Offset(self.requests as i64),
            leader_epoch: LeaderEpoch::NONE,
            metadata: "".into(),
        };
        let topic_id = Uuid::ZERO;
        let topics = vec![TopicCommits { topic, topic_id, partitions: vec![commit] }];
        let request = match own {
            None => OffsetCommit {
                lent: coordinator::request::Lent::default(),
                lent_metadata: coordinator::request::Lent::default(),
                group: group_of(who),
                member: MemberId::default(),
                instance: None,
                generation_id: GenerationId(-1),
                retention_ms: None,
                topics,
            },
            Some(own) => OffsetCommit {
                lent: coordinator::request::Lent::default(),
                lent_metadata: coordinator::request::Lent::default(),
                group: own.group,
                member: own.member,
                instance: own.instance.as_deref().map(Into::into),
                generation_id: GenerationId(own.generation - i32::from(old_generation)),
                retention_ms: who.is_multiple_of(4).then_some(50_000),
                topics,
            },
        };
        self.request(Request::OffsetCommit(request));
    }

    fn append_to_log(&mut self, records: Vec<RecordBytes>) {
        for bytes in records {
            let record = Record::decode(&bytes.key, bytes.value.as_deref());
            let record = record.expect("it was encoded here").expect("it is of a classic group");
            if let Record::GroupMetadata { group, value: None } = &record {
                self.forget_generations(&group.clone());
            }
            self.log.push((bytes, record));
        }
    }

    fn committed(&mut self, count: usize) {
        let count = count.min(self.tail.len());
        let moved: Vec<_> = self.tail.drain(..count).collect();
        let Some(&(write, _)) = moved.last() else { return };
        moved.into_iter().for_each(|(_, records)| self.append_to_log(records));
        self.step(Event::Committed { write });
    }

    /// Another broker takes over, with what is committed and `count` of the rest.
    fn restart(&mut self, count: usize) {
        let mut effects = Effects::default();
        self.shard.take().expect("it runs").unload(&mut effects);
        let tail = std::mem::take(&mut self.tail);
        self.carry_out(effects);
        assert!(self.open.is_empty(), "{:?} were never answered", self.open);
        tail.into_iter().take(count).for_each(|(_, records)| self.append_to_log(records));
        let mut loader = Loader::new(self.config.clone());
        for (record, _) in &self.log {
            loader.replay(&record.key, record.value.as_deref()).expect("it was encoded here");
        }
        let (shard, effects) = loader.finish(self.now, |_, _| Default::default());
        shard.assert_consistent();
        self.generations.clear();
        for group in [group_of(0), group_of(1)] {
            if let Some(record) = shard.durable().group(&group) {
                self.generations.insert(group, record.generation_id.0);
            }
        }
        self.shard = Some(shard);
        self.carry_out(effects);
        self.check_replay();
    }

    fn wait(&mut self, ms: i64) {
        let target = self.now.plus_ms(ms);
        let mut fired = 0;
        let next = |world: &World| world.shard.as_ref().expect("it runs").next_deadline();
        while let Some(deadline) = next(self).filter(|deadline| *deadline <= target) {
            self.now = self.now.max(deadline);
            self.step(Event::Expire);
            fired += 1;
            assert!(fired < 10_000, "deadlines do not come to an end");
        }
        self.now = target;
    }

    /// Left alone, with a log that works, nothing stays.
    fn come_to_an_end(&mut self) {
        for _ in 0..60 {
            self.wait(10_000);
            self.committed(usize::MAX);
        }
        assert!(self.open.is_empty(), "{:?} were never answered", self.open);
        let shard = self.shard.as_ref().expect("it runs");
        assert_eq!(*shard.durable(), Default::default(), "something never expires");
        self.requests += 1;
        let reply_to = ReplyTo(self.requests);
        let request = Request::ListGroups(ListGroups::default());
        let mut effects = Effects::default();
        let event = Event::Request { reply_to, request };
        self.shard.as_mut().expect("it runs").step(self.now, event, &mut effects);
        let Response::ListGroups(list) = &effects.replies[0].response else { panic!("no list") };
        assert!(list.groups.is_empty(), "{list:?}");
    }
}

fn partition_of(number: u8) -> (Arc<str>, PartitionIndex) {
    (["t", "u"][number as usize % 2].into(), PartitionIndex(number as i32 / 2 % 2))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn promises_hold_whatever_happens(ops in proptest::collection::vec(op(), 1..120)) {
        let mut world = World::new();
        for op in ops {
            world.run(op);
        }
        world.come_to_an_end();
    }
}
