//! Membership in a classic consumer group: joining, sharing partitions out as the leader, beating,
//! leaving. What to read, and from where, is the consumer's.

use super::assignor::{Assigned, Assignor, Member};
use super::config::ConsumerConfig;
use crate::cluster::{Cluster, CoordinatorKind, PrivateLane};
use crate::connection::Connection;
use crate::error::{ClientError, check};
use crate::offsets::Committer;
use bytes::Bytes;
use model::{ErrorCode, TopicPartition};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use wire::consumer_protocol_subscription::TopicPartition as OwnedPartition;
use wire::join_group::JoinGroupRequestProtocol;
use wire::leave_group::MemberIdentity;
use wire::sync_group::SyncGroupRequestAssignment;
use wire::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, HeartbeatRequest, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, Message, Reader, SyncGroupRequest, Writer,
};

/// The version of what members exchange through the coordinator.
const PROTOCOL_VERSION: i16 = 1;

/// What the heartbeat's task and the consumer tell each other.
struct Pulse {
    state: Mutex<PulseState>,
    /// Wakes a poll that waits for records.
    changed: Arc<Notify>,
}

struct PulseState {
    /// Why the member has to join again, if it has to.
    lost: Option<ErrorCode>,
    /// When the consumer polled last.
    polled: Instant,
}

/// A member of a group.
pub(super) struct Membership {
    cluster: Cluster,
    /// A join may take minutes, and heartbeats must not wait for another member's join.
    lane: Arc<PrivateLane>,
    group_id: String,
    topics: BTreeSet<String>,
    member_id: String,
    generation_id: i32,
    pulse: Option<(Arc<Pulse>, AbortHandle)>,
    changed: Arc<Notify>,
    /// Whether a join was asked for that is not done: the poll that asked may have been dropped.
    is_joining: bool,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.stop_beating();
    }
}

impl Membership {
    pub(super) fn new(
        cluster: Cluster,
        group_id: String,
        topics: BTreeSet<String>,
        changed: Arc<Notify>,
    ) -> Membership {
        Membership {
            lane: Arc::new(cluster.private_lane()),
            cluster,
            group_id,
            topics,
            member_id: String::new(),
            generation_id: -1,
            pulse: None,
            changed,
            is_joining: false,
        }
    }

    pub(super) fn topics(&self) -> &BTreeSet<String> {
        &self.topics
    }

    /// Reads these topics from the next poll on, which joins again for that if they are others.
    pub(super) fn subscribe(&mut self, topics: BTreeSet<String>) {
        if self.topics == topics {
            return;
        }
        self.topics = topics;
        if let Some((pulse, _)) = &self.pulse {
            // As if the group shared its partitions out, which it will when this member joins.
            lock(&pulse.state).lost.get_or_insert(ErrorCode::RebalanceInProgress);
            self.changed.notify_one();
        }
    }

    /// Whether the group knows it, as far as it can tell.
    pub(super) fn is_member(&self) -> bool {
        !self.member_id.is_empty()
    }

    /// As whom offsets are committed.
    pub(super) fn committer(&self, config: &ConsumerConfig) -> Committer {
        Committer {
            member_id: self.member_id.clone(),
            group_instance_id: config.group_instance_id.clone(),
            generation_id: self.generation_id,
        }
    }

    /// Notes that the consumer lives. Whether it has to join (again).
    pub(super) fn poll(&mut self) -> Result<bool, ClientError> {
        let Some((pulse, _)) = &self.pulse else { return Ok(true) };
        let mut state = lock(&pulse.state);
        state.polled = Instant::now();
        match state.lost {
            None => Ok(false),
            Some(ErrorCode::RebalanceInProgress) => Ok(true),
            Some(ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration) => {
                drop(state);
                self.forget_member();
                Ok(true)
            }
            Some(code) => Err(ClientError::refused(format!("group {}", self.group_id), code)),
        }
    }

    /// The generation that it is a member of; -1 before it has joined.
    pub(super) fn member_id(&self) -> &str {
        &self.member_id
    }

    pub(super) fn generation_id(&self) -> i32 {
        self.generation_id
    }

    /// Whether the next poll joins (again), as far as is known now.
    pub(super) fn must_join(&self) -> bool {
        self.pulse.as_ref().is_none_or(|(pulse, _)| lock(&pulse.state).lost.is_some())
    }

    fn forget_member(&mut self) {
        self.member_id.clear();
        self.generation_id = -1;
    }

    pub(super) fn stop_beating(&mut self) {
        if let Some((_, task)) = self.pulse.take() {
            task.abort();
        }
    }

    /// Joins until there is an assignment; takes as long as the other members take to join too.
    pub(super) async fn join(
        &mut self,
        config: &ConsumerConfig,
    ) -> Result<Vec<TopicPartition>, ClientError> {
        self.stop_beating();
        let mut pause = self.cluster.config().retry_backoff;
        let deadline = Instant::now() + config.rebalance_timeout + Duration::from_secs(30);
        loop {
            let error = match self.try_join(config).await {
                Ok(assigned) => return Ok(assigned),
                Err(error) => error,
            };
            let code = error.code();
            match code {
                Some(ErrorCode::MemberIdRequired | ErrorCode::RebalanceInProgress) => continue,
                Some(ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration) => {
                    self.forget_member();
                }
                _ if !error.is_retriable() || Instant::now() > deadline => return Err(error),
                _ => self.cluster.forget_coordinator(CoordinatorKind::Group, &self.group_id),
            }
            tracing::debug!(group = %self.group_id, %error, "joining again");
            tokio::time::sleep(crate::cluster::jittered(pause)).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    async fn try_join(
        &mut self,
        config: &ConsumerConfig,
    ) -> Result<Vec<TopicPartition>, ClientError> {
        let id = self.cluster.coordinator(CoordinatorKind::Group, &self.group_id).await?;
        let connection = self.lane.broker(id).await?;
        self.is_joining = true;
        let joined = self.send_join(&connection, config).await?;
        self.generation_id = joined.generation_id;
        let leads = joined.leader == joined.member_id;
        self.member_id.clone_from(&joined.member_id);
        let assignments = if leads { self.share_out(&joined).await? } else { BTreeMap::new() };
        let assigned = self.send_sync(&connection, config, &joined, assignments).await?;
        self.is_joining = false;
        self.start_beating(config);
        Ok(assigned)
    }

    async fn send_join(
        &mut self,
        connection: &Connection,
        config: &ConsumerConfig,
    ) -> Result<JoinGroupResponse, ClientError> {
        let subscription = subscription(&self.topics, &config.user_data);
        let protocols = config.assignors.iter().map(|assignor| JoinGroupRequestProtocol {
            name: assignor.name().to_owned(),
            metadata: subscription.clone(),
        });
        let request = JoinGroupRequest {
            group_id: self.group_id.clone(),
            session_timeout_ms: config.session_timeout.as_millis() as i32,
            rebalance_timeout_ms: config.rebalance_timeout.as_millis() as i32,
            member_id: self.member_id.clone(),
            group_instance_id: config.group_instance_id.clone(),
            protocol_type: "consumer".to_owned(),
            protocols: protocols.collect(),
            ..Default::default()
        };
        let timeout = config.rebalance_timeout + Duration::from_secs(5);
        let response = connection.call_slow(&request, timeout).await?;
        if response.error() == ErrorCode::MemberIdRequired {
            self.member_id.clone_from(&response.member_id);
        }
        check(response.error(), None, || format!("joining group {}", self.group_id))?;
        Ok(response)
    }

    /// The leader's part: who reads what, encoded for each member.
    async fn share_out(
        &self,
        joined: &JoinGroupResponse,
    ) -> Result<BTreeMap<String, Bytes>, ClientError> {
        let name = joined.protocol_name.as_deref().unwrap_or_default();
        let unknown = || {
            ClientError::refused(format!("assignor {name:?}"), ErrorCode::InconsistentGroupProtocol)
        };
        let assignor = Assignor::of_name(name).ok_or_else(unknown)?;
        let mut members = Vec::new();
        for member in &joined.members {
            members.push(Member {
                id: member.member_id.clone(),
                instance_id: member.group_instance_id.clone(),
                topics: topics_of_subscription(&member.metadata)?,
            });
        }
        let counts = self.partition_counts(&members).await?;
        let assignments = assignor.assign(&members, &counts);
        Ok(assignments.into_iter().map(|(id, assigned)| (id, assignment(assigned))).collect())
    }

    /// The partition counts of all topics that the members read and that exist.
    async fn partition_counts(
        &self,
        members: &[Member],
    ) -> Result<BTreeMap<String, i32>, ClientError> {
        let topics: BTreeSet<&str> =
            members.iter().flat_map(|m| &m.topics).map(String::as_str).collect();
        let _leases: Vec<_> = topics.iter().map(|topic| self.cluster.lease(topic)).collect();
        self.cluster.refresh().await?;
        let metadata = self.cluster.metadata();
        let known = topics.into_iter().filter_map(|name| Some((name, metadata.topics.get(name)?)));
        Ok(known.map(|(name, t)| (name.to_owned(), t.partitions.len() as i32)).collect())
    }

    async fn send_sync(
        &self,
        connection: &Connection,
        config: &ConsumerConfig,
        joined: &JoinGroupResponse,
        assignments: BTreeMap<String, Bytes>,
    ) -> Result<Vec<TopicPartition>, ClientError> {
        let assignments = assignments.into_iter();
        let request = SyncGroupRequest {
            group_id: self.group_id.clone(),
            generation_id: self.generation_id,
            member_id: self.member_id.clone(),
            group_instance_id: config.group_instance_id.clone(),
            protocol_type: Some("consumer".to_owned()),
            protocol_name: joined.protocol_name.clone(),
            assignments: assignments
                .map(|(member_id, assignment)| SyncGroupRequestAssignment { member_id, assignment })
                .collect(),
        };
        let timeout = config.rebalance_timeout + Duration::from_secs(5);
        let response = connection.call_slow(&request, timeout).await?;
        check(response.error(), None, || format!("syncing group {}", self.group_id))?;
        partitions_of_assignment(&response.assignment)
    }

    fn start_beating(&mut self, config: &ConsumerConfig) {
        let state = PulseState { lost: None, polled: Instant::now() };
        let pulse = Arc::new(Pulse { state: Mutex::new(state), changed: self.changed.clone() });
        let heart = Heart {
            cluster: self.cluster.clone(),
            lane: self.lane.clone(),
            interval: config.heartbeat_interval,
            poll_interval_max: config.poll_interval_max,
            pulse: pulse.clone(),
            request: HeartbeatRequest {
                group_id: self.group_id.clone(),
                generation_id: self.generation_id,
                member_id: self.member_id.clone(),
                group_instance_id: config.group_instance_id.clone(),
            },
        };
        self.pulse = Some((pulse, tokio::spawn(heart.beat()).abort_handle()));
    }

    /// Leaves the group, so that the others need not wait for the session to end. A static member
    /// stays: it is expected back.
    pub(super) async fn leave(&mut self, config: &ConsumerConfig) -> Result<(), ClientError> {
        self.stop_beating();
        if self.member_id.is_empty() || config.group_instance_id.is_some() {
            return Ok(());
        }
        if self.is_joining {
            // A broker answers a connection in order: on the old one the answer to the join would be waited for.
            self.lane = Arc::new(self.cluster.private_lane());
        }
        leave(&self.cluster, &self.lane, &self.group_id, &self.member_id).await?;
        self.forget_member();
        Ok(())
    }
}

async fn leave(
    cluster: &Cluster,
    lane: &PrivateLane,
    group_id: &str,
    member_id: &str,
) -> Result<(), ClientError> {
    let id = cluster.coordinator(CoordinatorKind::Group, group_id).await?;
    let connection = lane.broker(id).await?;
    let version = connection.version_of(wire::ApiKey::LeaveGroup)?;
    let mut request = LeaveGroupRequest { group_id: group_id.to_owned(), ..Default::default() };
    if version < 3 {
        request.member_id = member_id.to_owned();
    } else {
        let member_id = member_id.to_owned();
        request.members = vec![MemberIdentity { member_id, ..Default::default() }];
    }
    let response = connection.call_version(&request, version).await?;
    check(response.error(), None, || format!("leaving group {group_id}"))
}

/// The task that keeps a member alive.
struct Heart {
    cluster: Cluster,
    lane: Arc<PrivateLane>,
    interval: Duration,
    poll_interval_max: Duration,
    pulse: Arc<Pulse>,
    request: HeartbeatRequest,
}

impl Heart {
    async fn beat(self) {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            if lock(&self.pulse.state).polled.elapsed() > self.poll_interval_max {
                return self.give_up().await;
            }
            let code = self.beat_once().await;
            if !code.is_none() && !code.is_retriable() {
                return self.lose(code);
            }
        }
    }

    /// The consumer does not poll: someone else shall have its partitions.
    async fn give_up(&self) {
        let (group, member) = (&self.request.group_id, &self.request.member_id);
        tracing::warn!(%group, "no poll for longer than max.poll.interval.ms: leaving the group");
        if let Err(error) = leave(&self.cluster, &self.lane, group, member).await {
            tracing::debug!(%group, %error, "cannot leave");
        }
        self.lose(ErrorCode::UnknownMemberId);
    }

    fn lose(&self, code: ErrorCode) {
        lock(&self.pulse.state).lost = Some(code);
        self.pulse.changed.notify_one();
    }

    async fn beat_once(&self) -> ErrorCode {
        let asked = async {
            let group = &self.request.group_id;
            let id = self.cluster.coordinator(CoordinatorKind::Group, group).await?;
            self.lane.broker(id).await?.call(&self.request).await
        };
        let code = match asked.await {
            Ok(response) => response.error(),
            Err(_) => ErrorCode::NetworkException,
        };
        if code.is_retriable() {
            self.cluster.forget_coordinator(CoordinatorKind::Group, &self.request.group_id);
        }
        code
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no code under these locks panics")
}

/// What members exchange begins with its version.
fn versioned<M: Message>(message: &M) -> Bytes {
    let mut writer = Writer::new();
    writer.i16(PROTOCOL_VERSION);
    message.encode(&mut writer, PROTOCOL_VERSION).expect("names of topics are short enough");
    Bytes::from(writer.into_bytes())
}

/// Reads what another member wrote; a later version is read as the last one known.
fn read_versioned<M: Message>(bytes: &[u8]) -> Result<M, ClientError> {
    let mut reader = Reader::new(bytes);
    let read = reader.i16().and_then(|version| {
        let version = version.clamp(M::MIN_VERSION, M::MAX_VERSION);
        M::decode(&mut reader, version)
    });
    read.map_err(|e| ClientError::Usage(format!("another member's {} is unreadable: {e}", M::NAME)))
}

fn subscription(topics: &BTreeSet<String>, user_data: &Bytes) -> Bytes {
    versioned(&ConsumerProtocolSubscription {
        topics: topics.iter().cloned().collect(),
        user_data: (!user_data.is_empty()).then(|| user_data.clone()),
        // Partitions are given up before joining, so there are none to be named.
        owned_partitions: Vec::<OwnedPartition>::new(),
        ..Default::default()
    })
}

/// [`ConsumerConfig::user_data`] of a member, from its metadata in a described group. Empty, if the metadata cannot be read.
pub fn user_data_of(metadata: &[u8]) -> Bytes {
    let read = read_versioned::<ConsumerProtocolSubscription>(metadata);
    read.ok().and_then(|subscription| subscription.user_data).unwrap_or_default()
}

fn topics_of_subscription(bytes: &[u8]) -> Result<Vec<String>, ClientError> {
    Ok(read_versioned::<ConsumerProtocolSubscription>(bytes)?.topics)
}

fn assignment(assigned: Assigned) -> Bytes {
    use wire::consumer_protocol_assignment::TopicPartition;
    let topics = assigned.into_iter();
    versioned(&ConsumerProtocolAssignment {
        assigned_partitions: topics
            .map(|(topic, partitions)| TopicPartition { topic, partitions })
            .collect(),
        ..Default::default()
    })
}

/// The partitions that the assignment of a member names, in the form of Kafka's consumers.
///
/// # Errors
/// The bytes have another form: the group is not one of consumers.
pub fn partitions_of_assignment(bytes: &[u8]) -> Result<Vec<TopicPartition>, ClientError> {
    // A member that gets nothing may get no bytes at all.
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let message: ConsumerProtocolAssignment = read_versioned(bytes)?;
    let topics = message.assigned_partitions.iter();
    Ok(topics
        .flat_map(|t| t.partitions.iter().map(|p| TopicPartition::new(&*t.topic, *p)))
        .collect())
}
