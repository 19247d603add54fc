//! One connection: its requests one after the other, until it is closed or the gateway stops.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tracing::debug;

use super::guest::{Guest, Pace};
use crate::lifetime::told_to_stop;
use crate::service;
use crate::state::Shared;

/// Bytes of a head; a longer one is answered with 431.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes that a connection buffers of what it reads, and of what it writes.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Serves it to its end.
pub(super) async fn serve(
    stream: TcpStream,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) {
    // An answer is one write; a later part of it must not wait for the acknowledgement of the first.
    let _ = stream.set_nodelay(true);
    let pace = Pace::default();
    let guest = Guest::new(stream, pace.clone(), shared.settings.head_timeout);
    let answer = service_fn(|request| {
        pace.begin();
        let (shared, pace) = (Arc::clone(&shared), pace.clone());
        async move {
            let answer = service::answer(&shared, request).await;
            pace.end();
            Ok::<_, Infallible>(answer)
        }
    });
    // The socket looks at the clock.
    let served = Builder::new()
        .header_read_timeout(None)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(guest), answer);
    let mut served = pin!(served);
    let result = tokio::select! {
        result = served.as_mut() => result,
        () = told_to_stop(&mut stopped) => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(cause) = result {
        debug!(%cause, "a connection to the gateway ended");
    }
}
