//! Server-sent events: records of topics, pushed to readers that say themselves where they are.
//!
//! ```text
//! broker → tail (one consumer) ─┐                        ┌→ reader: a place in each partition
//!                               ├→ feed → track: chunks ─┼→ reader
//! broker → catch-up reads ──────┘                        └→ reader
//! ```
//!
//! A *feed* is a partition that is read, a *track* a feed as a projection shows it, a *chunk* the events of one answer of
//! a broker, made once and written to every reader from the same memory. Readers are [`serve`]d by this room and not by
//! the HTTP library, whose buffers would be most of what a reader costs. Read [`feed`], then [`reader`], then [`serve`].
//!
//! What is decided (ids, gaps, filters, who is slow) is in `serving::events`. Nothing is kept that a reader needs again.

mod budget;
mod catch_up;
mod chunk;
mod counts;
mod feed;
mod membership;
mod open;
mod place_lookup;
mod places;
mod reader;
mod serve;
mod tail;
mod topics;
mod writer;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use client::{Cluster, ClusterConfig, PrivateLane};
use serving::events::pace;
use tokio::sync::{Semaphore, mpsc};

pub(crate) use chunk::{EVENT_BYTES_MAX, EXPANDED_BYTES_MAX, behind_damaged, too_large};
pub(crate) use counts::{Closed, Counts};
pub(crate) use membership::{OpenedMember, serve_member};
pub(crate) use open::{Asked, Begin, Opened, names, open, reader_in_time, weather};
pub(crate) use reader::{Piece, Reader, Step};
pub(crate) use serve::serve;
pub(crate) use writer::tune;

use budget::Budget;
use feed::Feeds;

/// After so long, what is known of topics is asked again: partitions may have been added.
const METADATA_AGE_MAX: Duration = Duration::from_secs(30);
/// Reads of the past, and questions about offsets, that are under way at a time.
const CATCH_UPS_MAX: usize = 64;
/// Readers that look up partitions without a leader at a time, beside the former.
const LATE_LOOKUPS_MAX: usize = 4;

/// How long readers are waited for, and when they hear something.
#[derive(Debug, Clone, Copy)]
pub struct EventSettings {
    /// Memory for chunks, in bytes.
    pub chunk_bytes: usize,
    /// After so long without a byte taken a reader is closed.
    pub blocked_max: Duration,
    /// How often a reader hears something.
    pub ping_every: Duration,
}

impl Default for EventSettings {
    fn default() -> EventSettings {
        EventSettings {
            chunk_bytes: 64 << 20,
            blocked_max: pace::BLOCKED_MAX,
            ping_every: pace::PING_EVERY,
        }
    }
}

/// All event streams of a gateway.
pub(crate) struct Events {
    pub(crate) settings: EventSettings,
    cluster: Cluster,
    /// Connections of reads of the past: nothing else waits behind them.
    lane: PrivateLane,
    feeds: Feeds,
    asking: Arc<Semaphore>,
    late_lookups: Arc<place_lookup::LateLookups>,
    tail: OnceLock<mpsc::UnboundedSender<tail::Joining>>,
    pub(crate) counts: Arc<Counts>,
}

impl Events {
    /// No stream yet, and no connection. `event_bytes_max`: what a WebSocket may be charged for, as for one event.
    pub(crate) fn new(
        cluster: &ClusterConfig,
        settings: EventSettings,
        event_bytes_max: usize,
    ) -> Events {
        let metadata_age_max = cluster.metadata_age_max.min(METADATA_AGE_MAX);
        let cluster = Cluster::new(ClusterConfig { metadata_age_max, ..cluster.clone() });
        let counts = Arc::<Counts>::default();
        let budget = Budget::new(settings.chunk_bytes, event_bytes_max.min(EVENT_BYTES_MAX));
        Events {
            settings,
            lane: cluster.private_lane(),
            cluster,
            feeds: Feeds::new(budget, Arc::clone(&counts)),
            asking: Arc::new(Semaphore::new(CATCH_UPS_MAX)),
            late_lookups: Arc::new(place_lookup::LateLookups::new(LATE_LOOKUPS_MAX)),
            tail: OnceLock::new(),
            counts,
        }
    }

    /// Memory of chunks.
    pub(crate) fn held_bytes(&self) -> usize {
        self.feeds.held_bytes()
    }

    /// What is there, and what was done.
    pub(crate) fn counts(&self) -> String {
        self.counts.json(self.feeds.held_bytes())
    }

    /// The consumer at the logs' ends, which begins with the first feed.
    fn tail(&self) -> &mpsc::UnboundedSender<tail::Joining> {
        self.tail.get_or_init(|| tail::begin(self.cluster.clone()))
    }
}
