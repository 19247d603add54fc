//! Frames on a stream: lengths are checked before anything is allocated, memory grows with what arrives, and
//! what has begun must end in time.

use crate::codec::hello::{MAGIC, checked_hello_length};
use crate::codec::{CodecError, LENGTH_BYTES, checked_length};
use crate::ending::Ending;
use bytes::Bytes;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// Memory that a frame's announcement gets before its bytes are there.
const AT_ONCE_BYTES: usize = 16 << 10;

/// What a peer that has not proven anything says.
pub(crate) enum First {
    /// A Hello: as it was sent, and where its body begins.
    Hello { whole: Vec<u8> },
    /// A frame, without its length.
    Frame(Bytes),
}

/// Bytes before a Hello's body.
pub(crate) const HELLO_HEAD_BYTES: usize = MAGIC.len() + LENGTH_BYTES;

/// The next frame without its length. Waits for its first byte as long as it takes, then `patience`.
pub(crate) async fn read_frame<R: AsyncRead + Unpin>(
    stream: &mut R,
    bytes_max: usize,
    patience: Duration,
) -> Result<Bytes, Ending> {
    let first = stream.read_u8().await.map_err(|error| Ending::from(&error))?;
    let rest = async {
        let mut prefix = [first, 0, 0, 0];
        read_exact(stream, &mut prefix[1..]).await?;
        let length = checked_length(prefix, bytes_max)?;
        read_body(stream, length, Vec::new()).await.map(Bytes::from)
    };
    match timeout(patience, rest).await {
        Ok(read) => read,
        Err(_) => Err(Ending::Misbehaved(format!("a frame took longer than {patience:?}"))),
    }
}

/// The first message of a peer: its Hello, or a frame that refuses. The caller bounds the time.
pub(crate) async fn read_first<R: AsyncRead + Unpin>(stream: &mut R) -> Result<First, Ending> {
    let mut prefix = [0; LENGTH_BYTES];
    read_exact(stream, &mut prefix).await?;
    if prefix != MAGIC {
        let length = checked_hello_length(prefix).map_err(|_: CodecError| {
            Ending::Misbehaved("what it says first is not of the link between brokers".into())
        })?;
        let frame = read_body(stream, length, Vec::new()).await?;
        return Ok(First::Frame(frame.into()));
    }
    read_exact(stream, &mut prefix).await?;
    let length = checked_hello_length(prefix)?;
    let whole = read_body(stream, length, [MAGIC, prefix].concat()).await?;
    Ok(First::Hello { whole })
}

async fn read_exact<R: AsyncRead + Unpin>(stream: &mut R, out: &mut [u8]) -> Result<(), Ending> {
    stream.read_exact(out).await.map(drop).map_err(|error| Ending::from(&error))
}

/// Reads `length` bytes behind what `out` holds.
async fn read_body<R: AsyncRead + Unpin>(
    stream: &mut R,
    length: usize,
    mut out: Vec<u8>,
) -> Result<Vec<u8>, Ending> {
    let whole = out.len() + length;
    out.reserve_exact(length.min(AT_ONCE_BYTES));
    let read = stream.take(length as u64).read_to_end(&mut out).await;
    match read {
        Ok(_) if out.len() == whole => Ok(out),
        Ok(_) => Err(Ending::from(&io::Error::from(io::ErrorKind::UnexpectedEof))),
        Err(error) => Err(Ending::from(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(40);

    async fn read(mut bytes: &[u8]) -> Result<Bytes, Ending> {
        read_frame(&mut bytes, 100, PATIENCE).await
    }

    #[tokio::test]
    async fn frames_come_whole_or_not_at_all() {
        assert_eq!(read(b"\0\0\0\x03abcd").await, Ok(Bytes::from_static(b"abc")));
        for cut in 0..7 {
            assert_eq!(read(&b"\0\0\0\x03abc"[..cut]).await, Err(Ending::Finished), "cut at {cut}");
        }
        for lie in [&b"\0\0\0\0abc"[..], b"\0\0\0\x65abc", b"\xff\xff\xff\xffabc"] {
            assert!(matches!(read(lie).await, Err(Ending::Misbehaved(_))));
        }
    }

    #[tokio::test]
    async fn an_announcement_reserves_little() {
        let mut bytes = [&[0x00, 0x20, 0x00, 0x00][..], b"abc"].concat();
        bytes.extend_from_slice(&[0; 100]);
        let mut stream = &bytes[4..];
        let ended = read_body(&mut stream, 2 << 20, Vec::new()).await;
        assert_eq!(ended, Err(Ending::Finished));
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_that_drips_is_given_up_and_an_idle_stream_is_not() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let dripping = tokio::spawn(async move {
            use tokio::io::AsyncWriteExt;
            // The first byte comes late, which is allowed.
            tokio::time::sleep(Duration::from_secs(3600)).await;
            for byte in b"\0\0\0\x14abcdefghijklmnopqrst" {
                far.write_all(&[*byte]).await.unwrap();
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
        });
        let begun = tokio::time::Instant::now();
        let ended = read_frame(&mut near, 100, PATIENCE).await;
        assert!(matches!(ended, Err(Ending::Misbehaved(_))), "{ended:?}");
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(3600) && took < Duration::from_secs(3700), "{took:?}");
        dripping.abort();
    }

    #[tokio::test]
    async fn what_does_not_begin_like_the_link_is_left() {
        for garbage in
            [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01\x02\x00\x01", b"\0\0\x10\x01"]
        {
            let mut stream = garbage;
            assert!(matches!(read_first(&mut stream).await, Err(Ending::Misbehaved(_))));
        }
    }
}
