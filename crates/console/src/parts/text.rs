//! Text of strangers: names of topics and groups, keys and values. Markup is escaped where pages are written; here is what
//! markup does not cover: characters that are not seen, or that turn the order of the text around them.

use std::borrow::Cow;
use std::fmt::Write;

/// The text with every character that would not be seen as itself written as `\u{…}`.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(deceives) {
        return Cow::Borrowed(text);
    }
    escaped(text, |_| false).into()
}

/// As [`visible`], but lines stay lines.
pub(crate) fn visible_lines(text: &str) -> String {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if deceives(c) && !stays(c) {
            write!(out, "\\u{{{:x}}}", u32::from(c)).expect("a String takes every write");
        } else {
            out.push(c);
        }
    }
    out
}

/// Control characters, and those that direct, join, separate or hide.
fn deceives(c: char) -> bool {
    c.is_control()
        || matches!(
            u32::from(c),
            0xad | 0x34f | 0x61c | 0x115f | 0x1160 | 0x17b4 | 0x17b5 | 0x180b..=0x180f | 0x200b..=0x200f
                | 0x2028..=0x202e | 0x2060..=0x206f | 0x3164 | 0xfe00..=0xfe0f | 0xfeff | 0xffa0
                | 0xfff0..=0xfffb | 0xe0000..=0xe0fff
        )
}

/// A key or a value as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    /// `null`, `empty`, `json`, `text` or `hex`.
    pub(crate) form: &'static str,
    /// With lines; cut to a limit.
    pub(crate) text: String,
    /// Bytes that were cut off.
    pub(crate) cut_bytes: usize,
}

/// Bytes of a key or value that are shown.
pub(crate) const SHOWN_BYTES_MAX: usize = 4 * 1024;
/// Bytes in a line of hexadecimal digits.
const HEX_LINE: usize = 16;

/// How bytes are shown: JSON if they are an object or a list, text if they are UTF-8, else hexadecimal digits.
pub(crate) fn shown(bytes: Option<&[u8]>) -> Shown {
    let form = |form, text: String, cut_bytes| Shown { form, text, cut_bytes };
    let Some(bytes) = bytes else { return form("null", String::new(), 0) };
    if bytes.is_empty() {
        return form("empty", String::new(), 0);
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        let some = &bytes[..bytes.len().min(SHOWN_BYTES_MAX / 4)];
        return form("hex", hex(some), bytes.len() - some.len());
    };
    let is_json = text.trim_start().starts_with(['{', '[']) && text.len() <= SHOWN_BYTES_MAX;
    if is_json && serde_json::from_str::<serde_json::Value>(text).is_ok() {
        return form("json", visible_lines(text), 0);
    }
    let some = &text[..text.floor_char_boundary(SHOWN_BYTES_MAX)];
    form("text", visible_lines(some), text.len() - some.len())
}

fn hex(bytes: &[u8]) -> String {
    // Lines of one picture are of one width.
    let width = bytes.len().min(HEX_LINE) * 3 - 1;
    let line = |line: &[u8]| {
        let digits: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let text =
            line.iter().map(|byte| if (32..127).contains(byte) { char::from(*byte) } else { '·' });
        format!("{:<width$}  {}", digits.join(" "), text.collect::<String>())
    };
    bytes.chunks(HEX_LINE).map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn characters_that_deceive_are_seen() {
        assert_eq!(visible("plain-é-日本"), "plain-é-日本");
        assert_eq!(visible("a\u{202e}txt.exe"), "a\\u{202e}txt.exe");
        assert_eq!(visible("a\nb\0\u{200b}\u{7f}"), "a\\u{a}b\\u{0}\\u{200b}\\u{7f}");
        assert_eq!(visible_lines("a\nb\tc\r"), "a\nb\tc\\u{d}");
    }

    #[test]
    fn bytes_are_shown_in_the_form_that_they_have() {
        let of = |bytes: &[u8]| {
            let Shown { form, text, cut_bytes } = shown(Some(bytes));
            (form, text, cut_bytes)
        };
        assert_eq!(shown(None).form, "null");
        assert_eq!(of(b""), ("empty", String::new(), 0));
        assert_eq!(of(b"{\"a\": 1}"), ("json", "{\"a\": 1}".to_owned(), 0));
        assert_eq!(of(b"{\"a\": 1"), ("text", "{\"a\": 1".to_owned(), 0));
        assert_eq!(of(b"17"), ("text", "17".to_owned(), 0));
        assert_eq!(of(b"\xffA"), ("hex", "ff 41  ·A".to_owned(), 0));
        let (form, text, cut) = of("é".repeat(4000).as_bytes());
        assert_eq!((form, text.len(), cut), ("text", SHOWN_BYTES_MAX, 8000 - SHOWN_BYTES_MAX));
        let (form, _, cut) = of(&[0xff; 5000]);
        assert_eq!((form, cut), ("hex", 5000 - 1024));
    }

    proptest! {
        #[test]
        fn nothing_that_is_shown_deceives(bytes in prop::collection::vec(any::<u8>(), 0..300), text: String) {
            for shown in [shown(Some(&bytes)), shown(Some(text.as_bytes()))] {
                prop_assert!(!shown.text.chars().any(|c| deceives(c) && c != '\n' && c != '\t'));
            }
            prop_assert!(!visible(&text).chars().any(deceives));
        }
    }
}
