//! Memory that a shard keeps for requests, measured at the allocator, against the bytes of the host's loans:
//! each string and each list of each request at its greatest legal length. Strings are at most 32,767 bytes,
//! as the record formats demand.
//!
//! One test, so that nothing else allocates meanwhile.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use coordinator::request::{
    Heartbeat, JoinGroup, LeaveGroup, Leaving, Lent, MemoryLoan, OffsetCommit, PartitionCommit,
    Protocol, SyncGroup, TopicCommits,
};
use coordinator::{
    Effects, Event, GroupConfig, GroupId, MemberId, ReplyTo, Request, Response, Shard,
};
use model::{ErrorCode, GenerationId, LeaderEpoch, Offset, PartitionIndex, Timestamp, Uuid};

const STRING_BYTES_MAX: usize = 32_767;
/// The longest front of a member id: the shard adds 37 bytes.
const FRONT_BYTES_MAX: usize = STRING_BYTES_MAX - 37;
const SESSION_MS: i32 = 1_800_000;
/// Groups of one measurement.
const GROUPS: u64 = 5;
/// Memory of a measurement that no request causes, such as spare capacity of lists of the shard.
const SLACK_BYTES: usize = 64 << 10;

/// Bytes of all loans.
#[derive(Clone, Default)]
struct Ledger(Arc<AtomicUsize>);

struct Account {
    all: Ledger,
    own: AtomicUsize,
}

impl MemoryLoan for Account {
    fn bytes(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    fn set_bytes(&self, bytes: usize) {
        let before = self.own.swap(bytes, Ordering::Relaxed);
        self.all.0.fetch_add(bytes, Ordering::Relaxed);
        self.all.0.fetch_sub(before, Ordering::Relaxed);
    }

    fn mark_pending(&self, _: bool) {}
}

impl Drop for Account {
    fn drop(&mut self) {
        self.set_bytes(0);
    }
}

impl Ledger {
    fn lend(&self, bytes: usize) -> Lent {
        let account = Account { all: self.clone(), own: AtomicUsize::new(0) };
        account.set_bytes(bytes);
        Lent::new(account)
    }
}

/// Lengths of the strings and lists of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lengths {
    group: usize,
    client_id: usize,
    instance: usize,
    protocol_type: usize,
    protocol_name: usize,
    protocols: usize,
    metadata: usize,
    reason: usize,
    assignment: usize,
    assignments: usize,
    offset_metadata: usize,
    offsets: usize,
}

const SHORT: Lengths = Lengths {
    group: 8,
    client_id: 8,
    instance: 0,
    protocol_type: 8,
    protocol_name: 8,
    protocols: 1,
    metadata: 16,
    reason: 8,
    assignment: 16,
    assignments: 1,
    offset_metadata: 8,
    offsets: 1,
};

/// Each length at its greatest legal value, or at one that shows the cost of each item of a list.
fn cases() -> Vec<Lengths> {
    vec![
        SHORT,
        Lengths { group: STRING_BYTES_MAX, ..SHORT },
        Lengths { client_id: FRONT_BYTES_MAX, ..SHORT },
        Lengths { instance: FRONT_BYTES_MAX, ..SHORT },
        Lengths { protocol_type: STRING_BYTES_MAX, ..SHORT },
        Lengths { protocol_name: STRING_BYTES_MAX, ..SHORT },
        Lengths { protocols: 2_000, ..SHORT },
        Lengths { metadata: 256 << 10, ..SHORT },
        Lengths { reason: STRING_BYTES_MAX, ..SHORT },
        Lengths { assignment: 256 << 10, ..SHORT },
        Lengths { assignments: 2_000, ..SHORT },
        Lengths { offset_metadata: 3 * 4_096, offsets: 20, ..SHORT },
        Lengths { offsets: 2_000, ..SHORT },
    ]
}

struct Measured {
    shard: Shard,
    ledger: Ledger,
    now: Timestamp,
    next_reply: u64,
}

impl Measured {
    fn new() -> Measured {
        let shard = Shard::new(GroupConfig::default(), Timestamp(0));
        Measured { shard, ledger: Ledger::default(), now: Timestamp(0), next_reply: 0 }
    }

    /// Sends a request; commits all writes, and returns the answers.
    fn send(&mut self, request: Request) -> Vec<Response> {
        let reply_to = ReplyTo(self.next_reply);
        self.next_reply += 1;
        self.step(Event::Request { reply_to, request })
    }

    fn step(&mut self, event: Event) -> Vec<Response> {
        let mut effects = Effects::default();
        self.shard.step(self.now, event, &mut effects);
        while let Some(last) = effects.writes.pop() {
            effects.writes.clear();
            self.shard.step(self.now, Event::Committed { write: last.id }, &mut effects);
        }
        effects.replies.into_iter().map(|reply| reply.response).collect()
    }

    /// Lets the join phases of new groups end.
    fn pass_initial_delay(&mut self) -> Vec<Response> {
        self.now = self.now.plus_ms(3_000);
        self.step(Event::Expire)
    }

    fn join(&self, number: u64, member: &str, lengths: Lengths, is_known: bool) -> Request {
        let text = |fill: &str, length: usize| fill.repeat(length);
        let metadata = short_topics(lengths.metadata, number as u8);
        let protocol = |index: usize| Protocol {
            name: format!("{index:0width$}", width = lengths.protocol_name).into(),
            metadata: metadata.clone().into(),
        };
        let mut join = JoinGroup {
            group: group_id(number, lengths),
            member: member.into(),
            uuid: Uuid(u128::from(self.next_reply).to_be_bytes()),
            client_id: text("c", lengths.client_id).into(),
            client_host: "/127.0.0.1".into(),
            instance: (lengths.instance > 0).then(|| text("i", lengths.instance).into()),
            session_timeout_ms: SESSION_MS,
            rebalance_timeout_ms: SESSION_MS,
            protocol_type: match lengths.protocol_type {
                8 => "consumer".into(),
                length => text("t", length).into(),
            },
            protocols: (0..lengths.protocols).map(protocol).collect(),
            reason: Some(text("r", lengths.reason).into()),
            require_known_member_id: is_known,
            supports_skip_assignment: true,
            lent_identity: Lent::default(),
            lent: Lent::default(),
        };
        join.lent_identity = self.ledger.lend(join.kept_identity_bytes());
        join.lent = self.ledger.lend(join.kept_protocol_bytes());
        Request::JoinGroup(join)
    }

    fn sync(&self, number: u64, member: &MemberId, generation: i32, lengths: Lengths) -> Request {
        let assignment = |index: usize| {
            let id = if index == 0 { member.clone() } else { format!("other-{index}").into() };
            (id, Arc::from(vec![number as u8; lengths.assignment]))
        };
        let mut sync = SyncGroup {
            group: group_id(number, lengths),
            member: member.clone(),
            instance: (lengths.instance > 0).then(|| "i".repeat(lengths.instance).into()),
            generation_id: GenerationId(generation),
            protocol_type: None,
            protocol: None,
            require_protocol: false,
            assignments: (0..lengths.assignments).map(assignment).collect(),
            lent: Lent::default(),
        };
        sync.lent = self.ledger.lend(sync.kept_bytes());
        Request::SyncGroup(sync)
    }

    fn commit(&self, number: u64, lengths: Lengths) -> Request {
        let offset = |index| PartitionCommit {
            partition: PartitionIndex(index as i32),
            offset: Offset(1),
            leader_epoch: LeaderEpoch(1),
            metadata: "€".repeat(lengths.offset_metadata / 3).into(),
        };
        let topic = TopicCommits {
            topic: "topic".into(),
            topic_id: Default::default(),
            partitions: (0..lengths.offsets).map(offset).collect(),
        };
        Request::OffsetCommit(OffsetCommit {
            group: group_id(number, lengths),
            member: MemberId::default(),
            instance: None,
            generation_id: GenerationId(-1),
            retention_ms: None,
            topics: vec![topic],
            lent: self.ledger.lend(0),
            lent_metadata: Lent::default(),
        })
    }
}

/// A fresh copy of the id, as each request has one.
fn group_id(number: u64, lengths: Lengths) -> GroupId {
    format!("{number:0width$}", width = lengths.group).into()
}

/// A subscription of at most so many bytes that names as many topics as fit, of three bytes each.
fn short_topics(length: usize, first: u8) -> Vec<u8> {
    let count = length.saturating_sub(10) / 5;
    let mut bytes = vec![0, 0];
    bytes.extend((count as i32).to_be_bytes());
    for topic in 0..count {
        let digit = |shift: usize| b'!' + ((topic >> shift) % 64) as u8;
        bytes.extend([0, 3, digit(12), digit(6), digit(0)]);
    }
    bytes.resize(length.max(bytes.len()), first);
    bytes
}

fn joined(responses: Vec<Response>) -> Vec<(MemberId, ErrorCode)> {
    let joins = responses.into_iter().filter_map(|response| match response {
        Response::JoinGroup(join) => Some((join.member, join.error)),
        _ => None,
    });
    joins.collect()
}

/// A way to use the APIs, once for each group.
type Scenario = fn(&mut Measured, Lengths);

/// First joins, of which each gets an id and none comes back.
fn pending(measured: &mut Measured, lengths: Lengths) {
    for number in 0..GROUPS {
        let lengths = Lengths { instance: 0, ..lengths };
        let refused = joined(measured.send(measured.join(number, "", lengths, true)));
        assert_eq!(refused[0].1, ErrorCode::MemberIdRequired);
    }
}

/// First joins that are refused.
fn refused(measured: &mut Measured, lengths: Lengths) {
    for number in 0..GROUPS {
        let Request::JoinGroup(mut join) = measured.join(number, "", lengths, true) else {
            unreachable!("it is a join")
        };
        join.protocols.clear();
        let answer = joined(measured.send(Request::JoinGroup(join)));
        assert_eq!(answer[0].1, ErrorCode::InconsistentGroupProtocol);
    }
}

/// A member that waits for the end of its join phase.
fn waiting(measured: &mut Measured, lengths: Lengths) {
    for number in 0..GROUPS {
        let answers = joined(measured.send(measured.join(number, "", lengths, false)));
        assert!(answers.is_empty(), "it waits");
    }
}

/// Members with assignments; one heartbeat of each.
fn stable(measured: &mut Measured, lengths: Lengths) -> Vec<MemberId> {
    waiting(measured, lengths);
    let members = joined(measured.pass_initial_delay());
    assert_eq!(members.len(), GROUPS as usize);
    let mut ids = vec![MemberId::default(); GROUPS as usize];
    for (member, error) in members {
        assert_eq!(error, ErrorCode::None);
        let memory = measured.shard.memory();
        let group = memory.iter().position(|own| own.members[0].0 == member).expect("its group");
        ids[group] = member;
    }
    for (number, member) in ids.iter().enumerate() {
        measured.send(measured.sync(number as u64, member, 1, lengths));
        measured.send(Request::Heartbeat(Heartbeat {
            group: group_id(number as u64, lengths),
            member: member.as_str().into(),
            instance: (lengths.instance > 0).then(|| "i".repeat(lengths.instance).into()),
            generation_id: GenerationId(1),
        }));
    }
    ids
}

/// Members that join and sync again and again, each time with other bytes.
fn rejoined(measured: &mut Measured, lengths: Lengths) {
    let ids = stable(measured, lengths);
    for generation in 2..5 {
        for (number, member) in ids.iter().enumerate() {
            let number = number as u64;
            measured.send(measured.join(number, member.as_str(), lengths, true));
            measured.send(measured.sync(number, member, generation, lengths));
        }
    }
}

/// Members that wait for a second one, after the record of their generation.
fn interrupted(measured: &mut Measured, lengths: Lengths) {
    stable(measured, lengths);
    let lengths = Lengths { instance: 0, metadata: 16, protocols: 1, ..lengths };
    for number in 0..GROUPS {
        measured.send(measured.join(number, "", lengths, false));
    }
}

/// Recorded members that have left, while a new member keeps their groups.
fn left(measured: &mut Measured, lengths: Lengths) {
    let ids = stable(measured, lengths);
    let small = Lengths { instance: 0, metadata: 16, client_id: 1, ..lengths };
    for (number, member) in ids.into_iter().enumerate() {
        measured.send(measured.join(number as u64, "", small, false));
        let leaving = Leaving { member, instance: None, reason: None };
        let group = group_id(number as u64, lengths);
        measured.send(Request::LeaveGroup(LeaveGroup { group, members: vec![leaving] }));
    }
}

/// The same join sent many times, as by a client that hangs up each time.
fn repeated(measured: &mut Measured, lengths: Lengths) {
    let ids = stable(measured, lengths);
    let other = Lengths { instance: 0, ..SHORT };
    let other = Lengths { group: lengths.group, protocol_type: lengths.protocol_type, ..other };
    let other = Lengths { protocol_name: lengths.protocol_name, ..other };
    // The join phase waits for the first one, which does not come back with its id.
    measured.send(measured.join(0, "", other, true));
    measured.send(measured.join(0, "", other, false));
    let metadata = lengths.metadata.min(64);
    let times = if lengths == SHORT { 10_000 } else { 10 };
    for _ in 0..times {
        let lengths = Lengths { metadata, protocols: 1, ..lengths };
        measured.send(measured.join(0, ids[0].as_str(), lengths, true));
    }
}

/// Offsets of groups without members.
fn offsets(measured: &mut Measured, lengths: Lengths) {
    for number in 0..GROUPS {
        measured.send(measured.commit(number, lengths));
        measured.send(measured.commit(number, lengths));
    }
}

#[test]
fn all_bytes_that_a_shard_keeps_are_charged() {
    let scenarios: [(&str, Scenario); 9] = [
        ("pending", pending),
        ("refused", refused),
        ("waiting", waiting),
        ("stable", |measured, lengths| drop(stable(measured, lengths))),
        ("rejoined", rejoined),
        ("interrupted", interrupted),
        ("left", left),
        ("repeated", repeated),
        ("offsets", offsets),
    ];
    let mut too_large = Vec::new();
    for (name, scenario) in scenarios {
        for lengths in cases() {
            let before = heap::allocated_bytes();
            let mut measured = Measured::new();
            scenario(&mut measured, lengths);
            measured.shard.assert_consistent();
            let kept = heap::allocated_bytes().saturating_sub(before);
            let charged = measured.ledger.0.load(Ordering::Relaxed);
            if kept > charged + SLACK_BYTES {
                too_large.push(format!("{name}: {kept} kept, {charged} charged, {lengths:?}"));
            }
            let ledger = measured.ledger.clone();
            drop(measured);
            assert_eq!(ledger.0.load(Ordering::Relaxed), 0, "{name}: the shard is gone");
        }
    }
    assert!(too_large.is_empty(), "{too_large:#?}");
}
