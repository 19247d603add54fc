//! Whether the peer of a connection is still there, asked of the system while nothing is read.

use std::io;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::net::TcpStream;

/// What the system knows of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hung {
    /// It may send more.
    No,
    /// It sends nothing more, but what it sent was not read yet.
    UpWithUnread,
    /// It sends nothing more, and all was read; or the connection is broken.
    Up,
}

/// Asks the system.
pub fn look(stream: &TcpStream) -> io::Result<Hung> {
    let mut asked = [PollFd::new(stream, PollFlags::RDHUP)];
    poll(&mut asked, Some(&Timespec::default()))?;
    let found = asked[0].revents();
    if found.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) {
        return Ok(Hung::Up);
    }
    if !found.contains(PollFlags::RDHUP) {
        return Ok(Hung::No);
    }
    let unread = rustix::io::ioctl_fionread(stream)?;
    Ok(if unread > 0 { Hung::UpWithUnread } else { Hung::Up })
}
