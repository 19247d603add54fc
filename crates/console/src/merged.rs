//! Records of all partitions of a topic as one list, by time: the newest, or those from a moment or an offset on. What
//! one partition does not give is said beside what the others have.

use client::Admin;
use tokio::time::timeout;

use crate::look::Looker;
use crate::records::{Asked, Found, From, PATIENCE, Row, Unread, read_at, whereabouts};

/// Partitions that are read for one list.
const PARTITIONS_MAX: usize = 64;

/// Records of several partitions.
#[derive(Debug)]
pub(crate) struct Merged {
    /// The newest first, or the oldest; never more than are wanted.
    pub(crate) rows: Vec<Row>,
    pub(crate) newest_first: bool,
    /// Partitions that could not be read, and why.
    pub(crate) lacking: Vec<(i32, String)>,
    count: usize,
}

impl Merged {
    fn of(asked: &Asked) -> Merged {
        let newest_first = asked.from == From::Last;
        Merged { rows: Vec::new(), newest_first, lacking: Vec::new(), count: asked.count }
    }

    /// Takes what one partition has, and drops what is not among the first any more.
    fn add(&mut self, index: i32, found: Result<Found, String>) {
        match found {
            Ok(found) => self.rows.extend(found.rows),
            Err(why) => self.lacking.push((index, why)),
        }
        let place = |row: &Row| (row.timestamp_ms, row.partition, row.offset);
        self.rows.sort_by_key(place);
        if self.newest_first {
            self.rows.reverse();
        }
        self.rows.truncate(self.count);
    }
}

/// Why so many partitions are not read together; `None` if they are.
pub(crate) fn too_many(partitions: usize) -> Option<String> {
    (partitions > PARTITIONS_MAX).then(|| {
        format!(
            "the topic has {partitions} partitions, and records of at most {PARTITIONS_MAX} are shown together: choose one"
        )
    })
}

/// Reads so many partitions of a topic, one after the other.
///
/// # Errors
/// Nothing can be said of the topic, or it takes too long.
pub(crate) async fn read(
    looker: &Looker,
    asked: &Asked,
    partitions: usize,
) -> Result<Merged, Unread> {
    let reading = async {
        let _permit = looker.readers.acquire().await.expect("the semaphore is never closed");
        read_each(looker.admin(), asked, partitions).await
    };
    let slow = |_| {
        let s = PATIENCE.as_secs();
        Unread::Because(format!(
            "the records could not be read within {s} s: ask for fewer, or for one partition"
        ))
    };
    timeout(PATIENCE, reading).await.map_err(slow)?
}

async fn read_each(admin: &Admin, asked: &Asked, partitions: usize) -> Result<Merged, Unread> {
    let metadata = whereabouts(admin, &asked.topic).await?;
    let mut merged = Merged::of(asked);
    for index in (0..).take(partitions) {
        merged.add(index, read_at(admin, &metadata, asked, index).await);
    }
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::text::shown;

    fn found(partition: i32, times: &[i64]) -> Result<Found, String> {
        let row = |(offset, at): (i64, &i64)| Row {
            partition,
            offset,
            timestamp_ms: *at,
            key: shown(None),
            value: shown(None),
            size_bytes: 0,
            headers: Vec::new(),
        };
        let rows = (0..).zip(times).map(row).collect();
        Ok(Found { rows, start: 0, end: 0, from: 0, next: 0 })
    }

    fn places(from: From) -> Vec<(i32, i64)> {
        let asked =
            Asked { topic: "t".to_owned(), partition: None, from, count: 3, read_committed: false };
        let mut merged = Merged::of(&asked);
        merged.add(0, found(0, &[10, 40, 50]));
        merged.add(1, Err("no leader".to_owned()));
        merged.add(2, found(2, &[20, 40]));
        assert_eq!(merged.lacking, [(1, "no leader".to_owned())]);
        merged.rows.iter().map(|row| (row.partition, row.offset)).collect()
    }

    #[test]
    fn records_of_all_partitions_are_in_the_order_of_their_times() {
        assert_eq!(places(From::Last), [(0, 2), (2, 1), (0, 1)]);
        assert_eq!(places(From::Offset(0)), [(0, 0), (2, 0), (0, 1)]);
    }
}
