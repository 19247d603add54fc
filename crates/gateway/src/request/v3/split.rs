//! Where JSON objects end that stand one behind the other, found while their bytes arrive. Whether an object is JSON
//! is found out by who reads it: here only braces, brackets and strings count.

use std::ops::Range;

/// What stands between objects, or how deep one of them goes, is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotSplit {
    /// Something else stands where an object should begin.
    #[error("expected '{{', the beginning of an object, and found byte {0:#04x}")]
    NotAnObject(u8),
}

/// Remembers where in an object one is.
#[derive(Debug, Clone, Default)]
pub struct Splitter {
    /// Objects and lists that are open.
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// Bytes of the object that were looked at.
    looked: usize,
    /// Bytes in front of the object.
    before: usize,
}

impl Splitter {
    /// Where in `bytes` the next object is; `None` if it does not end in them. They begin behind the last object, and
    /// after `None` the same bytes come again, with more behind them: what was looked at is not looked at again.
    ///
    /// # Errors
    /// What stands there is not an object.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Option<Range<usize>>, NotSplit> {
        if self.depth == 0 {
            let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
            self.before = bytes.iter().take_while(|byte| blank(byte)).count();
            match bytes.get(self.before) {
                None => return Ok(None),
                Some(b'{') => (self.depth, self.looked) = (1, 1),
                Some(other) => return Err(NotSplit::NotAnObject(*other)),
            }
        }
        let from = self.before + self.looked;
        for (at, byte) in bytes.iter().enumerate().skip(from) {
            self.pass(*byte);
            if self.depth == 0 {
                return Ok(Some(self.before..at + 1));
            }
        }
        self.looked = bytes.len() - self.before;
        Ok(None)
    }

    /// Whether an object has begun and not ended.
    pub fn is_within(&self) -> bool {
        self.depth > 0
    }

    fn pass(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' if self.in_string => self.is_escaped = true,
            b'"' => self.in_string = !self.in_string,
            _ if self.in_string => {}
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The objects of a text that arrives in parts that end at these places.
    fn split(text: &str, ends: &[usize]) -> Result<Vec<String>, NotSplit> {
        let (mut splitter, mut found, mut at) = (Splitter::default(), Vec::new(), 0);
        for end in ends.iter().chain([&text.len()]) {
            while let Some(object) = splitter.next(&text.as_bytes()[at..*end])? {
                found.push(text[at + object.start..at + object.end].to_owned());
                at += object.end;
            }
        }
        Ok(found)
    }

    #[test]
    fn objects_end_where_their_brace_is_closed() {
        let found = split("{}\n {\"a\":{\"b\":[1,{}]}} {\"}\":\"\\\"}{\"}", &[]).unwrap();
        assert_eq!(found, ["{}", "{\"a\":{\"b\":[1,{}]}}", "{\"}\":\"\\\"}{\"}"]);
        for text in ["", " \r\n\t", "{", "{\"", "{\"\\", "{\"}", "{[}"] {
            assert_eq!(split(text, &[]), Ok(vec![]), "{text}");
        }
        for (text, byte) in
            [("[", b'['), (",", b','), ("{},", b','), ("}", b'}'), ("\u{feff}{}", 0xef)]
        {
            assert_eq!(split(text, &[]), Err(NotSplit::NotAnObject(byte)), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn how_a_text_is_cut_changes_nothing(
            objects in prop::collection::vec("\\{(\"([a-z}{]|\\\\\\\\|\\\\\")*\":\\[\\{\\}\\])?\\}[ \n]{0,2}", 0..6),
            mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let text = objects.concat();
            let mut ends: Vec<usize> = cuts.drain(..).map(|cut| cut.index(text.len() + 1)).collect();
            ends.sort_unstable();
            let expected: Vec<String> = objects.iter().map(|object| object.trim().to_owned()).collect();
            prop_assert_eq!(split(&text, &ends), Ok(expected));
        }
    }
}
