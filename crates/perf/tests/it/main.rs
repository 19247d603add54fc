//! The load engine against a sink, and against a cluster where one is named:
//! `CLIENT_TEST_BOOTSTRAP=host:port cargo test -p perf`. Tests that need a cluster are passed over
//! without one.

mod cluster;
mod sink;
