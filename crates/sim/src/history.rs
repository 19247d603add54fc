//! Everything that clients were ever told, and whether it goes together.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use model::Offset;

use crate::invariant::Invariant;
use crate::message::{ClientId, PartitionId};
use crate::plan::PARTITIONS;

/// A broken promise, before the clock is added.
pub(crate) type Broken = (Invariant, String);

/// What a record says: who sent it, and which one of its it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Value {
    pub(crate) producer: ClientId,
    pub(crate) number: u64,
}

impl Value {
    pub(crate) fn encode(&self) -> String {
        format!("{}.{}", self.producer, self.number)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Value> {
        let (producer, number) = std::str::from_utf8(bytes).ok()?.split_once('.')?;
        Some(Value { producer: producer.parse().ok()?, number: number.parse().ok()? })
    }
}

#[derive(Debug, Default)]
struct PartitionHistory {
    sent: BTreeSet<Value>,
    /// What was acknowledged with `acks=all`, or read, at which offset.
    known: BTreeMap<Offset, Arc<Value>>,
    acked: BTreeSet<Offset>,
    /// The latest offset at which the log may start, by requests and retention.
    log_start_max: Offset,
    /// What the broker ever reported as synced.
    synced: Offset,
    /// A leader was elected uncleanly, as the topic allows, or a disk lied: what was known may be gone.
    is_forgiven: bool,
}

#[derive(Debug)]
pub(crate) struct History {
    /// By number; partitions of later topics follow.
    partitions: Vec<PartitionHistory>,
    /// Synced records of the groups' partition.
    groups_synced: Offset,
    idempotent: BTreeSet<ClientId>,
    pub(crate) acked_count: u64,
    pub(crate) read_count: u64,
}

impl Default for History {
    fn default() -> History {
        History {
            partitions: (0..PARTITIONS).map(|_| PartitionHistory::default()).collect(),
            groups_synced: Offset(0),
            idempotent: BTreeSet::new(),
            acked_count: 0,
            read_count: 0,
        }
    }
}

impl History {
    /// Adds the partitions of a later topic.
    pub(crate) fn add_partitions(&mut self, added: &Range<PartitionId>) {
        let count = added.end.max(self.partitions.len());
        self.partitions.resize_with(count, PartitionHistory::default);
    }

    pub(crate) fn idempotent(&mut self, producer: ClientId) {
        self.idempotent.insert(producer);
    }

    pub(crate) fn sent(&mut self, partition: PartitionId, values: &[Value]) {
        self.partitions[partition].sent.extend(values.iter().cloned());
    }

    /// Whether a record was ever sent to a partition.
    pub(crate) fn was_sent(&self, partition: PartitionId, value: &[u8]) -> bool {
        Value::decode(value).is_some_and(|value| self.partitions[partition].sent.contains(&value))
    }

    /// A producer was told that its batch begins at `base`.
    pub(crate) fn acked(
        &mut self,
        partition: PartitionId,
        base: Offset,
        values: &[Value],
    ) -> Result<(), Broken> {
        for (value, i) in values.iter().zip(0..) {
            let offset = base.plus(i);
            self.know(partition, offset, value)?;
            self.partitions[partition].acked.insert(offset);
            self.acked_count += 1;
        }
        Ok(())
    }

    /// A consumer was given this record.
    pub(crate) fn read(
        &mut self,
        partition: PartitionId,
        offset: Offset,
        value: &[u8],
    ) -> Result<(), Broken> {
        let value = self.sent_value(partition, offset, value)?;
        self.read_count += 1;
        self.know(partition, offset, &value)
    }

    fn sent_value(
        &self,
        partition: PartitionId,
        offset: Offset,
        value: &[u8],
    ) -> Result<Value, Broken> {
        Value::decode(value).filter(|v| self.partitions[partition].sent.contains(v)).ok_or_else(
            || {
                let text = String::from_utf8_lossy(value);
                (Invariant::NothingInvented, format!("{text:?} at {offset} of {partition}"))
            },
        )
    }

    fn know(
        &mut self,
        partition: PartitionId,
        offset: Offset,
        value: &Value,
    ) -> Result<(), Broken> {
        if self.partitions[partition].is_forgiven {
            return Ok(());
        }
        let known = &mut self.partitions[partition].known;
        let first = known.entry(offset).or_insert_with(|| Arc::new(value.clone()));
        if **first != *value {
            let (then, now) = (first.encode(), value.encode());
            let what = format!("offset {offset} of {partition} was {then} and is {now}");
            return Err((Invariant::OneOffsetOneValue, what));
        }
        Ok(())
    }

    /// What was acknowledged in a partition may be lost from now on.
    pub(crate) fn forgive(&mut self, partition: PartitionId) {
        self.partitions[partition].is_forgiven = true;
    }

    /// Behind the last record that was acknowledged.
    pub(crate) fn acked_end(&self, partition: PartitionId) -> Offset {
        self.partitions[partition].acked.last().map_or(Offset(0), |last| last.next())
    }

    /// Behind the last record that was acknowledged or read.
    pub(crate) fn known_end(&self, partition: PartitionId) -> Offset {
        self.partitions[partition].known.keys().next_back().map_or(Offset(0), |last| last.next())
    }

    /// Somebody with a right to it deletes what is below.
    pub(crate) fn may_start_at(&mut self, partition: PartitionId, log_start: Offset) {
        if let Some(history) = self.partitions.get_mut(partition) {
            history.log_start_max = log_start.max(history.log_start_max);
        }
    }

    /// Nothing is gone that nobody deleted.
    pub(crate) fn check_start(
        &self,
        partition: PartitionId,
        log_start: Offset,
    ) -> Result<(), Broken> {
        if log_start > self.partitions[partition].log_start_max {
            let what = format!("{partition} starts at {log_start}, which nobody asked for");
            return Err((Invariant::AckedIsReadable, what));
        }
        Ok(())
    }

    pub(crate) fn synced(&mut self, partition: PartitionId, synced: Offset) {
        let known = self.synced_mut(partition);
        *known = synced.max(*known);
    }

    fn synced_mut(&mut self, partition: PartitionId) -> &mut Offset {
        match self.partitions.get_mut(partition) {
            Some(history) => &mut history.synced,
            None => &mut self.groups_synced,
        }
    }

    /// A broker came up with a log that ends there.
    pub(crate) fn recovered(
        &mut self,
        partition: PartitionId,
        log_end: Offset,
    ) -> Result<(), Broken> {
        let synced = *self.synced_mut(partition);
        if log_end < synced {
            let what = format!("{partition} ends at {log_end}, but was synced up to {synced}");
            return Err((Invariant::SyncedSurvives, what));
        }
        Ok(())
    }

    /// Compares a partition's whole content, offsets and values, with all that was ever said of it.
    pub(crate) fn final_scan(
        &mut self,
        partition: PartitionId,
        log_start: Offset,
        records: &[(Offset, Vec<u8>)],
    ) -> Result<(), Broken> {
        if self.partitions[partition].is_forgiven {
            return Ok(());
        }
        let mut next = log_start;
        let mut places: BTreeMap<Value, Offset> = BTreeMap::new();
        for (offset, value) in records.iter().filter(|(offset, _)| *offset >= log_start) {
            if *offset != next {
                let what = format!("{partition} goes on with {offset}, not {next}");
                return Err((Invariant::NoGapNoDuplicate, what));
            }
            next = offset.next();
            self.read(partition, *offset, value)?;
            let value = self.sent_value(partition, *offset, value)?;
            // A batch that stands twice may have lost the first copy's beginning to a deletion.
            let is_complete = log_start == Offset(0) || self.idempotent.contains(&value.producer);
            if is_complete {
                self.check_place(&mut places, partition, *offset, value)?;
            }
        }
        let lost = self.partitions[partition].acked.range(next..).next();
        match lost {
            Some(lost) => {
                let what = format!("{partition} ends at {next}, but {lost} was acknowledged");
                Err((Invariant::AckedIsReadable, what))
            }
            None => self.check_start(partition, log_start),
        }
    }

    /// One offset for a value of an idempotent producer; and first places in the order of sending.
    fn check_place(
        &self,
        places: &mut BTreeMap<Value, Offset>,
        partition: PartitionId,
        offset: Offset,
        value: Value,
    ) -> Result<(), Broken> {
        if let Some(first) = places.get(&value) {
            if self.idempotent.contains(&value.producer) {
                let what = format!("{} is at {first} and {offset} of {partition}", value.encode());
                return Err((Invariant::NoGapNoDuplicate, what));
            }
            return Ok(());
        }
        let later = Value { number: value.number + 1, ..value.clone() };
        let end = Value { number: u64::MAX, ..value.clone() };
        if let Some((other, at)) = places.range(later..end).next() {
            let what =
                format!("{} at {offset} stands behind {} at {at}", value.encode(), other.encode());
            return Err((Invariant::ProducerOrder, what));
        }
        places.insert(value, offset);
        Ok(())
    }
}
