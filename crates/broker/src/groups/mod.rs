//! The group coordinators on this broker: one shard behind each partition of `__consumer_offsets`
//! that it leads. Here is which shards there are; what surrounds each of them is in `host.rs`, and what is known beforehand of
//! those that other brokers lead in `standby.rs`.

mod host;
mod room;
mod standby;

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use coordinator::{GroupConfig, Request, Response, Shard};
use metadata::ClusterImage;
use model::{ErrorCode, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition};
use parking_lot::{Mutex, RwLock};
use partition::Partition;

use crate::clock::Clock;
use crate::network::shares::SharedPool;
use crate::vital;
use host::Host;
pub use room::SILENT_AFTER;
use standby::Standby;

/// The topic that keeps what groups have committed.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// The coordinators on this broker.
pub struct Groups {
    config: GroupConfig,
    clock: Clock,
    memory: GroupPools,
    /// Where shards are served: on the data threads, which wait for a write now and then.
    data: tokio::runtime::Handle,
    /// The thread that these were made on, and that must wait for no disk.
    control: ThreadId,
    shards: RwLock<HashMap<i32, Arc<Host>>>,
    /// Of the partitions that this broker follows.
    standbys: Mutex<HashMap<i32, Arc<Standby>>>,
}

/// Memory of all coordinators of this broker.
#[derive(Clone)]
pub struct GroupPools {
    /// Of members and assignments.
    pub members: Arc<SharedPool>,
    /// Of committed offsets.
    pub offsets: Arc<SharedPool>,
    /// Of their metadata, which is a part of the memory of committed offsets.
    pub offset_metadata: Arc<SharedPool>,
}

/// The partition of `__consumer_offsets` that a group belongs to, by the cluster's formula. `None`: the topic
/// does not exist yet.
pub fn partition_of(image: &ClusterImage, group: &str) -> Option<PartitionIndex> {
    let topic = image.topic(OFFSETS_TOPIC)?;
    let count = topic.partition_count() as i32;
    Some(PartitionIndex(image.group_placement().partition_of(group, count)))
}

impl Groups {
    /// No coordinator yet. To be called on the control thread. Their memory is charged to `memory`; shards are served on `data`.
    pub fn new(
        config: GroupConfig,
        clock: Clock,
        memory: GroupPools,
        data: tokio::runtime::Handle,
    ) -> Groups {
        let (shards, standbys) = (RwLock::default(), Mutex::default());
        let control = std::thread::current().id();
        Groups { config, clock, memory, data, control, shards, standbys }
    }

    /// Loads the shard behind `partition`, which this broker leads since `epoch`, unless it is there. Returns at once;
    /// until it is loaded its groups are answered COORDINATOR_LOAD_IN_PROGRESS.
    pub fn load(&self, partition: Arc<Partition>, epoch: LeaderEpoch) {
        let index = partition.topic_partition().partition.0;
        if self.shards.read().get(&index).is_some_and(|host| host.is_of(&partition, epoch)) {
            return;
        }
        let (clock, memory) = (self.clock.clone(), self.memory.clone());
        let host = Arc::new(Host::new(partition, epoch, clock, memory, self.control));
        if let Some(old) = self.shards.write().insert(index, Arc::clone(&host)) {
            old.unload();
        }
        let standby = self.standbys.lock().remove(&index);
        let standby = standby.filter(|standby| standby.is_of(host.partition()));
        let served = host.load_and_serve(self.config.clone(), standby);
        self.data.spawn(vital::task("coordinator of groups", served));
    }

    /// Another broker leads this partition and this one copies it: the shard ends, if it was here, and its records are
    /// read ahead from now on ([`Groups::read_ahead`]).
    pub fn follow(&self, partition: &Arc<Partition>) {
        let index = partition.topic_partition().partition.0;
        self.end_shard(index);
        let mut standbys = self.standbys.lock();
        if !standbys.get(&index).is_some_and(|standby| standby.is_of(partition)) {
            let standby = Standby::new(Arc::clone(partition), self.config.clone());
            standbys.insert(index, Arc::new(standby));
        }
    }

    /// Replays what was committed since in the partitions that this broker follows. Reads the disk.
    pub fn read_ahead(&self) {
        let standbys: Vec<_> = self.standbys.lock().values().cloned().collect();
        standbys.iter().for_each(|standby| standby.advance());
    }

    /// The log of a partition that this broker follows is about to be cut to this offset, or was. To be told before and
    /// behind: records may be read ahead, or the standby be taken, in between.
    pub fn log_cut(&self, partition: &Arc<Partition>, to: Offset) {
        let index = partition.topic_partition().partition.0;
        let standby = self.standbys.lock().get(&index).cloned();
        if let Some(standby) = standby.filter(|standby| standby.is_of(partition)) {
            standby.was_cut(to);
        }
    }

    /// Ends the shard of this partition: it is gone, or this broker has no replica of it any more.
    pub fn unload(&self, partition_index: i32) {
        self.standbys.lock().remove(&partition_index);
        self.end_shard(partition_index);
    }

    fn end_shard(&self, partition_index: i32) {
        let host = self.shards.write().remove(&partition_index);
        if let Some(host) = host {
            host.unload();
        }
    }

    /// Ends all shards.
    pub fn unload_all(&self) {
        let hosts: Vec<_> = self.shards.write().drain().collect();
        hosts.into_iter().for_each(|(_, host)| host.unload());
        self.standbys.lock().clear();
    }

    /// Asks the coordinator of the group that lives on `partition_index`.
    pub async fn ask(&self, partition_index: i32, request: Request) -> Result<Response, ErrorCode> {
        let host = self.shards.read().get(&partition_index).cloned();
        host.ok_or(ErrorCode::NotCoordinator)?.ask(request).await
    }

    /// A figure of the shard behind `partition_index`; 0 unless the shard is here.
    pub fn bytes_of(&self, partition_index: i32, bytes: impl FnOnce(&Shard) -> usize) -> usize {
        let host = self.shards.read().get(&partition_index).cloned();
        host.map_or(0, |host| host.bytes_of(bytes))
    }

    /// The partitions whose shards are here.
    pub fn partitions(&self) -> Vec<i32> {
        let mut indexes: Vec<i32> = self.shards.read().keys().copied().collect();
        indexes.sort_unstable();
        indexes
    }

    /// Shows what the loaded shards have recorded.
    pub fn each_durable(&self, mut look: impl FnMut(&coordinator::Durable)) {
        for host in self.hosts() {
            host.look(&mut look);
        }
    }

    /// The shards that could not be loaded, with the reason. Loading them is tried again.
    pub fn failed(&self) -> Vec<(TopicPartition, String)> {
        let failed = self.hosts().into_iter().filter_map(|host| host.failure());
        failed.collect()
    }

    /// Tells all shards that topics are gone: name and id of each.
    pub fn topics_deleted(&self, topics: &[(Arc<str>, TopicId)]) {
        for host in self.hosts() {
            host.topics_deleted(topics);
        }
    }

    fn hosts(&self) -> Vec<Arc<Host>> {
        self.shards.read().values().cloned().collect()
    }
}

/// How often committed records of groups that other brokers coordinate are replayed.
const READ_AHEAD_EVERY: Duration = Duration::from_secs(1);

/// Keeps up with the groups of other brokers, for the day when one of them is gone.
pub async fn keep_up(groups: Arc<Groups>) {
    loop {
        tokio::time::sleep(READ_AHEAD_EVERY).await;
        let reading = Arc::clone(&groups);
        if vital::waiting(move || reading.read_ahead()).await.is_none() {
            return;
        }
    }
}

/// What the configuration says of groups.
pub fn group_config(config: &configuration::BrokerConfig) -> GroupConfig {
    GroupConfig {
        session_timeout_ms_min: config.groups.session_timeout_ms_min,
        session_timeout_ms_max: config.groups.session_timeout_ms_max,
        group_size_max: config.groups.size_max.max(1),
        initial_rebalance_delay_ms: config.groups.initial_rebalance_delay_ms as i64,
        offset_metadata_length_max: config.offsets.metadata_bytes_max,
        offsets_retention_ms: config.offsets.retention_minutes.saturating_mul(60_000),
        offsets_retention_check_interval_ms: config.offsets.retention_check_ms as i64,
        write_timeout_ms: config.offsets.commit_timeout_ms as i64,
        ..GroupConfig::default()
    }
}

#[cfg(test)]
mod tests;
