//! Reading a segment whose batches nobody has looked at since it was opened: their stamps are compared
//! with their neighbours' before anything is handed out.
//!
//! A segment remembers where that was done, so that it happens once: what was appended or scanned since
//! the opening counts as looked at, and one range of the rest.

use std::ops::Range;

use model::Offset;

use super::{Located, Segment};
use crate::StorageError;
use crate::disk::DiskFile;
use crate::error::Context;
use crate::index::{Entry, OffsetEntry};
use crate::names::{Home, LOG};
use crate::scan::HeaderWalk;
use crate::stamps::{Chain, Stamps};

/// How many index entries may contradict their batches before the index is made anew.
const DISBELIEVED_MAX: usize = 2;

impl Segment {
    /// Whether the stamps of the batches at these positions have been looked at.
    pub(crate) fn has_compared(&self, positions: Range<u64>) -> bool {
        let Range { start, end } = positions;
        if start >= self.compared_from {
            return true;
        }
        let compared = self.compared.lock();
        compared.start <= start && end.min(self.compared_from) <= compared.end
    }

    /// The stamps of the batches at these positions were looked at, and are right.
    pub(crate) fn note_compared(&self, positions: Range<u64>) {
        let mut compared = self.compared.lock();
        let apart = positions.start > compared.end || compared.start > positions.end;
        *compared = match apart {
            true => positions,
            false => compared.start.min(positions.start)..compared.end.max(positions.end),
        };
    }

    /// As [`Segment::locate`], of a segment that ends at `end`. Fails with [`StorageError::Damaged`] if
    /// the stamps of the batch, or of one that was passed on the way, are not what they must be.
    pub(crate) fn locate_stamped(
        &self,
        home: &Home,
        offset: Offset,
        end: Offset,
        stamps: &Stamps,
    ) -> Result<Option<Located>, StorageError> {
        let file = self.file(home)?;
        let (from, expected) = self.anchor(home, &*file, offset, stamps)?;
        let mut walk = HeaderWalk::new(&*file, from, self.size);
        let mut chain = stamps.chain(expected, end);
        loop {
            let at = walk.position();
            match walk.next() {
                Ok(Some((position, header))) => {
                    chain
                        .take(&header)
                        .map_err(|reason| self.misplaced(home, at, &chain, reason))?;
                    if header.last_offset() >= offset {
                        return Ok(Some(Located { position, header }));
                    }
                }
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.unreadable(home, at, offset, error)),
            }
        }
    }

    /// What a batch at `position` means for whoever reads it that cannot follow the ones before.
    pub(crate) fn misplaced(
        &self,
        home: &Home,
        position: u64,
        chain: &Chain<'_>,
        reason: String,
    ) -> StorageError {
        let path = home.segment_path(self.base, LOG);
        StorageError::damaged(&path, position, chain.expected().unwrap_or(self.base), reason)
    }

    /// A batch no later than the one with `offset` of which the base offset is known to be right: index
    /// and batch agree on its last one. An entry that is contradicted leads to the one before it.
    fn anchor(
        &self,
        home: &Home,
        file: &dyn DiskFile,
        offset: Offset,
        stamps: &Stamps,
    ) -> Result<(u64, Option<Offset>), StorageError> {
        let mut most = i64::from(self.relative(offset));
        let mut disbelieved = 0;
        while let Some(entry) = self.entry_below(home, most)? {
            let position = u64::from(entry.position);
            if self.agrees(file, position, &entry, stamps).during("read", &self.path(home))? {
                return Ok((position, None));
            }
            disbelieved += 1;
            most = entry.key() - 1;
            if disbelieved > DISBELIEVED_MAX {
                if *self.rebuilt.lock() {
                    break;
                }
                self.rebuild_indexes(home)?;
                most = i64::from(self.relative(offset));
            }
        }
        Ok((0, Some(self.base)))
    }

    fn path(&self, home: &Home) -> std::path::PathBuf {
        home.segment_path(self.base, LOG)
    }

    /// The last entry of the offset index for at most this relative offset; the index is made anew if it
    /// is missing or was cut.
    fn entry_below(&self, home: &Home, most: i64) -> Result<Option<OffsetEntry>, StorageError> {
        let floor = || self.offsets.floor(home, self.base, OffsetEntry::key, most);
        match floor() {
            Ok(entry) => Ok(entry),
            Err(error) => {
                self.unless_broken::<()>(home, OffsetEntry::SUFFIX, error)?;
                self.rebuild_indexes(home)?;
                floor().during("read", &home.segment_path(self.base, OffsetEntry::SUFFIX))
            }
        }
    }

    fn agrees(
        &self,
        file: &dyn DiskFile,
        position: u64,
        entry: &OffsetEntry,
        stamps: &Stamps,
    ) -> std::io::Result<bool> {
        let last = self.base.plus(i64::from(entry.relative_offset));
        match HeaderWalk::new(file, position, self.size).next() {
            // Compaction may have made the batch end earlier than its entry says.
            Ok(Some((_, header))) => Ok(match stamps.is_dense(last) {
                true => header.last_offset() == last,
                false => header.base_offset >= self.base && header.last_offset() <= last,
            }),
            Ok(None) | Err(crate::scan::ScanError::Batch(_)) => Ok(false),
            Err(crate::scan::ScanError::Io(error)) => Err(error),
        }
    }
}
