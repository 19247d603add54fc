//! What a network does to bytes, as data: delay, jitter and caps, and the emulations by name. How it
//! is done is in [`crate::bucket`] and [`crate::delay`].

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How the way between clients and brokers is shaped. The default changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shape {
    /// Added round trip, in milliseconds, half each way. Throughput is not limited by it: what has
    /// been sent and has not arrived yet waits in memory.
    pub rtt_ms: f64,
    /// How much longer a round trip may take, in milliseconds: uniformly drawn anew for each piece
    /// that goes through, half each way. Order is kept.
    pub jitter_ms: f64,
    /// Bytes per second from clients to brokers, all connections together; `None` for no cap.
    pub ingress_bytes_per_second: Option<u64>,
    /// Bytes per second from brokers to clients, all connections together; `None` for no cap.
    pub egress_bytes_per_second: Option<u64>,
    /// Bytes per second of one connection each way; `None` for no cap.
    pub stream_bytes_per_second: Option<u64>,
}

/// The longest round trip or jitter, in milliseconds.
const MS_MAX: f64 = 60_000.0;

impl Shape {
    /// A round trip and nothing else.
    pub fn rtt(rtt_ms: f64) -> Shape {
        Shape { rtt_ms, ..Shape::default() }
    }

    /// Whether nothing is changed.
    pub fn is_plain(&self) -> bool {
        *self == Shape::default()
    }

    /// What is wrong with the numbers, if anything.
    pub fn fault(&self) -> Option<&'static str> {
        let caps = [
            self.ingress_bytes_per_second,
            self.egress_bytes_per_second,
            self.stream_bytes_per_second,
        ];
        match self {
            s if !(0.0..=MS_MAX).contains(&s.rtt_ms) => Some("rtt_ms is 0 to 60000"),
            s if !(0.0..=MS_MAX).contains(&s.jitter_ms) => Some("jitter_ms is 0 to 60000"),
            _ if caps.contains(&Some(0)) => {
                Some("a cap of 0 bytes per second lets nothing through")
            }
            _ => None,
        }
    }

    /// What every piece waits on one way.
    pub(crate) fn one_way(&self) -> Duration {
        Duration::from_secs_f64(self.rtt_ms / 2000.0)
    }

    /// How much longer a piece may wait on one way.
    pub(crate) fn one_way_jitter(&self) -> Duration {
        Duration::from_secs_f64(self.jitter_ms / 2000.0)
    }
}

/// A network that a published report ran on, or what of it can be known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Emulation {
    /// The name, as in `--emulate`.
    pub name: &'static str,
    /// How the way is shaped.
    pub shape: Shape,
    /// Where the numbers are from.
    pub source: &'static str,
}

const PLAIN: Shape = Shape {
    rtt_ms: 0.0,
    jitter_ms: 0.0,
    ingress_bytes_per_second: None,
    egress_bytes_per_second: None,
    stream_bytes_per_second: None,
};

/// The emulations, by name.
pub const EMULATIONS: &[Emulation] = &[
    Emulation {
        name: "ali-2018",
        shape: Shape {
            rtt_ms: 4.0,
            ingress_bytes_per_second: Some(7 * 1024 * 1024),
            egress_bytes_per_second: Some(125_000),
            ..PLAIN
        },
        source: "the report's own rows: producing never exceeds about 7 MiB/s, consuming stays at \
                 1 Mbit/s, and unloaded requests take 4 ms",
    },
    Emulation {
        name: "icp-2019",
        shape: Shape { stream_bytes_per_second: Some(31_000_000), ..PLAIN },
        source: "the report's one producer never exceeds 31 MB/s, whatever the record's size",
    },
    Emulation {
        name: "aws-d2-2017",
        shape: Shape { rtt_ms: 0.4, ..PLAIN },
        source: "inferred: a round trip within one availability zone",
    },
    Emulation {
        name: "cs682-vm",
        shape: Shape { rtt_ms: 1.0, ..PLAIN },
        source: "inferred: virtual machines of one site; the report names no network",
    },
];

/// The emulation of this name.
pub fn emulation(name: &str) -> Option<&'static Emulation> {
    EMULATIONS.iter().find(|emulation| emulation.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_emulation_is_sound_and_found_by_its_name() {
        for known in EMULATIONS {
            assert_eq!(known.shape.fault(), None, "{}", known.name);
            assert!(!known.shape.is_plain(), "{}", known.name);
            assert_eq!(emulation(known.name), Some(known));
        }
        assert_eq!(emulation("ali"), None);
    }

    #[test]
    fn impossible_numbers_are_named() {
        assert!(Shape::rtt(-1.0).fault().is_some());
        assert!(Shape::rtt(f64::NAN).fault().is_some());
        let closed = Shape { egress_bytes_per_second: Some(0), ..PLAIN };
        assert!(closed.fault().is_some());
        assert_eq!(PLAIN.fault(), None);
    }

    #[test]
    fn a_shape_is_read_from_its_names() {
        let shape: Shape = toml::from_str("rtt_ms = 0.4\negress_bytes_per_second = 5").unwrap();
        assert_eq!(shape, Shape { egress_bytes_per_second: Some(5), ..Shape::rtt(0.4) });
        assert!(toml::from_str::<Shape>("rtt = 1").is_err());
    }
}
