//! Pools of group memory, shared by client addresses (decision 0065).

use std::net::IpAddr;

pub use pools::{Content, PoolShortage};

/// The address that a share of a pool belongs to. `None`: content that was loaded from the log.
pub type Owner = Option<IpAddr>;
/// Bytes of one kind of memory, of all addresses.
pub type SharedPool = pools::SharedPool<Owner>;
/// Bytes of a pool that an address uses; returned when dropped.
pub type PoolShare = pools::PoolShare<Owner>;
