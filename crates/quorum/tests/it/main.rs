//! Tests of the quorum: one voter and several, on a simulated disk, over an in-process transport and over
//! links.

mod crash;
mod damage;
mod large;
mod links;
mod members;
mod older_copy;
mod regenerate;
mod single;
mod support;
mod voters;
