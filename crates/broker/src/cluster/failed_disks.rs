//! Replicas that go out of reach while the broker runs, with their log directory or because they turn out to be damaged: the
//! controller is told, so that other brokers lead and no acknowledgement waits for these (what KIP-858 does with offline
//! directories in heartbeats). A broker of which every directory has failed ends: its links end with it, and the
//! controller sees that.
//!
//! Who else is complete may change at any time: a leader may have been about to take in the very replica whose disk failed. So
//! the metadata is looked at again whenever it changes, for as long as something is out of reach. What is refused on a disk that
//! works is copied anew then.
//!
//! A replica that the metadata calls out of reach stays out of ISRs for as long as its process lives. So the broker reports a
//! replica that it made again in another directory.

use std::sync::Arc;
use std::time::Duration;

use metadata::decide::BrokerRef;
use storage::journal::Key;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::losses;
use super::telling::Untold;
use crate::logs::{Directory, OutOfReach, UnreachableCause};
use crate::server::Server;
use crate::vital;

/// The pause after a report that could not be made.
const PAUSE: Duration = Duration::from_millis(200);
/// Time between two reports of replicas that may be in a missing log directory.
const MISSING_EVERY: Duration = Duration::from_secs(1);

/// Reports until the broker stops, or another process has taken its place: that one says what it has.
pub(super) async fn run(server: Arc<Server>, who: BrokerRef) {
    let mut failures = server.logs.failures();
    let mut updates = server.quorum.subscribe();
    let mut awaited = None;
    let copied_after = Duration::from_millis(server.config().membership.missing_copied_ms);
    let due = Instant::now() + copied_after;
    loop {
        if server.logs.is_incomplete() && Instant::now() >= due {
            server.logs.allow_copies_of_missing();
        }
        if server.logs.directories().all(Directory::is_offline) {
            server.end(
                "every log directory has failed, and nothing can be stored: see the reports above, put the disk \
                 right and start again"
                    .to_owned(),
            );
            return;
        }
        match tell(&server, who).await {
            Ok(()) => {}
            Err(Untold::Refused(refusal)) => {
                warn!(error = %refusal.error, reason = refusal.message, "the controller does not take from this process that replicas are out of reach");
                return;
            }
            Err(cause) => {
                warn!(%cause, "cannot tell the controller of replicas that are out of reach; it is tried again");
                sleep(PAUSE).await;
                continue;
            }
        }
        // Copying anew waits for the metadata to be acted upon, which may be busy with a disk: what fails meanwhile is told.
        let copied = async {
            copy_anew(&server, &mut awaited).await;
            std::future::pending::<()>().await
        };
        tokio::select! {
            failed = failures.changed() => if failed.is_err() { return },
            update = updates.next() => if update.is_none() { return },
            () = copied => {}
            () = sleep(MISSING_EVERY), if server.logs.is_incomplete() => {
                forget_missing_directories(&server).await;
            }
        }
    }
}

/// Removes the note of missing directories once no partition may be in them.
async fn forget_missing_directories(server: &Arc<Server>) {
    let is_missing = |lost: &OutOfReach| matches!(lost.cause, UnreachableCause::Missing { .. });
    if !server.logs.copies_missing() || server.logs.out_of_reach().iter().any(is_missing) {
        return;
    }
    let logs = Arc::clone(&server.logs);
    if let Some(Err(cause)) = vital::waiting(move || logs.forget_missing_directories()).await {
        warn!(%cause, "cannot remove the note of a missing log directory");
    }
}

/// Has replicas that are refused copied anew, once nothing counts on them any more: another one may have become complete since
/// they were refused.
///
/// `awaited`: the metadata that is waited for; it stays the same when this is given up and begun again, however often.
async fn copy_anew(server: &Server, awaited: &mut Option<u64>) {
    let keys = || {
        let out_of_reach = server.logs.out_of_reach();
        losses::copied_anew(&server.image(), &out_of_reach, server.node_id)
    };
    let newest = || server.quorum.changed_at().unwrap_or(0);
    while !keys().is_empty() {
        // Whoever copies them anew judges by the metadata that is acted upon.
        let index = *awaited.get_or_insert_with(newest);
        server.acted_upon(index).await;
        *awaited = None;
        server.copy_anew(keys());
        if newest() <= index {
            return;
        }
    }
    *awaited = None;
}

/// Tells the controller what it does not know yet.
async fn tell(server: &Server, who: BrokerRef) -> Result<(), Untold> {
    let (image, out_of_reach) = (server.image(), server.logs.out_of_reach());
    let is_open = |key: &Key| server.logs.is_open(key);
    let made_again = losses::made_again(&image, &out_of_reach, server.node_id, is_open);
    made_again.tell(&server.controller, who).await?;
    let told = losses::to_give_up(&image, &out_of_reach, server.node_id);
    for losses in told.iter().filter(|losses| !losses.doubtful.is_empty()) {
        let kept = losses.tell(&server.controller, who).await?;
        warn!(
            partitions = losses.doubtful.len() - kept,
            kept,
            "replicas are out of reach: others lead where another one is complete, and the rest waits until this broker is started again"
        );
    }
    Ok(())
}
