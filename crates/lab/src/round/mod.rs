//! One round of one cell: what each kind of work does to a cluster, and what is measured. Read [`stage`] first.

mod balance;
mod consume;
mod deliver;
mod distribute;
pub mod ground;
pub mod measured;
mod metadata;
mod produce;
pub mod stage;
pub mod tool;
pub mod translate;
