//! One load connection: a request encoded once and sent again and again, answers counted.
//!
//! The socket never blocks. What is due but does not fit the socket yet waits in `due`, so intended
//! times are kept however late the request leaves.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::{request, response};

/// A connection and everything that is on its way.
pub struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    /// How much of `request` has left. Invariant: equal to its length when none is being sent.
    position: usize,
    correlation_id: i32,
    /// Intended times of requests that have not begun to leave.
    due: VecDeque<Duration>,
    /// Correlation id and intended time of what has begun to leave and is not answered.
    unanswered: VecDeque<(i32, Duration)>,
    input: Vec<u8>,
    /// How much of `input` is filled.
    filled: usize,
}

impl Connection {
    /// Connects, ready to send `request`.
    pub fn open(address: SocketAddr, request: Vec<u8>) -> Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream,
            position: request.len(),
            request,
            correlation_id: 0,
            due: VecDeque::new(),
            unanswered: VecDeque::new(),
            input: vec![0; 4096],
            filled: 0,
        })
    }

    /// The socket, to be watched.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// How many requests are due or unanswered.
    pub fn outstanding(&self) -> usize {
        self.due.len() + self.unanswered.len()
    }

    /// Makes one more request due, `intended` after the start, and sends what the socket takes.
    pub fn send(&mut self, intended: Duration) -> Result<()> {
        self.due.push_back(intended);
        self.pump()
    }

    /// Sends what is due until the socket takes no more.
    pub fn pump(&mut self) -> Result<()> {
        loop {
            if self.position == self.request.len() {
                let Some(intended) = self.due.pop_front() else { return Ok(()) };
                self.correlation_id = self.correlation_id.wrapping_add(1);
                request::set_correlation_id(&mut self.request, self.correlation_id);
                self.unanswered.push_back((self.correlation_id, intended));
                self.position = 0;
            }
            match self.stream.write(&self.request[self.position..]) {
                Ok(written) => self.position += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads what has come and calls `answered` with intended time and error code of each answer.
    pub fn receive(&mut self, mut answered: impl FnMut(Duration, i16)) -> Result<()> {
        loop {
            match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => bail!("the broker closed a connection"),
                Ok(read) => {
                    self.filled += read;
                    // Less than there was room for: the socket is empty, spare the call that says so.
                    let emptied = self.filled < self.input.len();
                    self.take_answers(&mut answered)?;
                    if emptied {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take_answers(&mut self, answered: &mut impl FnMut(Duration, i16)) -> Result<()> {
        let mut from = 0;
        while self.filled - from >= 4 {
            let length = self.input[from..from + 4].try_into().expect("four bytes");
            let length = usize::try_from(i32::from_be_bytes(length))?;
            ensure!(length + 4 <= self.input.len(), "a Produce answer of {length} bytes");
            if self.filled - from < length + 4 {
                break;
            }
            let mut reader = response::Reader::new(&self.input[from + 4..from + 4 + length]);
            let id = reader.i32()?;
            let Some((expected, intended)) = self.unanswered.pop_front() else {
                bail!("answer {id} to nothing");
            };
            ensure!(id == expected, "answer {id} came before {expected}");
            answered(intended, response::produce_error(&mut reader)?);
            from += length + 4;
        }
        self.input.copy_within(from..self.filled, 0);
        self.filled -= from;
        Ok(())
    }
}
