//! Waiting until what a client has written is committed, for requests that ask where the log ends or
//! delete up to there: with `acks=1` nobody has waited for the sync, and still the client must find
//! its own records.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use model::Offset;
use partition::{Partition, WaiterKey};

/// How long a request waits for a device that does not answer; then it is told what is committed.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Waits until everything that is written in `partitions` now is committed, where this broker alone
/// decides that. Other replicas are not waited for: nor does Kafka.
pub async fn wait(partitions: impl Iterator<Item = Arc<Partition>>) {
    // All are asked before one is waited for, so that one round of syncs does for all.
    let ends: Vec<CommittedEnd> = partitions
        .filter_map(|partition| {
            let needed = partition.want_end_committed()?;
            Some(CommittedEnd { partition, needed, key: None })
        })
        .collect();
    if ends.is_empty() {
        return;
    }
    let all = async {
        for end in ends {
            end.await;
        }
    };
    // Too late is no error: the answer says how far the log is committed.
    let _ = tokio::time::timeout(WAIT_MAX, all).await;
}

/// Ready when everything below an offset is committed, or waiting has become pointless.
struct CommittedEnd {
    partition: Arc<Partition>,
    needed: Offset,
    key: Option<WaiterKey>,
}

impl Future for CommittedEnd {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if let Some(key) = this.key.take() {
            this.partition.leave(key);
        }
        this.key = this.partition.park(this.needed, cx.waker());
        if this.key.is_some() { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for CommittedEnd {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.partition.leave(key);
        }
    }
}
