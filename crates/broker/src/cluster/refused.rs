//! Replicas that are not what they are counted for: refused while the broker runs, because their logs turned out to be damaged or to
//! lack what they should have, or mended by a person without records that are lost. The controller is told, so that others lead and no
//! acknowledgement waits for these; then those of which others have everything are copied anew.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use metadata::decide::BrokerRef;
use model::{PartitionIndex, TopicId};
use parking_lot::Mutex;
use quorum::Quorum;
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::warn;

use super::controller::Controller;
use super::losses::{self, Losses};
use super::telling::{Untold, tell_at_start};
use crate::logs::Logs;
use crate::replicas::Keys;
use crate::server::Server;
use crate::start_error::StartError;

/// The pause after a report that could not be made.
const PAUSE: Duration = Duration::from_millis(200);

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

/// Sees to refused replicas until the broker stops, or another process has taken its place.
pub(super) async fn run(server: Arc<Server>, who: BrokerRef) {
    loop {
        let refused = server.refused_replicas.wait().await;
        loop {
            let doubtful = losses::given_up(&server.image(), &refused, server.node_id);
            let losses = Losses { doubtful, ..Losses::default() };
            match losses.tell(&server.controller, who).await {
                Ok(_) => break,
                // Of a process that was replaced: heartbeats find out.
                Err(Untold::Refused(_)) => return,
                Err(cause) => {
                    warn!(%cause, "cannot tell the controller of replicas that are refused; it is tried again");
                    sleep(PAUSE).await;
                }
            }
        }
        // What was elected instead is followed by then.
        server.applied().await;
        server.copy_anew(refused);
    }
}

/// Tells of replicas that were mended without records that are lost, and decides what becomes of them: those of which others have
/// everything are refused, to be copied anew.
pub async fn settle_mended(
    quorum: &Quorum,
    controller: &Controller,
    logs: &Logs,
    who: BrokerRef,
) -> Result<(), StartError> {
    let mended: Keys = logs.mended().into_iter().map(|key| (key.topic_id, key.partition)).collect();
    let doubtful = || Losses {
        doubtful: losses::given_up(&quorum.image(), &mended, who.broker),
        ..Losses::default()
    };
    tell_at_start(doubtful, controller, who).await?;
    let image = quorum.image();
    logs.settle_mended(|key| {
        let topic = image.topic_by_id(key.topic_id);
        let state = topic.and_then(|topic| topic.partition(key.partition));
        state.is_some_and(|state| node::roles::is_copied_anew(state, who.broker))
    })?;
    Ok(())
}
