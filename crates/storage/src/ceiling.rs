//! A bound on the recovery point, for the time after a truncation.
//!
//! The recovery point of a partition is written to a file of the whole log directory, now and then.
//! If the log is cut below it and written anew, that file promises more than is true until it is
//! written again, and recovery would take lost bytes for damage. So a truncation below the written
//! recovery point first leaves its offset here, in the partition's own directory; the file goes
//! when the log is synced beyond the promise. Kafka overlooks a file of this name.

use std::io;

use model::Offset;

use crate::StorageError;
use crate::error::Context;
use crate::names::{CEILING, Home};

/// The offset in the file; `None` if there is no file.
pub(crate) fn load(home: &Home) -> Result<Option<Offset>, StorageError> {
    let path = home.path(CEILING);
    let bytes = match home.disk.read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).during("read", &path),
    };
    let text = std::str::from_utf8(&bytes).ok();
    // A ceiling that cannot be read bounds everything: then all of the log is checked.
    Ok(Some(text.and_then(|text| text.trim().parse().ok()).map_or(Offset(0), Offset)))
}

/// Writes the file, durably.
pub(crate) fn store(home: &Home, offset: Offset) -> io::Result<()> {
    home.disk.write_atomically(&home.path(CEILING), format!("{offset}\n").as_bytes())
}

/// Removes the file. Not durable by itself: a ceiling that comes back only costs time.
pub(crate) fn remove(home: &Home) -> io::Result<()> {
    match home.disk.remove_file(&home.path(CEILING)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
