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

/// Where nothing listens yet, the kernel may give a connection the very port that it is meant for, and so
/// connect it with itself: that counts as refused.
fn ensure_answered(stream: &TcpStream) -> Result<()> {
    let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
    ensure!(local != peer, "nothing listens at {peer}: the connection is one with itself");
    Ok(())
}

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
        ensure_answered(&stream)?;
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

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use rustix::net::{AddressFamily, SocketType, bind, connect, getsockname, socket};

    use super::*;

    #[test]
    fn a_connection_with_itself_counts_as_refused() {
        let own = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&own, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        connect(&own, &getsockname(&own).unwrap()).expect("both ends open at once");
        let failure = ensure_answered(&TcpStream::from(own)).unwrap_err();
        assert!(failure.to_string().contains("nothing listens"), "{failure}");

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Caller::connect(listener.local_addr().unwrap()).expect("there a listener answers");
    }
}
