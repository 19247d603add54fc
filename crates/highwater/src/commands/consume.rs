//! `consume`: writes records to standard output, byte for byte, until told to stop.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use client::consumer::{Consumer, ConsumerConfig, ConsumerRecord, Fetched, OffsetReset};
use client::offsets::CommittedOffset;
use client::{ClientError, Cluster};
use model::{Offset, TopicPartition};

use crate::arguments::Consume;
use crate::commands::cluster_access::{PATIENCE, block_on, connect, existing_topic, failed};
use crate::commands::group::targets;
use crate::commands::start::Signals;
use crate::commands::waiting::Waiting;
use crate::failure::{Failure, on_output};
use crate::pattern::{Form, Shown};
use crate::position::Place;

/// How long a poll waits; between two of them the command looks whether it is done.
const POLL_MAX: Duration = Duration::from_millis(500);
/// How often a member of a group commits what was written.
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// Pause after the cluster could not be reached.
const PAUSE: Duration = Duration::from_millis(300);
const PARTITION_BYTES_MAX: i32 = 4 << 20;

/// Runs until the count or the end is reached, or until it is interrupted.
pub fn run(typed: &Consume) -> Result<ExitCode, Failure> {
    block_on(async {
        let cluster = connect(&typed.connection, PATIENCE, false).await?;
        let consuming = Consuming::begin(typed, cluster).await?;
        consuming.run().await
    })?;
    Ok(ExitCode::SUCCESS)
}

struct Consuming<'a> {
    typed: &'a Consume,
    consumer: Consumer,
    out: Writing<'a>,
    /// Where each partition ended when the command began; empty unless it stops there.
    ends: HashMap<TopicPartition, i64>,
    uncommitted: Uncommitted,
}

/// Offsets behind what was written and has not been committed.
#[derive(Default)]
struct Uncommitted {
    /// The group's generation that they were read in.
    generation_id: Option<i32>,
    offsets: HashMap<TopicPartition, CommittedOffset>,
}

impl Uncommitted {
    /// The consumer is in this generation now. What was read in another one is dropped: its partitions
    /// may be another member's, whose commits this one would take back.
    fn enter(&mut self, generation_id: Option<i32>) {
        if self.generation_id != generation_id {
            self.offsets.clear();
            self.generation_id = generation_id;
        }
    }

    fn note(&mut self, partition: TopicPartition, next: CommittedOffset) {
        self.offsets.insert(partition, next);
    }

    /// What may be committed by who has these partitions.
    fn take(&mut self, assigned: &[TopicPartition]) -> HashMap<TopicPartition, CommittedOffset> {
        let mut offsets = std::mem::take(&mut self.offsets);
        offsets.retain(|partition, _| assigned.contains(partition));
        offsets
    }
}

impl<'a> Consuming<'a> {
    async fn begin(typed: &'a Consume, cluster: Cluster) -> Result<Consuming<'a>, Failure> {
        let topic = existing_topic(&cluster, &typed.topic).await?;
        let cannot = |error: ClientError| cannot(typed, &error);
        let partitions = partitions(typed, topic.partitions.len())?;
        let ends = if typed.until_end {
            let ends = targets(&cluster, &partitions, Place::End).await.map_err(cannot)?;
            ends.into_iter().collect()
        } else {
            HashMap::new()
        };
        let mut consumer = Consumer::new(cluster.clone(), config(typed)?);
        if typed.group.is_some() {
            consumer.subscribe(&[&typed.topic]).map_err(cannot)?;
        } else {
            consumer.assign(&partitions).await.map_err(cannot)?;
        }
        // The consumer finds the start by itself, partition by partition.
        if typed.group.is_none() && typed.from != Place::Start {
            for (partition, offset) in
                targets(&cluster, &partitions, typed.from).await.map_err(cannot)?
            {
                consumer.seek(&partition, Offset(offset)).map_err(cannot)?;
            }
        }
        let out = Writing::new(&typed.format, typed.count);
        Ok(Consuming { typed, consumer, out, ends, uncommitted: Uncommitted::default() })
    }

    async fn run(mut self) -> Result<(), Failure> {
        let signals = Signals::listen();
        let mut signals =
            signals.map_err(|error| Failure::new("cannot listen for signals").detail(error))?;
        let mut commit = tokio::time::interval(COMMIT_EVERY);
        let mut waiting = Waiting::from(Instant::now());
        while !self.is_done() {
            if self.consumer.must_join() {
                // In the generation that it was read in: the next poll leaves it.
                self.commit().await?;
            }
            let Some(polled) = self.poll(&mut signals, &mut waiting).await else { break };
            self.uncommitted.enter(self.consumer.generation_id());
            match polled {
                Ok(found) => {
                    self.write(&found)?;
                    self.say_what_is_awaited(&mut waiting);
                }
                // Like every consumer, it outlives its brokers.
                Err(error) if error.is_retriable() => {
                    waiting.say(Instant::now(), || format!("{error}; trying on"));
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(cannot(self.typed, &error)),
            }
            let due = std::future::poll_fn(|context| {
                std::task::Poll::Ready(commit.poll_tick(context).is_ready())
            });
            if due.await {
                self.commit().await?;
            }
        }
        self.commit().await?;
        self.consumer.close().await.map_err(|error| cannot(self.typed, &error))
    }

    /// One poll, and words for whoever waits for it; `None` when the command is to end.
    async fn poll(
        &mut self,
        signals: &mut Signals,
        waiting: &mut Waiting,
    ) -> Option<Result<Vec<Fetched>, ClientError>> {
        let awaited = match (self.consumer.unreadable(), &self.typed.group) {
            (Some(unreadable), _) => unreadable.to_string(),
            (None, Some(group)) => not_yet(group),
            (None, None) => "the cluster has not answered yet".to_owned(),
        };
        let polling = self.consumer.poll(POLL_MAX);
        tokio::pin!(polling);
        loop {
            tokio::select! {
                polled = &mut polling => return Some(polled),
                () = signals.next() => return None,
                () = tokio::time::sleep(POLL_MAX) => waiting.say(Instant::now(), || awaited.clone()),
            }
        }
    }

    /// A member without partitions waits for its group; a topic without new records is no wait.
    fn say_what_is_awaited(&self, waiting: &mut Waiting) {
        let now = Instant::now();
        if let Some(unreadable) = self.consumer.unreadable() {
            waiting.say(now, || unreadable.to_string());
            return;
        }
        match &self.typed.group {
            Some(group) if self.consumer.assignment().is_empty() => waiting
                .say(now, || format!("group {group} has not given this member a partition yet")),
            _ => waiting.came(now),
        }
    }

    fn is_done(&self) -> bool {
        self.out.is_full() || (self.typed.until_end && self.is_at_end())
    }

    /// Whether everything that is read here has come to where it ended at the beginning.
    fn is_at_end(&self) -> bool {
        let assigned = self.consumer.assignment();
        let at_end = |partition: &TopicPartition| {
            let end = self.ends.get(partition).copied().unwrap_or(0);
            self.consumer.position(partition).is_some_and(|position| position.0 >= end)
        };
        !assigned.is_empty() && assigned.iter().all(at_end)
    }

    fn write(&mut self, found: &[Fetched]) -> Result<(), Failure> {
        for fetched in found {
            let next = self.out.write(fetched).map_err(|error| cannot(self.typed, &error))?;
            if let (Some(next), Some(_)) = (next, &self.typed.group) {
                let offset = CommittedOffset::at(next);
                self.uncommitted.note(fetched.partition.clone(), offset);
            }
        }
        self.out.flush().map_err(on_output)
    }

    /// Commits what has left this process.
    async fn commit(&mut self) -> Result<(), Failure> {
        let offsets = self.uncommitted.take(&self.consumer.assignment());
        if offsets.is_empty() {
            return Ok(());
        }
        match self.consumer.commit_offsets(&offsets).await {
            // The group moves on without this commit: its next owner reads the records again.
            Err(error) if !error.is_retriable() && error.code().is_none() => {
                return Err(cannot(self.typed, &error));
            }
            Err(error) => tracing::warn!(%error, "a commit failed"),
            Ok(()) => {}
        }
        Ok(())
    }
}

fn not_yet(group: &str) -> String {
    format!("group {group} has not given this member a partition yet")
}

fn cannot(typed: &Consume, error: &ClientError) -> Failure {
    failed(format!("cannot consume {}", typed.topic), error)
}

fn partitions(typed: &Consume, count: usize) -> Result<Vec<TopicPartition>, Failure> {
    let count = i32::try_from(count).unwrap_or(i32::MAX);
    let missing = typed.partitions.iter().find(|partition| **partition >= count);
    if let Some(missing) = missing {
        let topic = &typed.topic;
        return Err(Failure::new(format!("{topic} has no partition {missing}"))
            .detail(format!("it has {count}, from 0 to {}", count - 1)));
    }
    let all: Vec<i32> = (0..count).collect();
    let wanted = if typed.partitions.is_empty() { &all } else { &typed.partitions };
    Ok(wanted.iter().map(|at| TopicPartition::new(typed.topic.as_str(), *at)).collect())
}

fn config(typed: &Consume) -> Result<ConsumerConfig, Failure> {
    let offset_reset = match (&typed.group, typed.from) {
        (Some(_), Place::End) => OffsetReset::Latest,
        (Some(_), place) if place != Place::Start => {
            return Err(Failure::new("a group goes on where it was")
                .detail("--from says only where it begins at first: start or end")
                .hint("move it with `highwater group seek`"));
        }
        // What retention took while it was read is gone; what is left comes next.
        _ => OffsetReset::Earliest,
    };
    Ok(ConsumerConfig {
        group_id: typed.group.clone(),
        auto_commit: None,
        offset_reset,
        partition_bytes_max: PARTITION_BYTES_MAX,
        ..ConsumerConfig::default()
    })
}

/// Writes records to standard output, up to a number of them.
struct Writing<'a> {
    form: &'a Form,
    out: BufWriter<io::StdoutLock<'static>>,
    /// How many may still come; `None` for any number.
    left: Option<u64>,
    /// Where compressed batches are expanded.
    buffer: Vec<u8>,
    written: io::Result<()>,
}

impl<'a> Writing<'a> {
    fn new(form: &'a Form, left: Option<u64>) -> Writing<'a> {
        let out = BufWriter::with_capacity(1 << 18, io::stdout().lock());
        Writing { form, out, left, buffer: Vec::new(), written: Ok(()) }
    }

    fn is_full(&self) -> bool {
        self.left == Some(0)
    }

    /// Writes the records of one partition; the offset behind the last one that was written.
    fn write(&mut self, fetched: &Fetched) -> Result<Option<Offset>, ClientError> {
        let Writing { form, out, left, buffer, written } = self;
        let (mut next, mut cut) = (None, false);
        fetched.for_each(buffer, |record| {
            if *left == Some(0) || written.is_err() {
                cut = true;
                return;
            }
            *left = left.map(|left| left - 1);
            *written = write_record(out, form, &fetched.partition, &record);
            next = Some(record.offset.next());
        })?;
        // Behind the last record there may be markers, which are not to be read again.
        Ok(if cut { next } else { Some(fetched.next_offset) })
    }

    fn flush(&mut self) -> io::Result<()> {
        std::mem::replace(&mut self.written, Ok(()))?;
        self.out.flush()
    }
}

fn write_record(
    out: &mut impl Write,
    form: &Form,
    partition: &TopicPartition,
    record: &ConsumerRecord<'_>,
) -> io::Result<()> {
    let headers: Vec<_> = if form.shows_headers() { record.headers().collect() } else { vec![] };
    let shown = Shown {
        topic: &partition.topic,
        partition: partition.partition.0,
        offset: record.offset.0,
        timestamp: record.timestamp.0,
        key: record.key,
        value: record.value,
        headers: &headers,
    };
    form.write(out, &shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_in_an_earlier_generation_is_not_committed() {
        let partition = |index| TopicPartition::new("t", index);
        let offset = |at| CommittedOffset::at(Offset(at));
        let mut uncommitted = Uncommitted::default();
        uncommitted.enter(Some(1));
        uncommitted.note(partition(0), offset(5));
        uncommitted.enter(Some(1));
        uncommitted.note(partition(1), offset(7));
        assert_eq!(
            uncommitted.take(&[partition(1)]).into_keys().collect::<Vec<_>>(),
            [partition(1)]
        );
        uncommitted.note(partition(0), offset(6));
        uncommitted.enter(Some(2));
        assert!(uncommitted.take(&[partition(0)]).is_empty());
    }
}
