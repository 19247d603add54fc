//! A stop that others do not notice: the controller is told first, and leaderships move while this broker still serves.

use std::time::Duration;

use metadata::Request;
use metadata::decide::BrokerRef;
use model::BrokerId;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::server::Server;

/// How long the controller is asked.
const ASK_MAX: Duration = Duration::from_secs(1);
/// How long leaderships may take to move.
const MOVE_MAX: Duration = Duration::from_secs(5);

/// Asks the controller for other leaders of the partitions that this broker leads, and waits until it leads none that
/// another replica could lead. A broker that is alone keeps them.
pub async fn hand_over(server: &Server, who: BrokerRef) {
    if server.links.is_none() {
        return;
    }
    let begun = Instant::now();
    let mut updates = server.quorum.subscribe();
    let asked = server.controller.decide_within(Request::BeginShutdown(who), ASK_MAX).await;
    if let Err(cause) = asked {
        warn!(%cause, "leaderships are not handed over");
        return;
    }
    let moved = async {
        while led(server, who) > 0 {
            if updates.next().await.is_none() {
                return;
            }
        }
    };
    if timeout(MOVE_MAX, moved).await.is_err() {
        info!(partitions = led(server, who), "some partitions have no other leader yet");
    }
    info!(ms = begun.elapsed().as_millis() as u64, "leaderships are handed over");
}

/// How many partitions this broker leads that another replica could lead: one in sync, of a broker that stays.
fn led(server: &Server, who: BrokerRef) -> usize {
    let image = server.image();
    let stays = |id: &BrokerId| {
        let known = image.broker(*id).filter(|broker| !broker.fenced);
        *id != who.broker && known.is_some_and(|broker| !broker.in_controlled_shutdown)
    };
    let partitions = image.topics().flat_map(|topic| topic.partitions());
    partitions
        .filter(|(_, state)| state.leader == who.broker && state.isr.iter().any(stays))
        .count()
}
