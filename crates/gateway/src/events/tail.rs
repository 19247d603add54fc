//! The one consumer that reads all feeds at their ends.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use client::{Cluster, Consumer, ConsumerConfig, Fetched};
use model::{LeaderEpoch, Offset, TopicPartition};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::feed::Feed;

/// How long brokers are waited for before feeds that have come are looked at.
const POLL: Duration = Duration::from_millis(100);
/// How long the tail rests after brokers failed in a way that trying again at once does not heal.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Bytes of one partition in an answer.
const PARTITION_BYTES_MAX: i32 = 256 * 1024;
/// Bytes of an answer.
const FETCH_BYTES_MAX: i32 = 8 << 20;

/// A feed to be read.
#[derive(Debug)]
pub(super) struct Joining {
    pub(super) feed: Weak<Feed>,
}

struct Tail {
    cluster: Cluster,
    consumer: Consumer,
    feeds: HashMap<TopicPartition, Weak<Feed>>,
    buffer: Vec<u8>,
}

/// Begins to read, on the runtime that this is called on; ends when the sender is gone.
pub(super) fn begin(cluster: Cluster) -> mpsc::UnboundedSender<Joining> {
    let (sender, inbox) = mpsc::unbounded_channel();
    let config = ConsumerConfig {
        auto_commit: None,
        read_committed: true,
        failures_apart: true,
        fetch_bytes_max: FETCH_BYTES_MAX,
        partition_bytes_max: PARTITION_BYTES_MAX,
        ..ConsumerConfig::default()
    };
    let consumer = Consumer::new(cluster.clone(), config);
    let tail = Tail { cluster, consumer, feeds: HashMap::new(), buffer: Vec::new() };
    tokio::spawn(tail.run(inbox));
    sender
}

impl Tail {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Joining>) {
        loop {
            if self.feeds.is_empty() {
                let Some(joining) = inbox.recv().await else { return };
                self.join(joining);
            }
            loop {
                match inbox.try_recv() {
                    Ok(joining) => self.join(joining),
                    Err(mpsc::error::TryRecvError::Empty) => break,
                    Err(mpsc::error::TryRecvError::Disconnected) => return,
                }
            }
            self.read().await;
            self.leave_finished();
        }
    }

    fn join(&mut self, Joining { feed }: Joining) {
        let Some(known) = feed.upgrade() else { return };
        if let Some(end) = known.end() {
            self.consumer.add(known.partition.clone(), Offset(end));
            self.feeds.insert(known.partition.clone(), feed);
        }
    }

    async fn read(&mut self) {
        match self.consumer.poll(POLL).await {
            Ok(all) => {
                for fetched in &all {
                    self.take(fetched).await;
                }
            }
            Err(error) => {
                warn!(%error, "event streams cannot be fed now");
                sleep(REST_AFTER_FAILURE).await;
            }
        }
        for (partition, error) in self.consumer.take_failures() {
            debug!(%partition, %error, "no longer read for event streams");
            if let Some(feed) = self.feed(&partition) {
                feed.finish();
            }
        }
    }

    fn feed(&self, partition: &TopicPartition) -> Option<Arc<Feed>> {
        self.feeds.get(partition).and_then(Weak::upgrade)
    }

    async fn take(&mut self, fetched: &Fetched) {
        let Some(feed) = self.feed(&fetched.partition).filter(|feed| !feed.is_over()) else {
            return;
        };
        // The records are of whatever topic has the name now.
        if !self.is_same_topic(&feed) || feed.end() != Some(fetched.fetch_offset.0) {
            return feed.finish();
        }
        if self.was_cut(&feed, fetched).await {
            debug!(partition = %fetched.partition, "cut below what readers have");
            return feed.finish();
        }
        let next = Offset(feed.publish(fetched, &mut self.buffer));
        if next != fetched.next_offset {
            // Known to the consumer, which has just read it.
            let _ = self.consumer.seek(&fetched.partition, next);
        }
    }

    /// Whether a new leader's log leaves the one of readers before the place where they are. What cannot be asked may be so.
    async fn was_cut(&self, feed: &Feed, fetched: &Fetched) -> bool {
        let known = feed.leader_epoch();
        if known < 0 || fetched.leader_epoch.0 <= known {
            return false;
        }
        let wanted = [(feed.partition.clone(), LeaderEpoch(known))];
        let ends = client::offsets::epoch_ends(&self.cluster, &wanted).await;
        let end = ends.ok().and_then(|ends| ends.get(&feed.partition).copied());
        end.is_none_or(|end| end.is_some_and(|end| end < fetched.fetch_offset))
    }

    fn is_same_topic(&self, feed: &Feed) -> bool {
        let metadata = self.cluster.metadata();
        let topic = metadata.topics.get(&feed.partition.topic);
        topic.is_some_and(|topic| {
            topic.id == feed.topic_id
                && (topic.partitions.is_empty() || topic.partitions.len() == feed.partition_count)
        })
    }

    /// Feeds without readers are left, and those whose topic has changed are ended.
    fn leave_finished(&mut self) {
        let mut left = Vec::new();
        for (partition, feed) in &self.feeds {
            match feed.upgrade() {
                Some(feed) if feed.is_over() => left.push(partition.clone()),
                Some(feed) if !self.is_same_topic(&feed) => {
                    feed.finish();
                    left.push(partition.clone());
                }
                Some(_) => {}
                None => left.push(partition.clone()),
            }
        }
        let metadata = self.cluster.metadata();
        for partition in left {
            if !metadata.topics.contains_key(&partition.topic) {
                self.cluster.unwant(&partition.topic);
            }
            self.consumer.remove(&partition);
            self.feeds.remove(&partition);
        }
    }
}
