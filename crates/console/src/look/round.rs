//! One round: what is asked of the brokers, and the snapshot that their answers make. Five requests a broker, to all brokers at
//! once, and four for the cluster; one more for every 5,000 partitions and 100 groups of a broker.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use client::admin::survey::{ByBroker, Led, Silent};
use client::offsets::OfGroup;
use client::{Admin, ClientError, CommittedOffset, Metadata, OffsetSpec};
use model::{ErrorCode, TopicPartition};
use serving::lag;
use serving::lag::history::Lag;
use serving::overview::broker::{loads, skew_percent};
use serving::overview::topic::Spread;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::columns::{Column, Places};
use super::memory::{GROUPS_MAX, Memory, PARTITIONS_MAX};
use crate::snapshot::{
    BrokerState, BrokerView, DirView, Gap, GroupRow, GroupView, Known, LogView, PartitionView,
    Partitions, Snapshot, TopicView,
};

/// Gaps that are told of; there may be one for each broker and question.
const GAPS_MAX: usize = 20;

/// Time for the description of the metadata quorum.
const QUORUM_PATIENCE: Duration = Duration::from_secs(2);

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A group as its coordinator lists it.
struct Listed {
    coordinator: i32,
    kind: String,
    state: String,
}

/// Looks once.
///
/// # Errors
/// No broker tells what there is. All else that cannot be had is a gap in the snapshot.
pub(super) async fn look(admin: &Admin, memory: &mut Memory) -> Result<Snapshot, String> {
    let (began, began_ms) = (Instant::now(), now_ms());
    let mut gaps = Gaps::default();
    let words = |error: ClientError| error.to_string();
    admin.cluster().refresh().await.map_err(words)?;
    let (metadata, known) = admin.cluster().describe_in_order().await.map_err(words)?;
    let places = Arc::new(Places::of(&known, memory.places()));
    let led = Led::of(&known, |topic| places.name(topic).map(Arc::clone));
    // What is kept of it is smaller.
    let mut partitions = partitions(known);
    let mut ids: Vec<i32> = metadata.brokers.keys().copied().collect();
    ids.sort_unstable();
    let (mut starts, mut ends, mut sizes) = (places.column(), places.column(), places.column());
    let mut dirs: ByBroker<Vec<DirView>> = ByBroker::new();
    let (no_starts, no_ends, no_dirs, groups, registered, leader) = tokio::join!(
        admin.log_offsets(&led, OffsetSpec::Earliest, |topic, partition, found| {
            starts.take(&places, (topic, partition), found);
        }),
        admin.log_offsets(&led, OffsetSpec::Latest, |topic, partition, found| {
            ends.take(&places, (topic, partition), found);
        }),
        admin.log_dirs_of(&ids, |broker, answer| {
            take_sizes(&mut sizes, (&places, &partitions), broker, &answer);
            dirs.insert(broker, Ok(answer.iter().map(dir).collect()));
        }),
        admin.groups_of(&ids),
        admin.describe_all_brokers(),
        timeout(QUORUM_PATIENCE, admin.quorum_leader()),
    );
    drop(led);
    let at_ms = now_ms();
    gaps.extend("first offsets", no_starts);
    gaps.extend("ends of logs", no_ends);
    dirs.extend(no_dirs.into_iter().map(|(broker, error)| (broker, Err(error))));
    memory.note_ends(&places, &ends, at_ms);
    if ends.known() > PARTITIONS_MAX {
        gaps.add(
            "rates and times of some partitions",
            format!("only {PARTITIONS_MAX} are remembered"),
        );
    }
    let logs = Logs { places, starts, ends };
    logs.fill(&mut partitions, &sizes, memory);
    let topics = topics(&logs.places, partitions, metadata.brokers.len());
    let groups =
        groups_of(admin, listed(groups, &mut gaps), (&logs, memory), at_ms, &mut gaps).await;
    let fenced = fenced(registered);
    let brokers = brokers(&metadata, &topics, dirs, fenced, &mut gaps);
    Ok(Snapshot {
        began_ms,
        taken_ms: at_ms,
        took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        cluster_id: metadata.cluster_id.clone(),
        controller: controller(leader, &metadata, &mut gaps),
        brokers,
        topics,
        groups,
        gaps: gaps.0,
    })
}

/// Leader of the metadata quorum, if it is known.
fn controller(
    read: Result<Result<Option<i32>, ClientError>, Elapsed>,
    metadata: &Metadata,
    gaps: &mut Gaps,
) -> Option<i32> {
    match read {
        Ok(Ok(leader)) => return leader,
        // A cluster without this API has one controller, which its metadata names.
        Ok(Err(ClientError::Unsupported { .. })) => return metadata.controller,
        Ok(Err(error)) => gaps.add("active controller", error),
        Err(_) => gaps.add("active controller", "no leader of the metadata quorum answered"),
    }
    None
}

#[derive(Default)]
struct Gaps(Vec<Gap>);

impl Gaps {
    fn add(&mut self, what: impl Into<String>, why: impl ToString) {
        if self.0.len() < GAPS_MAX {
            self.0.push(Gap { what: what.into(), why: why.to_string() });
        }
    }

    fn extend(&mut self, what: &str, errors: Silent) {
        for (broker, error) in errors {
            self.add(format!("{what} of broker {broker}"), error);
        }
    }
}

/// Groups by id, with who coordinates them.
fn listed(
    answers: ByBroker<Vec<client::ListedGroup>>,
    gaps: &mut Gaps,
) -> BTreeMap<String, Listed> {
    let mut groups = BTreeMap::new();
    for (coordinator, answer) in answers {
        match answer {
            Err(error) => gaps.add(format!("groups of broker {coordinator}"), error),
            Ok(some) => groups.extend(some.into_iter().map(|group| {
                let (kind, state) = (group.group_type.to_lowercase(), group.group_state);
                (group.group_id, Listed { coordinator, kind, state })
            })),
        }
    }
    if groups.len() > GROUPS_MAX {
        gaps.add("offsets of some groups", format!("only those of {GROUPS_MAX} are asked for"));
    }
    groups
}

/// Takes the sizes of a broker's logs; that of a partition is what its leader says.
fn take_sizes(
    sizes: &mut Column,
    (places, partitions): (&Places, &[PartitionView]),
    broker: i32,
    dirs: &[client::LogDir],
) {
    for topic in dirs.iter().flat_map(|dir| &dir.topics) {
        // A copy that is moving to another directory is not the one that serves.
        for log in topic.partitions.iter().filter(|log| !log.is_future_key) {
            let at = places.at(&topic.name, log.partition_index);
            if let Some(at) = at.filter(|at| partitions[*at].leader == Some(broker)) {
                sizes.set(at, log.partition_size);
            }
        }
    }
}

/// Lists of brokers, of which a cluster has few that differ.
#[derive(Default)]
struct Lists(HashSet<Arc<[i32]>>);

impl Lists {
    fn share(&mut self, list: &[i32]) -> Arc<[i32]> {
        if let Some(known) = self.0.get(list) {
            return Arc::clone(known);
        }
        let list: Arc<[i32]> = Arc::from(list);
        self.0.insert(Arc::clone(&list));
        list
    }
}

/// All partitions by place, with what the metadata says of them.
fn partitions(known: Vec<client::metadata::Topic>) -> Vec<PartitionView> {
    let mut lists = Lists::default();
    let mut partitions = Vec::with_capacity(known.iter().map(|topic| topic.partitions.len()).sum());
    for topic in known {
        partitions.extend(topic.partitions.iter().map(|known| {
            let (replicas, isr) = (lists.share(&known.replicas), lists.share(&known.isr));
            PartitionView::new(known.index, known.leader, replicas, isr)
        }));
    }
    partitions
}

fn topics(
    places: &Places,
    partitions: Vec<PartitionView>,
    brokers: usize,
) -> BTreeMap<Arc<str>, TopicView> {
    let of_cluster = Arc::new(partitions);
    let mut placements = Vec::new();
    let view = |(name, is_internal, places): (&Arc<str>, bool, Range<usize>)| {
        let partitions = Partitions::new(Arc::clone(&of_cluster), places);
        placements.clear();
        placements.extend(of_cluster[partitions.range()].iter().map(PartitionView::placement));
        let spread = Spread::of(&placements, brokers);
        (Arc::clone(name), TopicView { name: Arc::clone(name), is_internal, partitions, spread })
    };
    places.topics().map(view).collect()
}

/// Where the logs of one look begin and end.
struct Logs {
    places: Arc<Places>,
    starts: Column,
    ends: Column,
}

impl Logs {
    /// Completes partitions by what the brokers said of them.
    fn fill(&self, partitions: &mut [PartitionView], sizes: &Column, memory: &Memory) {
        for (at, partition) in partitions.iter_mut().enumerate() {
            let end = self.ends.get(at);
            partition.set_log(LogView {
                start: self.starts.get(at),
                end,
                size_bytes: sizes.get(at),
                per_second: end.and_then(|_| memory.per_second(at)),
            });
        }
    }

    /// What a group committed, in the order of topics and partitions.
    fn rows(
        &self,
        offsets: &[(TopicPartition, CommittedOffset)],
        memory: &Memory,
        now_ms: i64,
    ) -> Vec<GroupRow> {
        let row = |(partition, committed): &(TopicPartition, CommittedOffset)| {
            let (topic, index) = (&partition.topic, partition.partition.0);
            let at = self.places.at(topic, index);
            let (committed, end) = (committed.offset.0, at.and_then(|at| self.ends.get(at)));
            // What retention has deleted cannot be read any more.
            let start = at.and_then(|at| self.starts.get(at)).unwrap_or(0);
            let behind = |at| memory.behind(at, committed.max(start), now_ms);
            GroupRow {
                topic: Arc::clone(self.places.name(topic).unwrap_or(topic)),
                partition: index,
                committed,
                end: Known::of(end),
                unread: Known::of(end.map(|end| unread(committed, start, end))),
                behind: end.and(at).and_then(behind),
            }
        };
        let mut rows: Vec<_> = offsets.iter().map(row).collect();
        rows.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        rows
    }
}

/// How many records a group has not read.
fn unread(committed: i64, start: i64, end: i64) -> i64 {
    i64::try_from(lag::records(committed, start, end)).unwrap_or(i64::MAX)
}

/// Groups with what they have committed, which is asked for here.
async fn groups_of(
    admin: &Admin,
    listed: BTreeMap<String, Listed>,
    (logs, memory): (&Logs, &mut Memory),
    at_ms: i64,
    gaps: &mut Gaps,
) -> BTreeMap<String, GroupView> {
    let mut by_coordinator: BTreeMap<i32, Vec<String>> = BTreeMap::new();
    for (id, group) in listed.iter().take(GROUPS_MAX) {
        by_coordinator.entry(group.coordinator).or_default().push(id.clone());
    }
    let mut rows = Rows::new();
    let take = |group, offsets: OfGroup| {
        rows.insert(group, offsets.map(|offsets| logs.rows(&offsets, memory, at_ms)));
    };
    for (broker, error) in admin.committed_of(by_coordinator, take).await {
        gaps.add(format!("committed offsets at broker {broker}"), error);
    }
    memory.keep_groups(|group| listed.contains_key(group));
    let view = |(id, listed): (String, Listed)| {
        let rows = rows.remove(&id);
        (id.clone(), group(id, listed, rows, memory, at_ms))
    };
    listed.into_iter().map(view).collect()
}

/// Rows of each group that a coordinator answered for.
type Rows = HashMap<String, Result<Vec<GroupRow>, ErrorCode>>;

fn group(
    id: String,
    listed: Listed,
    rows: Option<Result<Vec<GroupRow>, ErrorCode>>,
    memory: &mut Memory,
    at_ms: i64,
) -> GroupView {
    let rows = match rows {
        Some(Ok(rows)) => Ok(rows),
        Some(Err(code)) => Err(format!("the coordinator answers {code}")),
        None => Err("the coordinator did not answer, or was not asked".to_owned()),
    };
    let Listed { coordinator, kind, state } = listed;
    let mut view = GroupView { id, kind, state, coordinator, rows, history: Arc::default() };
    let lag = view.lag().map(|records| Lag {
        records,
        ms: view.behind().map_or(0, |behind| u64::try_from(behind.ms).unwrap_or(0)),
    });
    view.history = memory.note_group(&view.id, at_ms, lag);
    view
}

/// Host, port and rack of brokers that are registered and do not serve.
type Fenced = BTreeMap<i32, (String, i32, Option<String>)>;

fn fenced(registered: Result<client::DescribedCluster, ClientError>) -> Fenced {
    // Older brokers do not have this call: those that do not serve are not shown then.
    let brokers = registered.map(|response| response.brokers).unwrap_or_default();
    let fenced = brokers.into_iter().filter(|broker| broker.is_fenced);
    fenced.map(|broker| (broker.broker_id, (broker.host, broker.port, broker.rack))).collect()
}

fn brokers(
    metadata: &Metadata,
    topics: &BTreeMap<Arc<str>, TopicView>,
    mut dirs: ByBroker<Vec<DirView>>,
    fenced: Fenced,
    gaps: &mut Gaps,
) -> BTreeMap<i32, BrokerView> {
    let partitions = || topics.values().flat_map(|topic| topic.partitions.iter());
    let loads = loads(partitions().map(PartitionView::placement));
    let mut rates: BTreeMap<i32, f64> = BTreeMap::new();
    for (leader, rate) in partitions().filter_map(|p| Some((p.leader?, p.log().per_second?))) {
        *rates.entry(leader).or_default() += rate;
    }
    let all = metadata.brokers.len();
    // What lies on brokers that are away cannot be shared out.
    let of_up =
        || loads.iter().filter(|(id, _)| metadata.brokers.contains_key(id)).map(|(_, load)| load);
    let leaders = of_up().map(|load| load.leaders).sum();
    let replicas = of_up().map(|load| load.replicas).sum();
    let ids: BTreeSet<i32> =
        metadata.brokers.keys().chain(loads.keys()).chain(fenced.keys()).copied().collect();
    let view = |id: i32| {
        let known = metadata.brokers.get(&id);
        let load = loads.get(&id).copied().unwrap_or_default();
        let (state, address, rack) = match (known, fenced.get(&id)) {
            (Some(known), _) => (BrokerState::Up, Some(known.address()), known.rack.clone()),
            (None, Some((host, port, rack))) => {
                (BrokerState::Fenced, Some(format!("{host}:{port}")), rack.clone())
            }
            (None, None) => (BrokerState::Away, None, None),
        };
        let answer = dirs.remove(&id);
        let is_silent =
            answer.as_ref().is_some_and(|answer| answer.as_ref().is_err_and(is_silence));
        let state = if is_silent { BrokerState::Silent } else { state };
        let dirs = match answer {
            Some(Ok(dirs)) => Some(dirs),
            Some(Err(error)) => {
                gaps.add(dirs_of(id), error);
                None
            }
            None => None,
        };
        let is_up = known.is_some();
        let skew = |held, of_all| if is_up { skew_percent(held, of_all, all) } else { 0 };
        let view = BrokerView {
            id,
            state,
            address,
            rack,
            load,
            leader_skew_percent: skew(load.leaders, leaders),
            replica_skew_percent: skew(load.replicas, replicas),
            per_second: rates.get(&id).copied(),
            dirs,
        };
        (id, view)
    };
    ids.into_iter().map(view).collect()
}

/// What is missing of a broker that does not say where its logs are.
pub(crate) fn dirs_of(broker: i32) -> String {
    format!("log directories of broker {broker}")
}

/// Whether no broker answered; a refusal is an answer.
fn is_silence(error: &ClientError) -> bool {
    use ClientError::{Closed, Connect, TimedOut};
    matches!(error, Connect { .. } | Closed { .. } | TimedOut { .. })
}

fn dir(dir: &client::LogDir) -> DirView {
    let logs = || dir.topics.iter().flat_map(|topic| &topic.partitions);
    let bytes = |bytes: i64| u64::try_from(bytes).ok();
    DirView {
        path: dir.log_dir.clone(),
        size_bytes: logs().filter_map(|log| bytes(log.partition_size)).sum(),
        partitions: logs().count(),
        disk_bytes: bytes(dir.total_bytes).zip(bytes(dir.usable_bytes)),
        error: (!dir.error().is_none()).then(|| dir.error().to_string()),
    }
}
