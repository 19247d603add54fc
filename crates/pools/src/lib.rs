//! Bounded memory and places that clients share, with a share for each address or user.
//!
//! A share binds only while a pool is contended: an owner that is alone may use all of a pool. [`SharedPool`] counts
//! bytes of content, and leaves the choice of removals to its holder (decision 0065). [`LeasePool`] lends bytes or places to
//! holders, and takes them back by itself: from the owner that uses the most, and there from the holder that made no
//! progress for the longest time (decision 0069). No type here reads a clock or waits.

mod leases;
mod network;
mod shares;

use std::any::Any;

pub use leases::{Lease, LeasePool};
pub use network::ClientNetwork;
pub use shares::{Content, PoolShare, PoolShortage, SharedPool};

/// The host's account of memory that content takes. Dropping the account returns the memory.
pub trait MemoryLoan: Any + Send + Sync {
    /// Bytes charged.
    fn bytes(&self) -> usize;

    /// Charges exactly `bytes` from now on, whether there is room or not.
    fn set_bytes(&self, bytes: usize);

    /// The bytes belong to a member that has not joined with its id yet, or no longer do.
    fn mark_pending(&self, is_pending: bool);
}
