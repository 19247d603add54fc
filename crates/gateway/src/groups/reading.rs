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

use crate::events::{EVENT_BYTES_MAX, EXPANDED_BYTES_MAX, behind_damaged, too_large};

/// Bytes of texts that are made ahead.
const AHEAD_BYTES: usize = 64 * 1024;
/// Bytes that a broker is asked for where one record is read again; a batch that is larger comes whole.
const REREAD_BYTES: i32 = 64 * 1024;

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
}

/// Which record was read again.
#[derive(Debug, Clone)]
pub(super) struct Reread {
    pub(super) partition: TopicPartition,
    pub(super) offset: i64,
}

/// A record that is read again: its text, or `None` if it is not there any more.
pub(super) type Rereading =
    Pin<Box<dyn Future<Output = (Reread, Result<Option<Vec<u8>>, ClientError>)> + Send>>;

/// Records of one client.
#[derive(Debug)]
pub(super) struct Shelf {
    projection: Projection,
    fetched: VecDeque<Fetched>,
    /// From where on the first of them is not made into texts.
    read_to: i64,
    texts: VecDeque<Out>,
    /// What goes before them.
    first: VecDeque<Out>,
    /// Where partitions are to be read on, because what lies before cannot be.
    refetch: Vec<(TopicPartition, Offset)>,
    buffer: Vec<u8>,
}

impl Shelf {
    pub(super) fn new(projection: Projection) -> Shelf {
        Shelf {
            projection,
            fetched: VecDeque::new(),
            read_to: 0,
            texts: VecDeque::new(),
            first: VecDeque::new(),
            refetch: Vec::new(),
            buffer: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fetched.is_empty() && self.texts.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.fetched.clear();
        self.texts.clear();
        self.first.clear();
        self.refetch.clear();
    }

    /// Behind the last that was fetched of a partition, if some of it is here.
    pub(super) fn behind(&self, partition: &TopicPartition) -> Option<i64> {
        let of_partition = self.fetched.iter().rev().find(|one| one.partition == *partition);
        of_partition.map(|one| one.next_offset.0)
    }

    /// Where partitions are to be read on; asked once.
    pub(super) fn take_refetch(&mut self) -> Vec<(TopicPartition, Offset)> {
        std::mem::take(&mut self.refetch)
    }

    pub(super) fn put(&mut self, fetched: Fetched) {
        self.fetched.push_back(fetched);
    }

    /// Says a gap before the records that lie behind it.
    pub(super) fn say_gap(&mut self, partition: &TopicPartition, gap: &Gap) {
        let mut text = Vec::new();
        let write = match self.projection.form {
            Form::Frame(_) => frame::write_gap,
            _ => notice::write_gap,
        };
        write(&partition.topic, partition.partition.0, gap, &mut text);
        self.first.push_back(Out::Notice(text));
    }

    /// Takes a record that was read again; false if it could not be read now.
    pub(super) fn take_reread(
        &mut self,
        of: Reread,
        result: Result<Option<Vec<u8>>, ClientError>,
    ) -> bool {
        let Reread { partition, offset } = of;
        match result {
            Ok(Some(text)) => self.first.push_back(Out::Again { partition, offset, text }),
            Ok(None) => {
                let reason = serving::events::Reason::Retention;
                self.say_gap(&partition, &Gap { reason, from: offset, to: offset + 1 });
            }
            Err(_) => return false,
        }
        true
    }

    /// The next; `takes`: whether messages are taken, and not only what is said besides; `again`: whether those are that
    /// were sent before.
    pub(super) fn take(&mut self, takes: bool, again: bool) -> Option<Out> {
        let is_taken = |out: &Out| match out {
            Out::Message { .. } => takes,
            Out::Again { .. } => again,
            Out::Notice(_) | Out::Pass { .. } => true,
        };
        if let Some(first) = self.first.front() {
            return if is_taken(first) { self.first.pop_front() } else { None };
        }
        if self.texts.is_empty() {
            self.make();
        }
        if self.texts.front().is_some_and(is_taken) { self.texts.pop_front() } else { None }
    }

    /// Makes texts of what was fetched, as many as are made ahead.
    fn make(&mut self) {
        while self.texts.is_empty() {
            let Some(fetched) = self.fetched.front() else { return };
            let from = self.read_to.max(fetched.fetch_offset.0);
            let (texts, projection) = (&mut self.texts, &self.projection);
            let mut bytes = 0;
            let mut broke_off_at = None;
            let read = fetched.read(EXPANDED_BYTES_MAX, &mut self.buffer, |record| {
                if record.offset.0 < from {
                    return ControlFlow::Continue(());
                }
                let mut text = Vec::new();
                let partition = fetched.partition.clone();
                let offset = record.offset.0;
                match write(projection, &partition, &record, &mut text) {
                    Written::LeftOut => {}
                    Written::Event => {
                        bytes += text.len();
                        texts.push_back(Out::Message { partition, offset, text });
                    }
                    Written::TooLarge(size) => {
                        let words = too_large(size, EVENT_BYTES_MAX);
                        texts.push_back(Out::Notice(told(projection, &partition, offset, &words)));
                    }
                }
                if bytes >= AHEAD_BYTES {
                    broke_off_at = Some(offset);
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            });
            if let Some(offset) = broke_off_at {
                self.read_to = offset + 1;
                return;
            }
            let partition = fetched.partition.clone();
            let mut next = fetched.next_offset.0;
            if let Err(error) = read {
                let behind = behind_damaged(fetched, &error).map(|position| position.next());
                next = behind.unwrap_or(next);
                self.refetch.push((partition.clone(), Offset(next)));
                let words = error.to_string();
                texts.push_back(Out::Notice(told(projection, &partition, next - 1, &words)));
            }
            texts.push_back(Out::Pass { partition, next });
            self.fetched.pop_front();
            self.read_to = 0;
        }
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
    out: &mut Vec<u8>,
) -> Written {
    let headers: Vec<_> = record.headers().collect();
    let (event, headers) = (event(partition, record), headers.iter().copied());
    encoding::write_within(projection, &event, headers, EVENT_BYTES_MAX, out)
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
            Err(error) if error.code() == Some(ErrorCode::OffsetOutOfRange) => Ok(None),
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
fn find(fetched: &Fetched, offset: i64, count: u32) -> Option<Vec<u8>> {
    let mut text = None;
    let found = fetched.read(EXPANDED_BYTES_MAX, &mut Vec::new(), |record| {
        if record.offset.0 < offset {
            return ControlFlow::Continue(());
        }
        if record.offset.0 == offset {
            let headers: Vec<_> = record.headers().collect();
            let event = event(&fetched.partition, &record);
            let headers = headers.iter().copied();
            let out = text.insert(Vec::new());
            frame::write_record(Dialect::Pulsar, false, &event, headers, count, out);
        }
        ControlFlow::Break(())
    });
    found.ok().and(text)
}
