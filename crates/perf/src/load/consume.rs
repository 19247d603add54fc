//! Consumers under load: one thread each, which polls, reads every record, and checks its mark.

use super::clock::{Clock, thread_cpu};
use super::config::ConsumeLoad;
use super::recorder::{Errors, add_to_window, note};
use super::report::{Window, histogram};
use super::stop::Stop;
use super::{LoadError, runtime};
use crate::stamp::{Checker, Findings, LONG_BYTES};
use client::consumer::Fetched;
use client::{Cluster, ClusterConfig, Consumer, ConsumerConfig};
use hdrhistogram::Histogram;
use model::TopicPartition;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long the first consumer may take to get partitions.
pub(super) const ASSIGNED_MAX: Duration = Duration::from_secs(60);

/// What consumers of one load share.
pub(super) struct Common {
    pub(super) clock: Clock,
    pub(super) stop: Stop,
    /// Records read by all, without those of other runs than [`ConsumeLoad::stamp`]: the records of an earlier run in the
    /// same topic would count for records that are still to come.
    pub(super) records: AtomicU64,
    /// When the last of them was read, in nanoseconds of the clock.
    pub(super) last_ns: AtomicU64,
    /// Consumers that have partitions.
    pub(super) assigned: AtomicU32,
    /// They end when so many records were read; 0: not yet known, or never.
    pub(super) target: AtomicU64,
    /// Whether being idle ends them: not while producers run.
    pub(super) may_idle: AtomicBool,
}

impl Common {
    /// For consumers alone, or beside producers: then `records` is nothing to end at, because only
    /// when these have ended is it known how many there are, those of their warm-up among them.
    pub(super) fn new(load: &ConsumeLoad, stop: &Stop, alone: bool) -> Common {
        Common {
            clock: Clock::start(),
            stop: stop.clone(),
            records: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            assigned: AtomicU32::new(0),
            target: AtomicU64::new(if alone { load.records } else { 0 }),
            may_idle: AtomicBool::new(alone),
        }
    }

    /// Says that producers have ended, and, if that is known, how many records there are.
    pub(super) fn producers_ended(&self, target: u64) {
        // Silence counts from here on.
        self.last_ns.fetch_max(self.clock.now_ns(), Ordering::Relaxed);
        self.target.store(target, Ordering::Relaxed);
        self.may_idle.store(true, Ordering::Release);
    }

    fn is_over(&self, idle: Duration) -> bool {
        let target = self.target.load(Ordering::Relaxed);
        let done = target > 0 && self.records.load(Ordering::Relaxed) >= target;
        let may_idle = self.may_idle.load(Ordering::Acquire);
        done || self.stop.is_stopped() || (may_idle && self.is_quiet(idle))
    }

    /// Whether no consumer has read anything for so long. Until a consumer has partitions, silence means
    /// little.
    fn is_quiet(&self, idle: Duration) -> bool {
        let has_begun = self.assigned.load(Ordering::Relaxed) > 0;
        let limit = if has_begun { idle } else { idle.max(ASSIGNED_MAX) };
        let quiet_ns = self.clock.now_ns().saturating_sub(self.last_ns.load(Ordering::Relaxed));
        quiet_ns >= limit.as_nanos() as u64
    }
}

/// What one consumer measured.
pub(super) struct ConsumerOutcome {
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) first_ns: Option<u64>,
    pub(super) last_ns: u64,
    pub(super) assigned_ns: u64,
    pub(super) fetches: u64,
    pub(super) fetch: Histogram<u64>,
    pub(super) end_to_end: Histogram<u64>,
    pub(super) windows: Vec<Window>,
    pub(super) partitions: BTreeMap<(String, i32), u64>,
    pub(super) findings: Findings,
    pub(super) cpu: Duration,
    pub(super) errors: Errors,
}

/// One consumer's life, on its own thread. Tells `ready` when it has partitions, or why it never
/// will.
pub(super) fn run(
    load: &ConsumeLoad,
    number: u32,
    ready: &mpsc::UnboundedSender<Result<(), LoadError>>,
    common: &Common,
) -> Result<ConsumerOutcome, LoadError> {
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let mut reader = match Reader::new(load, number, common).await {
            Ok(reader) => reader,
            Err(error) => {
                // The thread that waits for it is gone only when another consumer has failed.
                let _ = ready.send(Err(error.clone()));
                return Err(error);
            }
        };
        let read = reader.read_all(ready).await;
        reader.close().await;
        read.map(|()| reader.outcome())
    });
    // Not to wait for connections that are not needed.
    runtime.shutdown_background();
    outcome
}

struct Reader<'a> {
    load: &'a ConsumeLoad,
    common: &'a Common,
    consumer: Option<Consumer>,
    is_assigned: bool,
    checker: Option<Checker>,
    /// For compressed batches.
    scratch: Vec<u8>,
    outcome: ConsumerOutcome,
}

impl<'a> Reader<'a> {
    async fn new(
        load: &'a ConsumeLoad,
        number: u32,
        common: &'a Common,
    ) -> Result<Reader<'a>, LoadError> {
        let cluster = Cluster::connect(ClusterConfig::new(&load.bootstrap)).await?;
        let config = ConsumerConfig { group_id: load.group.clone(), ..load.consumer.clone() };
        let mut consumer = Consumer::new(cluster.clone(), config);
        match &load.group {
            Some(_) => {
                let topics: Vec<&str> = load.topics.iter().map(String::as_str).collect();
                consumer.subscribe(&topics)?;
            }
            None => consumer.assign(&dealt(&cluster, load, number).await?).await?,
        }
        consumer.take_fetch_times();
        Ok(Reader {
            load,
            common,
            consumer: Some(consumer),
            is_assigned: false,
            checker: load.stamp.map(Checker::new),
            scratch: Vec::new(),
            outcome: ConsumerOutcome {
                records: 0,
                bytes: 0,
                first_ns: None,
                last_ns: 0,
                assigned_ns: 0,
                fetches: 0,
                fetch: histogram(),
                end_to_end: histogram(),
                windows: Vec::new(),
                partitions: BTreeMap::new(),
                findings: Findings::default(),
                cpu: Duration::ZERO,
                errors: Errors::default(),
            },
        })
    }

    async fn read_all(
        &mut self,
        ready: &mpsc::UnboundedSender<Result<(), LoadError>>,
    ) -> Result<(), LoadError> {
        let cpu = thread_cpu();
        while !self.common.is_over(self.load.idle) {
            let Some(consumer) = &mut self.consumer else { break };
            let polled = tokio::select! {
                polled = consumer.poll(self.load.poll) => polled,
                () = self.common.stop.stopped() => break,
            };
            let times = consumer.take_fetch_times();
            self.outcome.fetches += times.len() as u64;
            for time in times {
                note(&mut self.outcome.fetch, time.as_micros() as u64, 1);
            }
            self.look_at_assignment(ready);
            let fetched = match polled {
                Ok(fetched) => fetched,
                Err(error) if error.is_retriable() => {
                    self.outcome.errors.add(&error);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let now_ns = self.common.clock.now_ns();
            for fetched in &fetched {
                self.take(fetched, now_ns)?;
            }
        }
        self.outcome.cpu = thread_cpu().saturating_sub(cpu);
        Ok(())
    }

    /// Tells once that there are partitions, or, without a group, that there are none to get.
    fn look_at_assignment(&mut self, ready: &mpsc::UnboundedSender<Result<(), LoadError>>) {
        let Some(consumer) = self.consumer.as_ref().filter(|_| !self.is_assigned) else { return };
        let partitions = consumer.assignment();
        let placed = partitions.iter().all(|partition| consumer.position(partition).is_some());
        if placed && (!partitions.is_empty() || self.load.group.is_none()) {
            self.is_assigned = true;
            self.outcome.assigned_ns = self.common.clock.now_ns();
            self.common.last_ns.fetch_max(self.outcome.assigned_ns, Ordering::Relaxed);
            self.common.assigned.fetch_add(1, Ordering::Relaxed);
            // The thread that waits for it is gone only when another consumer has failed.
            let _ = ready.send(Ok(()));
        }
    }

    fn take(&mut self, fetched: &Fetched, now_ns: u64) -> Result<(), LoadError> {
        let (topic, partition) = (&*fetched.partition.topic, fetched.partition.partition.0);
        if let Some(checker) = &mut self.checker {
            checker.turn_to(topic, partition);
        }
        let now_unix_ns = self.common.clock.unix_ns(now_ns);
        let (checker, end_to_end) = (&mut self.checker, &mut self.outcome.end_to_end);
        let foreign = |checker: &Option<Checker>| checker.as_ref().map_or(0, Checker::foreign);
        let foreign_before = foreign(checker);
        let (mut bytes, mut longest_us) = (0, 0);
        let count = fetched.for_each(&mut self.scratch, |record| {
            let value_bytes = record.value.map_or(0, <[u8]>::len);
            bytes += value_bytes as u64;
            let stamp = checker.as_mut().and_then(|checker| checker.take(record.value));
            // A short mark does not say which hour it was.
            if let Some(stamp) = stamp.filter(|_| value_bytes >= LONG_BYTES) {
                let time_us = now_unix_ns.saturating_sub(stamp.time_ns) / 1000;
                longest_us = longest_us.max(time_us);
                note(end_to_end, time_us, 1);
            }
        })?;
        let count = count as u64;
        if count > 0 {
            self.count(topic, partition, count, bytes, now_ns);
            let of_other_runs = foreign(&self.checker) - foreign_before;
            self.common.records.fetch_add(count - of_other_runs, Ordering::Relaxed);
            let second = (now_ns / 1_000_000_000) as usize;
            add_to_window(&mut self.outcome.windows, second, count, longest_us);
        }
        Ok(())
    }

    fn count(&mut self, topic: &str, partition: i32, count: u64, bytes: u64, now_ns: u64) {
        let outcome = &mut self.outcome;
        outcome.records += count;
        outcome.bytes += bytes;
        outcome.first_ns.get_or_insert(now_ns);
        outcome.last_ns = now_ns;
        *outcome.partitions.entry((topic.to_owned(), partition)).or_default() += count;
        self.common.last_ns.fetch_max(now_ns, Ordering::Relaxed);
    }

    /// Commits what was read and leaves the group, so that the next run need not wait for it.
    async fn close(&mut self) {
        if let Some(consumer) = self.consumer.take()
            && let Err(error) = consumer.close().await
        {
            self.outcome.errors.add(&error);
        }
    }

    fn outcome(mut self) -> ConsumerOutcome {
        if let Some(checker) = self.checker.take() {
            self.outcome.findings = checker.finish();
        }
        self.outcome
    }
}

/// The partitions of this consumer when there is no group to deal them out.
async fn dealt(
    cluster: &Cluster,
    load: &ConsumeLoad,
    number: u32,
) -> Result<Vec<TopicPartition>, LoadError> {
    let mut all = Vec::new();
    for name in &load.topics {
        let topic = cluster.topic(name).await?;
        all.extend(topic.partitions.iter().map(|p| TopicPartition::new(name.as_str(), p.index)));
    }
    let mine = |(i, _): &(usize, TopicPartition)| *i % load.consumers as usize == number as usize;
    Ok(all.into_iter().enumerate().filter(mine).map(|(_, partition)| partition).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_producers_consumers_end_at_what_these_say() {
        let load = ConsumeLoad { records: 5, ..ConsumeLoad::new("x:1", "t") };
        let hour = Duration::from_secs(3600);
        for (alone, expected) in [(true, true), (false, false)] {
            let common = Common::new(&load, &Stop::default(), alone);
            common.records.store(5, Ordering::Relaxed);
            assert_eq!(common.is_over(hour), expected);
            common.producers_ended(6);
            assert!(!common.is_over(hour));
            common.records.store(6, Ordering::Relaxed);
            assert!(common.is_over(hour));
        }
    }
}
