//! One round of one cell: what each kind of work does to a cluster, and what is measured.

pub mod java;
