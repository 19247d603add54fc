//! Ctrl-C: the first ends what is being measured and keeps what was; the second ends the program. SIGTERM and SIGHUP (the
//! terminal was closed) are the same.

use std::fs;
use std::thread;

use perf::load::Stop;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::say::tell;

/// Exit code of a program that was interrupted, as shells have it.
const INTERRUPTED: i32 = 130;
/// Number of SIGHUP.
const HANGUP: u32 = 1;

/// A signal that Ctrl-C, SIGTERM or SIGHUP gives.
pub fn on_interrupt() -> Stop {
    let stop = Stop::default();
    let given = stop.clone();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let Ok(mut signals) = Signals::listen() else { return };
            signals.next().await;
            // First of all: there may be no terminal any more to say it on.
            given.stop();
            tell!("\nending; what was measured is kept (again to end at once)");
            signals.next().await;
            // Nothing is dropped any more: what would outlive us is seen to here.
            peer::process::kill_all();
            peer::scratch::remove_all();
            std::process::exit(INTERRUPTED);
        });
    });
    stop
}

/// The signals that end a program politely.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None if whoever started us wants it ignored, as `nohup` does.
    hangup: Option<Signal>,
}

impl Signals {
    fn listen() -> std::io::Result<Signals> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup = match is_ignored(&status, HANGUP) {
            true => None,
            false => Some(signal(SignalKind::hangup())?),
        };
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup,
        })
    }

    async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Whether the text of `/proc/PID/status` says that a signal is ignored.
fn is_ignored(status: &str, number: u32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (number - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_hangup_is_seen() {
        assert!(is_ignored("Name:\tx\nSigIgn:\t0000000000001001\n", HANGUP));
        assert!(!is_ignored("Name:\tx\nSigIgn:\t0000000000001000\n", HANGUP));
        assert!(!is_ignored("", HANGUP));
    }
}
