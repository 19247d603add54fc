//! One replica's machine: what its role is, how far each in-sync replica has come, and therefore
//! where the high watermark stands. It never sees a record's bytes, a topic's name or a clock.
//!
//! The shape is an event machine: [`Replica::step`] takes one [`Event`] and says in [`Effects`] what
//! changed. Whoever hosts it (the room `partition`) holds the log and wakes those who wait.
//!
//! What `acks=all` promises is decided by one function here, [`Leadership::committed`]: the high
//! watermark is the smallest position over the in-sync replicas, and under
//! [`model::Durability::Fsync`] a position is what has been *synced*, not what has been written.

mod leadership;
mod replica;

pub use leadership::Leadership;
pub use replica::{Effects, Event, Replica, Role};
