//! Our own client as a producer under kills, on a thread of this program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use client::{Cluster, ClusterConfig, Producer, ProducerConfig, Record};
use experiment::failover::Acknowledged;
use tokio::task::JoinSet;
use tokio::time::{self, MissedTickBehavior};

use super::journal::{Journal, now_us};
use super::producing::{Task, value};
use crate::admin::block_on;

/// No partition is asked for yet.
const NONE: i32 = -1;

/// What is asked of the thread.
#[derive(Debug)]
struct Asked {
    partition: AtomicI32,
    stopped: AtomicBool,
}

/// The producer; stopped and waited for when dropped.
#[derive(Debug)]
pub(super) struct Native {
    asked: Arc<Asked>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Native {
    pub(super) fn start(task: Task, journal: Journal) -> Result<Native> {
        let asked =
            Arc::new(Asked { partition: AtomicI32::new(NONE), stopped: AtomicBool::new(false) });
        let of_thread = asked.clone();
        let produce = move || match block_on(produce(&task, &of_thread, &journal)) {
            Ok(()) => journal.end("it was stopped"),
            Err(error) => journal.end(&format!("{error:#}")),
        };
        let thread = thread::Builder::new().name("failover-highwater".to_owned()).spawn(produce)?;
        Ok(Native { asked, thread: Some(thread) })
    }

    pub(super) fn turn_to(&self, partition: i32) {
        self.asked.partition.store(partition, Ordering::Relaxed);
    }

    pub(super) fn stop(&mut self) {
        self.asked.stopped.store(true, Ordering::Relaxed);
        // A panic of it has been reported, and the journal has no end: the session says so.
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn produce(task: &Task, asked: &Asked, journal: &Journal) -> Result<()> {
    let cluster = Cluster::connect(ClusterConfig::new(&task.bootstrap)).await?;
    let producer = Producer::new(cluster, ProducerConfig::default()).await?;
    let topic = producer.topic(&task.topic).await.context("it does not find its topic")?;
    journal.ready(env!("CARGO_PKG_VERSION"));
    let mut ticks = time::interval(Duration::from_secs_f64(1.0 / task.rate));
    // What is late is sent at once: the rate does not depend on answers.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut waiting, mut sequence) = (JoinSet::new(), 0);
    while !asked.stopped.load(Ordering::Relaxed) {
        ticks.tick().await;
        while waiting.try_join_next().is_some() {}
        let partition = asked.partition.load(Ordering::Relaxed);
        if partition == NONE {
            continue;
        }
        let value = value(sequence, task.record_bytes);
        let record = Record { partition: Some(partition), ..Record::value(value.as_bytes()) };
        match topic.send(&record).await {
            Err(error) => journal.fail(&error.to_string()),
            Ok(delivery) => {
                let journal = journal.clone();
                waiting.spawn(async move {
                    match delivery.wait().await {
                        Err(error) => journal.fail(&error.to_string()),
                        Ok(offset) => journal.acknowledge(Acknowledged {
                            sequence,
                            partition,
                            offset: offset.map(|offset| offset.0),
                            at_us: now_us(),
                        }),
                    }
                });
            }
        }
        sequence += 1;
    }
    while waiting.join_next().await.is_some() {}
    Ok(())
}
