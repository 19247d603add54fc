//! What the telemetry is told of this broker: snapshots, taken when somebody looks.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use model::{BrokerId, Offset, Timestamp, TopicPartition};
use node::disks::DirectoryCondition;
use partition::Partition;
use quorum::MemberDescription;
use serving::health::BrokerHealth;

use crate::cluster::are_in_doubt;
use crate::counters::{Counters, Durations};
use crate::health::{self, SharedHealth};
use crate::server::Server;
use crate::telemetry::{
    BrokerFacts, ClusterFacts, CommittedOffset, Depth, FollowerFacts, GroupFacts, LocalReplica,
    MemberFacts, Observed, PartitionFacts, QuorumFacts, RequestFacts, ThreadTimes, TopicFacts,
    VolumeFacts,
};

/// Groups that are shown. Anybody may make groups; who has more needs another way to look at them.
const GROUPS_MAX: usize = 10_000;
/// About so many committed offsets are looked at.
const COMMITTED_MAX: usize = 200_000;

/// Reads a broker's state, from the beginning of its start on. It does not keep the broker alive.
pub struct Observer {
    /// The broker, once its start has made it.
    server: OnceLock<Weak<Server>>,
    counters: Arc<Counters>,
    health: SharedHealth,
}

impl Observer {
    /// Of a broker that starts.
    pub fn new(counters: &Arc<Counters>, health: &SharedHealth) -> Observer {
        let (counters, health) = (Arc::clone(counters), Arc::clone(health));
        Observer { server: OnceLock::new(), counters, health }
    }

    /// Reads `server` from now on. The first call counts.
    pub fn observe(&self, server: &Arc<Server>) {
        let _ = self.server.set(Arc::downgrade(server));
    }

    fn server(&self) -> Option<Arc<Server>> {
        self.server.get().and_then(Weak::upgrade)
    }

    fn ask<T: Default>(&self, question: impl FnOnce(&Server) -> T) -> T {
        self.server().map(|server| question(&server)).unwrap_or_default()
    }
}

impl Observed for Observer {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn cluster(&self) -> ClusterFacts {
        self.ask(cluster)
    }

    fn topics(&self) -> Vec<TopicFacts> {
        self.ask(topics)
    }

    fn groups(&self, depth: Depth) -> Vec<GroupFacts> {
        self.ask(|server| groups(server, depth))
    }

    fn directory_syncs(&self) -> Vec<(String, Arc<Durations>)> {
        self.ask(|server| {
            let paths = server.logs.directories().map(|it| it.path().display().to_string());
            paths.zip(server.flusher.syncs().cloned()).collect()
        })
    }

    fn directory_volumes(&self) -> Vec<VolumeFacts> {
        self.ask(|server| {
            let used = server.logs.directories().enumerate().filter(|(_, it)| !it.is_offline());
            let facts = used.filter_map(|(at, it)| {
                let (total_bytes, free_bytes) = it.volume_bytes().ok()?;
                Some(VolumeFacts {
                    directory: it.path().display().to_string(),
                    total_bytes,
                    free_bytes,
                    oldest_operation: server.sick_disks.oldest_operation(at),
                    is_sick: server.sick_disks.condition(at) == DirectoryCondition::Sick,
                })
            });
            facts.collect()
        })
    }

    fn requests(&self) -> RequestFacts {
        self.ask(requests)
    }

    fn data_threads(&self) -> Option<ThreadTimes> {
        self.ask(|server| {
            let metrics = server.data.get()?.metrics();
            // The other half is in reserve (`network::reserve_threads`).
            let count = metrics.num_workers() / 2;
            let busy = (0..metrics.num_workers())
                .map(|worker| metrics.worker_total_busy_duration(worker))
                .sum();
            Some(ThreadTimes { count, busy })
        })
    }

    fn is_started(&self) -> bool {
        self.health.is_started()
    }

    fn stalled_threads(&self) -> Vec<&'static str> {
        self.health.stalled_threads()
    }

    fn health(&self) -> BrokerHealth {
        match self.server() {
            Some(server) => health::check(&server),
            None => self.health.of_start(),
        }
    }
}

fn cluster(server: &Server) -> ClusterFacts {
    let image = server.image();
    let brokers = image.brokers().filter(|broker| !broker.fenced).map(|broker| {
        let endpoint = broker.endpoints.first();
        let address = endpoint.map(|endpoint| format!("{}:{}", endpoint.host, endpoint.port));
        BrokerFacts { id: broker.id.0, address: address.unwrap_or_default() }
    });
    ClusterFacts {
        cluster_id: server.cluster_id.to_string(),
        node_id: server.node_id.0,
        is_controller: server.quorum.is_leader(),
        brokers: brokers.collect(),
        fenced_broker_count: image.brokers().filter(|broker| broker.fenced).count(),
        registered: image.brokers().map(|broker| (broker.id.0, broker.fenced)).collect(),
        broker_epoch: image.broker(server.node_id).map_or(-1, |own| own.epoch.0),
        suspicions: server.links.as_ref().map_or(0, |links| links.watching().suspicions()),
        disk_moves: server.links.as_ref().map_or(0, |links| links.watching().disk_moves()),
        leaderships_in_doubt: are_in_doubt(server),
        refused_in_doubt: server.contacts.refused(),
        acknowledgements: acknowledgements(server),
        quorum: quorum(server),
        followers: followers(server),
    }
}

/// Longest acknowledgement of each follower within a minute.
fn acknowledgements(server: &Server) -> Vec<(i32, Duration)> {
    let recent = server.acknowledgers.lock().recent(server.clock.moment());
    recent.into_iter().map(|follower| (follower.broker.0, follower.longest)).collect()
}

fn quorum(server: &Server) -> QuorumFacts {
    let standing = server.quorum.standing();
    let described = server.quorum.describe();
    let member = |votes| {
        move |member: MemberDescription| MemberFacts {
            id: member.node.0,
            votes,
            log_end_offset: member.log_end.0,
            heard_ago: member.heard_ago,
        }
    };
    let members = described.map_or_else(Vec::new, |described| {
        let voters = described.voters.into_iter().map(member(true));
        voters.chain(described.observers.into_iter().map(member(false))).collect()
    });
    QuorumFacts {
        leader: standing.leader.unwrap_or(BrokerId::NONE).0,
        leader_epoch: standing.leader_epoch,
        log_end_offset: standing.log_end.0,
        applied_offset: standing.applied_end.0,
        members,
    }
}

/// How far other brokers are, over all partitions that this one leads: as many as there are brokers.
fn followers(server: &Server) -> Vec<FollowerFacts> {
    let (now, here) = (server.clock.moment(), server.topics.snapshot());
    let mut facts = BTreeMap::<i32, FollowerFacts>::new();
    for partition in here.partitions() {
        partition.look_at_followers(|place| {
            let id = place.broker.0;
            let of = facts.entry(id).or_insert_with(|| FollowerFacts { id, ..Default::default() });
            of.partitions += 1;
            of.out_of_sync += usize::from(!place.in_sync);
            of.lag_max = of.lag_max.max(place.lag);
            if place.lag > 0 {
                // Of one that never had everything in this leader epoch no time is known.
                let behind = place.caught_up.map(|at| now.since(at)).unwrap_or_default();
                of.behind = of.behind.max(behind);
            }
        });
    }
    facts.into_values().collect()
}

fn topics(server: &Server) -> Vec<TopicFacts> {
    let (image, here) = (server.image(), server.topics.snapshot());
    let facts = image.topics().map(|topic| {
        let local = here.by_id(&topic.id);
        let partition = |index| local.and_then(|local| local.partition(index));
        let partitions = topic.partitions().map(|(index, state)| PartitionFacts {
            index: index.0,
            leader: state.leader.0,
            replicas: state.replicas.iter().map(|broker| broker.0).collect(),
            in_sync: state.isr.iter().map(|broker| broker.0).collect(),
            eligible: state.elr.len(),
            in_sync_min: partition(index)
                .map_or(1, |found| found.settings().min_insync_replicas)
                .min(state.replicas.len()),
            local: partition(index).map(replica),
        });
        TopicFacts {
            name: Arc::clone(&topic.name),
            counters: local.map(|local| Arc::clone(&local.counters)).unwrap_or_default(),
            partitions: partitions.collect(),
        }
    });
    facts.collect()
}

fn replica(partition: &Arc<Partition>) -> LocalReplica {
    let high_watermark = partition.high_watermark().0;
    partition.with_log(|log| LocalReplica {
        log_start_offset: log.log_start_offset().0,
        log_end_offset: log.log_end_offset().0,
        high_watermark,
        size_bytes: log.size_bytes(),
        segment_count: log.segment_count(),
    })
}

fn requests(server: &Server) -> RequestFacts {
    let (frames, decoded) = (&server.memory.frames, &server.memory.decoded);
    let (fetch_sessions, fetch_session_partitions) = server.fetch_sessions.counts();
    RequestFacts {
        frame_bytes: frames.used_bytes(),
        frame_bytes_max: frames.bytes_max(),
        decoded_bytes: decoded.used_bytes(),
        decoded_bytes_max: decoded.bytes_max(),
        answer_bytes: server.memory.answers.used_bytes(),
        answer_bytes_max: server.memory.answers.bytes_max(),
        member_bytes: server.memory.members.used_bytes(),
        member_bytes_max: server.memory.members.bytes_max(),
        offset_bytes: server.memory.offsets.used_bytes(),
        offset_bytes_max: server.memory.offsets.bytes_max(),
        slow_frames: server.slow_frames.count(),
        fetch_sessions,
        fetch_session_partitions,
    }
}

fn groups(server: &Server, depth: Depth) -> Vec<GroupFacts> {
    let (here, now) = (server.topics.snapshot(), server.clock.now());
    let (mut facts, mut looked_at) = (Vec::new(), 0);
    server.groups.each_durable(|durable| {
        if facts.len() >= GROUPS_MAX || looked_at >= COMMITTED_MAX {
            return;
        }
        for group in durable.group_ids() {
            if facts.len() >= GROUPS_MAX || looked_at >= COMMITTED_MAX {
                return;
            }
            let (mut lags, mut offsets) = (BTreeMap::<Arc<str>, i64>::new(), Vec::new());
            let mut worst = None;
            for (partition, committed) in durable.offsets(&group) {
                looked_at += 1;
                let local = here.by_name(&partition.topic);
                let local = local.and_then(|topic| topic.partition(partition.partition));
                let offset = CommittedOffset {
                    topic: Arc::clone(&partition.topic),
                    partition: partition.partition.0,
                    offset: committed.offset.0,
                    high_watermark: local.map(|local| local.high_watermark().0),
                    behind: local
                        .and_then(|local| behind(server, partition, local, committed.offset, now)),
                };
                worst = worst.max(offset.behind);
                if let Some(lag) = offset.lag() {
                    *lags.entry(Arc::clone(&offset.topic)).or_insert(0) += lag;
                }
                if depth == Depth::All {
                    offsets.push(offset);
                }
            }
            let member_count = durable.group(&group).map_or(0, |record| record.members.len());
            let name = group.to_string();
            facts.push(GroupFacts { name, member_count, lags, behind: worst, offsets });
        }
    });
    facts
}

/// How long ago the oldest record arrived that a group has still to read, which goes on at `offset`; what retention
/// has passed is not counted.
fn behind(
    server: &Server,
    name: &TopicPartition,
    partition: &Arc<Partition>,
    offset: Offset,
    now: Timestamp,
) -> Option<Duration> {
    let end = partition.high_watermark();
    server.log_ends.note(name, end, now);
    if offset >= end {
        return Some(Duration::ZERO);
    }
    let start = partition.with_log(|log| log.log_start_offset());
    server.log_ends.behind(name, offset.max(start), now)
}

/// Looks at the ends of all partitions that groups have committed offsets of, those with a replica here.
pub fn look_at_log_ends(server: &Server) {
    let (here, now) = (server.topics.snapshot(), server.clock.now());
    let mut looked_at = 0;
    server.groups.each_durable(|durable| {
        for group in durable.group_ids() {
            for (partition, _) in durable.offsets(&group) {
                looked_at += 1;
                if looked_at > COMMITTED_MAX {
                    return;
                }
                let local = here.by_name(&partition.topic);
                if let Some(local) = local.and_then(|topic| topic.partition(partition.partition)) {
                    server.log_ends.note(partition, local.high_watermark(), now);
                }
            }
        }
    });
    server.log_ends.forget_before(now);
}
