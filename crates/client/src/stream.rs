//! The bytes of a connection: bare TCP, or TLS over it. Writes what the socket takes and reads what is there, and never
//! waits; who waits is [`crate::connection`].
//!
//! A connection without TLS has no more between itself and its socket than a match. With TLS a lock guards the session,
//! which both directions use; it is never held while something waits, and is the innermost.

use crate::connection::SLICES_MAX;
use crate::security::Tls;
use bytes::{Buf, Bytes, BytesMut};
use rustls::ClientConnection;
use std::collections::VecDeque;
use std::io::{self, BufRead, IoSlice, Write};
use std::sync::{Mutex, MutexGuard};
use tokio::net::TcpStream;

/// Bytes that are taken from a socket with TLS at once; a record has 16 KiB at most.
const ARRIVED_BYTES: usize = 32 * 1024;

/// A connection's bytes.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

/// TLS over a connection.
pub(crate) struct TlsStream {
    tcp: TcpStream,
    session: Mutex<Session>,
}

struct Session {
    tls: ClientConnection,
    /// Where bytes are read to before they are decrypted.
    arrived: Box<[u8]>,
    /// The other side said that nothing more comes.
    is_ended: bool,
}

/// Why a handshake ended.
pub(crate) enum HandshakeError {
    /// The connection failed or ended.
    Io(io::Error),
    /// Both sides do not agree.
    Refused(rustls::Error),
}

impl Stream {
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(stream) => &stream.tcp,
        }
    }

    /// Whether something is left to be written of what this took over.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Tls(stream) => stream.lock().tls.wants_write(),
        }
    }

    /// Writes until nothing is left or the socket takes no more. Whether nothing is left.
    pub(crate) fn write_some(&self, outgoing: &mut VecDeque<Bytes>) -> io::Result<bool> {
        match self {
            Stream::Plain(tcp) => write_plain(tcp, outgoing),
            Stream::Tls(stream) => stream.lock().write(&stream.tcp, outgoing),
        }
    }

    /// Reads what is there. 0 is the end.
    pub(crate) fn try_read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Stream::Plain(tcp) => tcp.try_read_buf(buffer),
            Stream::Tls(stream) => stream.lock().read(&stream.tcp, buffer),
        }
    }

    /// Ends both directions; with TLS it says so first, if the socket takes that.
    pub(crate) fn shutdown(&self) {
        if let Stream::Tls(stream) = self {
            let mut session = stream.lock();
            session.tls.send_close_notify();
            let _ = session.flush(&stream.tcp);
        }
        // An error says that it has ended already.
        let _ = socket2::SockRef::from(self.tcp()).shutdown(std::net::Shutdown::Both);
    }
}

impl TlsStream {
    /// Shakes hands with this host. Takes as long as the other side does: whoever calls bounds it.
    pub(crate) async fn open(
        tcp: TcpStream,
        tls: &Tls,
        host: &str,
    ) -> Result<TlsStream, HandshakeError> {
        let unnameable = || {
            let reason = format!("{host} is not a name that a certificate could have");
            HandshakeError::Io(io::Error::new(io::ErrorKind::InvalidInput, reason))
        };
        let tls = tls.session(host).ok_or_else(unnameable)?;
        let arrived = vec![0; ARRIVED_BYTES].into_boxed_slice();
        let mut session = Session { tls, arrived, is_ended: false };
        let shaken = session.shake_hands(&tcp).await;
        if matches!(shaken, Err(HandshakeError::Refused(_))) {
            // The broker's log shall say why.
            let _ = session.flush(&tcp);
        }
        shaken.map(|()| TlsStream { tcp, session: Mutex::new(session) })
    }

    fn lock(&self) -> MutexGuard<'_, Session> {
        self.session.lock().expect("no code under this lock panics")
    }
}

impl Session {
    async fn shake_hands(&mut self, tcp: &TcpStream) -> Result<(), HandshakeError> {
        loop {
            while !self.flush(tcp).map_err(HandshakeError::Io)? {
                tcp.writable().await.map_err(HandshakeError::Io)?;
            }
            if !self.tls.is_handshaking() {
                return Ok(());
            }
            tcp.readable().await.map_err(HandshakeError::Io)?;
            match tcp.try_read(&mut self.arrived) {
                Ok(0) => return Err(HandshakeError::Io(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => {
                    let mut early = BytesMut::new();
                    self.decrypt(count, &mut early).map_err(HandshakeError::Refused)?;
                    if !early.is_empty() {
                        let error = "the broker spoke before it was asked";
                        return Err(HandshakeError::Refused(rustls::Error::General(error.into())));
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(HandshakeError::Io(e)),
            }
        }
    }

    fn write(&mut self, tcp: &TcpStream, outgoing: &mut VecDeque<Bytes>) -> io::Result<bool> {
        // The session takes a bounded number of bytes, so this goes on in turns.
        while self.flush(tcp)? {
            if outgoing.is_empty() {
                return Ok(true);
            }
            let slices = outgoing.iter().take(SLICES_MAX).map(|piece| IoSlice::new(piece));
            let slices: Vec<IoSlice<'_>> = slices.collect();
            let written = self.tls.writer().write_vectored(&slices)?;
            advance(outgoing, written);
        }
        Ok(false)
    }

    /// Writes what is encrypted. Whether nothing is left of it.
    fn flush(&mut self, tcp: &TcpStream) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Socket(tcp)) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    fn read(&mut self, tcp: &TcpStream, buffer: &mut BytesMut) -> io::Result<usize> {
        let before = buffer.len();
        while buffer.len() == before {
            if self.is_ended {
                return Ok(0);
            }
            let count = tcp.try_read(&mut self.arrived)?;
            self.is_ended = count == 0;
            let decrypted = self.decrypt(count, buffer);
            // Answers of the session itself: to a change of keys, or why it ends.
            let _written = self.flush(tcp);
            decrypted.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
        Ok(buffer.len() - before)
    }

    /// Decrypts the first `count` bytes that arrived.
    fn decrypt(&mut self, count: usize, buffer: &mut BytesMut) -> Result<(), rustls::Error> {
        let mut arrived = &self.arrived[..count];
        while !arrived.is_empty() && !self.is_ended {
            let fed = self.tls.read_tls(&mut arrived);
            let fed = fed.map_err(|error| rustls::Error::General(error.to_string()))?;
            let state = self.tls.process_new_packets()?;
            let mut reader = self.tls.reader();
            while let Ok(plain) = reader.fill_buf()
                && !plain.is_empty()
            {
                let length = plain.len();
                buffer.extend_from_slice(plain);
                reader.consume(length);
            }
            self.is_ended = fed == 0 || state.peer_has_closed();
        }
        Ok(())
    }
}

/// A socket to write encrypted bytes to.
struct Socket<'a>(&'a TcpStream);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_plain(tcp: &TcpStream, outgoing: &mut VecDeque<Bytes>) -> io::Result<bool> {
    while !outgoing.is_empty() {
        let written = {
            let slices = outgoing.iter().take(SLICES_MAX).map(|piece| IoSlice::new(piece));
            let slices: Vec<IoSlice<'_>> = slices.collect();
            match tcp.try_write_vectored(&slices) {
                Ok(written) => written,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        };
        advance(outgoing, written);
    }
    Ok(true)
}

/// Drops the first `count` bytes.
fn advance(outgoing: &mut VecDeque<Bytes>, mut count: usize) {
    while let Some(first) = outgoing.front_mut() {
        if first.len() > count {
            first.advance(count);
            return;
        }
        count -= first.len();
        outgoing.pop_front();
    }
}
