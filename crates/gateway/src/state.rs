//! What all connections of a gateway share.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pools::LeasePool;
use serving::error::{ApiError, Kind};
use serving::rights::{Deed, Lack, Role};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use crate::charge::Room;
use crate::counts::Counts;
use crate::events::Events;
use crate::front::Entrants;
use crate::groups::Groups;
use crate::instances::Instances;
use crate::produce::{Keys, Topics};
use crate::read::Lanes;
use crate::settings::Settings;
use crate::share_owner::ShareOwner;
use crate::who::{By, Visitor, Who};

/// How long it is believed whether brokers can be reached.
const FRESH: Duration = Duration::from_secs(1);
/// How long a broker may take to answer before it counts as one that cannot be reached.
const REACH_MAX: Duration = Duration::from_secs(2);

/// One gateway.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) entrants: Entrants,
    pub(crate) who: Who,
    pub(crate) counts: Counts,
    /// What bodies may hold, and records that are read.
    pub(crate) bodies: Room,
    /// The half of it that records may hold which are read, so that readers who take nothing leave the other to bodies.
    pub(crate) reading: Room,
    pub(crate) topics: Topics,
    /// Requests with an `Idempotency-Key`.
    pub(crate) keys: Arc<Keys>,
    pub(crate) events: Events,
    /// Memory of WebSockets.
    pub(crate) sockets: Arc<LeasePool<ShareOwner>>,
    pub(crate) instances: Arc<Instances>,
    /// Members of groups that records are pushed to.
    pub(crate) groups: Arc<Groups>,
    pub(crate) lanes: Lanes,
    /// Held while all topics are listed.
    pub(crate) listing: Mutex<()>,
    /// Where it listens, once it does.
    pub(crate) address: OnceLock<SocketAddr>,
    stopping: watch::Sender<bool>,
    /// Whether the time of a stop is nearly over.
    last_call: watch::Sender<bool>,
    /// When it was last looked whether brokers can be reached, and whether one could.
    reached: Mutex<Option<(Instant, bool)>>,
}

impl Shared {
    pub(crate) fn new(settings: Settings) -> Shared {
        let half_bytes = settings.memory_bytes / 2;
        let bodies = Room::with_shares(half_bytes);
        let topics = Topics::new(&settings.cluster, half_bytes, settings.request_bytes_max);
        let events = Events::new(&settings.cluster, settings.events, bodies.bytes() / 8 * 3);
        let lane = topics.cluster().private_lane();
        Shared {
            who: Who::new(
                settings.users_file.clone(),
                settings.key.clone(),
                settings.access,
                settings.is_secure,
                !settings.proxies.is_empty(),
            ),
            entrants: Entrants::new(settings.connections_max, settings.connections_per_address_max),
            counts: Counts::default(),
            groups: Arc::new(Groups::new(lane, Arc::clone(&events.counts))),
            events,
            sockets: Arc::new(LeasePool::new(settings.memory_bytes / 4)),
            reading: bodies.half(),
            bodies,
            instances: Arc::new(Instances::new(
                settings.instances.clone(),
                topics.cluster().clone(),
            )),
            keys: Arc::new(Keys::new(settings.memory_bytes)),
            lanes: Lanes::new(topics.cluster()),
            topics,
            listing: Mutex::default(),
            address: OnceLock::new(),
            stopping: watch::Sender::new(false),
            last_call: watch::Sender::new(false),
            reached: Mutex::default(),
            settings,
        }
    }

    /// Bytes that bodies hold, and records that are read.
    pub(crate) fn body_bytes(&self) -> usize {
        self.bodies.held_bytes()
    }

    /// Whether somebody may do this.
    ///
    /// # Errors
    /// It may not, and is told what is missing.
    pub(crate) fn allow(&self, visitor: &Visitor, deed: Deed<'_>) -> Result<(), ApiError> {
        visitor.rights.may(deed).map_err(|lack| self.refusal(visitor, &lack))
    }

    /// Whether somebody may do this to some topic, which the body of the request will name.
    ///
    /// # Errors
    /// It may not, and is told what is missing.
    pub(crate) fn allow_somewhere(
        &self,
        visitor: &Visitor,
        deed: Deed<'_>,
    ) -> Result<(), ApiError> {
        visitor.rights.may_somewhere(deed).map_err(|lack| self.refusal(visitor, &lack))
    }

    fn refusal(&self, visitor: &Visitor, lack: &Lack) -> ApiError {
        let is_nobody = visitor.by == By::Nothing;
        if is_nobody && self.who.has_users() {
            let words =
                format!("{lack}, and nobody has logged in: send Authorization (Basic or Bearer)");
            return ApiError::new(Kind::Unidentified, words);
        }
        let Lack::Role(needed) = lack else {
            return ApiError::new(Kind::Forbidden, lack.to_string());
        };
        if !is_nobody {
            let words = format!("{lack}, and {:?} has less", visitor.name);
            return ApiError::new(Kind::Forbidden, words);
        }
        // What anybody may be allowed.
        let anonymous = match needed {
            Role::Read | Role::Produce => format!("gateway.anonymous={needed}"),
            Role::Write | Role::Admin => "listen on 127.0.0.1".to_owned(),
        };
        let words = format!(
            "{lack}, and this gateway listens for other machines and knows no users: make one by `highwater user add \
             NAME --role {needed} --users-file FILE` and start the gateway with gateway.users.file=FILE (or {anonymous})"
        );
        ApiError::new(Kind::Forbidden, words)
    }

    pub(crate) fn begin_to_stop(&self) {
        self.stopping.send_replace(true);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits until the gateway stops.
    pub(crate) async fn stopped(&self) {
        // The sender is here.
        let _ = self.stopping.subscribe().wait_for(|stops| *stops).await;
    }

    /// Says that the time of a stop is nearly over: what has not come by now is not waited for.
    pub(crate) fn call_last(&self) {
        self.last_call.send_replace(true);
    }

    /// Waits until the time of a stop is nearly over.
    pub(crate) async fn last_call(&self) {
        // The sender is here.
        let _ = self.last_call.subscribe().wait_for(|called| *called).await;
    }

    /// Waits until nothing is under way to the brokers, and all consumer instances have left their groups.
    pub(crate) async fn flush(&self) {
        tokio::join!(self.topics.flush(), self.instances.close_all());
    }

    /// Whether a broker can be reached; looked at once a second at most.
    pub(crate) async fn reaches_brokers(&self) -> bool {
        let mut reached = self.reached.lock().await;
        if let Some((_, was)) = reached.filter(|(at, _)| at.elapsed() < FRESH) {
            return was;
        }
        let asked = timeout(REACH_MAX, self.topics.cluster().describe([])).await;
        let is = matches!(asked, Ok(Ok(metadata)) if !metadata.brokers.is_empty());
        *reached = Some((Instant::now(), is));
        is
    }
}
