//! Arguments of `healthcheck`.

use clap::{Args, ValueEnum};

use super::ConfigSources;

/// `healthcheck`
#[derive(Debug, Args)]
pub struct Healthcheck {
    #[command(flatten)]
    pub sources: ConfigSources,
    /// The probe: readyz (may clients be sent to the broker?), livez (does the process run?) or healthz (is the broker well?)
    #[arg(long, value_name = "PROBE", default_value = "readyz", hide_possible_values = true)]
    pub probe: Probe,
    /// Milliseconds until the broker must have answered
    #[arg(long, value_name = "MS", default_value_t = 3000, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout_ms: u64,
}

/// A probe of a broker's HTTP port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Probe {
    /// Whether clients may be sent to the broker.
    Readyz,
    /// Whether the threads of the broker run.
    Livez,
    /// Whether the broker is well.
    Healthz,
}

impl Probe {
    /// Path of the probe.
    pub fn path(self) -> &'static str {
        match self {
            Probe::Readyz => "/readyz",
            Probe::Livez => "/livez",
            Probe::Healthz => "/healthz",
        }
    }
}
