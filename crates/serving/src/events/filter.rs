//! Which records a reader wants: conditions on key and headers, which must all hold.
//!
//! `key:user-1`, `key:user-*`, `header:kind=order`, `header:kind=*`, separated by commas. A star at the end stands for
//! any rest; a backslash takes the meaning from a comma, a star or a backslash behind it.

/// Conditions of one filter.
const CONDITIONS_MAX: usize = 16;

/// Why a text is not a filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A condition has another form.
    #[error(
        "invalid condition {0:?}: expected key:VALUE or header:NAME=VALUE, with * at the end for any rest"
    )]
    Condition(String),
    /// There are too many.
    #[error("more than {CONDITIONS_MAX} conditions")]
    Many,
}

/// A value, or how it begins.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Pattern {
    begin: Vec<u8>,
    is_whole: bool,
}

impl Pattern {
    fn fits(&self, value: &[u8]) -> bool {
        if self.is_whole { value == self.begin } else { value.starts_with(&self.begin) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Condition {
    Key(Pattern),
    Header(String, Pattern),
}

/// The conditions; without any, every record is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Filter(Vec<Condition>);

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// A condition has another form, or there are too many.
    pub fn read(text: &str) -> Result<Filter, FilterError> {
        let mut conditions = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (condition, behind) = split(rest);
            if conditions.len() >= CONDITIONS_MAX {
                return Err(FilterError::Many);
            }
            conditions.push(read(condition)?);
            rest = behind;
        }
        Ok(Filter(conditions))
    }

    /// Whether every record is wanted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a record is wanted. A record without a key has no key that fits; of a header that is there several
    /// times, one value must fit.
    pub fn wants<'a>(
        &self,
        key: Option<&[u8]>,
        headers: impl Iterator<Item = (&'a str, Option<&'a [u8]>)> + Clone,
    ) -> bool {
        self.0.iter().all(|condition| match condition {
            Condition::Key(pattern) => key.is_some_and(|key| pattern.fits(key)),
            Condition::Header(name, pattern) => headers
                .clone()
                .any(|(known, value)| known == name && pattern.fits(value.unwrap_or_default())),
        })
    }
}

/// Splits at the first comma that has its meaning.
fn split(text: &str) -> (&str, &str) {
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
    }
    (text, "")
}

fn read(text: &str) -> Result<Condition, FilterError> {
    let invalid = || FilterError::Condition(text.to_owned());
    if let Some(key) = text.strip_prefix("key:") {
        return pattern(key).map(Condition::Key).ok_or_else(invalid);
    }
    let header = text.strip_prefix("header:").and_then(|rest| rest.split_once('='));
    let (name, value) = header.filter(|(name, _)| !name.is_empty()).ok_or_else(invalid)?;
    let pattern = pattern(value).ok_or_else(invalid)?;
    Ok(Condition::Header(name.to_owned(), pattern))
}

/// Nothing, if a star stands within, or a backslash at the end.
fn pattern(text: &str) -> Option<Pattern> {
    let (mut begin, mut is_whole) = (String::new(), true);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            _ if !is_whole => return None,
            '*' => is_whole = false,
            '\\' => begin.push(characters.next()?),
            other => begin.push(other),
        }
    }
    Some(Pattern { begin: begin.into_bytes(), is_whole })
}
