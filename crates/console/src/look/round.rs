//! One round: what is asked of the brokers, and the snapshot that their answers make. Five requests a broker, to all brokers at
//! once, and three for the cluster; one more for every 5,000 partitions and 100 groups of a broker.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use client::admin::survey::{ByBroker, Committed, Offsets};
use client::{Admin, ClientError, Metadata, OffsetSpec};
use model::TopicPartition;
use serving::lag;
use serving::lag::history::Lag;
use serving::overview::broker::{loads, skew_percent};
use serving::overview::topic::Spread;

use super::memory::{GROUPS_MAX, Memory, PARTITIONS_MAX};
use crate::snapshot::{
    BrokerState, BrokerView, DirView, Gap, GroupRow, GroupView, PartitionView, Snapshot, TopicView,
};

/// Gaps that are told of; there may be one for each broker and question.
const GAPS_MAX: usize = 20;

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
    let metadata = admin.cluster().describe_all().await.map_err(words)?;
    let mut ids: Vec<i32> = metadata.brokers.keys().copied().collect();
    ids.sort_unstable();
    let (starts, ends, dirs, groups, registered) = tokio::join!(
        admin.log_offsets(&metadata, OffsetSpec::Earliest),
        admin.log_offsets(&metadata, OffsetSpec::Latest),
        admin.log_dirs_of(&ids),
        admin.groups_of(&ids),
        admin.describe_all_brokers(),
    );
    let at_ms = now_ms();
    gaps.extend("first offsets", starts.1);
    gaps.extend("ends of logs", ends.1);
    let listed = listed(groups, &mut gaps);
    let mut by_coordinator: BTreeMap<i32, Vec<String>> = BTreeMap::new();
    for (id, group) in listed.iter().take(GROUPS_MAX) {
        by_coordinator.entry(group.coordinator).or_default().push(id.clone());
    }
    let committed = all_committed(admin.committed_of(by_coordinator).await, &mut gaps);

    let (starts, ends) = (known(&starts.0), known(&ends.0));
    let exists = |partition: &TopicPartition| {
        let topic = metadata.topics.get(&partition.topic);
        topic.is_some_and(|topic| (partition.partition.0 as usize) < topic.partitions.len())
    };
    memory.note_ends(&ends, at_ms, exists);
    if ends.len() > PARTITIONS_MAX {
        gaps.add(
            "rates and times of some partitions",
            format!("only {PARTITIONS_MAX} are remembered"),
        );
    }
    let sizes = Sizes::of(&dirs);
    let topics = topics(&metadata, &starts, &ends, &sizes, memory);
    let groups = groups_of(listed, &committed, &starts, &ends, memory, at_ms);
    let fenced = match registered {
        Ok(response) => {
            let fenced = response.brokers.into_iter().filter(|broker| broker.is_fenced);
            fenced
                .map(|broker| (broker.broker_id, (broker.host, broker.port, broker.rack)))
                .collect()
        }
        // Older brokers do not have this call: those that do not serve are not shown then.
        Err(_) => BTreeMap::new(),
    };
    let brokers = brokers(&metadata, &topics, dirs, fenced, &mut gaps);
    Ok(Snapshot {
        began_ms,
        taken_ms: at_ms,
        took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        cluster_id: metadata.cluster_id.clone(),
        controller: metadata.controller,
        brokers,
        topics,
        groups,
        gaps: gaps.0,
    })
}

#[derive(Default)]
struct Gaps(Vec<Gap>);

impl Gaps {
    fn add(&mut self, what: impl Into<String>, why: impl ToString) {
        if self.0.len() < GAPS_MAX {
            self.0.push(Gap { what: what.into(), why: why.to_string() });
        }
    }

    fn extend(&mut self, what: &str, errors: BTreeMap<i32, ClientError>) {
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

/// What groups committed, whichever broker said so. A coordinator that says nothing is a gap.
fn all_committed(answers: ByBroker<Committed>, gaps: &mut Gaps) -> Committed {
    let mut all = Committed::new();
    for (broker, answer) in answers {
        match answer {
            Ok(some) => all.extend(some),
            Err(error) => gaps.add(format!("committed offsets at broker {broker}"), error),
        }
    }
    all
}

/// The offsets that were found.
fn known(offsets: &Offsets) -> HashMap<TopicPartition, i64> {
    let found = offsets.iter().filter_map(|(partition, found)| {
        let offset = found.as_ref().ok()?.offset?;
        Some((partition.clone(), offset.0))
    });
    found.collect()
}

/// Bytes of logs: by broker and partition.
struct Sizes(HashMap<i32, HashMap<TopicPartition, i64>>);

impl Sizes {
    fn of(dirs: &ByBroker<Vec<client::LogDir>>) -> Sizes {
        let answered =
            dirs.iter().filter_map(|(broker, dirs)| Some((*broker, dirs.as_ref().ok()?)));
        Sizes(answered.map(|(broker, dirs)| (broker, sizes(dirs))).collect())
    }

    fn get(&self, broker: i32, partition: &TopicPartition) -> Option<i64> {
        self.0.get(&broker)?.get(partition).copied()
    }
}

fn sizes(dirs: &[client::LogDir]) -> HashMap<TopicPartition, i64> {
    let mut sizes = HashMap::new();
    for topic in dirs.iter().flat_map(|dir| &dir.topics) {
        let name: Arc<str> = Arc::from(&*topic.name);
        // A copy that is moving to another directory is not the one that serves.
        for log in topic.partitions.iter().filter(|log| !log.is_future_key) {
            sizes
                .insert(TopicPartition::new(name.clone(), log.partition_index), log.partition_size);
        }
    }
    sizes
}

type Ends = HashMap<TopicPartition, i64>;

fn topics(
    metadata: &Metadata,
    starts: &Ends,
    ends: &Ends,
    sizes: &Sizes,
    memory: &Memory,
) -> BTreeMap<Arc<str>, TopicView> {
    let view = |(name, topic): (&Arc<str>, &Arc<client::metadata::Topic>)| {
        let partition = |known: &client::metadata::Partition| {
            let place = TopicPartition::new(name.clone(), known.index);
            PartitionView {
                index: known.index,
                leader: known.leader,
                replicas: known.replicas.clone(),
                isr: known.isr.clone(),
                start: starts.get(&place).copied(),
                end: ends.get(&place).copied(),
                per_second: ends.get(&place).and_then(|_| memory.per_second(&place)),
                size_bytes: known.leader.and_then(|leader| sizes.get(leader, &place)),
            }
        };
        let partitions: Vec<_> = topic.partitions.iter().map(partition).collect();
        let placements: Vec<_> = partitions.iter().map(PartitionView::placement).collect();
        let spread = Spread::of(&placements, metadata.brokers.len());
        let name = Arc::clone(name);
        (Arc::clone(&name), TopicView { name, is_internal: topic.is_internal, partitions, spread })
    };
    metadata.topics.iter().map(view).collect()
}

fn groups_of(
    listed: BTreeMap<String, Listed>,
    committed: &Committed,
    starts: &Ends,
    ends: &Ends,
    memory: &mut Memory,
    at_ms: i64,
) -> BTreeMap<String, GroupView> {
    memory.keep_groups(|group| listed.contains_key(group));
    let view = |(id, listed): (String, Listed)| {
        let rows = match committed.get(&id) {
            Some(Ok(offsets)) => Ok(rows(offsets, starts, ends, memory, at_ms)),
            Some(Err(code)) => Err(format!("the coordinator answers {code}")),
            None => Err("the coordinator did not answer, or was not asked".to_owned()),
        };
        let Listed { coordinator, kind, state } = listed;
        let history = Arc::default();
        let mut view = GroupView { id, kind, state, coordinator, rows, history };
        let lag = view.lag().map(|records| Lag {
            records,
            ms: view.behind().map_or(0, |behind| u64::try_from(behind.ms).unwrap_or(0)),
        });
        view.history = memory.note_group(&view.id, at_ms, lag);
        (view.id.clone(), view)
    };
    listed.into_iter().map(view).collect()
}

fn rows(
    offsets: &HashMap<TopicPartition, client::CommittedOffset>,
    starts: &Ends,
    ends: &Ends,
    memory: &Memory,
    now_ms: i64,
) -> Vec<GroupRow> {
    let row = |(partition, committed): (&TopicPartition, &client::CommittedOffset)| {
        let (committed, end) = (committed.offset.0, ends.get(partition).copied());
        // What retention has deleted cannot be read any more.
        let start = starts.get(partition).copied().unwrap_or(0);
        let behind = end.and_then(|_| memory.behind(partition, committed.max(start), now_ms));
        GroupRow {
            topic: Arc::clone(&partition.topic),
            partition: partition.partition.0,
            committed,
            end,
            lag: end.map(|end| lag::records(committed, start, end)),
            behind,
        }
    };
    let mut rows: Vec<_> = offsets.iter().map(row).collect();
    rows.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    rows
}

type Fenced = BTreeMap<i32, (String, i32, Option<String>)>;

fn brokers(
    metadata: &Metadata,
    topics: &BTreeMap<Arc<str>, TopicView>,
    mut dirs: ByBroker<Vec<client::LogDir>>,
    fenced: Fenced,
    gaps: &mut Gaps,
) -> BTreeMap<i32, BrokerView> {
    let partitions = || topics.values().flat_map(|topic| &topic.partitions);
    let loads = loads(partitions().map(PartitionView::placement));
    let mut rates: BTreeMap<i32, f64> = BTreeMap::new();
    for (leader, rate) in partitions().filter_map(|p| Some((p.leader?, p.per_second?))) {
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
            Some(Ok(dirs)) => Some(dirs.iter().map(dir).collect()),
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
