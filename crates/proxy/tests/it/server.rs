//! A server that speaks frames, and a client without opinions, both played by the tests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use wire::frame::{RequestHead, write_request, write_response};
use wire::metadata::{MetadataResponseBroker, MetadataResponseTopic};
use wire::produce::{PartitionProduceResponse, TopicProduceResponse};
use wire::{ApiKey, Message, MetadataResponse, ProduceResponse, Request, Writer};

/// An API that no code knows; the server answers it with what it was asked.
pub const ECHO: i16 = 99;
/// The server's id as a broker.
pub const NODE: i32 = 4;

/// A frame, without its length.
pub type Frame = Vec<u8>;

/// A broker that keeps nothing but what it was sent.
pub struct Server {
    pub address: String,
    /// The produce requests, in the order in which they came.
    pub produced: Arc<Mutex<Vec<Frame>>>,
    /// Count of answers that were written whole.
    pub answered: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Server {
    pub async fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (produced, answered) = (Arc::default(), Arc::default());
        let (kept, count) = (Arc::clone(&produced), Arc::clone(&answered));
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (kept, count) = (Arc::clone(&kept), Arc::clone(&count));
                tokio::spawn(serve(stream, address.port(), kept, count));
            }
        });
        Server { address: address.to_string(), produced, answered, accepting }
    }
}

/// An address at which nobody listens, and nobody can as long as the socket is held: it is bound, and no more.
pub fn dead_address() -> (SocketAddr, TcpSocket) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    (socket.local_addr().unwrap(), socket)
}

/// The next frame without its length; `None` at the end.
pub async fn next_frame(stream: &mut TcpStream) -> Option<Frame> {
    let length = stream.read_i32().await.ok()?;
    let mut frame = vec![0; length as usize];
    stream.read_exact(&mut frame).await.ok()?;
    Some(frame)
}

async fn serve(
    mut stream: TcpStream,
    port: u16,
    produced: Arc<Mutex<Vec<Frame>>>,
    answered: Arc<AtomicUsize>,
) {
    while let Some(frame) = next_frame(&mut stream).await {
        let Some(answer) = answer(&frame, port, &produced) else { continue };
        if stream.write_all(&answer).await.is_err() {
            return;
        }
        answered.fetch_add(1, Ordering::SeqCst);
    }
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as i32).to_be_bytes(), bytes].concat()
}

fn written<M: Message>(message: &M, head: &RequestHead<'_>) -> Vec<u8> {
    let mut writer = Writer::new();
    write_response(&mut writer, message, head.api_key, head.version, head.correlation_id).unwrap();
    writer.into_bytes()
}

fn answer(frame: &[u8], port: u16, produced: &Mutex<Vec<Frame>>) -> Option<Vec<u8>> {
    if frame[..2] == ECHO.to_be_bytes() {
        return Some(framed(&frame[4..]));
    }
    let head = RequestHead::parse(frame).unwrap();
    match head.api_key {
        ApiKey::Metadata => {
            let broker = MetadataResponseBroker {
                node_id: NODE,
                host: "127.0.0.1".to_owned(),
                port: i32::from(port),
                rack: None,
            };
            let mut body = wire::Reader::new(&frame[head.body_from..]);
            let request = wire::MetadataRequest::decode(&mut body, head.version).unwrap();
            let topics = request.topics.unwrap_or_default().into_iter();
            let topics = topics
                .map(|topic| MetadataResponseTopic { name: topic.name, ..Default::default() })
                .collect();
            let message =
                MetadataResponse { brokers: vec![broker], topics, ..MetadataResponse::default() };
            Some(written(&message, &head))
        }
        ApiKey::Produce => {
            let mut produced = produced.lock().unwrap();
            produced.push(frame.to_vec());
            let offset = 100 * produced.len() as i64;
            let mut body = wire::Reader::new(&frame[head.body_from..]);
            let request = wire::ProduceRequest::decode(&mut body, head.version).unwrap();
            (request.acks != 0).then(|| written(&appended(offset), &head))
        }
        api => panic!("{api} is not served here"),
    }
}

/// Says that records were appended at `offset` of partition 0 of topic `t`.
fn appended(offset: i64) -> ProduceResponse {
    let partition =
        PartitionProduceResponse { base_offset: offset, ..PartitionProduceResponse::default() };
    ProduceResponse {
        responses: vec![TopicProduceResponse {
            name: "t".to_owned(),
            partition_responses: vec![partition],
            ..TopicProduceResponse::default()
        }],
        ..ProduceResponse::default()
    }
}

/// A client that writes and reads frames.
pub struct Raw(pub TcpStream);

impl Raw {
    pub async fn connect(address: &str) -> Raw {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Raw(stream)
    }

    pub async fn send<R: Request>(&mut self, request: &R, version: i16, correlation_id: i32) {
        self.send_all(std::slice::from_ref(request), version, correlation_id).await;
    }

    /// Sends all in one piece, their ids from `first_id` on: whoever reads them finds them together.
    pub async fn send_all<R: Request>(&mut self, requests: &[R], version: i16, first_id: i32) {
        let mut writer = Writer::new();
        for (request, id) in requests.iter().zip(first_id..) {
            write_request(&mut writer, request, version, id, Some("raw")).unwrap();
        }
        self.0.write_all(writer.bytes()).await.unwrap();
    }

    /// Asks to have so many bytes sent back.
    pub async fn send_echo(&mut self, correlation_id: i32, size_bytes: usize) {
        self.0.write_all(&echo(correlation_id, size_bytes)).await.unwrap();
    }

    /// The next answer; `None` at the end.
    pub async fn answer(&mut self) -> Option<Frame> {
        next_frame(&mut self.0).await
    }

    /// The correlation id of the next answer.
    pub async fn answered(&mut self) -> i32 {
        let answer = self.answer().await.unwrap();
        i32::from_be_bytes(answer[..4].try_into().unwrap())
    }

    /// The next answer as a message.
    pub async fn message<M: Message>(&mut self, api: ApiKey, version: i16) -> (i32, M) {
        let answer = self.answer().await.unwrap();
        let mut reader = wire::Reader::new(&answer);
        let id = wire::frame::read_response_head(&mut reader, api, version).unwrap();
        (id, M::decode(&mut reader, version).unwrap())
    }
}

/// A request to have so many bytes sent back.
pub fn echo(correlation_id: i32, size_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; 8 + size_bytes];
    bytes[..2].copy_from_slice(&ECHO.to_be_bytes());
    bytes[4..8].copy_from_slice(&correlation_id.to_be_bytes());
    for (i, byte) in bytes[8..].iter_mut().enumerate() {
        *byte = (i * 31 / 7) as u8;
    }
    framed(&bytes)
}
