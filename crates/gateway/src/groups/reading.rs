//! Records on their way to one client: from what a broker has answered to texts, some ahead of what the client takes.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use client::{ClientError, ConsumerRecord, Fetched, Once, PrivateLane, read_once};
use model::{ErrorCode, Offset, TopicPartition};
use serving::events::encoding::{self, Event, Written};
use serving::events::{Form, Gap, Projection, TopicHash, notice};
use serving::push::tracker::Again;
use serving::push::{Dialect, frame};

use crate::charge::Charge;
use crate::events::{EXPANDED_BYTES_MAX, behind_damaged, too_large};

/// Bytes of texts that are made ahead; each member is charged for as many as long as it is there.
pub(super) const AHEAD_BYTES: usize = 32 * 1024;
/// What a text costs beside its bytes.
const OUT_BYTES: usize = 128;
/// In about how many parts a large compressed batch is made into texts: it expands anew for each of them.
const PARTS_OF_BATCH: usize = 16;
/// Bytes that a broker is asked for where one record is read again; a batch that is larger comes whole.
const REREAD_BYTES: i32 = 64 * 1024;
/// A buffer for expanded batches that is larger than this is given back.
const BUFFER_KEPT_BYTES: usize = 64 * 1024;

/// What a client is sent, or what is known behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Out {
    /// A record.
    Message { partition: TopicPartition, offset: i64, text: Vec<u8> },
    /// A record that it was sent before.
    Again { partition: TopicPartition, offset: i64, text: Vec<u8> },
    /// A gap, or records that cannot be read.
    Notice(Vec<u8>),
    /// Nothing is left below this offset.
    Pass { partition: TopicPartition, next: i64 },
}

impl Out {
    /// Whether it is a record.
    pub(crate) fn is_message(&self) -> bool {
        matches!(self, Out::Message { .. } | Out::Again { .. })
    }

    /// What the client is sent.
    pub(crate) fn text(&self) -> &[u8] {
        match self {
            Out::Message { text, .. } | Out::Again { text, .. } | Out::Notice(text) => text,
            Out::Pass { .. } => b"",
        }
    }

    /// The same, without a copy of it.
    pub(crate) fn into_text(self) -> Vec<u8> {
        match self {
            Out::Message { text, .. } | Out::Again { text, .. } | Out::Notice(text) => text,
            Out::Pass { .. } => Vec::new(),
        }
    }

    /// Bytes of memory.
    fn bytes(&self) -> usize {
        OUT_BYTES + self.text().len()
    }
}

/// Which record was read again.
#[derive(Debug, Clone)]
pub(super) struct Reread {
    pub(super) partition: TopicPartition,
    pub(super) offset: i64,
}

/// What was found where a record was read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// It is there.
    Text(Vec<u8>),
    /// It is not there any more, and will not come again.
    Gone,
    /// Its batch is damaged.
    Damaged(String),
    /// The broker has not come to it, and may later.
    NotYet,
}

/// A record that is read again.
pub(super) type Rereading =
    Pin<Box<dyn Future<Output = (Reread, Result<Found, ClientError>)> + Send>>;

/// Records of one client.
#[derive(Debug)]
pub(super) struct Shelf {
    projection: Projection,
    /// Bytes of one text at most.
    event_bytes_max: usize,
    /// Of the first of them, what lies before its `fetch_offset` was made into texts.
    fetched: VecDeque<Fetched>,
    texts: VecDeque<Out>,
    /// What goes before them.
    first: VecDeque<Out>,
    /// Bytes of `texts` and `first`.
    bytes: usize,
    /// What they hold beyond [`AHEAD_BYTES`].
    charge: Charge,
    /// Whether there was no memory for the next text.
    lacks_memory: bool,
    /// Where partitions are to be read on, because what lies before cannot be.
    refetch: Vec<(TopicPartition, Offset)>,
    buffer: Vec<u8>,
    /// To how many bytes the batch expanded of which texts were made last, if there is more in it.
    expanded_bytes: usize,
}

impl Shelf {
    /// An empty one. `charge`: nothing yet, of the room for what is read.
    pub(super) fn new(projection: Projection, event_bytes_max: usize, charge: Charge) -> Shelf {
        Shelf {
            projection,
            event_bytes_max,
            fetched: VecDeque::new(),
            texts: VecDeque::new(),
            first: VecDeque::new(),
            bytes: 0,
            charge,
            lacks_memory: false,
            refetch: Vec::new(),
            buffer: Vec::new(),
            expanded_bytes: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fetched.is_empty() && self.texts.is_empty()
    }

    /// Forgets the records that were fetched. Records to be sent again stay: no request would name them a second time, and whether they are
    /// still wanted is checked when they are taken.
    pub(super) fn clear(&mut self) {
        self.fetched.clear();
        self.texts.clear();
        self.refetch.clear();
        self.expanded_bytes = 0;
        self.count(self.first.iter().map(Out::bytes).sum());
    }

    /// Gives what was fetched back, if no text is made of it: the partitions of which that was. Each is to be read on from
    /// where its client is.
    pub(super) fn give_back(&mut self) -> Vec<TopicPartition> {
        self.lacks_memory = false;
        self.expanded_bytes = 0;
        self.fetched.drain(..).map(|fetched| fetched.partition).collect()
    }

    /// Whether there was no memory for the next text.
    pub(super) fn lacks_memory(&self) -> bool {
        self.lacks_memory
    }

    /// Bytes of what was fetched, as it is there.
    pub(super) fn fetched_bytes(&self) -> usize {
        self.fetched.iter().map(Fetched::size_bytes).sum()
    }

    /// Behind the last that was fetched of a partition, if some of it is here.
    pub(super) fn behind(&self, partition: &TopicPartition) -> Option<i64> {
        let of_partition = self.fetched.iter().rev().find(|one| one.partition == *partition);
        of_partition.map(|one| one.next_offset.0)
    }

    /// Has a partition be read on from there.
    pub(super) fn read_on(&mut self, partition: TopicPartition, at: i64) {
        self.refetch.push((partition, Offset(at)));
    }

    /// Where partitions are to be read on; asked once.
    pub(super) fn take_refetch(&mut self) -> Vec<(TopicPartition, Offset)> {
        std::mem::take(&mut self.refetch)
    }

    pub(super) fn put(&mut self, fetched: Fetched) {
        self.fetched.push_back(fetched);
    }

    /// Puts a message first that the client had before; false if there is no memory for it.
    pub(super) fn put_again(&mut self, of: Reread, text: Vec<u8>) -> bool {
        let Reread { partition, offset } = of;
        let again = Out::Again { partition, offset, text };
        let has_room = self.hold(again.bytes());
        if has_room {
            self.first.push_back(again);
        }
        has_room
    }

    /// Says a gap before the records that lie behind it.
    pub(super) fn say_gap(&mut self, partition: &TopicPartition, gap: &Gap) {
        let mut text = Vec::new();
        let write = match self.projection.form {
            Form::Frame(_) => frame::write_gap,
            _ => notice::write_gap,
        };
        write(&partition.topic, partition.partition.0, gap, &mut text);
        self.say(text);
    }

    /// Says which partitions have no leader that answers.
    pub(super) fn say_waiting(&mut self, partitions: &[TopicPartition]) {
        let named = partitions.iter().map(|partition| (&*partition.topic, partition.partition.0));
        let mut text = Vec::new();
        match self.projection.form {
            Form::Frame(_) => frame::write_waiting(named, &mut text),
            _ => notice::write_waiting(named, &mut text),
        }
        self.say(text);
    }

    /// Says that a record cannot be sent again, and why.
    pub(super) fn say_lost(&mut self, of: &Reread, words: &str) {
        self.say(told(&self.projection, &of.partition, of.offset, words));
    }

    fn say(&mut self, text: Vec<u8>) {
        let notice = Out::Notice(text);
        self.bytes += notice.bytes();
        self.first.push_back(notice);
    }

    /// The next, and what it is charged with; `takes`: whether messages are taken, and not only what is said besides; `again`:
    /// whether those are that were sent before.
    pub(super) fn take(&mut self, takes: bool, again: bool) -> Option<(Out, Charge)> {
        let is_taken = |out: &mut Out| match out {
            Out::Message { .. } => takes,
            Out::Again { .. } => again,
            Out::Notice(_) | Out::Pass { .. } => true,
        };
        if self.first.is_empty() && self.texts.is_empty() {
            self.make();
        }
        let from = if self.first.is_empty() { &mut self.texts } else { &mut self.first };
        let out = from.pop_front_if(is_taken)?;
        self.bytes -= out.bytes();
        let surplus = self.charge.bytes().saturating_sub(self.bytes.saturating_sub(AHEAD_BYTES));
        let charge = self.charge.split(surplus);
        Some((out, charge))
    }

    /// Charges so many bytes more of texts; false if there is no memory for them.
    fn hold(&mut self, bytes: usize) -> bool {
        let held = self.bytes + bytes;
        let is_held = self.charge.set(held.saturating_sub(AHEAD_BYTES)).is_ok();
        if is_held {
            self.bytes = held;
        }
        is_held
    }

    /// Notes that texts have so many bytes, fewer than before.
    fn count(&mut self, bytes: usize) {
        self.bytes = bytes;
        // To hold less always succeeds.
        let _ = self.charge.set(bytes.saturating_sub(AHEAD_BYTES));
    }

    /// Makes texts of what was fetched, as many as are made ahead and there is memory for.
    fn make(&mut self) {
        self.lacks_memory = false;
        while self.texts.is_empty()
            && let Some(mut fetched) = self.fetched.pop_front()
        {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.clear();
            let ahead_bytes = AHEAD_BYTES.max(self.expanded_bytes / PARTS_OF_BATCH);
            let mut making = Making {
                shelf: self,
                of: &fetched.partition,
                ahead_bytes,
                bytes: 0,
                read_on: None,
            };
            let read = fetched.read(EXPANDED_BYTES_MAX, &mut buffer, |record| making.add(&record));
            let read_on = making.read_on;
            self.expanded_bytes = buffer.len();
            if buffer.capacity() <= BUFFER_KEPT_BYTES {
                self.buffer = buffer;
            }
            if let Some(offset) = read_on {
                fetched.fetch_offset = Offset(offset);
                self.fetched.push_front(fetched);
                return;
            }
            self.end(fetched, read.err());
        }
    }

    /// Notes that texts were made of all that was fetched, but for what cannot be read.
    fn end(&mut self, fetched: Fetched, error: Option<ClientError>) {
        self.expanded_bytes = 0;
        let mut next = fetched.next_offset.0;
        if let Some(error) = error {
            let behind = behind_damaged(&fetched, &error).map(|position| position.next());
            next = behind.unwrap_or(next);
            self.refetch.push((fetched.partition.clone(), Offset(next)));
            let words = error.to_string();
            let notice = told(&self.projection, &fetched.partition, next - 1, &words);
            self.push(Out::Notice(notice));
        }
        self.push(Out::Pass { partition: fetched.partition, next });
    }

    /// Puts what is small behind all texts.
    fn push(&mut self, out: Out) {
        self.bytes += out.bytes();
        self.texts.push_back(out);
    }
}

/// Texts of one fetch.
struct Making<'a> {
    shelf: &'a mut Shelf,
    of: &'a TopicPartition,
    /// After so many bytes it is enough.
    ahead_bytes: usize,
    bytes: usize,
    /// The first record of which there is no text, if they are not all.
    read_on: Option<i64>,
}

impl Making<'_> {
    fn add(&mut self, record: &ConsumerRecord<'_>) -> ControlFlow<()> {
        let (mut text, offset) = (Vec::new(), record.offset.0);
        let (projection, bytes_max) = (&self.shelf.projection, self.shelf.event_bytes_max);
        match write(projection, self.of, record, bytes_max, &mut text) {
            Written::LeftOut => {}
            Written::Event => {
                if text.capacity() > AHEAD_BYTES {
                    text.shrink_to_fit();
                }
                let message = Out::Message { partition: self.of.clone(), offset, text };
                if !self.shelf.hold(message.bytes()) {
                    self.shelf.lacks_memory = self.shelf.texts.is_empty();
                    return self.stop(offset);
                }
                self.bytes += message.bytes();
                self.shelf.texts.push_back(message);
            }
            Written::TooLarge(size) => {
                let words = too_large(size, bytes_max);
                let notice = Out::Notice(told(projection, self.of, offset, &words));
                self.bytes += notice.bytes();
                self.shelf.push(notice);
            }
        }
        if self.bytes >= self.ahead_bytes {
            self.stop(offset + 1)
        } else {
            ControlFlow::Continue(())
        }
    }

    fn stop(&mut self, read_on: i64) -> ControlFlow<()> {
        self.read_on = Some(read_on);
        ControlFlow::Break(())
    }
}

fn told(projection: &Projection, partition: &TopicPartition, offset: i64, words: &str) -> Vec<u8> {
    let mut text = Vec::new();
    let write = match projection.form {
        Form::Frame(_) => frame::write_error,
        _ => notice::write_error,
    };
    write(&partition.topic, partition.partition.0, offset, words, &mut text);
    text
}

fn event<'a>(partition: &'a TopicPartition, record: &ConsumerRecord<'a>) -> Event<'a> {
    Event {
        topic: &partition.topic,
        // Only ids have it, and these texts have none.
        topic_hash: TopicHash(0),
        partition: partition.partition.0,
        offset: record.offset.0,
        leader_epoch: record.leader_epoch.0,
        timestamp_ms: record.timestamp.0,
        key: record.key,
        value: record.value,
    }
}

fn write(
    projection: &Projection,
    partition: &TopicPartition,
    record: &ConsumerRecord<'_>,
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> Written {
    let headers: Vec<_> = record.headers().collect();
    let (event, headers) = (event(partition, record), headers.iter().copied());
    encoding::write_within(projection, &event, headers, bytes_max, out)
}

/// Reads a record again, as a message in Pulsar's words.
pub(super) fn reread(
    lane: &Arc<PrivateLane>,
    partition: TopicPartition,
    Again { offset, count }: Again,
) -> Rereading {
    let lane = Arc::clone(lane);
    Box::pin(async move {
        let wish = Once {
            partition: partition.clone(),
            offset: Offset(offset),
            bytes_max: REREAD_BYTES,
            wait: Duration::ZERO,
            read_committed: true,
        };
        let result = match read_once(&lane, &wish).await {
            Ok(fetched) => Ok(find(&fetched, offset, count)),
            Err(error) if error.code() == Some(ErrorCode::OffsetOutOfRange) => Ok(Found::Gone),
            Err(error) => {
                // The leader may be another one by now; else this fails as before.
                let _ = lane.cluster().refresh().await;
                Err(error)
            }
        };
        (Reread { partition, offset }, result)
    })
}

/// The text of one record, if it is there.
fn find(fetched: &Fetched, offset: i64, count: u32) -> Found {
    let mut text = None;
    let read = fetched.read(EXPANDED_BYTES_MAX, &mut Vec::new(), |record| {
        if record.offset.0 == offset {
            let headers: Vec<_> = record.headers().collect();
            let event = event(&fetched.partition, &record);
            let headers = headers.iter().copied();
            let out = text.insert(Vec::new());
            frame::write_record(Dialect::Pulsar, false, &event, headers, count, out);
        }
        ControlFlow::Break(())
    });
    match (text, read) {
        (Some(text), _) => Found::Text(text),
        (None, Err(error)) => Found::Damaged(error.to_string()),
        // An answer without it that does not reach beyond it says nothing.
        (None, Ok(_)) if fetched.next_offset.0 <= offset => Found::NotYet,
        (None, Ok(_)) => Found::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charge::Room;

    fn again(offset: i64) -> (Reread, Vec<u8>) {
        (Reread { partition: TopicPartition::new("t", 0), offset }, vec![b'x'; AHEAD_BYTES])
    }

    #[test]
    fn what_is_to_be_sent_again_outlives_what_was_fetched_and_is_charged() {
        let room = Room::new(4 * AHEAD_BYTES);
        let charge = Charge::new(&room);
        let mut shelf = Shelf::new(Projection::default(), 1000, charge);
        for offset in [3, 4] {
            let (of, text) = again(offset);
            assert!(shelf.put_again(of, text));
        }
        shelf.clear();
        assert_eq!(room.held_bytes(), AHEAD_BYTES + 2 * OUT_BYTES, "one is charged for already");
        assert!(shelf.take(true, false).is_none(), "it waits for its turn");
        let (first, charge) = shelf.take(false, true).unwrap();
        assert!(matches!(first, Out::Again { offset: 3, .. }));
        assert_eq!(charge.bytes(), AHEAD_BYTES + OUT_BYTES);
        drop(charge);
        assert_eq!(room.held_bytes(), OUT_BYTES);
        assert!(matches!(shelf.take(false, true), Some((Out::Again { offset: 4, .. }, _))));
        assert!(shelf.take(true, true).is_none());
        assert_eq!(room.held_bytes(), 0);
        // Where there is no memory it is asked for again.
        let _taken = {
            let mut other = shelf.charge.beside();
            other.add(4 * AHEAD_BYTES).unwrap();
            other
        };
        let (of, text) = again(5);
        assert!(!shelf.put_again(of, text));
        assert!(shelf.take(true, true).is_none());
    }
}
