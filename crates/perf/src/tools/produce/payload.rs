//! Values of records.

use super::super::console::Console;
use super::super::failure::ToolError;
use super::super::letters::{Java, Letters};
use super::arguments::{PayloadMode, Source};
use regex::bytes::Regex;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Where all producers' values come from.
#[derive(Debug, Clone)]
pub enum Payload {
    /// Letters, filled once or for each record.
    Letters {
        /// Bytes of each.
        size_bytes: usize,
        /// Filled anew or not.
        mode: PayloadMode,
    },
    /// One of these.
    Pieces(Arc<Vec<Vec<u8>>>),
    /// The record's number.
    Monotonic,
}

impl Payload {
    /// Reads the file, if there is one, and says so.
    pub fn open(source: &Source, console: &Console) -> Result<Payload, ToolError> {
        match source {
            Source::Letters { size_bytes, mode } => {
                Ok(Payload::Letters { size_bytes: *size_bytes, mode: *mode })
            }
            Source::Monotonic => Ok(Payload::Monotonic),
            Source::File { path, delimiter } => {
                let pieces = read_pieces(path, delimiter, console)?;
                Ok(Payload::Pieces(Arc::new(pieces)))
            }
        }
    }

    /// The values of one producer.
    pub fn values(&self, seed: u64) -> Values {
        let mut letters = Letters::new(seed);
        let mut buffer = Vec::new();
        if let Payload::Letters { size_bytes, mode } = self {
            buffer.resize(*size_bytes, 0);
            match mode {
                PayloadMode::Reuse => Java::new(seed).fill(&mut buffer),
                PayloadMode::Fresh => letters.fill(&mut buffer),
            }
        }
        Values { payload: self.clone(), letters, buffer }
    }

    /// Bytes of a value whose [`Values::next`] gave this mark.
    pub fn size_bytes(&self, mark: u32) -> u64 {
        match self {
            Payload::Letters { size_bytes, .. } => *size_bytes as u64,
            Payload::Pieces(pieces) => pieces[mark as usize].len() as u64,
            Payload::Monotonic => u64::from(mark),
        }
    }
}

/// The values of one producer.
#[derive(Debug)]
pub struct Values {
    payload: Payload,
    letters: Letters,
    buffer: Vec<u8>,
}

impl Values {
    /// The value of record `number`, and a mark of 24 bits by which its size is known later.
    pub fn next(&mut self, number: u64) -> (&[u8], u32) {
        match &self.payload {
            Payload::Letters { mode, .. } => {
                if *mode == PayloadMode::Fresh {
                    self.letters.fill(&mut self.buffer);
                }
                (&self.buffer, 0)
            }
            Payload::Pieces(pieces) => {
                let index = self.letters.random().usize(..pieces.len());
                (&pieces[index], index as u32)
            }
            Payload::Monotonic => {
                self.buffer.clear();
                write!(self.buffer, "{number}").expect("a vector takes all bytes");
                (&self.buffer, self.buffer.len() as u32)
            }
        }
    }
}

/// Marks have 24 bits.
const PIECES_MAX: usize = 1 << 24;

fn read_pieces(path: &Path, delimiter: &str, console: &Console) -> Result<Vec<Vec<u8>>, ToolError> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    console.line(format_args!("Reading payloads from: {}", absolute.display()));
    let bytes = std::fs::read(path).unwrap_or_default();
    if bytes.is_empty() {
        return Err(ToolError::failed("File does not exist or empty file provided."));
    }
    let regex = Regex::new(delimiter)
        .map_err(|e| ToolError::failed(format!("--payload-delimiter {delimiter}: {e}")))?;
    let pieces = split(&bytes, &regex);
    if pieces.is_empty() || pieces.len() > PIECES_MAX {
        let text = format!("{} holds {} payloads", absolute.display(), pieces.len());
        return Err(ToolError::failed(text));
    }
    console.line(format_args!("Number of records read: {}", pieces.len()));
    Ok(pieces)
}

/// Cuts as Java's scanner does: one delimiter at the very beginning or end makes no empty piece.
fn split(bytes: &[u8], delimiter: &Regex) -> Vec<Vec<u8>> {
    let mut pieces: Vec<Vec<u8>> = delimiter.split(bytes).map(<[u8]>::to_vec).collect();
    if pieces.first().is_some_and(Vec::is_empty) {
        pieces.remove(0);
    }
    if pieces.last().is_some_and(Vec::is_empty) {
        pieces.pop();
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::Recorded;
    use super::*;

    fn letters(mode: PayloadMode) -> Payload {
        Payload::Letters { size_bytes: 40, mode }
    }

    #[test]
    fn a_reused_value_is_the_one_of_kafkas_old_tools() {
        let mut values = letters(PayloadMode::Reuse).values(0);
        for number in 0..3 {
            let expected = b"SSXVNJHPDQDXVCRASTVYBCWVMGNYKRXVZXKGXTSP";
            assert_eq!(values.next(number).0, expected);
        }
    }

    #[test]
    fn fresh_values_differ() {
        let mut values = letters(PayloadMode::Fresh).values(0);
        let first = values.next(0).0.to_vec();
        assert_ne!(values.next(1).0, first);
        assert!(first.iter().all(u8::is_ascii_uppercase));
    }

    #[test]
    fn monotonic_values_are_numbers_and_know_their_size() {
        let mut values = Payload::Monotonic.values(0);
        for (number, text) in [(0, "0"), (9, "9"), (10, "10"), (12345, "12345")] {
            let (value, mark) = values.next(number);
            assert_eq!(value, text.as_bytes());
            assert_eq!(Payload::Monotonic.size_bytes(mark), text.len() as u64);
        }
    }

    #[test]
    fn files_are_cut_at_the_delimiter() {
        let newline = Regex::new("\\n").unwrap();
        let of = |text: &str, regex: &Regex| {
            let pieces = split(text.as_bytes(), regex);
            pieces.into_iter().map(|p| String::from_utf8(p).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(of("a\nbb\n", &newline), ["a", "bb"]);
        assert_eq!(of("\na\n\nb", &newline), ["a", "", "b"]);
        assert_eq!(of("a1b22c", &Regex::new("[0-9]+").unwrap()), ["a", "b", "c"]);
    }

    #[test]
    fn a_file_is_announced_and_a_missing_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("values.txt");
        std::fs::write(&path, "one\nthree\n").unwrap();
        let recorded = Recorded::default();
        let source = |path: &Path| Source::File { path: path.into(), delimiter: "\\n".into() };
        let payload = Payload::open(&source(&path), &recorded.console()).unwrap();
        let expected =
            format!("Reading payloads from: {}\nNumber of records read: 2\n", path.display());
        assert_eq!(recorded.lines(), expected);
        let mut values = payload.values(3);
        for number in 0..20 {
            let (value, mark) = values.next(number);
            assert!([&b"one"[..], b"three"].contains(&value));
            assert_eq!(payload.size_bytes(mark), value.len() as u64);
        }
        let missing = folder.path().join("missing");
        assert!(Payload::open(&source(&missing), &recorded.console()).is_err());
    }
}
