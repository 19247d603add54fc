//! A broker among others: how it is connected with them, how it joins them, and what follows when one of them comes
//! or goes.
//!
//! ```text
//! links       connections with the other nodes, and the door through which they come in
//! controller  having something decided, wherever the active controller is
//! joining     registration, and serving from then on
//! heartbeats  telling the controller that this broker lives
//! watching    on the active controller: who is alive, whom to fence, what follows (sweeps)
//! members     on the active controller: who is a member of the quorum, and as which folder
//! fetchers    copying from leaders, a thread for each leader and slot
//! counting    what steps of the metadata mean for the counters
//! describing  the metadata quorum, for whoever asks any broker
//! failed_disks  which replicas are gone with a log directory
//! refused     which replicas turned out to be damaged, and are copied anew
//! in_sync     on leaders: who is in sync, as the controller decides
//! ```
//!
//! A broker that is alone has a [`Controller`] and none of the rest.

mod answers;
mod controller;
mod counting;
mod describing;
mod failed_disks;
mod fetcher;
mod fetchers;
mod fetching;
mod handing_over;
mod heartbeats;
mod in_sync;
mod joining;
mod links;
mod members;
mod refused;
mod watching;

pub use controller::{Controller, Undecided};
pub use counting::Counts;
pub use describing::{DescribedMember, DescribedQuorum, describe as describe_quorum};
pub use fetchers::Fetchers;
pub use handing_over::hand_over;
pub use in_sync::InSync;
pub use joining::join;
pub use links::ClusterLinks;
pub(crate) use links::is_of_node;
pub use refused::Refused;
pub(crate) use watching::run as watch;

use std::sync::Arc;
use std::time::Duration;

use metadata::decide::{BrokerRef, EmptyReplicas, SWEEP_PARTITIONS_MAX};
use metadata::{Request, Response};
use model::{PartitionIndex, TopicId};
use quorum::Quorum;
use tokio::sync::watch::Receiver;
use tokio::time::sleep;
use tracing::warn;

use crate::groups;
use crate::logs::Logs;
use crate::network::listener::serve_broker;
use crate::replicas::{self, Keys};
use crate::server::Server;
use crate::start::StartError;
use crate::vital;

/// How often a report is tried again that no controller answers, while another one is elected.
const REPORTS_MAX: u32 = 20;
/// The pause before.
const REPORT_PAUSE: Duration = Duration::from_millis(250);

/// Begins to serve: replicas that are refused are reported, other brokers may copy from this one, and the controller
/// hears of it from now on.
pub async fn begin(
    server: &Arc<Server>,
    links: &Arc<ClusterLinks>,
    who: BrokerRef,
    stopped: &Receiver<bool>,
) -> Result<(), StartError> {
    let refused = server.refused_replicas.take();
    let given_up = replicas::given_up(&server.image(), &refused, server.node_id);
    report_empty(&server.controller, who, &given_up).await?;
    server.applied().await;
    if !refused.is_empty() {
        server.copy_anew(refused);
    }
    let (serving, stopped) = (Arc::clone(server), stopped.clone());
    let data = server.data.get().expect("it is set before the broker serves").clone();
    links.hand_fetchers_to(move |established| {
        let (server, stopped) = (Arc::clone(&serving), stopped.clone());
        data.spawn(serve_broker(established, server, stopped));
    });
    let patience = Duration::from_millis(server.config().membership.registration_ms_max);
    joining::serve_from_now_on(&server.controller, who, patience).await?;
    server.applied().await;
    let (beating, links) = (Arc::clone(server), Arc::clone(links));
    tokio::spawn(vital::task("heartbeats", heartbeats::run(beating, links, who)));
    tokio::spawn(vital::task("in-sync replicas", in_sync::run(Arc::clone(server), who)));
    tokio::spawn(vital::task(
        "places of the quorum's members",
        describing::follow(Arc::clone(server)),
    ));
    let telling = failed_disks::run(Arc::clone(server), who);
    tokio::spawn(vital::task("failed log directories", telling));
    let mending = refused::run(Arc::clone(server), who);
    tokio::spawn(vital::task("refused replicas", mending));
    let looking = in_sync::look_for_laggards(Arc::clone(server));
    tokio::spawn(vital::task("replicas that lag", looking));
    tokio::spawn(vital::task("groups of others", groups::keep_up(Arc::clone(&server.groups))));
    Ok(())
}

/// Reports replicas that were mended without records that are lost, as far as others have everything, and decides what becomes of
/// all that were mended.
pub async fn settle_mended(
    quorum: &Quorum,
    controller: &Controller,
    logs: &Logs,
    who: BrokerRef,
) -> Result<(), StartError> {
    let mended: Keys = logs.mended().into_iter().map(|key| (key.topic_id, key.partition)).collect();
    let given_up = replicas::given_up(&quorum.image(), &mended, who.broker);
    report_empty(controller, who, &given_up).await?;
    let image = quorum.image();
    logs.settle_mended(|key| {
        let topic = image.topic_by_id(key.topic_id);
        let state = topic.and_then(|topic| topic.partition(key.partition));
        state.is_some_and(|state| node::roles::is_copied_anew(state, who.broker))
    })?;
    Ok(())
}

/// Reports replicas that hold nothing of what the cluster may count on: they leave the in-sync replicas.
pub async fn report_empty(
    controller: &Controller,
    broker: BrokerRef,
    empty: &[(TopicId, PartitionIndex)],
) -> Result<(), StartError> {
    for partitions in empty.chunks(SWEEP_PARTITIONS_MAX) {
        warn!(
            partitions = partitions.len(),
            "replicas lack what the cluster may count on: they leave the in-sync replicas"
        );
        let report = EmptyReplicas { broker, partitions: partitions.to_vec() };
        let mut tries = 0;
        loop {
            // It is the same report twice if the answer was lost.
            match controller.decide(Request::ReportEmptyReplicas(report.clone())).await {
                Ok(Response::EmptyReplicas(Ok(_))) => break,
                Ok(Response::EmptyReplicas(Err(refusal))) => {
                    return Err(StartError::Refused(refusal));
                }
                Ok(other) => unreachable!("the answer to another request: {other:?}"),
                Err(cause) if tries == REPORTS_MAX => {
                    return Err(StartError::NotJoined(cause.to_string()));
                }
                Err(cause) => {
                    warn!(%cause, "replicas that are gone cannot be reported yet; it is tried again");
                }
            }
            tries += 1;
            sleep(REPORT_PAUSE).await;
        }
    }
    Ok(())
}
