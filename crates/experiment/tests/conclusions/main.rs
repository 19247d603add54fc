//! What is concluded from rounds, tried on simulated systems whose truth is known.

mod analysis;
mod claims;
mod compare;
mod explain;
mod seek;
mod simulated;
