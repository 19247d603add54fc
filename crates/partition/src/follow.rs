//! The follower's half: what it asks its leader for, and how it takes in what comes.
//!
//! A follower believes no byte that it has not checked: length, checksum, offsets and leader epochs, before the
//! lock. It judges no producer: that was the leader's business, and the leader's verdict is replicated.

use model::batch::HEADER_BYTES;
use model::{BatchHeader, LeaderEpoch, Offset, Timestamp};
use replication::{
    Divergence, EpochEnd, Event, FetchFrom, LeaderAnswer, Next, RefusedTruncation, Truncation,
};
use storage::{CutTicket, Log};

use crate::error::PartitionError;
use crate::partition::{LockPatience, Partition, State};
use crate::sync_queue::Urgency;

/// What a follower asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaFetch {
    /// Whom, from where, in which leader epoch.
    pub from: FetchFrom,
    /// The leader epoch of its last record, by which the leader finds out whether the histories part (KIP-595);
    /// [`LeaderEpoch::NONE`] without records. Not the newest one known: in that one nothing may be written.
    pub last_epoch: LeaderEpoch,
    /// Its first offset, durable: by this report the leader acknowledges deletions.
    pub log_start: Offset,
}

/// What a leader answered.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaAnswer<'a> {
    /// The leader epoch in which it was asked.
    pub asked_in: LeaderEpoch,
    /// The last leader epoch in common, and where it ends at the leader, if the histories part.
    pub diverging: Option<(LeaderEpoch, Offset)>,
    /// The leader's high watermark.
    pub high_watermark: Offset,
    /// The leader's first offset.
    pub log_start: Offset,
    /// Whole batches; a part of one at the end is left.
    pub records: &'a [u8],
}

/// Whether a follower that is behind its leader's log start may drop its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartOverVerdict {
    /// The leader epoch is over, or the log must be cut first.
    Stale,
    /// The log may be dropped ([`Partition::start_over`]).
    Due {
        /// The log has records that a lost majority of the metadata quorum may have committed, and an unclean election allowed
        /// that they are lost.
        takes_committed: bool,
    },
    /// A lost majority of the metadata quorum may have committed records of the log: the follower keeps it, and fetches nothing in this
    /// leader epoch.
    Refused(RefusedTruncation),
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// It was of another leader epoch, or the log must be cut first: nothing of it was used.
    Stale,
    /// The log must be cut before anything is asked again.
    Cut(Truncation),
    /// The leader lacks committed records of this log: nothing is truncated, and nothing is fetched in this leader epoch.
    Refused(RefusedTruncation),
    /// The leader has deleted all records that would prove this log equal to its own, and no record of the answer was appended. The
    /// follower must drop its log, which then starts at this offset, its end ([`Partition::start_over`]).
    StartOver(Offset),
    /// Offsets are missing in what the leader has, as compaction or a mending leaves them, and nothing of this log says yet that it
    /// may have such gaps: nothing was appended. To be asked for again behind [`Partition::allow_gaps`].
    Gaps,
    /// It is appended.
    Appended {
        /// Where the log ends now.
        log_end: Offset,
        /// Records below are deleted at the leader.
        delete_below: Option<Offset>,
    },
}

impl Partition {
    /// What this replica does next as a follower.
    pub fn next(&self) -> Next {
        self.lock().replica.next()
    }

    /// What this follower asks its leader for now, if it asks.
    pub fn replica_fetch(&self) -> Option<ReplicaFetch> {
        let state = self.lock();
        let Next::Ask(from) = state.replica.next() else { return None };
        let log_start = state.log.log_start_offset();
        let last = Offset(from.offset.0 - 1);
        let last_epoch = match from.offset > log_start {
            true => state.log.epoch_at(last),
            false => LeaderEpoch::NONE,
        };
        let log_start = state.replica.durable_log_start();
        Some(ReplicaFetch { from, last_epoch, log_start })
    }

    /// Takes the leader's answer in: appends what it carries, as it stands.
    ///
    /// Fails with [`PartitionError::Batch`] if the bytes are damaged and [`PartitionError::Replicated`] if they are
    /// not what follows here; at most batches in front of those are appended then.
    pub fn follow_answer(
        &self,
        answer: &ReplicaAnswer<'_>,
        now: Timestamp,
    ) -> Result<Followed, PartitionError> {
        let (headers, size) = check_batches(answer)?;
        let segment_bytes = self.settings().log.segment_bytes as u64;
        let (mut rest, mut headers) = (&answer.records[..size], headers.as_slice());
        // The end of the partition's role, a cut or a new high watermark come with an answer without records, too.
        loop {
            let (count, bytes) = piece(headers, segment_bytes);
            let followed = self.take_in(answer, &rest[..bytes], &headers[..count], now)?;
            (rest, headers) = (&rest[bytes..], &headers[count..]);
            if headers.is_empty() || !matches!(followed, Followed::Appended { .. }) {
                return Ok(followed);
            }
        }
    }

    /// Appends batches with offsets missing in between from now on. That must be known, durably, to the next opening before
    /// ([`storage::Log::allow_gaps`]).
    pub fn allow_gaps(&self) -> Result<(), PartitionError> {
        self.maintain(|log, _| {
            log.allow_gaps();
            Ok(())
        })
    }

    fn take_in(
        &self,
        answer: &ReplicaAnswer<'_>,
        records: &[u8],
        headers: &[BatchHeader],
        now: Timestamp,
    ) -> Result<Followed, PartitionError> {
        let mut state = match summary(headers) {
            Some(batch) => {
                let bytes = records.len() as u64;
                self.lock_to_append(&batch, bytes, now, LockPatience::Unlimited)?
            }
            None => self.lock(),
        };
        self.check_served()?;
        let asked_in = answer.asked_in;
        let diverging = answer.diverging.map(|leaders| divergence(&state, leaders, asked_in));
        let effects = state.replica.step(Event::LeaderAnswered(LeaderAnswer {
            asked_in: answer.asked_in,
            diverging,
            high_watermark: answer.high_watermark,
            log_start: answer.log_start,
        }));
        if effects.is_stale {
            return Ok(Followed::Stale);
        }
        if let Some(refused) = effects.refused {
            self.publish(state, effects);
            return Ok(Followed::Refused(refused));
        }
        if let Some(cut) = effects.truncation {
            return Ok(Followed::Cut(cut));
        }
        if let Some(end) = effects.starts_over {
            return Ok(Followed::StartOver(end));
        }
        let delete_below = effects.log_start;
        if headers.is_empty() {
            let log_end = state.log.log_end_offset();
            self.publish(state, effects);
            return Ok(Followed::Appended { log_end, delete_below });
        }
        let trimmed = behind(state.log.log_end_offset(), records, headers);
        let (records, headers) = match &trimmed {
            Some((records, headers)) => (records.as_slice(), headers.as_slice()),
            None => (records, headers),
        };
        check_follows(&state, &headers[0], headers)?;
        if has_new_gap(&state.log, headers) {
            self.publish(state, effects);
            return Ok(Followed::Gaps);
        }
        if let Err(error) = state.log.append(records, headers, now) {
            if error.is_fatal() {
                let effects = state.replica.step(Event::Failed);
                self.publish(state, effects);
            }
            return Err(error.into());
        }
        self.count_held(&mut state);
        let log_end = state.log.log_end_offset();
        state.sync.unsynced_bytes += records.len() as u64;
        let too_many = self.sync_queue.appended(records.len() as u64);
        // Not before it is synced is it acknowledged: whoever copies sees to that at once, once for all that came.
        let waker = self.demand(&mut state, Urgency::Later).or(too_many);
        let effects = state.replica.step(Event::Appended { log_end });
        self.publish(state, effects);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(Followed::Appended { log_end, delete_below })
    }
}

impl Partition {
    /// Drops every record at or behind `to`, durably when it returns, and says where the log ends then: a batch that
    /// reaches over `to` goes as a whole. The cut's end must be in the journal before, or a start after a crash in
    /// between takes what is gone for lost.
    ///
    /// Without room for it, or without descriptors, nothing is changed, and the cut is due as before.
    ///
    /// No append, roll, retention or change of role happens meanwhile; other partitions and this one's readers of
    /// what is published wait for nothing. A cut that was asked for in an earlier leader epoch is not made: what it
    /// would take may be committed since.
    pub fn cut(&self, to: Offset) -> Result<Offset, PartitionError> {
        let _names = self.begin_maintenance();
        let _end = self.begin_rolling();
        if self.next() != Next::Cut(to) {
            return Ok(self.with_log(Log::log_end_offset));
        }
        self.resume_while_rolling()?;
        let ticket = self.maintain(|log, _| log.begin_cut(to))?;
        self.run_cut(ticket, || Ok(()), |log_end| vec![Event::Truncated { log_end }])
    }

    /// Decides whether this follower may drop its log, because its leader's log starts behind the end of this one or
    /// [`Followed::StartOver`] requires it. `asked_in` is the leader epoch of the fetch whose answer that was.
    pub fn judge_start_over(&self, asked_in: LeaderEpoch) -> StartOverVerdict {
        let mut state = self.lock();
        let earlier = earlier_records(&state.log, asked_in);
        let effects = state.replica.step(Event::StartOverDue { asked_in, earlier });
        let (refused, truncation) = (effects.refused, effects.truncation);
        self.publish(state, effects);
        match (refused, truncation) {
            (Some(refused), _) => StartOverVerdict::Refused(refused),
            (None, Some(Truncation { takes_committed, .. })) => {
                StartOverVerdict::Due { takes_committed }
            }
            (None, None) => StartOverVerdict::Stale,
        }
    }

    /// Drops every record and starts the log at `offset`, its end or behind it, durably when it returns, if
    /// [`Partition::judge_start_over`] allowed that. Not made if the follower has appended meanwhile, like [`Partition::cut`].
    /// The log's end never falls: a member of the ISR acknowledged everything below.
    ///
    /// `commit` enters the truncation and the new start into the journal, durably. It runs behind the last step that may
    /// lack room: a log that is entered as emptied and keeps its records would keep their producers at the next opening.
    /// Where `commit` fails, the log stays as it is.
    pub fn start_over(
        &self,
        epoch: LeaderEpoch,
        offset: Offset,
        commit: impl FnOnce() -> Result<(), PartitionError>,
    ) -> Result<Offset, PartitionError> {
        let _names = self.begin_maintenance();
        let _end = self.begin_rolling();
        let next = self.next();
        let is_due =
            matches!(next, Next::Ask(from) if from.leader_epoch == epoch && from.offset <= offset);
        if !is_due {
            return Ok(self.with_log(Log::log_end_offset));
        }
        self.resume_while_rolling()?;
        let ticket = self.maintain(|log, _| log.begin_start_over(offset))?;
        self.run_cut(Some(ticket), commit, |start| {
            vec![
                Event::Truncated { log_end: start },
                Event::LogStartMoved { log_start: start },
                Event::LogStartSynced { log_start: start },
                Event::Synced { synced: start },
            ]
        })
    }

    fn run_cut(
        &self,
        ticket: Option<CutTicket>,
        commit: impl FnOnce() -> Result<(), PartitionError>,
        events: impl Fn(Offset) -> Vec<Event>,
    ) -> Result<Offset, PartitionError> {
        let mut uncommitted = None;
        let result = ticket.map(|mut ticket| {
            let mut result = self.with_files(|| ticket.prepare());
            if result.is_ok() {
                uncommitted = commit().err();
                if uncommitted.is_none() {
                    result = self.with_files(|| ticket.run());
                }
            }
            (ticket, result)
        });
        let mut state = self.lock();
        self.check_served()?;
        let cut = match result {
            Some((ticket, result)) => state.log.finish_cut(ticket, result),
            None => Ok(state.log.log_end_offset()),
        };
        self.count_held(&mut state);
        let events = match &cut {
            Ok(_) if uncommitted.is_some() => Vec::new(),
            Ok(log_end) => events(*log_end),
            // Nothing was taken away: it is tried again when there may be room.
            Err(cause) if !cause.is_fatal() => Vec::new(),
            Err(_) => vec![Event::Failed],
        };
        for event in events {
            let effects = state.replica.step(event);
            self.publish(state, effects);
            state = self.lock();
        }
        drop(state);
        self.request_sync();
        let log_end = cut?;
        uncommitted.map_or(Ok(log_end), Err)
    }
}

/// The headers of all whole batches, and how many bytes they take.
fn check_batches(answer: &ReplicaAnswer<'_>) -> Result<(Vec<BatchHeader>, usize), PartitionError> {
    let (mut headers, mut position) = (Vec::<BatchHeader>::new(), 0);
    while !is_part(&answer.records[position..]) {
        let header = BatchHeader::decode_checked(&answer.records[position..])?;
        if header.leader_epoch > answer.asked_in || header.leader_epoch < LeaderEpoch(0) {
            return Err(PartitionError::Replicated(format!(
                "the batch at offset {} is of leader epoch {}, and the leader's is {}",
                header.base_offset, header.leader_epoch, answer.asked_in
            )));
        }
        if let Some(before) = headers.last() {
            check_pair(before, &header)?;
        }
        position += header.size_bytes as usize;
        headers.push(header);
    }
    Ok((headers, position))
}

/// Whether no whole batch is at the front: the end, or a batch that the size of the answer cut.
fn is_part(bytes: &[u8]) -> bool {
    let Some(prefix) = bytes.get(..model::batch::LENGTH_FROM) else { return true };
    let length = i32::from_be_bytes(prefix[8..].try_into().expect("four bytes"));
    usize::try_from(length).is_ok_and(|length| bytes.len() - prefix.len() < length)
}

fn check_pair(before: &BatchHeader, header: &BatchHeader) -> Result<(), PartitionError> {
    let is_behind = header.base_offset >= before.next_offset();
    if is_behind && header.leader_epoch >= before.leader_epoch {
        return Ok(());
    }
    Err(PartitionError::Replicated(format!(
        "behind offset {} of leader epoch {} comes offset {} of leader epoch {}",
        before.last_offset(),
        before.leader_epoch,
        header.base_offset,
        header.leader_epoch
    )))
}

/// What the leader sent, if its first batch begins before the end of this log and only holds the place of others: then it
/// begins at that end. The leader's compaction makes one such batch of many, and this log may end between them.
fn behind(
    log_end: Offset,
    records: &[u8],
    headers: &[BatchHeader],
) -> Option<(Vec<u8>, Vec<BatchHeader>)> {
    let first = headers[0];
    if first.base_offset >= log_end || first.next_offset() <= log_end || !first.is_placeholder() {
        return None;
    }
    let (last, rest) = (first.last_offset(), records.get(first.size_bytes as usize..)?);
    let first = BatchHeader {
        base_offset: log_end,
        size_bytes: HEADER_BYTES as u32,
        last_offset_delta: i32::try_from(last.0 - log_end.0).ok()?,
        ..first
    };
    let bytes = first.encode_empty();
    let first = BatchHeader::decode(&bytes).ok()?;
    let headers = std::iter::once(first).chain(headers[1..].iter().copied()).collect();
    Some(([&bytes[..], rest].concat(), headers))
}

/// Batches must follow what is here: behind it, and of no smaller leader epoch than the last record. Whether offsets are missing in
/// between is the leader's business, whatever the topic's policy is now: its log is what is copied.
fn check_follows(
    state: &State,
    first: &BatchHeader,
    headers: &[BatchHeader],
) -> Result<(), PartitionError> {
    let log_end = state.log.log_end_offset();
    let last_epoch = state.log.epoch_at(Offset(log_end.0 - 1));
    if first.base_offset >= log_end && first.leader_epoch >= last_epoch {
        return Ok(());
    }
    Err(PartitionError::Replicated(format!(
        "the log ends at {log_end} in leader epoch {last_epoch}, and the leader sent offsets {}..={} from leader epoch {}",
        first.base_offset,
        headers[headers.len() - 1].last_offset(),
        first.leader_epoch
    )))
}

/// Whether offsets are missing in these batches, or between them and the log's end, where nothing says yet that they may be.
fn has_new_gap(log: &Log, headers: &[BatchHeader]) -> bool {
    let mut due = log.log_end_offset();
    headers.iter().any(|header| {
        let from = std::mem::replace(&mut due, header.next_offset());
        header.base_offset > from && !log.may_have_gap_at(from)
    })
}

fn divergence(
    state: &State,
    (epoch, end): (LeaderEpoch, Offset),
    asked_in: LeaderEpoch,
) -> Divergence {
    let (own_epoch, own_end) = state.log.end_offset_for_epoch(epoch);
    let own =
        (own_epoch != LeaderEpoch::NONE).then_some(EpochEnd { epoch: own_epoch, end: own_end });
    let earlier = earlier_records(&state.log, asked_in);
    Divergence { leaders: EpochEnd { epoch, end }, own, earlier }
}

/// End of the records that earlier generations of the metadata quorum than that of `leader_epoch` decided, and the leader epoch of
/// the last of them; `None` without such records.
fn earlier_records(log: &Log, leader_epoch: LeaderEpoch) -> Option<EpochEnd> {
    let last = leader_epoch.last_of_earlier_generations();
    let first_later = log.epochs().iter().find(|(epoch, _)| *epoch > last);
    let end = first_later.map_or(log.log_end_offset(), |(_, start)| *start);
    let has_records = last != LeaderEpoch::NONE && end > log.log_start_offset();
    has_records.then(|| EpochEnd { epoch: log.epoch_at(Offset(end.0 - 1)), end })
}

/// How many of the batches, and how many bytes, go into one segment at most: the next one is made without the lock.
fn piece(headers: &[BatchHeader], segment_bytes: u64) -> (usize, usize) {
    let mut size = 0;
    for (count, header) in headers.iter().enumerate() {
        let larger = size + header.size_bytes as u64;
        let span = header.last_offset().0 - headers[0].base_offset.0;
        if count > 0 && (larger > segment_bytes || span > i32::MAX as i64) {
            return (count, size as usize);
        }
        size = larger;
    }
    (headers.len(), size as usize)
}

/// What decides whether batches begin a new segment, as if they were one.
fn summary(headers: &[BatchHeader]) -> Option<BatchHeader> {
    let (first, last) = (headers.first()?, headers.last()?);
    let span = last.last_offset().0 - first.base_offset.0;
    Some(BatchHeader {
        last_offset_delta: i32::try_from(span).unwrap_or(i32::MAX),
        max_timestamp: headers.iter().map(|header| header.max_timestamp).max()?,
        ..*first
    })
}
