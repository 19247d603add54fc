//! Probes of the active controller and the reports of brokers, as bytes.
//!
//! ```text
//! a probe:  1 version (1)   1 flags: 1 idle disks have to prove that they work
//! a report: 1 version (1)   4 age of the oldest unfinished disk operation, ms
//!           4 time since an operation last ended in each log directory, ms   1 flags
//!           flags: 1 a log directory has no room   2 the broker declines leaderships
//!           1 number of pauses, for each: 4 its length, ms   4 time since it ended, ms
//! ```
//!
//! A later version appends fields: a reader ignores bytes behind the ones it knows. A release without probes declines the
//! service, which shows that its process runs.

use std::time::Duration;

use crate::pauses::{PAUSES_MAX, Pause, RecentPauses};

/// Version that is written.
const VERSION: u8 = 1;
const NO_ROOM: u8 = 1;
const DECLINES: u8 = 2;

const DEMANDS_PROOF: u8 = 1;

/// A probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeRequest {
    /// Whether a broker writes a small file where no write or sync ended lately.
    pub demands_proof: bool,
}

impl ProbeRequest {
    /// Writes the probe.
    pub fn encode(self) -> Vec<u8> {
        vec![VERSION, u8::from(self.demands_proof) * DEMANDS_PROOF]
    }

    /// Reads a probe. Absent bytes demand nothing.
    pub fn decode(bytes: &[u8]) -> ProbeRequest {
        let flags = bytes.get(1).copied().unwrap_or(0);
        ProbeRequest { demands_proof: flags & DEMANDS_PROOF != 0 }
    }
}

/// State of a broker's log directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeReport {
    /// Age of the oldest unfinished write or sync of all log directories, in whole milliseconds.
    pub oldest_operation: Duration,
    /// Time since a write or sync last ended, in the log directory where that is longest ago, in whole milliseconds.
    pub last_ended: Duration,
    /// Whether a log directory refuses writes because it is full.
    pub lacks_room: bool,
    /// Whether the broker takes no leadership back yet: a log directory was sick a while ago.
    pub declines_leaderships: bool,
    /// Newest pauses of the broker's process, in whole milliseconds. None from a release that does not report them.
    pub pauses: RecentPauses,
}

impl ProbeReport {
    /// Writes the report.
    pub fn encode(&self) -> Vec<u8> {
        let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let flags =
            u8::from(self.lacks_room) * NO_ROOM + u8::from(self.declines_leaderships) * DECLINES;
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&ms(self.oldest_operation).to_be_bytes());
        bytes.extend_from_slice(&ms(self.last_ended).to_be_bytes());
        bytes.push(flags);
        bytes.push(self.pauses.iter().count() as u8);
        for pause in self.pauses.iter() {
            bytes.extend_from_slice(&ms(pause.length).to_be_bytes());
            bytes.extend_from_slice(&ms(pause.ended_ago).to_be_bytes());
        }
        bytes
    }

    /// Reads a report. `None`: the bytes are shorter than any version.
    pub fn decode(bytes: &[u8]) -> Option<ProbeReport> {
        let (_, rest) = bytes.split_first()?;
        let (age, rest) = rest.split_first_chunk()?;
        let (ended, rest) = rest.split_first_chunk()?;
        let (flags, rest) = rest.split_first()?;
        Some(ProbeReport {
            oldest_operation: Duration::from_millis(u32::from_be_bytes(*age).into()),
            last_ended: Duration::from_millis(u32::from_be_bytes(*ended).into()),
            lacks_room: flags & NO_ROOM != 0,
            declines_leaderships: flags & DECLINES != 0,
            pauses: decode_pauses(rest),
        })
    }
}

/// Reads the pauses. Absent bytes and incomplete pauses have none.
fn decode_pauses(bytes: &[u8]) -> RecentPauses {
    let Some((count, rest)) = bytes.split_first() else { return RecentPauses::default() };
    let ms = |bytes: &[u8]| {
        let bytes = bytes.try_into().expect("chunks of eight bytes");
        Duration::from_millis(u32::from_be_bytes(bytes).into())
    };
    let pauses = rest.chunks_exact(8).take(usize::from(*count).min(PAUSES_MAX));
    RecentPauses::new(
        pauses.map(|pair| Pause { length: ms(&pair[..4]), ended_ago: ms(&pair[4..]) }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_and_back() {
        for demands_proof in [false, true] {
            let mut bytes = ProbeRequest { demands_proof }.encode();
            assert_eq!(bytes, [1, u8::from(demands_proof)], "as other releases write it");
            bytes.push(9);
            assert_eq!(ProbeRequest::decode(&bytes), ProbeRequest { demands_proof });
        }
        assert_eq!(ProbeRequest::decode(&[]), ProbeRequest::default());
    }

    #[test]
    fn a_report_and_back() {
        let report = ProbeReport {
            oldest_operation: Duration::from_millis(1_500),
            last_ended: Duration::from_millis(258),
            lacks_room: false,
            declines_leaderships: true,
            pauses: RecentPauses::default(),
        };
        let mut bytes = report.encode();
        assert_eq!(bytes, [1, 0, 0, 5, 220, 0, 0, 1, 2, 2, 0], "as other releases write it");
        assert_eq!(ProbeReport::decode(&bytes), Some(report));
        assert_eq!(ProbeReport::decode(&bytes[..10]), Some(report), "a release without pauses");
        for cut in 0..10 {
            assert_eq!(ProbeReport::decode(&bytes[..cut]), None);
        }
        bytes.push(9);
        bytes[0] = 2;
        assert_eq!(ProbeReport::decode(&bytes), Some(report), "a newer field");
    }

    #[test]
    fn pauses_and_back() {
        let second = Duration::from_secs(1);
        let pauses = [(3, 7), (2, 60)]
            .map(|(length, ago)| Pause { length: second * length, ended_ago: second * ago });
        let report = ProbeReport { pauses: RecentPauses::new(pauses), ..Default::default() };
        let bytes = report.encode();
        assert_eq!(bytes.len(), 11 + 2 * 8);
        assert_eq!(ProbeReport::decode(&bytes), Some(report));
        let read = ProbeReport::decode(&bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(read.pauses.iter().collect::<Vec<_>>(), pauses[..1], "an incomplete pause");
    }
}
