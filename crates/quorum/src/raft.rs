//! The types that openraft is run with here. Nothing outside this crate names one of them.
//!
//! A proposal carries metadata records and the index of the entry that last changed the image it
//! was decided on. Whoever applies it refuses it if the image has changed since: so two leaders,
//! or a leader that has not caught up, can never mix decisions.

use std::fmt;
use std::time::Duration;

pub(crate) use ledger::{Proposal, broker_id, is_node_id, node_id};
use openraft::impls::TokioRuntime;
use openraft::{AsyncRuntime, OptionalSend};

#[cfg(not(test))]
type Runtime = PatientRuntime;
/// What the library draws by lot comes from a simulation's seed.
#[cfg(test)]
pub(crate) type Runtime = openraft_rt::deterministic_rng::DeterministicRng<PatientRuntime>;

/// Tokio, with longer timeouts: openraft bounds heartbeats, requests for votes and transfers of the leadership by these, and
/// [`crate::patience`] decides how long they may take.
#[derive(Debug)]
pub(crate) struct PatientRuntime(TokioRuntime);

/// More than the longest patience, divided by the shortest timeout.
const TIMEOUT_FACTOR: u32 = 8;

impl AsyncRuntime for PatientRuntime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> =
        <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = <TokioRuntime as AsyncRuntime>::ThreadLocalRng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        TokioRuntime::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration * TIMEOUT_FACTOR, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(join_error)
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        TokioRuntime::thread_rng()
    }

    fn new(threads: usize) -> Self {
        PatientRuntime(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}

openraft::declare_raft_types!(
    /// Metadata records between brokers.
    pub(crate) TypeConfig:
        D = Proposal,
        R = Outcome,
        NodeId = u64,
        Node = openraft::EmptyNode,
        AsyncRuntime = Runtime,
);

pub(crate) type LogId = openraft::type_config::alias::LogIdOf<TypeConfig>;
pub(crate) type LeaderId = openraft::type_config::alias::LeaderIdOf<TypeConfig>;
pub(crate) type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;
pub(crate) type Entry = openraft::type_config::alias::EntryOf<TypeConfig>;
pub(crate) type Payload = openraft::type_config::alias::PayloadOf<TypeConfig>;
pub(crate) type StoredMembership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type Membership = openraft::Membership<u64, openraft::EmptyNode>;
pub(crate) type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<TypeConfig>;
pub(crate) type Snapshot = openraft::type_config::alias::SnapshotOf<TypeConfig, Vec<u8>>;

/// What became of a proposal that was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its records are facts now, or will be with the parts that follow. Also the outcome of entries that
    /// carry none.
    Applied,
    /// The image had changed since it was decided: nothing of it happened, anywhere.
    Refused,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A membership of these voters, all in one configuration, and these learners.
pub(crate) fn membership(configs: Vec<Vec<u64>>, learners: Vec<u64>) -> Membership {
    let configs = configs.into_iter().map(|config| config.into_iter().collect()).collect();
    let learners: std::collections::BTreeSet<u64> = learners.into_iter().collect();
    Membership::new_with_defaults(configs, learners)
}
