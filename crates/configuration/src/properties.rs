//! Reads `.properties` files as Java does: comments, continued lines, escapes, and `=`, `:` or a
//! space between key and value. Not a validator: keys and values are only texts here.
//!
//! One difference: bytes are read as UTF-8. Java reads every byte as Latin-1, so a path with an
//! umlaut has to be written in escapes there; that works here too. An entry with bytes that are not
//! UTF-8 is refused, for no guess of a folder's name is good enough to put data there.

use std::borrow::Cow;

/// One key and its value, as they stand in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    /// The key, without escapes.
    pub key: String,
    /// The value, without escapes.
    pub value: String,
    /// The line on which it begins, from 1.
    pub line: u32,
}

/// An entry that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The line on which the entry begins, from 1.
    pub line: u32,
    /// The key, as far as it can be read.
    pub key: String,
    /// Why.
    pub reason: &'static str,
}

const ESCAPE: &str = "\\u must be followed by four hexadecimal digits";
const NOT_TEXT: &str = "the entry is not UTF-8 text; save the file as UTF-8, or write \\uXXXX";
/// What stands in a decoded text for bytes that are not UTF-8.
const REPLACEMENT: char = '\u{FFFD}';

/// All entries in their order, and those that cannot be read; a key may stand several times.
pub fn parse(bytes: &[u8]) -> (Vec<Property>, Vec<Unreadable>) {
    let text = String::from_utf8_lossy(bytes);
    let is_text = matches!(text, Cow::Borrowed(_));
    let (mut properties, mut unreadable) = (Vec::new(), Vec::new());
    for (line, text) in logical_lines(&text) {
        match entry(line, &text) {
            Ok(_) if !is_text && text.contains(REPLACEMENT) => {
                let key = text[..end_of_key(&text)].to_owned();
                unreadable.push(Unreadable { line, key, reason: NOT_TEXT });
            }
            Ok(property) => properties.push(property),
            Err(cause) => unreadable.push(cause),
        }
    }
    (properties, unreadable)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0c')
}

/// Lines with what continues them, without comments and blank lines, each with its number.
fn logical_lines(text: &str) -> Vec<(u32, String)> {
    let text = text.replace("\r\n", "\n");
    let mut lines = Vec::new();
    let mut open: Option<(u32, String)> = None;
    for (index, line) in text.split(['\n', '\r']).enumerate() {
        let line = line.trim_start_matches(is_blank);
        // A continued line goes on even with what would be a comment on a line of its own.
        let begins = open.as_ref().is_none_or(|(_, text)| text.is_empty());
        if begins && (line.is_empty() || line.starts_with(['#', '!'])) {
            continue;
        }
        let (_, logical) = open.get_or_insert_with(|| (index as u32 + 1, String::new()));
        logical.push_str(line);
        let backslashes = line.bytes().rev().take_while(|byte| *byte == b'\\').count();
        if backslashes % 2 == 1 {
            logical.pop();
        } else {
            lines.extend(open.take());
        }
    }
    lines.extend(open);
    lines
}

fn entry(line: u32, text: &str) -> Result<Property, Unreadable> {
    let key_end = end_of_key(text);
    let rest = text[key_end..].trim_start_matches(is_blank);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    let value = rest.trim_start_matches(is_blank);
    let key = text[..key_end].to_owned();
    let malformed = || Unreadable { line, key: key.clone(), reason: ESCAPE };
    let unescape = |text| unescape(text).ok_or_else(malformed);
    Ok(Property { key: unescape(&text[..key_end])?, value: unescape(value)?, line })
}

/// Where the first separator stands that no backslash precedes.
fn end_of_key(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if !escaped && (matches!(c, '=' | ':') || is_blank(c)) {
            return at;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

/// `None` for a `\u` without four hexadecimal digits.
fn unescape(text: &str) -> Option<String> {
    if !text.contains('\\') {
        return Some(text.to_owned());
    }
    // Escapes are UTF-16 code units: two of them may make one character.
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\\' {
            units.push_escaped(&mut chars)?;
        } else {
            units.push_char(c);
        }
    }
    Some(String::from_utf16_lossy(&units))
}

/// UTF-16 text under construction.
trait Units {
    fn push_char(&mut self, c: char);
    fn push_escaped(&mut self, chars: &mut std::str::Chars<'_>) -> Option<()>;
}

impl Units for Vec<u16> {
    fn push_char(&mut self, c: char) {
        self.extend_from_slice(c.encode_utf16(&mut [0; 2]));
    }

    /// Takes what follows a backslash; at the end of the text nothing does.
    fn push_escaped(&mut self, chars: &mut std::str::Chars<'_>) -> Option<()> {
        match chars.next() {
            None => {}
            Some('u') => {
                let digits = chars.as_str().get(..4)?;
                let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                self.push(u16::from_str_radix(digits, 16).ok().filter(|_| is_number)?);
                *chars = chars.as_str()[4..].chars();
            }
            Some('t') => self.push_char('\t'),
            Some('n') => self.push_char('\n'),
            Some('r') => self.push_char('\r'),
            Some('f') => self.push_char('\x0c'),
            Some(other) => self.push_char(other),
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text.as_bytes()).0.into_iter().map(|p| (p.key, p.value)).collect()
    }

    /// A file with every oddity, and what `java.util.Properties` made of it.
    #[test]
    fn reads_what_java_reads() {
        let mut expected = std::collections::BTreeMap::new();
        for line in include_str!("testdata/odd.properties.expected").lines() {
            let (key, value) = line.split_once('\t').expect("key and value");
            let hex = |text: &str| {
                let units: Vec<u16> = (0..text.len() / 4)
                    .map(|at| u16::from_str_radix(&text[at * 4..at * 4 + 4], 16).unwrap())
                    .collect();
                String::from_utf16(&units).unwrap()
            };
            expected.insert(hex(key), hex(value));
        }
        let (found, unreadable) = parse(include_bytes!("testdata/odd.properties"));
        // Java takes this one for Latin-1.
        assert_eq!(
            unreadable.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(),
            ["latin"]
        );
        assert!(expected.remove("latin").is_some());
        let found: std::collections::BTreeMap<_, _> =
            found.into_iter().map(|p| (p.key, p.value)).collect();
        assert_eq!(found, expected);
        assert!(found.len() > 20);
    }

    #[test]
    fn entries_keep_their_order_and_the_line_on_which_they_begin() {
        let (found, _) = parse(b"# c\na=1\n\nb = x,\\\n   y\nb=2\n");
        let lines: Vec<_> =
            found.iter().map(|p| (p.line, p.key.as_str(), p.value.as_str())).collect();
        assert_eq!(lines, [(2, "a", "1"), (4, "b", "x,y"), (6, "b", "2")]);
    }

    #[test]
    fn utf_8_is_read_and_other_bytes_are_refused_but_in_comments() {
        assert_eq!(pairs("log.dirs=/srv/größe"), [("log.dirs".into(), "/srv/größe".into())]);
        let (properties, unreadable) = parse(b"# f\xfcr\na=1\nlog.dirs=/srv/\xfc\nb=2\n");
        assert_eq!(properties.len(), 2);
        let [found] = &unreadable[..] else { panic!("{unreadable:?}") };
        assert_eq!((found.line, found.key.as_str()), (3, "log.dirs"));
        assert!(found.reason.contains("UTF-8"));
        assert_eq!(pairs("a=\u{FFFD}").len(), 1, "the character itself is text");
    }

    #[test]
    fn a_malformed_escape_names_its_line() {
        for text in ["a=1\nb=\\u12g4", "a=1\nb=\\u12", "a=1\nb=\\u+123", "a=1\nb=\\u12é4"] {
            let (properties, unreadable) = parse(text.as_bytes());
            assert_eq!(properties.len(), 1, "the rest is read");
            assert_eq!((unreadable[0].line, unreadable[0].key.as_str()), (2, "b"), "{text:?}");
        }
    }
}
