//! The copies of partitions: who is in sync by what the brokers say, and whether their files hold the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use client::admin::NewTopic;
use client::{Admin, Cluster, ClusterConfig};
use model::batch::Batches;
use peer::highwater;

use crate::ledger::Line;
use crate::requests::{self, runtime};

/// Between two looks at the metadata.
const LOOK: Duration = Duration::from_millis(20);

/// Creates topics, name and number of partitions, with a copy on each of `brokers`; returns all partitions.
pub fn create_topics(
    bootstrap: &str,
    topics: &[(&str, i32)],
    brokers: usize,
    configs: &[(&str, &str)],
) -> Result<Vec<Line>> {
    let configs: Vec<(String, String)> =
        configs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    runtime()?.block_on(async {
        let admin = Admin::new(Cluster::connect(ClusterConfig::new(bootstrap)).await?);
        for (name, partitions) in topics {
            let topic = NewTopic::new(name, *partitions, brokers as i16);
            admin.create_topic(&NewTopic { configs: configs.clone(), ..topic }).await?;
        }
        anyhow::Ok(())
    })?;
    let lines = topics.iter().flat_map(|(name, partitions)| {
        (0..*partitions).map(|partition| ((*name).to_owned(), partition))
    });
    Ok(lines.collect())
}

/// Waits until a broker, counted from 0, says of each of these partitions that `is_so`: with its leader and the ids of those that
/// are in sync. Says how long that took.
///
/// # Errors
/// It does not within that time, or a broker ends meanwhile.
pub fn wait_until(
    cluster: &mut highwater::Cluster,
    index: usize,
    lines: &[Line],
    within: Duration,
    what: &str,
    is_so: impl Fn(i32, &[i32]) -> bool,
) -> Result<Duration> {
    let (began, address) = (Instant::now(), cluster.address(index));
    loop {
        let said = runtime()?.block_on(states(&address, lines));
        let wrong = match &said {
            Ok(states) => states.iter().find(|(_, leader, in_sync)| !is_so(*leader, in_sync)),
            Err(_) => None,
        };
        if said.is_ok() && wrong.is_none() {
            return Ok(began.elapsed());
        }
        if let Some(words) = cluster.ended() {
            bail!("{what}: {words}");
        }
        ensure!(
            began.elapsed() < within,
            "{what}: not within {within:?}; {}",
            match (wrong, said.as_ref().err()) {
                (Some((line, leader, in_sync)), _) =>
                    format!("{}-{} has leader {leader}, in sync are {in_sync:?}", line.0, line.1),
                (None, error) => format!("{address} says {error:?}"),
            }
        );
        thread::sleep(LOOK);
    }
}

/// Leader and in-sync replicas of each partition.
pub async fn states(address: &str, lines: &[Line]) -> Result<Vec<(Line, i32, Vec<i32>)>> {
    let connection = requests::connect(address).await?;
    let metadata = requests::metadata(&connection).await?;
    let state = |line: &Line| {
        let topic = metadata.topics.iter().find(|topic| topic.name.as_deref() == Some(&line.0));
        let mut partitions = topic.into_iter().flat_map(|topic| &topic.partitions);
        let partition = partitions.find(|partition| partition.partition_index == line.1);
        let partition =
            partition.with_context(|| format!("{}-{} is not listed", line.0, line.1))?;
        Ok((line.clone(), partition.leader_id, partition.isr_nodes.clone()))
    };
    lines.iter().map(state).collect()
}

/// Waits until every broker of the cluster says that all of them are in sync, in all these partitions.
pub fn wait_until_all_in_sync(
    cluster: &mut highwater::Cluster,
    lines: &[Line],
    within: Duration,
) -> Result<Duration> {
    let began = Instant::now();
    let count = cluster.count();
    for index in 0..count {
        wait_until(
            cluster,
            index,
            lines,
            within.saturating_sub(began.elapsed()),
            "every replica is in sync",
            |leader, in_sync| leader > 0 && in_sync.len() == count,
        )?;
    }
    Ok(began.elapsed())
}

/// Compares the copies of these partitions in the data folders of stopped brokers, byte by byte; how many bytes each has.
///
/// Copies are cut into segments in different places. Nothing may have been compacted or deleted: each replica does
/// that by itself.
pub fn compare(cluster: &highwater::Cluster, lines: &[Line]) -> Result<u64> {
    let mut size_bytes = 0;
    for (topic, partition) in lines {
        let name = format!("{topic}-{partition}");
        let first = log(&cluster.data_folder(0).join(&name))?;
        for index in 1..cluster.count() {
            let other = log(&cluster.data_folder(index).join(&name))?;
            if let Some(difference) = difference(&first, &other) {
                bail!("{name} differs between brokers 1 and {}: {difference}", index + 1);
            }
        }
        size_bytes += first.len() as u64;
    }
    Ok(size_bytes)
}

/// All batches of a partition's folder, one behind the other.
fn log(folder: &Path) -> Result<Vec<u8>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("no folder {}", folder.display()))?;
    let mut segments: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ending| ending == "log"))
        .collect();
    segments.sort();
    let mut all = Vec::new();
    for segment in segments {
        all.extend(fs::read(segment)?);
    }
    Ok(all)
}

/// Where two logs begin to differ, in words.
fn difference(one: &[u8], other: &[u8]) -> Option<String> {
    if one == other {
        return None;
    }
    let mut pairs = Batches::new(one).zip(Batches::new(other));
    let unequal = pairs.find(|pair| !matches!(pair, (Ok(one), Ok(other)) if one.1 == other.1));
    let ends =
        |bytes| Batches::new(bytes).map_while(Result::ok).last().map(|(h, _)| h.next_offset());
    Some(match unequal {
        Some((Ok((one, _)), Ok((other, _)))) => format!(
            "a batch at offset {} of epoch {} beside one at {} of epoch {}",
            one.base_offset.0, one.leader_epoch.0, other.base_offset.0, other.leader_epoch.0
        ),
        Some((one, other)) => format!(
            "{:?} beside {:?}",
            one.map(|(header, _)| header),
            other.map(|(header, _)| header)
        ),
        None => format!(
            "{} bytes up to {:?} beside {} bytes up to {:?}",
            one.len(),
            ends(one),
            other.len(),
            ends(other)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_shorter_or_other_differs() {
        assert_eq!(difference(b"", b""), None);
        let difference = difference(b"", b"garbage").unwrap();
        assert!(difference.starts_with("0 bytes up to None beside 7 bytes"), "{difference}");
    }

    #[test]
    fn segments_are_read_in_their_order_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("10.log", "b"), ("00.log", "a"), ("00.index", "x"), ("20.log", "c")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(log(folder.path()).unwrap(), b"abc");
        assert!(log(&folder.path().join("absent")).is_err());
    }
}
