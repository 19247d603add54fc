//! On the active controller: whether the registered process of a broker is alive, when another process registers as that broker.
//!
//! A process with one of the registered log directories holds the lock of the process before, so that one has ended
//! (decision 0021). A copy of a folder has a lock of its own and looks the same. So the link with the registered process decides
//! first. The link of a process that ended is closed: a restart waits for no session.

use std::time::Duration;

use ::link::Links;
use metadata::decide::RegisterBroker;
use metadata::{ClusterImage, Refusal};
use model::{BrokerId, ErrorCode, Uuid};
use tokio::time::{Instant, sleep};

use super::watching::Watching;

/// Time after a broken connection for a new one to identify the process at the address.
const REDIAL_MAX: Duration = Duration::from_secs(1);
/// Pause between two checks of a link.
const PAUSE: Duration = Duration::from_millis(20);

/// State of a registered process, by its link.
enum Registered {
    /// The link is up, and the session lasts.
    Alive,
    /// The connection broke a moment ago, and is being dialed again.
    Unknown,
    /// Another process answers at the address, the address refuses, or the session is over.
    Ended,
}

/// Refuses a registration while another process is registered as this broker, connected, and in its session. Apache Kafka
/// refuses it as long as the session lasts.
pub(super) async fn check(
    links: &Links,
    watching: &Watching,
    me: BrokerId,
    image: &ClusterImage,
    register: &RegisterBroker,
) -> Result<(), Refusal> {
    let id = register.broker;
    let known = image.broker(id).filter(|known| known.incarnation != register.incarnation);
    let Some(process) = known.map(|known| known.incarnation) else { return Ok(()) };
    let until = Instant::now() + REDIAL_MAX;
    loop {
        let registered = match id == me {
            true => Registered::Alive,
            false => look(links, watching, image, id, process),
        };
        match registered {
            Registered::Alive => break,
            Registered::Unknown if Instant::now() < until => sleep(PAUSE).await,
            Registered::Unknown | Registered::Ended => return Ok(()),
        }
    }
    let message = format!(
        "Another process is registered as broker {id} and answers: stop it first, or give this broker a node.id and folders of its own. \
         Two processes never share a copied folder."
    );
    Err(Refusal::new(ErrorCode::DuplicateBrokerRegistration, message))
}

fn look(
    links: &Links,
    watching: &Watching,
    image: &ClusterImage,
    broker: BrokerId,
    process: Uuid,
) -> Registered {
    let peer = links.get(broker).and_then(|link| link.peer());
    let is_in_session = || watching.may_be_alive(image, broker);
    match peer.map(|peer| peer.hello.incarnation) {
        Some(connected) if connected == process && is_in_session() => Registered::Alive,
        None if watching.was_seen(broker, process) && is_in_session() => Registered::Unknown,
        _ => Registered::Ended,
    }
}
