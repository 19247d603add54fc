//! TLS as a client of Kafka has it: versions 1.2 and 1.3, the chain of certificates verified always, the host's name unless
//! that was switched off. By rustls, with ring's algorithms.

use super::{InvalidSecurity, stores};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    SupportedProtocolVersion, version,
};
use std::fmt;
use std::sync::Arc;

/// What every handshake of a cluster's connections is made with. Clones share it, and the sessions that can be resumed.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads `ssl.*`.
    pub(super) fn read<'a>(
        value: &impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Tls, InvalidSecurity> {
        if value("ssl.cipher.suites").is_some_and(|text| !text.is_empty()) {
            let reason = "cipher suites are not chosen here: those of TLS 1.3, and of TLS 1.2 those with ECDHE and AEAD, \
                          are offered; remove it";
            return Err(InvalidSecurity::new("ssl.cipher.suites", reason));
        }
        let provider = Arc::new(ring::default_provider());
        let roots = stores::trusted(value)?;
        let versions = versions(value("ssl.enabled.protocols").unwrap_or_default())?;
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .expect("each version has suites in ring's provider");
        const NAMES: &str = "ssl.endpoint.identification.algorithm";
        let builder = match value(NAMES).unwrap_or("https") {
            "" => {
                let verifier = ChainOnly { roots, provider };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
            https if https.eq_ignore_ascii_case("https") => builder.with_root_certificates(roots),
            other => {
                let reason = format!("invalid {other:?}: write https, or nothing for no check");
                return Err(InvalidSecurity::new(NAMES, reason));
            }
        };
        let config = match stores::identity(value)? {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| {
                let reason = format!("certificate and key cannot be used together: {error}");
                InvalidSecurity::new("ssl.keystore.key", reason)
            })?,
        };
        Ok(Tls(Arc::new(config)))
    }

    /// One side of a handshake with this host; `None` if TLS cannot carry its name.
    pub(crate) fn session(&self, host: &str) -> Option<ClientConnection> {
        let name = ServerName::try_from(host.to_owned()).ok()?;
        ClientConnection::new(self.0.clone(), name).ok()
    }
}

/// The versions of a list in Java's names; both without one.
fn versions(list: &str) -> Result<Vec<&'static SupportedProtocolVersion>, InvalidSecurity> {
    let invalid = |reason| InvalidSecurity::new("ssl.enabled.protocols", reason);
    let mut versions = Vec::new();
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        versions.push(match name {
            "TLSv1.3" => &version::TLS13,
            "TLSv1.2" => &version::TLS12,
            _ => {
                return Err(invalid(format!("{name} is not spoken here: TLSv1.2 and TLSv1.3 are")));
            }
        });
    }
    Ok(if versions.is_empty() { rustls::DEFAULT_VERSIONS.to_vec() } else { versions })
}

/// Verifies all but the host's name: the chain, its dates, and that the broker has the key.
#[derive(Debug)]
struct ChainOnly {
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ChainOnly {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
