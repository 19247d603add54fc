//! Messages to the service manager that started this process, by the protocol of sd_notify(3): readiness, a status line, and
//! signs of life for its watchdog. Without `NOTIFY_SOCKET` in the environment nothing is sent.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use broker::HealthSource;
use serving::health::broker::BrokerHealth;
use tracing::warn;

/// Interval of messages while the broker starts, and the largest interval while it serves.
const INTERVAL: Duration = Duration::from_secs(5);
/// Time by which each message of a start or a stop moves the manager's time-out.
const EXTENSION: Duration = Duration::from_secs(60);
/// Largest status, in bytes without its last words.
const STATUS_BYTES_MAX: usize = 1024;

/// The service manager's socket.
pub struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
    /// Interval of signs of life.
    interval: Duration,
}

impl ServiceManager {
    /// The service manager that the environment names, if any.
    pub fn from_environment() -> Option<Arc<ServiceManager>> {
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
                Some(Arc::new(ServiceManager { socket, address, interval }))
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

    /// Reports that the broker serves, then its health and signs of life, on a thread of its own until the result is dropped.
    /// A broker whose threads do not run sends no signs of life: the manager restarts it. A thread that waits for a disk
    /// counts as running, as for `/livez`.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn report_service(
        self: &Arc<Self>,
        address: String,
        source: HealthSource,
    ) -> io::Result<ServiceReports> {
        let (ender, ended) = mpsc::channel();
        let manager = Arc::clone(self);
        let run = move || {
            manager.send("READY=1");
            loop {
                // A message of its own, sent before anything that may wait: the manager drops messages above 4 KiB.
                if source.is_live() {
                    manager.send("WATCHDOG=1");
                }
                source.health().iter().for_each(|it| manager.send(&status_message(&address, it)));
                if ended.recv_timeout(manager.interval) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("service".to_owned()).spawn(run)?;
        Ok(ServiceReports(ender))
    }

    /// Reports that the broker stops.
    pub fn report_stop(&self) {
        let extension = EXTENSION.as_micros();
        self.send(&format!("STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC={extension}"));
    }
}

/// The thread that reports to the service manager. It ends when this is dropped.
pub struct ServiceReports(#[expect(dead_code, reason = "dropped, it ends the thread")] Sender<()>);

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

/// The status line: the address, and the broker's health in at most [`STATUS_BYTES_MAX`] bytes.
fn status_message(address: &str, health: &BrokerHealth) -> String {
    let mut status = format!("STATUS=serving {address}");
    let reasons = health.reasons();
    if !reasons.is_empty() {
        status += &format!(", {}: ", health.status());
    }
    for (index, reason) in reasons.iter().enumerate() {
        let detail = reason.detail.replace('\n', " ");
        if status.len() + detail.len() > STATUS_BYTES_MAX {
            return status + &format!("… and {} more: see /healthz", reasons.len() - index);
        }
        status += &detail;
        status += if index + 1 < reasons.len() { "; " } else { "" };
    }
    status
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
    fn the_status_names_reasons_and_stays_short() {
        let well = BrokerHealth::of(&BrokerFacts::well());
        assert_eq!(status_message("host:1", &well), "STATUS=serving host:1");
        let facts = BrokerFacts { stalled_threads: vec!["data"], ..BrokerFacts::well() };
        let message = status_message("host:1", &BrokerHealth::of(&facts));
        assert!(message.starts_with("STATUS=serving host:1, unavailable: "), "{message}");
        let facts = BrokerFacts { stalled_threads: vec!["data"; 1_000], ..BrokerFacts::well() };
        let message = status_message("host:1", &BrokerHealth::of(&facts));
        assert!(message.len() < STATUS_BYTES_MAX + 64, "{} bytes", message.len());
        assert!(message.ends_with("more: see /healthz"), "{message}");
    }
}
