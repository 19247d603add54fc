//! Where in a partition a consumer starts or a group is moved to, as people write it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::moment;

/// A place in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The first record that is there.
    Start,
    /// Behind the last one.
    End,
    /// This offset.
    Offset(i64),
    /// This many records behind the start.
    AfterStart(i64),
    /// This many records before the end.
    BeforeEnd(i64),
    /// The first record with this timestamp or a later one, in milliseconds since 1970.
    Timestamp(i64),
    /// The first record that is not older than this, when the place is looked up.
    Ago(Duration),
}

/// The text is not a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoPlace(String);

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoPlace(text) = self;
        write!(
            f,
            "unknown position {text:?}; write start, end, an offset such as 47, +2 (after the \
             start), -3 (before the end), a date such as 2026-11-22 or 2026-11-22T08:30 (UTC), a \
             time ago such as -90s or -1h30m, or ts:1700000000000 (milliseconds since 1970)"
        )
    }
}

impl std::error::Error for NoPlace {}

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Place, NoPlace> {
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse::<i64>().ok().filter(|_| plain)
        };
        let place = match text {
            "start" | "beginning" | "earliest" => Some(Place::Start),
            "end" | "latest" => Some(Place::End),
            _ => match text.split_at_checked(1) {
                Some(("+", count)) => number(count).map(Place::AfterStart),
                Some(("-", count)) => number(count).map(Place::BeforeEnd).or_else(|| ago(count)),
                // As rpk has it, where the sign says that a time follows.
                Some(("@", time)) => at(time),
                _ => match text.strip_prefix("ts:") {
                    Some(ms) => number(ms).map(Place::Timestamp),
                    None => number(text)
                        .map(Place::Offset)
                        .or_else(|| moment::date_ms(text).map(Place::Timestamp)),
                },
            },
        };
        place.ok_or_else(|| NoPlace(text.to_owned()))
    }
}

fn ago(text: &str) -> Option<Place> {
    moment::duration(text).map(Place::Ago)
}

/// A date, milliseconds since 1970, or a time ago.
fn at(text: &str) -> Option<Place> {
    let ms = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let moment = ms.or_else(|| moment::date_ms(text)).map(Place::Timestamp);
    moment.or_else(|| ago(text.strip_prefix('-')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        for (text, place) in [
            ("start", Place::Start),
            ("end", Place::End),
            ("0", Place::Offset(0)),
            ("47", Place::Offset(47)),
            ("+2", Place::AfterStart(2)),
            ("-3", Place::BeforeEnd(3)),
            ("ts:1700000000000", Place::Timestamp(1_700_000_000_000)),
            ("2026-11-22", Place::Timestamp(1_795_305_600_000)),
            ("2026-11-22T08:30", Place::Timestamp(1_795_336_200_000)),
            ("-1h", Place::Ago(Duration::from_secs(3600))),
            ("@2026-11-22", Place::Timestamp(1_795_305_600_000)),
            ("@1700000000000", Place::Timestamp(1_700_000_000_000)),
            ("@-90s", Place::Ago(Duration::from_secs(90))),
        ] {
            assert_eq!(text.parse(), Ok(place), "{text}");
        }
    }

    #[test]
    fn what_is_no_place_is_answered_with_what_is_one() {
        for text in [
            "",
            "x",
            "+",
            "-",
            "--1",
            "+-1",
            "ts:",
            "ts:x",
            "1.5",
            "99999999999999999999",
            "é",
            "@",
            "@x",
            "@-",
            "-1x",
            "2026-13-01",
        ] {
            let error = text.parse::<Place>().unwrap_err().to_string();
            assert!(error.contains("write start, end"), "{text}: {error}");
        }
    }
}
