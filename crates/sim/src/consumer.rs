//! A consumer: reads all partitions, stores how far it has come, and sometimes starts anew from there.

use std::ops::Range;

use fastrand::Rng;
use model::batch::Batches;
use model::{ErrorCode, Offset};

use crate::history::{Broken, History};
use crate::invariant::Invariant;
use crate::message::{Fetched, PartitionId, Refused, Request, Response};
use crate::plan::PARTITIONS;

/// More than any batch of ours expands to.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// What it waits for, or does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Learn where to begin.
    FindOffsets,
    /// Go on reading.
    Read,
    /// An answer must come first.
    Await,
}

#[derive(Debug)]
pub(crate) struct Consumer {
    step: Step,
    /// What to do again if the connection breaks.
    resume: Step,
    requests_sent: u64,
    /// What the request under way is about.
    asked_partition: PartitionId,
    /// Partitions of the topic that the consumer reads. The lists below are in their order.
    topic: Range<PartitionId>,
    asked_offsets: Vec<Offset>,
    positions: Vec<Offset>,
    /// The largest high watermark seen.
    high_watermarks: Vec<Offset>,
    /// What it stored for sure, and what it tried to store; -1 for nothing.
    stored: Vec<Offset>,
    tried: Vec<Offset>,
    /// Whether it also deletes what it has read.
    deletes: bool,
}

impl Consumer {
    pub(crate) fn new(deletes: bool) -> Consumer {
        Consumer {
            step: Step::FindOffsets,
            resume: Step::FindOffsets,
            requests_sent: 0,
            asked_partition: 0,
            topic: 0..PARTITIONS,
            asked_offsets: vec![Offset(-1); PARTITIONS],
            positions: vec![Offset(0); PARTITIONS],
            high_watermarks: vec![Offset(0); PARTITIONS],
            stored: vec![Offset(-1); PARTITIONS],
            tried: vec![Offset(-1); PARTITIONS],
            deletes,
        }
    }

    /// Partitions of the topic that the consumer reads.
    pub(crate) fn topic(&self) -> &Range<PartitionId> {
        &self.topic
    }

    /// Place of a partition of the topic in the lists.
    fn place_of(&self, partition: PartitionId) -> usize {
        partition - self.topic.start
    }

    /// Whether it has read a partition up to `end`.
    pub(crate) fn has_reached(&self, partition: PartitionId, end: Offset) -> bool {
        self.step != Step::FindOffsets
            && self.resume != Step::FindOffsets
            && self.topic.contains(&partition)
            && self.positions[self.place_of(partition)] >= end
    }

    /// Asks for the next thing, if no answer is under way. `calm`: no more adventures.
    pub(crate) fn wake(
        &mut self,
        random: &mut Rng,
        history: &mut History,
        calm: bool,
    ) -> Option<(u64, Request)> {
        let request = match self.step {
            Step::Await => return None,
            Step::FindOffsets => Request::FetchOffsets,
            Step::Read => self.next_request(random, calm),
        };
        if let Request::DeleteRecords { partition, offset } = request {
            // Whether it happens, the answer may never tell.
            history.may_start_at(partition, offset);
        }
        self.resume = match request {
            Request::FetchOffsets => Step::FindOffsets,
            _ => Step::Read,
        };
        self.step = Step::Await;
        self.requests_sent += 1;
        Some((self.requests_sent, request))
    }

    fn next_request(&mut self, random: &mut Rng, calm: bool) -> Request {
        let partition = random.usize(self.topic.clone());
        self.asked_partition = partition;
        let position = self.positions[self.place_of(partition)];
        match random.u8(0..100) {
            0..12 => {
                self.asked_offsets.clone_from(&self.positions);
                for (tried, position) in self.tried.iter_mut().zip(&self.positions) {
                    *tried = (*position).max(*tried);
                }
                let positions = self.positions.iter().copied();
                Request::CommitOffsets { offsets: self.topic.clone().zip(positions).collect() }
            }
            12..15 if !calm => Request::FetchOffsets,
            15 if !calm && self.deletes => {
                let offset = Offset(position.0 / 2);
                Request::DeleteRecords { partition, offset }
            }
            _ => Request::Fetch { partition, offset: position },
        }
    }

    /// Reads a topic that was created again, from its beginning.
    pub(crate) fn use_topic(&mut self, topic: Range<PartitionId>) {
        let count = topic.len();
        self.topic = topic;
        self.asked_partition = self.topic.start;
        self.positions = vec![Offset(0); count];
        self.high_watermarks = vec![Offset(0); count];
        for offsets in [&mut self.asked_offsets, &mut self.stored, &mut self.tried] {
            *offsets = vec![Offset(-1); count];
        }
    }

    pub(crate) fn disconnected(&mut self) {
        if self.step == Step::Await {
            self.step = self.resume;
        }
    }

    /// Takes an answer; true if it goes on only with a new connection.
    pub(crate) fn receive(
        &mut self,
        response: Response,
        history: &mut History,
    ) -> Result<bool, Broken> {
        self.step = Step::Read;
        match response {
            Response::Fetched(Ok(fetched)) => self.fetched(&fetched, history)?,
            Response::Fetched(Err(Refused::OutOfRange { log_start })) => {
                self.out_of_range(log_start, history)?;
            }
            Response::Deleted(Ok(log_start)) => {
                history.check_start(self.asked_partition, log_start)?;
            }
            Response::Deleted(Err(Refused::OutOfRange { log_start })) => {
                history.check_start(self.asked_partition, log_start)?;
            }
            Response::Committed(ErrorCode::None) => self.stored.clone_from(&self.asked_offsets),
            Response::Offsets(Ok(offsets)) => self.begin_at(&offsets)?,
            Response::Offsets(Err(_)) => self.step = Step::FindOffsets,
            Response::Committed(_) | Response::Fetched(Err(_)) | Response::Deleted(Err(_)) => {
                return Ok(true);
            }
            Response::Produced(_) => unreachable!("it produces nothing"),
        }
        Ok(false)
    }

    fn begin_at(&mut self, offsets: &[(PartitionId, Offset)]) -> Result<(), Broken> {
        for (place, partition) in self.topic.clone().enumerate() {
            let found = offsets.iter().find(|(p, _)| *p == partition).map(|(_, offset)| *offset);
            let found = found.unwrap_or(Offset(-1));
            let (stored, tried) = (self.stored[place], self.tried[place]);
            // Offsets may go back when a consumer starts anew, but not below what it was told.
            if found < stored.min(self.asked_offsets[place]) || found > tried {
                let what = format!("{found} of {partition}, stored was {stored}, tried {tried}");
                return Err((Invariant::CommittedOffsetNeverLost, what));
            }
            self.positions[place] = found.max(Offset(0));
        }
        Ok(())
    }

    fn out_of_range(&mut self, log_start: Offset, history: &mut History) -> Result<(), Broken> {
        let partition = self.asked_partition;
        let place = self.place_of(partition);
        let position = self.positions[place];
        if position >= log_start {
            let what =
                format!("{position} of {partition} was readable and is beyond the log's end");
            return Err((Invariant::MonotonicHighWatermark, what));
        }
        history.check_start(partition, log_start)?;
        self.positions[place] = log_start;
        Ok(())
    }

    fn fetched(&mut self, fetched: &Fetched, history: &mut History) -> Result<(), Broken> {
        let partition = self.asked_partition;
        let place = self.place_of(partition);
        let seen = &mut self.high_watermarks[place];
        if fetched.high_watermark < *seen {
            let what = format!("{partition} went from {seen} to {}", fetched.high_watermark);
            return Err((Invariant::MonotonicHighWatermark, what));
        }
        *seen = fetched.high_watermark;
        history.check_start(partition, fetched.log_start)?;
        for (offset, value) in decode(&fetched.bytes) {
            let position = self.positions[place];
            if offset < position {
                continue;
            }
            if offset > position {
                let what = format!("{partition} goes on with {offset}, not {position}");
                return Err((Invariant::NoGapNoDuplicate, what));
            }
            if offset >= fetched.high_watermark {
                let what = format!("{partition} gives {offset} beyond its high watermark");
                return Err((Invariant::MonotonicHighWatermark, what));
            }
            history.read(partition, offset, &value)?;
            self.positions[place] = offset.next();
        }
        Ok(())
    }
}

/// The records in some whole batches.
pub(crate) fn decode(bytes: &[u8]) -> Vec<(Offset, Vec<u8>)> {
    let (mut records, mut buffer) = (Vec::new(), Vec::new());
    for batch in Batches::new(bytes) {
        let (_, batch) = batch.expect("answers are whole batches");
        let header = model::BatchHeader::decode_checked(batch).expect("batches are undamaged");
        let read = compression::records::read(&header, batch, BATCH_BYTES_MAX, &mut buffer);
        for record in read.expect("what producers compressed can be decompressed") {
            let record = record.expect("what producers sent is well-formed");
            let value = record.value.unwrap_or_default().to_vec();
            records.push((header.base_offset.plus(record.offset_delta as i64), value));
        }
    }
    records
}
