//! Requests and responses as bytes: what a broker forwards to the active controller, and what comes back.
//!
//! ```text
//! 1 version   1 kind   what the kind has: the fields of its struct, in the order of the tables
//!                      in `request` and `response`
//!
//! number    big-endian, as wide as its type; a `usize` has 8      id      16
//! flag      1, which is 0 or 1                                    list    4 count, elements
//! text      4 length, UTF-8                                       ?       1 whether it is there
//! choice    1 which, what that one has                            tuple   one after the other
//! answer    0, what was asked for | 1, 2 error code, text
//! ```
//!
//! A value has one form: what can be read is written as the same bytes. A number is never given to
//! something else, and other fields are another version. Whatever a peer sends, reading it gives a value
//! or an error, in memory of at most [`MEMORY_PER_BYTE_MAX`] times what was sent.
//!
//! A release that does not know a kind of request refuses it in words, and is asked again in the form that it knows
//! ([`Request::for_earlier_release`]).
//!
//! Records are not written so: they stay for years and are JSON (see [`crate::record`]).

mod fields;
mod request;
mod response;
#[cfg(test)]
mod tests;

pub use fields::MEMORY_PER_BYTE_MAX;

use crate::decide::{
    EmptyReplica, EmptyReplicas, EmptyReplicas2, GiveUpMissing, GiveUpReplicas, RELIEF_LEVEL,
    Request, Response,
};
use crate::mutants::{Mutant, is_planted};
use crate::record::COPIES_LEVEL;
use fields::{Field, Reader, invalid};
use model::BrokerEpoch;

/// The version that is written, and the only one that is read.
const VERSION: u8 = 1;

/// Why bytes are not a forwarded message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardedError {
    /// Another release wrote it.
    #[error("a forwarded message of version {0}, and this release reads version {VERSION}")]
    Version(u8),
    /// Less is there than what was announced, or than a value has.
    #[error("a forwarded message that is cut off: {needed} bytes expected, {left} left")]
    Short {
        /// Bytes that must follow.
        needed: u64,
        /// Bytes that follow.
        left: usize,
    },
    /// A number that stands for nothing: damage, or something that a newer release can say.
    #[error("a forwarded message with the invalid {what} {number}")]
    Value {
        /// What the number should have been.
        what: &'static str,
        /// The number.
        number: i128,
    },
    /// A text of other bytes.
    #[error("a forwarded message with a text that is not UTF-8")]
    Text,
    /// More is there than the message has.
    #[error("a forwarded message with {0} bytes behind the last field")]
    Behind(usize),
}

impl Request {
    /// The request as bytes.
    ///
    /// # Panics
    /// If a text or list has 4 Gi elements: no message is that large.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Request::AlterPartition(request) if is_planted(Mutant::DropsMemberEpochs) => {
                let mut request = request.clone();
                let members = request.partitions.iter_mut().flat_map(|wish| &mut wish.isr);
                members.for_each(|(_, epoch)| *epoch = BrokerEpoch(-1));
                write(&Request::AlterPartition(request))
            }
            Request::RegisterBroker2(request) if is_planted(Mutant::DropsHolders) => {
                let mut request = request.clone();
                let directories = request.directories.directories.iter_mut();
                directories.for_each(|directory| directory.had_by.clear());
                write(&Request::RegisterBroker2(request))
            }
            Request::RegisterBroker3(request) if is_planted(Mutant::DropsHolders) => {
                let mut request = request.clone();
                let directories = request.request.directories.directories.iter_mut();
                directories.for_each(|directory| directory.had_by.clear());
                write(&Request::RegisterBroker3(request))
            }
            Request::RegisterBroker4(request) if is_planted(Mutant::DropsHolders) => {
                let mut request = request.clone();
                let known = &mut request.request.request.directories;
                known.directories.iter_mut().for_each(|directory| directory.had_by.clear());
                write(&Request::RegisterBroker4(request))
            }
            _ => write(self),
        }
    }

    /// Reads what [`Request::to_bytes`] wrote.
    ///
    /// # Errors
    /// If the bytes are not exactly one request of this version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Request, ForwardedError> {
        read(bytes)
    }

    /// The level of `highwater.version` from which on brokers send requests of this kind; 0: always, for the kinds that
    /// release 0.1.0 reads. A registration is sent at every level, because a level rises only after registrations that
    /// name it: a controller of an earlier release refuses the kind in words, and gets the older form. The form with marks
    /// is sent where the cluster records marks.
    pub fn level(&self) -> i16 {
        match self {
            Request::CreateCluster(_)
            | Request::CreateTopics(_)
            | Request::DeleteTopics(_)
            | Request::CreatePartitions(_)
            | Request::AlterConfigs(_)
            | Request::IncrementalAlterConfigs(_)
            | Request::AllocateProducerIds(_)
            | Request::RegisterBroker(_)
            | Request::FenceBroker(_)
            | Request::UnfenceBroker(_)
            | Request::BeginShutdown(_)
            | Request::Sweep
            | Request::ReportEmptyReplicas(_)
            | Request::UnregisterBroker(_)
            | Request::AlterPartition(_)
            | Request::ElectLeaders(_)
            | Request::UpdateFeatures(_)
            | Request::RegisterBroker2(_)
            | Request::GiveUpReplicas(_)
            | Request::ReportEmptyReplicas2(_)
            | Request::RegisterBroker3(_) => 0,
            Request::AlterPartition2(_)
            | Request::RelieveReplicas(_)
            | Request::GiveUpMissing(_) => RELIEF_LEVEL,
            Request::ElectByEnds(_)
            | Request::RegisterBroker4(_)
            | Request::RaiseMarks(_)
            | Request::ReportLeaderEpochs(_)
            | Request::ElectLeaders2(_) => COPIES_LEVEL,
        }
    }

    /// The newest form of the request that may be sent at this level of `highwater.version`; `None` if there is no such form.
    pub fn at_level(&self, level: i16) -> Option<Request> {
        self.form_at(level, Request::level)
    }

    fn form_at(&self, level: i16, level_of: fn(&Request) -> i16) -> Option<Request> {
        let mut form = Some(self.clone());
        while let Some(newer) = form.take_if(|form| level_of(form) > level) {
            form = newer.older();
        }
        form
    }

    /// The request as a release knows it that refused this one with these words, if it did for not knowing its kind: what
    /// it says besides is lost on such a controller.
    pub fn for_earlier_release(&self, words: &str) -> Option<Request> {
        let kind = self.to_bytes()[1];
        let is_unknown = words == invalid("kind of request", kind).to_string();
        self.older().filter(|_| is_unknown)
    }

    /// The form of the request before this one, if there is one.
    fn older(&self) -> Option<Request> {
        Some(match self {
            Request::ElectLeaders2(request) => Request::ElectLeaders(request.request.clone()),
            Request::RegisterBroker4(request) => Request::RegisterBroker3(request.request.clone()),
            Request::RegisterBroker3(request) => Request::RegisterBroker2(request.request.clone()),
            Request::RegisterBroker2(request) => Request::RegisterBroker(request.register.clone()),
            Request::GiveUpReplicas(GiveUpReplicas { broker, partitions, .. }) => {
                let (broker, partitions) = (*broker, partitions.clone());
                Request::ReportEmptyReplicas(EmptyReplicas { broker, partitions })
            }
            Request::GiveUpMissing(GiveUpMissing { broker, partitions, .. }) => {
                let (broker, partitions) = (*broker, partitions.clone());
                Request::GiveUpReplicas(GiveUpReplicas { broker, partitions, offline: false })
            }
            Request::ReportEmptyReplicas2(EmptyReplicas2 { broker, partitions }) => {
                let named = |empty: &EmptyReplica| (empty.topic_id, empty.partition);
                let (broker, partitions) = (*broker, partitions.iter().map(named).collect());
                Request::ReportEmptyReplicas(EmptyReplicas { broker, partitions })
            }
            _ => return None,
        })
    }
}

impl Response {
    /// The response as bytes.
    ///
    /// # Panics
    /// If a text or list has 4 Gi elements: no message is that large. If a refusal says that nothing is
    /// wrong.
    pub fn to_bytes(&self) -> Vec<u8> {
        write(self)
    }

    /// Reads what [`Response::to_bytes`] wrote.
    ///
    /// # Errors
    /// If the bytes are not exactly one response of this version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Response, ForwardedError> {
        read(bytes)
    }
}

fn write(message: &impl Field) -> Vec<u8> {
    let mut out = vec![VERSION];
    message.write(&mut out);
    out
}

fn read<M: Field>(bytes: &[u8]) -> Result<M, ForwardedError> {
    let mut from = Reader::new(bytes);
    let version = u8::read(&mut from)?;
    if version != VERSION {
        return Err(ForwardedError::Version(version));
    }
    let message = M::read(&mut from)?;
    from.end()?;
    Ok(message)
}
