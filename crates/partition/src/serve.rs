//! The leader's half of replication: what a replica's fetch is answered with and what it acknowledges, and what the
//! controller says of the ISR.

use model::{BrokerId, Durability, LeaderEpoch, Moment, Offset};
use replication::{Event, FollowerFetch, IsrAnswer};
use storage::ReadCursor;

use crate::error::PartitionError;
use crate::partition::Partition;
use crate::read::{Isolation, Read, ReadRequest};
use crate::sync::wake;
use crate::sync_queue::Urgency;

/// What a replica asks of one partition.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaRead {
    /// Who asks, from where.
    pub fetch: FollowerFetch,
    /// The leader epoch of its last record.
    pub last_epoch: LeaderEpoch,
    /// Where its last read ended.
    pub cursor: ReadCursor,
    /// Bytes at most, but for one whole batch.
    pub max_bytes: u32,
    /// Whether a first batch that is larger is given all the same.
    pub at_least_one: bool,
}

/// How far another replica of a partition has come, as its leader knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerPlace {
    /// Whose replica.
    pub broker: BrokerId,
    /// Offsets that the leader's log has and that it has not acknowledged; all of them before it fetches in this
    /// leader epoch.
    pub lag: u64,
    /// When it last had everything; `None` if never in this leader epoch.
    pub caught_up: Option<Moment>,
    /// Whether it is in sync.
    pub in_sync: bool,
}

/// The log may begin in the middle of a batch, and the leader epoch before that batch is forgotten then. A replica that ends
/// within that batch has other records there: it must cut its log where the batch begins, or could never take it.
fn part_within_first_batch(asked: &ReplicaRead, read: &mut Read) {
    let Some(slice) = &read.slice else { return };
    let is_first = slice.first_offset < read.log_start;
    if is_first
        && slice.first_offset < asked.fetch.position
        && asked.last_epoch != LeaderEpoch::NONE
    {
        read.diverging = Some((asked.last_epoch, slice.first_offset));
        read.slice = None;
    }
}

impl Partition {
    /// Answers a replica's fetch. Unless the histories part, the fetch is the acknowledgement of everything below its
    /// offset.
    ///
    /// Fails with [`PartitionError::FollowerAhead`] if the replica has records of this very leader epoch that the
    /// leader has not.
    pub fn serve_replica(&self, asked: &ReplicaRead) -> Result<Read, PartitionError> {
        let fetch = asked.fetch;
        let request = ReadRequest {
            cursor: asked.cursor,
            known_epoch: Some(fetch.leader_epoch),
            last_fetched_epoch: Some(asked.last_epoch),
            at_least_one: asked.at_least_one,
            ..ReadRequest::at(fetch.position, asked.max_bytes, Isolation::LogEnd)
        };
        let mut read = match self.read(&request) {
            Err(PartitionError::OutOfRange { offset, log_start, .. }) if offset < log_start => {
                self.read_first_batch(&request, log_start)?
            }
            read => read?,
        };
        part_within_first_batch(asked, &mut read);
        let is_of_this_epoch = asked.last_epoch == fetch.leader_epoch;
        if read.diverging.is_some() && !is_of_this_epoch {
            return Ok(read);
        }
        let mut state = self.lock_briefly()?;
        let effects = state.replica.step(Event::FollowerFetched(fetch));
        let (ahead, is_stale) = (effects.ahead, effects.is_stale);
        read.last_acknowledgement = effects.last_acknowledgement;
        read.high_watermark = state.replica.high_watermark();
        self.publish(state, effects);
        if read.slice.is_some() {
            self.handed_out();
        }
        match (ahead, is_stale) {
            (Some(_), _) => Err(PartitionError::FollowerAhead { position: fetch.position }),
            (None, true) => Err(PartitionError::NotLeader),
            (None, false) => Ok(read),
        }
    }

    /// What a replica gets that asks for offsets before the first one here. Records were deleted up to the middle of a batch
    /// perhaps, and batches are copied whole: it may ask from the offset on at which that batch begins, and is told of
    /// that one as the log's start otherwise.
    fn read_first_batch(
        &self,
        request: &ReadRequest,
        log_start: Offset,
    ) -> Result<Read, PartitionError> {
        // Where the first batch begins, whether there is room for it in this answer or not.
        let from_start = ReadRequest {
            offset: log_start,
            cursor: ReadCursor::default(),
            at_least_one: true,
            last_fetched_epoch: None,
            ..*request
        };
        let mut read = self.read(&from_start)?;
        let first = read.slice.as_ref().map_or(log_start, |slice| slice.first_offset);
        if request.offset >= first {
            let has_room = |size: u32| request.at_least_one || size <= request.max_bytes;
            read.slice = read.slice.filter(|slice| has_room(slice.size_bytes));
            return Ok(read);
        }
        let log_end = self.with_log(storage::Log::log_end_offset);
        Err(PartitionError::OutOfRange { offset: request.offset, log_start: first, log_end })
    }

    /// A replica gets bytes that may not be synced here yet: it will sync them, and so does this broker, at the same
    /// time.
    fn handed_out(&self) {
        let mut state = self.lock();
        let log_end = state.log.log_end_offset();
        state.sync.handed_out = state.sync.handed_out.max(log_end);
        let waker = match state.settings.durability {
            Durability::Fsync => self.demand(&mut state, Urgency::Now),
            Durability::PageCache => None,
        };
        wake(state, waker);
    }

    /// What became of a proposal; see [`Partition::take_proposal`].
    pub fn isr_answered(&self, epoch: LeaderEpoch, partition_epoch: i32, answer: IsrAnswer) {
        let mut state = self.lock();
        let effects = state.replica.step(Event::IsrAnswered(epoch, partition_epoch, answer));
        self.publish(state, effects);
    }

    /// Time has gone by: replicas that lag are looked for.
    pub fn tick(&self, now: Moment) {
        let mut state = self.lock();
        let effects = state.replica.step(Event::Tick(now));
        self.publish(state, effects);
    }

    /// Whether every other replica that may be elected has followed this leader epoch since `since`, if this broker
    /// leads; see [`replication::Leadership::is_followed`]. Under the lock.
    pub fn is_followed(
        &self,
        others: &[BrokerId],
        since: Moment,
        is_here: impl Fn(BrokerId) -> bool,
    ) -> bool {
        let state = self.lock();
        let log_end = state.log.log_end_offset();
        let book = state.replica.leadership();
        book.is_none_or(|book| book.is_followed(others, since, log_end, is_here))
    }

    /// Shows `look` every other replica, if this broker leads: for metrics. Under the lock.
    pub fn look_at_followers(&self, mut look: impl FnMut(FollowerPlace)) {
        let state = self.lock();
        let Some(book) = state.replica.leadership() else { return };
        let (log_start, log_end) = (state.log.log_start_offset(), state.log.log_end_offset());
        for peer in book.peers() {
            let position = peer.position().unwrap_or(log_start);
            look(FollowerPlace {
                broker: peer.broker(),
                lag: (log_end.0 - position.0).max(0) as u64,
                caught_up: peer.caught_up(),
                in_sync: book.isr().contains(&peer.broker()),
            });
        }
    }

    /// Whether the high watermark may be told as the end of the partition; see
    /// [`replication::Replica::is_high_watermark_settled`].
    pub fn is_high_watermark_settled(&self) -> bool {
        self.lock().replica.is_high_watermark_settled()
    }
}
