//! A topic: where its records go.

use std::sync::{Arc, Mutex, MutexGuard};

use client::Metadata;
use client::producer::Intake;
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

    fn choosing(&self) -> MutexGuard<'_, Choosing> {
        self.choosing.lock().expect("no code under it panics")
    }

    /// Chooses for records in a row: nobody else does meanwhile.
    pub(super) fn choices(&self, metadata: impl FnOnce() -> Arc<Metadata>) -> Choices<'_> {
        let mut choosing = self.choosing();
        let generation = self.quick.producer.generation();
        if choosing.generation != Some(generation) {
            choosing.layout = layout(&metadata(), &self.name);
            choosing.generation = Some(generation);
        }
        Choices { topic: self, choosing, counted: None }
    }

    /// How many records went where.
    pub(crate) fn distribution(&self) -> Vec<Row> {
        self.choosing().distribution.rows().collect()
    }
}

/// Choices for records in a row.
pub(super) struct Choices<'a> {
    topic: &'a Topic,
    choosing: MutexGuard<'a, Choosing>,
    /// Where the last records went, and how many, which are not in the distribution yet.
    counted: Option<(Rule, Choice, u64)>,
}

impl Choices<'_> {
    /// Where this record goes: to the partition that is `given` or that the record names, or as `pair` chooses.
    pub(super) fn place(
        &mut self,
        intake: &mut Intake<'_>,
        draft: &Draft<'_>,
        given: Option<i32>,
        pair: Pair,
    ) -> Result<Choice, ApiError> {
        if let Some(partition) = given.or(draft.partition) {
            let count = intake.partition_count();
            let choice = Choice { partition, broker: None };
            let exists = (0..count).contains(&partition);
            return if exists { Ok(choice) } else { Err(self.no_partition(partition, count)) };
        }
        self.choosing.choose(self.topic, intake, draft, pair)
    }

    fn no_partition(&self, partition: i32, count: i32) -> ApiError {
        let name = &self.topic.name;
        let words = format!("{name} has {count} partitions, counted from 0: not {partition}");
        ApiError::new(Kind::NoPartition, words)
    }

    /// Counts a record that was taken.
    pub(super) fn count(&mut self, rule: Rule, choice: Choice) {
        match &mut self.counted {
            Some((last_rule, last, records)) if (*last_rule, *last) == (rule, choice) => {
                *records += 1;
            }
            _ => {
                self.note();
                self.counted = Some((rule, choice, 1));
            }
        }
    }

    fn note(&mut self) {
        if let Some((rule, choice, records)) = self.counted.take() {
            self.choosing.distribution.add(rule, choice, records);
        }
    }
}

impl Drop for Choices<'_> {
    fn drop(&mut self) {
        self.note();
    }
}

impl Choosing {
    fn choose(
        &mut self,
        topic: &Topic,
        intake: &mut Intake<'_>,
        draft: &Draft<'_>,
        pair: Pair,
    ) -> Result<Choice, ApiError> {
        let at = self.balancers.iter().position(|balancer| balancer.pair() == pair);
        let at = at.unwrap_or_else(|| {
            self.balancers.push(Balancer::new(pair, topic.batch_bytes, fastrand::u64(..)));
            self.balancers.len() - 1
        });
        let size_bytes = draft.size_bytes() + AROUND_BYTES;
        let gathers = |partition| intake.has_room(partition, size_bytes);
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
