//! Dates and durations as people type them: `2026-11-22`, `2026-11-22T08:30:00+01:00`, `90s`, `1h30m`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// Milliseconds since 1970 now.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A duration of one or more numbers with their units: w, d, h, m, s, ms.
pub fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum_ms: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, behind) = rest.split_at(digits);
        let letters = behind.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, behind) = behind.split_at(letters);
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            _ => return None,
        };
        sum_ms = number.parse::<u64>().ok()?.checked_mul(unit_ms)?.checked_add(sum_ms)?;
        rest = behind;
    }
    (!text.is_empty()).then(|| Duration::from_millis(sum_ms))
}

/// A date with, if wanted, a time of day and a zone; without a zone it is UTC. In milliseconds since
/// 1970.
pub fn date_ms(text: &str) -> Option<i64> {
    let with_zone = text.parse::<Timestamp>().ok();
    let in_utc = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok();
    let moment = with_zone.or_else(|| in_utc().as_ref().map(Zoned::timestamp))?;
    Some(moment.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, ms) in [
            ("1h", 3_600_000),
            ("90s", 90_000),
            ("1h30m", 5_400_000),
            ("250ms", 250),
            ("2w", 1_209_600_000),
        ] {
            assert_eq!(duration(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "1", "h", "1y", "1h30", "-1h", "99999999999999999999d", "1.5h", "1é"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn dates_are_read_in_utc_or_their_zone() {
        for (text, ms) in [
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400_000),
            ("2026-11-22", 1_795_305_600_000),
            ("2026-11-22T08:30", 1_795_336_200_000),
            ("2026-11-22 08:30:15", 1_795_336_215_000),
            ("2026-11-22T08:30:15.25Z", 1_795_336_215_250),
            ("2026-11-22T08:30:15+01:00", 1_795_332_615_000),
            ("1969-12-31T23:59:59", -1000),
        ] {
            assert_eq!(date_ms(text), Some(ms), "{text}");
        }
        for text in ["", "yesterday", "2026-13-01", "2026-02-29", "2026-11-31", "2026-11-22T"] {
            assert_eq!(date_ms(text), None, "{text}");
        }
    }
}
