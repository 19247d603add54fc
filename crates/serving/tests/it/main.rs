//! The room against data: hashes and choices against what Java, zip and the CS6 report have, the table of idempotency
//! keys against a model, events against a reader of event streams.

mod events;
mod idempotency;
mod vectors;
mod who;
