//! Records of Kafka as server-sent events, decided on values: what a reader asks for ([`query`]), where a reader is and
//! how an id says so ([`id`]), which records are wanted ([`filter`]), what a record looks like as an event
//! ([`encoding`]), what is said besides ([`notice`]), what is missing between a reader's place and the log ([`gap`]),
//! and when a reader is too slow ([`pace`]).
//!
//! The form of a stream is that of WHATWG's HTML standard, 9.2. Not here: sockets, HTTP, who fetches.

pub mod encoding;
pub mod filter;
pub mod gap;
pub mod id;
pub mod notice;
pub mod pace;
pub mod query;

pub use encoding::{Event, Form, Projection};
pub use filter::Filter;
pub use gap::{Gap, Reason};
pub use id::{IdStyle, Passed, Position, ResumeId, TopicHash};
pub use query::{Query, Start};
