//! The draft: an image plus the records that made it so, not yet committed.

use crate::image::ClusterImage;
use crate::record::MetadataRecord;

/// A copy of the image to decide on. Invariant: the image it began as, after `records`, is `image`.
#[derive(Clone, Debug)]
pub struct Draft {
    image: ClusterImage,
    records: Vec<MetadataRecord>,
}

impl Draft {
    /// A draft of an image, without a record yet.
    pub fn new(image: ClusterImage) -> Draft {
        Draft { image, records: Vec::new() }
    }

    /// The image as it will be.
    pub fn image(&self) -> &ClusterImage {
        &self.image
    }

    /// What has been decided.
    pub fn records(&self) -> &[MetadataRecord] {
        &self.records
    }

    /// What has been decided, for the log.
    pub fn into_records(self) -> Vec<MetadataRecord> {
        self.records
    }

    /// Decides a fact. It must fit the facts so far: anything else is a bug of the decision.
    pub(super) fn push(&mut self, record: MetadataRecord) {
        self.image.replay(&record).expect("a decision never contradicts the facts it was made on");
        self.records.push(record);
    }

    /// Runs `decision`; with `only_validate` (or a refusal) nothing of it stays.
    pub(super) fn attempt<T>(
        &mut self,
        only_validate: bool,
        decision: impl FnOnce(&mut Draft) -> super::Answer<T>,
    ) -> super::Answer<T> {
        let before = (only_validate, self.image.clone(), self.records.len());
        let answer = decision(self);
        if before.0 || answer.is_err() {
            self.image = before.1;
            self.records.truncate(before.2);
        }
        answer
    }
}
