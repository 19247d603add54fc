//! Where readers begin: what they ask for, and what the logs are.

use std::collections::HashMap;
use std::sync::Arc;

use client::{ClientError, Cluster, FoundOffset, OffsetSpec};
use model::{LeaderEpoch, Offset, Timestamp, TopicPartition};
use serving::events::gap::{Log, resume};
use serving::events::id::Place;
use serving::events::{Gap, Position, ResumeId, Start};
use tokio::sync::mpsc;

use super::feed::Feed;
use super::tail::Joining;

/// What a reader wants of one partition.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wish {
    Earliest,
    Latest,
    Time(i64),
    /// To go on behind this position. `is_another`: of a topic that there was before, under the same name.
    Behind {
        position: Position,
        is_another: bool,
    },
}

/// Where a reader begins in one partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    pub(super) position: Position,
    pub(super) gap: Option<Gap>,
    /// The end of the log at that time, if it was asked for.
    pub(super) end: Option<i64>,
}

/// What an id, or else the query, says of a partition.
pub(super) fn wish(start: &Start, id: Option<&ResumeId>, feed: &Feed) -> Wish {
    let (topic, partition) = (&feed.partition.topic, feed.partition.partition.0);
    let at = |offset: i64| {
        let position = Position { offset: offset - 1, leader_epoch: -1 };
        Wish::Behind { position, is_another: false }
    };
    match id.map(|id| id.find(topic, partition)) {
        Some(Some((Place::Behind(position), hash))) => {
            let is_another = hash.is_some_and(|hash| hash != feed.topic_hash);
            Wish::Behind { position, is_another }
        }
        Some(Some((Place::Time(time), _))) => Wish::Time(time),
        // A partition that an id lacks is new since then.
        Some(None) => Wish::Earliest,
        None => match start {
            Start::Earliest => Wish::Earliest,
            Start::Latest => Wish::Latest,
            Start::Offset(offset) => at(*offset),
            Start::Time(time) => Wish::Time(*time),
            Start::Behind(list) => {
                let found = list.iter().find(|(known, _)| *known == partition);
                found.map_or(Wish::Earliest, |(_, offset)| at(*offset))
            }
            Start::Offsets(list) => {
                let found = list.iter().find(|(known, _)| *known == partition);
                found.map_or(Wish::Latest, |(_, offset)| at(*offset))
            }
        },
    }
}

impl Wish {
    /// Whether the place of this wish is known without a request, once the feed has begun.
    pub(super) fn is_at_tail(self) -> bool {
        matches!(self, Wish::Latest)
    }

    /// The same wish for a reader that has begun at `opened_ms`, milliseconds since 1970, before it could be looked up: records
    /// since then are not skipped.
    pub(super) fn since(self, opened_ms: i64) -> Wish {
        match self {
            Wish::Latest => Wish::Time(opened_ms),
            wish => wish,
        }
    }
}

/// Starts each feed that is not started, looks up its missing offsets, and returns the first offset of the reader in each
/// partition. A partition without a leader fails the call: see [`super::place_lookup`].
pub(super) async fn begin(
    cluster: &Cluster,
    tail: &mpsc::UnboundedSender<Joining>,
    wishes: &[(Arc<Feed>, Wish)],
    needs_ends: bool,
) -> Result<Vec<Begun>, ClientError> {
    let ends = ends(cluster, wishes, needs_ends).await?;
    for (feed, _) in wishes {
        if let Some(found) = ends.get(&feed.partition) {
            let end = found.offset.unwrap_or(Offset(0)).0;
            let at = Position { offset: end - 1, leader_epoch: found.leader_epoch.0 };
            if feed.begin(at) {
                // The tail lives as long as the gateway.
                let _ = tail.send(Joining { feed: Arc::downgrade(feed) });
            }
        }
    }
    let found = starts(cluster, wishes).await?;
    let epoch_ends = epoch_ends(cluster, wishes).await?;
    let begun = wishes.iter().map(|(feed, wish)| {
        let key = &feed.partition;
        let end = ends.get(key).and_then(|found| found.offset).map(|end| end.0);
        let log_end = end.or(feed.end()).unwrap_or(0).max(feed.end().unwrap_or(0));
        let found = found.get(key).and_then(|found| found.offset).map(|offset| offset.0);
        let epoch_end = epoch_ends.get(key).copied().flatten().map(|end| end.0);
        place(feed, *wish, log_end, found, epoch_end, end)
    });
    Ok(begun.collect())
}

fn place(
    feed: &Feed,
    wish: Wish,
    log_end: i64,
    found: Option<i64>,
    epoch_end: Option<i64>,
    end: Option<i64>,
) -> Begun {
    let at = |next: i64| Position { offset: next - 1, leader_epoch: -1 };
    match wish {
        Wish::Latest => {
            let position = Position { offset: log_end - 1, leader_epoch: feed.leader_epoch() };
            Begun { position, gap: None, end }
        }
        // Of records that are all older there is none to begin at.
        Wish::Earliest | Wish::Time(_) => {
            Begun { position: at(found.unwrap_or(log_end)), gap: None, end }
        }
        Wish::Behind { position, is_another } => {
            // What retention has passed is found out by reading it.
            let start = found.unwrap_or(0);
            let log = Log { start, end: log_end, epoch_end, is_another };
            let (next, gap) = resume(position, log);
            let position = if gap.is_some() { at(next) } else { position };
            Begun { position, gap, end }
        }
    }
}

/// The ends of logs that are not known well enough.
async fn ends(
    cluster: &Cluster,
    wishes: &[(Arc<Feed>, Wish)],
    needs_ends: bool,
) -> Result<HashMap<TopicPartition, FoundOffset>, ClientError> {
    let unknown = wishes.iter().filter(|(feed, wish)| {
        let is_beyond = |end: i64| {
            matches!(wish, Wish::Behind { position, is_another: false } if position.next() > end)
        };
        needs_ends || feed.end().is_none_or(is_beyond)
    });
    let wanted = unknown.map(|(feed, _)| (feed.partition.clone(), OffsetSpec::Latest));
    ask(cluster, wanted.collect()).await
}

/// First offsets, by what is wanted.
async fn starts(
    cluster: &Cluster,
    wishes: &[(Arc<Feed>, Wish)],
) -> Result<HashMap<TopicPartition, FoundOffset>, ClientError> {
    let wanted = wishes.iter().filter_map(|(feed, wish)| {
        let spec = match wish {
            Wish::Earliest | Wish::Behind { is_another: true, .. } => OffsetSpec::Earliest,
            Wish::Time(time) => OffsetSpec::AtOrAfter(Timestamp(*time)),
            Wish::Latest | Wish::Behind { .. } => return None,
        };
        Some((feed.partition.clone(), spec))
    });
    ask(cluster, wanted.collect()).await
}

async fn ask(
    cluster: &Cluster,
    wanted: Vec<(TopicPartition, OffsetSpec)>,
) -> Result<HashMap<TopicPartition, FoundOffset>, ClientError> {
    if wanted.is_empty() {
        return Ok(HashMap::new());
    }
    client::offsets::list_offsets(cluster, &wanted, true).await
}

/// Where the leader epochs of ids have ended, if others have begun since.
async fn epoch_ends(
    cluster: &Cluster,
    wishes: &[(Arc<Feed>, Wish)],
) -> Result<HashMap<TopicPartition, Option<Offset>>, ClientError> {
    let metadata = cluster.metadata();
    let wanted = wishes.iter().filter_map(|(feed, wish)| {
        let Wish::Behind { position, is_another: false } = wish else { return None };
        let index = usize::try_from(feed.partition.partition.0).ok()?;
        let topic = metadata.topics.get(&feed.partition.topic)?;
        let now = topic.partitions.get(index)?.leader_epoch.0.max(feed.leader_epoch());
        let is_old = position.leader_epoch >= 0 && position.leader_epoch < now;
        is_old.then(|| (feed.partition.clone(), LeaderEpoch(position.leader_epoch)))
    });
    let wanted: Vec<_> = wanted.collect();
    if wanted.is_empty() {
        return Ok(HashMap::new());
    }
    client::offsets::epoch_ends(cluster, &wanted).await
}

/// Where a reader goes on whose place is outside of the log.
pub(super) async fn within(
    cluster: &Cluster,
    partition: &TopicPartition,
    position: Position,
) -> Result<(Position, Option<Gap>), ClientError> {
    let mut found = [OffsetSpec::Earliest, OffsetSpec::Latest].map(|_| 0);
    for (at, spec) in [OffsetSpec::Earliest, OffsetSpec::Latest].into_iter().enumerate() {
        let asked = ask(cluster, vec![(partition.clone(), spec)]).await?;
        found[at] =
            asked.get(partition).and_then(|found| found.offset).map_or(0, |offset| offset.0);
    }
    let [start, end] = found;
    let (next, gap) = resume(position, Log { start, end, epoch_end: None, is_another: false });
    Ok(match gap {
        Some(_) => (Position { offset: next - 1, leader_epoch: -1 }, gap),
        None => (position, None),
    })
}
