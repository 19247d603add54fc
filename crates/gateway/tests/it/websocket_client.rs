//! A client of WebSockets: a handshake that a test writes, sense or not, then texts.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

use crate::fixture::PATIENCE;

/// The key of RFC 6455, 1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// A WebSocket.
pub struct WebSocket {
    stream: WebSocketStream<TcpStream>,
}

/// An answer other than a WebSocket: its status and its body.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused(pub u16, pub String);

/// Asks for a WebSocket; the connection and what came behind the head, if it is one.
pub async fn handshake(
    address: SocketAddr,
    target: &str,
    headers: &[(&str, &str)],
) -> Result<(TcpStream, Vec<u8>), Refused> {
    handshake_on(TcpStream::connect(address).await.unwrap(), target, headers).await
}

/// The same on a connection that there is.
pub async fn handshake_on(
    mut stream: TcpStream,
    target: &str,
    headers: &[(&str, &str)],
) -> Result<(TcpStream, Vec<u8>), Refused> {
    let mut head = format!("GET {target} HTTP/1.1\r\n");
    let usual = [
        ("host", "localhost"),
        ("upgrade", "websocket"),
        ("connection", "Upgrade"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", KEY),
    ];
    let is_said = |name: &str| headers.iter().any(|(known, _)| *known == name);
    for (name, value) in usual.iter().filter(|(name, _)| !is_said(name)).chain(headers) {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    let mut read = Vec::new();
    let end = loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        let more = timeout(PATIENCE, stream.read_buf(&mut read)).await.expect("an answer").unwrap();
        assert!(more > 0, "closed before an answer: {read:?}");
    };
    let mut rest = read.split_off(end);
    let head = String::from_utf8(read).unwrap().to_lowercase();
    let status: u16 = head[9..12].parse().unwrap();
    if status == 101 {
        assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
        check_subprotocol(headers, &head);
        return Ok((stream, rest));
    }
    let length = head
        .split("content-length: ")
        .nth(1)
        .map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
    while rest.len() < length {
        timeout(PATIENCE, stream.read_buf(&mut rest)).await.expect("a body").unwrap();
    }
    Err(Refused(status, String::from_utf8(rest).unwrap()))
}

/// As browsers do: a client that has offered subprotocols closes a connection that comes with none of them, and one that has
/// offered none closes a connection that comes with one.
fn check_subprotocol(asked: &[(&str, &str)], head: &str) {
    let name = "sec-websocket-protocol";
    let offered = asked.iter().filter(|(known, _)| *known == name);
    let offered: Vec<String> = offered
        .flat_map(|(_, list)| list.split(','))
        .map(|one| one.trim().to_lowercase())
        .collect();
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let chosen: Vec<&str> = lines.filter(|(known, _)| *known == name).map(|(_, one)| one).collect();
    match &chosen[..] {
        [] => assert!(offered.is_empty(), "none of {offered:?}: {head}"),
        [one] => assert!(offered.iter().any(|known| known == one), "{one} of {offered:?}"),
        more => panic!("{more:?}"),
    }
}

impl WebSocket {
    pub async fn open(address: SocketAddr, target: &str) -> WebSocket {
        WebSocket::ask(address, target, &[])
            .await
            .unwrap_or_else(|refused| panic!("{target}: {refused:?}"))
    }

    pub async fn ask(
        address: SocketAddr,
        target: &str,
        headers: &[(&str, &str)],
    ) -> Result<WebSocket, Refused> {
        let (stream, read) = handshake(address, target, headers).await?;
        Ok(WebSocket::of(stream, read).await)
    }

    /// One that was opened already; `read`: what came behind the head.
    pub async fn of(stream: TcpStream, read: Vec<u8>) -> WebSocket {
        let stream = WebSocketStream::from_partially_read(stream, read, Role::Client, None).await;
        WebSocket { stream }
    }

    pub async fn send(&mut self, message: Message) {
        // The other side may have closed already.
        let _ = timeout(PATIENCE, self.stream.send(message)).await.expect("taken in time");
    }

    pub async fn say(&mut self, value: Value) {
        self.send(Message::text(value.to_string())).await;
    }

    /// The next message of whatever kind; `None` when the connection is gone.
    pub async fn message(&mut self) -> Option<Message> {
        let next = timeout(PATIENCE, self.stream.next()).await.expect("a message in time");
        next.and_then(Result::ok)
    }

    /// The next text.
    pub async fn text(&mut self) -> Value {
        loop {
            match self.message().await {
                Some(Message::Text(text)) => return serde_json::from_str(&text).unwrap(),
                Some(Message::Ping(_) | Message::Pong(_)) => {}
                other => panic!("no text: {other:?}"),
            }
        }
    }

    /// So many texts.
    pub async fn texts(&mut self, count: usize) -> Vec<Value> {
        let mut texts = Vec::new();
        while texts.len() < count {
            texts.push(self.text().await);
        }
        texts
    }

    /// Whether no text comes for so long.
    pub async fn is_silent_for(&mut self, time: Duration) -> bool {
        timeout(time, self.text()).await.is_err()
    }

    /// Waits until the other side ends; the code and the words of its last frame.
    pub async fn end(&mut self) -> (u16, String) {
        loop {
            match self.message().await {
                Some(Message::Close(Some(frame))) => {
                    return (frame.code.into(), frame.reason.as_str().to_owned());
                }
                Some(_) => {}
                None => return (0, String::new()),
            }
        }
    }

    /// Goes away in the way of the protocol.
    pub async fn close(mut self) {
        let _ = self.stream.close(None).await;
        while self.message().await.is_some() {}
    }
}
