//! Asks the cluster by itself which brokers there are and where: so that each has its listener
//! before an answer to a client has named it, and that a broker that came back elsewhere is found
//! although its clients know one port of the proxy only.
//!
//! A cluster that wants a login answers nothing to this: its brokers become known by the answers to
//! clients that have logged in.

use crate::proxy::Shared;
use crate::rewrite::Addresses;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wire::frame::{read_response_head, write_request};
use wire::{ApiKey, MetadataRequest, MetadataResponse, Reader, Writer};

/// The version of Metadata that is asked for: all brokers since Kafka 1.0 know it.
const VERSION: i16 = 5;
/// Bytes of an answer at most: it names brokers and no topics.
const ANSWER_BYTES_MAX: i32 = 4 * 1024 * 1024;
/// The least time between two questions, however many brokers are missed by clients.
const PAUSE_MIN: Duration = Duration::from_millis(250);

/// Asks at once, then every so often, and when a broker was not where it should be; until the proxy
/// closes or stops.
pub async fn run(shared: Arc<Shared>, every: Duration) {
    let mut stop = shared.stop.clone();
    let asking = async {
        loop {
            ask(&shared).await;
            tokio::time::sleep(PAUSE_MIN).await;
            // Either is a reason to ask again.
            let _ = tokio::time::timeout(every, shared.doubt.notified()).await;
        }
    };
    tokio::select! {
        _ = stop.changed() => {}
        () = shared.closed() => {}
        () = asking => {}
    }
}

/// Asks one broker after the other until one answers.
async fn ask(shared: &Arc<Shared>) {
    for address in shared.bootstrap_turn() {
        let asked = tokio::time::timeout(shared.connect_timeout, brokers_by(&address)).await;
        match asked.unwrap_or_else(|late| Err(late.into())) {
            Ok(found) => return learn(shared, found),
            Err(error) => tracing::debug!(address, %error, "a broker did not say where all are"),
        }
    }
}

fn learn(shared: &Arc<Shared>, found: MetadataResponse) {
    for broker in found.brokers {
        if let Err(error) = shared.of(broker.node_id, &broker.host, broker.port) {
            let node_id = broker.node_id;
            tracing::warn!(node_id, %error, "no port of the proxy can be opened for a broker");
        }
    }
}

/// What the broker at an address says of all brokers.
async fn brokers_by(address: &str) -> io::Result<MetadataResponse> {
    let request = MetadataRequest { topics: Some(Vec::new()), ..MetadataRequest::default() };
    let mut writer = Writer::new();
    write_request(&mut writer, &request, VERSION, 0, Some("highwater-proxy"))
        .map_err(io::Error::other)?;
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&writer.into_bytes()).await?;
    let length = stream.read_i32().await?;
    if !(0..=ANSWER_BYTES_MAX).contains(&length) {
        return Err(io::Error::other(format!("invalid length {length} of an answer")));
    }
    let mut answer = vec![0; length as usize];
    stream.read_exact(&mut answer).await?;
    decode(&answer).map_err(io::Error::other)
}

fn decode(answer: &[u8]) -> Result<MetadataResponse, wire::reader::DecodeError> {
    let mut reader = Reader::new(answer);
    read_response_head(&mut reader, ApiKey::Metadata, VERSION)?;
    MetadataResponse::decode(&mut reader, VERSION)
}
