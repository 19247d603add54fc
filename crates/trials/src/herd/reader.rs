//! One reader of events, and what it makes of the numbers that come.

use perf::web::{Connection, Event, EventParser, WebError};
use tokio::time::{Duration, timeout};

use super::TOPICS;

/// How long a gateway may take to accept a connection and to begin a stream, while thousands ask for one.
const BEGIN_MAX: Duration = Duration::from_secs(20);

/// What a reader knows.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The number that comes next, by topic; `None` before the first one.
    next: [Option<u64>; 2],
    /// It reads several partitions: what has come since the last id may come again when it comes again itself.
    may_repeat: bool,
    pub(super) gaps: u64,
    pub(super) said_gaps: u64,
    pub(super) repeats: u64,
    /// The first thing that was wrong.
    pub(super) words: String,
}

impl Known {
    pub(super) fn new(may_repeat: bool) -> Known {
        Known { may_repeat, ..Known::default() }
    }

    /// The number that comes next; 0 before the first one.
    pub(super) fn next(&self, topic: usize) -> u64 {
        self.next[topic].unwrap_or(0)
    }

    /// Takes an event in; when its record was written, microseconds since 1970, if it is one.
    pub(super) fn take(&mut self, event: &Event<'_>) -> Option<u64> {
        if event.name == b"gap" {
            self.said_gaps += 1;
            self.note(|| format!("a gap was told: {}", String::from_utf8_lossy(event.data)));
            return None;
        }
        let text = std::str::from_utf8(event.data).ok()?;
        let mut words = text.splitn(4, ' ').map_while(|word| word.parse::<u64>().ok());
        let (topic, number, written_us) = (words.next()?, words.next()?, words.next()?);
        let topic = usize::try_from(topic).ok().filter(|topic| *topic < TOPICS.len())?;
        match self.next[topic] {
            Some(next) if number < next && self.may_repeat => return None,
            Some(next) if number < next => {
                self.repeats += 1;
                self.note(|| format!("{number} of {} came again, {next} was next", TOPICS[topic]));
                return None;
            }
            Some(next) if number > next => {
                self.gaps += 1;
                self.note(|| format!("{number} of {} came, {next} was next", TOPICS[topic]));
            }
            _ => {}
        }
        self.next[topic] = Some(number + 1);
        Some(written_us)
    }

    fn note(&mut self, words: impl FnOnce() -> String) {
        if self.words.is_empty() {
            self.words = words();
        }
    }
}

/// Asks for a stream.
pub(super) async fn open(address: &str) -> Result<Connection, WebError> {
    let opened = timeout(BEGIN_MAX, Connection::open(address)).await;
    opened.unwrap_or(Err(WebError::Closed))
}

/// The request of a reader that was at `id`; empty: from now on.
pub(super) fn request(address: &str, topics: &str, id: &[u8]) -> Vec<u8> {
    let mut request =
        format!("GET /topics/{topics}/events HTTP/1.1\r\nhost: {address}\r\n").into_bytes();
    if !id.is_empty() {
        request.extend(b"last-event-id: ");
        request.extend(id);
        request.extend(b"\r\n");
    }
    request.extend(b"\r\n");
    request
}

/// The beginning of a stream, whose head must come in time.
pub(super) async fn begin<'a>(
    connection: &'a mut Connection,
    request: &[u8],
) -> Result<perf::web::Reading<'a>, WebError> {
    let begun =
        timeout(BEGIN_MAX, connection.begin(request)).await.unwrap_or(Err(WebError::Closed))?;
    match begun.head.status {
        200 => Ok(begun),
        _ => Err(WebError::Closed),
    }
}

/// Events of a stream as they come, into what the reader knows.
pub(super) fn take(
    parser: &mut EventParser,
    known: &mut Known,
    bytes: &[u8],
    mut written: impl FnMut(u64),
) -> Result<(), WebError> {
    parser.take(bytes, |event| {
        if let Some(at) = known.take(&event) {
            written(at);
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(data: &str) -> Event<'_> {
        Event { name: b"", data: data.as_bytes() }
    }

    #[test]
    fn what_is_left_out_and_what_comes_again_is_seen() {
        let mut known = Known::default();
        // It may begin anywhere.
        assert_eq!(known.take(&event("0 7 1000 xxx")), Some(1000));
        assert_eq!(known.take(&event("1 0 1001 xxx")), Some(1001));
        assert_eq!(known.take(&event("0 8 1002 ")), Some(1002));
        assert_eq!((known.next(0), known.next(1), known.gaps, known.repeats), (9, 1, 0, 0));
        assert_eq!(known.take(&event("0 8 1002 ")), None);
        assert_eq!(known.take(&event("0 10 1003 ")), Some(1003));
        assert_eq!(known.take(&Event { name: b"gap", data: b"{}" }), None);
        assert_eq!(known.take(&event("nonsense")), None);
        assert_eq!((known.next(0), known.gaps, known.repeats, known.said_gaps), (11, 1, 1, 1));
        assert_eq!(known.words, "8 of news came again, 9 was next");
        let mut of_several = Known::new(true);
        for number in [5, 6, 5, 6, 7] {
            of_several.take(&event(&format!("0 {number} 1000 ")));
        }
        assert_eq!((of_several.next(0), of_several.repeats, of_several.gaps), (8, 0, 0));
    }
}
