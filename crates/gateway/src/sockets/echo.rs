//! A WebSocket that says back what it hears, with the bounds of all others: for suites that judge the protocol. No route leads
//! here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pools::LeasePool;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::tungstenite::protocol::Message;

use super::handshake::{Accepted, answer_to, head};
use super::socket::{End, Limits, Socket, Turn};
use crate::charge::Room;
use crate::share_owner::ShareOwner;

/// Bytes of a request's head.
const HEAD_BYTES_MAX: u64 = 16 * 1024;

/// Takes one request for a WebSocket and serves it to its end. Messages may have so many bytes.
///
/// # Errors
/// The connection fails before there is a WebSocket, or the request is for something else.
pub async fn echo<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    message_bytes_max: usize,
) -> io::Result<()> {
    let mut read = Vec::new();
    let end = loop {
        if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if (&mut stream).take(HEAD_BYTES_MAX).read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let rest = Bytes::copy_from_slice(&read[end..]);
    let text = String::from_utf8_lossy(&read[..end]);
    let mut fields = text.lines().filter_map(|line| line.split_once(": "));
    let key = fields.rfind(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key"));
    let (_, key) = key.ok_or(io::ErrorKind::InvalidInput)?;
    let accepted = Accepted { key: answer_to(key), subprotocol: None };
    stream.write_all(head(&accepted).as_bytes()).await?;
    let limits = Limits {
        message_bytes_max,
        blocked_max: Duration::from_secs(30),
        ping_every: Duration::from_secs(15),
        takes_bytes: true,
    };
    let room = Room::new(usize::MAX);
    let lease =
        Arc::new(LeasePool::new(usize::MAX)).open(ShareOwner::Unknown, std::time::Instant::now());
    let mut socket = Socket::new(stream, rest, limits, &room, lease).await;
    let end = run(&mut socket).await.unwrap_or_else(|end| end);
    socket.close(&end).await;
    Ok(())
}

async fn run<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut Socket<S>) -> Result<End, End> {
    loop {
        let hears = socket.has_room();
        let wake_at = socket.look_at();
        tokio::select! {
            turn = socket.turn(hears) => match turn? {
                Turn::Heard(text) => socket.put_message(Message::Text(text))?,
                Turn::HeardBytes(bytes) => socket.put_message(Message::Binary(bytes))?,
                Turn::Taken => {}
            },
            () = sleep_until(wake_at) => {}
        }
        if Instant::now() >= socket.look_at() {
            socket.look()?;
        }
    }
}
