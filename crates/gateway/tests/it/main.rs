//! The gateway over real sockets, in front of a real broker in this process.

mod choosing;
mod fixture;
mod http;
mod producing;
mod refusing;
mod strangers;
