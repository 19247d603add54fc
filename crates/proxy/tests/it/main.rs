//! The proxy in front of a server that the tests play, and in front of a cluster.
//!
//! The tests in [`cluster`] need one and are passed over without:
//! `CLIENT_TEST_BOOTSTRAP=host:port cargo test -p proxy`.

mod carrying;
mod cluster;
mod faults;
mod following;
mod pausing;
mod produce_faults;
mod rules;
mod server;
mod shaping;
mod sharing;
