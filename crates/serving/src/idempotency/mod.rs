//! Requests that carry an `Idempotency-Key`: each is carried out once, and answered as often as it comes.
//!
//! A key is known within one process, for some minutes after its request was decided. A key whose request is still
//! under way holds later requests with the same key until the outcome is known, however long that takes: records that
//! may have been written are waited for and never sent again. No key is free early. A full table takes new keys of owners within
//! their fair share only, and forgets outcomes of owners above theirs for them: such a key stays taken, without its outcome.
//!
//! The host of the [`Table`] carries the requests out, and wakes those that waited.

mod fingerprint;
mod owner;
mod table;

pub use fingerprint::{Fingerprint, Seal};
pub use table::{Begin, Limits, Name, Table, Ticket};
