//! Partitions that are read, and their chunks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Instant;

use client::metadata::Topic;
use client::{Cluster, Fetched, TopicLease};
use model::{TopicId, TopicPartition};
use pools::{Lease, LeasePool};
use serving::events::{Position, Projection, TopicHash};
use tokio::sync::Notify;

use super::budget::Budget;
use super::chunk::{self, Chunk, Of};
use super::counts::Counts;
use crate::share_owner::ShareOwner;

/// Tracks of a feed that have a filter. Each costs a pass over every record.
const FILTERS_MAX: usize = 64;

const CALM: &str = "no code under it panics";

/// A partition that is read. It ends with its last reader.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) partition: TopicPartition,
    /// Readers of the past ask the topic's leaders.
    _lease: TopicLease,
    pub(super) topic_id: TopicId,
    pub(super) topic_hash: TopicHash,
    /// How many partitions the topic had.
    pub(super) partition_count: usize,
    /// Behind the last offset that was read at the end of the log; -1 while that is not known. The tail moves it on.
    end: AtomicI64,
    /// The leader epoch there.
    leader_epoch: AtomicI32,
    /// Whether readers must come again, because the partition is not what it was.
    is_over: AtomicBool,
    tracks: Mutex<HashMap<Arc<Projection>, KnownTrack>>,
    /// A unit for each track with a filter.
    filters: Arc<LeasePool<ShareOwner>>,
    budget: Arc<Budget>,
    counts: Arc<Counts>,
}

/// A track of a feed, until its last reader leaves.
#[derive(Debug)]
struct KnownTrack {
    track: Weak<Track>,
    /// The unit of a track with a filter. Its owner opened the track.
    lease: Option<Lease<ShareOwner>>,
}

impl KnownTrack {
    /// Ends the track if the pool has revoked its lease. Returns whether the track is still of use.
    fn keep(&self) -> bool {
        let Some(track) = self.track.upgrade() else { return false };
        let is_revoked = self.lease.as_ref().is_some_and(Lease::is_revoked);
        if is_revoked {
            track.finish();
        }
        !is_revoked
    }
}

/// A feed as a projection shows it.
#[derive(Debug)]
pub(super) struct Track {
    projection: Arc<Projection>,
    /// Whether the feed ended, because an owner with fewer filters needs the unit of this filter. Readers connect again.
    is_over: AtomicBool,
    /// The first offset that the tail has put in.
    since: AtomicI64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By their first offsets. They may overlap, and have holes: the past is read where readers are.
    chunks: BTreeMap<i64, Arc<Chunk>>,
    /// Who reads the track, by the bell's address.
    bells: HashMap<usize, Arc<Notify>>,
    /// Offsets from which on the past is being read.
    being_read: BTreeSet<i64>,
}

impl Feed {
    /// Where the tail is; `None` while that is not known.
    pub(super) fn end(&self) -> Option<i64> {
        Some(self.end.load(Ordering::Acquire)).filter(|end| *end >= 0)
    }

    /// The leader epoch there; -1 if not known.
    pub(super) fn leader_epoch(&self) -> i32 {
        self.leader_epoch.load(Ordering::Relaxed)
    }

    /// Says where the tail begins. False if another has said so before.
    pub(super) fn begin(&self, at: Position) -> bool {
        let end = &self.end;
        let is_first =
            end.compare_exchange(-1, at.next(), Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_first {
            self.leader_epoch.store(at.leader_epoch, Ordering::Relaxed);
        }
        is_first
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Sends all readers away: they come again, and hear what has changed.
    pub(super) fn finish(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.ring();
    }

    /// Whether [`Feed::track`] would return a track now. Ends no track.
    pub(super) fn has_room(&self, projection: &Arc<Projection>, owner: &ShareOwner) -> bool {
        let mut tracks = self.tracks.lock().expect(CALM);
        tracks.retain(|_, known| known.track.strong_count() > 0);
        projection.filter.is_empty()
            || tracks.contains_key(projection)
            || self.filters.has_room(owner)
    }

    /// The track of this projection. `owner`: of the reader. If all filters are in use, the oldest track of the owner with
    /// the most filters ends. `None`: with one more filter this owner would have as many as that owner.
    pub(super) fn track(
        &self,
        projection: &Arc<Projection>,
        owner: &ShareOwner,
    ) -> Option<Arc<Track>> {
        let mut tracks = self.tracks.lock().expect(CALM);
        if let Some(track) = tracks.get(projection).and_then(|known| known.track.upgrade()) {
            return Some(track);
        }
        tracks.retain(|_, known| known.track.strong_count() > 0);
        let lease = match projection.filter.is_empty() {
            true => None,
            false => Some(self.filters.admit(owner.clone(), 1, Instant::now())?),
        };
        tracks.retain(|_, known| known.keep());
        let track = Arc::new(Track {
            projection: Arc::clone(projection),
            is_over: AtomicBool::new(false),
            since: AtomicI64::new(i64::MAX),
            state: Mutex::default(),
        });
        let known = KnownTrack { track: Arc::downgrade(&track), lease };
        tracks.insert(Arc::clone(projection), known);
        Some(track)
    }

    fn tracks(&self) -> Vec<Arc<Track>> {
        let tracks = self.tracks.lock().expect(CALM);
        tracks.values().filter_map(|known| known.track.upgrade()).collect()
    }

    /// Takes in what the tail has read; where the tail must go on.
    pub(super) fn publish(&self, fetched: &Fetched, buffer: &mut Vec<u8>) -> i64 {
        let tracks = self.tracks();
        let behind = self.take(&tracks, fetched, buffer);
        // A track that came meanwhile lacks this.
        tracks.iter().for_each(|track| {
            track.since.fetch_min(fetched.fetch_offset.0, Ordering::AcqRel);
        });
        self.leader_epoch.store(behind.leader_epoch, Ordering::Relaxed);
        self.end.store(behind.next(), Ordering::Release);
        self.ring();
        behind.next()
    }

    /// Makes chunks of an answer for these tracks; how far they reach.
    pub(super) fn take(
        &self,
        tracks: &[Arc<Track>],
        fetched: &Fetched,
        buffer: &mut Vec<u8>,
    ) -> Position {
        let of = Of {
            topic: &self.partition.topic,
            topic_hash: self.topic_hash,
            partition: self.partition.partition.0,
            budget: &self.budget,
        };
        let projections: Vec<_> = tracks.iter().map(|track| &*track.projection).collect();
        let (made, behind) = chunk::make(&of, fetched, &projections, buffer);
        for (track, chunks) in tracks.iter().zip(made) {
            for chunk in chunks {
                self.counts.encoded.add(chunk.marks.len() as u64);
                let from = track.insert(chunk, &self.budget);
                if let Some(from) = from {
                    self.budget.note(track, from);
                }
            }
        }
        behind
    }

    fn ring(&self) {
        self.tracks().iter().for_each(|track| track.ring());
    }

    pub(super) fn is_short_of_memory(&self) -> bool {
        self.budget.is_over()
    }
}

impl Track {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(CALM)
    }

    /// The chunk with this offset.
    pub(super) fn find(&self, offset: i64) -> Option<Arc<Chunk>> {
        let state = self.state();
        let (_, chunk) = state.chunks.range(..=offset).next_back()?;
        chunk.offsets.contains(&offset).then(|| Arc::clone(chunk))
    }

    /// Puts a chunk in; where, unless it has become a part of another one.
    fn insert(&self, chunk: Chunk, budget: &Arc<Budget>) -> Option<i64> {
        let from = chunk.offsets.start;
        let mut state = self.state();
        let before = state.chunks.range(..from).next_back();
        let before = before.filter(|(_, last)| {
            chunk.marks.is_empty() && last.marks.is_empty() && last.offsets.end == from
        });
        if let Some((&first, last)) = before {
            let stretched = last.stretched(&chunk, budget);
            state.chunks.insert(first, Arc::new(stretched));
            return None;
        }
        state.chunks.insert(from, Arc::new(chunk)).is_none().then_some(from)
    }

    /// Takes a chunk out, unless it has been stretched since this time: then, when that was.
    pub(super) fn forget(&self, from: i64, known: Instant) -> Option<Instant> {
        let mut state = self.state();
        let made_at = state.chunks.get(&from)?.made_at;
        if made_at > known {
            return Some(made_at);
        }
        if let Some(chunk) = state.chunks.remove(&from) {
            chunk.forget();
        }
        None
    }

    /// Whether the tail read this offset before there was the track: a reader that does not find it here is not slow.
    pub(super) fn is_before(&self, offset: i64) -> bool {
        offset < self.since.load(Ordering::Acquire)
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Sends the readers away.
    fn finish(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.ring();
    }

    /// Rings this bell whenever there is something.
    pub(super) fn join(&self, bell: &Arc<Notify>) {
        self.state().bells.insert(Arc::as_ptr(bell) as usize, Arc::clone(bell));
    }

    pub(super) fn leave(&self, bell: &Arc<Notify>) {
        self.state().bells.remove(&(Arc::as_ptr(bell) as usize));
    }

    fn ring(&self) {
        self.state().bells.values().for_each(|bell| bell.notify_one());
    }

    /// Whether a reader reads the past from this offset on.
    pub(super) fn is_being_read(&self, offset: i64) -> bool {
        self.state().being_read.contains(&offset)
    }

    /// The right to read the past from this offset on, unless another reader has it: then the bell rings when that is done.
    pub(super) fn begin_reading(self: &Arc<Track>, offset: i64) -> Option<BeingRead> {
        let is_first = self.state().being_read.insert(offset);
        is_first.then(|| BeingRead { track: Arc::clone(self), offset })
    }
}

/// The past is being read, until this is dropped.
pub(super) struct BeingRead {
    track: Arc<Track>,
    offset: i64,
}

impl Drop for BeingRead {
    fn drop(&mut self) {
        self.track.state().being_read.remove(&self.offset);
        self.track.ring();
    }
}

/// All feeds of a gateway.
#[derive(Debug)]
pub(super) struct Feeds {
    by_partition: Mutex<HashMap<TopicPartition, Weak<Feed>>>,
    budget: Arc<Budget>,
    counts: Arc<Counts>,
}

impl Feeds {
    pub(super) fn new(budget: Arc<Budget>, counts: Arc<Counts>) -> Feeds {
        Feeds { by_partition: Mutex::default(), budget, counts }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.budget.held_bytes()
    }

    /// The feed of a partition of a topic as it is known now.
    pub(super) fn get(&self, cluster: &Cluster, topic: &Topic, partition: i32) -> Arc<Feed> {
        let key = TopicPartition::new(&*topic.name, partition);
        let mut feeds = self.by_partition.lock().expect(CALM);
        let is_same = |feed: &Arc<Feed>| !feed.is_over() && feed.topic_id == topic.id;
        if let Some(feed) = feeds.get(&key).and_then(Weak::upgrade).filter(is_same) {
            return feed;
        }
        feeds.retain(|_, feed| feed.strong_count() > 0);
        let feed = Arc::new(Feed {
            partition: key.clone(),
            _lease: cluster.lease(&topic.name),
            topic_id: topic.id,
            topic_hash: TopicHash::of_id(&topic.id.0),
            partition_count: topic.partitions.len(),
            end: AtomicI64::new(-1),
            leader_epoch: AtomicI32::new(-1),
            is_over: AtomicBool::new(false),
            tracks: Mutex::default(),
            filters: Arc::new(LeasePool::new(FILTERS_MAX)),
            budget: Arc::clone(&self.budget),
            counts: Arc::clone(&self.counts),
        });
        feeds.insert(key, Arc::downgrade(&feed));
        feed
    }
}
