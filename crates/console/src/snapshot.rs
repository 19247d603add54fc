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
        serving::overview::rate::sum(
            self.partitions.iter().map(|partition| partition.log().per_second),
        )
    }

    /// The sum of the ends of its logs, of those that are known: "summed offsets" in CMAK.
    pub(crate) fn summed_offsets(&self) -> Option<i64> {
        sum(self.partitions.iter().map(|partition| partition.log().end))
    }

    /// Records that can be read, as offsets count them.
    pub(crate) fn records(&self) -> Option<i64> {
        sum(self
            .partitions
            .iter()
            .map(|partition| Some(partition.log().end? - partition.log().start?)))
    }

    /// Bytes of the leaders' logs.
    pub(crate) fn size_bytes(&self) -> Option<i64> {
        sum(self.partitions.iter().map(|partition| partition.log().size_bytes))
    }
}

fn sum(parts: impl Iterator<Item = Option<i64>>) -> Option<i64> {
    parts.flatten().fold(None, |sum, part| Some(sum.unwrap_or(0i64).saturating_add(part)))
}

/// A number that may not be known, in eight bytes: a snapshot has hundreds of thousands of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known(i64);

impl Known {
    /// No offset and no size is this.
    pub(crate) const NOT: Known = Known(i64::MIN);

    pub(crate) fn of(number: Option<i64>) -> Known {
        number.map_or(Known::NOT, Known)
    }

    pub(crate) fn get(self) -> Option<i64> {
        (self != Known::NOT).then_some(self.0)
    }
}

/// A partition. It is 80 bytes, which a test looks at: a snapshot has tens of thousands.
#[derive(Debug)]
pub(crate) struct PartitionView {
    pub(crate) index: i32,
    pub(crate) leader: Option<i32>,
    /// Shared by the partitions that lie alike, as is `isr`.
    pub(crate) replicas: Arc<[i32]>,
    pub(crate) isr: Arc<[i32]>,
    start: Known,
    end: Known,
    size_bytes: Known,
    /// Not a number: not known.
    per_second: f64,
}

/// What brokers say of the log of a partition.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LogView {
    /// The first offset.
    pub(crate) start: Option<i64>,
    /// Behind the last offset.
    pub(crate) end: Option<i64>,
    /// The leader's log.
    pub(crate) size_bytes: Option<i64>,
    /// Records a second between the last two looks.
    pub(crate) per_second: Option<f64>,
}

impl PartitionView {
    /// A partition of whose log nothing is known.
    pub(crate) fn new(
        index: i32,
        leader: Option<i32>,
        replicas: Arc<[i32]>,
        isr: Arc<[i32]>,
    ) -> PartitionView {
        let (start, end, size_bytes) = (Known::NOT, Known::NOT, Known::NOT);
        PartitionView { index, leader, replicas, isr, start, end, size_bytes, per_second: f64::NAN }
    }

    /// What is known of its log from now on.
    pub(crate) fn set_log(&mut self, log: LogView) {
        (self.start, self.end) = (Known::of(log.start), Known::of(log.end));
        self.size_bytes = Known::of(log.size_bytes);
        self.per_second = log.per_second.unwrap_or(f64::NAN);
    }

    /// What is known of its log.
    pub(crate) fn log(&self) -> LogView {
        LogView {
            start: self.start.get(),
            end: self.end.get(),
            size_bytes: self.size_bytes.get(),
            per_second: Some(self.per_second).filter(|rate| !rate.is_nan()),
        }
    }

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
        let known = rows.iter().filter_map(GroupRow::lag);
        known.fold(None, |sum, lag| Some(sum.unwrap_or(0u64).saturating_add(lag)))
    }

    /// The age of the oldest record that it has not read.
    pub(crate) fn behind(&self) -> Option<Behind> {
        self.rows.as_ref().ok()?.iter().filter_map(|row| row.behind).reduce(Behind::worse)
    }
}

/// A partition in which a group committed: 64 bytes.
#[derive(Debug)]
pub(crate) struct GroupRow {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    pub(crate) committed: i64,
    pub(crate) end: Known,
    /// See [`GroupRow::lag`].
    pub(crate) unread: Known,
    pub(crate) behind: Option<Behind>,
}

impl GroupRow {
    /// Records that were not read.
    pub(crate) fn lag(&self) -> Option<u64> {
        u64::try_from(self.unread.get()?).ok()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_are_tens_of_thousands_of_is_small() {
        assert_eq!((size_of::<PartitionView>(), size_of::<GroupRow>()), (80, 64));
    }

    #[test]
    fn what_is_not_known_is_not_zero() {
        let mut partition = PartitionView::new(0, None, Arc::default(), Arc::default());
        let known = |log: LogView| (log.start, log.end, log.size_bytes, log.per_second);
        assert_eq!(known(partition.log()), (None, None, None, None));
        let (start, per_second) = (Some(0), Some(0.0));
        partition.set_log(LogView { start, end: None, size_bytes: Some(7), per_second });
        assert_eq!(known(partition.log()), (Some(0), None, Some(7), Some(0.0)));
    }
}
