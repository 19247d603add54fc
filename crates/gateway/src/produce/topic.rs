//! A topic: where its records go.

use std::sync::{Arc, Mutex};

use client::Metadata;
use serving::choice::{Balancer, Choice, Distribution, Layout, Pair, PartitionFacts, Row, Rule};
use serving::error::{ApiError, Kind};
use tokio::sync::OnceCell;

use super::way::Way;
use crate::request::draft::Draft;

/// What a record takes in a batch beside key and value, about.
const AROUND_BYTES: usize = 16;

/// A topic that exists.
pub(crate) struct Topic {
    pub(super) name: Arc<str>,
    quick: Way,
    /// Made for the first request that needs it.
    pub(super) patient: OnceCell<Way>,
    batch_bytes: usize,
    choosing: Mutex<Choosing>,
}

/// What choices need to remember.
#[derive(Default)]
struct Choosing {
    /// The producer's, when `layout` was made; `None` before.
    generation: Option<u32>,
    layout: Layout,
    /// One for each pair of strategies that was asked for: there are few.
    balancers: Vec<Balancer>,
    distribution: Distribution,
}

impl Topic {
    pub(super) fn new(name: &str, quick: Way, batch_bytes: usize) -> Topic {
        let patient = OnceCell::new();
        Topic { name: Arc::from(name), quick, patient, batch_bytes, choosing: Mutex::default() }
    }

    /// The way of requests that have no key.
    pub(super) fn way(&self) -> &Way {
        &self.quick
    }

    fn choosing(&self) -> std::sync::MutexGuard<'_, Choosing> {
        self.choosing.lock().expect("no code under it panics")
    }

    /// Where this record goes: to the partition that is `given` or that the record names, or as `pair` chooses.
    pub(super) fn place(
        &self,
        draft: &Draft<'_>,
        given: Option<i32>,
        pair: Pair,
        metadata: impl FnOnce() -> Arc<Metadata>,
    ) -> Result<Choice, ApiError> {
        if let Some(partition) = given.or(draft.partition) {
            let exists = (0..self.quick.producer.partition_count()).contains(&partition);
            let choice = Choice { partition, broker: None };
            return if exists { Ok(choice) } else { Err(self.no_partition(partition)) };
        }
        let mut choosing = self.choosing();
        let generation = self.quick.producer.generation();
        if choosing.generation != Some(generation) {
            choosing.layout = layout(&metadata(), &self.name);
            choosing.generation = Some(generation);
        }
        choosing.choose(self, draft, pair)
    }

    /// Counts a record that was taken.
    pub(super) fn count(&self, rule: Rule, choice: Choice) {
        self.choosing().distribution.add(rule, choice, 1);
    }

    /// How many records went where.
    pub(crate) fn distribution(&self) -> Vec<Row> {
        self.choosing().distribution.rows().collect()
    }

    fn no_partition(&self, partition: i32) -> ApiError {
        let count = self.quick.producer.partition_count();
        let words =
            format!("{} has {count} partitions, counted from 0: not {partition}", self.name);
        ApiError::new(Kind::NoPartition, words)
    }
}

impl Choosing {
    fn choose(&mut self, topic: &Topic, draft: &Draft<'_>, pair: Pair) -> Result<Choice, ApiError> {
        let at = self.balancers.iter().position(|balancer| balancer.pair() == pair);
        let at = at.unwrap_or_else(|| {
            self.balancers.push(Balancer::new(pair, topic.batch_bytes, fastrand::u64(..)));
            self.balancers.len() - 1
        });
        let length =
            |bytes: &Option<std::borrow::Cow<'_, [u8]>>| bytes.as_ref().map_or(0, |b| b.len());
        let size_bytes = length(&draft.key) + length(&draft.value) + AROUND_BYTES;
        let gathers = |partition| topic.quick.producer.has_room(partition, size_bytes);
        let choice =
            self.balancers[at].choose(draft.key.as_deref(), size_bytes, &self.layout, gathers);
        choice.ok_or_else(|| {
            let words = format!("{} has no partition to choose from now", topic.name);
            ApiError::new(Kind::Unavailable, words)
        })
    }
}

fn layout(metadata: &Metadata, name: &str) -> Layout {
    let partitions = metadata.topics.get(name).map(|topic| topic.partitions.as_slice());
    let facts = partitions.unwrap_or_default().iter().map(|partition| PartitionFacts {
        preferred_leader: partition.replicas.first().copied(),
        is_led: partition.leader.is_some(),
    });
    Layout::new(&facts.collect::<Vec<_>>())
}
