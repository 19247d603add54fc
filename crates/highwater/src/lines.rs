//! Cuts a stream of bytes into lines, whole chunks of them at a time. A line ends at a line feed or
//! at the end of the stream; every other byte belongs to it.

use std::io::{self, Read};

/// Bytes that are asked for at once.
const READ_BYTES: usize = 256 << 10;

/// Chunks of whole lines of a reader.
pub struct Chunks<R> {
    reader: R,
    /// The beginning of a line whose end has not been read.
    open: Vec<u8>,
}

impl<R: Read> Chunks<R> {
    /// Of this reader.
    pub fn new(reader: R) -> Chunks<R> {
        Chunks { reader, open: Vec::new() }
    }

    /// The next chunk: at least one whole line, as soon as there is one; `None` at the end. Only
    /// the last chunk may lack its line feed.
    pub fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut chunk = std::mem::take(&mut self.open);
        loop {
            let before = chunk.len();
            chunk.resize(before + READ_BYTES, 0);
            let read = match self.reader.read(&mut chunk[before..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    chunk.truncate(before);
                    continue;
                }
                read => read?,
            };
            chunk.truncate(before + read);
            if read == 0 {
                return Ok((!chunk.is_empty()).then_some(chunk));
            }
            if let Some(end) = chunk[before..].iter().rposition(|byte| *byte == b'\n') {
                self.open = chunk.split_off(before + end + 1);
                return Ok(Some(chunk));
            }
        }
    }
}

/// The lines of a chunk without their line feeds.
pub fn lines(chunk: &[u8]) -> impl Iterator<Item = &[u8]> {
    chunk
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}

/// Key and value of a line, at the first place where the separator stands; `None` if it does not.
pub fn key_and_value<'a>(line: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = line.windows(separator.len()).position(|window| window == separator)?;
    Some((&line[..at], &line[at + separator.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a few bytes at a time, as a pipe does.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn cut(text: &[u8], at_once: usize) -> Vec<Vec<u8>> {
        let mut chunks = Chunks::new(Trickle(text, at_once));
        let mut found = Vec::new();
        while let Some(chunk) = chunks.read().unwrap() {
            found.extend(lines(&chunk).map(<[u8]>::to_vec));
        }
        found
    }

    #[test]
    fn lines_are_cut_at_line_feeds_only_however_the_bytes_arrive() {
        let text = b"one\n\ntwo\r\n\xff\0three \nno line feed";
        let expected: Vec<Vec<u8>> = [&b"one"[..], b"", b"two\r", b"\xff\0three ", b"no line feed"]
            .map(<[u8]>::to_vec)
            .into();
        for at_once in [1, 2, 3, 7, 1000] {
            assert_eq!(cut(text, at_once), expected, "{at_once} bytes at once");
        }
        assert_eq!(cut(b"", 5), [b""; 0]);
        assert_eq!(cut(b"\n", 5), [b""]);
        assert_eq!(cut(b"a\n", 5), [b"a"]);
    }

    #[test]
    fn a_line_longer_than_what_is_read_at_once_stays_whole() {
        let long = vec![b'x'; 3 * READ_BYTES + 5];
        let text = [&long[..], b"\nshort\n"].concat();
        assert_eq!(cut(&text, usize::MAX), [long, b"short".to_vec()]);
    }

    #[test]
    fn the_first_separator_counts() {
        assert_eq!(key_and_value(b"k:v:w", b":"), Some((&b"k"[..], &b"v:w"[..])));
        assert_eq!(key_and_value(b"=>v", b"=>"), Some((&b""[..], &b"v"[..])));
        assert_eq!(key_and_value(b"kv", b":"), None);
    }
}
