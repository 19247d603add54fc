//! A server of WebSockets that say back what they hear, for suites of the protocol: `cargo xt websocket`.
//!
//! Writes its port, and serves until it is ended. Messages may have 16 MiB, because suites measure with those.

use tokio::net::TcpListener;

const MESSAGE_BYTES_MAX: usize = 16 << 20;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            if let Err(cause) = gateway::echo(stream, MESSAGE_BYTES_MAX).await {
                eprintln!("{cause}");
            }
        });
    }
}
