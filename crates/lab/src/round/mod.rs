//! One round of one cell: what each kind of work does to a cluster, and what is measured. Read [`stage`] first.

mod balance;
mod console;
mod consume;
mod deliver;
mod distribute;
pub mod ground;
pub mod measured;
mod metadata;
mod post;
mod produce;
pub mod stage;
pub mod tool;
pub mod translate;
