//! What a request asks: its target ([`route`]), its parameters ([`Parameters`]), the form of its body ([`Form`]), and
//! the records in it ([`draft`]). Parsing only: nothing is sent, and no bytes from outside make any of it panic.

mod base64_text;
pub(crate) mod body;
pub mod cloud_events;
pub mod draft;
mod form;
pub mod frames;
mod idempotency_key;
pub mod instances;
mod json_text;
mod lines;
mod new_topic;
mod object;
mod parameters;
mod pattern;
mod plain;
pub mod read;
pub mod records;
mod route;
mod trace;
pub mod v3;
pub mod wanted;

pub use form::{Embedded, Form};
pub use idempotency_key::{idempotency_key, what_is_asked};
pub use json_text::compact;
pub use lines::{Lines, drafts_of_lines};
pub use new_topic::new_topic;
pub use parameters::Parameters;
pub use pattern::{PATTERN_BYTES_MAX, Pattern};
pub use route::{Allowed, Entry, NoRoute, Part, Route, Routed, TABLE, Verb, Wish, route, routed};
pub use trace::Trace;
