//! On the active controller: whether the registered process of a broker still answers, when another process registers as that
//! broker.
//!
//! A process with one of the registered log directories holds the lock of the process before, so that one has ended
//! (decision 0021). A copy of a folder has a lock of its own and looks the same. So the controller calls the registered process
//! first, over the link that it has with it. The link of a process that ended is closed, and a restart waits for nothing.

use std::time::Duration;

use ::link::{Links, service};
use metadata::decide::RegisterBroker;
use metadata::{ClusterImage, Refusal};
use model::{BrokerId, ErrorCode, Uuid};

/// How long the registered process has to answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Refuses a registration while another process is registered as this broker and answers (Apache Kafka: while the session of that
/// process lasts).
pub(super) async fn check(
    links: &Links,
    me: BrokerId,
    image: &ClusterImage,
    register: &RegisterBroker,
) -> Result<(), Refusal> {
    let id = register.broker;
    let known = image.broker(id).filter(|known| known.incarnation != register.incarnation);
    let Some(known) = known else { return Ok(()) };
    if id != me && !answers(links, id, known.incarnation).await {
        return Ok(());
    }
    let message = format!(
        "Another process is registered as broker {id} and answers: stop it first, or give this broker a node.id and folders of its own. \
         Two processes never share a copied folder."
    );
    Err(Refusal::new(ErrorCode::DuplicateBrokerRegistration, message))
}

/// Whether this very process answers over the link to the broker.
async fn answers(links: &Links, broker: BrokerId, process: Uuid) -> bool {
    let is_it = || {
        let peer = links.get(broker).and_then(|link| link.peer());
        peer.is_some_and(|peer| peer.hello.incarnation == process)
    };
    // Any answer counts; this one says where the active controller is.
    is_it()
        && links.call(broker, service::CONTROLLER, Vec::new(), ANSWER_MAX).await.is_ok()
        && is_it()
}
