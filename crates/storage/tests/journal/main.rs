//! The journal of a log directory against a model, against crashes at every operation of the disk,
//! and against every changed, missing and cut byte.

mod crash;
mod damage;
mod fixture;
mod newer;
mod writing;
