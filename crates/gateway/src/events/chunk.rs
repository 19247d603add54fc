//! Events of one partition that follow each other, as the bytes in which they go out.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use client::{ClientError, ConsumerRecord, Fetched};
use model::batch::Batches;
use serving::events::encoding::{self, Event, Written};
use serving::events::{Form, Passed, Position, Projection, TopicHash, notice};
use serving::push::frame;

use super::budget::{Budget, Held};

/// Bytes from which on a chunk is whole. One event may be larger.
const CHUNK_BYTES: usize = 64 * 1024;
/// Bytes of events that are made of one answer of a broker; what is behind them is asked again.
const ENCODED_BYTES_MAX: usize = 1 << 20;
/// To how many bytes a batch may expand. Highwater takes twice as much by default, Kafka any: readers are told of those.
pub(crate) const EXPANDED_BYTES_MAX: usize = 64 << 20;
/// Bytes of one event; of a record that would have more, readers are told. As many as one read piece by piece may ask for.
pub(crate) const EVENT_BYTES_MAX: usize = 8 << 20;
/// What a chunk costs beside its bytes and marks: itself, its entries.
const OVERHEAD_BYTES: usize = 256;
/// A buffer for expanded batches that is larger than this is given back.
const BUFFER_KEPT_BYTES: usize = 1 << 20;

/// Where an event ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) position: Position,
    /// Behind its last byte.
    pub(super) end: u32,
}

/// A chunk.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The offsets that it covers, whether they have events or not.
    pub(super) offsets: Range<i64>,
    /// The leader epoch at its end.
    pub(super) leader_epoch: i32,
    pub(super) bytes: Box<[u8]>,
    /// Of each event.
    pub(super) marks: Box<[Mark]>,
    /// When it was made.
    pub(super) made_at: Instant,
    /// Whether its track has it no more.
    is_forgotten: AtomicBool,
    _held: Held,
}

impl Chunk {
    /// Where a reader is that has passed it.
    pub(super) fn behind(&self) -> Position {
        Position { offset: self.offsets.end - 1, leader_epoch: self.leader_epoch }
    }

    /// A chunk without events that covers another one, too.
    pub(super) fn stretched(&self, behind: &Chunk, budget: &Arc<Budget>) -> Chunk {
        let draft = Draft { first: self.offsets.start, ..Draft::default() };
        draft.finish(behind.behind(), budget)
    }

    pub(super) fn forget(&self) {
        self.is_forgotten.store(true, Ordering::Relaxed);
    }

    /// Whether only its readers keep it.
    pub(super) fn is_forgotten(&self) -> bool {
        self.is_forgotten.load(Ordering::Relaxed)
    }
}

/// A chunk that is being made.
#[derive(Debug, Default)]
struct Draft {
    first: i64,
    bytes: Vec<u8>,
    marks: Vec<Mark>,
}

impl Draft {
    fn finish(self, behind: Position, budget: &Arc<Budget>) -> Chunk {
        let size = self.bytes.len() + self.marks.len() * size_of::<Mark>() + OVERHEAD_BYTES;
        Chunk {
            offsets: self.first..behind.next(),
            leader_epoch: behind.leader_epoch,
            bytes: self.bytes.into(),
            marks: self.marks.into(),
            made_at: Instant::now(),
            is_forgotten: AtomicBool::new(false),
            _held: budget.hold(size),
        }
    }

    fn mark(&mut self, position: Position) {
        let end = u32::try_from(self.bytes.len()).expect("events of one answer are some megabytes");
        self.marks.push(Mark { position, end });
    }
}

/// Which partition events are of.
pub(super) struct Of<'a> {
    pub(super) topic: &'a str,
    pub(super) topic_hash: TopicHash,
    pub(super) partition: i32,
    pub(super) budget: &'a Arc<Budget>,
}

/// The chunks of one projection.
struct Making<'a> {
    projection: &'a Projection,
    draft: Draft,
    whole: Vec<Chunk>,
    bytes: usize,
}

impl Making<'_> {
    fn add(&mut self, of: &Of<'_>, record: &ConsumerRecord<'_>) {
        let position = Position { offset: record.offset.0, leader_epoch: record.leader_epoch.0 };
        let event = Event {
            topic: of.topic,
            topic_hash: of.topic_hash,
            partition: of.partition,
            offset: position.offset,
            leader_epoch: position.leader_epoch,
            timestamp_ms: record.timestamp.0,
            key: record.key,
            value: record.value,
        };
        let headers: Vec<_> = record.headers().collect();
        let (headers, bytes_max) = (headers.iter().copied(), of.budget.event_bytes_max);
        let out = &mut self.draft.bytes;
        match encoding::write_within(self.projection, &event, headers, bytes_max, out) {
            Written::Event => self.draft.mark(position),
            Written::LeftOut => {}
            Written::TooLarge(bytes) => self.fail(of, position, &too_large(bytes, bytes_max)),
        }
        if self.draft.bytes.len() >= CHUNK_BYTES {
            self.cut(of, position);
        }
    }

    /// Says that what ends here cannot be sent, and why.
    fn fail(&mut self, of: &Of<'_>, behind: Position, words: &str) {
        let first = behind.offset;
        let out = &mut self.draft.bytes;
        match self.projection.form {
            Form::Frame(_) => frame::write_error(of.topic, of.partition, first, words, out),
            _ => {
                if let Some(style) = self.projection.ids {
                    let Of { topic, topic_hash, partition, .. } = *of;
                    let passed = Passed { topic, topic_hash, partition, position: behind };
                    encoding::write_id_line(style, passed, out);
                }
                notice::write_error(of.topic, of.partition, first, words, out);
            }
        }
        self.draft.mark(behind);
    }

    fn cut(&mut self, of: &Of<'_>, behind: Position) {
        let next = Draft { first: behind.next(), ..Draft::default() };
        let draft = std::mem::replace(&mut self.draft, next);
        self.bytes += draft.bytes.len();
        self.whole.push(draft.finish(behind, of.budget));
    }
}

/// Makes the chunks of an answer, for each projection, and says how far they reach: not to its end if they would be too
/// large. A batch that cannot be read is an event that says so.
pub(super) fn make(
    of: &Of<'_>,
    fetched: &Fetched,
    projections: &[&Projection],
    buffer: &mut Vec<u8>,
) -> (Vec<Vec<Chunk>>, Position) {
    let first = fetched.fetch_offset.0;
    let making = |projection| Making {
        projection,
        draft: Draft { first, ..Draft::default() },
        whole: Vec::new(),
        bytes: 0,
    };
    let mut all: Vec<_> = projections.iter().copied().map(making).collect();
    let mut behind =
        Position { offset: fetched.next_offset.0 - 1, leader_epoch: fetched.leader_epoch.0 };
    let read = fetched.read(EXPANDED_BYTES_MAX, buffer, |record| {
        all.iter_mut().for_each(|making| making.add(of, &record));
        if all.iter().any(|making| making.bytes >= ENCODED_BYTES_MAX) {
            behind = Position { offset: record.offset.0, leader_epoch: record.leader_epoch.0 };
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    if let Err(error) = read {
        behind = behind_damaged(fetched, &error).unwrap_or(behind);
        let words = match error {
            ClientError::Corrupt { reason, .. } => reason,
            other => other.to_string(),
        };
        all.iter_mut().for_each(|making| making.fail(of, behind, &words));
    }
    if buffer.capacity() > BUFFER_KEPT_BYTES {
        *buffer = Vec::new();
    }
    for making in &mut all {
        if making.draft.first < behind.next() {
            making.cut(of, behind);
        }
    }
    (all.into_iter().map(|making| making.whole).collect(), behind)
}

/// Why an event is not sent.
pub(crate) fn too_large(bytes: usize, bytes_max: usize) -> String {
    format!(
        "it has {bytes} bytes or more as an event, and {bytes_max} are sent at most: read it piece by piece"
    )
}

/// The end of the batch that cannot be read.
pub(crate) fn behind_damaged(fetched: &Fetched, error: &ClientError) -> Option<Position> {
    let ClientError::Corrupt { offset, .. } = error else { return None };
    let mut headers = Batches::new(fetched.batches()).map_while(Result::ok);
    let (header, _) = headers.find(|(header, _)| header.base_offset.0 == *offset)?;
    Some(Position { offset: header.last_offset().0, leader_epoch: header.leader_epoch.0 })
}
