//! Consumer groups of the classic protocol: decisions and replay. No I/O, no clock, no randomness.
//!
//! One [`Shard`] is the state behind one partition of `__consumer_offsets`. The broker's host feeds
//! it [`Event`]s and carries out its [`Effects`]; [`event`] says what both owe each other. A shard
//! starts as a [`Loader`], which replays the partition's records, and ends in [`Shard::unload`].
//!
//! State comes in two kinds. [`Durable`] is what the records say and nothing else: it changes only
//! by replay. Everything that a failover may lose (who is joining, when sessions end) is soft and
//! lives in `group`, `member` and `timers`. Read [`event`], `shard`, then `rebalance`.

pub mod event;
pub mod records;
pub mod request;
pub mod response;

mod config;
mod describe;
mod durable;
mod expiry;
mod group;
mod heartbeat;
mod id;
mod join;
mod leave;
mod load;
mod member;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod outbox;
mod pending;
mod rebalance;
mod reclaim;
mod shard;
mod subscription;
mod sync;
mod timers;

pub use config::GroupConfig;
pub use durable::Durable;
pub use event::{Effects, Event, RecordBytes, Reply, Write};
pub use id::{GroupId, GroupInstanceId, MemberId, ReplyTo, WriteId};
pub use load::{Loader, LoanFor};
pub use reclaim::{GroupMemory, OffsetGrowth};
pub use request::Request;
pub use response::Response;
pub use shard::Shard;
