//! Certificates and keys in PEM, as Kafka's clients name them: in a file, or in the value itself. Java's own stores (JKS,
//! PKCS12) are refused with the command that exports them.

use super::InvalidSecurity;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::borrow::Cow;

/// Larger files do not hold certificates, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The keys of one store.
struct Keys {
    kind: &'static str,
    location: &'static str,
    password: &'static str,
    /// The command that makes PEM of a store of Java's.
    export: fn(&str) -> String,
}

const TRUST: Keys = Keys {
    kind: "ssl.truststore.type",
    location: "ssl.truststore.location",
    password: "ssl.truststore.password",
    export: |file| format!("keytool -list -rfc -keystore {file} > ca.pem"),
};

const OWN: Keys = Keys {
    kind: "ssl.keystore.type",
    location: "ssl.keystore.location",
    password: "ssl.keystore.password",
    export: |file| {
        format!(
            "keytool -importkeystore -srckeystore {file} -destkeystore client.p12 -deststoretype PKCS12 && \
             openssl pkcs12 -in client.p12 -nodes -out client.pem"
        )
    },
};

/// Who is trusted: `ssl.truststore.*`; without them, whom this system trusts.
pub(super) fn trusted<'a>(
    value: &impl Fn(&str) -> Option<&'a str>,
) -> Result<RootCertStore, InvalidSecurity> {
    let Some((key, text)) = pem(value, &TRUST, "ssl.truststore.certificates")? else {
        return of_system();
    };
    let invalid = |reason: String| InvalidSecurity::new(key, reason);
    let mut roots = RootCertStore::empty();
    for certificate in certificates(key, &text)? {
        let added = roots.add(certificate);
        added.map_err(|error| invalid(format!("a certificate cannot be read: {error}")))?;
    }
    if roots.is_empty() {
        return Err(invalid("there is no certificate (-----BEGIN CERTIFICATE-----)".to_owned()));
    }
    Ok(roots)
}

fn of_system() -> Result<RootCertStore, InvalidSecurity> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let reason = "this system has no list of authorities: name the brokers' one, in PEM";
        return Err(InvalidSecurity::new(TRUST.location, reason));
    }
    Ok(roots)
}

/// The client's own certificate with what leads to its authority, and the key: `ssl.keystore.*`.
pub(super) type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The client's own certificate and key, if there are any.
pub(super) fn identity<'a>(
    value: &impl Fn(&str) -> Option<&'a str>,
) -> Result<Option<Identity>, InvalidSecurity> {
    const KEY: &str = "ssl.keystore.key";
    const CHAIN: &str = "ssl.keystore.certificate.chain";
    let said = |key: &str| value(key).filter(|text| !text.is_empty());
    let Some((key_at, key)) = pem(value, &OWN, KEY)? else {
        let Some(_) = said(CHAIN) else { return Ok(None) };
        return Err(InvalidSecurity::new(
            KEY,
            format!("there is a value of {CHAIN} without a key"),
        ));
    };
    let (chain_at, chain) = match (key_at, said(CHAIN)) {
        (KEY, Some(text)) => (CHAIN, Cow::Borrowed(text)),
        (KEY, None) => {
            let reason = format!("there is a value of {KEY} without a certificate");
            return Err(InvalidSecurity::new(CHAIN, reason));
        }
        _ => (key_at, key.clone()),
    };
    let chain = certificates(chain_at, &chain)?;
    if chain.is_empty() {
        let reason = "there is no certificate (-----BEGIN CERTIFICATE-----)";
        return Err(InvalidSecurity::new(chain_at, reason));
    }
    let is_encrypted = ["BEGIN ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED"];
    if said("ssl.key.password").is_some() || is_encrypted.iter().any(|mark| key.contains(mark)) {
        let reason = "keys with a password are not read: take it away with `openssl pkey -in key.pem -out plain.pem`, \
                      keep the file to yourself (chmod 600), and remove ssl.key.password";
        return Err(InvalidSecurity::new(key_at, reason));
    }
    // What is wrong with a key is not shown: it might show the key.
    let unreadable = |_| InvalidSecurity::new(key_at, "there is no private key in PEM");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(unreadable)?;
    Ok(Some((chain, key)))
}

fn certificates(
    key: &'static str,
    text: &str,
) -> Result<Vec<CertificateDer<'static>>, InvalidSecurity> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    read.map_err(|error| InvalidSecurity::new(key, format!("it cannot be read as PEM: {error}")))
}

/// The PEM of a store and the key that said it: the value of `inline`, or the file at the store's location.
fn pem<'a>(
    value: &impl Fn(&str) -> Option<&'a str>,
    keys: &Keys,
    inline: &'static str,
) -> Result<Option<(&'static str, Cow<'a, str>)>, InvalidSecurity> {
    let said = |key: &str| value(key).filter(|text| !text.is_empty());
    let kind = said(keys.kind);
    let is_pem = kind.map(|kind| kind.eq_ignore_ascii_case("PEM"));
    let found = match (said(inline), said(keys.location)) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            let reason =
                format!("there is a value of {} too; one of them is enough", keys.location);
            return Err(InvalidSecurity::new(inline, reason));
        }
        (Some(text), None) if is_pem != Some(false) => (inline, Cow::Borrowed(text)),
        (Some(_), None) => {
            let reason = format!("{inline} is PEM: write {}=PEM", keys.kind);
            return Err(InvalidSecurity::new(keys.kind, reason));
        }
        (None, Some(path)) => {
            let text = file(keys.location, path)?;
            // Without a type it is JKS to Kafka, unless the file says otherwise by its first words.
            let looks = text.as_deref().is_some_and(|text| text.contains("-----BEGIN "));
            match text {
                Some(text) if is_pem.unwrap_or(looks) => (keys.location, Cow::Owned(text)),
                _ => {
                    let (is, export) = (kind.unwrap_or("JKS"), (keys.export)(path));
                    let reason = format!(
                        "{path} is read as PEM only, not as {is}: export it with `{export}`, and write {}=PEM",
                        keys.kind
                    );
                    return Err(InvalidSecurity::new(keys.location, reason));
                }
            }
        }
    };
    if said(keys.password).is_some() {
        let reason = "a store in PEM has no password; remove it";
        return Err(InvalidSecurity::new(keys.password, reason));
    }
    Ok(Some(found))
}

/// A file's text; `None` if it is not text.
fn file(key: &'static str, path: &str) -> Result<Option<String>, InvalidSecurity> {
    let unreadable = |error| InvalidSecurity::new(key, format!("cannot read {path}: {error}"));
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > FILE_BYTES_MAX {
        let reason = format!("{path} has {size} bytes, which is more than {FILE_BYTES_MAX}");
        return Err(InvalidSecurity::new(key, reason));
    }
    Ok(String::from_utf8(std::fs::read(path).map_err(unreadable)?).ok())
}
