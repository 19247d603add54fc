//! The log engine from outside: appending, reading, opening again, deleting, compacting, against a
//! real directory and against a model that keeps everything in memory.

mod aborted;
mod ahead;
mod basics;
mod compacted;
mod fixture;
mod golden;
mod openings;
mod peer;
mod producers;
mod random;
mod resumed;
mod stamps;
mod undated;
mod unreadable;
