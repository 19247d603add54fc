//! Acting upon the cluster's metadata: opening, leading, closing and deleting this broker's replicas
//! as the image changes, and replacing the table of topics that the data path reads.
//!
//! One task does this, update after update; nobody else opens or closes a partition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use configuration::{BrokerConfig, CompressionChoice, Scope, TopicSettings};
use metadata::topic_config::Resolver;
use metadata::{
    ClusterImage, ConfigResource, ImageUpdate, LocalChange, LocalChangeKind, PartitionImage,
    TopicChange,
};
use model::{
    BrokerId, Compression, Durability, LeaderEpoch, PartitionIndex, Timestamp, TopicId,
    TopicPartition,
};
use node::Key;
use partition::{CompressionRule, Partition, Settings};
use quorum::{FirstUpdate, Subscription};
use storage::journal::Key as LogKey;
use storage::{CleanupPolicy, LogConfig, StorageError};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tracing::{error, info, warn};

use crate::cluster::Counts;
use crate::groups::OFFSETS_TOPIC;
use crate::internal_topics;
use crate::logs::{Gone, Logs, Opened, Wanted, is_tried_again, tell_refusal};
use crate::network::listener::ConnectionLimits;
use crate::server::Server;
use crate::start::controller_settings;
use crate::topics::{Topic, Topics};

/// Logs that are opened before the next ones are thought of: each takes some KiB meanwhile, and a sync of
/// the journal is shared by so many.
const OPENED_TOGETHER_MAX: usize = 8192;

/// Replicas of this broker, by topic id and number.
pub type Keys = Vec<(TopicId, PartitionIndex)>;

/// How often replicas are looked for that could not be opened for lack of room or descriptors.
const OPENED_AGAIN_EVERY: Duration = Duration::from_secs(5);
/// How many of them are tried at a time, in turn: whatever else the metadata wants waits meanwhile.
const OPENED_AGAIN_MAX: usize = 64;

/// How logs are opened: [`Logs::open`] or [`Logs::open_again`].
type OpenLogs = fn(&Logs, &[Wanted], u64, usize, Timestamp) -> Vec<Result<Opened, StorageError>>;

/// Acts upon updates until the broker stops, copies replicas anew that were `refused`, and opens those that could not be opened
/// when there was no room for them.
pub async fn run(
    server: Arc<Server>,
    applied: watch::Sender<u64>,
    mut refused: UnboundedReceiver<Keys>,
) {
    // The first update is a step from the empty image: deletions since the start of this broker are in no step.
    let FirstUpdate { deleted, first, mut updates } =
        server.quorum.subscribe_after_deleted_topics();
    let image = server.quorum.image();
    on_disk(&server, 0, move |server| server.logs.delete_absent(&deleted, &image)).await;
    let mut first = Some(first);
    let mut known: Option<Arc<ImageUpdate>> = None;
    let mut look = tokio::time::interval(OPENED_AGAIN_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_tried = None;
    loop {
        tokio::select! {
            update = next_update(&mut first, &mut updates) => {
                let Some(update) = update.map(Arc::new) else { return };
                let index = update.index;
                known = Some(Arc::clone(&update));
                on_disk(&server, index, move |server| act_upon(server, &update)).await;
                server.counters.cluster.metadata_changed_ms.set(server.now().0.max(0) as u64);
                applied.send_replace(index);
            }
            Some(refused) = refused.recv() => {
                let Some(update) = known.clone() else { continue };
                let index = update.index;
                on_disk(&server, index, move |server| copy_anew(server, &update, &refused)).await;
            }
            _ = look.tick() => {
                let waiting = server.logs.to_be_opened_again();
                let Some(update) = known.clone().filter(|_| !waiting.is_empty()) else { continue };
                let (count, index) = (waiting.len(), update.index);
                let keys = in_turn(waiting, &mut last_tried);
                on_disk(&server, index, move |server| open_again(server, &update, &keys)).await;
                let left = server.logs.to_be_opened_again().len();
                if 0 < left && left < count {
                    look.reset_immediately();
                }
            }
        }
    }
}

/// The first update, then those that follow; `None` when the quorum has stopped.
async fn next_update(
    first: &mut Option<ImageUpdate>,
    updates: &mut Subscription,
) -> Option<ImageUpdate> {
    match first.take() {
        Some(first) => Some(first),
        None => updates.next().await,
    }
}

/// Runs what opens and deletes, which works on the disk.
async fn on_disk(
    server: &Arc<Server>,
    index: u64,
    work: impl FnOnce(&Arc<Server>) + Send + 'static,
) {
    let server = Arc::clone(server);
    let acting = move || server.acting.run(|| work(&server));
    if tokio::task::spawn_blocking(acting).await.is_err() {
        error!(index, "a bug: acting upon the cluster's metadata panicked");
        std::process::abort();
    }
}

/// Puts aside what is left of refused replicas, where others have everything and nothing counts on these any more, and
/// follows with empty ones.
fn copy_anew(server: &Arc<Server>, update: &ImageUpdate, refused: &[(TopicId, PartitionIndex)]) {
    let image = &update.after;
    let mut topics = Topics::clone(&server.topics.snapshot());
    let mut changes = Vec::new();
    for (topic_id, index) in refused {
        changes.extend(put_aside(server, image, &mut topics, *topic_id, *index));
    }
    serve(server, &unchanged(update), &mut topics, &changes, Logs::open);
    server.topics.replace(topics);
}

/// Those that come next of these, behind the last one that was tried.
fn in_turn(mut waiting: Vec<LogKey>, last: &mut Option<LogKey>) -> Vec<LogKey> {
    waiting.sort_unstable();
    let next = last.map_or(0, |last| waiting.partition_point(|key| *key <= last));
    waiting.rotate_left(next);
    waiting.truncate(OPENED_AGAIN_MAX);
    *last = waiting.last().copied();
    waiting
}

/// Opens replicas that could not be opened before, as far as this broker still has them.
fn open_again(server: &Arc<Server>, update: &ImageUpdate, keys: &[LogKey]) {
    let image = &update.after;
    let changes = keys.iter().filter_map(|key| {
        let topic = image.topic_by_id(key.topic_id)?;
        let state = topic.partition(key.partition)?;
        let kind = match state.leader == server.node_id {
            true => LocalChangeKind::Lead(state.clone()),
            false => LocalChangeKind::Follow(state.clone()),
        };
        let is_here = state.replicas.contains(&server.node_id);
        let (topic, topic_id) = (Arc::clone(&topic.name), key.topic_id);
        is_here.then_some(LocalChange { topic, topic_id, partition: key.partition, kind })
    });
    let changes: Vec<LocalChange> = changes.collect();
    let mut topics = Topics::clone(&server.topics.snapshot());
    serve(server, &unchanged(update), &mut topics, &changes, Logs::open_again);
    server.topics.replace(topics);
}

/// The metadata as it stands behind an update, without what that has changed.
fn unchanged(update: &ImageUpdate) -> ImageUpdate {
    let (before, after) = (Arc::clone(&update.after), Arc::clone(&update.after));
    ImageUpdate { index: update.index, before, after, delta: Arc::default() }
}

/// Puts one aside. Returns what is to be done then, if it was.
fn put_aside(
    server: &Server,
    image: &ClusterImage,
    topics: &mut Topics,
    topic_id: TopicId,
    index: PartitionIndex,
) -> Option<LocalChange> {
    let topic = image.topic_by_id(topic_id)?;
    let state = topic.partition(index)?;
    let key = LogKey { topic_id, partition: index };
    let is_missing = server.logs.is_missing(&key);
    if !server.logs.refuses(&key) && !is_missing {
        return None;
    }
    let name = TopicPartition { topic: Arc::clone(&topic.name), partition: index };
    if !node::roles::is_copied_anew(state, server.node_id) {
        let words = "the replica is refused, and no other one is known to have everything: it stays as it is";
        if state.replicas.len() > 1 && server.complaints.is_news(&name, &words) {
            warn!(partition = %name, "{words}");
        }
        return None;
    }
    take_out(server, topics, topic_id, index);
    let follow =
        |kind| LocalChange { topic: Arc::clone(&topic.name), topic_id, partition: index, kind };
    if is_missing {
        let may_be_copied = server.logs.forget_missing(&key, &name);
        return may_be_copied.then(|| follow(LocalChangeKind::Follow(state.clone())));
    }
    match server.logs.set_aside(&key, &name) {
        Ok(kept) => {
            let kept = kept?;
            warn!(partition = %name, kept = %kept.display(), "the replica is refused, and others have everything: it is copied anew; what was there is kept");
            Some(follow(LocalChangeKind::Follow(state.clone())))
        }
        Err(cause) => {
            if server.complaints.is_news(&name, &cause) {
                error!(partition = %name, %cause, "cannot put aside a replica that is to be copied anew; it is tried again");
            }
            None
        }
    }
}

/// Closes a refused replica that is open, and takes it out of the table.
fn take_out(server: &Server, topics: &mut Topics, topic_id: TopicId, index: PartitionIndex) {
    let Some(topic) = topics.by_id(&topic_id).cloned() else { return };
    let mut partitions = topic.partitions.clone();
    let slot = usize::try_from(index.0).ok().and_then(|at| partitions.get_mut(at));
    let Some(partition) = slot.and_then(Option::take) else { return };
    close(server, &partition);
    topics.insert(with_partitions(&topic, partitions));
}

/// What the broker does about one step of the cluster.
pub fn act_upon(server: &Arc<Server>, update: &ImageUpdate) {
    count(server, update);
    let image = &update.after;
    if update.delta.cluster {
        server.logs.raise_levels(image);
    }
    let reconfigured = broker_configs_changed(server, update);
    if reconfigured {
        reconfigure_broker(server, image);
    }
    let mut topics = Topics::clone(&server.topics.snapshot());
    let changes = update.local_changes(server.node_id);
    let removed = remove(server, &mut topics, &changes);
    let (replaced, removed) = of_names_in_use(removed, &changes);
    // The topics that have their names now are opened in these places.
    server.logs.delete(&replaced);
    require_more(server, update, &topics, reconfigured);
    serve(server, update, &mut topics, &changes, Logs::open);
    stand_anew(server, update, &topics);
    reconfigure_topics(server, update, &topics, reconfigured);
    server.topics.replace(topics);
    server.acting.serves(update.index);
    for (name, _) in deleted_topics(update) {
        info!(topic = %name, "deleted");
    }
    // Only now can nobody find them any more.
    server.logs.delete(&removed);
    tell_groups(server, update, &changes);
}

/// Those first of which another one has the name since, in the same step.
fn of_names_in_use(removed: Vec<Gone>, changes: &[LocalChange]) -> (Vec<Gone>, Vec<Gone>) {
    let here = changes.iter().filter(|change| change.kind != LocalChangeKind::Remove);
    let names: BTreeSet<(&str, PartitionIndex)> =
        here.map(|change| (&*change.topic, change.partition)).collect();
    removed.into_iter().partition(|gone| names.contains(&(&*gone.name.topic, gone.name.partition)))
}

fn count(server: &Server, update: &ImageUpdate) {
    let fenced_for = |broker| server.links.as_ref()?.watching().take_fenced_for(broker);
    let (me, decides) = (server.node_id, server.quorum.is_leader());
    let counts = Counts { me, decides, fenced_for: &fenced_for };
    counts.step(&server.counters.cluster, update);
    server.departed.step(update, server.clock.moment());
}

/// Name and id of each.
fn deleted_topics(update: &ImageUpdate) -> Vec<(Arc<str>, TopicId)> {
    let deleted = update.delta.topics.iter().filter_map(|(id, change)| match change {
        TopicChange::Deleted(name) => Some((Arc::clone(name), *id)),
        TopicChange::Created | TopicChange::Changed(_) => None,
    });
    deleted.collect()
}

/// Takes partitions out of the table, also those that could not be opened. Returns which.
fn remove(server: &Server, topics: &mut Topics, changes: &[LocalChange]) -> Vec<Gone> {
    let mut delays_ms: BTreeMap<TopicId, i64> = BTreeMap::new();
    let going = changes.iter().filter(|change| change.kind == LocalChangeKind::Remove);
    let mut by_topic: BTreeMap<TopicId, BTreeSet<PartitionIndex>> = BTreeMap::new();
    for change in going {
        by_topic.entry(change.topic_id).or_default().insert(change.partition);
    }
    for (id, indexes) in by_topic {
        let Some(topic) = topics.remove(&id) else { continue };
        let mut partitions = topic.partitions.clone();
        for index in indexes {
            let slot = usize::try_from(index.0).ok().and_then(|at| partitions.get_mut(at));
            if let Some(partition) = slot.and_then(Option::take) {
                delays_ms.insert(id, partition.settings().log.file_delete_delay_ms);
                close(server, &partition);
            }
        }
        if partitions.iter().any(Option::is_some) {
            topics.insert(with_partitions(&topic, partitions));
        }
    }
    let going = changes.iter().filter(|change| change.kind == LocalChangeKind::Remove);
    let default_ms = LogConfig::default().file_delete_delay_ms;
    let gone = going.map(|change| Gone {
        topic_id: change.topic_id,
        name: TopicPartition { topic: Arc::clone(&change.topic), partition: change.partition },
        delay_ms: delays_ms.get(&change.topic_id).copied().unwrap_or(default_ms),
    });
    gone.collect()
}

/// Ends all that is done with a replica.
fn close(server: &Server, partition: &Partition) {
    let TopicPartition { topic, partition: index } = partition.topic_partition();
    let key = key_of(partition);
    server.roles.forget(&key);
    server.fetchers.leave(&key);
    partition.mark_deleted();
    if **topic == *OFFSETS_TOPIC {
        server.groups.unload(index.0);
    }
}

fn with_partitions(topic: &Topic, partitions: Vec<Option<Arc<Partition>>>) -> Arc<Topic> {
    Arc::new(Topic {
        name: Arc::clone(&topic.name),
        id: topic.id,
        internal: topic.internal,
        partitions,
        counters: Arc::clone(&topic.counters),
    })
}

/// Leads or follows, and opens what is not open: last, because that takes as long as a disk takes, and nothing that is open
/// waits for it.
fn serve(
    server: &Arc<Server>,
    update: &ImageUpdate,
    topics: &mut Topics,
    changes: &[LocalChange],
    open_logs: OpenLogs,
) {
    let image = &update.after;
    for change in changes.iter().filter(|change| change.kind != LocalChangeKind::Remove) {
        let topic = topics.by_id(&change.topic_id);
        if let Some(partition) = topic.and_then(|topic| topic.partition(change.partition)) {
            give_role(server, image, partition, state_of(&change.kind));
        }
    }
    let open = open_missing(server, update, topics, changes, open_logs);
    let mut by_topic: BTreeMap<TopicId, Vec<&LocalChange>> = BTreeMap::new();
    for change in changes.iter().filter(|change| change.kind != LocalChangeKind::Remove) {
        by_topic.entry(change.topic_id).or_default().push(change);
    }
    for (id, changes) in by_topic {
        let known = topics.by_id(&id).cloned();
        let count = image.topic_by_id(id).map_or(0, |topic| topic.partition_count());
        let mut partitions =
            known.as_ref().map(|topic| topic.partitions.clone()).unwrap_or_default();
        partitions.resize(count.max(partitions.len()), None);
        for change in changes {
            let slot = &mut partitions[change.partition.0 as usize];
            let key = (id, change.partition);
            if slot.is_none()
                && let Some(partition) = open.get(&key).cloned().flatten()
            {
                give_role(server, image, &partition, state_of(&change.kind));
                *slot = Some(partition);
            }
        }
        let described = image.topic_by_id(id).expect("a change is of a topic");
        let topic = Topic {
            name: Arc::clone(&described.name),
            id,
            internal: described.is_internal(),
            partitions,
            counters: known.map(|topic| Arc::clone(&topic.counters)).unwrap_or_default(),
        };
        topics.insert(Arc::new(topic));
    }
}

/// Gives a replica the role that its partition's state says, and has it copied, or not, accordingly.
fn give_role(
    server: &Arc<Server>,
    image: &ClusterImage,
    partition: &Arc<Partition>,
    state: &PartitionImage,
) {
    let index = partition.topic_partition().partition;
    let key = Key { topic_id: partition.topic_id(), partition: index };
    let assignment = node::roles::assignment(image, (key.topic_id, index), state);
    let (leader, epoch) = (state.leader, state.leader_epoch);
    let (acting, taken) = (Arc::clone(server), Arc::clone(partition));
    server.roles.give(key, partition, assignment, &server.clock, move || {
        took_role(&acting, key, &taken, leader, epoch);
    });
}

/// A replica has taken its role.
fn took_role(
    server: &Server,
    key: Key,
    partition: &Arc<Partition>,
    leader: BrokerId,
    epoch: LeaderEpoch,
) {
    if leader == server.node_id || leader == BrokerId::NONE {
        server.fetchers.leave(&key);
    } else {
        let slots = server.config().followers.fetchers;
        let directory = server.logs.directory_number(partition).unwrap_or(0);
        server.fetchers.follow(key, partition, leader, (directory, slots));
    }
    if *partition.topic_partition().topic != *OFFSETS_TOPIC {
        return;
    }
    match leader == server.node_id {
        // Other in-sync replicas in the same leader epoch change nothing for the groups.
        true => server.groups.load(Arc::clone(partition), epoch),
        false => server.groups.follow(partition),
    }
}

/// Brokers came or went: who leads a partition with a replica there counts it differently from now on.
fn stand_anew(server: &Arc<Server>, update: &ImageUpdate, topics: &Topics) {
    let changed = &update.delta.brokers;
    if changed.is_empty() || server.links.is_none() {
        return;
    }
    let image = &update.after;
    for topic in topics.iter() {
        let Some(described) = image.topic_by_id(topic.id) else { continue };
        for partition in topic.partitions.iter().flatten() {
            let at = partition.topic_partition().partition;
            let state = described.partition(at).filter(|state| state.leader == server.node_id);
            let Some(state) = state else { continue };
            if state.replicas.iter().any(|id| changed.contains(id)) {
                give_role(server, image, partition, state);
            }
        }
    }
}

type OpenedPartitions = BTreeMap<(TopicId, PartitionIndex), Option<Arc<Partition>>>;

/// Opens the logs of all partitions that are new here, several at once. One that cannot be opened
/// is reported and left out; the others serve.
fn open_missing(
    server: &Server,
    update: &ImageUpdate,
    topics: &Topics,
    changes: &[LocalChange],
    open_logs: OpenLogs,
) -> OpenedPartitions {
    let missing: Vec<&LocalChange> = changes
        .iter()
        .filter(|change| change.kind != LocalChangeKind::Remove)
        .filter(|change| {
            let topic = topics.by_id(&change.topic_id);
            topic.is_none_or(|topic| topic.partition(change.partition).is_none())
        })
        .collect();
    let settings = settings_of(server, &update.after, &missing);
    let config = server.config();
    let threads = config.threads.recovery_per_log_dir.max(1) * config.log_dirs.len();
    let mut partitions = OpenedPartitions::new();
    for missing in missing.chunks(OPENED_TOGETHER_MAX) {
        let wanted: Vec<Wanted> =
            missing.iter().map(|change| wanted(change, &update.after, &settings)).collect();
        let is_news: Vec<bool> =
            wanted.iter().map(|wanted| !server.logs.is_unopened(&wanted.name)).collect();
        let opened = open_logs(&server.logs, &wanted, update.index, threads, server.now());
        let opened = wanted.into_iter().zip(opened).zip(is_news);
        partitions.extend(opened.map(|((wanted, opened), is_news)| {
            let key = (wanted.topic_id, wanted.name.partition);
            let settings = Arc::clone(&settings[&wanted.topic_id]);
            // What may be opened soon is led by another broker until then, if one has everything.
            let key_here = LogKey { topic_id: wanted.topic_id, partition: wanted.name.partition };
            let is_missing = server.logs.is_missing(&key_here);
            if opened.as_ref().is_err_and(|cause| is_news || !is_tried_again(cause)) && !is_missing
            {
                server.note_refused(wanted.topic_id, wanted.name.partition);
            }
            (key, take_over(server, wanted, settings, opened))
        }));
    }
    partitions
}

fn wanted(change: &LocalChange, image: &ClusterImage, settings: &SettingsByTopic) -> Wanted {
    let settings = &settings[&change.topic_id];
    let topic = image.topic_by_id(change.topic_id);
    // The log may have an epoch of which the metadata knows by this broker's report only.
    let found = topic.and_then(|topic| topic.found_epoch(change.partition));
    let epoch = state_of(&change.kind).leader_epoch;
    Wanted {
        name: TopicPartition { topic: Arc::clone(&change.topic), partition: change.partition },
        topic_id: change.topic_id,
        config: Arc::clone(&settings.log),
        durability: settings.durability,
        epoch: found.map_or(epoch, |found| found.max(epoch)),
    }
}

/// The state of the partition of which a replica is to lead or to follow.
fn state_of(kind: &LocalChangeKind) -> &PartitionImage {
    match kind {
        LocalChangeKind::Lead(state) | LocalChangeKind::Follow(state) => state,
        LocalChangeKind::Remove => unreachable!("removals were taken out"),
    }
}

fn take_over(
    server: &Server,
    wanted: Wanted,
    settings: Arc<Settings>,
    opened: Result<Opened, StorageError>,
) -> Option<Arc<Partition>> {
    match opened {
        Ok(Opened { log, high_watermark, sync_queue }) => {
            let (name, id, me) = (wanted.name, wanted.topic_id, server.node_id);
            let partition = Partition::new(name, id, me, log, settings, high_watermark, sync_queue);
            partition.recall_committed(high_watermark);
            server.logs.register(&partition);
            server.in_sync.include(&partition);
            Some(partition)
        }
        Err(cause) => {
            tell_unopened(server, &wanted.name, &cause);
            None
        }
    }
}

/// Says that a partition is not served. Of what lacks room, or a descriptor, that is told once a minute while it lasts.
fn tell_unopened(server: &Server, name: &TopicPartition, cause: &StorageError) {
    if !is_tried_again(cause) {
        tell_refusal(name, cause);
    } else if server.complaints.is_news(name, cause) {
        error!(partition = %name, error = %cause, "no room, or no descriptor, for opening the log; the partition is offline, and it is tried again every few seconds");
    }
}

type SettingsByTopic = BTreeMap<TopicId, Arc<Settings>>;

fn settings_of(server: &Server, image: &ClusterImage, changes: &[&LocalChange]) -> SettingsByTopic {
    let config = server.config();
    let mut settings = SettingsByTopic::new();
    for change in changes {
        settings
            .entry(change.topic_id)
            .or_insert_with(|| Arc::new(resolve(&config, image, server.node_id, &change.topic)));
    }
    settings
}

fn broker_configs_changed(server: &Server, update: &ImageUpdate) -> bool {
    let own = ConfigResource::Broker(server.node_id);
    update.delta.configs.contains(&own)
        || update.delta.configs.contains(&ConfigResource::ClusterDefault)
}

/// The configuration that was given at the start, and on top of it what the image says now.
fn reconfigure_broker(server: &Server, image: &ClusterImage) {
    let own = ConfigResource::Broker(server.node_id);
    let scopes = [(Scope::AllBrokers, ConfigResource::ClusterDefault), (Scope::ThisBroker, own)];
    let mut config = BrokerConfig::clone(&server.config());
    for (scope, resource) in scopes {
        let wanted =
            image.configs(&resource).map(|configs| (**configs).clone()).unwrap_or_default();
        let (changed, refused) = config.with_changes_obeyed(scope, &wanted);
        config = changed;
        for (key, cause) in refused {
            error!(key, %cause, "ignoring an invalid dynamic configuration");
        }
    }
    server.quorum.set_controller_settings(controller_settings(&config));
    server.flusher.set_delay_ms(config.log.sync_delay_ms);
    let descriptors = server.limits.descriptors.connections;
    server.connections.set_limits(ConnectionLimits::new(&config, descriptors));
    server.config.store(Arc::new(config));
}

/// A larger `min.insync.replicas` and `durability=fsync` apply before roles are given, smaller demands when they are taken. One update may merge several steps of
/// the metadata: with the new ISR and the old minimum, or the old leader epoch and the new minimum, a leader would acknowledge
/// records that no other in-sync replica has.
fn require_more(server: &Server, update: &ImageUpdate, topics: &Topics, all: bool) {
    for (partition, wanted) in reconfigured(server, update, topics, all) {
        let is_synced = || partition.settings().durability == Durability::Fsync;
        let was_synced = is_synced();
        server.roles.require_more(&key_of(partition), partition, &wanted);
        if !was_synced && is_synced() {
            partition.request_sync();
            server.logs.note_durability(partition, Durability::Fsync);
        }
    }
}

fn reconfigure_topics(server: &Server, update: &ImageUpdate, topics: &Topics, all: bool) {
    for (partition, wanted) in reconfigured(server, update, topics, all) {
        obey(server, partition, &wanted);
    }
}

/// Partitions whose configuration may have changed, and what it is now.
fn reconfigured<'a>(
    server: &Server,
    update: &ImageUpdate,
    topics: &'a Topics,
    all: bool,
) -> Vec<(&'a Arc<Partition>, Arc<Settings>)> {
    let config = server.config();
    let changed = update.delta.configs.iter().filter_map(|resource| match resource {
        ConfigResource::Topic(name) => topics.by_name(name),
        _ => None,
    });
    let concerned: Vec<&Arc<Topic>> = if all { topics.iter().collect() } else { changed.collect() };
    let with_settings = concerned.into_iter().flat_map(|topic| {
        let settings = Arc::new(resolve(&config, &update.after, server.node_id, &topic.name));
        let partitions = topic.partitions.iter().flatten();
        partitions.map(move |partition| (partition, Arc::clone(&settings)))
    });
    with_settings.collect()
}

fn obey(server: &Server, partition: &Arc<Partition>, settings: &Arc<Settings>) {
    let durability = settings.durability;
    let changes = partition.settings().durability != durability;
    if changes && durability == Durability::PageCache {
        server.logs.note_durability(partition, durability);
    }
    server.roles.obey(&key_of(partition), partition, settings);
    partition.request_sync();
    if changes && durability == Durability::Fsync {
        server.logs.note_durability(partition, durability);
    }
}

fn key_of(partition: &Partition) -> Key {
    Key { topic_id: partition.topic_id(), partition: partition.topic_partition().partition }
}

/// Tells groups of partitions that could not be opened here, and of topics that were deleted. Of the others they hear with
/// the role.
fn tell_groups(server: &Server, update: &ImageUpdate, changes: &[LocalChange]) {
    let topics = server.topics.snapshot();
    for change in changes.iter().filter(|change| *change.topic == *OFFSETS_TOPIC) {
        let is_here = topics.by_id(&change.topic_id).and_then(|it| it.partition(change.partition));
        if change.kind != LocalChangeKind::Remove && is_here.is_none() {
            server.groups.unload(change.partition.0);
        }
    }
    let deleted = deleted_topics(update).into_iter();
    // Old releases stored offsets without the topic's id.
    let deleted: Vec<_> =
        deleted.flat_map(|(name, id)| [(Arc::clone(&name), id), (name, TopicId::ZERO)]).collect();
    if !deleted.is_empty() {
        server.groups.topics_deleted(&deleted);
    }
}

/// What a topic's partitions obey.
pub fn resolve(
    config: &BrokerConfig,
    image: &ClusterImage,
    node_id: BrokerId,
    topic: &str,
) -> Settings {
    let statics = config.configuration.static_values();
    let wanted = Resolver::new(image, &statics, Some(node_id)).settings(topic);
    let always_synced = internal_topics::is_internal(topic);
    Settings {
        log: Arc::new(log_config(&wanted)),
        durability: match wanted.durability {
            Durability::PageCache if !always_synced => Durability::PageCache,
            _ => Durability::Fsync,
        },
        min_insync_replicas: usize::try_from(wanted.min_insync_replicas).unwrap_or(1),
        replica_lag_max: Duration::from_millis(config.replica_lag_ms_max),
        validation: wanted.records_validation,
        expanded_bytes_max: wanted.records_expanded_max_bytes as usize,
        compression: compression_rule(&wanted),
        timestamp_type: wanted.timestamp_type,
        timestamp_before_max_ms: wanted.timestamp_before_max_ms,
        timestamp_after_max_ms: wanted.timestamp_after_max_ms,
        flush_messages: wanted.flush_messages,
        flush_ms: wanted.flush_ms,
    }
}

fn compression_rule(wanted: &TopicSettings) -> CompressionRule {
    match wanted.compression {
        CompressionChoice::Producer => CompressionRule::Producer,
        CompressionChoice::Codec(codec) => {
            let level = match codec {
                Compression::Gzip => Some(wanted.compression_gzip_level),
                Compression::Lz4 => Some(wanted.compression_lz4_level),
                Compression::Zstd => Some(wanted.compression_zstd_level),
                Compression::None | Compression::Snappy => None,
            };
            CompressionRule::Codec(codec, level)
        }
    }
}

fn log_config(wanted: &TopicSettings) -> LogConfig {
    let jitter = wanted.segment_jitter_ms.max(0);
    LogConfig {
        segment_bytes: wanted.segment_bytes,
        segment_ms: wanted.segment_ms,
        segment_jitter_ms: if jitter == 0 { 0 } else { fastrand::i64(0..jitter) },
        segment_index_bytes: wanted.segment_index_bytes,
        index_interval_bytes: wanted.index_interval_bytes,
        retention_ms: wanted.retention_ms,
        retention_bytes: wanted.retention_bytes,
        cleanup: CleanupPolicy { delete: wanted.cleanup_delete, compact: wanted.cleanup_compact },
        delete_retention_ms: wanted.delete_retention_ms,
        min_compaction_lag_ms: wanted.min_compaction_lag_ms,
        max_compaction_lag_ms: wanted.max_compaction_lag_ms,
        min_cleanable_dirty_ratio: wanted.min_cleanable_dirty_ratio,
        file_delete_delay_ms: wanted.file_delete_delay_ms,
        preallocate: wanted.preallocate,
        max_message_bytes: wanted.max_message_bytes,
        ahead_bytes: LogConfig::default().ahead_bytes,
        ahead_after_syncs: LogConfig::default().ahead_after_syncs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_could_not_be_opened_are_tried_in_turn_so_many_at_a_time() {
        let key = |index| LogKey { topic_id: TopicId::ZERO, partition: PartitionIndex(index) };
        let waiting: Vec<LogKey> = (0..100).rev().map(key).collect();
        let mut last = None;
        assert_eq!(in_turn(waiting.clone(), &mut last), (0..64).map(key).collect::<Vec<_>>());
        let second = (64..100).chain(0..28).map(key).collect::<Vec<_>>();
        assert_eq!(in_turn(waiting, &mut last), second);
        assert_eq!(in_turn(vec![key(7)], &mut last), [key(7)], "what was tried last is gone");
        assert_eq!(in_turn(Vec::new(), &mut last), []);
    }

    #[test]
    fn of_a_name_that_is_used_again_in_the_same_step_the_first_one_leaves_at_once() {
        let gone = |id: u8, index| Gone {
            topic_id: model::Uuid([id; 16]),
            name: TopicPartition::new("t", index),
            delay_ms: 0,
        };
        let change = |id: u8, index, kind| LocalChange {
            topic: "t".into(),
            topic_id: model::Uuid([id; 16]),
            partition: PartitionIndex(index),
            kind,
        };
        let me = vec![BrokerId(1)];
        let state = PartitionImage {
            replicas: me.clone(),
            isr: me,
            elr: Vec::new(),
            leader: BrokerId(1),
            restarted: Vec::new(),
            last_known_leader: BrokerId::NONE,
            leader_epoch: LeaderEpoch(0),
            partition_epoch: 0,
            recovering: false,
            durable: true,
        };
        let changes = [
            change(1, 0, LocalChangeKind::Remove),
            change(1, 1, LocalChangeKind::Remove),
            change(2, 0, LocalChangeKind::Follow(state)),
        ];
        let (at_once, later) = of_names_in_use(vec![gone(1, 0), gone(1, 1)], &changes);
        let indexes = |gone: &[Gone]| gone.iter().map(|it| it.name.partition.0).collect::<Vec<_>>();
        assert_eq!((indexes(&at_once), indexes(&later)), (vec![0], vec![1]));
    }
}
