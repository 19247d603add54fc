//! What the tests share: nodes with doors, observers that can be asked, and a peer made by hand.

use bytes::Bytes;
use link::codec::frame::Frame;
use link::codec::hello::Hello;
use link::{
    Answering, Door, Event, Identity, Link, LinkConfig, Observer, Peer, Purpose, Secret, Service,
    Services, Target,
};
use model::{BrokerId, Uuid};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How long anything may take before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(40);
pub const CLUSTER: &str = "AAAAAAAAAAAAAAAAAAAAAA";
/// The service of these tests.
pub const ECHO: u16 = 77;

/// Waits for it, but not for ever.
pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

pub fn identity(node: i32) -> Identity {
    Identity::new(CLUSTER, BrokerId(node), Uuid([node as u8; 16]))
}

pub fn with_secret(identity: Identity, secret: &str) -> Identity {
    Identity { secret: Secret::new(secret), ..identity }
}

/// The usual bounds, and patience with a machine that is busy.
pub fn config() -> LinkConfig {
    LinkConfig { dial_timeout: PATIENCE, hello_timeout: PATIENCE, ..LinkConfig::default() }
}

struct Teller(UnboundedSender<Event>);

impl Observer for Teller {
    fn observe(&self, event: &Event) {
        // The test may be over.
        let _ = self.0.send(event.clone());
    }
}

/// The events of a link or a door, in order.
pub struct Events(UnboundedReceiver<Event>);

impl Events {
    pub fn new() -> (Arc<dyn Observer>, Events) {
        let (teller, told) = unbounded_channel();
        (Arc::new(Teller(teller)), Events(told))
    }

    pub async fn next(&mut self) -> Event {
        within("an event", self.0.recv()).await.expect("the observer lives")
    }

    /// The first of the next events of which this gives something.
    pub async fn find<T>(&mut self, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        loop {
            if let Some(found) = wanted(&self.next().await) {
                return found;
            }
        }
    }
}

/// Answers with what it is asked.
pub struct Echo;

impl Service for Echo {
    fn answer<'a>(&'a self, _: &'a Arc<Peer>, message: Bytes) -> Answering<'a> {
        Box::pin(async move { Ok(message.to_vec()) })
    }
}

/// A node that answers.
pub struct Node {
    pub address: SocketAddr,
    pub door: Arc<Door>,
    pub events: Events,
    accepting: tokio::task::JoinHandle<()>,
}

impl Node {
    pub async fn start(identity: Identity, config: LinkConfig, service: Arc<dyn Service>) -> Node {
        Node::at("127.0.0.1:0".parse().unwrap(), identity, config, service).await
    }

    pub async fn at(
        address: SocketAddr,
        identity: Identity,
        config: LinkConfig,
        service: Arc<dyn Service>,
    ) -> Node {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (observer, events) = Events::new();
        let services = Services::default().with(ECHO, service);
        let door = Arc::new(Door::new(Arc::new(identity), Arc::new(config), services, observer));
        let accepting = tokio::spawn(Arc::clone(&door).accept(listener));
        Node { address, door, events, accepting }
    }

    pub fn target(&self, node: i32) -> Target {
        target(self.address, Some(node))
    }

    /// Closes the door and frees the port.
    pub async fn stop(self) {
        self.door.close();
        self.accepting.await.unwrap();
    }
}

pub fn target(address: SocketAddr, node: Option<i32>) -> Target {
    Target { node: node.map(BrokerId), host: address.ip().to_string(), port: address.port() }
}

/// A link, and what it tells.
pub fn start_link(target: Target, identity: Identity, config: LinkConfig) -> (Link, Events) {
    let (observer, events) = Events::new();
    (Link::start(target, Arc::new(identity), Arc::new(config), observer), events)
}

/// Asks, with patience.
pub async fn echo(link: &Link, message: &[u8]) -> Result<Bytes, link::CallError> {
    link.call(ECHO, message.to_vec(), PATIENCE).await
}

/// A peer made by hand, that may do what no peer does.
pub struct Raw {
    pub stream: TcpStream,
}

impl Raw {
    pub async fn dial(address: SocketAddr) -> Raw {
        Raw { stream: TcpStream::connect(address).await.unwrap() }
    }

    pub fn hello(node: i32) -> Hello {
        Hello {
            versions: link::codec::hello::VERSIONS,
            has_secret: false,
            node: BrokerId(node),
            wanted: None,
            incarnation: Uuid([node as u8; 16]),
            nonce: [node as u8; 32],
            purpose: Purpose::Control,
            last_metadata: None,
            cluster_id: CLUSTER.into(),
            directories: Vec::new(),
            generation: 0,
        }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    pub async fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        within("bytes", self.stream.read_exact(&mut bytes)).await.unwrap();
        bytes
    }

    /// The peer's Hello.
    pub async fn read_hello(&mut self) -> Hello {
        let head = self.read(8).await;
        assert_eq!(&head[..4], b"HWLK");
        let length = u32::from_be_bytes(head[4..].try_into().unwrap());
        Hello::decode(&self.read(length as usize).await).unwrap()
    }

    pub async fn read_frame(&mut self) -> Frame {
        let head = self.read(4).await;
        let length = u32::from_be_bytes(head.try_into().unwrap());
        Frame::decode(&Bytes::from(self.read(length as usize).await)).unwrap()
    }

    /// Greets a door as this node, without a secret.
    pub async fn greet(address: SocketAddr, node: i32) -> Raw {
        let mut raw = Raw::dial(address).await;
        raw.send(&Raw::hello(node).encode()).await;
        raw.read_hello().await;
        raw.send(&Frame::Proof(None).encode()).await;
        assert_eq!(raw.read_frame().await, Frame::Accepted(None));
        raw
    }

    /// Takes the next dial as this node, without a secret.
    pub async fn take(listener: &TcpListener, node: i32) -> Raw {
        let (stream, _) = within("a dial", listener.accept()).await.unwrap();
        let mut raw = Raw { stream };
        raw.read_hello().await;
        raw.send(&Raw::hello(node).encode()).await;
        assert_eq!(raw.read_frame().await, Frame::Proof(None));
        raw.send(&Frame::Accepted(None).encode()).await;
        raw
    }

    /// Reads until the peer has closed.
    pub async fn read_to_end(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset is an end as well.
        let _ = within("the end", self.stream.read_to_end(&mut bytes)).await;
        bytes
    }

    /// Closes with a reset, as a system does for a process that had not read everything.
    pub fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
}
