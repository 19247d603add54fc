//! Carries metadata records between brokers by openraft, one voter or many.
//!
//! This room decides nothing about topics or brokers: [`metadata`] does, on a draft of the image;
//! here the records of a decision are made durable on a majority, applied in one order everywhere,
//! and published. Nothing outside this crate names an openraft type. It opens no socket either:
//! messages go through a [`Transport`], between processes a [`LinkTransport`].
//!
//! Read [`Quorum`] first, then `proposer.rs` (deciding in batches), `state_machine.rs`, `store/`;
//! the room `ledger` for the bytes of entries and of what members say to each other.

mod blobs;
mod check_quorum;
mod clock;
mod config;
mod deleted_topics;
mod description;
#[cfg(test)]
mod faults;
mod founding;
mod generation;
mod links;
mod members;
mod network;
mod older_copy;
mod parts;
mod patience;
mod proposer;
mod published;
mod quorum;
mod raft;
mod regenerate;
mod stalled_leader;
mod state_machine;
mod store;
mod translation;

pub use config::{QuorumConfig, QuorumError};
pub use deleted_topics::FirstUpdate;
pub use description::{MemberDescription, QuorumDescription, QuorumStanding};
pub use generation::Generation;
pub use links::{LinkTransport, MemberService};
pub use network::{NoTransport, Sent, Transport, TransportError};
pub use older_copy::put_aside;
pub use published::Subscription;
pub use quorum::Quorum;
pub use regenerate::{
    Regeneration, begin_regeneration, check_regenerated, end_regeneration, plan_regeneration,
    regenerate,
};
pub use store::stopped::{is_only_voter, read_stopped};
