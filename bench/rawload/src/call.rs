//! One blocking connection with one request in flight: for everything that is not load.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::request;
use crate::response::Reader;

/// How long one answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// The largest answer that is believed.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A connection for calls.
pub struct Caller {
    stream: TcpStream,
    correlation_id: i32,
    answer: Vec<u8>,
}

impl Caller {
    /// Connects once.
    pub fn connect(address: SocketAddr) -> Result<Caller> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        Ok(Caller { stream, correlation_id: 0, answer: Vec::new() })
    }

    /// Sends one framed request and waits for its answer, which is returned behind its header.
    pub fn call(&mut self, mut frame: Vec<u8>) -> Result<Reader<'_>> {
        self.correlation_id += 1;
        request::set_correlation_id(&mut frame, self.correlation_id);
        self.stream.write_all(&frame)?;
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length))?;
        ensure!(length <= ANSWER_BYTES_MAX, "an answer of {length} bytes");
        self.answer.resize(length, 0);
        self.stream.read_exact(&mut self.answer)?;
        let mut reader = Reader::new(&self.answer);
        let answered = reader.i32()?;
        ensure!(answered == self.correlation_id, "answer {answered} to {}", self.correlation_id);
        Ok(reader)
    }
}
