//! Brokers that are killed in turn and started again, again and again, while clients work.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::target::Target;

/// How long a broker that serves again is left alone, so that it is in sync before another one is killed: two that are away
/// at a time leave too few replicas, whoever wrote the brokers.
const REST: Duration = Duration::from_secs(5);

/// A length of time as it is typed: `10s`, `500ms`, or seconds without a unit.
pub fn duration(text: &str) -> Result<Duration> {
    let (number, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let number: u64 =
        number.parse().with_context(|| format!("invalid time {text}: such as 10s"))?;
    let time = match unit {
        "s" => Duration::from_secs(number),
        "ms" => Duration::from_millis(number),
        "m" => Duration::from_secs(60 * number),
        _ => anyhow::bail!("invalid unit {unit} of {text}: ms, s or m"),
    };
    ensure!(time > Duration::ZERO, "invalid time {text}: more than 0");
    Ok(time)
}

/// Kills one broker after the other, `every` so often or as soon as the one before has come back and rested, and starts it
/// again at once, until `end` is dropped or sent to. How many were killed.
pub fn keep_killing(target: &Target, every: Duration, end: &Receiver<()>) -> Result<u32> {
    let mut killed = 0;
    loop {
        let rest = match killed {
            0 => every,
            _ => REST.min(every),
        };
        let began = Instant::now();
        if is_over(end, rest) {
            return Ok(killed);
        }
        let index = killed as usize % target.brokers;
        target.kill(index)?;
        killed += 1;
        target.start_again(index).with_context(|| format!("kill {killed}"))?;
        if is_over(end, every.saturating_sub(began.elapsed())) {
            return Ok(killed);
        }
    }
}

/// Waits so long for the end.
fn is_over(end: &Receiver<()>, time: Duration) -> bool {
    !matches!(end.recv_timeout(time), Err(RecvTimeoutError::Timeout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_or_are_seconds() {
        for (text, wanted_ms) in [("10s", 10_000), ("250ms", 250), ("2m", 120_000), ("7", 7_000)] {
            assert_eq!(duration(text).unwrap(), Duration::from_millis(wanted_ms), "{text}");
        }
        for text in ["", "s", "10h", "-1s", "0s", "1.5s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_end_is_waited_for_and_heard() {
        let (sender, receiver) = std::sync::mpsc::channel();
        assert!(!is_over(&receiver, Duration::from_millis(1)));
        drop(sender);
        assert!(is_over(&receiver, Duration::from_secs(60)));
    }
}
