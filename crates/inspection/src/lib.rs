//! Looks through the files of a stopped broker and says what is in them and what is wrong: the work
//! of `highwater log dump`. Only reads, through [`storage::disk::Disk`], and repairs nothing.
//!
//! It shares no code with what writes these files: a checker that made the same mistake would find
//! nothing. docs/log_format.md describes them.

mod directory;
mod finding;
mod index;
mod partition;
mod segment;
mod snapshot;
mod strays;
mod window;

pub use finding::{FileKind, Finding, Tell};
pub use partition::{Looking, inspect};
pub use strays::{StrayFolder, WhyStray, strays};

#[cfg(test)]
mod tests;
