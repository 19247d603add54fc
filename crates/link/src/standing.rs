//! Where a link's descriptor stands among those of its process: above those of clients.
//!
//! When a process is killed, Linux closes what it had open one by one, from the highest descriptor down: each is queued as the
//! table of descriptors is walked (`exit_files`), and the newest is taken first (`task_work_run`, since Linux 4.4, which made
//! no promise of it). So a link above all clients' connections ends before theirs: a client that hears that its broker
//! died and asks another broker at once who leads now asks one that could have heard of it. Below them, one in ten was told of
//! the dead leader once more, and librdkafka asks again only after a second. On a system with another order this
//! costs nothing but the numbers.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};
use tokio::net::TcpStream;

/// Where links begin if there is room; the system keeps eight bytes for each number below.
const LEAST: u64 = 16_384;
/// Links have at least so many numbers of their own where fewer descriptors are allowed.
const OF_LINKS: u64 = 256;

/// The lowest number of a link in this process.
fn least() -> u64 {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    LEAST.min(limit.saturating_sub(OF_LINKS))
}

/// Another descriptor of the same socket, above those of clients; `None`: the system has none left.
pub(crate) fn above(stream: &TcpStream) -> Option<OwnedFd> {
    fcntl_dupfd_cloexec(stream.as_fd(), i32::try_from(least()).ok()?).ok()
}

/// The connection with a descriptor above those of clients; as it was where the system has none left.
pub(crate) fn raised(stream: TcpStream) -> TcpStream {
    let Some(higher) = above(&stream) else { return stream };
    match TcpStream::from_std(higher.into()) {
        // The lower one is closed by this: the last descriptor decides when the peer hears of the end.
        Ok(raised) => raised,
        Err(_) => stream,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_link_stands_above_and_is_the_same_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        let number = near.as_raw_fd();
        let mut near = raised(near);
        assert!(near.as_raw_fd() as u64 >= least() && near.as_raw_fd() > number);
        near.write_all(b"there").await.unwrap();
        let mut said = [0; 5];
        far.read_exact(&mut said).await.unwrap();
        far.write_all(&said).await.unwrap();
        near.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"there");
        drop(near);
        assert_eq!(far.read(&mut said).await.unwrap(), 0, "no descriptor was left behind");
    }
}
