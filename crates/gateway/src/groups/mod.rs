//! Records pushed to members of groups: by WebSocket in Pulsar's shape, and by event streams with `group=`. Each is a member of
//! a consumer group with a consumer of its own, so there are few.
//!
//! A [`Session`] reads what the group gives it, knows what its client has acknowledged, and commits that. Read [`session`],
//! then [`settling`] (where it begins), then [`reading`] (records as texts).

mod acking;
mod exclusivity;
mod reading;
mod session;
mod settling;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use client::metadata::Topic;
use client::{Admin, PrivateLane};
use pools::{Lease, LeasePool};
use serving::error::{ApiError, Kind};
use serving::events::ResumeId;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::events::Counts;
use crate::produce::{LOOKUP_MAX, no_topic, unavailable};
use crate::share_owner::ShareOwner;
use crate::state::Shared;

pub(crate) use acking::acknowledge;
pub(crate) use reading::Out;
pub(crate) use session::{Acking, CHARGED_BYTES, Session, Wanted, event_bytes_max};

/// Members at a time.
const SESSIONS_MAX: usize = 200;
/// Acknowledgements by HTTP that wait for their session.
const ASKED_MAX: usize = 16;

/// An acknowledgement that came by HTTP: all before this id is done, in the partitions that the session has.
pub(crate) struct AckById {
    pub(crate) id: Arc<ResumeId>,
    /// Is told in how many partitions that is so; it has room for what each member says.
    pub(crate) tell: mpsc::Sender<usize>,
}

/// All members.
pub(crate) struct Groups {
    kept: Mutex<Kept>,
    /// Places of members.
    places: Arc<LeasePool<ShareOwner>>,
    /// Connections by which single records are read again.
    pub(crate) lane: Arc<PrivateLane>,
    /// What is counted of all that records are pushed to.
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Kept {
    next: u64,
    seats: HashMap<u64, Seat>,
}

struct Seat {
    group: String,
    is_exclusive: bool,
    asks: mpsc::Sender<AckById>,
}

/// A member's place, until it is dropped.
pub(crate) struct Entry {
    groups: Arc<Groups>,
    number: u64,
    asked: mpsc::Receiver<AckById>,
    place: Lease<ShareOwner>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entry({})", self.number)
    }
}

impl Groups {
    /// None yet.
    pub(crate) fn new(lane: PrivateLane, counts: Arc<Counts>) -> Groups {
        Groups {
            kept: Mutex::default(),
            places: Arc::new(LeasePool::new(SESSIONS_MAX)),
            lane: Arc::new(lane),
            counts,
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no code under it panics")
    }

    /// Members that there are.
    pub(crate) fn len(&self) -> usize {
        self.kept().seats.len()
    }

    /// A place in a group. `is_exclusive`: the session is the only one of its group. Where all places are taken, an owner with
    /// more of them than this one loses the one that was without progress for the longest time.
    ///
    /// # Errors
    /// There are as many as there may be and no owner has more, or one of them is the only one of its group by request.
    pub(crate) fn enter(
        self: &Arc<Self>,
        owner: ShareOwner,
        group: &str,
        is_exclusive: bool,
    ) -> Result<Entry, ApiError> {
        let mut kept = self.kept();
        let mut others = kept.seats.values().filter(|seat| seat.group == group);
        if others.any(|other| is_exclusive || other.is_exclusive) {
            return Err(taken(group));
        }
        let place = self.places.admit(owner, 1, Instant::now()).ok_or_else(|| {
            let words = format!(
                "this gateway has {SESSIONS_MAX} members of groups that records are pushed to, as many as it may, and no \
                 other client has more of them"
            );
            ApiError::new(Kind::Full, words)
        })?;
        kept.next += 1;
        let number = kept.next;
        let (asks, asked) = mpsc::channel(ASKED_MAX);
        kept.seats.insert(number, Seat { group: group.to_owned(), is_exclusive, asks });
        Ok(Entry { groups: Arc::clone(self), number, asked, place })
    }

    /// The members of a group, to be asked.
    fn members(&self, group: &str) -> Vec<mpsc::Sender<AckById>> {
        let kept = self.kept();
        let of_group = kept.seats.values().filter(|seat| seat.group == group);
        of_group.map(|seat| seat.asks.clone()).collect()
    }
}

impl Entry {
    /// Notes that the client took messages or acknowledged some.
    pub(crate) fn advance(&self) {
        self.place.advance(Instant::now());
    }

    /// The next acknowledgement that came by HTTP. `None`: another client needs the place, and the member must leave.
    pub(crate) async fn asked(&mut self) -> Option<AckById> {
        let Entry { asked, place, .. } = self;
        tokio::select! {
            // The sender is kept as long as the entry.
            Some(asked) = asked.recv() => Some(asked),
            () = place.revoked() => None,
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.groups.kept().seats.remove(&self.number);
    }
}

/// Checks that there is such a topic, for readers.
///
/// # Errors
/// There is none, or that cannot be told now.
pub(crate) async fn existing(shared: &Shared, name: &str) -> Result<Arc<Topic>, ApiError> {
    let topic = shared.topics.existing(name).await?;
    if topic.is_internal { Err(no_topic(name)) } else { Ok(topic) }
}

fn taken(group: &str) -> ApiError {
    let words = format!(
        "subscription {group:?} is Exclusive or has a consumer already: wait until that one has left, or take \
         subscriptionType=Failover or Shared in all of them"
    );
    ApiError::new(Kind::Exclusive, words)
}

/// Refuses a group that has members, in whatever process.
///
/// # Errors
/// It has, or that cannot be told now.
pub(crate) async fn check_empty(admin: &Admin, group: &str) -> Result<(), ApiError> {
    let described = timeout(LOOKUP_MAX, admin.describe_group(group)).await;
    match described.map_err(|_| unavailable(&"no broker answered within 5 s"))? {
        Ok(described) if !described.members.is_empty() => Err(taken(group)),
        Ok(_) => Ok(()),
        Err(error) if error.is_retriable() => Err(unavailable(&error)),
        // A group that there is not yet.
        Err(_) => Ok(()),
    }
}
