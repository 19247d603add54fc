//! Marks of log directories, by which the controller recognises a directory that was put back from a copy.
//!
//! A broker raises the mark in the journal of a directory that is written to, durably, and then reports the mark in
//! heartbeats. The controller records reported marks. So the mark in a directory is below the recorded one only if the
//! directory is older than the report: it was put back from a copy.

use super::{Answer, BrokerMarks, Draft, RaiseMarks, Refusal};
use crate::record::{DirectoryMark, MetadataRecord};
use model::ErrorCode;

impl Draft {
    /// Records the marks that are news, of brokers that are registered as the processes that reported them.
    pub(super) fn raise_marks(&mut self, request: &RaiseMarks) -> Answer<()> {
        if !self.image().detects_copies() {
            let message = "Marks of log directories need highwater.version 4.";
            return Err(Refusal::new(ErrorCode::UnsupportedVersion, message));
        }
        let mut news: Vec<DirectoryMark> = Vec::new();
        for BrokerMarks { broker: who, marks } in &request.brokers {
            let known = self.image().broker(who.broker).filter(|known| known.epoch == who.epoch);
            let Some(known) = known else { continue };
            for (directory, mark) in marks {
                let broker = who.broker;
                let is_named =
                    |it: &DirectoryMark| (it.broker, it.directory) == (broker, *directory);
                let is_news = known.log_dirs.contains(directory)
                    && *mark > self.image().directory_mark(broker, *directory)
                    && !news.iter().any(is_named);
                if is_news {
                    news.push(DirectoryMark { broker, directory: *directory, mark: *mark });
                }
            }
        }
        if !news.is_empty() {
            self.push(MetadataRecord::DirectoryMarksRaised { marks: news });
        }
        Ok(())
    }
}
