//! TLS on the gateway's listener: a certificate and its key in PEM, which are read again when their files change.
//!
//! What clients have in common with each other is HTTP/1.1: nothing else is offered by ALPN. A pair that cannot be used, as while
//! somebody renews it file by file, changes nothing: the one before is shown on, and that is said once.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use super::transport::Transport;

/// Larger files do not hold certificates, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// How often it is looked whether the files have changed, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Bytes that are encrypted for a client and not taken by its socket, at most.
const UNSENT_BYTES_MAX: usize = 32 * 1024;
/// The first byte of every connection with TLS: a record of its handshake.
const HANDSHAKE: u8 = 0x16;
/// What a client without TLS is told.
const NO_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: 53\r\n\r\n\
    this port speaks TLS: begin its address with https://";

/// Why a certificate and its key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {cause}", .file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// A file holds something else.
    #[error("{}: {reason}", .file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Both can be read, and do not belong together, or are of a kind that is not served.
    #[error("the certificate and the key cannot be used together: {0}")]
    Pair(rustls::Error),
}

/// A certificate and its key.
pub struct Tls {
    certificate_file: PathBuf,
    key_file: PathBuf,
    kept: Mutex<Kept>,
    failed_reloads: AtomicU64,
}

struct Kept {
    config: Arc<ServerConfig>,
    /// Of which files it is, or those that could not be used were.
    marks: [Option<Mark>; 2],
    looked_at: Instant,
}

/// What a file is told by from another one of its name: device, inode, size, time.
type Mark = (u64, u64, u64, i64, i64);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("certificate_file", &self.certificate_file)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads a certificate, with what leads to its authority behind it, and its key; both in PEM, in one file or in two.
    ///
    /// # Errors
    /// They cannot be used.
    pub fn of_files(certificate_file: &Path, key_file: &Path) -> Result<Tls, TlsError> {
        let marks = [mark(certificate_file), mark(key_file)];
        let config = config(certificate_file, key_file)?;
        let kept = Kept { config, marks, looked_at: Instant::now() };
        Ok(Tls {
            certificate_file: certificate_file.to_owned(),
            key_file: key_file.to_owned(),
            kept: Mutex::new(kept),
            failed_reloads: AtomicU64::new(0),
        })
    }

    /// How often files had changed and could not be used.
    pub(crate) fn failed_reloads(&self) -> u64 {
        self.failed_reloads.load(Ordering::Relaxed)
    }

    /// What is shown to a client that comes now.
    fn current(&self) -> Arc<ServerConfig> {
        let mut kept = self.kept.lock().expect("no code under it panics");
        if kept.looked_at.elapsed() < LOOK_EVERY {
            return Arc::clone(&kept.config);
        }
        kept.looked_at = Instant::now();
        let marks = [mark(&self.certificate_file), mark(&self.key_file)];
        if marks != kept.marks {
            kept.marks = marks;
            match config(&self.certificate_file, &self.key_file) {
                Ok(config) => {
                    kept.config = config;
                    info!(file = %self.certificate_file.display(), "the gateway shows a new certificate");
                }
                Err(cause) => {
                    self.failed_reloads.fetch_add(1, Ordering::Relaxed);
                    warn!(%cause, "the gateway goes on with the certificate that it has: the new one cannot be used");
                }
            }
        }
        Arc::clone(&kept.config)
    }

    /// Shakes hands, for so long at most. A client that speaks HTTP without TLS is told so.
    ///
    /// # Errors
    /// The client took too long, went away, or does not agree.
    pub(super) async fn accept(&self, tcp: TcpStream, within: Duration) -> io::Result<Transport> {
        let shaken = timeout(within, async {
            let mut first = [0];
            let read = tcp.peek(&mut first).await?;
            if read == 1 && first[0] != HANDSHAKE {
                return self.turn_away(tcp).await;
            }
            let acceptor = TlsAcceptor::from(self.current());
            let limit = |session: &mut rustls::ServerConnection| {
                session.set_buffer_limit(Some(UNSENT_BYTES_MAX));
            };
            Ok(Transport::Tls(Box::new(acceptor.accept_with(tcp, limit).await?)))
        });
        shaken.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn turn_away(&self, mut tcp: TcpStream) -> io::Result<Transport> {
        let _ = tcp.write_all(NO_TLS).await;
        let _ = tcp.shutdown().await;
        // What is unread when a socket is closed makes it a reset, and the answer is lost.
        let mut rest = [0; 1024];
        for _ in 0..64 {
            tcp.readable().await?;
            match tcp.try_read(&mut rest) {
                Ok(0) => break,
                Err(cause) if cause.kind() != io::ErrorKind::WouldBlock => break,
                _ => {}
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "a client without TLS"))
    }
}

fn mark(file: &Path) -> Option<Mark> {
    let of = std::fs::metadata(file).ok()?;
    Some((of.dev(), of.ino(), of.size(), of.mtime(), of.mtime_nsec()))
}

fn config(certificate_file: &Path, key_file: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let content = |file: &Path, reason: &str| TlsError::Content {
        file: file.to_owned(),
        reason: reason.to_owned(),
    };
    let text = read(certificate_file)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain =
        chain.map_err(|cause| content(certificate_file, &format!("invalid PEM: {cause}")))?;
    if chain.is_empty() {
        let reason = "there is no certificate in PEM (-----BEGIN CERTIFICATE-----)";
        return Err(content(certificate_file, reason));
    }
    let text = read(key_file)?;
    let is_encrypted = [&b"BEGIN ENCRYPTED PRIVATE KEY"[..], b"Proc-Type: 4,ENCRYPTED"];
    let has = |mark: &[u8]| text.windows(mark.len()).any(|part| part == mark);
    if is_encrypted.iter().any(|mark| has(mark)) {
        let reason = "keys with a password are not read: take it away by openssl pkey -in KEY.pem -out plain.pem, and keep \
                      the file to yourself (chmod 600)";
        return Err(content(key_file, reason));
    }
    // What is wrong with a key is not shown: it might show the key.
    let key = PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        content(key_file, "there is no private key in PEM (-----BEGIN PRIVATE KEY-----)")
    })?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Pair)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(TlsError::Pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|open| open.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|cause| TlsError::File { file: file.to_owned(), cause })?;
    Ok(bytes)
}
