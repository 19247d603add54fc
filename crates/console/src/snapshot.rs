//! All that lists show, as values of one moment. It is made of the answers of one round ([`crate::look`]) and never changes.

use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex};

use serving::lag::arrivals::Behind;
use serving::lag::history::History;
use serving::overview::Placement;
use serving::overview::broker::Load;
use serving::overview::topic::Spread;

/// A cluster at one moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// When the brokers were asked, in milliseconds since 1970.
    pub(crate) began_ms: i64,
    /// When they had answered.
    pub(crate) taken_ms: i64,
    /// How long the brokers were asked, in milliseconds.
    pub(crate) took_ms: u64,
    pub(crate) cluster_id: Option<String>,
    pub(crate) controller: Option<i32>,
    /// Those that serve, those that are registered and do not, and those that replicas name.
    pub(crate) brokers: BTreeMap<i32, BrokerView>,
    pub(crate) topics: BTreeMap<Arc<str>, TopicView>,
    pub(crate) groups: BTreeMap<String, GroupView>,
    /// What could not be had, and why.
    pub(crate) gaps: Vec<Gap>,
}

/// What could not be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gap {
    /// Of the snapshot.
    pub(crate) what: String,
    /// In the words of the client or a broker.
    pub(crate) why: String,
}

/// Whether a broker serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BrokerState {
    /// It is in the metadata of the cluster, and answers.
    Up,
    /// It is in the metadata of the cluster, and does not answer: it stopped a moment ago, or no controller can fence it.
    Silent,
    /// It is registered, and serves nothing.
    Fenced,
    /// Replicas name it, and it is not there.
    Away,
}

impl BrokerState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            BrokerState::Up => "up",
            BrokerState::Silent => "silent",
            BrokerState::Fenced => "fenced",
            BrokerState::Away => "away",
        }
    }
}

#[derive(Debug)]
pub(crate) struct BrokerView {
    pub(crate) id: i32,
    pub(crate) state: BrokerState,
    /// `host:port`; `None` for one that is away.
    pub(crate) address: Option<String>,
    pub(crate) rack: Option<String>,
    pub(crate) load: Load,
    /// By how much it leads more than the mean, in per cent.
    pub(crate) leader_skew_percent: i64,
    /// By how much it holds more than the mean, in per cent.
    pub(crate) replica_skew_percent: i64,
    /// Records a second of the partitions that it leads.
    pub(crate) per_second: Option<f64>,
    pub(crate) dirs: Option<Vec<DirView>>,
}

impl BrokerView {
    /// Bytes of logs on it.
    pub(crate) fn size_bytes(&self) -> Option<u64> {
        let dirs = self.dirs.as_ref()?;
        Some(dirs.iter().map(|dir| dir.size_bytes).sum())
    }
}

/// A log directory.
#[derive(Debug)]
pub(crate) struct DirView {
    pub(crate) path: String,
    /// Of logs.
    pub(crate) size_bytes: u64,
    pub(crate) partitions: usize,
    /// Of the disk, and what is free of it; `None` if the broker does not say.
    pub(crate) disk_bytes: Option<(u64, u64)>,
    pub(crate) error: Option<String>,
}

/// The partitions of a topic: a part of those of the whole cluster, which lie in one block of memory. Blocks of their own would go
/// with each snapshot and leave the heap full of holes.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    of_cluster: Arc<Vec<PartitionView>>,
    range: Range<usize>,
}

impl Partitions {
    /// `range` lies within `of_cluster`.
    pub(crate) fn new(of_cluster: Arc<Vec<PartitionView>>, range: Range<usize>) -> Partitions {
        assert!(range.start <= range.end && range.end <= of_cluster.len(), "{range:?}");
        Partitions { of_cluster, range }
    }

    /// Which of the cluster's they are.
    pub(crate) fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

impl Deref for Partitions {
    type Target = [PartitionView];

    fn deref(&self) -> &[PartitionView] {
        &self.of_cluster[self.range.clone()]
    }
}

#[derive(Debug)]
pub(crate) struct TopicView {
    pub(crate) name: Arc<str>,
    pub(crate) is_internal: bool,
    pub(crate) partitions: Partitions,
    pub(crate) spread: Spread,
}

impl TopicView {
    /// Records a second of the partitions of which that is known.
    pub(crate) fn per_second(&self) -> Option<f64> {
        serving::overview::rate::sum(self.partitions.iter().map(|partition| partition.per_second))
    }

    /// The sum of the ends of its logs, of those that are known: "summed offsets" in CMAK.
    pub(crate) fn summed_offsets(&self) -> Option<i64> {
        sum(self.partitions.iter().map(|partition| partition.end))
    }

    /// Records that can be read, as offsets count them.
    pub(crate) fn records(&self) -> Option<i64> {
        sum(self.partitions.iter().map(|partition| Some(partition.end? - partition.start?)))
    }

    /// Bytes of the leaders' logs.
    pub(crate) fn size_bytes(&self) -> Option<i64> {
        sum(self.partitions.iter().map(|partition| partition.size_bytes))
    }
}

fn sum(parts: impl Iterator<Item = Option<i64>>) -> Option<i64> {
    parts.flatten().fold(None, |sum, part| Some(sum.unwrap_or(0i64).saturating_add(part)))
}

#[derive(Debug)]
pub(crate) struct PartitionView {
    pub(crate) index: i32,
    pub(crate) leader: Option<i32>,
    /// Shared by the partitions that lie alike, as is `isr`.
    pub(crate) replicas: Arc<[i32]>,
    pub(crate) isr: Arc<[i32]>,
    /// The first offset.
    pub(crate) start: Option<i64>,
    /// Behind the last offset.
    pub(crate) end: Option<i64>,
    /// Records a second between the last two looks.
    pub(crate) per_second: Option<f64>,
    /// The leader's log.
    pub(crate) size_bytes: Option<i64>,
}

impl PartitionView {
    pub(crate) fn placement(&self) -> Placement<'_> {
        Placement { leader: self.leader, replicas: &self.replicas, isr: &self.isr }
    }

    /// In one or two words.
    pub(crate) fn state(&self) -> PartitionState {
        match self.placement() {
            placement if placement.is_offline() => PartitionState::Offline,
            placement if placement.is_under_replicated() => PartitionState::UnderReplicated,
            placement if !placement.is_preferred() => PartitionState::NotPreferred,
            _ => PartitionState::Well,
        }
    }
}

/// The worst that is to be said of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartitionState {
    Well,
    NotPreferred,
    UnderReplicated,
    Offline,
}

impl PartitionState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            PartitionState::Well => "ok",
            PartitionState::NotPreferred => "not preferred",
            PartitionState::UnderReplicated => "under-replicated",
            PartitionState::Offline => "offline",
        }
    }
}

#[derive(Debug)]
pub(crate) struct GroupView {
    pub(crate) id: String,
    /// `classic`, `consumer` or what else the broker says; empty if it is too old to say.
    pub(crate) kind: String,
    /// As the broker says; empty if it is too old to say.
    pub(crate) state: String,
    /// The broker that coordinates it.
    pub(crate) coordinator: i32,
    /// What it committed; or why that is not known.
    pub(crate) rows: Result<Vec<GroupRow>, String>,
    /// The last day. It goes on with later looks: a copy for each look would be as large as all else.
    pub(crate) history: Arc<Mutex<History>>,
}

impl GroupView {
    /// The last day, as it is now.
    pub(crate) fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().expect("no code under this lock panics")
    }

    /// Records that it has not read, in all partitions of which that is known.
    pub(crate) fn lag(&self) -> Option<u64> {
        let rows = self.rows.as_ref().ok()?;
        let known = rows.iter().filter_map(|row| row.lag);
        known.fold(None, |sum, lag| Some(sum.unwrap_or(0u64).saturating_add(lag)))
    }

    /// The age of the oldest record that it has not read.
    pub(crate) fn behind(&self) -> Option<Behind> {
        self.rows.as_ref().ok()?.iter().filter_map(|row| row.behind).reduce(Behind::worse)
    }
}

/// A partition in which a group committed.
#[derive(Debug)]
pub(crate) struct GroupRow {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    pub(crate) committed: i64,
    pub(crate) end: Option<i64>,
    pub(crate) lag: Option<u64>,
    pub(crate) behind: Option<Behind>,
}

impl Snapshot {
    /// A partition, if it is there.
    pub(crate) fn partition(&self, topic: &str, index: i32) -> Option<&PartitionView> {
        self.topics.get(topic)?.partitions.get(usize::try_from(index).ok()?)
    }

    /// All partitions of all topics.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = &PartitionView> {
        self.topics.values().flat_map(|topic| topic.partitions.iter())
    }

    /// How many partitions of topics and groups it has.
    pub(crate) fn size(&self) -> usize {
        let rows = self.groups.values().flat_map(|group| &group.rows).map(Vec::len);
        self.partitions().count() + rows.sum::<usize>()
    }

    /// How many partitions lack copies, and how many no broker leads.
    pub(crate) fn troubles(&self) -> (usize, usize) {
        let topics = self.topics.values();
        topics.fold((0, 0), |(under, offline), topic| {
            (under + topic.spread.under_replicated, offline + topic.spread.offline)
        })
    }
}
