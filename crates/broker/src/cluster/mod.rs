//! A broker among others: how it is connected with them, how it joins them, and what follows when one of them comes
//! or goes.
//!
//! ```text
//! links       connections with the other nodes, and the door through which they come in
//! controller  having something decided, wherever the active controller is
//! joining     registration, and serving from then on
//! heartbeats  telling the controller that this broker lives
//! succession  on the active controller: whether a registered process answers when another one registers
//! watching    on the active controller: who is alive, whom to fence, what follows (sweeps)
//! probing     on the active controller: brokers that answer no probe
//! electing    on the active controller: leaders by the ends of replicas' logs; on every broker: the ends
//! unclean     on the active controller: log ends for unclean elections, where no complete replica serves
//! marks       on the active controller: records the marks of log directories that brokers report
//! members     on the active controller: who is a member of the quorum, and as which folder
//! fetchers    copying from leaders, a thread for each leader and slot
//! counting    what steps of the metadata mean for the counters
//! departed    which brokers were fenced a moment ago, and are named once more
//! describing  the metadata quorum, for whoever asks any broker
//! failed_disks  which replicas are gone with a log directory
//! returns     on the active controller: leaderships that go back to preferred replicas
//! returning   what the log directories of a broker that starts are worth
//! losses      which replicas this broker cannot answer for
//! telling     telling the controller of them
//! sick_disks  log directories that hang or are full: others replace their replicas
//! superseded  leaderships in doubt while no controller answers
//! refused     which replicas turned out to be damaged, or were mended, and are copied anew
//! in_sync     on leaders: who is in sync, as the controller decides
//! ```
//!
//! A broker that is alone has a [`Controller`] and none of the rest.

mod answers;
mod controller;
mod counting;
mod departed;
mod describing;
mod electing;
mod failed_disks;
mod fetcher;
mod fetchers;
mod handing_over;
mod heartbeats;
mod in_sync;
mod joining;
mod links;
mod losses;
mod marks;
mod members;
mod probing;
mod refused;
mod returning;
mod returns;
mod sick_disks;
mod succession;
mod superseded;
mod telling;
mod unclean;
mod watching;

pub use controller::{Controller, Undecided};
pub use counting::Counts;
pub use departed::Departed;
pub use describing::{DescribedMember, DescribedQuorum, describe as describe_quorum};
pub use fetchers::Fetchers;
pub use handing_over::hand_over;
pub use in_sync::InSync;
pub use joining::{build_registration, join};
pub use links::ClusterLinks;
pub(crate) use links::is_of_node;
pub use losses::{Losses, found_epochs, unknown_replicas};
pub use refused::{Refused, settle_mended};
pub use returning::{Returning, assigned};
pub use sick_disks::SickDisks;
pub use superseded::Contacts;
pub(crate) use superseded::{are_in_doubt, count_superseded, is_superseded};
pub use telling::tell_at_start;

use std::sync::Arc;
use std::time::Duration;

use configuration::BrokerConfig;
use metadata::decide::BrokerRef;
use quorum::Quorum;
use tokio::sync::watch::Receiver;

use crate::groups;
use crate::network::listener::serve_broker;
use crate::server::Server;
use crate::start_error::StartError;
use crate::vital;

/// Starts the tasks of the active controller. They run on each node with links, and act while the node is the active
/// controller.
pub fn start_controller_tasks(
    config: &BrokerConfig,
    quorum: &Arc<Quorum>,
    links: &Arc<ClusterLinks>,
) {
    let both = || (Arc::clone(quorum), Arc::clone(links));
    let membership = &config.membership;
    let rebalance = Duration::from_secs(membership.rebalance_s);
    let (of, by) = both();
    let watching = watching::run(of, by, membership.rebalances.then_some(rebalance));
    tokio::spawn(vital::task("watching other brokers", watching));
    let (of, by) = both();
    tokio::spawn(vital::task("probes of other brokers", probing::run(of, by)));
    let (of, by) = both();
    let wait = Duration::from_millis(membership.election_wait_ms);
    tokio::spawn(vital::task("elections by log ends", electing::run(of, by, wait)));
    let (of, by) = both();
    tokio::spawn(vital::task("log ends for unclean elections", unclean::run(of, by)));
    let (of, by) = both();
    let every = Duration::from_millis(membership.mark_interval_ms);
    tokio::spawn(vital::task("marks of log directories", marks::run(of, by, every)));
}

/// Begins to serve: replicas that are refused are reported, other brokers may copy from this one, and the controller
/// hears of it from now on.
pub async fn begin(
    server: &Arc<Server>,
    links: &Arc<ClusterLinks>,
    who: BrokerRef,
    stopped: &Receiver<bool>,
) -> Result<(), StartError> {
    let refused = server.refused_replicas.take();
    // What others have everything of is copied anew at once.
    let doubtful = || Losses {
        doubtful: losses::given_up(&server.image(), &refused, server.node_id),
        ..Losses::default()
    };
    tell_at_start(doubtful, &server.controller, who).await?;
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
    links.log_ends().answer_by(server, who);
    let patience = Duration::from_millis(server.config().membership.registration_ms_max);
    joining::serve_from_now_on(&server.controller, who, patience).await?;
    server.health.note_controller(server.clock.moment());
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
    let sick = sick_disks::run(Arc::clone(server), Arc::clone(&server.sick_disks), who);
    tokio::spawn(vital::task("sick log directories", sick));
    let mending = refused::run(Arc::clone(server), who);
    tokio::spawn(vital::task("refused replicas", mending));
    let looking = in_sync::look_for_laggards(Arc::clone(server));
    tokio::spawn(vital::task("replicas that lag", looking));
    tokio::spawn(vital::task("groups of others", groups::keep_up(Arc::clone(&server.groups))));
    Ok(())
}
