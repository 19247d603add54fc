//! The gateway over real sockets, in front of a real broker in this process.

mod choosing;
mod event_stream;
mod fixture;
mod http;
mod producing;
mod pushing;
mod reading;
mod refusing;
mod slow_readers;
mod strangers;
