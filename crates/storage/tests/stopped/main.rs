//! The tools for a stopped broker's log directory on a simulated disk: mending and adopting, with a
//! crash before every operation of the disk.

mod adopt;
mod fixture;
mod keyed;
mod mend;
