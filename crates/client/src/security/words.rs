//! What is said of a handshake that failed, and of a connection that ended early: what happened, and what to do next.

use super::Security;
use rustls::{AlertDescription, CertificateError, Error};

/// A handshake with `host` that failed for good.
pub(crate) fn of_handshake(error: &Error, host: &str) -> String {
    match error {
        Error::InvalidCertificate(certificate) => of_certificate(certificate, host),
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::InvalidMessage(_) => "it does not answer in TLS: if the port has none, write \
                                     security.protocol=PLAINTEXT or SASL_PLAINTEXT, or take the port that has it"
            .to_owned(),
        Error::PeerIncompatible(_) => {
            format!("it and this client have no TLS in common: {error}; look at ssl.enabled.protocols of both")
        }
        _ => format!("the TLS connection failed: {error}"),
    }
}

/// What may be behind a connection that the broker ended: brokers leave a client that speaks another protocol at once, and one
/// that does not log in at its first request after ApiVersions. Empty if neither fits.
pub(crate) fn of_end(security: &Security, is_negotiated: bool, is_first: bool) -> &'static str {
    match (is_negotiated, &security.tls, &security.sasl) {
        (false, Some(_), _) => {
            "; if it wants a client certificate (ssl.client.auth=required), name one by ssl.keystore.location"
        }
        (false, None, _) => {
            "; if its port wants TLS, write security.protocol=SSL, or SASL_SSL with a login"
        }
        (true, None, None) if is_first => {
            "; if its port wants a login, write security.protocol=SASL_PLAINTEXT"
        }
        (true, Some(_), None) if is_first => {
            "; if its port wants a login, write security.protocol=SASL_SSL"
        }
        _ => "",
    }
}

fn of_certificate(error: &CertificateError, host: &str) -> String {
    let (what, next) = match error {
        // With a bad signature it is of an authority of the same name, with another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => (
            "its certificate is of no authority that is trusted here".to_owned(),
            "name its authority's certificate in PEM by ssl.truststore.location",
        ),
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => (
            format!("its certificate names no host (subjectAltName), and so not {host}"),
            "have one made with the name, or switch this check off by an empty ssl.endpoint.identification.algorithm",
        ),
        CertificateError::NotValidForNameContext { presented, .. } => (
            format!("its certificate is not for {host} but for {}", names(presented)),
            "connect by such a name (advertised.listeners), or switch this check off by an empty \
             ssl.endpoint.identification.algorithm",
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => (
            "its certificate has expired".to_owned(),
            "have it renewed, or set this machine's clock",
        ),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => (
            "its certificate is not valid yet".to_owned(),
            "set this machine's clock, or the one that made it",
        ),
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => (
            "its certificate is that of an authority, which no broker may show as its own"
                .to_owned(),
            "have one made with basicConstraints=CA:FALSE",
        ),
        other => (format!("its certificate cannot be used: {other}"), "have another one made"),
    };
    format!("{what}; {next}")
}

/// Names of a certificate, as people write them: they come as `DnsName("kafka-1")`.
fn names(presented: &[String]) -> String {
    let bare = |name: &String| name.split('"').nth(1).unwrap_or(name).to_owned();
    presented.iter().map(bare).collect::<Vec<_>>().join(", ")
}

fn of_alert(alert: AlertDescription) -> String {
    let wants = "if it wants a client certificate (ssl.client.auth=required), name one that it trusts by ssl.keystore.location";
    match alert {
        AlertDescription::ProtocolVersion => {
            "it speaks no version of TLS that this client offers; look at ssl.enabled.protocols of both".to_owned()
        }
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => format!(
            "it refuses the handshake ({alert:?}): it shares no cipher suite with this client, or misses something; {wants}"
        ),
        _ => format!("it refuses this client ({alert:?}); {wants}"),
    }
}
