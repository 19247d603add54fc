//! A cluster: whom to ask, connections that are shared, and trying again when that may help.

use crate::connection::{Connection, ConnectionConfig};
use crate::error::{ClientError, check};
use crate::metadata::{Broker, Metadata, Topic};
use crate::wanted::Wanted;
use model::ErrorCode;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use wire::metadata::MetadataRequestTopic;
use wire::{FindCoordinatorRequest, MetadataRequest, MetadataResponse, Request};

/// The pause before a transaction's first retry while the one before is being ended, which takes
/// brokers a few milliseconds.
const CONCURRENT_PAUSE: Duration = Duration::from_millis(5);
/// How long a broker is left alone that did not let the client in: whoever asks meanwhile hears the same. Else each request
/// of a gateway would be a login that fails.
const REFUSAL_AGE_MAX: Duration = Duration::from_secs(1);

/// How a cluster is reached.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// `host:port` of some brokers; the others are learnt from them.
    pub bootstrap: Vec<String>,
    /// How each connection behaves.
    pub connection: ConnectionConfig,
    /// After so long metadata is asked for again, even if nothing seems wrong.
    pub metadata_age_max: Duration,
    /// `metadata.max.idle.ms`: a topic that no one leases is asked for no more, and is known no more, when it was named last
    /// so long ago.
    pub topic_idle_max: Duration,
    /// The pause before the first retry; it doubles from retry to retry, up to one second.
    pub retry_backoff: Duration,
    /// How long a call may take, retries included.
    pub call_timeout: Duration,
    /// Whether asking for a topic may create it, if the brokers allow that.
    pub allow_auto_create: bool,
    /// Where brokers are reached that must not be reached where they say: a client on a broker's own machine may not
    /// have a way to the address that other machines are told.
    pub addresses: HashMap<i32, String>,
}

impl ClusterConfig {
    /// The defaults, with these bootstrap servers: `host:port`, separated by commas.
    pub fn new(bootstrap: &str) -> ClusterConfig {
        let addresses = bootstrap.split(',').map(str::trim).filter(|a| !a.is_empty());
        ClusterConfig {
            bootstrap: addresses.map(str::to_owned).collect(),
            connection: ConnectionConfig::default(),
            metadata_age_max: Duration::from_secs(300),
            topic_idle_max: Duration::from_secs(300),
            retry_backoff: Duration::from_millis(100),
            call_timeout: Duration::from_secs(60),
            allow_auto_create: false,
            addresses: HashMap::new(),
        }
    }
}

/// Which connection to a broker: answers come in order, so whoever asks what may take long needs a
/// connection of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Whatever is answered at once.
    Common,
    /// Produce requests.
    Produce,
    /// One user's own: [`Cluster::private_lane`].
    Private(u64),
}

/// A lane that no one else uses; its connections are closed with it.
pub struct PrivateLane {
    cluster: Cluster,
    id: u64,
}

impl PrivateLane {
    /// The cluster that it leads to.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// A connection to this broker.
    pub async fn broker(&self, id: i32) -> Result<Connection, ClientError> {
        self.cluster.broker(id, Lane::Private(self.id)).await
    }
}

impl Drop for PrivateLane {
    fn drop(&mut self) {
        let mine = Lane::Private(self.id);
        lock(&self.cluster.0.connections).retain(|(_, lane), _| *lane != mine);
    }
}

/// A topic that is kept known: every refresh asks for it as long as one of its leases is held.
pub struct TopicLease {
    cluster: Cluster,
    name: Arc<str>,
}

impl TopicLease {
    /// The topic, asked for if it is not known yet.
    pub async fn topic(&self) -> Result<Arc<Topic>, ClientError> {
        self.cluster.find(&self.name).await
    }
}

impl Drop for TopicLease {
    fn drop(&mut self) {
        lock(&self.cluster.0.wanted).give_back(&self.name);
    }
}

impl fmt::Debug for TopicLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TopicLease").field(&self.name).finish()
    }
}

/// Who coordinates what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CoordinatorKind {
    /// A consumer group.
    Group,
    /// A transactional id.
    Transaction,
}

type Slot = Arc<tokio::sync::Mutex<Option<Connection>>>;

struct Inner {
    config: ClusterConfig,
    metadata: Mutex<Arc<Metadata>>,
    /// Topics that every refresh asks for. Invariant: after a refresh, `metadata` has no others.
    wanted: Mutex<Wanted>,
    /// When the last refresh that succeeded began. Held during a refresh, so that there is one at a time.
    refreshed: tokio::sync::Mutex<Option<Instant>>,
    connections: Mutex<HashMap<(i32, Lane), Slot>>,
    /// The connection that metadata is asked on.
    seed: tokio::sync::Mutex<Option<Connection>>,
    coordinators: Mutex<HashMap<(CoordinatorKind, String), i32>>,
    next_lane: AtomicU64,
    /// Who did not let the client in, and when.
    refusals: Mutex<HashMap<String, (Instant, ClientError)>>,
}

/// A handle to a cluster; clones share connections and metadata.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

impl Cluster {
    /// A cluster that is reached so. Nothing is connected yet.
    pub fn new(config: ClusterConfig) -> Cluster {
        Cluster(Arc::new(Inner {
            config,
            metadata: Mutex::default(),
            wanted: Mutex::default(),
            refreshed: tokio::sync::Mutex::default(),
            connections: Mutex::default(),
            seed: tokio::sync::Mutex::default(),
            coordinators: Mutex::default(),
            next_lane: AtomicU64::new(0),
            refusals: Mutex::default(),
        }))
    }

    /// Connects and asks who is there.
    pub async fn connect(config: ClusterConfig) -> Result<Cluster, ClientError> {
        let cluster = Cluster::new(config);
        cluster.retry(|| cluster.refresh()).await?;
        Ok(cluster)
    }

    /// The configuration.
    pub fn config(&self) -> &ClusterConfig {
        &self.0.config
    }

    /// Replaces what is known. For tests without brokers.
    #[cfg(test)]
    pub(crate) fn set_metadata(&self, response: MetadataResponse) {
        *lock(&self.0.metadata) = Arc::new(Metadata::of(response));
    }

    /// What is known now.
    pub fn metadata(&self) -> Arc<Metadata> {
        lock(&self.0.metadata).clone()
    }

    /// The topic, asked for if it is not known yet.
    pub async fn topic(&self, name: &str) -> Result<Arc<Topic>, ClientError> {
        self.want([name]);
        self.find(name).await
    }

    /// The topic if it is known, which it then stays for [`ClusterConfig::topic_idle_max`].
    pub fn known(&self, name: &str) -> Option<Arc<Topic>> {
        let topic = self.metadata().topics.get(name).cloned()?;
        self.want([name]);
        Some(topic)
    }

    /// A topic that is wanted, asked for if it is not known yet.
    async fn find(&self, name: &str) -> Result<Arc<Topic>, ClientError> {
        let known = self.metadata().topics.get(name).cloned();
        if let Some(topic) = known.filter(|t| t.error.is_none()) {
            return Ok(topic);
        }
        self.retry(|| async {
            self.refresh().await?;
            let metadata = self.metadata();
            let Some(topic) = metadata.topics.get(name) else {
                return Err(unknown_topic(name));
            };
            check(topic.error, None, || format!("topic {name}"))?;
            Ok(topic.clone())
        })
        .await
    }

    /// Makes every refresh ask for this topic too, until the lease is dropped.
    #[must_use = "the topic is asked for as long as the lease is held"]
    pub fn lease(&self, topic: &str) -> TopicLease {
        lock(&self.0.wanted).lease(topic);
        TopicLease { cluster: self.clone(), name: topic.into() }
    }

    /// Makes every refresh ask for these topics too, for the next [`ClusterConfig::topic_idle_max`].
    pub fn want<'a>(&self, topics: impl IntoIterator<Item = &'a str>) {
        let now = Instant::now();
        let mut wanted = lock(&self.0.wanted);
        topics.into_iter().for_each(|topic| wanted.name(topic, now));
    }

    /// Makes refreshes ask for this topic no more, unless it is leased.
    pub fn unwant(&self, topic: &str) {
        lock(&self.0.wanted).unname(topic);
    }

    /// The topics that the next refresh asks for, in their order.
    pub fn wanted(&self) -> Vec<String> {
        let mut wanted = lock(&self.0.wanted);
        wanted.expire(self.0.config.topic_idle_max, Instant::now());
        wanted.names().map(str::to_owned).collect()
    }

    /// Asks for brokers and wanted topics, unless another task has begun to meanwhile: then waits for it. Topics that are not
    /// wanted any more are forgotten.
    pub async fn refresh(&self) -> Result<(), ClientError> {
        let asked_at = Instant::now();
        let mut refreshed = self.0.refreshed.lock().await;
        // One that had begun before may not have asked for what is wanted now.
        if refreshed.is_some_and(|began| began >= asked_at) {
            return Ok(());
        }
        let began = Instant::now();
        let topics = self.wanted().iter().map(|name| named(name)).collect();
        let response = self.ask_metadata(Some(topics), self.0.config.allow_auto_create).await?;
        let mut metadata = Metadata::clone(&self.metadata());
        metadata.merge(&response);
        {
            let wanted = lock(&self.0.wanted);
            metadata.retain(|name| wanted.contains(name));
        }
        *lock(&self.0.metadata) = Arc::new(metadata);
        *refreshed = Some(began);
        Ok(())
    }

    /// Refreshes if the metadata is older than `metadata_age_max`.
    pub async fn refresh_if_old(&self) -> Result<(), ClientError> {
        let age_max = self.0.config.metadata_age_max;
        let old = self.0.refreshed.lock().await.is_none_or(|at| at.elapsed() > age_max);
        if old { self.refresh().await } else { Ok(()) }
    }

    /// Brokers and all topics, as a value of its own: nothing is remembered.
    pub async fn describe_all(&self) -> Result<Metadata, ClientError> {
        Ok(Metadata::of(self.ask_metadata(None, false).await?))
    }

    /// Brokers, and all topics in the order of their names: for who goes over them once. The metadata beside them has no topics.
    pub async fn describe_in_order(&self) -> Result<(Metadata, Vec<Topic>), ClientError> {
        Ok(Metadata::in_order(self.ask_metadata(None, false).await?))
    }

    /// Brokers and these topics, as a value of its own: nothing is remembered, and no topic is created where the
    /// brokers leave the choice.
    pub async fn describe<'a>(
        &self,
        topics: impl IntoIterator<Item = &'a str>,
    ) -> Result<Metadata, ClientError> {
        let topics = topics.into_iter().map(named).collect();
        Ok(Metadata::of(self.ask_metadata(Some(topics), false).await?))
    }

    /// The same for one topic, which the brokers create if it is missing and they do so for writers
    /// (`auto.create.topics.enable`). Brokers may report a new topic as missing until it has a leader.
    pub async fn describe_or_create(&self, topic: &str) -> Result<Metadata, ClientError> {
        Ok(Metadata::of(self.ask_metadata(Some(vec![named(topic)]), true).await?))
    }

    async fn ask_metadata(
        &self,
        topics: Option<Vec<MetadataRequestTopic>>,
        allow_auto_topic_creation: bool,
    ) -> Result<MetadataResponse, ClientError> {
        let connection = self.any().await?;
        let version = connection.version_of(MetadataRequest::API_KEY)?;
        let request = MetadataRequest {
            topics,
            // Versions below 4 have no choice.
            allow_auto_topic_creation: allow_auto_topic_creation || version < 4,
            ..Default::default()
        };
        let response = connection.call_version(&request, version).await?;
        check(response.error(), None, || "metadata".to_owned())?;
        Ok(response)
    }

    /// A connection to some broker: the one in use, or the first that answers.
    pub async fn any(&self) -> Result<Connection, ClientError> {
        let mut seed = self.0.seed.lock().await;
        if let Some(connection) = seed.as_ref().filter(|c| !c.is_closed()) {
            return Ok(connection.clone());
        }
        let mut last = "there is no address to try".to_owned();
        let mut refusal = None;
        for address in self.addresses() {
            match self.open(&address).await {
                Ok(connection) => {
                    *seed = Some(connection.clone());
                    return Ok(connection);
                }
                Err(error @ ClientError::NotAdmitted { .. }) => refusal = Some(error),
                Err(error) => last = error.to_string(),
            }
        }
        // One that is there and refuses says more than those that are away.
        Err(refusal.unwrap_or(ClientError::NoBroker(last)))
    }

    /// Connects, unless this broker has just refused the client.
    async fn open(&self, address: &str) -> Result<Connection, ClientError> {
        let refused = lock(&self.0.refusals).get(address).cloned();
        if let Some((_, error)) = refused.filter(|(at, _)| at.elapsed() < REFUSAL_AGE_MAX) {
            return Err(error);
        }
        let opened = Connection::open(address, &self.0.config.connection).await;
        let mut refusals = lock(&self.0.refusals);
        match &opened {
            Err(error @ ClientError::NotAdmitted { .. }) => {
                let before = refusals.insert(address.to_owned(), (Instant::now(), error.clone()));
                // Once for as long as it goes on: who is refused tries again every second.
                if before.is_none() {
                    tracing::warn!(%error, "a broker does not let this client in; it is asked again every second");
                }
            }
            _ => drop(refusals.remove(address)),
        }
        opened
    }

    /// Known brokers in a random order, then the bootstrap servers.
    fn addresses(&self) -> Vec<String> {
        let metadata = self.metadata();
        let mut known: Vec<_> = metadata.brokers.values().map(|b| self.address_of(b)).collect();
        fastrand::shuffle(&mut known);
        let mut bootstrap = self.0.config.bootstrap.clone();
        fastrand::shuffle(&mut bootstrap);
        known.extend(bootstrap);
        known
    }

    fn address_of(&self, broker: &Broker) -> String {
        self.0.config.addresses.get(&broker.id).cloned().unwrap_or_else(|| broker.address())
    }

    /// A connection to this broker, shared by all users of the lane.
    pub async fn broker(&self, id: i32, lane: Lane) -> Result<Connection, ClientError> {
        let slot = lock(&self.0.connections).entry((id, lane)).or_default().clone();
        // Held while connecting: one attempt at a time.
        let mut slot = slot.lock().await;
        if let Some(connection) = slot.as_ref().filter(|c| !c.is_closed()) {
            return Ok(connection.clone());
        }
        let Some(broker) = self.metadata().brokers.get(&id).cloned() else {
            return Err(ClientError::NoBroker(format!("broker {id} is not known")));
        };
        let opened = self.open(&self.address_of(&broker)).await?;
        *slot = Some(opened.clone());
        Ok(opened)
    }

    /// Connections for one user alone.
    pub fn private_lane(&self) -> PrivateLane {
        let id = self.0.next_lane.fetch_add(1, Ordering::Relaxed);
        PrivateLane { cluster: self.clone(), id }
    }

    /// Asks some broker, again if that may help.
    pub async fn call_any<R: Request>(&self, request: &R) -> Result<R::Response, ClientError> {
        self.retry(|| async { self.any().await?.call(request).await }).await
    }

    /// Asks this broker, again if that may help.
    pub async fn call_broker<R: Request>(
        &self,
        id: i32,
        request: &R,
    ) -> Result<R::Response, ClientError> {
        self.retry(|| async { self.broker(id, Lane::Common).await?.call(request).await }).await
    }

    /// Asks the controller (or whoever takes its requests), again if that may help. `error` takes
    /// out of an answer what went wrong as a whole.
    pub async fn call_controller<R: Request>(
        &self,
        request: &R,
        error: impl Fn(&R::Response) -> ErrorCode,
    ) -> Result<R::Response, ClientError> {
        self.retry(|| async {
            let controller = self.controller().await?;
            let response = self.broker(controller, Lane::Common).await?.call(request).await;
            let code = response.as_ref().map(&error).unwrap_or(ErrorCode::NotController);
            if code == ErrorCode::NotController {
                self.refresh().await?;
            }
            let response = response?;
            check(code, None, || R::API_KEY.to_string()).map(|()| response)
        })
        .await
    }

    async fn controller(&self) -> Result<i32, ClientError> {
        if let Some(id) = self.metadata().controller {
            return Ok(id);
        }
        self.refresh().await?;
        let none = || ClientError::refused("controller", ErrorCode::LeaderNotAvailable);
        self.metadata().controller.ok_or_else(none)
    }

    /// The broker that coordinates this group or transaction, asked for if not known.
    pub async fn coordinator(&self, kind: CoordinatorKind, key: &str) -> Result<i32, ClientError> {
        let place = (kind, key.to_owned());
        if let Some(id) = lock(&self.0.coordinators).get(&place) {
            return Ok(*id);
        }
        let id = self.find_coordinator(kind, key).await?;
        if !self.metadata().brokers.contains_key(&id) {
            self.refresh().await?;
        }
        lock(&self.0.coordinators).insert(place, id);
        Ok(id)
    }

    /// Forgets who coordinates it: it has moved, or is away.
    pub fn forget_coordinator(&self, kind: CoordinatorKind, key: &str) {
        lock(&self.0.coordinators).remove(&(kind, key.to_owned()));
    }

    async fn find_coordinator(&self, kind: CoordinatorKind, key: &str) -> Result<i32, ClientError> {
        let connection = self.any().await?;
        let version = connection.version_of(FindCoordinatorRequest::API_KEY)?;
        let mut request = FindCoordinatorRequest::default();
        match version {
            ..=3 => key.clone_into(&mut request.key),
            _ => request.coordinator_keys = vec![key.to_owned()],
        }
        request.key_type = if kind == CoordinatorKind::Transaction { 1 } else { 0 };
        let response = connection.call_version(&request, version).await?;
        let what = || format!("coordinator of {key}");
        if version <= 3 {
            check(response.error(), response.error_message.as_deref(), what)?;
            return Ok(response.node_id);
        }
        let Some(found) = response.coordinators.first() else {
            return Err(ClientError::refused(what(), ErrorCode::CoordinatorNotAvailable));
        };
        check(found.error(), found.error_message.as_deref(), what)?;
        Ok(found.node_id)
    }

    /// Asks a coordinator, again if that may help. `error` takes out of an answer what went wrong
    /// as a whole; an error that trying again does not heal is left in the answer.
    pub async fn call_coordinator<R: Request>(
        &self,
        kind: CoordinatorKind,
        key: &str,
        request: &R,
        error: impl Fn(&R::Response) -> ErrorCode,
    ) -> Result<R::Response, ClientError> {
        self.call_coordinator_up_to(i16::MAX, kind, key, request, error).await
    }

    /// As [`Cluster::call_coordinator`], in this version at most.
    pub async fn call_coordinator_up_to<R: Request>(
        &self,
        version_max: i16,
        kind: CoordinatorKind,
        key: &str,
        request: &R,
        error: impl Fn(&R::Response) -> ErrorCode,
    ) -> Result<R::Response, ClientError> {
        self.retry(|| async {
            let id = self.coordinator(kind, key).await?;
            let asked = async {
                let connection = self.broker(id, Lane::Common).await?;
                let version = connection.version_up_to(R::API_KEY, version_max)?;
                connection.call_version(request, version).await
            };
            let response = asked.await.inspect_err(|_| self.forget_coordinator(kind, key))?;
            let code = error(&response);
            if matches!(code, ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable) {
                self.forget_coordinator(kind, key);
            }
            let again = code.is_retriable();
            if again { Err(ClientError::refused(R::API_KEY.name(), code)) } else { Ok(response) }
        })
        .await
    }

    /// Does it again, after a pause, until it succeeds, fails for good, or `call_timeout` is over.
    pub async fn retry<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, ClientError> {
        let deadline = Instant::now() + self.0.config.call_timeout;
        let mut last: Option<Duration> = None;
        loop {
            let error = match attempt().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let pause = match (last, error.code()) {
                (Some(last), _) => (last * 2).min(Duration::from_secs(1)),
                (None, Some(ErrorCode::ConcurrentTransactions)) => CONCURRENT_PAUSE,
                (None, _) => self.0.config.retry_backoff,
            };
            if !error.is_retriable() || Instant::now() + pause > deadline {
                return Err(error);
            }
            tracing::debug!(%error, "trying again");
            tokio::time::sleep(jittered(pause)).await;
            last = Some(pause);
        }
    }
}

/// Between 80 % and 120 % of a pause, so that clients do not come back all at once.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.8 + 0.4 * fastrand::f64())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code under these locks panics")
}

fn named(name: &str) -> MetadataRequestTopic {
    MetadataRequestTopic { name: Some(name.to_owned()), ..Default::default() }
}

fn unknown_topic(name: &str) -> ClientError {
    ClientError::refused(format!("topic {name}"), ErrorCode::UnknownTopicOrPartition)
}
