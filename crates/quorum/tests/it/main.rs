//! Tests of the quorum: one voter and several, on a simulated disk and an in-process transport.

mod crash;
mod damage;
mod members;
mod single;
mod support;
mod voters;
