//! One replica's machine: what its role is, how far each replica has come, and therefore where the high
//! watermark stands, who is in sync, what a follower asks for and where it cuts its log. It never sees a
//! record's bytes, a topic's name or a clock.
//!
//! The shape is an event machine: [`Replica::step`] takes one [`Event`] and says in [`Effects`] what
//! changed. Whoever hosts it (the room `partition`) holds the log and wakes those who wait.
//!
//! What `acks=all` promises is decided by one function here, [`Leadership::committed`]: the high
//! watermark is the smallest position over the replicas that the controller may elect, and under
//! [`model::Durability::Fsync`] a position is what has been *synced*, not what has been written.
//!
//! Read [`assignment`] (what the controller decides), then [`leadership`] (the leader's book),
//! [`following`] (the follower's half) and [`replica`] (the machine around both).

pub mod assignment;
pub mod following;
pub mod leadership;
pub mod mutants;
pub mod peer;
pub mod replica;

pub use assignment::{AssignedReplica, Assignment, Standing, TruncationLimit};
pub use following::{
    CommittedBound, EpochEnd, FetchFrom, Following, Next, RefusedTruncation, Truncation,
    truncation_point,
};
pub use leadership::{IsrAnswer, IsrDecision, Leadership, Proposal};
pub use peer::{FollowerFetch, Peer};
pub use replica::{
    Acknowledgement, Divergence, Effects, Event, LeaderAnswer, Replica, Role, Rules,
};
