//! One read at the leader of a partition, tried again while another broker becomes the leader, and the connections for
//! that.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::cluster::PrivateLane;
use client::{ClientError, Cluster, Fetched, Once, read_once};
use model::ErrorCode;
use pools::{Lease, LeasePool};
use serving::error::{ApiError, Kind};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::whereabouts::{is_gone, no_leader};
use crate::produce::{no_topic, of_refusal, unavailable};
use crate::share_owner::ShareOwner;

/// Reads that wait for records, each of which holds a connection: a broker answers one connection in order.
const WAITING_MAX: usize = 64;
/// How long a read is tried again for want of a leader that answers.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause before it is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections to read on.
pub(crate) struct Lanes {
    /// For what is answered at once.
    quick: PrivateLane,
    /// Places of reads that wait.
    waiting: Arc<LeasePool<ShareOwner>>,
    /// Those that no read waits on now. Invariant: nothing is under way on them.
    idle: Mutex<Vec<PrivateLane>>,
}

impl Lanes {
    /// No connection yet.
    pub(crate) fn new(cluster: &Cluster) -> Lanes {
        Lanes {
            quick: cluster.private_lane(),
            waiting: Arc::new(LeasePool::new(WAITING_MAX)),
            idle: Mutex::default(),
        }
    }

    /// Reads what is there.
    pub(super) async fn now(&self, cluster: &Cluster, wish: &Once) -> Result<Fetched, ApiError> {
        attempts(cluster, &self.quick, wish).await
    }

    /// Waits for records. `None` if no connection for that is free all the while, or if another client needs it: the
    /// read may wait again.
    pub(super) async fn waiting(
        &self,
        cluster: &Cluster,
        owner: &ShareOwner,
        wish: &Once,
    ) -> Option<Result<Fetched, ApiError>> {
        let until = Instant::now() + wish.wait;
        let place = timeout_at(until, self.place(owner)).await.ok()?;
        tokio::select! {
            waited = self.wait(cluster, wish, until) => Some(waited),
            () = place.revoked() => None,
        }
    }

    /// A place among the reads that wait. A client with more of them than this one loses the oldest.
    async fn place(&self, owner: &ShareOwner) -> Lease<ShareOwner> {
        loop {
            if let Some(place) = self.waiting.admit(owner.clone(), 1, std::time::Instant::now()) {
                return place;
            }
            sleep(PAUSE).await;
        }
    }

    async fn wait(
        &self,
        cluster: &Cluster,
        wish: &Once,
        until: Instant,
    ) -> Result<Fetched, ApiError> {
        let idle = self.idle.lock().expect("no code under it panics").pop();
        // One whose reader goes away meanwhile is not used again: the broker still waits on it.
        let lane = idle.unwrap_or_else(|| cluster.private_lane());
        let wish = Once { wait: until - Instant::now(), ..wish.clone() };
        let result = attempts(cluster, &lane, &wish).await;
        if result.is_ok() {
            self.idle.lock().expect("no code under it panics").push(lane);
        }
        result
    }
}

async fn attempts(cluster: &Cluster, lane: &PrivateLane, wish: &Once) -> Result<Fetched, ApiError> {
    let tried = async {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let error = match read_once(lane, wish).await {
                Ok(fetched) => return Ok(fetched),
                Err(error) => error,
            };
            if !error.is_retriable() || Instant::now() >= give_up {
                return Err(told(cluster, wish, &error));
            }
            let refreshed = cluster.refresh().await;
            if refreshed.is_ok() && is_gone(cluster, &wish.partition.topic) {
                return Err(no_topic(&wish.partition.topic));
            }
            sleep(PAUSE).await;
        }
    };
    let all = wish.wait + 2 * PATIENCE;
    timeout(all, tried)
        .await
        .unwrap_or_else(|_| Err(unavailable(&"the partition's leader has not answered in time")))
}

fn told(cluster: &Cluster, wish: &Once, error: &ClientError) -> ApiError {
    let Once { partition, offset, .. } = wish;
    if error.code() == Some(ErrorCode::OffsetOutOfRange) {
        let words = format!(
            "{partition} has no offset {offset}: GET /topics/{}/partitions/{}/offsets tells the first and the next \
             one",
            partition.topic, partition.partition
        );
        return ApiError::new(Kind::OutOfRange, words);
    }
    match cluster.metadata().leader(&partition.topic, partition.partition.0) {
        None => no_leader(partition),
        Some(_) => of_refusal(error),
    }
}
