//! Numbers with units, as people read them. What is not known is a dash.

use jiff::Timestamp;
use serving::lag::arrivals::Behind;

/// What is not known.
pub(crate) const UNKNOWN: &str = "–";

/// 1234567 → 1,234,567.
pub(crate) fn count(number: impl Into<i128>) -> String {
    let number = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3 + 1);
    if number < 0 {
        out.push('−');
    }
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// As [`count`], but large numbers to three digits: for what is kept as a logarithm.
pub(crate) fn about(number: u64) -> String {
    let unit = 10u64.saturating_pow(number.checked_ilog10().unwrap_or(0).saturating_sub(2));
    let sign = if unit > 1 { "≈ " } else { "" };
    format!("{sign}{}", count(number.saturating_add(unit / 2) / unit * unit))
}

/// As [`count`], or a dash.
pub(crate) fn maybe(number: Option<impl Into<i128>>) -> String {
    number.map_or_else(|| UNKNOWN.to_owned(), count)
}

/// Bytes in the largest unit that leaves a number above one.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut scaled, mut unit) = (bytes as f64 / 1024.0, 0);
    while scaled >= 1023.95 && unit + 1 < UNITS.len() {
        (scaled, unit) = (scaled / 1024.0, unit + 1);
    }
    format!("{scaled:.1} {}", UNITS[unit])
}

/// As [`bytes`], or a dash.
pub(crate) fn maybe_bytes(known: Option<u64>) -> String {
    known.map_or_else(|| UNKNOWN.to_owned(), bytes)
}

/// Records a second.
pub(crate) fn rate(per_second: Option<f64>) -> String {
    match per_second {
        None => UNKNOWN.to_owned(),
        Some(0.0) => "0/s".to_owned(),
        Some(rate) if rate < 100.0 => format!("{rate:.1}/s"),
        Some(rate) => format!("{}/s", count(rate.round() as i64)),
    }
}

/// A time that passed, in its two largest units.
pub(crate) fn duration(ms: i64) -> String {
    let s = ms.max(0) / 1000;
    match s {
        0 if ms > 0 => "< 1 s".to_owned(),
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86_400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        _ => format!("{} d {} h", s / 86_400, s % 86_400 / 3600),
    }
}

/// How long a group is behind.
pub(crate) fn behind(behind: Option<Behind>) -> String {
    match behind {
        None => UNKNOWN.to_owned(),
        Some(Behind { ms, at_least: true }) => format!("≥ {}", duration(ms)),
        Some(Behind { ms, at_least: false }) => duration(ms),
    }
}

/// A time as RFC 3339 in UTC, to the millisecond.
pub(crate) fn time(ms: i64) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(time) if ms >= 0 => format!("{time:.3}"),
        _ => UNKNOWN.to_owned(),
    }
}

/// The time of day of a moment, in UTC.
pub(crate) fn time_of_day(ms: i64) -> String {
    Timestamp::from_millisecond(ms)
        .map_or_else(|_| UNKNOWN.to_owned(), |time| time.strftime("%H:%M:%S UTC").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators_and_units() {
        assert_eq!(
            [count(0), count(999), count(1000), count(-1_234_567)],
            ["0", "999", "1,000", "−1,234,567"]
        );
        assert_eq!(
            [about(0), about(999), about(3_026), about(3_025_499)],
            ["0", "999", "≈ 3,030", "≈ 3,030,000"]
        );
        assert_eq!(about(u64::MAX), "≈ 18,400,000,000,000,000,000");
        assert_eq!(maybe(None::<i64>), "–");
        assert_eq!(
            [bytes(0), bytes(1023), bytes(1536), bytes(1 << 20)],
            ["0 B", "1023 B", "1.5 KiB", "1.0 MiB"]
        );
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
        assert_eq!(bytes(1024 * 1024 - 1), "1.0 MiB");
        assert_eq!(
            [rate(None), rate(Some(0.0)), rate(Some(1.25)), rate(Some(12_345.6))],
            ["–", "0/s", "1.2/s", "12,346/s"]
        );
    }

    #[test]
    fn times_are_read_in_two_units() {
        assert_eq!(
            [duration(0), duration(1), duration(59_999), duration(61_000)],
            ["0 s", "< 1 s", "59 s", "1 min 1 s"]
        );
        assert_eq!([duration(3_600_000), duration(90_000_000)], ["1 h 0 min", "1 d 1 h"]);
        assert_eq!(behind(Some(Behind { ms: 5000, at_least: true })), "≥ 5 s");
        assert_eq!(time(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!([time(-1), time(i64::MAX), time_of_day(i64::MAX)], ["–"; 3]);
        assert_eq!(time_of_day(1_700_000_000_123), "22:13:20 UTC");
    }
}
