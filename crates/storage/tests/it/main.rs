//! The disk and the log seen from outside.

mod disk_contract;
mod sim_disk;
