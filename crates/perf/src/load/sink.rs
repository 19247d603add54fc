//! A broker that keeps nothing: it acknowledges what is produced without looking at it. What a
//! producer reaches against it is the producer's own speed.
//!
//! With a file to sync into, requests are on the device before they are acknowledged, in the cheapest
//! way there is: sockets and one synced write, the floor under any broker that does more.

use super::LoadError;
use super::synced_file::SyncedFile;
use bytes::{Bytes, BytesMut};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use wire::api_versions::ApiVersion;
use wire::frame::{RequestHead, write_response};
use wire::metadata::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic};
use wire::produce::{PartitionProduceResponse, TopicProduceResponse};
use wire::{
    ApiKey, ApiVersionsResponse, InitProducerIdResponse, MetadataRequest, MetadataResponse,
    ProduceRequest, ProduceResponse, Reader, Writer,
};

/// Bytes that are asked of a socket at least.
const READ_BYTES: usize = 256 * 1024;
/// The largest request that is taken, in bytes.
const FRAME_BYTES_MAX: usize = 256 * 1024 * 1024;
/// What it serves: topics go by name.
const APIS: [(ApiKey, i16); 4] = [
    (ApiKey::Produce, 12),
    (ApiKey::Metadata, 9),
    (ApiKey::ApiVersions, ApiKey::ApiVersions.max_version()),
    (ApiKey::InitProducerId, 4),
];

/// A broker that keeps nothing, on a thread of its own. Ends when it is dropped.
#[derive(Debug)]
pub struct Sink {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    /// Starts one on a free port of this machine; every topic exists and has so many partitions.
    pub fn start(partitions: i32) -> Result<Sink, LoadError> {
        Sink::start_at("127.0.0.1:0", partitions, None)
    }

    /// As [`Sink::start`], on this address. With `sync_into` what is produced is written into that
    /// file, over zeros, and synced before it is acknowledged, what came together with one sync.
    pub fn start_at(
        address: &str,
        partitions: i32,
        sync_into: Option<&Path>,
    ) -> Result<Sink, LoadError> {
        let failed = |error: std::io::Error| LoadError::System(error.to_string());
        let kept = sync_into.map(SyncedFile::create).transpose().map_err(failed)?;
        let kept = kept.map(|file| Arc::new(Mutex::new(file)));
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime = super::runtime()?;
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("sink".to_owned()).spawn(move || {
            runtime.block_on(async move {
                let accepting = accept(listener, Served { address, partitions, kept });
                tokio::select! {
                    () = accepting => {}
                    _ = ended => {}
                }
            });
            runtime.shutdown_background();
        });
        let thread = Some(thread.map_err(failed)?);
        Ok(Sink { address, end: Some(end), thread })
    }

    /// `host:port`.
    pub fn bootstrap(&self) -> String {
        self.address.to_string()
    }

    /// Waits for it, which ends only by failing.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic has been reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // Its thread may have ended.
        self.end.take().map(|end| end.send(()));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[derive(Clone)]
struct Served {
    address: SocketAddr,
    partitions: i32,
    /// Where requests are synced into, if anywhere.
    kept: Option<Arc<Mutex<SyncedFile>>>,
}

impl Served {
    /// Brings these requests onto the device, if that is wanted. Other connections wait meanwhile: this
    /// is a floor for one.
    fn keep(&self, frames: &[Bytes]) -> std::io::Result<()> {
        let Some(kept) = self.kept.as_ref().filter(|_| !frames.is_empty()) else { return Ok(()) };
        let mut file = kept.lock().expect("a thread that panics ends the sink");
        frames.iter().try_for_each(|frame| file.write(frame))?;
        file.sync()
    }
}

async fn accept(listener: std::net::TcpListener, served: Served) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!(%error, "the sink cannot listen"),
    };
    while let Ok((stream, _)) = listener.accept().await {
        let served = served.clone();
        tokio::spawn(async move {
            if let Err(error) = serve(stream, served).await {
                tracing::debug!(%error, "a connection to the sink ended");
            }
        });
    }
}

async fn serve(mut stream: TcpStream, served: Served) -> Result<(), LoadError> {
    let failed = |error: std::io::Error| LoadError::System(error.to_string());
    stream.set_nodelay(true).map_err(failed)?;
    let mut buffer = BytesMut::with_capacity(2 * READ_BYTES);
    let mut answers = Writer::new();
    let mut produced = Vec::new();
    loop {
        while let Some(frame) = whole_frame(&mut buffer)? {
            if answer(&frame, &served, &mut answers)? == ApiKey::Produce {
                produced.push(frame);
            }
        }
        served.keep(&produced).map_err(failed)?;
        produced.clear();
        if !answers.bytes().is_empty() {
            stream.write_all(answers.bytes()).await.map_err(failed)?;
            answers = Writer::new();
        }
        buffer.reserve(READ_BYTES);
        if stream.read_buf(&mut buffer).await.map_err(failed)? == 0 {
            return Ok(());
        }
    }
}

/// The first frame, without its length, if it has come whole.
fn whole_frame(buffer: &mut BytesMut) -> Result<Option<Bytes>, LoadError> {
    let Some(length) = buffer.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(LoadError::System(format!("a request of {length} bytes came")));
    }
    if buffer.len() < 4 + length {
        buffer.reserve(4 + length - buffer.len());
        return Ok(None);
    }
    let _length = buffer.split_to(4);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// Writes the answer; says what was asked.
fn answer(frame: &Bytes, served: &Served, out: &mut Writer) -> Result<ApiKey, LoadError> {
    let odd = |error: &dyn std::fmt::Display| LoadError::System(format!("an odd request: {error}"));
    let head = RequestHead::parse(frame).map_err(|error| odd(&error))?;
    let body = frame.slice(head.body_from..);
    let (api, version, id) = (head.api_key, head.version, head.correlation_id);
    let mut reader = Reader::shared(&body);
    let written = match api {
        ApiKey::ApiVersions => write_response(out, &versions(), api, version, id),
        ApiKey::Metadata => {
            let request = MetadataRequest::decode(&mut reader, version).map_err(|e| odd(&e))?;
            write_response(out, &metadata(&request, served), api, version, id)
        }
        ApiKey::InitProducerId => {
            let response = InitProducerIdResponse { producer_id: 1, ..Default::default() };
            write_response(out, &response, api, version, id)
        }
        ApiKey::Produce => {
            let request = ProduceRequest::decode(&mut reader, version).map_err(|e| odd(&e))?;
            if request.acks == 0 {
                return Ok(api);
            }
            write_response(out, &produced(&request), api, version, id)
        }
        other => return Err(odd(&other)),
    };
    written.map_err(|error| odd(&error))?;
    Ok(api)
}

fn versions() -> ApiVersionsResponse {
    let row = |(api, max_version): &(ApiKey, i16)| ApiVersion {
        api_key: api.code(),
        min_version: api.min_version(),
        max_version: *max_version,
    };
    ApiVersionsResponse { api_keys: APIS.iter().map(row).collect(), ..Default::default() }
}

fn metadata(request: &MetadataRequest, served: &Served) -> MetadataResponse {
    let partition = |partition_index| MetadataResponsePartition {
        partition_index,
        leader_id: 1,
        replica_nodes: vec![1],
        isr_nodes: vec![1],
        ..Default::default()
    };
    let names = request.topics.iter().flatten().filter_map(|topic| topic.name.clone());
    let topics = names.map(|name| MetadataResponseTopic {
        name: Some(name),
        partitions: (0..served.partitions).map(partition).collect(),
        ..Default::default()
    });
    MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id: 1,
            host: served.address.ip().to_string(),
            port: served.address.port() as i32,
            ..Default::default()
        }],
        controller_id: 1,
        topics: topics.collect(),
        ..Default::default()
    }
}

fn produced(request: &ProduceRequest) -> ProduceResponse {
    let topics = request.topic_data.iter().map(|topic| TopicProduceResponse {
        name: topic.name.clone(),
        partition_responses: topic
            .partition_data
            .iter()
            .map(|p| PartitionProduceResponse { index: p.index, ..Default::default() })
            .collect(),
        ..Default::default()
    });
    ProduceResponse { responses: topics.collect(), ..Default::default() }
}
