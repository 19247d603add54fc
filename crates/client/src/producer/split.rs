//! A batch that the broker does not take as it is. One that is too large is sent again as two: the topic's
//! `max.message.bytes` is not known here before it refuses. One with records that are refused for themselves is sent again
//! without them: who else's records are in it has done nothing wrong.

use super::batch::Batch;
use super::queue::{PartitionQueue, finish};
use super::{Shared, lock};
use model::record::BatchBuilder;
use model::{BatchError, BatchHeader, Sequence, Timestamp};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The codec and the timestamp type: set when a batch is finished.
const FINISHED_BITS: i16 = 0x0f;

/// The two halves of a batch of several records, in their order. The batch has ended then; those who
/// wait for its records wait for the halves.
pub(super) fn halves(shared: &Shared, queue: &PartitionQueue, batch: Batch) -> [Batch; 2] {
    let first_count = batch.record_count / 2;
    let builders = rebuild(shared, &batch, |at| at >= first_count);
    let builders = builders.expect("the producer built the batch");
    let header = BatchHeader::decode(&batch.bytes).expect("the producer built the batch");
    let next = |sequence: Sequence, count| match sequence {
        Sequence::NONE => Sequence::NONE,
        first => first.plus(count),
    };
    let sequences = [batch.base_sequence, next(batch.base_sequence, first_count)];
    let mut made = builders.into_iter().zip(sequences).map(|(builder, sequence)| {
        let builder = builder.producer(header.producer_id, header.producer_epoch, sequence);
        let ordinal = shared.next_ordinal.fetch_add(1, Ordering::Relaxed);
        (finish(shared, builder, &queue.ratio), ordinal)
    });
    let made = [made.next().expect("two"), made.next().expect("two")];
    let ordinal = batch.ordinal;
    // Whoever flushes sees the batch or its halves.
    let mut incomplete = lock(&shared.incomplete);
    let halves = batch.into_halves(first_count, made);
    incomplete.extend(halves.iter().map(|half| (half.ordinal, half.outcome.clone())));
    incomplete.remove(&ordinal);
    halves
}

/// The batch of the `refused` records, ascending, which is to be ended, and that of the others, which may be sent again.
/// The batch has ended then; those who wait for its records wait for the two. Unless the batch may be written, the
/// sequences of the refused records go to those behind them.
pub(super) fn sifted(
    shared: &Shared,
    queue: &PartitionQueue,
    batch: Batch,
    refused: Arc<[i32]>,
) -> [Batch; 2] {
    let is_refused = |at| refused.binary_search(&at).is_ok();
    let builders = rebuild(shared, &batch, is_refused).expect("the producer built the batch");
    let header = BatchHeader::decode(&batch.bytes).expect("the producer built the batch");
    let [others, lost] = builders;
    shared.pool.give(lost.finish().into());
    let others = others.producer(header.producer_id, header.producer_epoch, batch.base_sequence);
    let others = finish(shared, others, &queue.ratio);
    let ordinals = [(); 2].map(|()| shared.next_ordinal.fetch_add(1, Ordering::Relaxed));
    let ordinal = batch.ordinal;
    // Whoever flushes sees the batch or its parts.
    let mut incomplete = lock(&shared.incomplete);
    let parts = batch.into_sifted(refused, ordinals, others);
    incomplete.extend(parts.iter().map(|part| (part.ordinal, part.outcome.clone())));
    incomplete.remove(&ordinal);
    parts
}

/// Two batches of its records: those of which `is_second` says no, and the others.
fn rebuild(
    shared: &Shared,
    batch: &Batch,
    is_second: impl Fn(i32) -> bool,
) -> Result<[BatchBuilder; 2], compression::DecompressError> {
    let header = BatchHeader::decode(&batch.bytes).expect("the producer built the batch");
    let mut expanded = Vec::new();
    let records = compression::records::read(&header, &batch.bytes, usize::MAX, &mut expanded)?;
    let new = || BatchBuilder::over(shared.pool.take()).flags(header.attributes & !FINISHED_BITS);
    let mut builders = [new(), new()];
    for (at, record) in records.enumerate() {
        let record =
            record.unwrap_or_else(|error: BatchError| panic!("a record of our own: {error}"));
        let headers: Vec<_> = record.headers().collect();
        let timestamp = Timestamp(header.base_timestamp.0 + record.timestamp_delta);
        let builder = &mut builders[usize::from(is_second(at as i32))];
        builder.add_with_headers(timestamp, record.key, record.value, &headers);
    }
    Ok(builders)
}
