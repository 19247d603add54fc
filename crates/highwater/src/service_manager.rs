//! Messages to the service manager that started this process, by the protocol of sd_notify(3): readiness, a status line, and
//! signs of life for its watchdog. Without `NOTIFY_SOCKET` in the environment nothing is sent.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use serving::health::broker::BrokerHealth;
use tracing::warn;

/// Interval of messages while the broker starts, and the largest interval while it serves.
const INTERVAL: Duration = Duration::from_secs(5);
/// Time by which each message of a start or a stop moves the manager's time-out.
const EXTENSION: Duration = Duration::from_secs(60);

/// The service manager's socket.
pub struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
    /// Interval of signs of life.
    interval: Duration,
}

impl ServiceManager {
    /// The service manager that the environment names, if any.
    pub fn from_environment() -> Option<ServiceManager> {
        let name = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty())?;
        let opened = address_of(&name)
            .and_then(|address| UnixDatagram::unbound().map(|socket| (address, socket)));
        match opened {
            Ok((address, socket)) => {
                let interval = watchdog_interval(
                    env::var("WATCHDOG_USEC").ok().as_deref(),
                    env::var("WATCHDOG_PID").ok().as_deref(),
                    std::process::id(),
                );
                Some(ServiceManager { socket, address, interval })
            }
            Err(cause) => {
                warn!(%cause, socket = %name.display(), "cannot notify the service manager");
                None
            }
        }
    }

    fn send(&self, message: &str) {
        if let Err(cause) = self.socket.send_to_addr(message.as_bytes(), &self.address) {
            warn!(%cause, "cannot notify the service manager");
        }
    }

    /// Moves the time-out of the start again and again, so that a long recovery is not ended.
    pub async fn report_start(&self) -> std::convert::Infallible {
        loop {
            let extension = EXTENSION.as_micros();
            self.send(&format!("STATUS=recovering logs\nEXTEND_TIMEOUT_USEC={extension}"));
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Reports that the broker serves, then its health and signs of life. A broker whose threads do not run sends no signs of
    /// life: the manager restarts it. This task runs on the control thread, so a control thread that is stuck sends none either.
    pub async fn report_service(
        &self,
        address: &str,
        health: impl Fn() -> BrokerHealth,
    ) -> std::convert::Infallible {
        self.send("READY=1");
        loop {
            self.send(&service_message(address, &health()));
            tokio::time::sleep(self.interval).await;
        }
    }

    /// Reports that the broker stops.
    pub fn report_stop(&self) {
        let extension = EXTENSION.as_micros();
        self.send(&format!("STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC={extension}"));
    }
}

/// Address of a socket: a path, or behind `@` a name of Linux's abstract namespace.
fn address_of(name: &OsStr) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = name.as_encoded_bytes().strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt;

        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(name)
}

/// Half of the watchdog's time-out, at most [`INTERVAL`]. A time-out for another process does not count.
fn watchdog_interval(micros: Option<&str>, pid: Option<&str>, own: u32) -> Duration {
    let is_own = pid.is_none_or(|pid| pid.parse() == Ok(own));
    let micros = micros.filter(|_| is_own).and_then(|micros| micros.parse().ok());
    let half = micros.map_or(INTERVAL, |micros: u64| Duration::from_micros(micros / 2));
    half.clamp(Duration::from_millis(10), INTERVAL)
}

/// Status line, and a sign of life unless threads are stalled.
fn service_message(address: &str, health: &BrokerHealth) -> String {
    let reasons: Vec<String> =
        health.reasons().iter().map(|reason| reason.detail.replace('\n', " ")).collect();
    let status = match reasons.is_empty() {
        true => format!("STATUS=serving {address}"),
        false => format!("STATUS=serving {address}, {}: {}", health.status(), reasons.join("; ")),
    };
    match health.livez().is_ok {
        true => format!("{status}\nWATCHDOG=1"),
        false => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serving::health::broker::BrokerFacts;

    #[test]
    fn signs_of_life_come_twice_within_the_time_out_of_this_process() {
        let micros = Some("3000000");
        assert_eq!(watchdog_interval(micros, Some("7"), 7), Duration::from_millis(1_500));
        assert_eq!(watchdog_interval(micros, None, 7), Duration::from_millis(1_500));
        assert_eq!(watchdog_interval(micros, Some("8"), 7), INTERVAL);
        assert_eq!(watchdog_interval(Some("600000000"), None, 7), INTERVAL);
        assert_eq!(watchdog_interval(Some("0"), None, 7), Duration::from_millis(10));
        assert_eq!(watchdog_interval(None, None, 7), INTERVAL);
    }

    #[test]
    fn stalled_threads_send_no_sign_of_life() {
        let well = BrokerHealth::of(&BrokerFacts::well());
        assert_eq!(service_message("host:1", &well), "STATUS=serving host:1\nWATCHDOG=1");
        let facts = BrokerFacts { stalled_threads: vec!["data"], ..BrokerFacts::well() };
        let message = service_message("host:1", &BrokerHealth::of(&facts));
        assert!(message.starts_with("STATUS=serving host:1, unavailable: "), "{message}");
        assert!(!message.contains("WATCHDOG"), "{message}");
    }
}
