//! Where peers come in: each connection is greeted, then served until it ends.

use crate::codec::hello::Purpose;
use crate::codec::refusal::{Refusal, Refused};
use crate::config::LinkConfig;
use crate::dialing::configure;
use crate::ending::Ending;
use crate::events::{Event, Observer};
use crate::greeting::{Established, Greeter, GreetingError};
use crate::identity::Identity;
use crate::service::Services;
use crate::serving::Serving;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// How long accepting rests after the system refused it, for lack of file descriptors mostly.
const REST_AFTER_FAILURE: Duration = Duration::from_millis(50);

/// Takes connections of fetchers once they are greeted, and runs them itself.
pub type Fetchers = Arc<dyn Fn(Established) + Send + Sync>;

/// Takes connections of peers.
pub struct Door {
    identity: Arc<Identity>,
    config: Arc<LinkConfig>,
    services: Services,
    fetchers: Option<Fetchers>,
    observer: Arc<dyn Observer>,
    /// Connections that may still come without having proven anything.
    unproven: Semaphore,
    /// Set once.
    closed: watch::Sender<bool>,
}

impl Door {
    /// An open door to these services.
    pub fn new(
        identity: Arc<Identity>,
        config: Arc<LinkConfig>,
        services: Services,
        observer: Arc<dyn Observer>,
    ) -> Door {
        let unproven = Semaphore::new(config.unproven_max);
        let closed = watch::Sender::new(false);
        Door { identity, config, services, fetchers: None, observer, unproven, closed }
    }

    /// Lets fetchers in as well.
    pub fn with_fetchers(self, fetchers: Fetchers) -> Door {
        Door { fetchers: Some(fetchers), ..self }
    }

    /// Accepts until the door closes.
    pub async fn accept(self: Arc<Self>, listener: TcpListener) {
        let mut closed = self.closed.subscribe();
        loop {
            let accepted = tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => {
                    tokio::spawn(Arc::clone(&self).admit(stream, address));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection of another broker");
                    tokio::time::sleep(REST_AFTER_FAILURE).await;
                }
            }
        }
    }

    /// Greets and serves one connection, of which nothing was read yet, until it ends or the door closes.
    pub async fn admit(self: Arc<Self>, stream: TcpStream, address: SocketAddr) {
        let mut closed = self.closed.subscribe();
        let greeted = tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => return,
            greeted = self.greet(stream, address) => greeted,
        };
        let established = match greeted {
            Ok(established) => established,
            Err(error) => {
                self.observer.observe(&Event::TurnedAway { address, error });
                return;
            }
        };
        if let (Purpose::Fetcher { .. }, Some(take)) =
            (established.peer.hello.purpose, &self.fetchers)
        {
            take(established);
            return;
        }
        let peer = Arc::clone(&established.peer);
        self.observer.observe(&Event::Up { peer: Arc::clone(&peer) });
        let (services, config) = (self.services.clone(), Arc::clone(&self.config));
        let serving = Serving::new(Arc::clone(&peer), services, config);
        let ending = tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => Ending::Closed,
            ending = serving.run(established) => ending,
        };
        self.observer.observe(&Event::Ended { peer, ending });
    }

    async fn greet(
        &self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> Result<Established, GreetingError> {
        configure(&stream, &self.config)?;
        let greeter = Greeter { identity: &self.identity, config: &self.config, address };
        let Ok(_place) = self.unproven.try_acquire() else {
            let max = self.config.unproven_max;
            let words = format!("{max} connections have not said Hello yet");
            return Err(greeter.refuse(&stream, Refused::new(Refusal::Busy, words)));
        };
        greeter.accepted(stream, self.fetchers.is_some()).await
    }

    /// Waits until the door is closed.
    pub async fn closed(&self) {
        let mut closed = self.closed.subscribe();
        // The sender is this door's.
        let _ = closed.wait_for(|closed| *closed).await;
    }

    /// Takes nobody any more and closes every connection that it serves. Fetchers' are not its own.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }
}
