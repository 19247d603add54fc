//! The process on this machine at the other end of a connection, by the tables of the kernel.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The id of the process that has the socket with this address. `None`: the system has no such tables, or the process is
/// another user's and cannot be examined. Reads files of `/proc`: milliseconds.
pub fn owner_of(peer: SocketAddr) -> Option<u32> {
    let inode = inode_of(peer)?;
    let wanted = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.into_iter().find(|id| has_socket(*id, &wanted))
}

fn has_socket(process: u32, wanted: &str) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|to| to == Path::new(wanted)))
}

/// The inode of the socket with this address, from `/proc/net/tcp` and `/proc/net/tcp6`.
fn inode_of(peer: SocketAddr) -> Option<u64> {
    let wanted = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|table| {
        let text = fs::read_to_string(table).ok()?;
        text.lines().skip(1).find_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let local = address(fields.next()?)?;
            let inode = fields.nth(7)?.parse().ok()?;
            (local == wanted && inode != 0).then_some(inode)
        })
    })
}

/// An address as the kernel writes it: words of four bytes in the machine's order, in hexadecimal digits.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for at in (0..host.len()).step_by(8) {
        let word = u32::from_str_radix(host.get(at..at + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let host = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(host, port))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_owner_of_an_own_socket_is_this_process() {
        for host in ["127.0.0.1", "::1"] {
            let Ok(listener) = TcpListener::bind((host, 0)) else { continue };
            let address = listener.local_addr().expect("it is bound");
            let client = TcpStream::connect(address).expect("it listens");
            let peer = client.local_addr().expect("it is connected");
            assert_eq!(owner_of(peer), Some(std::process::id()), "{host}");
            drop(client);
        }
    }
}
