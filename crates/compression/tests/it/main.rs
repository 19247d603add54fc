//! The codecs seen from outside: against Kafka's own bytes, against bombs, against garbage.

mod bombs;
mod framings;
mod garbage;
mod golden;
mod round_trip;
mod sample;
mod stream;
