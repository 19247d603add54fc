//! A log directory that fails while the broker runs: the controller is told which replicas are gone with it, so that other
//! brokers lead and no acknowledgement waits for these (what KIP-858 does with offline directories in heartbeats). A broker of which every
//! directory has failed ends: its links end with it, and the controller sees that.

use std::sync::Arc;
use std::time::Duration;

use metadata::decide::{BrokerRef, EmptyReplicas, SWEEP_PARTITIONS_MAX};
use metadata::{Request, Response};
use model::{PartitionIndex, TopicId};
use tokio::time::sleep;
use tracing::warn;

use crate::logs::Directory;
use crate::replicas::{self, Keys};
use crate::server::Server;

/// The pause after a report that could not be made.
pub(super) const PAUSE: Duration = Duration::from_millis(200);

/// Reports until the broker stops.
pub(super) async fn run(server: Arc<Server>, who: BrokerRef) {
    let mut failures = server.logs.failures();
    // What failed before this began counts as well.
    failures.mark_changed();
    while failures.changed().await.is_ok() {
        if server.logs.directories().all(Directory::is_offline) {
            server.end(
                "every log directory has failed, and nothing can be stored: see the reports above, put the disk \
                 right and start again"
                    .to_owned(),
            );
            return;
        }
        while !tell(&server, who).await {
            sleep(PAUSE).await;
        }
    }
}

/// Tells the controller of the replicas in directories that have failed; `false`: it has to be tried again.
async fn tell(server: &Server, who: BrokerRef) -> bool {
    let offline = server.logs.offline_partitions();
    let offline: Keys = offline.iter().map(|key| (key.topic_id, key.partition)).collect();
    withdraw(server, who, &offline, "are in a log directory that has failed").await
}

/// Tells the controller that replicas are not what they were, as far as it counts on them and on others as well. `fate` says
/// what has become of them. `false`: it has to be tried again.
pub(super) async fn withdraw(
    server: &Server,
    who: BrokerRef,
    replicas: &[(TopicId, PartitionIndex)],
    fate: &'static str,
) -> bool {
    let gone = replicas::given_up(&server.image(), replicas, server.node_id);
    for partitions in gone.chunks(SWEEP_PARTITIONS_MAX) {
        let report = EmptyReplicas { broker: who, partitions: partitions.to_vec() };
        match server.controller.decide(Request::ReportEmptyReplicas(report)).await {
            Ok(Response::EmptyReplicas(Ok(_))) => {
                warn!(
                    partitions = partitions.len(),
                    fate, "replicas left the in-sync replicas, and others lead"
                );
            }
            Ok(Response::EmptyReplicas(Err(refusal))) => {
                // Of a process that was replaced; that one says what it has.
                warn!(error = %refusal.error, reason = refusal.message, fate, "the controller does not take replicas out of the in-sync replicas");
                return true;
            }
            Ok(other) => unreachable!("the answer to another request: {other:?}"),
            Err(cause) => {
                warn!(%cause, fate, "cannot tell the controller of replicas that are gone; it is tried again");
                return false;
            }
        }
    }
    true
}
