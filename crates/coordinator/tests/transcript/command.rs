//! The commands of a transcript, as text and as requests.

use std::sync::Arc;

use coordinator::request::{
    Heartbeat, JoinGroup, LeaveGroup, Leaving, ListGroups, OffsetCommit, OffsetDelete, OffsetFetch,
    PartitionCommit, Protocol, SyncGroup, TopicCommits, TopicPartitions,
};
use coordinator::{GroupId, GroupInstanceId, MemberId, Request};
use model::{GenerationId, LeaderEpoch, Offset, PartitionIndex, Uuid};

/// A command's words: its name, positional ones, and `name=value`.
pub struct Arguments<'a> {
    name: &'a str,
    words: Vec<&'a str>,
    named: Vec<(&'a str, &'a str)>,
}

impl<'a> Arguments<'a> {
    pub fn parse(line: &'a str) -> Arguments<'a> {
        let mut words = line.split_whitespace();
        let name = words.next().expect("a command has a name");
        let (named, words): (Vec<_>, Vec<_>) = words.partition(|word| word.contains('='));
        let named = named.iter().map(|word| word.split_once('=').expect("it has one")).collect();
        Arguments { name, words, named }
    }

    pub fn name(&self) -> &'a str {
        self.name
    }

    pub fn word(&self, at: usize) -> &'a str {
        self.words.get(at).unwrap_or_else(|| panic!("{}: too few words", self.name))
    }

    fn group(&self) -> GroupId {
        self.word(0).trim_matches('"').into()
    }

    pub fn number(&self, at: usize) -> i64 {
        self.word(at).parse().expect("a number")
    }

    pub fn rest(&self, from: usize) -> impl Iterator<Item = &'a str> {
        self.words[from.min(self.words.len())..].iter().copied()
    }

    pub fn named(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.named.iter().copied()
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.named().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    fn get_number(&self, name: &str) -> Option<i64> {
        self.get(name).map(|value| value.parse().expect("a number"))
    }

    fn instance(&self) -> Option<GroupInstanceId> {
        self.get("instance").map(Into::into)
    }

    fn list(&self, name: &str) -> Vec<Arc<str>> {
        self.get(name).into_iter().flat_map(|value| value.split(',')).map(Into::into).collect()
    }
}

/// `c#7` stands for the member id that the seventh request made for client `c`.
fn member(text: &str) -> MemberId {
    match text.split_once('#') {
        Some((front, number)) => {
            let number: u8 = number.parse().expect("a request's number");
            format!("{front}-00000000-0000-0000-0000-0000000000{number:02x}").into()
        }
        None => text.trim_matches('"').into(),
    }
}

/// The other way round.
pub fn shorten(line: &str) -> String {
    let mut parts = line.split("-00000000-0000-0000-0000-0000000000");
    let mut out = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let (number, rest) = part.split_at(2);
        let number = u8::from_str_radix(number, 16).expect("two hexadecimal digits");
        out.push_str(&format!("#{number}{rest}"));
    }
    out
}

/// A subscription of the Java consumer, version 0.
fn subscription(topics: &str) -> Arc<[u8]> {
    let topics: Vec<&str> = topics.split(',').filter(|topic| !topic.is_empty()).collect();
    let mut bytes = vec![0, 0];
    bytes.extend_from_slice(&(topics.len() as i32).to_be_bytes());
    for topic in topics {
        bytes.extend_from_slice(&(topic.len() as i16).to_be_bytes());
        bytes.extend_from_slice(topic.as_bytes());
    }
    bytes.extend_from_slice(&(-1i32).to_be_bytes());
    Arc::from(bytes)
}

/// `range:t,u;sticky:t`; behind `!` stands metadata that is no subscription.
fn protocols(text: &str) -> Vec<Protocol> {
    let protocol = |part: &str| {
        if let Some((name, metadata)) = part.split_once('!') {
            return Protocol { name: name.into(), metadata: metadata.as_bytes().into() };
        }
        let (name, topics) = part.split_once(':').unwrap_or((part, ""));
        Protocol { name: name.into(), metadata: subscription(topics) }
    };
    text.split(';').filter(|part| !part.is_empty()).map(protocol).collect()
}

/// `t-0`
fn partition(text: &str) -> (Arc<str>, PartitionIndex) {
    let (topic, partition) = text.rsplit_once('-').expect("a partition");
    (topic.into(), PartitionIndex(partition.parse().expect("a number")))
}

pub fn request(arguments: &Arguments<'_>, number: u64) -> Request {
    match arguments.name() {
        "join" => Request::JoinGroup(join(arguments, number)),
        "sync" => Request::SyncGroup(sync(arguments)),
        "heartbeat" => Request::Heartbeat(Heartbeat {
            group: arguments.group(),
            member: member(arguments.word(1)),
            generation_id: GenerationId(arguments.number(2) as i32),
            instance: arguments.instance(),
        }),
        "leave" => Request::LeaveGroup(leave(arguments)),
        "store" => Request::OffsetCommit(store(arguments)),
        "fetch" => Request::OffsetFetch(OffsetFetch {
            group: arguments.group(),
            topics: Some(topics(arguments)).filter(|topics| !topics.is_empty()),
            require_stable: false,
        }),
        "delete-offsets" => Request::OffsetDelete(OffsetDelete {
            group: arguments.group(),
            topics: topics(arguments),
        }),
        "describe" => Request::DescribeGroup(arguments.group()),
        "list" => Request::ListGroups(ListGroups {
            states: arguments.list("states"),
            types: arguments.list("types"),
        }),
        "delete" => Request::DeleteGroup(arguments.group()),
        other => panic!("no command {other}"),
    }
}

fn join(arguments: &Arguments<'_>, number: u64) -> JoinGroup {
    let version = arguments.get_number("v").unwrap_or(9);
    let session_timeout_ms = arguments.get_number("session").unwrap_or(10_000) as i32;
    let mut uuid = [0; 16];
    uuid[15] = u8::try_from(number).expect("few requests");
    JoinGroup {
        lent_identity: coordinator::request::Lent::default(),
        lent: coordinator::request::Lent::default(),
        group: arguments.group(),
        member: arguments.get("member").map(member).unwrap_or_default(),
        uuid: Uuid(uuid),
        client_id: arguments.get("client").unwrap_or("c").into(),
        client_host: "/127.0.0.1".into(),
        instance: arguments.instance(),
        session_timeout_ms,
        rebalance_timeout_ms: arguments.get_number("rebalance").unwrap_or(30_000) as i32,
        protocol_type: arguments.get("type").unwrap_or("consumer").trim_matches('"').into(),
        protocols: protocols(arguments.get("protocols").unwrap_or("range:t")),
        reason: None,
        require_known_member_id: version >= 4,
        supports_skip_assignment: version >= 9,
    }
}

fn sync(arguments: &Arguments<'_>) -> SyncGroup {
    let assignment = |part: &str| {
        let (id, value) = part.split_once(':').expect("member:assignment");
        (member(id), Arc::from(value.as_bytes()))
    };
    let assignments = arguments.get("assign").into_iter().flat_map(|text| text.split(','));
    SyncGroup {
        group: arguments.group(),
        member: member(arguments.word(1)),
        generation_id: GenerationId(arguments.number(2) as i32),
        instance: arguments.instance(),
        protocol_type: arguments.get("type").map(Into::into),
        protocol: arguments.get("protocol").map(Into::into),
        require_protocol: arguments.get_number("v").unwrap_or(4) >= 5,
        assignments: assignments.map(assignment).collect(),
        lent: coordinator::request::Lent::default(),
    }
}

/// `leave g c#1 /instance c#2/instance`
fn leave(arguments: &Arguments<'_>) -> LeaveGroup {
    let leaving = |word: &str| {
        let (id, instance) = word.split_once('/').map_or((word, None), |(a, b)| (a, Some(b)));
        Leaving { member: member(id), instance: instance.map(Into::into), reason: None }
    };
    LeaveGroup { group: arguments.group(), members: arguments.rest(1).map(leaving).collect() }
}

/// `store g t-0:5 t-1:6:metadata member=c#1 generation=1`
fn store(arguments: &Arguments<'_>) -> OffsetCommit {
    let mut topics: Vec<TopicCommits> = Vec::new();
    for word in arguments.rest(1) {
        let mut parts = word.split(':');
        let (topic, partition) = partition(parts.next().expect("a partition"));
        let offset = parts.next().and_then(|text| text.parse().ok()).expect("an offset");
        let commit = PartitionCommit {
            partition,
            offset: Offset(offset),
            leader_epoch: LeaderEpoch::NONE,
            metadata: parts.next().unwrap_or("").into(),
        };
        match topics.iter_mut().find(|commits| commits.topic == topic) {
            Some(commits) => commits.partitions.push(commit),
            None => {
                let topic_id = Uuid::ZERO;
                topics.push(TopicCommits { topic, topic_id, partitions: vec![commit] });
            }
        }
    }
    OffsetCommit {
        lent: coordinator::request::Lent::default(),
        lent_metadata: coordinator::request::Lent::default(),
        group: arguments.group(),
        member: arguments.get("member").map(member).unwrap_or_default(),
        instance: arguments.instance(),
        generation_id: GenerationId(arguments.get_number("generation").unwrap_or(-1) as i32),
        retention_ms: arguments.get_number("retention"),
        topics,
    }
}

fn topics(arguments: &Arguments<'_>) -> Vec<TopicPartitions> {
    let mut topics: Vec<TopicPartitions> = Vec::new();
    for word in arguments.rest(1) {
        let (topic, partition) = partition(word);
        match topics.iter_mut().find(|own| own.topic == topic) {
            Some(own) => own.partitions.push(partition),
            None => topics.push(TopicPartitions { topic, partitions: vec![partition] }),
        }
    }
    topics
}
