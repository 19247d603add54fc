//! The names of the cluster's topics, for subscriptions by pattern: asked for when one begins, and again and again while there is
//! one. All instances share them, and each compares them with its pattern when they have changed.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use client::Cluster;
use client::metadata::Topic;
use model::ErrorCode;
use serving::error::ApiError;
use tokio::time::timeout;
use tracing::debug;

use crate::charge::{Charge, Room};
use crate::produce::{LOOKUP_MAX, unavailable};
use crate::request::Pattern;

/// How often the cluster is asked while an instance follows a pattern.
pub(super) const ASK_EVERY: Duration = Duration::from_secs(5);
/// What a topic costs that is subscribed to, beside its name, in bytes, about.
const AROUND_BYTES: usize = 64;

/// The names.
pub(crate) struct Names {
    cluster: Cluster,
    known: Mutex<Known>,
    /// Held while the cluster is asked: once at a time, whoever wants to know.
    asking: tokio::sync::Mutex<()>,
    /// Held while names are compared: a pattern that takes long takes one thread, and not all of them.
    comparing: tokio::sync::Mutex<()>,
    /// A clone of it is with everybody who follows a pattern.
    followers: Arc<()>,
}

#[derive(Default)]
struct Known {
    edition: Edition,
    /// When the question began that was answered last.
    asked_at: Option<Instant>,
    /// When the cluster was asked last, answered or not.
    tried_at: Option<Instant>,
}

/// The names at one time.
#[derive(Clone, Default)]
struct Edition {
    /// 0 before the first; another one whenever the names have changed.
    number: u64,
    /// Sorted; without topics of the cluster itself.
    names: Arc<[Arc<str>]>,
}

/// A subscription by pattern.
pub(super) struct Followed {
    pub(super) pattern: Pattern,
    /// The edition that was compared last.
    edition: u64,
    /// Not before then is the next one compared: there was no memory for what matches.
    rests_until: Option<Instant>,
    /// For the names that match.
    charge: Charge,
    _follower: Arc<()>,
}

impl Names {
    /// Of this cluster; none are known.
    pub(super) fn new(cluster: Cluster) -> Names {
        Names {
            cluster,
            known: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            comparing: tokio::sync::Mutex::default(),
            followers: Arc::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no code under it panics")
    }

    /// Whether an instance follows a pattern and the names are old. If so, a try is noted, and the caller is to ask.
    pub(super) fn is_due(&self) -> bool {
        if Arc::strong_count(&self.followers) == 1 {
            return false;
        }
        let mut known = self.known();
        let is_due = known.tried_at.is_none_or(|at| at.elapsed() >= ASK_EVERY);
        if is_due {
            known.tried_at = Some(Instant::now());
        }
        is_due
    }

    /// Asks the cluster, unless another caller has since this call began.
    ///
    /// # Errors
    /// No broker answers in time; what was known stays.
    pub(super) async fn renew(&self) -> Result<(), ApiError> {
        let called_at = Instant::now();
        let asking = async {
            let _asking = self.asking.lock().await;
            if self.known().asked_at.is_some_and(|at| at >= called_at) {
                return Ok(());
            }
            let asked_at = Instant::now();
            self.known().tried_at = Some(asked_at);
            let all = self.cluster.describe_all().await.map_err(|error| unavailable(&error))?;
            let can_be_read = |topic: &&Arc<Topic>| {
                let refused = ErrorCode::TopicAuthorizationFailed;
                !topic.is_internal && topic.error != refused
            };
            let names = all.topics.values().filter(can_be_read).map(|topic| topic.name.clone());
            let mut names: Vec<Arc<str>> = names.collect();
            names.sort();
            let mut known = self.known();
            known.asked_at = Some(asked_at);
            if known.edition.number == 0 || *known.edition.names != *names {
                let number = known.edition.number + 1;
                known.edition = Edition { number, names: names.into() };
            }
            Ok(())
        };
        let late = |_| unavailable(&"no broker answered within 5 s");
        timeout(LOOKUP_MAX, asking).await.map_err(late)?
    }

    /// A pattern that is to be followed; what matches is charged to this room.
    pub(super) fn follow(&self, pattern: Pattern, room: &Room) -> Followed {
        let _follower = Arc::clone(&self.followers);
        Followed { pattern, edition: 0, rests_until: None, charge: Charge::new(room), _follower }
    }
}

impl Followed {
    /// Whether names have changed since they were compared.
    pub(super) fn is_behind(&self, names: &Names) -> bool {
        self.rests_until.is_none_or(|until| Instant::now() >= until)
            && self.edition != names.known().edition.number
    }

    /// The topics that match now, in their order; `None` if nothing has changed. Waits for `patience` at most while others'
    /// patterns are compared, one at a time.
    ///
    /// # Errors
    /// There is no memory for the topics, or it is not this pattern's turn yet. It is tried again after a while.
    pub(super) async fn news(
        &mut self,
        names: &Names,
        patience: Duration,
    ) -> Result<Option<Vec<String>>, ApiError> {
        if !self.is_behind(names) {
            return Ok(None);
        }
        let Ok(_comparing) = timeout(patience, names.comparing.lock()).await else {
            return Err(unavailable(&"the patterns of others are being compared"));
        };
        let Edition { number, names } = names.known().edition.clone();
        let pattern = self.pattern.clone();
        let compared =
            tokio::task::spawn_blocking(move || pattern.matching(names.iter().map(|name| &**name)));
        // The runtime ends, and no instance reads any more.
        let Ok(topics) = compared.await else { return Ok(None) };
        let bytes = topics.iter().map(|topic| topic.len() + AROUND_BYTES).sum();
        match self.charge.set(bytes) {
            Ok(()) => {
                (self.edition, self.rests_until) = (number, None);
                Ok(Some(topics))
            }
            Err(full) => {
                debug!(topics = topics.len(), "no memory for the topics that a pattern matches");
                self.rests_until = Some(Instant::now() + ASK_EVERY);
                Err(full)
            }
        }
    }
}
