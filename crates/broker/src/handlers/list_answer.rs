//! An answer of a throttle time and one list, encoded item by item: the decoded form of a long list takes several times the
//! bytes of its frame.

use wire::frame;
use wire::{EncodeError, Message, Writer};

use super::Call;
use crate::network::slot::Hangup;

/// The answer of a handler.
pub trait HandlerAnswer {
    /// The whole frame of the answer.
    ///
    /// # Errors
    /// A part of the answer has no encoding in this version.
    fn into_frame(self, call: &Call) -> Result<Vec<u8>, Hangup>;
}

impl<M: Message> HandlerAnswer for M {
    fn into_frame(self, call: &Call) -> Result<Vec<u8>, Hangup> {
        call.reply_in(&self, call.version)
    }
}

/// The frame of an answer that consists of a throttle time and a list.
#[derive(Debug)]
pub struct ListAnswer {
    writer: Writer,
    start: usize,
    /// Items that are to come.
    left: usize,
    written: Result<(), EncodeError>,
}

impl ListAnswer {
    /// An answer with `count` items.
    pub fn new(call: &Call, count: usize) -> ListAnswer {
        let mut writer = Writer::new();
        let start = frame::begin(&mut writer);
        frame::write_response_head(&mut writer, call.api_key, call.version, call.correlation_id);
        // The throttle time.
        writer.i32(0);
        let written = writer.count(count, call.api_key.is_flexible(call.version));
        ListAnswer { writer, start, left: count, written }
    }

    /// Appends an item.
    pub fn push(&mut self, encode: impl FnOnce(&mut Writer) -> Result<(), EncodeError>) {
        self.left = self.left.checked_sub(1).expect("an answer for each item");
        if self.written.is_ok() {
            self.written = encode(&mut self.writer);
        }
    }
}

impl HandlerAnswer for ListAnswer {
    fn into_frame(mut self, call: &Call) -> Result<Vec<u8>, Hangup> {
        assert_eq!(self.left, 0, "an answer for each item");
        if call.api_key.is_flexible(call.version) {
            // No tagged fields.
            self.writer.uvarint(0);
        }
        self.written
            .and_then(|()| frame::end(&mut self.writer, self.start))
            .map_err(|error| Hangup(format!("cannot answer {}: {error}", call.api_key)))?;
        call.observe_answer();
        Ok(self.writer.into_bytes())
    }
}
