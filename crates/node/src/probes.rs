//! Reports of brokers to the active controller's probes, as bytes.
//!
//! ```text
//! a report: 1 version (1)   4 age of the oldest unfinished disk operation, ms   1 flags
//!           flags: 1 a log directory has no room   2 the broker declines leaderships
//! ```
//!
//! A later version appends fields: a reader ignores bytes behind the ones it knows. A release without probes declines the
//! service, which shows that its process runs.

use std::time::Duration;

/// Version that is written.
const VERSION: u8 = 1;
const NO_ROOM: u8 = 1;
const DECLINES: u8 = 2;

/// State of a broker's log directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeReport {
    /// Age of the oldest unfinished write or sync of all log directories, in whole milliseconds.
    pub oldest_operation: Duration,
    /// Whether a log directory refuses writes because it is full.
    pub lacks_room: bool,
    /// Whether the broker takes no leadership back yet: a log directory was sick a while ago.
    pub declines_leaderships: bool,
}

impl ProbeReport {
    /// Writes the report.
    pub fn encode(&self) -> Vec<u8> {
        let age = u32::try_from(self.oldest_operation.as_millis()).unwrap_or(u32::MAX);
        let flags =
            u8::from(self.lacks_room) * NO_ROOM + u8::from(self.declines_leaderships) * DECLINES;
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&age.to_be_bytes());
        bytes.push(flags);
        bytes
    }

    /// Reads a report. `None`: the bytes are shorter than any version.
    pub fn decode(bytes: &[u8]) -> Option<ProbeReport> {
        let (_, rest) = bytes.split_first()?;
        let (age, rest) = rest.split_first_chunk()?;
        let flags = rest.first()?;
        Some(ProbeReport {
            oldest_operation: Duration::from_millis(u32::from_be_bytes(*age).into()),
            lacks_room: flags & NO_ROOM != 0,
            declines_leaderships: flags & DECLINES != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_and_back() {
        let report = ProbeReport {
            oldest_operation: Duration::from_millis(1_500),
            lacks_room: false,
            declines_leaderships: true,
        };
        let mut bytes = report.encode();
        assert_eq!(bytes, [1, 0, 0, 5, 220, 2], "as other releases write it");
        assert_eq!(ProbeReport::decode(&bytes), Some(report));
        for cut in 0..bytes.len() {
            assert_eq!(ProbeReport::decode(&bytes[..cut]), None);
        }
        bytes.push(9);
        bytes[0] = 2;
        assert_eq!(ProbeReport::decode(&bytes), Some(report), "a newer field");
    }
}
