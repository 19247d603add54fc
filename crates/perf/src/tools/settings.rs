//! Typed reading of client properties: bounds, defaults, and errors that name key and value. Which
//! keys there are is in `producer_settings` and `consumer_settings`.

use super::console::Console;
use super::failure::ToolError;
use super::properties::Properties;
use client::security::KEYS_WITHOUT_EFFECT;
use client::{ClusterConfig, ConnectionConfig, Security};
use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Properties that are being read. Some are passwords: `Debug` shows their names only.
#[derive(Clone)]
pub struct Settings(Properties);

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Keys of both clients that mean nothing to ours: what they tune is not there, or the answer is
/// always the same.
const WITHOUT_EFFECT: &[&str] = &[
    "client.dns.lookup",
    "config.providers",
    "connections.max.idle.ms",
    "enable.metrics.push",
    "interceptor.classes",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "socket.connection.setup.timeout.max.ms",
];

/// Keys of both clients that are read here.
const COMMON: &[&str] = &[
    "bootstrap.servers",
    "client.id",
    "metadata.max.age.ms",
    "receive.buffer.bytes",
    "request.timeout.ms",
    "retry.backoff.ms",
    "security.protocol",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.ms",
];

fn invalid(key: &str, value: impl Display, reason: impl Display) -> ToolError {
    ToolError::failed(format!("invalid value {value} for configuration {key}: {reason}"))
}

impl Settings {
    /// These properties.
    pub fn new(properties: Properties) -> Settings {
        Settings(properties)
    }

    /// A value as text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|value| value.trim())
    }

    /// A whole number within a range.
    pub fn number<T>(&self, key: &str, range: RangeInclusive<T>) -> Result<Option<T>, ToolError>
    where
        T: FromStr + PartialOrd + Display,
    {
        let Some(text) = self.text(key) else { return Ok(None) };
        let number: T = text.parse().map_err(|_| invalid(key, text, "not a whole number"))?;
        if range.contains(&number) {
            return Ok(Some(number));
        }
        let reason = format!("it is not between {} and {}", range.start(), range.end());
        Err(invalid(key, text, reason))
    }

    /// `true` or `false`.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, ToolError> {
        let Some(text) = self.text(key) else { return Ok(None) };
        match text.to_ascii_lowercase().as_str() {
            "true" => Ok(Some(true)),
            "false" => Ok(Some(false)),
            _ => Err(invalid(key, text, "write true or false")),
        }
    }

    /// A time in milliseconds; at least `least_ms`.
    pub fn millis(&self, key: &str, least_ms: u64) -> Result<Option<Duration>, ToolError> {
        let number = self.number(key, least_ms..=i64::MAX as u64)?;
        // Longer than 24 days is for ever, and must fit when it is added to a time or sent to a broker.
        Ok(number.map(|ms| Duration::from_millis(ms.min(i32::MAX as u64))))
    }

    /// One of some words.
    pub fn one_of<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Result<Option<T>, ToolError> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let found = words.iter().find(|(word, _)| *word == text);
        let all = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        let found = found.ok_or_else(|| invalid(key, text, format!("write one of {}", all())));
        found.map(|(_, value)| Some(*value))
    }

    /// An error about a key that has a value.
    pub fn refuse(&self, key: &str, reason: impl Display) -> ToolError {
        invalid(key, self.text(key).unwrap_or_default(), reason)
    }

    /// Warns of keys that no client of Kafka's knows.
    pub fn check(&self, console: &Console, known: &[&[&str]]) -> Result<(), ToolError> {
        let is_known = |key: &str| {
            let lists = known.iter().chain([&WITHOUT_EFFECT, &COMMON, &KEYS_WITHOUT_EFFECT]);
            let listed = lists.copied().flatten().any(|known| *known == key);
            listed || key.starts_with("sasl.") || key.starts_with("ssl.")
        };
        let unknown: Vec<&str> =
            self.0.keys().map(String::as_str).filter(|key| !is_known(key)).collect();
        if !unknown.is_empty() {
            let keys = unknown.join(", ");
            console.notice(format_args!(
                "WARN These configurations '[{keys}]' were supplied but are not used yet."
            ));
        }
        Ok(())
    }

    /// How the cluster is reached.
    pub fn cluster(&self) -> Result<ClusterConfig, ToolError> {
        let servers = self.text("bootstrap.servers").unwrap_or_default();
        let mut config = ClusterConfig::new(servers);
        if config.bootstrap.is_empty() {
            return Err(invalid("bootstrap.servers", servers, "no server is named"));
        }
        for address in &mut config.bootstrap {
            // Kafka's clients take the listener's protocol before it and do not look at it.
            if let Some((_protocol, rest)) = address.split_once("://") {
                *address = rest.to_owned();
            }
        }
        let is_address = |text: &String| {
            text.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
            })
        };
        if let Some(wrong) = config.bootstrap.iter().find(|text| !is_address(text)) {
            return Err(invalid("bootstrap.servers", wrong, "write host:port"));
        }
        config.allow_auto_create = true;
        if let Some(age) = self.millis("metadata.max.age.ms", 0)? {
            config.metadata_age_max = age;
        }
        if let Some(backoff) = self.millis("retry.backoff.ms", 0)? {
            config.retry_backoff = backoff;
        }
        // How long a producer, and a consumer, may wait for the cluster to answer at all.
        for key in ["max.block.ms", "default.api.timeout.ms"] {
            if let Some(timeout) = self.millis(key, 0)? {
                config.call_timeout = timeout;
            }
        }
        self.connection(&mut config.connection)?;
        Ok(config)
    }

    fn connection(&self, connection: &mut ConnectionConfig) -> Result<(), ToolError> {
        if let Some(id) = self.text("client.id") {
            connection.client_id = id.to_owned();
        }
        if let Some(timeout) = self.millis("request.timeout.ms", 1)? {
            connection.request_timeout = timeout;
        }
        if let Some(timeout) = self.millis("socket.connection.setup.timeout.ms", 1)? {
            connection.connect_timeout = timeout;
        }
        // -1 is the system's own size, and 0 makes no sense to it.
        let size = |key| self.number(key, -1..=i32::MAX);
        let asked = |size: Option<i32>| {
            size.and_then(|size| u32::try_from(size).ok()).filter(|size| *size > 0)
        };
        let security = Security::read(|key| self.text(key));
        // Names the key and never shows its value, which may be a password.
        connection.security = security
            .map_err(|error| ToolError::failed(format!("invalid configuration {error}")))?;
        connection.receive_buffer_bytes = asked(size("receive.buffer.bytes")?);
        connection.send_buffer_bytes = asked(size("send.buffer.bytes")?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Recorded;
    use super::*;

    fn settings(list: &[(&str, &str)]) -> Settings {
        Settings::new(list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn errors_name_key_and_value() {
        let settings = settings(&[("batch.size", "many"), ("retries", "-1"), ("acks", "2")]);
        let errors = [
            settings.number("batch.size", 0..=i32::MAX).unwrap_err(),
            settings.number("retries", 0..=i32::MAX).unwrap_err(),
            settings.one_of("acks", &[("all", -1), ("1", 1)]).unwrap_err(),
            settings.flag("acks").unwrap_err(),
        ];
        let expected = [
            "invalid value many for configuration batch.size: not a whole number",
            "invalid value -1 for configuration retries: it is not between 0 and 2147483647",
            "invalid value 2 for configuration acks: write one of all, 1",
            "invalid value 2 for configuration acks: write true or false",
        ];
        assert_eq!(errors.map(|e| e.to_string()), expected);
    }

    #[test]
    fn connections_are_as_the_properties_say() {
        let config = settings(&[
            ("bootstrap.servers", "a:1, b:2"),
            ("client.id", "mine"),
            ("receive.buffer.bytes", "65536"),
            ("send.buffer.bytes", "-1"),
            ("request.timeout.ms", "7"),
        ]);
        let config = config.cluster().unwrap();
        assert_eq!(config.bootstrap, ["a:1", "b:2"]);
        let connection = config.connection;
        assert_eq!(connection.client_id, "mine");
        assert_eq!(connection.receive_buffer_bytes, Some(65_536));
        assert_eq!(connection.send_buffer_bytes, None);
        assert_eq!(connection.request_timeout, Duration::from_millis(7));
        assert!(settings(&[("bootstrap.servers", " ,")]).cluster().is_err());
        for wrong in ["a", "a:", ":9092", "a:1,b", "a:x", "a:70000", "a:0"] {
            let error = settings(&[("bootstrap.servers", wrong)]).cluster().unwrap_err();
            assert!(error.to_string().contains("write host:port"), "{wrong}: {error}");
        }
        let right = settings(&[("bootstrap.servers", "[::1]:9092,PLAINTEXT://b:2")]);
        assert_eq!(right.cluster().unwrap().bootstrap, ["[::1]:9092", "b:2"]);
    }

    #[test]
    fn only_keys_that_nobody_knows_are_warned_of() {
        let recorded = Recorded::default();
        let given = settings(&[
            ("bogus.key", "1"),
            ("acks", "1"),
            ("metric.reporters", ""),
            ("ssl.protocol", "x"),
            ("security.protocol", "PLAINTEXT"),
            ("wrong", ""),
        ]);
        given.check(&recorded.console(), &[&["acks"]]).unwrap();
        let expected =
            "WARN These configurations '[bogus.key, wrong]' were supplied but are not used yet.\n";
        assert_eq!(recorded.notices(), expected);
    }

    #[test]
    fn what_protects_a_connection_is_read_and_never_shown() {
        let login = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"alice\" \
                     password=\"opensesame\";";
        let mut list = vec![
            ("bootstrap.servers", "a:1"),
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.jaas.config", login),
        ];
        let given = settings(&list);
        let security = given.cluster().unwrap().connection.security;
        assert_eq!(security.protocol(), "SASL_PLAINTEXT");
        let shown = format!("{given:?} {security:?}");
        assert!(shown.contains("sasl.jaas.config") && !shown.contains("opensesame"), "{shown}");
        list[2].1 = "GSSAPI";
        let error = settings(&list).cluster().unwrap_err().to_string();
        assert!(error.contains("sasl.mechanism: GSSAPI is not spoken"), "{error}");
    }
}
