//! Event streams, as the HTML standard has them (section 9.2.6), but for lines that end with CR alone, which no gateway
//! writes.

use super::Malformed;

/// The longest event that is read, bytes: a batch may have a record of 64 MiB, and base64 makes a third more of it.
const EVENT_BYTES_MAX: usize = 128 << 20;

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its name; empty for a plain message.
    pub name: &'a [u8],
    /// Its data, lines put together by LF.
    pub data: &'a [u8],
}

/// Makes events out of bytes as they come.
#[derive(Debug, Clone, Default)]
pub struct EventParser {
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    id: Vec<u8>,
    events: u64,
}

impl EventParser {
    /// One that begins behind this id.
    #[must_use]
    pub fn at(id: Vec<u8>) -> EventParser {
        EventParser { id, ..EventParser::default() }
    }

    /// The newest id: where a reader goes on. Empty before the first one.
    #[must_use]
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    /// How many events there were.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Hands every event that ends in `bytes` to `each`.
    ///
    /// # Errors
    /// An event is longer than 128 MiB.
    pub fn take(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(Event<'_>),
    ) -> Result<(), Malformed> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            if self.line.is_empty() {
                self.take_line(&bytes[..end], &mut each);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend(&bytes[..end]);
                self.take_line(&line, &mut each);
                line.clear();
                self.line = line;
            }
            bytes = &bytes[end + 1..];
        }
        self.line.extend(bytes);
        match self.line.len() + self.data.len() > EVENT_BYTES_MAX {
            true => Err(Malformed::new("event: too long")),
            false => Ok(()),
        }
    }

    fn take_line(&mut self, line: &[u8], each: &mut impl FnMut(Event<'_>)) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            if self.has_data {
                self.events += 1;
                each(Event { name: &self.name, data: &self.data });
            }
            self.name.clear();
            self.data.clear();
            self.has_data = false;
            return;
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend(value);
            }
            b"event" => value.clone_into(&mut self.name),
            b"id" => value.clone_into(&mut self.id),
            // A comment, `retry`, or a field that is not known.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> (Vec<(String, String)>, String) {
        let (mut parser, mut seen) = (EventParser::default(), Vec::new());
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        for piece in pieces {
            parser.take(piece, |event| seen.push((text(event.name), text(event.data)))).unwrap();
        }
        (seen, text(parser.id()))
    }

    #[test]
    fn a_stream_may_be_cut_anywhere() {
        let stream = b"retry: 1840\n\nid: t/0@-1\n\n: ping\n\ndata: one\n\nevent: base64\r\ndata: AA==\r\n\r\n\
                       id: t/0@3\ndata: two\ndata:  lines\ndata\n\nevent: tombstone\ndata: \n\ndata: not whole";
        let expected: Vec<(String, String)> =
            [("", "one"), ("base64", "AA=="), ("", "two\n lines\n"), ("tombstone", "")]
                .map(|(name, data)| (name.to_owned(), data.to_owned()))
                .to_vec();
        for cut in 0..=stream.len() {
            let (seen, id) = events(&[&stream[..cut], &stream[cut..]]);
            assert_eq!((&seen, id.as_str()), (&expected, "t/0@3"), "{cut}");
        }
    }

    #[test]
    fn an_id_alone_is_no_event_and_a_name_alone_neither() {
        let (seen, id) = events(&[b"id: a\n\nevent: gap\n\ndata: x\n\n"]);
        assert_eq!(seen, [(String::new(), "x".to_owned())]);
        assert_eq!(id, "a");
    }
}
