//! What a log knows of idempotent producers (KIP-98): enough to tell a retry from a new batch and a
//! gap from an order, and which transactions are open.
//!
//! The state is a function of the batches in the log, but for the times of the appends. A file of ours
//! (`state_file.rs`) saves reading them all again; Kafka's snapshot (`snapshot.rs`) is written beside
//! it for Kafka's tools, and read where ours is missing.
//!
//! Producers are forgotten by the time of their last append, never by the times of their records,
//! which a backfill sets to what it likes. Anybody may invent producers, one a batch; so of those that
//! have been idle for a while only so many are known, and all of them may take only so much memory.
//!
//! Not here: who may write in which transaction.

pub(crate) mod aborted;
pub(crate) mod snapshot;
pub(crate) mod state_file;
pub(crate) mod transactions;

use std::collections::BTreeMap;

use model::{BatchHeader, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use transactions::{CompletedTransaction, Marker, Transactions};

/// Batches remembered per producer: as many as a producer may have in flight.
const BATCHES_KEPT: usize = 5;
/// A producer that has appended nothing for so long counts as idle.
const IDLE_AFTER_MS: i64 = 15 * 60 * 1000;
/// Idle producers known of one log; of more the oldest are forgotten.
const IDLE_MAX: usize = 10_000;
/// Memory that the producers of one log may take, idle or not; beyond it the oldest are forgotten.
const BYTES_MAX: usize = 16 << 20;
/// Memory of one producer: itself, and its share of a node of the tree.
const PRODUCER_BYTES: usize = size_of::<Producer>() + 32;
/// New producers between two looks at the bounds.
const ROOM_LOOK: usize = 1024;

/// The log's opinion on an idempotent producer's batch. Only [`ProducerVerdict::Accept`] may be
/// appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProducerVerdict {
    /// The next batch of this producer, or one that carries no producer id.
    Accept,
    /// The batch is in the log already: the answer to the retry is that of the first attempt.
    Duplicate {
        /// Offset of its first record.
        base_offset: Offset,
        /// Offset of its last record.
        last_offset: Offset,
        /// Its largest timestamp.
        timestamp: Timestamp,
    },
    /// A batch before it is missing (`OUT_OF_ORDER_SEQUENCE_NUMBER`).
    OutOfOrderSequence,
    /// A newer incarnation of the producer has written (`INVALID_PRODUCER_EPOCH`).
    InvalidEpoch,
}

/// A producer as `DescribeProducers` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerSummary {
    /// Its id.
    pub producer_id: ProducerId,
    /// Its newest incarnation seen.
    pub epoch: ProducerEpoch,
    /// Sequence of its last record; -1 if that incarnation wrote none.
    pub last_sequence: Sequence,
    /// Largest timestamp of its last batch.
    pub last_timestamp: Timestamp,
    /// Epoch of the coordinator that wrote its last marker; -1 if none did.
    pub coordinator_epoch: i32,
    /// Where its open transaction began, if one is open.
    pub transaction_start: Option<Offset>,
}

/// One batch of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrittenBatch {
    pub(crate) last_sequence: Sequence,
    pub(crate) last_offset: Offset,
    pub(crate) offset_delta: i32,
    pub(crate) timestamp: Timestamp,
}

impl WrittenBatch {
    const NONE: WrittenBatch = WrittenBatch {
        last_sequence: Sequence::NONE,
        last_offset: Offset(-1),
        offset_delta: 0,
        timestamp: Timestamp::NONE,
    };

    fn of(header: &BatchHeader) -> WrittenBatch {
        WrittenBatch {
            last_sequence: header.last_sequence(),
            last_offset: header.last_offset(),
            offset_delta: header.last_offset_delta,
            timestamp: header.max_timestamp,
        }
    }

    fn base_offset(&self) -> Offset {
        self.last_offset.plus(-(self.offset_delta as i64))
    }
}

/// What is known of one producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Producer {
    pub(crate) epoch: ProducerEpoch,
    pub(crate) coordinator_epoch: i32,
    pub(crate) last_timestamp: Timestamp,
    /// When its last batch was appended, by this broker's clock; [`Timestamp::NONE`] while unknown.
    pub(crate) appended_at: Timestamp,
    pub(crate) transaction_start: Option<Offset>,
    /// Invariant: the first `count` are batches of `epoch`, oldest first.
    batches: [WrittenBatch; BATCHES_KEPT],
    count: u8,
}

impl Producer {
    pub(crate) fn new(epoch: ProducerEpoch) -> Producer {
        Producer {
            epoch,
            coordinator_epoch: -1,
            last_timestamp: Timestamp::NONE,
            appended_at: Timestamp::NONE,
            transaction_start: None,
            batches: [WrittenBatch::NONE; BATCHES_KEPT],
            count: 0,
        }
    }

    pub(crate) fn last_batch(&self) -> Option<&WrittenBatch> {
        self.batches().last()
    }

    /// The batches remembered, oldest first.
    pub(crate) fn batches(&self) -> &[WrittenBatch] {
        &self.batches[..self.count as usize]
    }

    pub(crate) fn remember(&mut self, batch: WrittenBatch) {
        if self.count as usize == BATCHES_KEPT {
            self.batches.rotate_left(1);
            self.count -= 1;
        }
        self.batches[self.count as usize] = batch;
        self.count += 1;
        self.last_timestamp = batch.timestamp;
    }

    fn begin_epoch(&mut self, epoch: ProducerEpoch) {
        if epoch != self.epoch {
            self.epoch = epoch;
            self.count = 0;
        }
    }

    fn duplicate(&self, header: &BatchHeader) -> Option<&WrittenBatch> {
        self.batches[..self.count as usize].iter().find(|batch| {
            batch.last_sequence == header.last_sequence()
                && batch.offset_delta == header.last_offset_delta
        })
    }

    fn verdict(&self, header: &BatchHeader) -> ProducerVerdict {
        if header.producer_epoch < self.epoch {
            return ProducerVerdict::InvalidEpoch;
        }
        if header.producer_epoch > self.epoch {
            let first = header.base_sequence == Sequence(0) || self.epoch == ProducerEpoch::NONE;
            return if first {
                ProducerVerdict::Accept
            } else {
                ProducerVerdict::OutOfOrderSequence
            };
        }
        if let Some(batch) = self.duplicate(header) {
            return ProducerVerdict::Duplicate {
                base_offset: batch.base_offset(),
                last_offset: batch.last_offset,
                timestamp: batch.timestamp,
            };
        }
        let last = self.last_batch().map_or(Sequence::NONE, |batch| batch.last_sequence);
        if header.base_sequence == last.plus(1) {
            ProducerVerdict::Accept
        } else {
            ProducerVerdict::OutOfOrderSequence
        }
    }
}

/// All producers of one log. An empty one owns no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Producers {
    /// Boxed, for a node of the tree has room for eleven, and most logs know one or none.
    by_id: BTreeMap<ProducerId, Box<Producer>>,
    transactions: Transactions,
}

impl Producers {
    /// What is to become of a producer's batch; changes nothing. A producer that is not known (any
    /// more) may begin at any sequence: its earlier batches may have been retained away.
    pub(crate) fn check(&self, header: &BatchHeader) -> ProducerVerdict {
        if !header.producer_id.is_idempotent() || header.is_control() {
            return ProducerVerdict::Accept;
        }
        match self.by_id.get(&header.producer_id) {
            Some(producer) => producer.verdict(header),
            None => ProducerVerdict::Accept,
        }
    }

    /// First sequence that the log accepts next of the producer and the producer epoch of `header`. `None` for a producer without
    /// state here: the log accepts any sequence of that one.
    pub(crate) fn next_sequence(&self, header: &BatchHeader) -> Option<Sequence> {
        let producer = self.by_id.get(&header.producer_id)?;
        if header.producer_epoch != producer.epoch {
            return (producer.epoch != ProducerEpoch::NONE).then_some(Sequence(0));
        }
        let last = producer.last_batch().map_or(Sequence::NONE, |batch| batch.last_sequence);
        Some(last.plus(1))
    }

    /// Takes a batch in that stands in the log and was appended at `now`. `marker` is what its record says if it is a control
    /// batch that ends a transaction; then the transaction that it ended is returned.
    pub(crate) fn apply(
        &mut self,
        header: &BatchHeader,
        marker: Option<Marker>,
        now: Timestamp,
    ) -> Option<CompletedTransaction> {
        if !header.producer_id.is_idempotent() {
            return None;
        }
        let id = header.producer_id;
        if self.by_id.len() >= IDLE_MAX.min(BYTES_MAX / PRODUCER_BYTES)
            && self.by_id.len().is_multiple_of(ROOM_LOOK)
            && !self.by_id.contains_key(&id)
        {
            self.make_room(now);
        }
        let producer =
            self.by_id.entry(id).or_insert_with(|| Box::new(Producer::new(header.producer_epoch)));
        producer.begin_epoch(header.producer_epoch);
        producer.appended_at = now;
        if header.is_control() {
            let marker = marker?;
            producer.coordinator_epoch = marker.coordinator_epoch;
            producer.last_timestamp = header.max_timestamp;
            let start = producer.transaction_start.take()?;
            return Some(self.transactions.complete(id, start, header.last_offset(), marker));
        }
        producer.remember(WrittenBatch::of(header));
        // A batch that compaction has emptied belongs to a transaction that has long ended.
        let begins = header.is_transactional() && header.record_count > 0;
        if begins && producer.transaction_start.is_none() {
            producer.transaction_start = Some(header.base_offset);
            self.transactions.begin(id, header.base_offset);
        }
        None
    }

    /// Takes in a producer out of a snapshot.
    pub(crate) fn restore(&mut self, id: ProducerId, producer: Producer) {
        if let Some(start) = producer.transaction_start {
            self.transactions.begin(id, start);
        }
        self.by_id.insert(id, Box::new(producer));
    }

    /// Forgets producers that appended nothing for so long and have no transaction open, and those
    /// beyond the bounds.
    pub(crate) fn expire(&mut self, now: Timestamp, expiration_ms: i64) {
        self.by_id.retain(|_, producer| {
            producer.transaction_start.is_some()
                || now.ms_since(producer.appended_at) < expiration_ms
        });
        self.make_room(now);
    }

    /// Forgets the producers that are beyond the bounds, the oldest first.
    fn make_room(&mut self, now: Timestamp) {
        let idle = self.forgettable().filter(|at| now.ms_since(*at) >= IDLE_AFTER_MS).count();
        self.forget_oldest(idle.saturating_sub(IDLE_MAX));
        self.bound_bytes(BYTES_MAX);
    }

    /// Forgets the oldest producers until the others take no more than seven eighths of so much memory,
    /// if they take more than that.
    pub(crate) fn bound_bytes(&mut self, bytes_max: usize) {
        if self.memory_bytes() > bytes_max {
            let kept = bytes_max / 8 * 7 / PRODUCER_BYTES;
            self.forget_oldest(self.by_id.len().saturating_sub(kept));
        }
    }

    /// Memory that the producers take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.by_id.len() * PRODUCER_BYTES
    }

    /// When those appended last that may be forgotten: without an open transaction.
    fn forgettable(&self) -> impl Iterator<Item = Timestamp> + '_ {
        let closed = self.by_id.values().filter(|producer| producer.transaction_start.is_none());
        closed.map(|producer| producer.appended_at)
    }

    fn forget_oldest(&mut self, count: usize) {
        let mut times: Vec<Timestamp> = self.forgettable().collect();
        let count = count.min(times.len());
        let Some(last) = count.checked_sub(1) else { return };
        let newest = *times.select_nth_unstable(last).1;
        let older = times.iter().filter(|at| **at < newest).count();
        // Of those that share the time of the last one to go, as many as are due.
        let mut equal = count - older;
        self.by_id.retain(|_, producer| {
            if producer.transaction_start.is_some() || producer.appended_at > newest {
                return true;
            }
            let goes = producer.appended_at < newest || equal > 0;
            equal -= usize::from(goes && producer.appended_at == newest);
            !goes
        });
    }

    /// Takes over when producers appended last that were known before: no batch tells it.
    pub(crate) fn keep_append_times(&mut self, before: &Producers) {
        for (id, producer) in &mut self.by_id {
            if let Some(known) = before.by_id.get(id) {
                producer.appended_at = producer.appended_at.max(known.appended_at);
            }
        }
    }

    /// Says when those appended last of whom nobody knows.
    pub(crate) fn set_unknown_append_times(&mut self, now: Timestamp) {
        let unknown = self.by_id.values_mut().filter(|p| p.appended_at == Timestamp::NONE);
        unknown.for_each(|producer| producer.appended_at = now);
    }

    /// Takes over earlier batches of producers of whom only the last one is known, from a state whose
    /// last one is the same.
    pub(crate) fn remember_earlier(&mut self, earlier: &Producers) {
        for (id, producer) in &mut self.by_id {
            let Some(more) = earlier.by_id.get(id) else { continue };
            let same = more.epoch == producer.epoch && more.last_batch() == producer.last_batch();
            if same {
                (producer.batches, producer.count) = (more.batches, more.count);
            }
        }
    }

    /// The first offset that is not decided below the high watermark, or that itself.
    pub(crate) fn last_stable_offset(&self, high_watermark: Offset) -> Offset {
        self.transactions.last_stable_offset(high_watermark)
    }

    /// Whether a transaction has begun and not ended.
    pub(crate) fn has_open_transaction(&self) -> bool {
        self.transactions.first_open().is_some()
    }

    /// Forgets completed transactions that no high watermark will go back behind.
    pub(crate) fn settle(&mut self, high_watermark: Offset) {
        self.transactions.settle(high_watermark);
    }

    /// Where a transaction that ends now leaves the last stable offset.
    pub(crate) fn stable_after(&self, completed: &CompletedTransaction) -> Offset {
        self.transactions.first_open().unwrap_or(completed.last_offset.next())
    }

    /// Offsets of the last batch of each producer: compaction keeps these batches, if only as
    /// empty ones, or a retry behind it would be taken for a new batch.
    pub(crate) fn last_offsets(&self) -> Vec<Offset> {
        let last = |(_, producer): (_, &Producer)| producer.last_batch().map(|b| b.last_offset);
        let mut offsets: Vec<Offset> = self.iter().filter_map(last).collect();
        offsets.sort_unstable();
        offsets
    }

    /// Producers of whose present incarnation only a marker is known: compaction keeps it.
    pub(crate) fn markers_only(&self) -> Vec<(ProducerId, ProducerEpoch)> {
        let without = self.iter().filter(|(_, producer)| producer.last_batch().is_none());
        without.map(|(id, producer)| (id, producer.epoch)).collect()
    }

    /// All producers in order of their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ProducerId, &Producer)> {
        self.by_id.iter().map(|(id, producer)| (*id, &**producer))
    }

    /// All producers as `DescribeProducers` shows them.
    pub(crate) fn summaries(&self) -> impl Iterator<Item = ProducerSummary> + '_ {
        self.iter().map(|(producer_id, producer)| ProducerSummary {
            producer_id,
            epoch: producer.epoch,
            last_sequence: producer.last_batch().map_or(Sequence::NONE, |b| b.last_sequence),
            last_timestamp: producer.last_timestamp,
            coordinator_epoch: producer.coordinator_epoch,
            transaction_start: producer.transaction_start,
        })
    }

    /// How many producers are known.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::record::BatchBuilder;

    /// When the tests' batches are appended: long after the times of their records.
    const APPENDED: Timestamp = Timestamp(1_700_000_000_000);

    fn batch(epoch: i16, sequence: i32, count: i32, base: i64) -> BatchHeader {
        let mut builder = BatchBuilder::new()
            .producer(ProducerId(7), ProducerEpoch(epoch), Sequence(sequence))
            .placed(Offset(base), model::LeaderEpoch(0));
        (0..count).for_each(|_| builder.add(Timestamp(1000 + base), None, Some(b"v")));
        BatchHeader::decode(&builder.finish()).unwrap()
    }

    fn after(batches: &[BatchHeader]) -> Producers {
        let mut producers = Producers::default();
        for header in batches {
            assert_eq!(producers.check(header), ProducerVerdict::Accept);
            producers.apply(header, None, APPENDED);
        }
        producers
    }

    #[test]
    fn the_last_five_batches_are_known_as_duplicates() {
        let batches: Vec<_> = (0..6).map(|n| batch(0, n * 2, 2, n as i64 * 2)).collect();
        let producers = after(&batches);
        for (n, header) in batches.iter().enumerate().skip(1) {
            let found = ProducerVerdict::Duplicate {
                base_offset: Offset(n as i64 * 2),
                last_offset: Offset(n as i64 * 2 + 1),
                timestamp: header.max_timestamp,
            };
            assert_eq!(producers.check(header), found);
        }
        assert_eq!(producers.check(&batches[0]), ProducerVerdict::OutOfOrderSequence);
    }

    #[test]
    fn a_gap_and_an_old_epoch_are_refused() {
        let producers = after(&[batch(3, 0, 2, 0)]);
        assert_eq!(producers.check(&batch(3, 3, 1, 2)), ProducerVerdict::OutOfOrderSequence);
        assert_eq!(producers.check(&batch(2, 2, 1, 2)), ProducerVerdict::InvalidEpoch);
        assert_eq!(producers.check(&batch(4, 2, 1, 2)), ProducerVerdict::OutOfOrderSequence);
        assert_eq!(producers.check(&batch(4, 0, 1, 2)), ProducerVerdict::Accept);
    }

    #[test]
    fn sequences_wrap_and_an_unknown_producer_may_begin_anywhere() {
        let producers = after(&[batch(0, i32::MAX - 1, 3, 0)]);
        assert_eq!(producers.check(&batch(0, 1, 1, 3)), ProducerVerdict::Accept);
        assert_eq!(producers.check(&batch(0, 0, 1, 3)), ProducerVerdict::OutOfOrderSequence);
    }

    #[test]
    fn the_next_sequence_follows_the_last_batch_of_the_epoch() {
        let producers = after(&[batch(3, 0, 2, 0)]);
        assert_eq!(producers.next_sequence(&batch(3, 9, 1, 2)), Some(Sequence(2)));
        assert_eq!(producers.next_sequence(&batch(4, 9, 1, 2)), Some(Sequence(0)));
        assert_eq!(producers.next_sequence(&of(8)), None, "any sequence is accepted");
        let wrapped = after(&[batch(0, i32::MAX - 1, 3, 0)]);
        assert_eq!(wrapped.next_sequence(&batch(0, 9, 1, 3)), Some(Sequence(1)));
    }

    #[test]
    fn idle_producers_expire_by_the_time_of_their_append_unless_a_transaction_is_open() {
        let mut producers = after(&[batch(0, 0, 1, 0)]);
        producers.expire(Timestamp(APPENDED.0 + 500), 501);
        assert_eq!(producers.len(), 1, "whatever the time of the record");
        producers.expire(Timestamp(APPENDED.0 + 500), 500);
        assert_eq!(producers.len(), 0);
        let mut open = batch(0, 0, 1, 0);
        open.attributes |= 0x10;
        let mut producers = after(&[open]);
        producers.expire(Timestamp(i64::MAX), 1);
        assert_eq!(producers.len(), 1);
    }

    /// The header of a batch of another producer.
    fn of(id: i64) -> BatchHeader {
        BatchHeader { producer_id: ProducerId(id), ..batch(0, 0, 1, 0) }
    }

    #[test]
    fn of_idle_producers_the_newest_ten_thousand_are_known() {
        let mut producers = Producers::default();
        let count = 3 * IDLE_MAX as i64;
        for id in 0..count {
            producers.apply(&of(id), None, APPENDED.plus_ms(id / 2));
        }
        assert_eq!(producers.len(), count as usize, "all have written lately");
        producers.expire(APPENDED.plus_ms(IDLE_AFTER_MS + count), i64::MAX);
        assert_eq!(producers.len(), IDLE_MAX);
        assert!(producers.iter().all(|(id, _)| id.0 >= count - IDLE_MAX as i64));
        for id in 0..5000 {
            producers.apply(&of(count + id), None, APPENDED.plus_ms(2 * IDLE_AFTER_MS));
        }
        assert!(producers.len() <= IDLE_MAX + 5000);
    }

    #[test]
    fn invented_producers_take_no_more_than_so_much_memory_and_the_oldest_go() {
        let mut producers = Producers::default();
        let count = 2 * (BYTES_MAX / PRODUCER_BYTES) as i64;
        for id in 0..count {
            producers.apply(&of(id), None, APPENDED);
            assert!(producers.memory_bytes() <= BYTES_MAX + ROOM_LOOK * PRODUCER_BYTES);
        }
        producers.apply(&of(count), None, APPENDED.plus_ms(1));
        producers.bound_bytes(PRODUCER_BYTES * 10);
        assert!((1..=10).contains(&producers.len()));
        assert!(producers.iter().any(|(id, _)| id.0 == count), "the newest stays");
    }
}
