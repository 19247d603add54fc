//! The quorum as the rest of the broker knows it.

use crate::check_quorum;
use crate::clock;
use crate::config::{QuorumConfig, QuorumError};
use crate::deleted_topics::{DeletedTopics, FirstUpdate};
use crate::founding::Founding;
use crate::generation::{Generation, GenerationFile};
use crate::members::members_changed;
use crate::network::{Network, Transport, receive};
use crate::older_copy;
use crate::patience::Patience;
use crate::proposer::{Asked, Proposer, QUEUE_MAX};
use crate::published::{Published, Subscription};
use crate::raft::{
    Entry, LeaderId, LogId, Payload, TypeConfig, Vote, broker_id, membership, node_id,
};
use crate::stalled_leader;
use crate::state_machine::{StateMachine, Writes};
use crate::store::backlog::BacklogState;
use crate::store::log_store::LogStore;
use crate::store::open::{Opened, Plan, open_planned, plan};
use crate::store::vote;
use link::LogPoint;
use metadata::{ClusterImage, ControllerSettings, Request, Response};
use model::{BrokerId, TopicId};
use openraft::async_runtime::watch::WatchReceiver;
use openraft::raft::TransferLeaderRequest;
use openraft::type_config::TypeConfigExt;
use openraft::{ChangeMembers, Config, Raft, SnapshotPolicy};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use storage::disk::Disk;
use storage::journal::MetadataNote;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// One node's part in the metadata quorum. Copies are the same part.
#[derive(Clone)]
pub struct Quorum {
    inner: Arc<Inner>,
}

struct Inner {
    /// Brokers that vote once each of them has the metadata: the quorum was regenerated.
    named_voters: BTreeSet<BrokerId>,
    raft: Raft<TypeConfig, StateMachine>,
    network: Network,
    store: LogStore,
    published: Arc<Published>,
    deleted_topics: Arc<DeletedTopics>,
    snapshot_writes: Writes,
    settings: Arc<Mutex<ControllerSettings>>,
    waits_for: watch::Receiver<Option<String>>,
    /// Whether this node was elected, and no majority of the voters answers it.
    is_cut_off: watch::Receiver<bool>,
    proposals: Mutex<Option<mpsc::Sender<Asked>>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

fn raft_config(config: &QuorumConfig, alone: bool) -> Result<Config, QuorumError> {
    let timeout = &config.election_timeout_ms;
    let raft = Config {
        cluster_name: config.cluster_id.clone(),
        heartbeat_interval: config.heartbeat_ms,
        election_timeout_min: timeout.start,
        election_timeout_max: timeout.end,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.snapshot_entries),
        max_in_snapshot_log_to_keep: config.snapshot_entries / 5,
        replication_lag_threshold: config.snapshot_entries * 2,
        // A voter that never has peers sends and receives no heartbeats, so it needs no clock.
        enable_tick: !(alone && config.voters == [config.node]),
        // A leader that lost power may have lost entries that others have, of its own term: it must not go on
        // in that term, where it would give their indexes to others. And it does not know what was
        // committed. Nobody else has entries of a voter without peers.
        enable_leader_restore: Some(alone),
        enable_pre_vote: Some(true),
        // A member that is started again is back in milliseconds, and its links say at once that they are up.
        backoff: "20ms ...200ms".to_owned(),
        ..Config::default()
    };
    raft.validate().map_err(QuorumError::stopped)
}

/// Gives a log whose only voter is this node what an election would have given it: a vote for
/// itself. Nobody else could have led, so that also heals a first start that was cut off.
fn lead_alone(store: &LogStore, me: u64) -> Result<(), QuorumError> {
    let vote = |term| Vote { leader_id: LeaderId { term, node_id: me }, committed: true };
    match store.last() {
        None => {
            let payload = Payload::Membership(membership(vec![vec![me]], Vec::new()));
            let log_id = LogId::new(LeaderId { term: 1, node_id: me }, 0);
            store.begin_alone(Some(Entry { log_id, payload }), vote(1))
        }
        Some(last) if last.leader_id.node_id == me => {
            store.begin_alone(None, vote(last.leader_id.term))
        }
        Some(last) => {
            let leader = last.leader_id.node_id;
            let text = format!(
                "the file 'vote' is gone, and node {leader} led when the log's last entry was written: \
                 put the file back from a copy of the folder"
            );
            return Err(QuorumError::Stopped(text));
        }
    }
    .map_err(QuorumError::stopped)
}

/// The generation of the quorum, and the brokers that are to vote in it.
struct Regenerated {
    generation: Arc<Generation>,
    named: BTreeSet<BrokerId>,
}

/// Reads the folder. An older copy is put aside, and the node begins with an empty folder as a new member. Fails if no
/// other node has the metadata.
fn plan_start(disk: &dyn Disk, config: &QuorumConfig) -> Result<Plan, QuorumError> {
    let (me, dir) = (node_id(config.node, config.lot), &config.dir);
    let read = || plan(disk, dir, &config.cluster_id, me).map_err(QuorumError::stopped);
    let found = read()?;
    let Some(reason) = older_copy::compare(&found, &config.notes) else { return Ok(found) };
    let folder = dir.display();
    if found.is_only_voter() {
        return Err(QuorumError::Stopped(format!(
            "{folder} was put back from an older copy: {reason}. No other node votes. Nothing was changed: put back the newest \
             state of the folder"
        )));
    }
    let aside = older_copy::put_aside(disk, dir).map_err(QuorumError::stopped)?;
    tracing::warn!(
        %folder,
        reason,
        aside = %aside.display(),
        "the metadata folder was put back from an older copy, and is put aside; this node joins the metadata quorum as a new \
         member. Never put a voter's metadata folder back: start the node without the folder"
    );
    read()
}

impl Quorum {
    /// Opens what is in the directory, or begins a cluster, and takes part. Must be called within
    /// a tokio runtime, whose tasks and timers it uses from then on.
    ///
    /// A node that is the only voter leads when this returns, and its image is complete. Otherwise
    /// the image grows as the leader is heard.
    pub async fn start(
        config: QuorumConfig,
        disk: Arc<dyn Disk>,
        transport: Arc<dyn Transport>,
    ) -> Result<Quorum, QuorumError> {
        let dir = config.dir.clone();
        let generation = GenerationFile::read(&*disk, &dir).map_err(QuorumError::stopped)?;
        let named: BTreeSet<BrokerId> = generation.voters.into_iter().map(BrokerId).collect();
        let disk_of_folder = Arc::clone(&disk);
        let planned = plan_start(&*disk, &config)?;
        let opened = open_planned(Arc::clone(&disk), dir.clone(), planned, config.snapshot_bytes);
        let Opened { me, is_known, store, applied, members } =
            opened.map_err(QuorumError::stopped)?;
        // What the folder says counts, and not the file: the members may have changed since.
        let alone = match members {
            Some(members) => members.are_only(me),
            None => config.voters == [config.node],
        };
        let machine = StateMachine::new(disk, dir, applied).with_log(store.clone());
        let acted_upon = config.notes.iter().filter(|note| note.member == me);
        store.note_committed(acted_upon.map(|note| note.index + 1).max().unwrap_or(0));
        if !store.has_vote() && alone {
            lead_alone(&store, me)?;
        } else if !store.has_vote() && store.last().is_some_and(|last| !is_known || last.index > 0)
        {
            // Who has the first entry of a new cluster alone, and the file, has not voted.
            let text = format!(
                "{}: the file is gone, and this node may have voted: move the folder {} away and start the node without it",
                vote::path(&config.dir).display(),
                config.dir.display()
            );
            return Err(QuorumError::Stopped(text));
        } else if !is_known {
            store.keep_identity().await.map_err(QuorumError::stopped)?;
        }
        let generation = match config.generation.clone() {
            Some(generation) => generation,
            None => {
                let read = Generation::open(disk_of_folder, config.dir.clone());
                Arc::new(read.map_err(QuorumError::stopped)?)
            }
        };
        let rebuilt = Regenerated { generation, named };
        let quorum = Quorum::run(&config, me, store, machine, transport, alone, rebuilt).await?;
        quorum.settle(me).await?;
        Ok(quorum)
    }

    async fn run(
        config: &QuorumConfig,
        me: u64,
        store: LogStore,
        machine: StateMachine,
        transport: Arc<dyn Transport>,
        alone: bool,
        rebuilt: Regenerated,
    ) -> Result<Quorum, QuorumError> {
        let network = Network {
            cluster_id: config.cluster_id.as_str().into(),
            me,
            transport,
            append_patience: Duration::from_millis(config.election_timeout_ms.end),
            patience: Arc::new(Patience::new(Duration::from_millis(
                config.election_timeout_ms.end * 2,
            ))),
            blobs: Arc::default(),
            heard: Arc::default(),
            published: machine.published(),
            generation: rebuilt.generation,
            acknowledgements: Arc::default(),
            own_folder: Arc::default(),
            may_found: config.notes.is_empty(),
        };
        let (published, snapshot_writes) = (machine.published(), machine.writes());
        let deleted_topics = machine.deleted_topics();
        let raft_config = Arc::new(raft_config(config, alone)?);
        let raft = Raft::new(me, raft_config, network.clone(), store.clone(), machine).await;
        let raft = raft.map_err(QuorumError::stopped)?;
        let settings = Arc::new(Mutex::new(config.controller.clone()));
        let (proposals, queue) = mpsc::channel(QUEUE_MAX);
        let proposer = Proposer {
            raft: raft.clone(),
            published: Arc::clone(&published),
            settings: Arc::clone(&settings),
            entry_bytes_max: config.entry_bytes_max,
            queue,
        };
        let bound =
            bound_log(raft.clone(), store.clone(), Arc::clone(&published), config.snapshot_bytes);
        let calm = Duration::from_millis(config.heartbeat_ms * 2);
        let clock = clock::keep(raft.clone(), me, Arc::clone(&network.heard), calm);
        let (waiting, waits_for) = watch::channel(None);
        let (cut_off, is_cut_off) = watch::channel(false);
        let limit = Duration::from_millis(config.election_timeout_ms.end * 2);
        let check_quorum = check_quorum::watch(raft.clone(), me, limit, cut_off);
        let stalled_leader = stalled_leader::watch(raft.clone(), me, store.backlog().watch());
        let is_voter = config.voters.contains(&config.node) && !alone;
        let founding = Founding {
            raft: raft.clone(),
            store: store.clone(),
            network: network.clone(),
            voters: if is_voter { config.voters.clone() } else { Vec::new() },
            waits_for: waiting,
        };
        let tasks = vec![
            TypeConfig::spawn(vital(founding.run())),
            TypeConfig::spawn(vital(proposer.run())),
            TypeConfig::spawn(vital(clock)),
            TypeConfig::spawn(vital(bound)),
            TypeConfig::spawn(vital(check_quorum)),
            TypeConfig::spawn(vital(stalled_leader)),
        ];
        let inner = Inner {
            named_voters: rebuilt.named,
            raft,
            network,
            store,
            published,
            deleted_topics,
            snapshot_writes,
            settings,
            waits_for,
            is_cut_off,
            proposals: Mutex::new(Some(proposals)),
            tasks: Mutex::new(tasks),
        };
        Ok(Quorum { inner: Arc::new(inner) })
    }

    /// Waits for what needs no other node.
    async fn settle(&self, me: u64) -> Result<(), QuorumError> {
        let raft = &self.inner.raft;
        // Answered once the log was read: then it is known whether anybody else votes.
        let only_voter = raft
            .with_raft_state(move |state| state.membership_state.effective().voter_ids().eq([me]));
        let only_voter = only_voter.await.map_err(QuorumError::stopped)?;
        if let (true, Some(last)) = (only_voter, self.inner.store.last()) {
            self.wait_applied(last.index).await?;
        }
        Ok(())
    }

    /// Has a request decided, and its records committed and applied. The answer says what was
    /// decided; a refusal by the controller is an answer. Only the leader decides. Fails with
    /// [`QuorumError::OutcomeUnknown`] if the leader is cut off from the other voters meanwhile.
    pub async fn propose(&self, request: Request) -> Result<Response, QuorumError> {
        let stopped = || QuorumError::Stopped("it was stopped".into());
        let proposals = self.inner.proposals.lock().clone().ok_or_else(stopped)?;
        if self.is_cut_off() {
            return Err(QuorumError::NotLeader { leader: None });
        }
        let mut is_cut_off = self.inner.is_cut_off.clone();
        let decided = async {
            let (answer, answered) = oneshot::channel();
            proposals.send(Asked { request, answer }).await.map_err(|_| stopped())?;
            answered.await.map_err(|_| stopped())?
        };
        tokio::select! {
            biased;
            decided = decided => decided,
            Ok(_) = is_cut_off.wait_for(|cut_off| *cut_off) => Err(QuorumError::OutcomeUnknown),
        }
    }

    /// The facts as far as this node has applied them.
    pub fn image(&self) -> Arc<ClusterImage> {
        Arc::clone(&self.inner.published.version().image)
    }

    /// The steps of the image from now on, in order, beginning with the step from the empty image
    /// to the present one.
    pub fn subscribe(&self) -> Subscription {
        self.inner.published.subscribe()
    }

    /// Removes and returns the topics whose deletion this process has applied so far, entries of its own log included. Topics
    /// that the process never saw in the metadata are missing, although they may have been deleted.
    pub fn take_deleted_topics(&self) -> BTreeSet<TopicId> {
        self.inner.deleted_topics.take()
    }

    /// Like [`Quorum::subscribe`] and [`Quorum::take_deleted_topics`], and collects no more: each deletion that follows is in a step
    /// behind the first one.
    pub fn subscribe_after_deleted_topics(&self) -> FirstUpdate {
        self.inner.deleted_topics.hand_over(&self.inner.published)
    }

    /// This node.
    pub fn node(&self) -> BrokerId {
        broker_id(self.inner.network.me)
    }

    /// The leader, as far as this node knows. A node that is cut off from the other voters does not count itself.
    pub fn leader(&self) -> Option<BrokerId> {
        let leader = self.inner.raft.server_metrics().borrow_watched().current_leader;
        leader
            .filter(|leader| *leader != self.inner.network.me || !self.is_cut_off())
            .map(broker_id)
    }

    /// Whether this node was elected leader, and no majority of the voters has answered it for two election time-outs, or up to
    /// three times as long on a machine that is too busy (decision 0094).
    pub fn is_cut_off(&self) -> bool {
        *self.inner.is_cut_off.borrow()
    }

    /// Age of the oldest unfinished write to the metadata log or the vote, if any is unfinished.
    pub fn oldest_unfinished_write(&self) -> Option<Duration> {
        let state = self.inner.store.backlog().watch();
        let oldest = state.borrow().oldest;
        oldest.map(|oldest| oldest.elapsed())
    }

    /// Whether this node leads: it is the active controller.
    pub fn is_leader(&self) -> bool {
        self.leader() == Some(broker_id(self.inner.network.me))
    }

    /// Time since a majority of the voters last answered this node as their leader; `None` if no majority has. A single voter is
    /// its own majority.
    pub fn majority_answered_ago(&self) -> Option<Duration> {
        let receiver = self.inner.raft.metrics();
        let metrics = receiver.borrow_watched();
        if metrics.membership_config.voter_ids().eq([self.inner.network.me]) {
            return Some(Duration::ZERO);
        }
        metrics.last_quorum_acked.map(|at| TypeConfig::now() - at.into_inner())
    }

    /// Time since this node last received a message of the leader; `None` if none came since its start.
    pub fn heard_ago(&self) -> Option<Duration> {
        self.inner.network.heard.last().map(|at| at.elapsed())
    }

    /// Waits until the leader (or nobody) is another than `known`; returns who leads now.
    pub async fn leader_changed(
        &self,
        known: Option<BrokerId>,
    ) -> Result<Option<BrokerId>, QuorumError> {
        let mut metrics = self.inner.raft.server_metrics();
        let mut is_cut_off = self.inner.is_cut_off.clone();
        let stopped = || QuorumError::Stopped("it was stopped".into());
        loop {
            is_cut_off.borrow_and_update();
            let leader = self.leader();
            if leader != known {
                return Ok(leader);
            }
            tokio::select! {
                changed = metrics.changed() => changed.map_err(|_| stopped())?,
                changed = is_cut_off.changed() => changed.map_err(|_| stopped())?,
            }
        }
    }

    /// Asks the voters for their votes at once, without waiting for the time after which a silent leader is taken for
    /// dead: for when the process that led is known to have ended. A leader that lives after all is deposed by it,
    /// so the caller must be certain. Nothing happens if another leads by now.
    pub async fn succeed(&self, dead: BrokerId) -> Result<(), QuorumError> {
        let raft = &self.inner.raft;
        let metrics = raft.metrics().borrow_watched().clone();
        let me = self.inner.network.me;
        let votes = metrics.membership_config.voter_ids().any(|id| id == me);
        if metrics.current_leader.map(broker_id) != Some(dead) || dead == broker_id(me) || !votes {
            return Ok(());
        }
        // What the leader would send if it handed over to this node: the vote says which leader is meant, so one that
        // was elected meanwhile is not deposed.
        let request = TransferLeaderRequest::new(metrics.vote, me, self.inner.store.last());
        raft.handle_transfer_leader(request).await.map(drop).map_err(QuorumError::stopped)
    }

    /// Has another voter lead, if this node does, because it is about to stop; waits `patience` for that at most.
    pub async fn hand_over(&self, patience: Duration) {
        let raft = &self.inner.raft;
        let metrics = raft.metrics().borrow_watched().clone();
        let me = self.inner.network.me;
        let Some(replication) = metrics.replication.filter(|_| metrics.current_leader == Some(me))
        else {
            return;
        };
        let votes = |id: &u64| metrics.membership_config.voter_ids().any(|voter| voter == *id);
        let others = replication.iter().filter(|(id, _)| **id != me && votes(id));
        let Some((best, _)) = others.max_by_key(|(_, matched)| **matched) else { return };
        if raft.trigger().transfer_leader(*best).await.is_ok() {
            let changed = self.leader_changed(Some(broker_id(me)));
            // Without one the others find out by themselves.
            let _ = tokio::time::timeout(patience, changed).await;
        }
    }

    /// Waits until every entry up to `index` is applied here.
    pub async fn wait_applied(&self, index: u64) -> Result<(), QuorumError> {
        tokio::select! {
            biased;
            applied = self.inner.published.wait_applied(index) => match applied {
                true => Ok(()),
                false => Err(QuorumError::Stopped("it was stopped".into())),
            },
            error = self.failed() => Err(error),
        }
    }

    /// Index of the newest entry that is applied here.
    pub fn applied_index(&self) -> Option<u64> {
        self.inner.published.applied_index()
    }

    /// Index of the entry that last changed the image: the `index` of its last step.
    pub fn changed_at(&self) -> Option<u64> {
        self.inner.published.version().changed_at
    }

    /// The state of the metadata folder that the journals of the log directories note: acted upon and durable.
    /// `None` before the first entry.
    pub fn metadata_note(&self) -> Option<MetadataNote> {
        let (member, durable, term) = self.inner.store.durable_state();
        let index = durable.map(|id| id.index).min(self.applied_index())?;
        Some(MetadataNote { member, index, term })
    }

    /// The voters and the learners.
    pub fn members(&self) -> (Vec<BrokerId>, Vec<BrokerId>) {
        let members = self.inner.raft.server_metrics().borrow_watched().membership_config.clone();
        let voters = members.voter_ids().map(broker_id).collect();
        let learners = members.membership().learner_ids().map(broker_id).collect();
        (voters, learners)
    }

    /// The log, for simulations.
    #[cfg(test)]
    pub(crate) fn store(&self) -> &LogStore {
        &self.inner.store
    }

    /// Whether a member votes, as far as this node knows; for simulations.
    #[cfg(test)]
    pub(crate) fn votes(&self, node: u64) -> bool {
        let metrics = self.inner.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.voter_ids().any(|id| id == node)
    }

    /// Whether no change of the voters is half done, as far as this node knows; for simulations.
    #[cfg(test)]
    pub(crate) fn voters_are_settled(&self) -> bool {
        let metrics = self.inner.raft.server_metrics();
        metrics.borrow_watched().membership_config.membership().get_joint_config().len() == 1
    }

    /// Openraft's own handle, for what describes it.
    pub(crate) fn raft(&self) -> &Raft<TypeConfig, StateMachine> {
        &self.inner.raft
    }

    /// Makes these brokers, which are members, the voters; those that no longer vote stay as learners.
    pub async fn change_voters(&self, voters: &[BrokerId]) -> Result<(), QuorumError> {
        let voters: BTreeSet<u64> = self.nodes_of(voters)?;
        let change = ChangeMembers::ReplaceAllVoters(voters);
        let changed = self.inner.raft.change_membership(change, true).await;
        members_changed(changed.map(drop))
    }

    /// Removes a learner.
    pub async fn remove_learner(&self, broker: BrokerId) -> Result<(), QuorumError> {
        let change = ChangeMembers::RemoveNodes(self.nodes_of(&[broker])?);
        let changed = self.inner.raft.change_membership(change, true).await;
        members_changed(changed.map(drop))
    }

    /// The members that these brokers are.
    fn nodes_of(&self, brokers: &[BrokerId]) -> Result<BTreeSet<u64>, QuorumError> {
        let members = self.inner.raft.server_metrics().borrow_watched().membership_config.clone();
        let node_of = |broker: &BrokerId| {
            let found = members.nodes().map(|(id, _)| *id).find(|id| broker_id(*id) == *broker);
            found.ok_or_else(|| QuorumError::Members(format!("node {broker} is no member")))
        };
        brokers.iter().map(node_of).collect()
    }

    /// What this node waits for, in words, while it knows nobody who leads: `None` if it knows no more than that.
    pub fn waits_for(&self) -> Option<String> {
        self.inner.waits_for.borrow().clone()
    }

    /// Waits until that is another than `known`.
    pub async fn waits_for_changed(&self, known: &Option<String>) -> Option<String> {
        let mut waits_for = self.inner.waits_for.clone();
        match waits_for.wait_for(|now| now != known).await {
            Ok(now) => now.clone(),
            // It was stopped.
            Err(_) => std::future::pending().await,
        }
    }

    /// Brokers that vote once each of them has the metadata.
    pub(crate) fn named_voters(&self) -> &BTreeSet<BrokerId> {
        &self.inner.named_voters
    }

    /// The way to other members.
    pub(crate) fn network(&self) -> &Network {
        &self.inner.network
    }

    /// What decisions rest on from now on, when this node leads.
    pub fn set_controller_settings(&self, settings: ControllerSettings) {
        *self.inner.settings.lock() = settings;
    }

    /// Answers a message that a [`Transport`] brought from another member.
    pub async fn receive(&self, message: &[u8]) -> Vec<u8> {
        receive(&self.inner.raft, &self.inner.store, &self.inner.network, None, message).await
    }

    /// Answers a message that this member sent for sure: one that says another sender is refused.
    pub async fn receive_from(&self, sender: BrokerId, message: &[u8]) -> Vec<u8> {
        let Inner { raft, store, network, .. } = &*self.inner;
        receive(raft, store, network, Some(sender), message).await
    }

    /// The newest entry of this node's log, committed or not: what a Hello says.
    pub fn last_entry(&self) -> Option<LogPoint> {
        let last = self.inner.store.last()?;
        let LeaderId { term, node_id: leader } = last.leader_id;
        Some(LogPoint { term, leader, index: last.index })
    }

    /// Waits until the quorum fails on this node, as when its disk does, or is stopped.
    pub async fn failed(&self) -> QuorumError {
        let mut metrics = self.inner.raft.metrics();
        let mut backlog = self.inner.store.backlog().watch();
        loop {
            if let Err(fatal) = &metrics.borrow_watched().running_state {
                return QuorumError::stopped(fatal);
            }
            if let BacklogState { failure: Some(reason), .. } = &*backlog.borrow_and_update() {
                return QuorumError::stopped(reason);
            }
            let is_stopped = tokio::select! {
                reason = self.inner.network.own_folder.left() => return QuorumError::OlderCopy(reason),
                changed = metrics.changed() => changed.is_err(),
                changed = backlog.wait_for(|state| state.failure.is_some()) => changed.is_err(),
            };
            if is_stopped {
                return QuorumError::Stopped("it was stopped".into());
            }
        }
    }

    /// Takes part no longer. What is committed is durable; afterwards the directory may be opened
    /// again, and needs no check.
    pub async fn stop(&self) -> Result<(), QuorumError> {
        drop(self.inner.proposals.lock().take());
        let stopped = self.inner.raft.shutdown().await;
        let tasks: Vec<_> = std::mem::take(&mut *self.inner.tasks.lock());
        for task in tasks {
            task.await.map_err(QuorumError::stopped)?;
        }
        self.inner.published.close();
        self.inner.snapshot_writes.stop().await;
        self.inner.store.close().await.map_err(QuorumError::stopped)?;
        stopped.map_err(QuorumError::stopped)
    }
}

/// Ends the process when it is dropped by a panic.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// A task without which the node must not go on: nobody would be told that it died.
async fn vital(work: impl Future<Output = ()>) {
    let _guard = AbortOnUnwind;
    work.await;
}

/// Makes a snapshot and purges the log when it has grown large, however few its entries are: they
/// would all be read at the next start.
async fn bound_log(
    raft: Raft<TypeConfig, StateMachine>,
    store: LogStore,
    published: Arc<Published>,
    bytes_max: u64,
) {
    let mut metrics = raft.metrics();
    let mut applied = published.watch_applied();
    loop {
        applied.borrow_and_update();
        let below = published.settled_below();
        if store.size_bytes() > bytes_max && below > 0 {
            if raft.trigger().snapshot().await.is_err() {
                return;
            }
            let wanted = Some(below - 1);
            let made = metrics.wait_until(|m| m.snapshot.map(|id| id.index) >= wanted).await;
            if made.is_err() || raft.trigger().purge_log(below - 1).await.is_err() {
                return;
            }
            let gone = metrics.wait_until(|m| m.purged.map(|id| id.index) >= wanted).await;
            if gone.is_err() {
                return;
            }
        }
        tokio::select! {
            changed = applied.changed() => if changed.is_err() { return },
            // The raft has stopped: nothing is applied any more.
            ended = metrics.wait_until(|m| m.running_state.is_err()) => { drop(ended); return }
        }
    }
}
