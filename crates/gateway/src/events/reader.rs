//! One reader: its place in each partition, and what it is to be sent next. It keeps no records: those are in chunks that
//! all readers share.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use client::ClientError;
use model::TopicPartition;
use serving::events::notice::{self, End};
use serving::events::pace::{Slow, Verdict, verdict};
use serving::events::{Gap, IdStyle, Passed, Position, Reason, id};
use serving::push::frame;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Events;
use super::catch_up::{CaughtUp, catch_up};
use super::chunk::Chunk;
use super::counts::Counts;
use super::feed::{Feed, Track};
use super::place_lookup::PlaceLookup;
use super::places::{self, Begun, Wish};

/// After so long a place is tried again at which nothing could be read.
const NOTHING_REST: Duration = Duration::from_millis(200);
/// After so long a partition is tried again that could not be read.
const FAILURE_REST: Duration = Duration::from_secs(1);

/// Bytes of ids in one piece, if each event gets one.
const WITH_IDS_BYTES: usize = 64 * 1024;

/// A place in a partition.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) feed: Arc<Feed>,
    pub(super) track: Arc<Track>,
    pub(super) position: Position,
    /// Where the reader has read enough.
    pub(super) stop_at: Option<i64>,
    /// Whether it was at the end of the log once: who falls behind from there is slow.
    was_at_end: bool,
    /// When the past may be asked for again.
    retry_at: Option<Instant>,
}

impl Place {
    pub(super) fn new(
        feed: Arc<Feed>,
        track: Arc<Track>,
        position: Position,
        stop_at: Option<i64>,
    ) -> Place {
        Place { feed, track, position, stop_at, was_at_end: false, retry_at: None }
    }

    fn is_done(&self) -> bool {
        self.stop_at.is_some_and(|stop_at| self.position.next() >= stop_at)
    }
}

/// How a reader is served.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    pub(super) id_style: IdStyle,
    /// Whether each event gets an id although there are several partitions.
    pub(super) id_every: bool,
    /// Bytes of the longest id of the stream.
    pub(super) id_bytes_max: usize,
    pub(super) slow: Slow,
    pub(super) lag_max: Option<u64>,
    /// Whether it is told texts, and not events: those have no ids.
    pub(super) is_told_texts: bool,
}

/// Places of a reader that have no position yet.
#[derive(Debug)]
pub(super) struct AwaitedPlaces {
    pub(super) lookup: PlaceLookup,
    /// The wish of each place; `None` for a place with a position.
    pub(super) wishes: Vec<Option<Wish>>,
}

/// A reader.
#[derive(Debug)]
pub(crate) struct Reader {
    places: Box<[Place]>,
    /// Rings when a partition has something, or has changed.
    bell: Arc<Notify>,
    /// `None` when all places have positions. Boxed, because nearly all readers have none.
    awaited: Option<Box<AwaitedPlaces>>,
    manner: Manner,
    /// Events that may be sent still.
    left: u64,
    /// Events that it takes until it has acknowledged some.
    credit: u64,
    /// The place that is looked at first: all have their turn.
    turn: usize,
    /// Whether places have moved on since the last id.
    has_moved: bool,
    counts: Arc<Counts>,
}

/// Events to be sent.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(super) chunk: Arc<Chunk>,
    pub(super) feed: Arc<Feed>,
    at: usize,
    marks: Range<usize>,
    /// Whether the reader has waited for it at the end of the log.
    is_new: bool,
}

/// What is next.
#[derive(Debug)]
pub(crate) enum Step {
    /// These events.
    Send(Piece),
    /// This notice.
    Say(Vec<u8>),
    /// The past of this place must be read.
    CatchUp(usize),
    /// Nothing, until the bell rings or this moment comes.
    Wait(Option<Instant>),
    /// The reader must come again.
    Leave,
    /// The reader is too slow.
    LeaveSlow,
    /// The stream was to end here.
    Finish(End),
}

impl Reader {
    /// Count of partitions read.
    pub(crate) fn partitions(&self) -> usize {
        self.places.len()
    }

    pub(super) fn new(
        places: Vec<Place>,
        manner: Manner,
        limit: Option<u64>,
        awaited: AwaitedPlaces,
        counts: &Arc<Counts>,
    ) -> Reader {
        let bell = Arc::clone(awaited.lookup.bell());
        let awaited = awaited.wishes.iter().any(Option::is_some).then(|| Box::new(awaited));
        places.iter().for_each(|place| place.track.join(&bell));
        counts.readers.raise();
        Reader {
            places: places.into(),
            bell,
            awaited,
            manner,
            left: limit.unwrap_or(u64::MAX),
            credit: u64::MAX,
            turn: 0,
            has_moved: false,
            counts: Arc::clone(counts),
        }
    }

    pub(crate) fn bell(&self) -> &Arc<Notify> {
        &self.bell
    }

    /// The notice of partitions that the reader begins without, if there are any.
    pub(super) fn waiting_notice(&self) -> Option<Vec<u8>> {
        let wishes = &self.awaited.as_ref()?.wishes;
        let missing: Vec<&TopicPartition> = self
            .places
            .iter()
            .zip(wishes)
            .filter_map(|(place, wish)| wish.is_some().then_some(&place.feed.partition))
            .collect();
        let partitions = missing.iter().map(|partition| (&*partition.topic, partition.partition.0));
        let mut notice = Vec::new();
        match self.manner.is_told_texts {
            true => frame::write_waiting(partitions, &mut notice),
            false => notice::write_waiting(partitions, &mut notice),
        }
        Some(notice)
    }

    /// Takes the positions that were found since. `Some`: the next step.
    fn take_found(&mut self) -> Option<Step> {
        while let Some((at, found)) = self.awaited.as_mut().and_then(|it| it.lookup.next()) {
            let Ok(Begun { position, gap, .. }) = found else {
                // The next attempt to open the stream returns the error.
                return Some(Step::Leave);
            };
            self.places[at].position = position;
            self.has_moved = true;
            if let Some(awaited) = &mut self.awaited {
                awaited.wishes[at] = None;
                if awaited.wishes.iter().all(Option::is_none) {
                    self.awaited = None;
                }
            }
            if let Some(gap) = gap {
                return Some(Step::Say(self.say(at, &gap)));
            }
        }
        None
    }

    /// Says how many events the reader takes now.
    pub(crate) fn set_credit(&mut self, credit: u64) {
        self.credit = credit;
    }

    /// What is next. Places move on with what is returned.
    pub(crate) fn step(&mut self) -> Step {
        if self.left == 0 {
            return Step::Finish(End::Limit);
        }
        if self.places.iter().any(|place| place.feed.is_over() || place.track.is_over()) {
            return Step::Leave;
        }
        if let Some(step) = self.take_found() {
            return step;
        }
        if self.credit == 0 {
            return Step::Wait(None);
        }
        let now = Instant::now();
        let mut wake_at: Option<Instant> = None;
        for turn in 0..self.places.len() {
            let at = (self.turn + turn) % self.places.len();
            match self.look_at(at, now) {
                Step::Wait(until) => wake_at = [wake_at, until].into_iter().flatten().min(),
                step => {
                    self.turn = (at + 1) % self.places.len();
                    return step;
                }
            }
        }
        match self.places.iter().all(Place::is_done) {
            true => Step::Finish(End::Reached),
            false => Step::Wait(wake_at),
        }
    }

    fn look_at(&mut self, at: usize, now: Instant) -> Step {
        loop {
            if self.awaited_wish(at).is_some() {
                return Step::Wait(None);
            }
            let place = &mut self.places[at];
            let next = place.position.next();
            // A feed of a place with a position has begun.
            let end = place.feed.end().unwrap_or(next);
            if place.is_done() {
                return Step::Wait(None);
            }
            if next >= end {
                place.was_at_end = true;
                return Step::Wait(None);
            }
            let chunk = place.track.find(next);
            let lag = (end - next).unsigned_abs();
            let Manner { slow, lag_max, .. } = self.manner;
            let is_kept = chunk.is_some() || place.track.is_before(next);
            match verdict(slow, lag, lag_max, place.was_at_end, is_kept) {
                Verdict::Close => return Step::LeaveSlow,
                Verdict::Skip => return Step::Say(self.skip(at, end)),
                Verdict::Stay => {}
            }
            let Some(chunk) = chunk else { return place.past(at, now) };
            if let Some(piece) = self.pass(at, chunk) {
                return Step::Send(piece);
            }
        }
    }

    /// Jumps to the end.
    fn skip(&mut self, at: usize, end: i64) -> Vec<u8> {
        let place = &mut self.places[at];
        let gap = Gap { reason: Reason::Slow, from: place.position.next(), to: end };
        place.position = Position { offset: end - 1, leader_epoch: place.feed.leader_epoch() };
        self.say(at, &gap)
    }

    /// Says a gap, and the id behind it.
    fn say(&mut self, at: usize, gap: &Gap) -> Vec<u8> {
        self.counts.gaps.count(gap.reason.into());
        let mut out = Vec::new();
        let partition = &self.places[at].feed.partition;
        write_gap(self.manner.is_told_texts, partition, gap, &mut out);
        if !self.manner.is_told_texts {
            self.write_id_block(&mut out);
        }
        out
    }

    /// Moves a place behind a chunk; its events from that place on, if it has some.
    fn pass(&mut self, at: usize, chunk: Arc<Chunk>) -> Option<Piece> {
        let left = self.left.min(self.credit).min(self.piece_events_max());
        let place = &mut self.places[at];
        let is_new = place.was_at_end;
        let next = place.position.next();
        let first = chunk.marks.partition_point(|mark| mark.position.offset < next);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let mut last = first.saturating_add(left).min(chunk.marks.len());
        let mut behind = chunk.behind();
        if last < chunk.marks.len() {
            behind = chunk.marks[last - 1].position;
        }
        if let Some(stop_at) = place.stop_at.filter(|stop_at| *stop_at <= behind.offset) {
            last = last.min(chunk.marks.partition_point(|mark| mark.position.offset < stop_at));
            behind = Position { offset: stop_at - 1, leader_epoch: behind.leader_epoch };
        }
        place.position = behind;
        place.retry_at = None;
        self.left -= (last - first) as u64;
        self.credit -= (last - first) as u64;
        self.counts.sent.add((last - first) as u64);
        if first == last {
            self.has_moved = true;
            return None;
        }
        let says_all = self.is_single() && chunk.marks[last - 1].position.offset == behind.offset;
        self.has_moved = !says_all;
        let feed = Arc::clone(&self.places[at].feed);
        Some(Piece { chunk, feed, at, marks: first..last, is_new })
    }

    /// Whether there is nothing that was not sent.
    pub(super) fn is_at_end(&self) -> bool {
        self.places.iter().enumerate().all(|(at, place)| {
            self.awaited_wish(at).is_some()
                || place.feed.end().is_none_or(|end| place.position.next() >= end)
        })
    }

    /// Events of one piece: with an id in each, they are not written from the chunk's own memory.
    fn piece_events_max(&self) -> u64 {
        if !self.manner.id_every || self.is_single() {
            return u64::MAX;
        }
        (WITH_IDS_BYTES / self.manner.id_bytes_max.max(1)).max(1) as u64
    }

    /// Whether ids are in the chunks.
    fn is_single(&self) -> bool {
        self.places.len() == 1
    }

    /// What goes out behind a piece: the id, if it is not in each event.
    pub(super) fn id_behind(&mut self, piece: &Piece, out: &mut Vec<u8>) {
        let is_last = self.places[piece.at].is_done() || self.left == 0;
        if !self.is_single() || is_last && self.has_moved {
            self.write_id_block(out);
        }
    }

    /// The events with an id in each, if that is wanted and not so in the chunk.
    pub(super) fn with_ids(&self, piece: &Piece) -> Option<Vec<u8>> {
        if !self.manner.id_every || self.is_single() {
            return None;
        }
        let mut out = Vec::new();
        for at in piece.marks.clone() {
            let position = piece.chunk.marks[at].position;
            out.extend(b"id: ");
            self.write_id(Some((piece.at, position)), &mut out);
            out.push(b'\n');
            out.extend(&piece.chunk.bytes[piece.bytes_of(at..at + 1)]);
        }
        Some(out)
    }

    /// An id as an event of its own, which fires nothing.
    pub(super) fn write_id_block(&mut self, out: &mut Vec<u8>) {
        notice::write_id(out, |out| self.write_id(None, out));
        self.has_moved = false;
    }

    /// The wish of a place without a position.
    fn awaited_wish(&self, at: usize) -> Option<Wish> {
        self.awaited.as_ref().and_then(|awaited| awaited.wishes[at])
    }

    /// Position of a place in an id, and the time that replaces it where it is not known. `None` for a partition that an id
    /// leaves out, so that it is read from its first record.
    fn in_id(&self, at: usize) -> Option<(Position, Option<i64>)> {
        let known = self.places[at].position;
        match self.awaited_wish(at) {
            None => Some((known, None)),
            Some(Wish::Behind { position, is_another: false }) => Some((position, None)),
            Some(Wish::Time(time)) => Some((known, Some(time))),
            Some(Wish::Earliest | Wish::Latest | Wish::Behind { .. }) => None,
        }
    }

    fn write_id(&self, other: Option<(usize, Position)>, out: &mut Vec<u8>) {
        let passed = self.places.iter().enumerate().filter_map(|(at, place)| {
            let (position, time) = self.in_id(at)?;
            let passed = Passed {
                topic: &place.feed.partition.topic,
                topic_hash: place.feed.topic_hash,
                partition: place.feed.partition.partition.0,
                position: other.filter(|(known, _)| *known == at).map_or(position, |(_, p)| p),
            };
            Some((passed, time))
        });
        let has_times = self.awaited.is_some() && passed.clone().any(|(_, time)| time.is_some());
        match has_times {
            true => id::write_with_times(passed, out),
            false => id::write(self.manner.id_style, passed.map(|(passed, _)| passed), out),
        }
    }

    /// A sign of life: the id, if it has moved on, so that a filtered stream is not read again.
    pub(super) fn ping(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.has_moved {
            true => self.write_id_block(&mut out),
            false => out.extend(notice::PING),
        }
        out
    }

    /// Reads the past of a place; a notice, if there is a gap.
    pub(crate) async fn catch_up(&mut self, events: &Events, at: usize) -> Option<Vec<u8>> {
        let place = &self.places[at];
        let next = place.position.next();
        let caught_up = match catch_up(events, &place.feed, &place.track, next).await {
            Ok(CaughtUp::Soon) => return None,
            Ok(CaughtUp::Outside) => {
                let partition = &place.feed.partition;
                places::within(&events.cluster, partition, place.position).await.map(Some)
            }
            Ok(CaughtUp::Nothing) => Ok(None),
            Err(error) => Err(error),
        };
        self.settle(at, caught_up)
    }

    fn settle(
        &mut self,
        at: usize,
        found: Result<Option<(Position, Option<Gap>)>, ClientError>,
    ) -> Option<Vec<u8>> {
        let place = &mut self.places[at];
        match found {
            Ok(Some((position, Some(gap)))) => {
                place.position = position;
                return Some(self.say(at, &gap));
            }
            Ok(_) => place.retry_at = Some(Instant::now() + NOTHING_REST),
            Err(error) if error.is_retriable() => {
                place.retry_at = Some(Instant::now() + FAILURE_REST);
            }
            // The next attempt to open the stream says why.
            Err(_) => place.feed.finish(),
        }
        None
    }
}

impl Place {
    /// What to do for records that are not in memory.
    fn past(&self, at: usize, now: Instant) -> Step {
        if self.track.is_being_read(self.position.next()) {
            return Step::Wait(None);
        }
        match self.retry_at.filter(|retry_at| *retry_at > now) {
            Some(retry_at) => Step::Wait(Some(retry_at)),
            None => Step::CatchUp(at),
        }
    }
}

/// Says a gap in the words of a reader.
pub(super) fn write_gap(texts: bool, partition: &TopicPartition, gap: &Gap, out: &mut Vec<u8>) {
    let write = if texts { frame::write_gap } else { notice::write_gap };
    write(&partition.topic, partition.partition.0, gap, out);
}

impl Piece {
    /// The bytes of its events one by one.
    pub(crate) fn each(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.marks.clone().map(|at| &self.chunk.bytes[self.bytes_of(at..at + 1)])
    }

    /// How many events it has.
    pub(crate) fn count(&self) -> usize {
        self.marks.len()
    }

    /// The events' bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.chunk.bytes[self.bytes_of(self.marks.clone())]
    }

    /// For how long its events have been here, if the reader has waited for them.
    pub(super) fn age(&self) -> Option<Duration> {
        self.is_new.then(|| self.chunk.made_at.elapsed())
    }

    fn bytes_of(&self, marks: Range<usize>) -> Range<usize> {
        let begin = marks.start.checked_sub(1).map_or(0, |before| self.chunk.marks[before].end);
        begin as usize..self.chunk.marks[marks.end - 1].end as usize
    }

    /// Whether memory is short, and this chunk is kept for one reader that takes nothing.
    pub(crate) fn is_burden(&self) -> bool {
        self.chunk.is_forgotten() && self.feed.is_short_of_memory()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.places.iter().for_each(|place| place.track.leave(&self.bell));
        self.counts.readers.lower();
    }
}
