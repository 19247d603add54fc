//! How a connection is protected: TLS, a login, both or neither, out of the keys that Kafka's Java clients have.
//!
//! Here is what was said; what is done on a connection is in [`crate::stream`] and [`crate::sasl`]. Files are read once,
//! when the keys are.

pub mod jaas;
pub mod scram;
mod secret;
mod stores;
mod tls;
pub(crate) mod words;

pub use secret::Secret;
pub(crate) use tls::Tls;

use scram::Hash;
use std::fmt::Display;

/// How a SASL login proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mechanism {
    /// The password itself is sent (RFC 4616).
    Plain,
    /// Only the knowledge of the password is proven.
    Scram(Hash),
}

impl Mechanism {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::Scram(hash) if hash == Hash::SHA_256 => "SCRAM-SHA-256",
            Mechanism::Scram(_) => "SCRAM-SHA-512",
        }
    }
}

/// Who logs in.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub(crate) mechanism: Mechanism,
    pub(crate) user: String,
    pub(crate) password: Secret,
}

/// How connections are protected. The default is not at all: `security.protocol=PLAINTEXT`.
#[derive(Debug, Clone, Default)]
pub struct Security {
    pub(crate) tls: Option<Tls>,
    pub(crate) sasl: Option<Credentials>,
}

/// A key whose value cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct InvalidSecurity {
    /// The key.
    pub key: &'static str,
    /// What is wrong and what to do. Never shows a password.
    pub reason: String,
}

impl InvalidSecurity {
    fn new(key: &'static str, reason: impl Display) -> InvalidSecurity {
        InvalidSecurity { key, reason: reason.to_string() }
    }
}

/// Keys that are read and have an effect, or are refused with a reason.
pub const KEYS: &[&str] = &[
    "sasl.client.callback.handler.class",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.mechanism",
    "security.protocol",
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.engine.factory.class",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
];

/// Keys of Kafka's clients without an effect here: they tune Java's own machinery, or logins of other mechanisms.
pub const KEYS_WITHOUT_EFFECT: &[&str] = &[
    "security.providers",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
];

/// Java classes, which can be neither loaded nor left out.
const CLASSES: [&str; 4] = [
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "ssl.engine.factory.class",
];

const LOGIN_MODULES: [&str; 2] = [
    "org.apache.kafka.common.security.plain.PlainLoginModule",
    "org.apache.kafka.common.security.scram.ScramLoginModule",
];

impl Security {
    /// Reads the keys of [`KEYS`], and the files that they name. `value` gives the value of a key, if it has one.
    ///
    /// # Errors
    /// A value that cannot be used, or a file that cannot be read. Nothing that was asked for is left out in silence.
    pub fn read<'a>(value: impl Fn(&str) -> Option<&'a str>) -> Result<Security, InvalidSecurity> {
        let value = |key: &str| value(key).map(str::trim);
        let protocol = value("security.protocol").unwrap_or("PLAINTEXT");
        let (has_tls, has_sasl) = match protocol.to_ascii_uppercase().as_str() {
            "PLAINTEXT" => (false, false),
            "SSL" => (true, false),
            "SASL_PLAINTEXT" => (false, true),
            "SASL_SSL" => (true, true),
            _ => {
                let reason = format!(
                    "invalid {protocol:?}: write PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"
                );
                return Err(InvalidSecurity::new("security.protocol", reason));
            }
        };
        let is_used = |key: &str| if key.starts_with("ssl.") { has_tls } else { has_sasl };
        let is_said = |key: &str| is_used(key) && value(key).is_some_and(|text| !text.is_empty());
        if let Some(key) = CLASSES.into_iter().find(|key| is_said(key)) {
            return Err(InvalidSecurity::new(key, "a Java class cannot be loaded here; remove it"));
        }
        Ok(Security {
            tls: has_tls.then(|| Tls::read(&value)).transpose()?,
            sasl: has_sasl.then(|| Credentials::read(&value)).transpose()?,
        })
    }

    /// The value of `security.protocol` that this is.
    pub fn protocol(&self) -> &'static str {
        match (&self.tls, &self.sasl) {
            (None, None) => "PLAINTEXT",
            (Some(_), None) => "SSL",
            (None, Some(_)) => "SASL_PLAINTEXT",
            (Some(_), Some(_)) => "SASL_SSL",
        }
    }
}

impl Credentials {
    fn read<'a>(value: &impl Fn(&str) -> Option<&'a str>) -> Result<Credentials, InvalidSecurity> {
        let mechanism = match value("sasl.mechanism").unwrap_or("GSSAPI") {
            "PLAIN" => Mechanism::Plain,
            "SCRAM-SHA-256" => Mechanism::Scram(Hash::SHA_256),
            "SCRAM-SHA-512" => Mechanism::Scram(Hash::SHA_512),
            other => {
                let reason = format!(
                    "{other} is not spoken here (without a value it is GSSAPI): use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"
                );
                return Err(InvalidSecurity::new("sasl.mechanism", reason));
            }
        };
        let invalid = |reason: &dyn Display| InvalidSecurity::new("sasl.jaas.config", reason);
        let text = value("sasl.jaas.config").unwrap_or_default();
        let login = jaas::parse(text).map_err(|error| invalid(&error))?;
        if !LOGIN_MODULES.contains(&login.module.as_str()) {
            let [plain, scram] = LOGIN_MODULES;
            return Err(invalid(&format!("the login module must be {plain} or {scram}")));
        }
        let option = |name: &str| login.options.get(name);
        if option("tokenauth").is_some_and(|said| said.reveal().eq_ignore_ascii_case("true")) {
            return Err(invalid(&"delegation tokens (tokenauth) are not spoken here"));
        }
        let needed = |name: &str| {
            let found = option(name).filter(|text| !text.reveal().is_empty());
            found.ok_or_else(|| invalid(&format!("the option {name} is missing")))
        };
        let (user, password) = (needed("username")?, needed("password")?);
        let credentials =
            Credentials { mechanism, user: user.reveal().to_owned(), password: password.clone() };
        credentials.check().map_err(|reason| invalid(&reason))?;
        Ok(credentials)
    }

    /// Refuses at once what no login could be made with.
    fn check(&self) -> Result<(), String> {
        match self.mechanism {
            Mechanism::Plain
                if self.user.contains('\0') || self.password.reveal().contains('\0') =>
            {
                Err("PLAIN cannot carry a zero byte".to_owned())
            }
            Mechanism::Plain => Ok(()),
            Mechanism::Scram(hash) => {
                let opened = scram::Opening::new(hash, &self.user, &self.password);
                opened.map(|_| ()).map_err(|error| error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests;
