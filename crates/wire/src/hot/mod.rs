//! Produce and fetch without an allocation per topic or partition, for the broker's hot path.
//!
//! The same bytes as the generated codec reads and writes, which the tests prove for every
//! version. Whatever is not hot uses [`crate::generated`].

pub mod fetch;
pub mod fetch_response;
pub mod produce;
pub mod produce_response;

use crate::reader::{DecodeError, Reader};
use crate::writer::{EncodeError, Writer};
use model::Uuid;

/// How a version names a topic: by name, or since Produce 13 and Fetch 13 by id (KIP-516).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic<'a> {
    /// By name.
    Name(&'a str),
    /// By id.
    Id(Uuid),
}

impl<'a> Topic<'a> {
    fn read(reader: &mut Reader<'a>, by_id: bool, compact: bool) -> Result<Self, DecodeError> {
        match by_id {
            true => reader.uuid().map(Topic::Id),
            false => reader.str(compact).map(Topic::Name),
        }
    }

    /// Writes it. A name in a version of ids, or the reverse, is a bug of the caller.
    fn write(self, writer: &mut Writer, by_id: bool, compact: bool) -> Result<(), EncodeError> {
        match self {
            Topic::Name(name) => {
                assert!(!by_id, "the version names topics by id");
                writer.string(name, compact)
            }
            Topic::Id(id) => {
                assert!(by_id, "the version names topics by name");
                writer.uuid(id);
                Ok(())
            }
        }
    }
}

/// Skips the tagged fields that a flexible version has.
fn skip_tags(reader: &mut Reader<'_>, flexible: bool) -> Result<(), DecodeError> {
    if flexible { reader.skip_tagged_fields() } else { Ok(()) }
}

/// Writes "no tagged fields" in a flexible version.
fn no_tags(writer: &mut Writer, flexible: bool) {
    if flexible {
        writer.uvarint(0);
    }
}
