//! A Kafka-protocol proxy: one listener for each broker, addresses rewritten, delay and bandwidth shaped.
//!
//! It stands between any Kafka client and any Kafka cluster. What it must change it parses: the
//! addresses in answers, and the versions that brokers offer. All else goes through as bytes, large
//! frames piece by piece. It can also behave like a slow network ([`Shape`]), and inject faults by rule
//! ([`fault_injection`]). A gateway is something else: the proxy decodes no records but those that it damages, ends no TLS,
//! and does not choose a broker for anybody.
//!
//! Read `proxy`, then `connection` and `pump` (bytes from one socket to the other), then
//! `requests` and `answers` (inspection of frames), `pause`, `endpoints` and `rewrite` (what is
//! changed), and `fault_injection`. `scout` asks the cluster by itself where its brokers are. [`bucket`] and [`delay`] are the arithmetic of shaping, without a clock.

mod alarm;
mod answers;
pub mod bucket;
mod connection;
mod counters;
pub mod delay;
mod endpoints;
pub mod fault_injection;
mod frames;
mod link;
mod memory;
mod nodes;
mod pause;
mod produced;
mod proxy;
mod pump;
mod refusals;
mod requests;
mod rewrite;
mod scout;
mod shape;
mod shown;
#[cfg(test)]
mod testing;

pub use counters::{ApiTraffic, Counters, Traffic};
pub use fault_injection::{FaultInjector, FaultedRecords};
pub use pause::{AnswersOutstanding, ProxyPause, RequestGate};
pub use proxy::{Proxy, ProxyConfig, ProxyError};
pub use shape::{EMULATIONS, Emulation, Shape, emulation};
pub use shown::{MemoryShown, OfProcess};
