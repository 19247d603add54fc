//! A broker on a directory of its own, spoken to over its socket: the promises of the protocol that
//! clients rely on, and what hostile peers must not achieve.
//!
//! Not here: clients of others (`conformance/`), the rules of the pure rooms (their own tests).
//! Read [`fixture`] first.

mod clock;
mod configuring;
mod coordinators;
mod descriptors;
mod dynamic;
mod fetching;
mod fixture;
mod generated_repetition;
mod hostile;
mod memory;
mod mutation;
mod negotiation;
mod offsets;
mod pools;
mod producing;
mod regenerating;
mod repetition;
mod sessions;
mod stopping;
mod strangers;
mod surface;
mod syncing;
mod unreadable;
