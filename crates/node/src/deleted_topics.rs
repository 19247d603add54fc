//! Partitions of a log directory whose topics were deleted while the broker was away (decision 0044).

use std::collections::BTreeSet;
use std::sync::Arc;

use metadata::ClusterImage;
use model::{TopicId, TopicPartition};
use storage::journal::{Key, PartitionState, State};

use crate::mutants::{Mutant, is_planted};

/// Finds the partitions of a journal whose topic ids are among the `deleted` ones and that `image` lacks, with the names of
/// their folders. A topic that was created again has the name of the deleted one, and its folders have the same names.
pub fn find_deleted(
    state: &State,
    deleted: &BTreeSet<TopicId>,
    image: &ClusterImage,
) -> Vec<(Key, TopicPartition)> {
    let is_gone = |(key, known): &(&Key, &Arc<PartitionState>)| {
        let is_missing = match is_planted(Mutant::FoldersByName) {
            true => image.topic(&State::name(**key, known).topic).is_none(),
            false => image.topic_by_id(key.topic_id).is_none(),
        };
        known.deleted.is_none() && deleted.contains(&key.topic_id) && is_missing
    };
    let gone = state.partitions.iter().filter(is_gone);
    gone.map(|(key, known)| (*key, State::name(*key, known))).collect()
}

#[cfg(test)]
mod tests {
    use metadata::MetadataRecord;
    use model::{PartitionIndex, Timestamp, Uuid};
    use storage::journal::Opened;

    use super::*;

    fn topic(id: u8) -> TopicId {
        Uuid([id; 16])
    }

    fn key(id: u8) -> Key {
        Key { topic_id: topic(id), partition: PartitionIndex(0) }
    }

    fn journal_with(ids: &[u8]) -> State {
        let known = |id: &u8| {
            let topic = "t".into();
            let (fsync, mended) = (true, false);
            let opened = Opened { topic, dense_from: None, fsync, image_index: 0, mended };
            (key(*id), Arc::new(PartitionState::new(opened)))
        };
        State { partitions: ids.iter().map(known).collect(), ..State::default() }
    }

    #[test]
    fn the_folder_of_a_deleted_topic_is_found_although_its_name_exists_again() {
        let mut image = ClusterImage::default();
        let created = MetadataRecord::TopicCreated {
            topic_id: topic(2),
            name: "t".into(),
            created: Timestamp(1),
            partitions: Vec::new(),
        };
        image.replay(&created).unwrap();
        let (state, deleted) = (journal_with(&[1, 2, 3]), BTreeSet::from([topic(1), topic(2)]));
        let find = || -> Vec<Key> {
            find_deleted(&state, &deleted, &image).into_iter().map(|(key, _)| key).collect()
        };
        assert_eq!(find(), [key(1)], "2 exists, and the deletion of 3 is not proved");
        #[cfg(debug_assertions)]
        {
            crate::mutants::plant(Some(Mutant::FoldersByName));
            let found = find();
            crate::mutants::plant(None);
            assert_eq!(found, [], "the test finds the rule left out");
        }
    }
}
