//! Whose transactions a compaction is within, as it reads a log from front to end.

use std::collections::{BTreeMap, BTreeSet};

use model::{BatchHeader, Offset, ProducerId};

use crate::producers::aborted::AbortedTransaction;
use crate::producers::transactions::Marker;

/// Which transactions are under way at a place in the log that is read from front to end.
pub(super) struct Aborted {
    /// Aborted ones not reached yet, the next one last.
    ahead: Vec<AbortedTransaction>,
    /// Aborted ones by producer: where each ends, and whether a batch of it was met.
    within: BTreeMap<ProducerId, (Offset, bool)>,
    /// Producers of others, of which a batch was met and no marker yet.
    committing: BTreeSet<ProducerId>,
}

impl Aborted {
    pub(super) fn new(all: &[AbortedTransaction]) -> Aborted {
        let mut ahead = all.to_vec();
        ahead.sort_by_key(|aborted| std::cmp::Reverse(aborted.first_offset));
        Aborted { ahead, within: BTreeMap::new(), committing: BTreeSet::new() }
    }

    /// Moves on to a batch. A transaction ends at its marker's offset whether the marker is still
    /// there or was compacted away.
    fn reach(&mut self, header: &BatchHeader) {
        if self.ahead.is_empty() && self.within.is_empty() {
            return;
        }
        let (first, last) = (header.base_offset, header.last_offset());
        self.within.retain(|_, (end, _)| *end >= first);
        while let Some(next) = self.ahead.pop_if(|next| next.first_offset <= last) {
            if next.last_offset >= first {
                self.within.insert(next.producer_id, (next.last_offset, false));
            }
        }
    }

    /// Whether a batch of records belongs to an aborted transaction.
    pub(super) fn meets_batch(&mut self, header: &BatchHeader) -> bool {
        self.reach(header);
        if !header.is_transactional() {
            return false;
        }
        match self.within.get_mut(&header.producer_id) {
            Some((_, met)) => {
                *met = true;
                true
            }
            None => {
                self.committing.insert(header.producer_id);
                false
            }
        }
    }

    /// Whether the transaction that a marker ends has no batch left in front of it.
    pub(super) fn meets_marker(&mut self, header: &BatchHeader, marker: Option<Marker>) -> bool {
        self.reach(header);
        match marker {
            Some(marker) if marker.aborts => {
                !self.within.remove(&header.producer_id).is_some_and(|(_, met)| met)
            }
            Some(_) => !self.committing.remove(&header.producer_id),
            None => false,
        }
    }
}
