//! A client of HTTP/1.1 that sends what a test writes, sense or not, and reads answers one by one.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::fixture::PATIENCE;

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }
}

/// A connection.
pub struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

/// Connects from this address of the machine.
pub async fn connect_from(source: SocketAddr, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(source).unwrap();
    socket.connect(address).await.unwrap()
}

async fn patiently<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

impl Connection {
    pub async fn open(address: SocketAddr) -> Connection {
        Connection { stream: TcpStream::connect(address).await.unwrap(), read: Vec::new() }
    }

    /// A connection that begins at this address of the machine.
    pub async fn open_from(source: SocketAddr, address: SocketAddr) -> Connection {
        Connection { stream: connect_from(source, address).await, read: Vec::new() }
    }

    /// Sends these bytes.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // A gateway that has refused may have closed the connection already.
        let _ = patiently("sending", self.stream.write_all(bytes.as_ref())).await;
    }

    /// Sends a request and reads its answer.
    pub async fn ask(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        self.send(request(method, target, headers, body)).await;
        let (head, mut answer) = self.head().await;
        answer.body = if method == "HEAD" { String::new() } else { self.body(&head).await };
        answer
    }

    /// Sends a body of this type.
    pub async fn post(
        &mut self,
        target: &str,
        content_type: &str,
        body: impl AsRef<[u8]>,
    ) -> Answer {
        self.ask("POST", target, &[("content-type", content_type)], body.as_ref()).await
    }

    pub async fn get(&mut self, target: &str) -> Answer {
        self.ask("GET", target, &[], b"").await
    }

    /// The next answer.
    pub async fn answer(&mut self) -> Answer {
        let (head, mut answer) = self.head().await;
        answer.body = self.body(&head).await;
        answer
    }

    /// The next answer's head, as text and without its body.
    async fn head(&mut self) -> (String, Answer) {
        let end = loop {
            match self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(end) => break end + 4,
                None => assert!(self.more().await, "closed before an answer: {:?}", self.read),
            }
        };
        let whole = String::from_utf8(self.read.drain(..end).collect()).unwrap();
        let head = whole.to_lowercase();
        let mut lines = whole.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        // A cookie is what it is; of all else the case does not count.
        let value = |name: &str, value: &str| match name {
            "set-cookie" => value.to_owned(),
            _ => value.to_lowercase(),
        };
        let headers = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, said)| (name.to_lowercase(), said))
            .map(|(name, said)| (name.clone(), value(&name, said)));
        let answer = Answer { status, headers: headers.collect(), body: String::new() };
        (head, answer)
    }

    async fn body(&mut self, head: &str) -> String {
        let length = head.split("content-length: ").nth(1);
        let length = length.map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
        while self.read.len() < length {
            assert!(self.more().await, "closed within an answer");
        }
        String::from_utf8(self.read.drain(..length).collect()).unwrap()
    }

    /// Reads something; false at the end.
    async fn more(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        let read = patiently("an answer", self.stream.read(&mut buffer)).await.unwrap_or(0);
        self.read.extend_from_slice(&buffer[..read]);
        read > 0
    }

    /// Waits until the other side has closed the connection; what came besides the answers that were read.
    pub async fn closed(mut self) -> String {
        while self.more().await {}
        String::from_utf8_lossy(&self.read).into_owned()
    }

    /// Whether the other side has closed the connection within this time.
    pub async fn is_closed_within(&mut self, time: Duration) -> bool {
        let mut byte = [0];
        !matches!(timeout(time, self.stream.read(&mut byte)).await, Ok(Ok(1)) | Err(_))
    }
}

/// A request as it is written.
pub fn request(method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {target} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        head += "host: localhost\r\n";
    }
    if method == "POST" {
        head += &format!("content-length: {}\r\n", body.len());
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    [head.as_bytes(), b"\r\n", body].concat()
}
