//! A consumer group of two members that reads while brokers change their program: every acknowledged record must reach the
//! group, in the order of each producer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use client::{Cluster, ClusterConfig, Consumer, ConsumerConfig, OffsetReset};
use perf::load::Stop;

use crate::ledger::{Ledger, Line, Mark, MarkReader};
use crate::requests::runtime;

/// Members of the group.
const MEMBERS: usize = 2;
/// Name of the group.
const GROUP: &str = "upgrade";
/// Time for which the members may lag behind the producers at the end.
const CATCH_UP: Duration = Duration::from_secs(60);
/// Time between two attempts after an error.
const PAUSE: Duration = Duration::from_millis(100);

/// Records that the group has read.
#[derive(Debug, Default)]
pub struct Reading {
    known: BTreeMap<Line, BTreeSet<Mark>>,
    /// Number of the last record of each producer that a member read for the first time.
    last: BTreeMap<(Line, u32), u64>,
    /// Records that a member read again, after a rebalance.
    pub again: u64,
    reordered: u64,
    damaged: u64,
    /// Distinct errors of polls and commits; a member continues after each.
    pub errors: BTreeSet<String>,
}

impl Reading {
    fn note(&mut self, line: &Line, mark: Option<Mark>) {
        let Some(mark) = mark else {
            self.damaged += 1;
            return;
        };
        if !self.known.entry(line.clone()).or_default().insert(mark) {
            self.again += 1;
            return;
        }
        let last = self.last.entry((line.clone(), mark.producer)).or_insert(mark.number);
        self.reordered += u64::from(*last > mark.number);
        *last = mark.number.max(*last);
    }

    /// Acknowledged records that the group has not read.
    fn missing(&self, ledger: &Ledger) -> usize {
        let is_missing = |(line, mark): &(&Line, Mark)| {
            !self.known.get(*line).is_some_and(|marks| marks.contains(mark))
        };
        ledger.acknowledged().filter(is_missing).count()
    }
}

/// A running group.
pub struct Group {
    stop: Stop,
    reading: Arc<Mutex<Reading>>,
    members: Vec<JoinHandle<Result<()>>>,
}

impl Group {
    /// Starts the members. `topics` names the topics, and the form of their values.
    pub fn start(bootstrap: &str, topics: &[(String, MarkReader)]) -> Group {
        let (stop, reading) = (Stop::default(), Arc::<Mutex<Reading>>::default());
        let member = |_| {
            let member = Member {
                bootstrap: bootstrap.to_owned(),
                topics: topics.to_vec(),
                stop: stop.clone(),
                reading: reading.clone(),
            };
            thread::spawn(move || member.run())
        };
        let members = (0..MEMBERS).map(member).collect();
        Group { stop, reading, members }
    }

    /// Waits until the group has read every record of the ledgers, and stops the members.
    ///
    /// # Errors
    /// A record is missing, damaged or out of order.
    pub fn finish(self, ledgers: &[&Ledger]) -> Result<Reading> {
        let deadline = Instant::now() + CATCH_UP;
        let missing = || {
            let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
            ledgers.iter().map(|ledger| reading.missing(ledger)).sum::<usize>()
        };
        while missing() > 0 && Instant::now() < deadline {
            thread::sleep(PAUSE);
        }
        self.stop.stop();
        for member in self.members {
            member.join().map_err(|_| anyhow::anyhow!("a group member panicked"))??;
        }
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = std::mem::take(&mut *reading);
        let missing: usize = ledgers.iter().map(|ledger| reading.missing(ledger)).sum();
        ensure!(
            missing == 0 && reading.damaged == 0 && reading.reordered == 0,
            "the group lacks {missing} acknowledged records, {} are damaged, {} out of order; errors: {:?}",
            reading.damaged,
            reading.reordered,
            reading.errors
        );
        Ok(reading)
    }
}

struct Member {
    bootstrap: String,
    topics: Vec<(String, MarkReader)>,
    stop: Stop,
    reading: Arc<Mutex<Reading>>,
}

impl Member {
    fn run(self) -> Result<()> {
        let runtime = runtime()?;
        let read = runtime.block_on(self.read());
        runtime.shutdown_background();
        read
    }

    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read(self) -> Result<()> {
        let config = ConsumerConfig {
            group_id: Some(GROUP.to_owned()),
            offset_reset: OffsetReset::Earliest,
            auto_commit: Some(Duration::from_millis(500)),
            ..ConsumerConfig::default()
        };
        let cluster = Cluster::connect(ClusterConfig::new(&self.bootstrap)).await?;
        let mut consumer = Consumer::new(cluster, config);
        let names: Vec<&str> = self.topics.iter().map(|(name, _)| name.as_str()).collect();
        consumer.subscribe(&names)?;
        let (mut buffer, mut scratch) = (Vec::new(), Vec::new());
        while !self.stop.is_stopped() {
            let polled = match consumer.poll(PAUSE).await {
                Ok(polled) => polled,
                Err(error) => {
                    self.lock().errors.insert(error.to_string());
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let mut reading = self.lock();
            for fetched in polled {
                let line = (fetched.partition.topic.to_string(), fetched.partition.partition.0);
                let form = self.topics.iter().find(|(name, _)| *name == line.0);
                fetched.for_each(&mut buffer, |record| {
                    let mark = form.zip(record.value);
                    let mark = mark.and_then(|((_, read), value)| read(value, &mut scratch));
                    reading.note(&line, mark);
                })?;
            }
        }
        consumer.close().await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_missing_or_out_of_order_is_counted() {
        let line: Line = ("t".to_owned(), 0);
        let mark = |number| Mark { producer: 0, number };
        let mut ledger = Ledger::default();
        let mut reading = Reading::default();
        for number in [1, 2, 3] {
            ledger.settle(line.clone(), mark(number), Ok(Some(number as i64)));
        }
        for number in [1, 3, 1] {
            reading.note(&line, Some(mark(number)));
        }
        assert_eq!((reading.missing(&ledger), reading.again, reading.reordered), (1, 1, 0));
        reading.note(&line, Some(mark(2)));
        reading.note(&line, None);
        assert_eq!((reading.missing(&ledger), reading.reordered, reading.damaged), (0, 1, 1));
    }
}
