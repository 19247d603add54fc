//! Sockets: listeners, connections, buffers. Nothing here knows what a request means; frames go to
//! `handlers::dispatch`, and what comes back is a slot in the connection's line of answers.

pub mod answers;
pub mod arrival;
pub mod buffer;
pub mod connection;
pub mod hangup;
pub mod inbox;
pub mod listener;
pub mod local_process;
pub mod lone;
pub mod memory;
pub mod outbox;
pub mod reserve_threads;
pub mod shares;
pub mod slot;
pub mod unsent;
