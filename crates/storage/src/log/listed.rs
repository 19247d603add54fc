//! Comparing the segments that are there with those that the caller knows of. Neighbours prove
//! nothing where segments were compacted by Kafka, and nobody reads a segment below the recovery point
//! again; so one that is missing, or was cut, is told by the caller's list alone.
//!
//! Which segments must be there: after a clean stop all of them, after a crash those that end at or
//! below the offset up to which everything was synced. One that ends at or below the log start may be
//! gone, for its deletion was begun. Of segments that are not in the list nothing is said: the list
//! may be older than they are.

use std::collections::BTreeMap;

use model::Offset;

use super::open::Found;
use super::opening::{SealedSegment, Trust};
use crate::error::Damage;
use crate::names::{Home, LOG};

/// A segment that is not as it must be.
pub(super) struct Contradiction {
    /// The base of the segment.
    pub(super) base: Offset,
    /// Where in its file, and why.
    pub(super) position: u64,
    pub(super) reason: String,
}

impl Contradiction {
    pub(super) fn damage(&self, home: &Home) -> Damage {
        Damage {
            segment: home.segment_path(self.base, LOG),
            position: self.position,
            offset: self.base,
            reason: self.reason.clone(),
        }
    }
}

/// The first segment that contradicts what the caller knows.
pub(super) fn contradiction(found: &Found, trust: &Trust<'_>) -> Option<Contradiction> {
    let sizes: BTreeMap<Offset, u64> =
        found.sizes.iter().map(|(base, size)| (*base, size.bytes)).collect();
    wrong_sealed(&sizes, trust).or_else(|| wrong_active(&sizes, trust))
}

fn wrong_sealed(sizes: &BTreeMap<Offset, u64>, trust: &Trust<'_>) -> Option<Contradiction> {
    let sealed = trust.opening.sealed.as_deref().unwrap_or_default();
    let ends = sealed.iter().skip(1).map(|next| Some(next.base));
    let active = trust.opening.active.map(|active| active.base);
    let required = sealed.iter().zip(ends.chain([active])).filter(|(_, end)| match end {
        Some(end) if *end <= trust.opening.log_start_offset => false,
        Some(end) => trust.opening.clean || *end <= trust.bound,
        // Where the last one ends is not known, so only a clean stop vouches for it.
        None => trust.opening.clean,
    });
    let wrong = |(listed, _): (&SealedSegment, _)| {
        let size = sizes.get(&listed.base).copied();
        is_not(listed.base, size, |size| size == listed.size_bytes, "", listed.size_bytes)
    };
    required.filter_map(wrong).next()
}

fn wrong_active(sizes: &BTreeMap<Offset, u64>, trust: &Trust<'_>) -> Option<Contradiction> {
    let active = trust.opening.active?;
    let size = sizes.get(&active.base).copied();
    if trust.opening.clean {
        let last = sizes.keys().next_back().copied();
        if last.is_some_and(|last| last > active.base) {
            let reason =
                format!("the log was stopped cleanly with {} as its last one", active.base);
            return last.map(|base| Contradiction { base, position: 0, reason });
        }
        return is_not(active.base, size, |size| size == active.size_bytes, "", active.size_bytes);
    }
    // What a truncation took back, or what was deleted since, need not be there.
    if active.end > trust.bound || active.end <= trust.opening.log_start_offset {
        return None;
    }
    is_not(active.base, size, |size| size >= active.size_bytes, "at least ", active.size_bytes)
}

fn is_not(
    base: Offset,
    size: Option<u64>,
    holds: impl Fn(u64) -> bool,
    at_least: &str,
    expected: u64,
) -> Option<Contradiction> {
    match size {
        Some(size) if holds(size) => None,
        Some(size) => {
            let reason = format!("the segment has {size} bytes, it must have {at_least}{expected}");
            Some(Contradiction { base, position: size.min(expected), reason })
        }
        None => {
            let reason = format!("the segment is missing, it must have {at_least}{expected} bytes");
            Some(Contradiction { base, position: 0, reason })
        }
    }
}
