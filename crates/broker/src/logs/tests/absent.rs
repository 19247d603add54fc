//! Topics that were deleted while the broker was away.

use std::collections::BTreeSet;

use metadata::{ClusterImage, MetadataRecord};

use super::*;

/// Metadata with these topics.
fn image(topics: &[TopicId]) -> ClusterImage {
    let topic = |topic_id: &TopicId| MetadataRecord::TopicCreated {
        topic_id: *topic_id,
        name: format!("t{}", topic_id.0[0]).as_str().into(),
        created: NOW,
        partitions: Vec::new(),
    };
    let mut image = ClusterImage::default();
    topics.iter().for_each(|topic_id| image.replay(&topic(topic_id)).unwrap());
    image
}

/// The folders after a start that applied these deletions, up to metadata with these topics. The first topic has records here.
fn folders_after(deleted: &[TopicId], topics: &[TopicId]) -> Vec<String> {
    let disk = SimDisk::new();
    let logs = start(&disk, &["data"]).unwrap();
    settle(&logs, None).unwrap();
    let partition = open(&logs, FIRST).unwrap();
    append(&logs, &partition, &["a"; 3]);
    drop((partition, logs));
    let logs = start(&disk.after_crash(1), &["data"]).unwrap();
    let deleted: BTreeSet<TopicId> = deleted.iter().copied().collect();
    logs.delete_absent(&deleted, &image(topics));
    settle(&logs, topics.contains(&FIRST).then_some(FIRST)).unwrap();
    logs.empty_trash(&mut |_| true);
    let folders = logs.directories().flat_map(|it| it.dir.folders().unwrap());
    let names: Vec<String> = folders.map(|it| it.name).collect();
    let strays = if topics.contains(&FIRST) { 0 } else { names.len() };
    assert_eq!(logs.strays().len(), strays);
    names
}

#[test]
fn a_topic_that_was_deleted_while_the_broker_was_away_leaves_no_folder() {
    assert_eq!(folders_after(&[FIRST], &[]), Vec::<String>::new());
    assert_eq!(folders_after(&[SECOND, FIRST], &[SECOND]), Vec::<String>::new(), "re-created");
}

#[test]
fn metadata_that_lacks_a_topic_without_its_deletion_removes_nothing() {
    let kept = Vec::from(["t-0".to_owned()]);
    assert_eq!(folders_after(&[], &[]), kept, "empty metadata, or metadata of another cluster");
    assert_eq!(folders_after(&[], &[SECOND]), kept, "metadata from before the topic");
    assert_eq!(folders_after(&[SECOND], &[]), kept, "another topic was deleted");
    assert_eq!(folders_after(&[FIRST], &[FIRST]), kept, "the metadata still has the topic");
}
