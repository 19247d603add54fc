//! From the first look at the socket to the last answer.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{error, warn};

use crate::counts::Shown;
use crate::door::Door;
use crate::front;
use crate::settings::Settings;
use crate::state::Shared;

/// How long accepting rests after the system refused it, for lack of file descriptors mostly.
const REST_AFTER_FAILURE: Duration = Duration::from_millis(50);

/// After which part of the time of a stop bodies that have not arrived are not waited for: their clients can still be answered.
const LAST_CALL: f64 = 0.8;
/// How long records and consumer instances are waited for at least, once no client is.
const FLUSH_MIN: Duration = Duration::from_secs(2);

/// A gateway that listens.
pub struct Gateway {
    address: SocketAddr,
    shared: Arc<Shared>,
    stopping: watch::Sender<bool>,
    threads: Arc<Threads>,
}

/// The gateway's own runtime, once there is one. It ends in the background: a runtime may not be waited for where
/// futures run.
#[derive(Default)]
struct Threads(Mutex<Option<Runtime>>);

impl Drop for Threads {
    fn drop(&mut self) {
        let runtime = self.0.get_mut().map(Option::take).unwrap_or_default();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

/// Begins to listen, on the runtime that this is called on. That runtime waits for the first connection only; the
/// gateway's own threads begin then.
pub fn open(door: Door, settings: Settings) -> Gateway {
    let address = door.address();
    let shared = Arc::new(Shared::new(settings));
    let _ = shared.address.set(address);
    let (stopping, stopped) = watch::channel(false);
    let threads = Arc::new(Threads::default());
    tokio::spawn(begin(door, Arc::clone(&shared), Arc::clone(&threads), stopped));
    Gateway { address, shared, stopping, threads }
}

/// Waits for the first connection and hands it, and the socket, to threads that begin now.
async fn begin(
    door: Door,
    shared: Arc<Shared>,
    threads: Arc<Threads>,
    mut stopped: watch::Receiver<bool>,
) {
    let waiting = async {
        let listener = TcpListener::from_std(door.into_listener())?;
        let first = accept(&listener).await.0.into_std()?;
        Ok::<_, io::Error>((listener.into_std()?, first))
    };
    let waited = tokio::select! {
        waited = waiting => waited,
        () = told_to_stop(&mut stopped) => return,
    };
    let started = waited.and_then(|(listener, first)| {
        let runtime = runtime(shared.settings.threads)?;
        Ok((runtime, listener, first))
    });
    let (runtime, listener, first) = match started {
        Ok(started) => started,
        Err(cause) => return error!(%cause, "the gateway cannot start its threads"),
    };
    runtime.spawn(async move {
        let sockets = TcpListener::from_std(listener)
            .and_then(|listener| Ok((listener, TcpStream::from_std(first)?)));
        match sockets {
            Ok((listener, first)) => {
                let (who, mut ending) = (Arc::clone(&shared), stopped.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = who.who.follow_users() => {}
                        () = told_to_stop(&mut ending) => {}
                    }
                });
                front::accept_all(listener, first, shared, stopped).await;
            }
            Err(cause) => error!(%cause, "the gateway cannot use its sockets"),
        }
    });
    *threads.0.lock().expect("no code under it panics") = Some(runtime);
}

/// Tasks that a thread polls between two looks at the sockets while it always has tasks. One may take a millisecond: with tokio's
/// 61 a request could wait for 60 ms before its connection is woken.
const EVENT_INTERVAL: u32 = 8;

fn runtime(threads: Option<usize>) -> io::Result<Runtime> {
    let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    Builder::new_multi_thread()
        .worker_threads(threads.unwrap_or_else(cores).max(1))
        .thread_name("gateway")
        .event_interval(EVENT_INTERVAL)
        .enable_all()
        .build()
}

/// Waits until the gateway is told to stop.
pub(crate) async fn told_to_stop(stopped: &mut watch::Receiver<bool>) {
    // A gateway that is gone has stopped.
    let _ = stopped.wait_for(|stopping| *stopping).await;
}

/// The next connection.
pub(crate) async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(_) => sleep(REST_AFTER_FAILURE).await,
        }
    }
}

impl Gateway {
    /// Where it listens: the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it counts of itself, for as long as it is there.
    pub fn metrics(&self) -> Arc<dyn metrics::Source> {
        Arc::new(Shown(Arc::downgrade(&self.shared)))
    }

    /// Stops: takes no more connections and no more requests, waits for those under way as long as
    /// [`Settings::drain`] says, and as long, or two seconds if that is over, for records that were sent without waiting
    /// and for consumer instances to leave their groups.
    pub async fn stop(self) {
        let drain = self.shared.settings.drain;
        let end = Instant::now() + drain;
        self.shared.begin_to_stop();
        self.stopping.send_replace(true);
        // Each connection holds a receiver until it has ended.
        if timeout(drain.mul_f64(LAST_CALL), self.stopping.closed()).await.is_err() {
            self.shared.call_last();
            if timeout_at(end, self.stopping.closed()).await.is_err() {
                warn!(
                    "some requests to the gateway were not finished in time; their connections are closed"
                );
            }
        }
        // Whatever a client does that would not end.
        let flush_by = end.max(Instant::now() + FLUSH_MIN);
        if timeout_at(flush_by, self.shared.flush()).await.is_err() {
            warn!(
                "brokers have not answered in time: records that were sent without waiting may be lost, and consumer \
                 instances stay in their groups until these time out"
            );
        }
        if let Some(pages) = &self.shared.settings.pages {
            pages.stop();
        }
        drop(self.threads);
    }
}
