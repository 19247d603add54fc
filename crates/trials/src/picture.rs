//! What a broker answers about everything that it holds: topics, first and last offsets, batches, commits. Two pictures are
//! compared to say whether a data folder is served as before.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use client::Connection;
use model::ErrorCode;
use model::batch::{BatchHeader, HEADER_BYTES};

use crate::requests::{self, PATIENCE};

/// How long a broker that has told of damage may load what it then refuses for good or serves.
const LOADING: Duration = Duration::from_secs(4);

/// A topic, by name, and one of its partitions.
pub type Name = (String, i32);

/// What a broker answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// Topics with their ids and numbers of partitions.
    topics: BTreeMap<String, (String, usize)>,
    partitions: BTreeMap<Name, Partition>,
    /// By group; the error if its coordinator refuses.
    commits: BTreeMap<String, Result<BTreeMap<Name, i64>, ErrorCode>>,
}

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Partition {
    Refused(ErrorCode),
    Served {
        earliest: i64,
        latest: i64,
        /// Every batch that passed its check.
        batches: Vec<Batch>,
        /// Reading ended at bytes that a consumer recognises as damaged.
        told: bool,
    },
}

/// A batch that passed the check of its checksum, by what tells it from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Batch {
    base_offset: i64,
    size_bytes: u32,
    leader_epoch: i32,
    crc: u32,
}

/// How a picture differs from that of the undamaged folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// Not at all.
    AsBefore,
    /// Only in bytes that fail a consumer's own check.
    ConsumerTells,
    /// Partitions or groups are refused, the rest is as before.
    Refused,
    /// Something is served that is not so.
    Wrong(String),
}

impl Picture {
    /// Asks the broker about everything, and about the commits of these groups. `has_told` says whether the broker has
    /// told of damage: before that a refusal may be one of a broker that still loads.
    pub async fn take(
        address: &str,
        groups: &[&str],
        has_told: &impl Fn() -> bool,
    ) -> Result<Picture> {
        let connection = requests::connect(address).await?;
        let metadata = requests::metadata(&connection).await?;
        let mut picture = Picture {
            topics: BTreeMap::new(),
            partitions: BTreeMap::new(),
            commits: BTreeMap::new(),
        };
        for topic in &metadata.topics {
            let name = topic.name.clone().unwrap_or_default();
            let known = (topic.topic_id.to_string(), topic.partitions.len());
            picture.topics.insert(name.clone(), known);
            for index in 0..topic.partitions.len() as i32 {
                let partition = partition(&connection, &name, index).await?;
                picture.partitions.insert((name.clone(), index), partition);
            }
        }
        for group in groups {
            let commits = commits(&connection, group, has_told).await?;
            picture.commits.insert((*group).to_owned(), commits);
        }
        Ok(picture)
    }

    /// How many records' batches there are in all.
    pub fn batch_count(&self) -> usize {
        let served = self.partitions.values().map(|partition| match partition {
            Partition::Served { batches, .. } => batches.len(),
            Partition::Refused(_) => 0,
        });
        served.sum()
    }

    /// Whether everything is served.
    pub fn is_whole(&self) -> bool {
        let served =
            |partition: &Partition| matches!(partition, Partition::Served { told: false, .. });
        self.partitions.values().all(served) && self.commits.values().all(Result::is_ok)
    }

    /// How `found` differs from `self`, the picture of the undamaged folder.
    pub fn compare(&self, found: &Picture) -> Difference {
        if self.topics != found.topics {
            return Difference::Wrong(format!(
                "topics {:?} became {:?}",
                self.topics, found.topics
            ));
        }
        let partitions =
            self.partitions.iter().map(|(name, before)| match found.partitions.get(name) {
                Some(after) => before.compare(after, name),
                None => Difference::Wrong(format!("{name:?} is gone")),
            });
        let commits = self.commits.iter().map(|(group, before)| match found.commits.get(group) {
            Some(Err(code)) if before.is_ok() && is_refusal(*code) => Difference::Refused,
            Some(after) if after == before => Difference::AsBefore,
            after => Difference::Wrong(format!("commits of {group}: {before:?} became {after:?}")),
        });
        partitions.chain(commits).max().unwrap_or(Difference::AsBefore)
    }
}

/// One line for each topic, partition and commit: the same text means the same picture.
impl fmt::Display for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (topic, (id, partitions)) in &self.topics {
            writeln!(f, "topic {topic} {id} {partitions}")?;
        }
        for ((topic, index), partition) in &self.partitions {
            write!(f, "partition {topic}-{index} {}", partition.brief())?;
            if let Partition::Served { batches, .. } = partition {
                batches.iter().try_for_each(|b| write!(f, " {}:{:08x}", b.base_offset, b.crc))?;
            }
            writeln!(f)?;
        }
        for (group, commits) in &self.commits {
            writeln!(f, "commits {group} {commits:?}")?;
        }
        Ok(())
    }
}

impl Partition {
    fn compare(&self, after: &Partition, name: &Name) -> Difference {
        if self == after {
            return Difference::AsBefore;
        }
        match (self, after) {
            (_, Partition::Refused(code)) if is_refusal(*code) => Difference::Refused,
            (
                Partition::Served { earliest, latest, batches, .. },
                Partition::Served { earliest: first, latest: last, batches: read, told: true },
            ) if (earliest, latest) == (first, last) && batches.starts_with(read) => {
                Difference::ConsumerTells
            }
            _ => Difference::Wrong(format!("{name:?}: {} became {}", self.brief(), after.brief())),
        }
    }

    fn brief(&self) -> String {
        match self {
            Partition::Refused(code) => format!("{code}"),
            Partition::Served { earliest, latest, batches, told } => {
                format!("{earliest}..{latest} in {} batches, damage told: {told}", batches.len())
            }
        }
    }
}

/// Codes that say that something is there and cannot be served.
fn is_refusal(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::KafkaStorageError
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator
    )
}

async fn partition(connection: &Connection, topic: &str, index: i32) -> Result<Partition> {
    let begun = Instant::now();
    let (earliest, latest) = loop {
        let earliest = requests::list_offset(connection, topic, index, -2).await?;
        let latest = requests::list_offset(connection, topic, index, -1).await?;
        match (earliest, latest) {
            (Ok(earliest), Ok(latest)) => break (earliest, latest),
            (Err(code), _) | (_, Err(code)) if is_refusal(code) || begun.elapsed() > PATIENCE => {
                return Ok(Partition::Refused(code));
            }
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    read(connection, topic, index, earliest, latest).await
}

/// Reads all batches as a consumer does that checks what it gets.
async fn read(
    connection: &Connection,
    topic: &str,
    index: i32,
    earliest: i64,
    latest: i64,
) -> Result<Partition> {
    let (mut batches, mut next, mut told) = (Vec::new(), earliest, false);
    while next < latest && !told {
        let data = requests::fetch(connection, topic, index, next).await?;
        if data.error() != ErrorCode::None {
            return Ok(Partition::Refused(data.error()));
        }
        let bytes = data.records.unwrap_or_default();
        if bytes.is_empty() {
            break;
        }
        (next, told) = take_in(&bytes, next, &mut batches);
    }
    Ok(Partition::Served { earliest, latest, batches, told })
}

/// Notes the batches in `bytes` that begin behind what was read; gives where the next one begins, and whether a consumer tells
/// that something is wrong: a checksum that fails, bytes that are no batch, a batch that does not hold the offset asked for.
fn take_in(mut bytes: &[u8], from: i64, batches: &mut Vec<Batch>) -> (i64, bool) {
    let mut next = from;
    while bytes.len() >= HEADER_BYTES {
        match BatchHeader::decode_checked(bytes) {
            Ok(header) if header.last_offset().0 < next => {
                bytes = &bytes[header.size_bytes as usize..]
            }
            Ok(header) => {
                let (base_offset, size_bytes) = (header.base_offset.0, header.size_bytes);
                let leader_epoch = header.leader_epoch.0;
                batches.push(Batch { base_offset, size_bytes, leader_epoch, crc: header.crc });
                next = header.next_offset().0;
                bytes = &bytes[size_bytes as usize..];
            }
            Err(model::batch::BatchError::Truncated { .. }) if next > from => return (next, false),
            Err(_) => return (next, true),
        }
    }
    (next, next == from)
}

async fn commits(
    connection: &Connection,
    group: &str,
    has_told: &impl Fn() -> bool,
) -> Result<Result<BTreeMap<Name, i64>, ErrorCode>> {
    let begun = Instant::now();
    loop {
        let answer = requests::committed(connection, group).await?;
        let code = answer.error();
        let partitions = answer.topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(move |p| ((topic.name.clone(), p.partition_index), p))
        });
        let limit = if is_refusal(code) && has_told() { LOADING } else { PATIENCE };
        let late = begun.elapsed() > limit;
        match code {
            ErrorCode::None => {
                return Ok(Ok(partitions.map(|(name, p)| (name, p.committed_offset)).collect()));
            }
            _ if late && is_refusal(code) => return Ok(Err(code)),
            _ if late => bail!("commits of {group}: {code} for {PATIENCE:?}"),
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(latest: i64, batches: &[i64], told: bool) -> Picture {
        let batch =
            |base: &i64| Batch { base_offset: *base, size_bytes: 70, leader_epoch: 0, crc: 1 };
        let batches = batches.iter().map(batch).collect();
        let partition = Partition::Served { earliest: 0, latest, batches, told };
        Picture {
            topics: BTreeMap::from([("t".to_owned(), ("id".to_owned(), 1))]),
            partitions: BTreeMap::from([(("t".to_owned(), 0), partition)]),
            commits: BTreeMap::from([("g".to_owned(), Ok(BTreeMap::new()))]),
        }
    }

    #[test]
    fn what_is_gone_is_wrong_and_what_is_refused_or_told_is_not() {
        let before = picture(3, &[0, 1, 2], false);
        assert_eq!(before.compare(&before), Difference::AsBefore);
        assert_eq!(before.compare(&picture(3, &[0], true)), Difference::ConsumerTells);
        for wrong in [picture(1, &[0], false), picture(3, &[0, 2], true), picture(1, &[0], true)] {
            assert!(matches!(before.compare(&wrong), Difference::Wrong(_)), "{wrong}");
        }
        let mut refused = before.clone();
        let offline = Partition::Refused(ErrorCode::KafkaStorageError);
        refused.partitions.insert(("t".to_owned(), 0), offline);
        assert_eq!(before.compare(&refused), Difference::Refused);
        refused.commits.insert("g".to_owned(), Ok(BTreeMap::from([(("t".to_owned(), 0), 5)])));
        assert!(matches!(before.compare(&refused), Difference::Wrong(_)));
        let mut gone = before.clone();
        gone.topics.clear();
        assert!(matches!(before.compare(&gone), Difference::Wrong(_)));
    }
}
