//! The gateway over real sockets, in front of a real broker in this process.

mod choosing;
mod cloud_events;
mod event_groups;
mod event_stream;
mod fixture;
mod gate;
mod http;
mod instances;
mod keys;
mod metrics;
mod openapi;
mod producing;
mod pushing;
mod reading;
mod refusing;
mod slow_readers;
mod strangers;
mod streaming;
mod tls;
mod version3;
mod websocket;
mod websocket_client;
mod websocket_groups;
mod websocket_hostile;
mod who;
