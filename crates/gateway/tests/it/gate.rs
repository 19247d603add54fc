//! A way to a broker that can be closed: bytes wait in front of it until it is open again.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The way.
pub struct Gate {
    pub address: SocketAddr,
    open: watch::Sender<bool>,
    losses: Losses,
    held: HeldBytes,
}

/// Bytes of requests that came while the gate was closed.
type HeldBytes = Arc<Mutex<Vec<u8>>>;

/// Text of the request whose answer is lost next, if any.
type Losses = Arc<Mutex<Option<String>>>;

/// One connection's losses.
#[derive(Clone)]
struct Loss {
    held: HeldBytes,
    next: Losses,
    /// Whether the connection ends at its next answer.
    is_due: Arc<AtomicBool>,
}

impl Loss {
    /// A request passes.
    fn note_request(&self, bytes: &[u8]) {
        let mut next = self.next.lock().unwrap();
        if next.as_ref().is_some_and(|text| has(bytes, text)) {
            *next = None;
            self.is_due.store(true, Ordering::Release);
        }
    }
}

impl Gate {
    /// An open way to this address.
    pub async fn to(broker: String) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (open, is_open) = watch::channel(true);
        let (losses, held) = (Losses::default(), HeldBytes::default());
        let (next, held_bytes) = (losses.clone(), held.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (from_client, to_client) = client.into_split();
                let broker = TcpStream::connect(&broker).await.unwrap();
                let (from_broker, to_broker) = broker.into_split();
                let loss =
                    Loss { held: held_bytes.clone(), next: next.clone(), is_due: Arc::default() };
                let requests = Direction::Requests(loss.clone());
                tokio::spawn(carry(from_client, to_broker, is_open.clone(), requests));
                let answers = Direction::Answers(loss);
                tokio::spawn(carry(from_broker, to_client, is_open.clone(), answers));
            }
        });
        Gate { address, open, losses, held }
    }

    /// Loses the answer to the next request with this text, and ends its connection.
    pub fn lose_answer(&self, text: &str) {
        *self.losses.lock().unwrap() = Some(text.to_owned());
    }

    /// Whether the answer was lost that [`Gate::lose_answer`] named.
    pub fn has_lost(&self) -> bool {
        self.losses.lock().unwrap().is_none()
    }

    /// Whether a request with this text has come while the gate was closed.
    pub fn has_held(&self, text: &str) -> bool {
        has(&self.held.lock().unwrap(), text)
    }

    pub fn close(&self) {
        self.open.send_replace(false);
    }

    pub fn open(&self) {
        self.open.send_replace(true);
    }
}

enum Direction {
    Requests(Loss),
    Answers(Loss),
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut open: watch::Receiver<bool>,
    direction: Direction,
) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if let Direction::Requests(loss) = &direction
            && !*open.borrow()
        {
            loss.held.lock().unwrap().extend_from_slice(&bytes[..count]);
        }
        if open.wait_for(|open| *open).await.is_err() {
            return;
        }
        match &direction {
            Direction::Requests(loss) => loss.note_request(&bytes[..count]),
            Direction::Answers(loss) if loss.is_due.load(Ordering::Acquire) => return,
            Direction::Answers(_) => {}
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
