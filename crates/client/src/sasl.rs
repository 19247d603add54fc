//! Logging in on a connection: SaslHandshake 1, SaslAuthenticate 0 to 2, and again before the broker ends the session
//! (KIP-43, KIP-152, KIP-368). Who logs in how is in [`crate::security`].

use crate::connection::{Shared, exchange_ahead};
use crate::error::ClientError;
use crate::security::Credentials;
use crate::security::Mechanism;
use crate::security::scram::{Opening, ScramError};
use crate::versions::ApiVersions;
use bytes::Bytes;
use model::ErrorCode;
use std::sync::{Arc, Weak};
use std::time::Duration;
use wire::{
    ApiKey, Request, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
};

/// Version 0 has no SaslAuthenticate behind it, but bare tokens.
const HANDSHAKE_VERSION: i16 = 1;
/// Brokers refuse to hear of another login sooner after the last one.
const SESSION_LEAST: Duration = Duration::from_millis(1100);
/// Of a broker's own words at most so many characters are shown.
const WORDS_MAX: usize = 200;

/// Logs in. Gives how long the broker lets the session live, if it has a limit.
///
/// # Errors
/// [`ClientError::NotAdmitted`] if the broker refuses, or cannot prove who it is: another attempt would end alike. Other
/// errors are of the connection.
pub(crate) async fn log_in(
    shared: &Arc<Shared>,
    versions: &ApiVersions,
    credentials: &Credentials,
) -> Result<Option<Duration>, ClientError> {
    let login = Login { shared, versions, mechanism: credentials.mechanism.name() };
    login.agree().await?;
    let last = match credentials.mechanism {
        Mechanism::Plain => {
            let (user, password) = (&credentials.user, credentials.password.reveal());
            login.say(format!("\0{user}\0{password}")).await?
        }
        Mechanism::Scram(hash) => {
            let failed = |error: ScramError| login.refused(error.to_string());
            let opening = Opening::new(hash, &credentials.user, &credentials.password);
            let opening = opening.map_err(failed)?;
            let challenge = login.say(opening.message()).await?.auth_bytes;
            let challenge = opening.challenged(&challenge).map_err(failed)?;
            // Thousands of rounds of a hash, and up to a million.
            let proving = tokio::task::spawn_blocking(move || challenge.prove());
            let (message, proof) = proving.await.expect("computing a proof does not panic");
            let last = login.say(message).await?;
            proof.verify(&last.auth_bytes).map_err(failed)?;
            last
        }
    };
    let lifetime = u64::try_from(last.session_lifetime_ms).ok().filter(|ms| *ms > 0);
    Ok(lifetime.map(Duration::from_millis))
}

struct Login<'a> {
    shared: &'a Arc<Shared>,
    versions: &'a ApiVersions,
    mechanism: &'static str,
}

impl Login<'_> {
    fn refused(&self, reason: String) -> ClientError {
        let reason = format!("{} login failed: {reason}", self.mechanism);
        ClientError::NotAdmitted { peer: self.shared.peer().to_owned(), reason }
    }

    async fn ask<R: Request>(&self, request: &R, version: i16) -> Result<R::Response, ClientError> {
        exchange_ahead(self.shared, request, version).await
    }

    fn version(&self, api: ApiKey, limit: i16) -> Result<i16, ClientError> {
        let found = self.versions.newest_up_to(api, limit);
        let none = || {
            self.refused(format!(
                "it serves no {api}; use security.protocol=PLAINTEXT or SSL, or a port that logs in"
            ))
        };
        found.ok_or_else(none)
    }

    /// Agrees on the mechanism.
    async fn agree(&self) -> Result<(), ClientError> {
        let version = self.version(ApiKey::SaslHandshake, HANDSHAKE_VERSION)?;
        if version < HANDSHAKE_VERSION {
            return Err(
                self.refused("its SaslHandshake is older than version 1 (Kafka 1.0)".to_owned())
            );
        }
        let request = SaslHandshakeRequest { mechanism: self.mechanism.to_owned() };
        let response = self.ask(&request, version).await?;
        let code = response.error();
        match code {
            ErrorCode::None => Ok(()),
            ErrorCode::UnsupportedSaslMechanism => {
                let served = harmless(&response.mechanisms.join(", "));
                Err(self.refused(format!("it offers {served} only; change sasl.mechanism")))
            }
            ErrorCode::IllegalSaslState => Err(self.refused(
                "its port has no login; write security.protocol=PLAINTEXT or SSL, or take the port that does"
                    .to_owned(),
            )),
            code => Err(self.failed(code, None)),
        }
    }

    /// Sends a message of the mechanism and gives the answer.
    async fn say(&self, message: String) -> Result<SaslAuthenticateResponse, ClientError> {
        let version = self.version(ApiKey::SaslAuthenticate, i16::MAX)?;
        let request = SaslAuthenticateRequest { auth_bytes: Bytes::from(message) };
        let response = self.ask(&request, version).await?;
        match response.error() {
            ErrorCode::None => Ok(response),
            code => Err(self.failed(code, response.error_message.as_deref())),
        }
    }

    fn failed(&self, code: ErrorCode, message: Option<&str>) -> ClientError {
        let words = message.map(harmless).filter(|words| !words.is_empty());
        let words = words.unwrap_or_else(|| code.to_string());
        match code {
            code if code.is_retriable() => ClientError::refused("login", code),
            ErrorCode::SaslAuthenticationFailed => {
                self.refused(format!("{words}; look at user, password and mechanism in sasl.jaas.config and sasl.mechanism"))
            }
            _ => self.refused(words),
        }
    }
}

/// A broker's words without what a terminal would obey, and not many of them.
fn harmless(words: &str) -> String {
    words.chars().filter(|c| !c.is_control()).take(WORDS_MAX).collect()
}

/// After how long to log in again: between 85 % and 95 % of the session, as Java's clients do, so that clients do not come all
/// at once, and not sooner than brokers listen.
fn pause(lifetime: Duration, chance: f64) -> Duration {
    lifetime.mul_f64(0.85 + 0.1 * chance).max(SESSION_LEAST)
}

/// Logs in again and again, before each session ends; requests wait meanwhile. Ends with the connection, and closes it
/// if the broker refuses.
pub(crate) async fn stay_logged_in(
    connection: Weak<Shared>,
    versions: ApiVersions,
    credentials: Credentials,
    mut lifetime: Duration,
) {
    loop {
        tokio::time::sleep(pause(lifetime, fastrand::f64())).await;
        let Some(shared) = connection.upgrade() else { return };
        shared.hold();
        let limit = shared.config().connect_timeout;
        let logged_in = log_in(&shared, &versions, &credentials);
        let late = || ClientError::TimedOut {
            what: format!("logging in again at {}", shared.peer()),
            after_ms: limit.as_millis() as u64,
        };
        let logged_in = tokio::time::timeout(limit, logged_in).await;
        match logged_in.unwrap_or_else(|_| Err(late())) {
            Ok(next) => {
                shared.resume();
                let Some(next) = next else { return };
                lifetime = next;
            }
            Err(error) => return shared.close(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_renewed_before_it_ends_and_not_too_often() {
        let hour = Duration::from_secs(3600);
        assert_eq!(pause(hour, 0.0), Duration::from_secs(3060));
        assert_eq!(pause(hour, 1.0), Duration::from_secs(3420));
        assert_eq!(pause(Duration::from_millis(1), 0.5), SESSION_LEAST);
        assert!(pause(Duration::from_millis(u64::MAX), 1.0) > hour);
    }

    #[test]
    fn words_of_brokers_are_harmless_and_few() {
        assert_eq!(harmless("no\u{1b}[2J\r\n"), "no[2J");
        assert_eq!(harmless(&"x".repeat(1000)).len(), WORDS_MAX);
    }
}
