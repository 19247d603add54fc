//! A reader of event streams after the HTML standard (9.2.6), over a socket: HTTP's chunks are taken apart first.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::fixture::PATIENCE;

/// What a stream says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// An event that fires: its kind and its data.
    Event { kind: String, data: String },
    /// The id was set, and nothing fired.
    Id,
    /// When to come again.
    Retry(u64),
    /// Nothing but life.
    Ping,
}

/// A stream.
pub struct EventStream {
    stream: TcpStream,
    pub status: u16,
    pub head: String,
    /// What came and was not taken apart yet: chunks, then lines.
    raw: Vec<u8>,
    text: Vec<u8>,
    is_chunked: bool,
    /// Whether the end of the body has come.
    is_ended: bool,
    /// The last id.
    pub id: String,
}

impl EventStream {
    /// Asks for a stream and reads the head of the answer.
    pub async fn open(address: SocketAddr, target: &str, id: Option<&str>) -> EventStream {
        let id = id.map_or(String::new(), |id| format!("last-event-id: {id}\r\n"));
        let head = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n{id}\r\n");
        EventStream::open_with(address, &head).await
    }

    /// The same with a request as it is written here.
    pub async fn open_with(address: SocketAddr, request: &str) -> EventStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        EventStream::of(stream).await
    }

    /// Reads the head of an answer that was asked for.
    pub async fn of(stream: TcpStream) -> EventStream {
        let mut opened = EventStream {
            stream,
            status: 0,
            head: String::new(),
            raw: Vec::new(),
            text: Vec::new(),
            is_chunked: false,
            is_ended: false,
            id: String::new(),
        };
        opened.read_head().await;
        opened
    }

    async fn read_head(&mut self) {
        let end = loop {
            match self.raw.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(end) => break end + 4,
                None => assert!(self.more().await, "closed before an answer"),
            }
        };
        self.head = String::from_utf8(self.raw.drain(..end).collect()).unwrap().to_lowercase();
        self.status = self.head[9..12].parse().unwrap();
        self.is_chunked = self.head.contains("transfer-encoding: chunked");
    }

    async fn more(&mut self) -> bool {
        let mut buffer = vec![0; 64 * 1024];
        let read = timeout(PATIENCE, self.stream.read(&mut buffer)).await.expect("in time");
        let read = read.unwrap_or(0);
        self.raw.extend_from_slice(&buffer[..read]);
        read > 0
    }

    /// Takes chunks apart.
    fn unchunk(&mut self) {
        if !self.is_chunked {
            self.text.append(&mut self.raw);
            return;
        }
        while let Some(end) = self.raw.windows(2).position(|window| window == b"\r\n") {
            let size = std::str::from_utf8(&self.raw[..end]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            if self.raw.len() < end + 2 + size + 2 {
                return;
            }
            self.text.extend_from_slice(&self.raw[end + 2..end + 2 + size]);
            assert_eq!(&self.raw[end + 2 + size..end + 4 + size], b"\r\n");
            self.raw.drain(..end + 4 + size);
            self.is_ended |= size == 0;
        }
    }

    /// What comes next; `None` at the end, however that came.
    pub async fn next(&mut self) -> Option<Said> {
        loop {
            if let Some(end) = self.text.windows(2).position(|window| window == b"\n\n") {
                let block: Vec<u8> = self.text.drain(..end + 2).collect();
                return Some(self.dispatch(std::str::from_utf8(&block).unwrap()));
            }
            let before = self.text.len();
            self.unchunk();
            if self.text.len() == before && (self.is_ended || !self.more().await) {
                return None;
            }
        }
    }

    fn dispatch(&mut self, block: &str) -> Said {
        let (mut kind, mut data, mut retry, mut has_id) =
            (String::new(), String::new(), None, false);
        for line in block.lines() {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => value.clone_into(&mut kind),
                "data" => data += &format!("{value}\n"),
                "retry" => retry = Some(value.parse().unwrap()),
                "id" => {
                    value.clone_into(&mut self.id);
                    has_id = true;
                }
                _ => {}
            }
        }
        if data.pop().is_some() {
            let kind = if kind.is_empty() { "message".to_owned() } else { kind };
            return Said::Event { kind, data };
        }
        match retry {
            Some(retry) => Said::Retry(retry),
            None if has_id => Said::Id,
            None => Said::Ping,
        }
    }

    /// The next event that fires, of whatever kind.
    pub async fn event(&mut self) -> (String, String) {
        loop {
            match self.next().await {
                Some(Said::Event { kind, data }) => return (kind, data),
                Some(_) => {}
                None => panic!("the stream ended at {:?}", self.id),
            }
        }
    }

    /// The next value.
    pub async fn value(&mut self) -> String {
        let (kind, data) = self.event().await;
        assert_eq!(kind, "message", "{data}");
        data
    }

    /// So many values.
    pub async fn values(&mut self, count: usize) -> Vec<String> {
        let mut values = Vec::new();
        while values.len() < count {
            values.push(self.value().await);
        }
        values
    }

    /// Everything that comes until the end.
    pub async fn rest(&mut self) -> Vec<Said> {
        let mut all = Vec::new();
        while let Some(said) = self.next().await {
            all.push(said);
        }
        all
    }

    /// Waits until an id comes without an event.
    pub async fn next_id(&mut self) -> String {
        loop {
            match self.next().await {
                Some(Said::Id) => return self.id.clone(),
                Some(_) => {}
                None => panic!("the stream ended"),
            }
        }
    }

    /// Whether nothing fires for so long.
    pub async fn is_silent_for(&mut self, time: Duration) -> bool {
        timeout(time, self.event()).await.is_err()
    }
}

impl EventStream {
    /// The next answer on this connection, behind a body of so many bytes.
    pub async fn behind(mut self, body_bytes: usize) -> EventStream {
        while self.raw.len() < body_bytes {
            assert!(self.more().await, "closed within a body");
        }
        let raw = self.raw.split_off(body_bytes);
        let mut next = EventStream { raw, ..self };
        next.read_head().await;
        next
    }

    /// What came behind the end.
    pub fn left(&self) -> String {
        String::from_utf8_lossy(&self.raw).into_owned()
    }
}
