//! What bytes come and go by: a bare socket, or TLS over one.
//!
//! What waits for hours, and for thousands of readers, costs a bare socket no more than a match.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A connection's bytes.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Transport {
    /// The socket.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Transport::Plain(tcp) => tcp,
            Transport::Tls(tls) => tls.get_ref().0,
        }
    }

    /// Writes what can be taken now, without waiting: `WouldBlock` if that is nothing. With TLS some of what was taken may
    /// wait to go on: see [`Transport::try_flush`].
    pub(crate) fn try_write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Transport::Plain(tcp) => tcp.try_write_vectored(parts),
            Transport::Tls(tls) => now(|cx| Pin::new(&mut **tls).poll_write_vectored(cx, parts)),
        }
    }

    /// Has the socket take what is encrypted already, without waiting: `WouldBlock` if something is left.
    pub(crate) fn try_flush(&mut self) -> io::Result<()> {
        match self {
            Transport::Plain(_) => Ok(()),
            Transport::Tls(tls) => now(|cx| Pin::new(&mut **tls).poll_flush(cx)),
        }
    }
}

/// What comes of a call that does not wait. Nobody is woken by it: who waits does so for the socket.
fn now<T>(call: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<T>>) -> io::Result<T> {
    match call(&mut Context::from_waker(std::task::Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Transport::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Transport::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Transport::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Transport::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Transport::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_shutdown(cx),
        }
    }
}
