//! One instance: a consumer, and the turn to use it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{Cluster, Consumer, ConsumerConfig};
use model::{Offset, TopicPartition};
use pools::Lease;
use serving::error::ApiError;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;
use tracing::debug;

use super::kept::no_instance;
use super::names::{Followed, Names};
use super::work::told;
use crate::produce::LOOKUP_MAX;
use crate::request::Embedded;
use crate::request::instances::Creation;
use crate::share_owner::ShareOwner;

/// Bytes that a fetch asks a broker for.
pub(super) const FETCH_BYTES: i32 = 256 * 1024;
/// How often what was read is committed, where that is automatic: Kafka's default.
const COMMIT_EVERY: Duration = Duration::from_secs(5);
/// How long other members of the group wait for one that does not join again.
const REBALANCE_MAX: Duration = Duration::from_secs(60);
/// How long leaving a group may take.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// How long a reader waits for others' patterns to be compared, before it reads on with what its own has matched before.
const TURN_MAX: Duration = Duration::from_millis(200);

/// An instance.
pub(super) struct Instance {
    pub(super) embedded: Embedded,
    /// How long a read waits that says nothing else.
    pub(super) wait: Duration,
    seat: Arc<tokio::sync::Mutex<Seat>>,
    /// When the last request came, or was answered.
    used: Mutex<Instant>,
    is_gone: AtomicBool,
    /// Its place among all instances. The pool takes it back for clients with fewer instances.
    place: Lease<ShareOwner>,
}

/// What one request at a time uses.
pub(super) struct Seat {
    cluster: Cluster,
    config: ConsumerConfig,
    /// `None` once the instance is closed.
    pub(super) consumer: Option<Consumer>,
    /// The last answer with records.
    pub(super) last: LastAnswer,
    /// The pattern that its subscription is of, if it is of one.
    pub(super) followed: Option<Followed>,
}

/// Where an answer with records began.
#[derive(Debug, Default)]
pub(super) struct LastAnswer {
    /// First offset of each partition.
    pub(super) begun: Vec<(TopicPartition, Offset)>,
    /// The group's generation; `None` for partitions that the client assigned. In a later one other members may have read
    /// the partitions meanwhile.
    pub(super) generation: Option<i32>,
}

impl LastAnswer {
    /// Drops the records below committed offsets: they are not repeated. `committed`: offsets that the client chose; `None`
    /// if all records were committed.
    pub(super) fn commit(&mut self, committed: Option<Vec<(TopicPartition, Offset)>>) {
        let Some(committed) = committed else { return self.begun.clear() };
        for (partition, offset) in committed {
            for (begun, first) in &mut self.begun {
                if *begun == partition && *first < offset {
                    *first = offset;
                }
            }
        }
    }
}

/// The turn to use an instance.
pub(super) type Turn = OwnedMutexGuard<Seat>;

impl Instance {
    pub(super) fn new(
        cluster: &Cluster,
        group: &str,
        creation: Creation,
        idle_max: Duration,
        place: Lease<ShareOwner>,
    ) -> Instance {
        let config = ConsumerConfig {
            offset_reset: creation.offset_reset,
            auto_commit: creation.commits.then_some(COMMIT_EVERY),
            read_committed: creation.read_committed,
            fetch_bytes_min: creation.fetch_bytes_min,
            fetch_bytes_max: FETCH_BYTES,
            partition_bytes_max: FETCH_BYTES,
            rebalance_timeout: REBALANCE_MAX,
            // It leaves its group when it is forgotten, and not before.
            poll_interval_max: idle_max + REBALANCE_MAX,
            prefetch: false,
            ..ConsumerConfig::group(group)
        };
        let consumer = Some(Consumer::new(cluster.clone(), config.clone()));
        Instance {
            embedded: creation.embedded,
            wait: creation.wait,
            seat: Arc::new(tokio::sync::Mutex::new(Seat {
                cluster: cluster.clone(),
                config,
                consumer,
                last: LastAnswer::default(),
                followed: None,
            })),
            used: Mutex::new(Instant::now()),
            is_gone: AtomicBool::new(false),
            place,
        }
    }

    /// Notes that a request uses it.
    pub(super) fn touch(&self) {
        let now = Instant::now();
        *self.used.lock().expect("no code under it panics") = now;
        self.place.advance(now);
    }

    /// Waits for the turn to use it.
    pub(super) async fn turn(&self) -> Turn {
        Arc::clone(&self.seat).lock_owned().await
    }

    /// The client that made it.
    pub(super) fn share_owner(&self) -> ShareOwner {
        self.place.owner().clone()
    }

    /// Whether it was deleted: a read that waits ends.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Whether no request has used it for so long, nor uses it now; or whether another client needs its place.
    pub(super) fn must_end(&self, idle_max: Duration) -> bool {
        self.place.is_revoked() || self.is_idle_for(idle_max)
    }

    fn is_idle_for(&self, time: Duration) -> bool {
        let used = *self.used.lock().expect("no code under it panics");
        used.elapsed() >= time && self.seat.try_lock().is_ok()
    }

    /// Has it subscribe to what its pattern matches by now, and join its group again if the group shares its partitions out, and
    /// no request does so.
    pub(super) fn keep_place(&self, names: &Arc<Names>) {
        let Ok(mut seat) = Arc::clone(&self.seat).try_lock_owned() else { return };
        let is_behind = seat.followed.as_ref().is_some_and(|followed| followed.is_behind(names));
        if !is_behind && !seat.must_join_again() {
            return;
        }
        let names = Arc::clone(names);
        tokio::spawn(async move {
            seat.keep_up(&names).await;
            seat.join_again().await;
        });
    }

    /// Ends what uses it, leaves the group, and keeps nothing. Commits before, where that is automatic.
    pub(super) async fn close(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
        self.turn().await.close().await;
    }
}

impl Seat {
    /// Whether it is a member of its group that has to join anew.
    fn must_join_again(&self) -> bool {
        let Some(consumer) = &self.consumer else { return false };
        consumer.generation_id().is_some_and(|generation| generation >= 0) && consumer.must_join()
    }

    async fn join_again(&mut self) {
        if !self.must_join_again() {
            return;
        }
        let Some(consumer) = &mut self.consumer else { return };
        match consumer.poll(Duration::ZERO).await {
            Ok(fetched) => rewind(
                consumer,
                fetched.into_iter().map(|fetched| (fetched.partition, fetched.fetch_offset)),
            ),
            // The next request is told.
            Err(error) => debug!(%error, "an instance cannot join its group again"),
        }
    }

    /// Begins to follow a pattern.
    ///
    /// # Errors
    /// There is no memory for the topics that match; then it follows none.
    pub(super) async fn follow(
        &mut self,
        followed: Followed,
        names: &Names,
    ) -> Result<(), ApiError> {
        self.followed = Some(followed);
        let begun = self.subscribe_to_news(names, LOOKUP_MAX).await;
        if begun.is_err() {
            self.followed = None;
        }
        begun
    }

    /// Subscribes to what its pattern matches by now, if it follows one.
    pub(super) async fn keep_up(&mut self, names: &Names) {
        if let Err(error) = self.subscribe_to_news(names, TURN_MAX).await {
            debug!(error = %error.message, "an instance reads the topics that its pattern matched before");
        }
    }

    async fn subscribe_to_news(
        &mut self,
        names: &Names,
        patience: Duration,
    ) -> Result<(), ApiError> {
        let Some(followed) = &mut self.followed else { return Ok(()) };
        let Some(topics) = followed.news(names, patience).await? else { return Ok(()) };
        let consumer = self.consumer.as_mut().ok_or_else(no_instance)?;
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(|error| told(&error))
    }

    /// Returns to the first offsets of the last answer, whose client may not have received it. A partition that the
    /// consumer reads from an earlier offset by now stays there. After a rebalance nothing is repeated: the group's
    /// committed offsets are where its members begin, and another one may have read behind them meanwhile.
    pub(super) fn repeat_last(&mut self) {
        let Some(consumer) = &mut self.consumer else { return };
        if self.last.generation != consumer.generation_id() {
            return;
        }
        for (partition, offset) in &self.last.begun {
            if consumer.position(partition).is_some_and(|position| position > *offset) {
                rewind(consumer, [(partition.clone(), *offset)]);
            }
        }
    }

    async fn close(&mut self) {
        self.followed = None;
        self.last = LastAnswer::default();
        let Some(consumer) = self.consumer.take() else { return };
        match timeout(LEAVE_MAX, consumer.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "an instance cannot commit or leave its group"),
            Err(_) => debug!("an instance has not left its group in time"),
        }
    }

    /// Leaves the group, if it is in one, and reads nothing from now on.
    pub(super) async fn renew(&mut self) {
        self.close().await;
        self.consumer = Some(Consumer::new(self.cluster.clone(), self.config.clone()));
    }
}

/// Goes back to where these records began, so that they are read again.
pub(super) fn rewind(
    consumer: &mut Consumer,
    begun: impl IntoIterator<Item = (TopicPartition, Offset)>,
) {
    for (partition, offset) in begun {
        // A partition that the group has taken away meanwhile is read again by its new owner.
        let _ = consumer.seek(&partition, offset);
    }
}
