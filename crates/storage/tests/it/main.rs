//! The disk and the log seen from outside.

mod crash;
mod disk_contract;
mod documented;
mod sim_disk;
