//! What readers of events get: numbers, each acknowledged before the next one is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use client::{Cluster, Producer, ProducerConfig, Record};
use tokio::runtime::Runtime;

use super::TOPICS;

/// Bytes of a record of each topic.
const RECORD_BYTES: [usize; 2] = [200, 16 << 10];
/// How much is written for those who are stuck: more than the buffers of both sides hold.
const FLOOD_BYTES: usize = 1 << 20;

/// Writes into `news` all the time, and into `flood` when asked.
pub(super) struct Writing {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<()>>>,
}

#[derive(Default)]
struct Shared {
    /// Records that are acknowledged, by topic.
    written: [AtomicU64; 2],
    /// Records of `flood` that are wanted.
    flood: AtomicU64,
    is_over: AtomicBool,
}

impl Writing {
    /// Begins, with so many records of `news` a second.
    pub(super) fn begin(runtime: Runtime, cluster: Cluster, rate: f64) -> Result<Writing> {
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        let write = move || of_thread.write(&runtime, cluster, Duration::from_secs_f64(1.0 / rate));
        let thread = thread::Builder::new().name("writing".to_owned()).spawn(write)?;
        Ok(Writing { shared, thread: Some(thread) })
    }

    /// How many records are acknowledged, by topic.
    pub(super) fn written(&self) -> [u64; 2] {
        [0, 1].map(|topic| self.shared.written[topic].load(SeqCst))
    }

    /// Writes what fills every buffer, soon.
    pub(super) fn flood(&self) {
        self.shared.flood.store(FLOOD_BYTES.div_ceil(RECORD_BYTES[1]) as u64, SeqCst);
    }

    /// Ends it; how much was written.
    pub(super) fn finish(&mut self) -> Result<[u64; 2]> {
        self.shared.is_over.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().ok().context("the thread that writes panicked")??;
        }
        Ok(self.written())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

impl Shared {
    fn write(&self, runtime: &Runtime, cluster: Cluster, every: Duration) -> Result<()> {
        let producer = runtime.block_on(Producer::new(cluster, ProducerConfig::default()))?;
        while !self.is_over.load(SeqCst) {
            let began = Instant::now();
            for (topic, count) in [(0, 1), (1, self.flood.swap(0, SeqCst))] {
                for _ in 0..count {
                    let number = self.written[topic].load(SeqCst);
                    let value = value(topic, number);
                    let record = Record { partition: Some(0), ..Record::value(&value) };
                    runtime.block_on(async {
                        producer.send(TOPICS[topic], &record).await?;
                        producer.flush().await
                    })?;
                    self.written[topic].store(number + 1, SeqCst);
                }
            }
            thread::sleep(every.saturating_sub(began.elapsed()));
        }
        Ok(())
    }
}

/// A record: of which topic, which number, written when, and what makes it as long as it is.
fn value(topic: usize, number: u64) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let mut text = format!("{topic} {number} {now} ").into_bytes();
    text.resize(RECORD_BYTES[topic], b'x');
    text
}
