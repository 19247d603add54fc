//! A TCP connection with the buffers that were asked for. What is spoken on it is
//! [`crate::connection`]'s.

use crate::connection::ConnectionConfig;
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpSocket, TcpStream, lookup_host};

/// Connects to `host:port`; tries every address of the host.
pub(crate) async fn dial(address: &str, config: &ConnectionConfig) -> io::Result<TcpStream> {
    let stream = match (config.receive_buffer_bytes, config.send_buffer_bytes) {
        (None, None) => TcpStream::connect(address).await?,
        _ => dial_sized(address, config).await?,
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The sizes are set before the connection is made: the window is agreed on then.
async fn dial_sized(address: &str, config: &ConnectionConfig) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in lookup_host(address).await? {
        match socket(address, config)?.connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn socket(address: SocketAddr, config: &ConnectionConfig) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if let Some(size) = config.receive_buffer_bytes {
        socket.set_recv_buffer_size(size)?;
    }
    if let Some(size) = config.send_buffer_bytes {
        socket.set_send_buffer_size(size)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn buffers_have_the_sizes_that_were_asked_for() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let config = ConnectionConfig {
            receive_buffer_bytes: Some(16 << 10),
            send_buffer_bytes: Some(20 << 10),
            ..ConnectionConfig::default()
        };
        let stream = dial(&address, &config).await.unwrap();
        assert!(stream.nodelay().unwrap());
        let socket = TcpSocket::from_std_stream(stream.into_std().unwrap());
        // Linux takes as much again for itself.
        assert!([16 << 10, 32 << 10].contains(&socket.recv_buffer_size().unwrap()));
        assert!([20 << 10, 40 << 10].contains(&socket.send_buffer_size().unwrap()));
    }
}
