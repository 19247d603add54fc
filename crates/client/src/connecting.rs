//! What comes before a connection's first request: its time, and TLS if it is to have it. The login is in [`crate::sasl`].

use crate::error::ClientError;
use crate::security::{Security, words};
use crate::stream::{HandshakeError, Stream, TlsStream};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// Until when a connection must have come about.
pub(crate) struct Limit {
    at: Instant,
    of: Duration,
}

impl Limit {
    /// So long from now on.
    pub(crate) fn new(of: Duration) -> Limit {
        Limit { at: Instant::now() + of, of }
    }

    /// Does this within the limit; `what` is told if that fails.
    pub(crate) async fn keep<T>(
        &self,
        what: String,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let done = tokio::time::timeout_at(self.at.into(), work).await;
        let after_ms = self.of.as_millis() as u64;
        done.unwrap_or(Err(ClientError::TimedOut { what, after_ms }))
    }
}

/// Puts TLS over a connection, if it is to have it.
pub(crate) async fn secure(
    tcp: TcpStream,
    address: &str,
    security: &Security,
) -> Result<Stream, ClientError> {
    let Some(tls) = &security.tls else { return Ok(Stream::Plain(tcp)) };
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let opened = TlsStream::open(tcp, tls, host).await;
    opened.map(|stream| Stream::Tls(Box::new(stream))).map_err(|error| match error {
        HandshakeError::Refused(error) => ClientError::NotAdmitted {
            peer: address.to_owned(),
            reason: words::of_handshake(&error, host),
        },
        HandshakeError::Io(error) => ClientError::Connect {
            address: address.to_owned(),
            reason: format!(
                "the TLS handshake was cut short ({error}); if the port has no TLS, write \
                 security.protocol=PLAINTEXT or SASL_PLAINTEXT"
            ),
        },
    })
}
