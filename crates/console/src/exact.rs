//! How old the first record is that a group has not read, by its own timestamp: one fetch for a partition, remembered until the
//! group commits further. Only for the group whose page is looked at, and at most 50 fetches a second for all pages.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use client::consumer::look_once;
use client::{Admin, Once};
use model::{Offset, TopicPartition};
use tokio::time::timeout;

use crate::look::Looker;
use crate::snapshot::GroupRow;

/// Fetches a second.
const FETCHES_MAX: u32 = 50;
/// Times that are remembered.
const KEPT_MAX: usize = 10_000;
/// How long a page waits for them; what is not there then is left out.
const PATIENCE: Duration = Duration::from_secs(3);
/// What a broker is asked for; it gives one whole batch at least.
const FETCH_BYTES: i32 = 1024;
/// To how much that may expand.
const EXPANDED_BYTES_MAX: usize = 32 << 20;

/// The timestamps of first unread records, by where they are.
#[derive(Debug, Default)]
pub(crate) struct Exact {
    known: Mutex<HashMap<(TopicPartition, i64), i64>>,
    /// Since when, and how many fetches.
    second: Mutex<Option<(Instant, u32)>>,
}

impl Exact {
    /// The timestamp of the first record that is not read, of each row that has one and of which that can be had in time; in
    /// milliseconds since 1970.
    pub(crate) async fn of(
        &self,
        looker: &Looker,
        rows: &[GroupRow],
    ) -> HashMap<TopicPartition, i64> {
        let mut found = HashMap::new();
        let unread = rows.iter().filter(|row| row.lag().is_some_and(|lag| lag > 0));
        let all = async {
            for row in unread {
                let partition = TopicPartition::new(&*row.topic, row.partition);
                // What retention has passed is not there any more: the first that is counts.
                let begin =
                    row.end.get().unwrap_or(0).saturating_sub_unsigned(row.lag().unwrap_or(0));
                if let Some(at_ms) = self.one(looker, &partition, row.committed.max(begin)).await {
                    found.insert(partition, at_ms);
                }
            }
        };
        // What was found until then is shown.
        let _ = timeout(PATIENCE, all).await;
        found
    }

    async fn one(&self, looker: &Looker, partition: &TopicPartition, offset: i64) -> Option<i64> {
        let name = (partition.clone(), offset);
        if let Some(known) = lock(&self.known).get(&name) {
            return Some(*known);
        }
        if !self.may_fetch(Instant::now()) {
            return None;
        }
        let _permit = looker.readers.acquire().await.expect("the semaphore is never closed");
        let at_ms = first(looker.admin(), partition, offset).await?;
        let mut known = lock(&self.known);
        if known.len() >= KEPT_MAX {
            known.clear();
        }
        known.insert(name, at_ms);
        Some(at_ms)
    }

    fn may_fetch(&self, now: Instant) -> bool {
        let mut second = lock(&self.second);
        match &mut *second {
            Some((since, count)) if now.duration_since(*since) < Duration::from_secs(1) => {
                *count += 1;
                *count <= FETCHES_MAX
            }
            none => {
                *none = Some((now, 1));
                true
            }
        }
    }
}

/// The timestamp of the first record from an offset on.
async fn first(admin: &Admin, partition: &TopicPartition, offset: i64) -> Option<i64> {
    let wish = Once {
        partition: partition.clone(),
        offset: Offset(offset),
        bytes_max: FETCH_BYTES,
        wait: Duration::ZERO,
        read_committed: false,
    };
    let fetched = look_once(admin.cluster(), &wish).await.ok()?;
    let (mut found, mut buffer) = (None, Vec::new());
    let read = fetched.read(EXPANDED_BYTES_MAX, &mut buffer, |record| {
        if record.offset.0 < offset {
            return ControlFlow::Continue(());
        }
        found = Some(record.timestamp.0);
        ControlFlow::Break(())
    });
    read.ok()?;
    found.filter(|at_ms| *at_ms >= 0)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no code under these locks panics")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetches_of_a_second_are_bounded() {
        let (exact, now) = (Exact::default(), Instant::now());
        let allowed = (0..80).filter(|_| exact.may_fetch(now)).count();
        assert_eq!(allowed, FETCHES_MAX as usize);
        assert!(exact.may_fetch(now + Duration::from_secs(1)));
    }
}
