//! Properties of clients: files in Java's format, and pairs on the command line. Not here: what the
//! keys mean.

use super::failure::ToolError;
use std::collections::BTreeMap;
use std::path::Path;

/// Keys and values.
pub type Properties = BTreeMap<String, String>;

/// Reads a file as `java.util.Properties` does.
pub fn load(path: &Path) -> Result<Properties, ToolError> {
    let bytes = std::fs::read(path)
        .map_err(|e| ToolError::failed(format!("cannot read {}: {e}", path.display())))?;
    Ok(parse(&String::from_utf8_lossy(&bytes)))
}

/// Reads Java's format: `key=value`, `key: value` or `key value`; `#` and `!` begin comments; a
/// backslash at the end of a line joins the next one.
pub fn parse(text: &str) -> Properties {
    let mut out = Properties::new();
    let mut lines = text.lines().map(str::trim_start);
    while let Some(first) = lines.next() {
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut line = first.to_owned();
        while continues(&line) {
            line.pop();
            line.push_str(lines.next().unwrap_or_default());
        }
        let (key, value) = split(&line);
        out.insert(unescape(key), unescape(value));
    }
    out
}

/// Whether an odd number of backslashes ends the line.
fn continues(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// Key and value, still escaped.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let mut end = line.len();
    for (at, letter) in line.char_indices() {
        if !escaped && (letter == '=' || letter == ':' || letter.is_whitespace()) {
            end = at;
            break;
        }
        escaped = letter == '\\' && !escaped;
    }
    let rest = line[end..].trim_start();
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (&line[..end], rest.trim_start())
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            out.push(letter);
            continue;
        }
        match letters.next() {
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\x0C'),
            Some('u') => {
                let digits: String = letters.by_ref().take(4).collect();
                let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                out.push(code.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

/// Pairs as the producer's tool takes them: exactly one `=` with something on both sides.
pub fn of_strict_pairs(pairs: &[String]) -> Result<Properties, ToolError> {
    let split = |pair: &String| {
        let pieces: Vec<&str> = pair.trim_end_matches('=').split('=').collect();
        match pieces[..] {
            [key, value] => Ok((key.to_owned(), value.to_owned())),
            _ => Err(ToolError::failed(format!("invalid property {pair:?}: write KEY=VALUE"))),
        }
    };
    pairs.iter().map(split).collect()
}

/// Pairs as the other tools take them: what stands behind the first `=` is the value, which may be
/// empty or missing.
pub fn of_pairs(pairs: &[String]) -> Properties {
    let split = |pair: &String| match pair.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (pair.clone(), String::new()),
    };
    pairs.iter().map(split).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(properties: Properties) -> Vec<(String, String)> {
        properties.into_iter().collect()
    }

    fn owned(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn files_are_read_as_java_reads_them() {
        let text = "# a comment\n! another\n\n a = 1\nb:2\nc 3 \nd\\=e=f=g\nlong=one,\\\n   two\n\
                    tab=\\t\\u0041\nempty=\nalone\npath=C\\:\\\\x";
        let expected = [
            ("a", "1"),
            ("alone", ""),
            ("b", "2"),
            ("c", "3 "),
            ("d=e", "f=g"),
            ("empty", ""),
            ("long", "one,two"),
            ("path", "C:\\x"),
            ("tab", "\tA"),
        ];
        assert_eq!(pairs(parse(text)), owned(&expected));
    }

    #[test]
    fn the_producers_tool_is_strict_about_pairs() {
        let given = |text: &str| of_strict_pairs(&[text.to_owned()]);
        assert_eq!(pairs(given("a=b").unwrap()), owned(&[("a", "b")]));
        assert_eq!(pairs(given("a=b=").unwrap()), owned(&[("a", "b")]));
        for wrong in ["a", "a=", "a=b=c"] {
            let error = given(wrong).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn the_consumers_tool_is_not() {
        let given = ["a=b=c".to_owned(), "d".to_owned()];
        assert_eq!(pairs(of_pairs(&given)), owned(&[("a", "b=c"), ("d", "")]));
    }
}
