//! Producing: records are chosen a partition, handed to the client's producer, and answered when they are
//! acknowledged.
//!
//! Nothing waits for memory: a record for which there is none is refused at once, with all behind it. One batch of a
//! partition is under way at a time, and nothing lingers: requests gather while the batch before theirs is synced.
//! Read [`topics`] (which topics there are), [`topic`] (where a record goes), [`sending`] (what becomes of it), then
//! [`handler`], and [`keys`] for requests that come twice.

mod fate;
mod handler;
mod inner;
mod job;
mod keys;
mod one;
mod sending;
mod topic;
mod topics;
pub(crate) mod v3;
mod way;

pub(crate) use fate::of_refusal;
pub(crate) use handler::{Target, may_create, produce};
pub(crate) use inner::send;
pub(crate) use keys::Keys;
pub(crate) use one::{Landing, One, refused};
pub(crate) use topics::{LOOKUP_MAX, Topics, no_topic, unavailable};
