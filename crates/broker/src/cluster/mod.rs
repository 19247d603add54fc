//! A broker among others: how it is connected with them, how it joins them, and what follows when one of them comes
//! or goes.
//!
//! ```text
//! links       connections with the other nodes, and the door through which they come in
//! controller  having something decided, wherever the active controller is
//! joining     registration, and serving from then on
//! heartbeats  telling the controller that this broker lives
//! watching    on the active controller: who is alive, whom to fence, what follows (sweeps)
//! fetchers    copying from leaders, a thread for each leader and slot
//! in_sync     on leaders: who is in sync, as the controller decides
//! ```
//!
//! A broker that is alone has a [`Controller`] and none of the rest.

mod answers;
mod controller;
mod fetcher;
mod fetchers;
mod fetching;
mod heartbeats;
mod in_sync;
mod joining;
mod links;
mod watching;

pub use controller::{Controller, Undecided};
pub use fetchers::Fetchers;
pub use in_sync::InSync;
pub use joining::{Joined, join, serve_from_now_on};
pub use links::ClusterLinks;
pub use watching::Watching;

pub(crate) use heartbeats::run as heartbeats;
