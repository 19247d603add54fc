//! A connection to a gateway with one request under way.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Chunks, Framing, Head, Malformed};

/// Bytes that are asked for at once. An event stream of 5,000 readers shall not cost 64 KiB for each.
const READ_BYTES: usize = 16 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// The connection.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// What came.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The connection ended before the answer did.
    #[error("the gateway closed the connection")]
    Closed,
}

/// An answer whose body has come whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its head.
    pub head: Head,
    /// Its body, without what delimits it.
    pub body: Vec<u8>,
}

/// A connection with one request under way.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// What came and was not used.
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects to `address`, `host:port`.
    ///
    /// # Errors
    /// Nothing accepts there.
    pub async fn open(address: &str) -> Result<Connection, WebError> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: Vec::new() })
    }

    /// Sends a request, head and body, and reads its answer.
    ///
    /// # Errors
    /// The connection ends, or what comes is not an answer. It is of no further use then.
    pub async fn ask(&mut self, request: &[u8]) -> Result<Answer, WebError> {
        self.stream.write_all(request).await?;
        let mut reading = self.answer().await?;
        let mut body = Vec::new();
        while reading.piece(|piece| body.extend(piece)).await? {}
        Ok(Answer { head: reading.head, body })
    }

    /// Sends a request, head and body, and reads the head of its answer; the body is then read piece by piece.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub async fn begin(&mut self, request: &[u8]) -> Result<Reading<'_>, WebError> {
        self.stream.write_all(request).await?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<Reading<'_>, WebError> {
        loop {
            if let Some((head, size)) = Head::read(&self.buffer)? {
                self.buffer.drain(..size);
                let left = match head.framing {
                    Framing::Length(length) => length,
                    Framing::Chunked | Framing::Close => u64::MAX,
                };
                let chunks = Chunks::default();
                return Ok(Reading {
                    connection: self,
                    head,
                    chunks,
                    left,
                    wire_bytes: size as u64,
                });
            }
            if self.more().await? == 0 {
                return Err(WebError::Closed);
            }
        }
    }

    /// Reads what there is, or waits for something; 0 at the end.
    async fn more(&mut self) -> Result<usize, WebError> {
        self.buffer.reserve(READ_BYTES);
        Ok(self.stream.read_buf(&mut self.buffer).await?)
    }
}

/// An answer that is being read.
#[derive(Debug)]
pub struct Reading<'a> {
    connection: &'a mut Connection,
    /// Its head.
    pub head: Head,
    chunks: Chunks,
    /// Bytes of a body with a length that have not come.
    left: u64,
    wire_bytes: u64,
}

impl Reading<'_> {
    /// Bytes of the answer so far, head and framing included.
    #[must_use]
    pub fn wire_bytes(&self) -> u64 {
        self.wire_bytes
    }

    /// Sends something while the answer comes: on a connection that has become a WebSocket.
    ///
    /// # Errors
    /// The connection ends.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), WebError> {
        Ok(self.connection.stream.write_all(bytes).await?)
    }

    /// Hands what comes next of the body to `take`, waiting for it if need be; false at the end of the body. May be
    /// dropped while it waits, and loses nothing.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub async fn piece(&mut self, mut take: impl FnMut(&[u8])) -> Result<bool, WebError> {
        loop {
            if self.left == 0 || self.chunks.is_over() {
                return Ok(false);
            }
            let used = self.use_up(&mut take)?;
            self.connection.buffer.drain(..used);
            self.wire_bytes += used as u64;
            if used > 0 {
                return Ok(true);
            }
            if self.connection.more().await? == 0 {
                return match self.head.framing {
                    Framing::Close => Ok(false),
                    Framing::Length(_) | Framing::Chunked => Err(WebError::Closed),
                };
            }
        }
    }

    /// Hands on what is there; how much of it that was.
    fn use_up(&mut self, take: &mut impl FnMut(&[u8])) -> Result<usize, Malformed> {
        let there = &self.connection.buffer;
        if self.head.framing == Framing::Chunked {
            return self.chunks.take(there, take);
        }
        let size = there.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if size > 0 {
            take(&there[..size]);
        }
        if self.head.framing != Framing::Close {
            self.left -= size as u64;
        }
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// What a connection makes of an answer that comes byte by byte and is followed by the connection's end.
    async fn asked(answer: &'static [u8]) -> Result<Answer, WebError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let mut request = [0; 3];
            stream.read_exact(&mut request).await.unwrap();
            for byte in answer {
                stream.write_all(std::slice::from_ref(byte)).await.unwrap();
            }
        };
        let ask = async { Connection::open(&address).await?.ask(b"GET").await };
        tokio::join!(serve, ask).1
    }

    #[tokio::test]
    async fn bodies_end_where_their_heads_say() {
        for answer in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbodymore"[..],
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nbod\r\n1\r\ny\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\nbody",
        ] {
            assert_eq!(asked(answer).await.unwrap().body, b"body");
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_off_is_told_from_one_that_ends() {
        for answer in [
            &b"HTTP/1.1 200 OK\r\ncontent-le"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nbody",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n",
        ] {
            assert!(matches!(asked(answer).await, Err(WebError::Closed)));
        }
        assert!(matches!(asked(b"nonsense\r\n\r\n").await, Err(WebError::Malformed(_))));
    }
}
