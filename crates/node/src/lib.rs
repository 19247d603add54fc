//! One broker of a cluster without threads, sockets or a clock: machines that decide what a broker does as the
//! cluster changes, and whose effects the broker and the simulator carry out alike.
//!
//! A machine is owned by one task or thread and has the shape `step(now, event, &mut effects)`. It may touch partitions,
//! whose locks are short; what takes a device or a peer is an effect.
//!
//! Read [`fetcher`] (the follower's side of replication) with its bytes ([`fetching`]; the leader's side is [`answering`]),
//! [`roles`] (what the image means for a replica), then [`heartbeats`] (what brokers tell the controller), [`sessions`] (whom
//! the active controller fences), [`returns`] (leaderships that go back to a broker with a sick disk), [`probes`] and [`suspicion`] (silent brokers that lose their leaderships before they are fenced),
//! [`elections`] (leaders by log ends, with their bytes in [`log_ends`]), [`marks`] (log directories that were put
//! back from copies), [`deleted_topics`] (replicas that leave the disk) and [`standstill`] (brokers that request their own fencing).

pub mod acknowledgers;
pub mod answering;
pub mod deleted_topics;
pub mod disks;
pub mod doubt;
pub mod elections;
pub mod fetcher;
pub mod fetching;
pub mod heartbeats;
pub mod log_ends;
pub mod marks;
pub mod mutants;
pub mod pauses;
pub mod probe_book;
pub mod probes;
pub mod returns;
pub mod roles;
pub mod sessions;
pub mod standstill;
pub mod suspicion;

pub use elections::Elections;
pub use fetcher::{
    Answered, Ask, Asked, Effects, Event, Fetcher, Key, ReplicaAnswerError, StartOver,
};
pub use marks::MarkKeeper;
pub use sessions::Sessions;
pub use suspicion::{ProbeTimes, Suspicion, SuspicionDue};
