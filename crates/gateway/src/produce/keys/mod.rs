//! Requests with an `Idempotency-Key`: [`held`] keeps the table and who waits for it, [`carry`] carries a request out,
//! [`outcomes`] codes the outcomes of requests.
//!
//! The HTTP library drops whatever a client has left behind. So the duty to say what became of a key belongs to values
//! that do so when they are dropped: before anything is sent the key is freed, afterwards it stays taken and *unknown*,
//! and from then on a task of its own has the duty, which no client can end.

mod carry;
mod held;
mod outcomes;

pub(super) use carry::{Carried, Keyed, carry};
pub(crate) use held::Keys;
