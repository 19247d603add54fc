//! The log engine from outside: appending, reading, opening again, deleting, compacting, against a
//! real directory and against a model that keeps everything in memory.

mod basics;
mod compacted;
mod fixture;
mod golden;
mod openings;
mod peer;
mod producers;
mod random;
mod stamps;
mod unreadable;
