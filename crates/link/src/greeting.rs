//! Hello on a socket: two strangers become a caller and who answers, or part with words.
//!
//! Who dials proves first. So a stranger who reaches this node's port hears no proof by which it could try
//! secrets, before it has proven that it knows the secret.

use crate::codec::CodecError;
use crate::codec::frame::Frame;
use crate::codec::hello::{HELLO_BYTES_MAX, Hello, Purpose};
use crate::codec::proof::{PROOF_BYTES, Role, Transcript, is_proof, prove};
use crate::codec::refusal::{Refusal, Refused, judge, not_loopback, other_secret};
use crate::config::LinkConfig;
use crate::ending::Ending;
use crate::events::Direction;
use crate::framed::{First, HELLO_HEAD_BYTES, read_first, read_frame};
use crate::identity::Identity;
use crate::standing::raised;
use model::BrokerId;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Bytes that a peer that is turned away may still have sent: read, so that closing does not reset the
/// connection before the peer has the words.
const LEFTOVER_BYTES_MAX: u64 = 8192;

/// Who is at the other end.
#[derive(Clone, Debug)]
pub struct Peer {
    /// What it said of itself, and proved if there is a secret.
    pub hello: Hello,
    /// Where it is.
    pub address: SocketAddr,
    /// Who dialed.
    pub direction: Direction,
    /// The version that is spoken.
    pub version: u16,
}

/// A connection on which both sides have proven what they have to. Nothing behind the greeting was read.
#[derive(Debug)]
pub struct Established {
    /// The connection.
    pub stream: TcpStream,
    /// Who is at its other end.
    pub peer: Arc<Peer>,
}

/// Why there was no agreement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GreetingError {
    /// This node refuses the peer; it was told.
    RefusedHere(Refused),
    /// The peer refuses this node.
    RefusedThere(Refused),
    /// The connection ended first.
    Ended(Ending),
    /// It took too long.
    TooSlow,
}

impl GreetingError {
    /// The refusal, by whichever side.
    pub fn refusal(&self) -> Option<&Refused> {
        match self {
            GreetingError::RefusedHere(refused) | GreetingError::RefusedThere(refused) => {
                Some(refused)
            }
            GreetingError::Ended(_) | GreetingError::TooSlow => None,
        }
    }
}

impl fmt::Display for GreetingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GreetingError::RefusedHere(refused) => write!(f, "refused: {refused}"),
            GreetingError::RefusedThere(refused) => write!(f, "refused by the peer: {refused}"),
            GreetingError::Ended(ending) => write!(f, "no Hello: {ending}"),
            GreetingError::TooSlow => f.write_str("no Hello in time"),
        }
    }
}

impl From<Ending> for GreetingError {
    fn from(ending: Ending) -> GreetingError {
        GreetingError::Ended(ending)
    }
}

impl From<std::io::Error> for GreetingError {
    fn from(error: std::io::Error) -> GreetingError {
        GreetingError::Ended(Ending::from(&error))
    }
}

/// What a greeting is done with.
pub(crate) struct Greeter<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) config: &'a LinkConfig,
    /// Where the peer is.
    pub(crate) address: SocketAddr,
}

/// Whether an address is of this machine only.
fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

impl Greeter<'_> {
    /// Says Hello first.
    pub(crate) async fn dialed(
        &self,
        mut stream: TcpStream,
        purpose: Purpose,
        wanted: Option<BrokerId>,
    ) -> Result<Established, GreetingError> {
        let greeting = self.greet_as_dialer(&mut stream, purpose, wanted);
        let done = timeout(self.config.hello_timeout, greeting).await;
        let (hello, version) = done.unwrap_or(Err(GreetingError::TooSlow))?;
        Ok(self.established(stream, hello, version, Direction::Out))
    }

    /// Waits for the peer's Hello. Fetchers are taken if there is somebody for them.
    pub(crate) async fn accepted(
        &self,
        mut stream: TcpStream,
        takes_fetchers: bool,
    ) -> Result<Established, GreetingError> {
        let greeting = self.greet_as_acceptor(&mut stream, takes_fetchers);
        let done = timeout(self.config.hello_timeout, greeting).await;
        let (hello, version) = done.unwrap_or(Err(GreetingError::TooSlow))?;
        Ok(self.established(stream, hello, version, Direction::In))
    }

    /// Tells a peer that has not been heard why it is not. Waits for nothing: the words may get lost.
    pub(crate) fn refuse(&self, stream: &TcpStream, refused: Refused) -> GreetingError {
        let _ = stream.try_write(&Frame::Refused(refused.clone()).encode());
        GreetingError::RefusedHere(refused)
    }

    fn established(
        &self,
        stream: TcpStream,
        hello: Hello,
        version: u16,
        direction: Direction,
    ) -> Established {
        let peer = Peer { hello, address: self.address, direction, version };
        Established { stream: raised(stream), peer: Arc::new(peer) }
    }

    async fn greet_as_dialer<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        purpose: Purpose,
        wanted: Option<BrokerId>,
    ) -> Result<(Hello, u16), GreetingError> {
        if self.identity.secret.is_none() && !is_loopback(self.address) {
            // Not even a Hello leaves the machine.
            return Err(GreetingError::RefusedHere(not_loopback(self.identity.node)));
        }
        let mine = self.identity.hello(purpose, wanted)?;
        let said = mine.encode();
        stream.write_all(&said).await?;
        let (heard, theirs) = match read_first(stream).await? {
            First::Hello { whole } => hear(stream, whole).await?,
            First::Frame(frame) => return Err(no_hello(&Frame::decode(&frame))),
        };
        let version = match judge(&mine, &theirs, is_loopback(self.address)) {
            Ok(version) => version,
            Err(refused) => return Err(turn_away(stream, refused).await),
        };
        let transcript = Transcript { dialer: &said, acceptor: &heard };
        stream.write_all(&Frame::Proof(self.proof(Role::Dialer, transcript)).encode()).await?;
        match self.read(stream).await? {
            Frame::Accepted(proof) if self.is_proven(Role::Acceptor, transcript, proof) => {
                Ok((theirs, version))
            }
            Frame::Accepted(_) => Err(turn_away(stream, other_secret(&mine, &theirs)).await),
            other => Err(no_hello(&Ok(other))),
        }
    }

    async fn greet_as_acceptor<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        takes_fetchers: bool,
    ) -> Result<(Hello, u16), GreetingError> {
        let (heard, theirs) = match read_first(stream).await? {
            First::Hello { whole } => hear(stream, whole).await?,
            First::Frame(frame) => return Err(no_hello(&Frame::decode(&frame))),
        };
        let mine = self.identity.hello(theirs.purpose, None)?;
        let judged = judge(&mine, &theirs, is_loopback(self.address));
        let judged = judged.and_then(|version| match theirs.purpose {
            Purpose::Fetcher { .. } if !takes_fetchers => {
                let words = format!("node {} serves no fetchers", mine.node);
                Err(Refused::new(Refusal::Purpose, words))
            }
            _ => Ok(version),
        });
        let version = match judged {
            Ok(version) => version,
            Err(refused) => return Err(turn_away(stream, refused).await),
        };
        let said = mine.encode();
        stream.write_all(&said).await?;
        let transcript = Transcript { dialer: &heard, acceptor: &said };
        match self.read(stream).await? {
            Frame::Proof(proof) if self.is_proven(Role::Dialer, transcript, proof) => {}
            Frame::Proof(_) => return Err(turn_away(stream, other_secret(&mine, &theirs)).await),
            other => return Err(no_hello(&Ok(other))),
        }
        stream.write_all(&Frame::Accepted(self.proof(Role::Acceptor, transcript)).encode()).await?;
        Ok((theirs, version))
    }

    fn proof(&self, role: Role, said: Transcript<'_>) -> Option<[u8; PROOF_BYTES]> {
        self.identity.secret.as_ref().map(|secret| prove(secret, role, said))
    }

    /// Whether the peer has proven what it has to: without a secret, nothing.
    fn is_proven(
        &self,
        role: Role,
        said: Transcript<'_>,
        proof: Option<[u8; PROOF_BYTES]>,
    ) -> bool {
        match (&self.identity.secret, proof) {
            (Some(secret), Some(proof)) => is_proof(secret, role, said, &proof),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    async fn read<S: AsyncRead + Unpin>(&self, stream: &mut S) -> Result<Frame, Ending> {
        let frame = read_frame(stream, HELLO_BYTES_MAX, self.config.hello_timeout).await?;
        Ok(Frame::decode(&frame)?)
    }
}

/// The Hello in bytes that begin like one; a peer whose bytes are none is told.
async fn hear<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    whole: Vec<u8>,
) -> Result<(Vec<u8>, Hello), GreetingError> {
    match Hello::decode(&whole[HELLO_HEAD_BYTES..]) {
        Ok(hello) => Ok((whole, hello)),
        Err(error) => {
            let refused = Refused::new(Refusal::Malformed, format!("this is not a Hello: {error}"));
            Err(turn_away(stream, refused).await)
        }
    }
}

/// What a frame means that came where none is due.
fn no_hello(frame: &Result<Frame, CodecError>) -> GreetingError {
    match frame {
        Ok(Frame::Refused(refused)) => GreetingError::RefusedThere(refused.clone()),
        Ok(_) => Ending::Misbehaved("it says something before its Hello".into()).into(),
        Err(error) => Ending::from(error.clone()).into(),
    }
}

/// Tells the peer, and waits until it has closed.
async fn turn_away<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    refused: Refused,
) -> GreetingError {
    let frame = Frame::Refused(refused.clone()).encode();
    // What the peer does with it changes nothing here.
    if stream.write_all(&frame).await.is_ok() && stream.shutdown().await.is_ok() {
        let mut leftover = Vec::new();
        let _ = stream.take(LEFTOVER_BYTES_MAX).read_to_end(&mut leftover).await;
    }
    GreetingError::RefusedHere(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::proof::Secret;
    use model::Uuid;
    use tokio::io::{DuplexStream, duplex};

    const NEAR: &str = "127.0.0.1:9";
    const FAR: &str = "192.0.2.7:9";

    fn identity(node: i32, secret: Option<&str>) -> Identity {
        Identity {
            secret: secret.and_then(Secret::new),
            ..Identity::new("c", BrokerId(node), Uuid([node as u8; 16]))
        }
    }

    type Greeted = Result<(Hello, u16), GreetingError>;

    async fn dialed(identity: Identity, at: &str, mut stream: DuplexStream) -> Greeted {
        let config = LinkConfig::default();
        let greeter =
            Greeter { identity: &identity, config: &config, address: at.parse().unwrap() };
        greeter.greet_as_dialer(&mut stream, Purpose::Control, None).await
    }

    async fn accepted(identity: Identity, at: &str, mut stream: DuplexStream) -> Greeted {
        let config = LinkConfig::default();
        let greeter =
            Greeter { identity: &identity, config: &config, address: at.parse().unwrap() };
        greeter.greet_as_acceptor(&mut stream, false).await
    }

    async fn meet(dialer: Option<&str>, acceptor: Option<&str>, at: &str) -> (Greeted, Greeted) {
        let (near, far) = duplex(1 << 16);
        tokio::join!(
            dialed(identity(1, dialer), at, near),
            accepted(identity(2, acceptor), at, far)
        )
    }

    #[tokio::test]
    async fn two_who_know_the_secret_agree_wherever_they_are() {
        let (out, taken) = meet(Some("s"), Some("s"), FAR).await;
        assert_eq!(out.unwrap().0.node, BrokerId(2));
        assert_eq!(taken.unwrap().0.node, BrokerId(1));
    }

    #[tokio::test]
    async fn without_a_secret_only_this_machine_is_talked_to() {
        let (out, taken) = meet(None, None, NEAR).await;
        assert!(out.is_ok() && taken.is_ok());
        // The dialer says nothing at all.
        let (out, taken) = meet(None, None, FAR).await;
        assert_eq!(out.unwrap_err().refusal().unwrap().why, Refusal::NotLoopback);
        assert_eq!(taken.unwrap_err(), GreetingError::Ended(Ending::Finished));
        // A dialer who thinks otherwise is told.
        let (near, far) = duplex(1 << 16);
        let (out, taken) = tokio::join!(
            dialed(identity(1, None), NEAR, near),
            accepted(identity(2, None), FAR, far)
        );
        let Err(GreetingError::RefusedThere(told)) = out else { panic!("{out:?}") };
        assert_eq!(told.why, Refusal::NotLoopback);
        assert!(told.words.contains("inter.broker.secret"), "{told}");
        assert_eq!(taken.unwrap_err(), GreetingError::RefusedHere(told));
    }

    #[tokio::test]
    async fn another_secret_or_none_is_refused_in_words() {
        for (dialer, acceptor) in [(Some("s"), Some("t")), (Some("s"), None), (None, Some("s"))] {
            let (out, taken) = meet(dialer, acceptor, NEAR).await;
            let Err(GreetingError::RefusedThere(told)) = out else { panic!("{out:?}") };
            assert_eq!(told.why, Refusal::Secret);
            assert!(told.words.contains("inter.broker.secret"), "{told}");
            assert_eq!(taken.unwrap_err(), GreetingError::RefusedHere(told));
        }
    }

    #[tokio::test]
    async fn an_acceptor_that_cannot_prove_is_left() {
        let (near, mut far) = duplex(1 << 16);
        let impostor = async {
            let First::Hello { whole } = read_first(&mut far).await.unwrap() else { panic!() };
            let theirs = Hello::decode(&whole[HELLO_HEAD_BYTES..]).unwrap();
            let hello = Hello { node: BrokerId(2), incarnation: Uuid([2; 16]), ..theirs };
            far.write_all(&hello.encode()).await.unwrap();
            let proof = read_frame(&mut far, 4096, LinkConfig::default().frame_timeout).await;
            let Ok(Frame::Proof(Some(proof))) = Frame::decode(&proof.unwrap()) else { panic!() };
            // All that it knows: what the dialer said.
            far.write_all(&Frame::Accepted(Some(proof)).encode()).await.unwrap();
            let told = read_frame(&mut far, 4096, LinkConfig::default().frame_timeout).await;
            let told = Frame::decode(&told.unwrap()).unwrap();
            drop(far);
            told
        };
        let (out, told) = tokio::join!(dialed(identity(1, Some("s")), FAR, near), impostor);
        let Err(GreetingError::RefusedHere(refused)) = out else { panic!("{out:?}") };
        assert_eq!(refused.why, Refusal::Secret);
        assert_eq!(told, Frame::Refused(refused));
    }
}
