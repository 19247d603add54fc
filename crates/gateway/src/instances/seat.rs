//! One instance: a consumer, and the turn to use it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{Cluster, Consumer, ConsumerConfig};
use model::{Offset, TopicPartition};
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;
use tracing::debug;

use crate::charge::Charge;
use crate::request::Embedded;
use crate::request::instances::Creation;

/// Bytes that a fetch asks a broker for.
pub(super) const FETCH_BYTES: i32 = 256 * 1024;
/// How often what was read is committed, where that is automatic: Kafka's default.
const COMMIT_EVERY: Duration = Duration::from_secs(5);
/// How long other members of the group wait for one that does not join again.
const REBALANCE_MAX: Duration = Duration::from_secs(60);
/// How long leaving a group may take.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// An instance.
pub(super) struct Instance {
    pub(super) embedded: Embedded,
    /// How long a read waits that says nothing else.
    pub(super) wait: Duration,
    seat: Arc<tokio::sync::Mutex<Seat>>,
    /// When the last request came, or was answered.
    used: Mutex<Instant>,
    is_gone: AtomicBool,
    /// What it holds at rest.
    _charge: Charge,
}

/// What one request at a time uses.
pub(super) struct Seat {
    cluster: Cluster,
    config: ConsumerConfig,
    /// `None` once the instance is closed.
    pub(super) consumer: Option<Consumer>,
}

/// The turn to use an instance.
pub(super) type Turn = OwnedMutexGuard<Seat>;

impl Instance {
    pub(super) fn new(
        cluster: &Cluster,
        group: &str,
        creation: Creation,
        idle_max: Duration,
        charge: Charge,
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
            })),
            used: Mutex::new(Instant::now()),
            is_gone: AtomicBool::new(false),
            _charge: charge,
        }
    }

    /// Notes that a request uses it.
    pub(super) fn touch(&self) {
        *self.used.lock().expect("no code under it panics") = Instant::now();
    }

    /// Waits for the turn to use it.
    pub(super) async fn turn(&self) -> Turn {
        Arc::clone(&self.seat).lock_owned().await
    }

    /// Whether it was deleted: a read that waits ends.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Whether no request has used it for so long, nor uses it now.
    pub(super) fn is_idle_for(&self, time: Duration) -> bool {
        let used = *self.used.lock().expect("no code under it panics");
        used.elapsed() >= time && self.seat.try_lock().is_ok()
    }

    /// Has it join its group again if the group shares its partitions out and no request does so.
    pub(super) fn keep_place(&self) {
        let Ok(mut seat) = Arc::clone(&self.seat).try_lock_owned() else { return };
        let Some(consumer) = &seat.consumer else { return };
        let was_member = consumer.generation_id().is_some_and(|generation| generation >= 0);
        if !was_member || !consumer.must_join() {
            return;
        }
        tokio::spawn(async move {
            let Some(consumer) = &mut seat.consumer else { return };
            match consumer.poll(Duration::ZERO).await {
                Ok(fetched) => rewind(
                    consumer,
                    fetched.into_iter().map(|fetched| (fetched.partition, fetched.fetch_offset)),
                ),
                // The next request is told.
                Err(error) => debug!(%error, "an instance cannot join its group again"),
            }
        });
    }

    /// Ends what uses it, leaves the group, and keeps nothing. Commits before, where that is automatic.
    pub(super) async fn close(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
        self.turn().await.close().await;
    }
}

impl Seat {
    async fn close(&mut self) {
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
