//! Making a partition's folder anew out of the batches of another one: what `log mend` and `log adopt`
//! are made of. The log is not served meanwhile, and the folder that is read is never changed.
//!
//! 1. [`survey`] reads every batch, checks it, and says what is there and what is not.
//! 2. [`build`] writes the batches that are whole into a new folder, as appends: indexes, producers,
//!    epochs and aborted transactions are made anew with them, and everything is synced.
//! 3. `stopped/` gives the new folder its name, in an order that a crash may interrupt anywhere.
//!
//! Not here: which partitions, and what the journal says of them.

mod build;
mod latest;
mod survey;

pub(crate) use build::{Built, build};
pub use latest::{KeyedRecord, LatestRecord, LatestRecords};
pub(crate) use latest::{latest, write};
pub(crate) use survey::{Expectation, survey};
pub use survey::{Lost, Survey};

use model::{LeaderEpoch, Offset, ProducerId, Timestamp};

/// Moves the ids of producers of another cluster out of the range in which ids are allotted: a
/// producer of this cluster that got the same number would have its records taken for repeated ones.
const FOREIGN_PRODUCER: i64 = 1 << 62;

/// What becomes of the batches on their way.
#[derive(Clone, Copy)]
pub(crate) enum Origin {
    /// They are this partition's own. Epochs that contradict the order, or this last known one, are
    /// lowered.
    Own { epoch_max: LeaderEpoch },
    /// They come from another cluster, whose leader epochs and producer ids mean nothing here.
    Foreign,
}

impl Origin {
    fn producer(&self, id: ProducerId) -> ProducerId {
        match self {
            Origin::Foreign if id.is_idempotent() => ProducerId(id.0 | FOREIGN_PRODUCER),
            _ => id,
        }
    }
}

/// What to build.
pub(crate) struct Plan {
    pub(crate) origin: Origin,
    /// The first offset that may be read: batches that end below are left out.
    pub(crate) log_start: Offset,
    /// No offset below this one is given to a record again, whatever the batches end at.
    pub(crate) end_min: Offset,
    pub(crate) now: Timestamp,
}
