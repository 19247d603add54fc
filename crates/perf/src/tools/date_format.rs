//! Times as a pattern of Java's `SimpleDateFormat` says, in the local time zone.

use super::failure::ToolError;
use jiff::{Timestamp, Zoned, tz::TimeZone};
use std::fmt::Write as _;

/// The default of Kafka's consumer tool.
pub const DEFAULT: &str = "yyyy-MM-dd HH:mm:ss:SSS";

/// A pattern that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DateFormat {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(String),
    /// A letter, and how often it stands there.
    Field(char, usize),
}

/// The letters that stand for something here.
const LETTERS: &str = "GyMLdHhKkmsSEFuaDzZX";
/// And those that do in Java, by weeks that begin on another day in another country.
const WEEKS: &str = "YwW";

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

impl DateFormat {
    /// Reads a pattern: letters stand for fields, what is between single quotes for itself.
    pub fn new(pattern: &str) -> Result<DateFormat, ToolError> {
        let mut pieces = Vec::new();
        let mut rest = pattern;
        while let Some(first) = rest.chars().next() {
            let piece = match first {
                '\'' => {
                    let (text, behind) = quoted(&rest[1..], pattern)?;
                    rest = behind;
                    Piece::Literal(text)
                }
                letter if letter.is_ascii_alphabetic() => {
                    if !LETTERS.contains(letter) {
                        return Err(unknown(pattern, letter));
                    }
                    let count = rest.chars().take_while(|c| *c == letter).count();
                    rest = &rest[count..];
                    Piece::Field(letter, count)
                }
                other => {
                    rest = &rest[other.len_utf8()..];
                    Piece::Literal(other.to_string())
                }
            };
            pieces.push(piece);
        }
        Ok(DateFormat { pieces })
    }

    /// So many milliseconds after 1970, here.
    pub fn format(&self, epoch_ms: u64) -> String {
        self.format_in(epoch_ms, TimeZone::system())
    }

    fn format_in(&self, epoch_ms: u64, zone: TimeZone) -> String {
        let instant = Timestamp::from_millisecond(epoch_ms as i64).unwrap_or(Timestamp::UNIX_EPOCH);
        let time = instant.to_zoned(zone);
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => out += text,
                Piece::Field(letter, count) => field(&mut out, &time, *letter, *count),
            }
        }
        out
    }
}

fn unknown(pattern: &str, letter: char) -> ToolError {
    let reason = match letter {
        'Y' => "the year of a week is not known here; the year is 'y'",
        letter if WEEKS.contains(letter) => "weeks are not counted here",
        _ => "it stands for nothing",
    };
    ToolError::failed(format!("--date-format {pattern}: {letter:?}: {reason}"))
}

/// What is quoted, of which two quotes are one, and what stands behind.
fn quoted<'a>(rest: &'a str, pattern: &str) -> Result<(String, &'a str), ToolError> {
    if let Some(behind) = rest.strip_prefix('\'') {
        return Ok(("'".to_owned(), behind));
    }
    let mut text = String::new();
    let mut rest = rest;
    loop {
        let Some((piece, behind)) = rest.split_once('\'') else {
            return Err(ToolError::failed(format!("--date-format {pattern}: a quote is missing")));
        };
        text += piece;
        match behind.strip_prefix('\'') {
            Some(more) => {
                text.push('\'');
                rest = more;
            }
            None => return Ok((text, behind)),
        }
    }
}

fn field(out: &mut String, time: &Zoned, letter: char, count: usize) {
    let hour = i32::from(time.hour());
    let month = usize::from(time.month().unsigned_abs());
    let weekday = usize::from(time.weekday().to_monday_zero_offset().unsigned_abs());
    let number = match letter {
        'y' if count == 2 => i32::from(time.year()) % 100,
        'y' => i32::from(time.year()),
        'M' | 'L' if count >= 3 => return name(out, MONTHS[month - 1], count),
        'M' | 'L' => month as i32,
        'd' => i32::from(time.day()),
        'H' => hour,
        'k' => (hour + 23) % 24 + 1,
        'K' => hour % 12,
        'h' => (hour + 11) % 12 + 1,
        'm' => i32::from(time.minute()),
        's' => i32::from(time.second()),
        'S' => i32::from(time.millisecond()),
        'D' => i32::from(time.day_of_year()),
        // Which of its kind in the month: the third Sunday.
        'F' => (i32::from(time.day()) - 1) / 7 + 1,
        'u' => weekday as i32 + 1,
        'E' => return name(out, DAYS[weekday], count),
        'G' => return out.push_str("AD"),
        'a' => return out.push_str(if hour < 12 { "AM" } else { "PM" }),
        _ => return zone(out, time, letter, count),
    };
    let _ = write!(out, "{number:0count$}");
}

/// Whole from four letters on, else the first three.
fn name(out: &mut String, name: &str, count: usize) {
    out.push_str(if count >= 4 { name } else { &name[..3] });
}

fn zone(out: &mut String, time: &Zoned, letter: char, count: usize) {
    let seconds = time.offset().seconds();
    let sign = if seconds < 0 { '-' } else { '+' };
    let (hours, minutes) = (seconds.abs() / 3600, seconds.abs() / 60 % 60);
    let _ = match (letter, count) {
        ('z', _) => write!(out, "{}", time.strftime("%Z")),
        ('X', _) if seconds == 0 => write!(out, "Z"),
        ('X', 1) => write!(out, "{sign}{hours:02}"),
        ('X', 3) => write!(out, "{sign}{hours:02}:{minutes:02}"),
        _ => write!(out, "{sign}{hours:02}{minutes:02}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2018-11-18 14:05:09.042 in UTC, a Sunday.
    const TIME: u64 = 1_542_549_909_042;

    fn utc(pattern: &str) -> String {
        DateFormat::new(pattern).unwrap().format_in(TIME, TimeZone::UTC)
    }

    #[test]
    fn patterns_mean_what_they_mean_in_java() {
        let expected = [
            (DEFAULT, "2018-11-18 14:05:09:042"),
            ("yy/M/d h:m:s a", "18/11/18 2:5:9 PM"),
            ("EEE, d MMM yyyy HH:mm:ss Z", "Sun, 18 Nov 2018 14:05:09 +0000"),
            ("EEEE MMMM D u k K", "Sunday November 322 7 14 2"),
            ("LL LLL F", "11 Nov 3"),
            ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2018-11-18T14:05:09.042Z"),
            ("'it''s' yyyy ''", "it's 2018 '"),
        ];
        for (pattern, text) in expected {
            assert_eq!(utc(pattern), text, "{pattern}");
        }
    }

    #[test]
    fn times_are_local() {
        let zone = TimeZone::fixed(jiff::tz::offset(-3));
        let format = DateFormat::new("HH:mm Z XXX X").unwrap();
        assert_eq!(format.format_in(TIME, zone), "11:05 -0300 -03:00 -03");
    }

    #[test]
    fn what_stands_for_nothing_is_refused() {
        for (wrong, reason) in [
            ("yyyy-bb", "'b': it stands for nothing"),
            ("'open", "a quote is missing"),
            ("HH:mm P", "'P': it stands for nothing"),
            ("YYYY-MM-dd", "the year is 'y'"),
            ("yyyy ww", "weeks are not counted"),
        ] {
            let error = DateFormat::new(wrong).unwrap_err().to_string();
            assert!(error.contains(reason), "{wrong}: {error}");
        }
    }
}
