//! The room against data: hashes and choices against what Java, zip and the CS6 report have, the table of idempotency
//! keys against a model, events against a reader of event streams, faults against every health surface.

mod events;
mod health;
mod idempotency;
mod vectors;
mod who;
