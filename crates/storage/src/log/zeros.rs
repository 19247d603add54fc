//! Zeros behind the last batch of a segment, as an opening finds them: written ahead of a log (`ahead.rs`)
//! whose process or machine died. They say nothing: they are neither an incomplete write nor damage, as
//! long as nothing but zeros follows up to the end of the file, and no record is missing in front of them.

use std::collections::BTreeMap;

use model::Offset;

use super::opening::Trust;
use crate::StorageError;
use crate::disk::OpenMode;
use crate::error::Context;
use crate::names::{Home, LOG};
use crate::scan::only_zeros;

/// The size of a segment's file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundSize {
    /// Bytes of the file.
    pub(super) file_bytes: u64,
    /// Without the zeros behind what the caller knows it to hold.
    pub(super) bytes: u64,
}

/// The sizes of all segments. Of one that grows no more and is longer than the caller knows it to be, the
/// bytes behind are read: zeros do not count.
pub(super) fn sizes(
    home: &Home,
    bases: &[Offset],
    trust: &Trust<'_>,
) -> Result<BTreeMap<Offset, FoundSize>, StorageError> {
    let opening = trust.opening;
    let sealed = opening.sealed.iter().flatten().map(|sealed| (sealed.base, sealed.size_bytes));
    let active = opening.active.filter(|_| opening.clean);
    let mut known: BTreeMap<Offset, u64> = sealed.collect();
    known.extend(active.map(|active| (active.base, active.size_bytes)));
    let size = |base: &Offset| {
        let path = home.segment_path(*base, LOG);
        let file_bytes = home.disk.size(&path).during("open", &path)?;
        let known = known.get(base).copied().unwrap_or(file_bytes);
        let ends_there = known < file_bytes && ends_in_zeros(home, *base, known, file_bytes)?;
        let bytes = if ends_there { known } else { file_bytes };
        Ok((*base, FoundSize { file_bytes, bytes }))
    };
    bases.iter().map(size).collect()
}

/// Whether the file of a segment holds nothing but zeros from `position` to its end.
pub(super) fn ends_in_zeros(
    home: &Home,
    base: Offset,
    position: u64,
    file_bytes: u64,
) -> Result<bool, StorageError> {
    let path = home.segment_path(base, LOG);
    let file = home.disk.open(&path, OpenMode::Read).during("open", &path)?;
    only_zeros(&*file, position, file_bytes).during("read", &path)
}

/// Whether a segment may end at `end` in zeros that were written ahead: if no offset is missing up to the
/// segment behind.
pub(crate) fn may_end_before(next: Option<Offset>, base: Offset, end: Offset) -> bool {
    let is_wide = |next: Offset| next > end && next.0 - base.0 > i32::MAX as i64;
    next.is_none_or(|next| next == end || is_wide(next))
}
