//! Partitions of topics that were deleted while this broker was away.
//!
//! A missing topic id proves no deletion: metadata that is empty, that went back, or that belongs to another cluster lacks the id
//! too. Proof is a deletion that this process has applied ([`quorum::Quorum::take_deleted_topics`]), together with metadata that
//! lacks the id. Folders without this proof stay strays. Decision 0044.

use std::collections::BTreeSet;

use metadata::ClusterImage;
use model::TopicId;
use node::deleted_topics::find_deleted;
use tracing::info;

use super::Logs;
use super::deleting::Gone;

impl Logs {
    /// Deletes the partitions of topics that were `deleted` while the broker was away and that `image` lacks. A folder gets the name
    /// of a deleted one first, as in [`Logs::delete`]; no delay follows. Must not run while partitions are opened.
    pub fn delete_absent(&self, deleted: &BTreeSet<TopicId>, image: &ClusterImage) {
        let mut gone = Vec::new();
        for directory in self.directories().filter(|it| !it.is_offline()) {
            let Ok(journal) = directory.journal() else { continue };
            let found = journal.with_state(|state| find_deleted(state, deleted, image));
            gone.extend(found.into_iter().map(|(key, name)| Gone {
                topic_id: key.topic_id,
                name,
                delay_ms: 0,
            }));
        }
        if gone.is_empty() {
            return;
        }
        info!(
            partitions = gone.len(),
            "deleting partitions of topics that were deleted while this broker was away"
        );
        self.delete(&gone);
    }
}
