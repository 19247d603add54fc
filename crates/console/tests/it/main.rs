//! The console over real sockets, through the gateway's listener, in front of a real broker in this process.

mod acting;
mod changing;
mod fixture;
mod hostile;
mod kept;
mod kinds;
mod lab;
mod numbers;
mod readonly;
mod records;
mod roles;
mod scale;
