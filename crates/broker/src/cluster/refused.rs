//! Replicas that are refused while the broker runs, because their logs turned out to be damaged or to lack what they should have.
//! The controller is told, so that others lead and no acknowledgement waits for these; then those of which others have everything
//! are copied anew, as behind a start ([`super::begin`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use metadata::decide::BrokerRef;
use model::{PartitionIndex, TopicId};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::failed_disks::{PAUSE, withdraw};
use crate::replicas::Keys;
use crate::server::Server;

/// The replicas of this broker that were refused, and that nothing was done about yet.
#[derive(Debug, Default)]
pub struct Refused {
    keys: Mutex<BTreeSet<(TopicId, PartitionIndex)>>,
    changed: Notify,
}

impl Refused {
    /// Notes one.
    pub fn note(&self, topic_id: TopicId, partition: PartitionIndex) {
        self.keys.lock().insert((topic_id, partition));
        self.changed.notify_one();
    }

    /// All that were noted since the last call.
    pub fn take(&self) -> Keys {
        std::mem::take(&mut *self.keys.lock()).into_iter().collect()
    }

    /// As [`Refused::take`], as soon as there is one.
    async fn wait(&self) -> Keys {
        loop {
            let keys = self.take();
            if !keys.is_empty() {
                return keys;
            }
            self.changed.notified().await;
        }
    }
}

/// Sees to refused replicas until the broker stops.
pub(super) async fn run(server: Arc<Server>, who: BrokerRef) {
    loop {
        let refused = server.refused_replicas.wait().await;
        while !withdraw(&server, who, &refused, "are refused").await {
            sleep(PAUSE).await;
        }
        // The leader that was elected instead is followed by then.
        server.applied().await;
        server.copy_anew(refused);
    }
}
