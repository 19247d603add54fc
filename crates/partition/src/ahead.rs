//! Zeros ahead of the log's end: for which logs, how many in all, and when they are given back. What they are for
//! stands in `storage`, in `log/ahead.rs`.

use model::Durability;
use storage::disk::reserve;
use storage::{Log, StorageError, found_no_room};

use crate::error::PartitionError;
use crate::partition::{Partition, Status};

/// What became of a look at whether zeros are wanted.
#[derive(Debug)]
pub enum AheadWritten {
    /// The log wants none now.
    Nothing,
    /// Zeros were written, or there was no room for them.
    Done,
    /// There was no room for them, and what was written could not be cut off: the partition is offline, and the
    /// log directory is to be taken offline.
    Failed(PartitionError),
}

/// Most bytes of zeros in one log directory.
const AHEAD_BYTES_MAX: u64 = 256 << 20;

impl Partition {
    /// Writes zeros ahead of a log that is synced in small portions, if few are left. To be called after a
    /// sync, by the flusher: it waits for the device, and no append waits for it.
    pub fn write_ahead(&self) -> AheadWritten {
        let ticket = {
            let mut state = self.lock();
            let is_served = matches!(self.status(), Status::Leading | Status::Following);
            let is_wanted = state.settings.durability == Durability::Fsync
                && self.is_writable()
                && self.sync_queue.held().ahead_bytes() < AHEAD_BYTES_MAX;
            if !is_served || !is_wanted {
                return AheadWritten::Nothing;
            }
            let Some(ticket) = state.log.begin_ahead() else { return AheadWritten::Nothing };
            self.count_held(&mut state);
            ticket
        };
        let result = ticket.run();
        let mut state = self.lock();
        state.log.finish_ahead(ticket, &result);
        self.count_held(&mut state);
        drop(state);
        if result.is_err_and(|error| found_no_room(&error)) {
            // Records have a better use for what room there is.
            match self.give_back_ahead() {
                Err(PartitionError::Storage(cause)) if cause.is_fatal() => {
                    return AheadWritten::Failed(cause.into());
                }
                _ => {}
            }
        }
        AheadWritten::Done
    }

    /// Closes files that were not used since the last call ([`Log::release_idle_files`]); zeros ahead of a log
    /// that is not synced often any more are given back.
    pub fn release_idle(&self) -> Result<(), PartitionError> {
        let has_idle_zeros = self.maintain(|log, _| {
            let is_idle = log.is_ahead_idle();
            log.release_idle_files();
            Ok(is_idle)
        })?;
        if has_idle_zeros { self.give_back_ahead() } else { Ok(()) }
    }

    /// Gives the zeros ahead of a log back of which nothing was synced since the last call: tools that read the
    /// files of a quiet broker then find batches up to the end of the file.
    pub fn give_back_unused_ahead(&self) -> Result<(), PartitionError> {
        if !self.with_log(Log::is_ahead) {
            return Ok(());
        }
        let is_unused = self.maintain(|log, _| Ok::<_, StorageError>(log.is_ahead_unused()))?;
        if is_unused { self.give_back_ahead() } else { Ok(()) }
    }

    /// Gives the zeros ahead of the log back, if there are any. Where no file can be opened for that they stay.
    pub fn give_back_ahead(&self) -> Result<(), PartitionError> {
        if !self.with_log(Log::is_ahead) {
            return Ok(());
        }
        let _end = self.begin_rolling();
        let ticket = self.maintain(|log, _| Ok::<_, StorageError>(log.begin_give_back()))?;
        let Some(ticket) = ticket else { return Ok(()) };
        // An append waits until this is done: it must not wait for a file to be closed.
        let result = self.with_files(|| reserve::at_once(|| ticket.run()));
        self.maintain(|log, _| log.finish_give_back(ticket, result))
    }
}
