//! Marks in values by which a reader finds what was lost, doubled, reordered or damaged.
//!
//! A marked value begins with a [`Stamp`]: run, producer, sequence number within the producer's
//! records of that partition, time, and a checksum over all of it, the rest of the value and the
//! partition. What was acknowledged is kept as [`Intervals`] of sequence numbers, and so is what
//! was found: memory grows with gaps, not with records.
//!
//! ```text
//! 32 bytes and more:  magic u32 | run u32 | producer u32 | sequence u64 | time u64, ns | checksum u32
//! 16 to 31 bytes:     magic and run u16 | producer u16 | sequence u32 | time u32, µs | checksum u32
//! ```
//!
//! All numbers are big-endian. The short form's time counts from the beginning of the run and wraps
//! after 71 minutes, its sequence after 4,294,967,296 records of a partition. Values below 16 bytes
//! bear no mark: of them only the number can be compared.
//!
//! Where a gateway chooses the partition, marks are bound to [`ANYWHERE`], and sequence numbers are those of all the
//! producer's records: they rise within each partition all the same.
//!
//! Not here: reading and writing, which is [`load`](crate::load).

mod checker;
mod intervals;
mod mark;

pub use checker::{Acknowledged, Checker, Findings, Verdict};
pub use intervals::Intervals;
pub use mark::{
    ANYWHERE, LONG_BYTES, SHORT_BYTES, Stamp, checksum_of_rest, is_stamped, stamp_bytes,
};
