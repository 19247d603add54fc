//! What pages are made of: text that cannot deceive ([`text`]), numbers with units ([`number`]), charts ([`chart`]), tables with
//! pages and an order ([`listing`]).

pub(crate) mod chart;
pub(crate) mod listing;
pub(crate) mod number;
pub(crate) mod text;
