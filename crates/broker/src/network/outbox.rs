//! The outgoing side of a connection: encoded bytes and ranges of files, in order.
//!
//! Adjacent bytes leave in one `send`; a range of a file leaves by `sendfile`, announced by
//! `MSG_MORE` so that its header shares a packet with it. Small ranges were read into the bytes
//! before they got here.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::net::SendFlags;
use storage::disk::DiskFile;
use tokio::io::Interest;
use tokio::net::TcpStream;

use wire::Writer;

use super::answers::AnswerRoom;
use super::slot::Reply;
use super::unsent::ends_early;

/// One `sendfile` moves at most this many bytes, so that one reader does not hold a thread.
const SENDFILE_BYTES_MAX: usize = 1 << 20;
/// An empty byte queue keeps at most this capacity for the next response.
const RETAINED_BYTES_MAX: usize = 16 * 1024;

/// Part of what goes out.
#[derive(Debug)]
enum Piece {
    /// So many bytes from the front of the byte queue.
    Bytes(usize),
    /// A range of a file.
    File { file: Arc<dyn DiskFile>, position: u64, size: u64 },
}

/// What is still to be sent.
#[derive(Debug, Default)]
pub struct Outbox {
    /// All [`Piece::Bytes`] one behind the other; what was sent is in front of `sent`.
    bytes: Vec<u8>,
    sent: usize,
    pieces: VecDeque<Piece>,
    /// Bytes in the pieces, files included.
    queued_bytes: u64,
    /// Scratch of [`Outbox::compose`], kept for its capacity.
    splices: Vec<Splice>,
    /// Memory reserved for queued bytes, until all of them are sent.
    rooms: Vec<AnswerRoom>,
}

/// A range of a file that belongs into a frame.
#[derive(Debug)]
pub struct Splice {
    /// Where it belongs, in bytes from the front of the writer's buffer.
    pub at: usize,
    /// The file.
    pub file: Arc<dyn DiskFile>,
    /// Bytes from the front of the file.
    pub position: u64,
    /// Bytes of the range.
    pub size: u64,
}

/// What came of trying to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing is left.
    Sent,
    /// The socket takes no more now.
    Blocked,
    /// More could be sent, but others should have their turn.
    Yield,
}

/// Why nothing more can be sent.
#[derive(Debug, thiserror::Error)]
pub enum SendFailure {
    /// The connection is gone.
    #[error(transparent)]
    Socket(#[from] io::Error),
    /// A range of a file cannot be read, or the file is shorter than it was said to be.
    #[error("{cause}")]
    File {
        /// The file.
        file: Arc<dyn DiskFile>,
        /// The error of the operating system.
        cause: io::Error,
    },
}

impl Outbox {
    /// Bytes still to be sent, files included.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Bytes of memory that wait to be sent.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Lets `write` append bytes.
    pub fn push_bytes(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        write(&mut self.bytes);
        self.queue_bytes(self.bytes.len() - before);
    }

    /// Appends an answer, with the memory reserved for it.
    pub fn push_reply(&mut self, reply: Reply) {
        let added = reply.frame.len();
        if self.bytes.is_empty() {
            self.bytes = reply.frame;
        } else {
            self.bytes.extend_from_slice(&reply.frame);
        }
        self.rooms.extend(reply.room);
        self.queue_bytes(added);
    }

    /// Whether memory is reserved for queued bytes.
    pub fn has_room(&self) -> bool {
        !self.rooms.is_empty()
    }

    /// Counts bytes that were appended to the byte queue.
    fn queue_bytes(&mut self, added: usize) {
        if added == 0 {
            return;
        }
        self.queued_bytes += added as u64;
        match self.pieces.back_mut() {
            Some(Piece::Bytes(count)) => *count += added,
            _ => self.pieces.push_back(Piece::Bytes(added)),
        }
    }

    /// Lets `write` append a frame with ranges of files in it: it says where in the writer's buffer
    /// each belongs, in order.
    pub fn compose<E>(
        &mut self,
        write: impl FnOnce(&mut Writer, &mut Vec<Splice>) -> Result<(), E>,
    ) -> Result<(), E> {
        let from = self.bytes.len();
        let mut writer = Writer::over(std::mem::take(&mut self.bytes));
        let mut splices = std::mem::take(&mut self.splices);
        let result = write(&mut writer, &mut splices);
        self.bytes = writer.into_bytes();
        if result.is_err() {
            self.bytes.truncate(from);
            splices.clear();
        }
        let mut at = from;
        for splice in splices.drain(..) {
            self.queue_bytes(splice.at - at);
            self.push_file(splice.file, splice.position, splice.size);
            at = splice.at;
        }
        self.queue_bytes(self.bytes.len() - at);
        self.splices = splices;
        result
    }

    /// Appends a range of a file. The range must not change until it is sent.
    pub fn push_file(&mut self, file: Arc<dyn DiskFile>, position: u64, size: u64) {
        if size == 0 {
            return;
        }
        self.queued_bytes += size;
        self.pieces.push_back(Piece::File { file, position, size });
    }

    /// Sends until nothing is left, the socket is full, or a turn's worth of a file is sent.
    pub fn send(&mut self, stream: &TcpStream) -> Result<Progress, SendFailure> {
        let mut turn = SENDFILE_BYTES_MAX;
        while !self.pieces.is_empty() {
            if turn == 0 {
                return Ok(Progress::Yield);
            }
            match self.send_piece(stream, &mut turn) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Progress::Blocked);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failure(error)),
            }
        }
        self.bytes.clear();
        self.bytes.shrink_to(RETAINED_BYTES_MAX);
        self.rooms.clear();
        self.sent = 0;
        Ok(Progress::Sent)
    }

    /// What has failed under the piece that is sent now: one call moves bytes from a file to a socket.
    fn failure(&self, cause: io::Error) -> SendFailure {
        match self.pieces.front() {
            Some(Piece::File { file, .. }) if !is_of_socket(cause.kind()) => {
                SendFailure::File { file: Arc::clone(file), cause }
            }
            _ => SendFailure::Socket(cause),
        }
    }

    fn send_piece(&mut self, stream: &TcpStream, turn: &mut usize) -> io::Result<()> {
        let more = self.pieces.len() > 1;
        let (sent, left) = match self.pieces.front_mut().expect("the caller saw a piece") {
            Piece::Bytes(count) => {
                let part = &self.bytes[self.sent..self.sent + *count];
                let flags =
                    SendFlags::NOSIGNAL | if more { SendFlags::MORE } else { SendFlags::empty() };
                let sent = stream.try_io(Interest::WRITABLE, || {
                    Ok(rustix::net::send(stream.as_fd(), part, flags)?)
                })?;
                self.sent += sent;
                *count -= sent;
                let left = *count as u64;
                // The unsent rest is at most as long as the sent part, so moving it costs less than sending did.
                if self.sent > RETAINED_BYTES_MAX && self.sent >= self.bytes.len() / 2 {
                    self.bytes.drain(..self.sent);
                    self.sent = 0;
                }
                (sent, left)
            }
            Piece::File { file, position, size } => {
                let sent = send_file(stream, file, *position, (*size).min(*turn as u64))?;
                *position += sent as u64;
                *size -= sent as u64;
                *turn -= sent;
                (sent, *size)
            }
        };
        self.queued_bytes -= sent as u64;
        if left == 0 {
            self.pieces.pop_front();
        }
        Ok(())
    }
}

/// Whether an error can only be a connection's.
fn is_of_socket(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::*;
    matches!(
        kind,
        BrokenPipe
            | ConnectionReset
            | ConnectionAborted
            | NotConnected
            | TimedOut
            | HostUnreachable
            | NetworkUnreachable
            | NetworkDown
    )
}

fn send_file(
    stream: &TcpStream,
    file: &Arc<dyn DiskFile>,
    position: u64,
    size: u64,
) -> io::Result<usize> {
    let fd = file.as_fd().ok_or(io::ErrorKind::Unsupported)?;
    let sent = stream.try_io(Interest::WRITABLE, || {
        let mut offset = position;
        Ok(rustix::fs::sendfile(stream.as_fd(), fd, Some(&mut offset), size as usize)?)
    })?;
    if sent == 0 {
        // The header has promised these bytes: nothing but ending the connection is honest.
        return Err(ends_early());
    }
    Ok(sent)
}
