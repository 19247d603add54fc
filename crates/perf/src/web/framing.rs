//! The head of an answer, and how its body is delimited (RFC 9112).

use super::Malformed;

/// The longest head that is read, bytes: that of a gateway's answer has some hundred.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The longest line with the size of a chunk, its end included.
const SIZE_LINE_MAX: usize = 64;

/// Where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// After so many bytes.
    Length(u64),
    /// In chunks, the last of which is empty.
    Chunked,
    /// With the connection.
    Close,
}

/// What matters of an answer's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Such as 200.
    pub status: u16,
    /// How the body is delimited.
    pub framing: Framing,
    /// Whether the connection is of no further use behind this answer.
    pub closes: bool,
    /// The value of `Server-Timing`; empty without one.
    pub timing: String,
}

impl Head {
    /// Reads a head at the beginning of `bytes`, and how long it is; `None` if it has not come whole.
    ///
    /// # Errors
    /// It is not one, or longer than 16 KiB.
    pub fn read(bytes: &[u8]) -> Result<Option<(Head, usize)>, Malformed> {
        let wrong = || Malformed::new("head of an answer");
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return if bytes.len() > HEAD_BYTES_MAX { Err(wrong()) } else { Ok(None) };
        };
        let text = std::str::from_utf8(&bytes[..end]).map_err(|_| wrong())?;
        let mut lines = text.split("\r\n");
        let first = lines.next().and_then(|line| line.strip_prefix("HTTP/1.")).ok_or_else(wrong)?;
        let status = first.get(2..5).and_then(|status| status.parse().ok()).ok_or_else(wrong)?;
        let mut head =
            Head { status, framing: Framing::Close, closes: false, timing: String::new() };
        let mut length = None;
        for line in lines {
            let (name, value) = line.split_once(':').ok_or_else(wrong)?;
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = Some(value.parse().map_err(|_| wrong())?),
                "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => {
                    head.framing = Framing::Chunked;
                }
                "connection" => head.closes = value.eq_ignore_ascii_case("close"),
                "server-timing" => value.clone_into(&mut head.timing),
                _ => {}
            }
        }
        head.framing = match (head.framing, length, status) {
            (_, _, 204 | 304) => Framing::Length(0),
            (Framing::Chunked, Some(_), _) => return Err(wrong()),
            (Framing::Close, Some(length), _) => Framing::Length(length),
            (framing, ..) => framing,
        };
        head.closes |= head.framing == Framing::Close;
        Ok(Some((head, end + 4)))
    }

    /// Milliseconds that `Server-Timing` names for a step.
    #[must_use]
    pub fn timing_ms(&self, step: &str) -> Option<f64> {
        let mut entries = self.timing.split(',');
        entries.find_map(|entry| {
            let (name, duration) = entry.trim().split_once(";dur=")?;
            (name == step).then(|| duration.parse().ok())?
        })
    }
}

/// Takes the chunks of a body off as they come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chunks(At);

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum At {
    /// The line with a chunk's size.
    #[default]
    Size,
    /// So many bytes of a chunk.
    Data(u64),
    /// The line's end behind a chunk.
    DataEnd,
    /// A line behind the last chunk.
    Trailer,
    /// Nothing.
    Over,
}

impl Chunks {
    /// Whether the last chunk has come.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0 == At::Over
    }

    /// Hands the body's bytes in `bytes` to `take`, piece by piece, and says how many bytes were used up. The rest is to
    /// be given again, with more behind it.
    ///
    /// # Errors
    /// These are not chunks.
    pub fn take(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8])) -> Result<usize, Malformed> {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            match self.0 {
                At::Over => return Ok(used),
                At::Data(left) => {
                    let piece =
                        &rest[..rest.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
                    if piece.is_empty() {
                        return Ok(used);
                    }
                    take(piece);
                    used += piece.len();
                    let left = left - piece.len() as u64;
                    self.0 = if left == 0 { At::DataEnd } else { At::Data(left) };
                }
                At::Size | At::DataEnd | At::Trailer => {
                    let Some(line) = line_of(rest)? else { return Ok(used) };
                    used += line.len() + 2;
                    self.0 = self.behind(line)?;
                }
            }
        }
    }

    /// What comes behind a line.
    fn behind(&self, line: &[u8]) -> Result<At, Malformed> {
        match self.0 {
            At::DataEnd if line.is_empty() => Ok(At::Size),
            At::Trailer if line.is_empty() => Ok(At::Over),
            At::Trailer => Ok(At::Trailer),
            At::Size => match size_of(line).ok_or(Malformed::new("size of a chunk"))? {
                0 => Ok(At::Trailer),
                size => Ok(At::Data(size)),
            },
            _ => Err(Malformed::new("end of a chunk")),
        }
    }
}

/// The first line, without its end; `None` if that has not come.
fn line_of(bytes: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    let seen = &bytes[..bytes.len().min(SIZE_LINE_MAX)];
    match seen.windows(2).position(|two| two == b"\r\n") {
        Some(end) => Ok(Some(&bytes[..end])),
        None if bytes.len() >= SIZE_LINE_MAX => Err(Malformed::new("line around a chunk")),
        None => Ok(None),
    }
}

/// A size in hexadecimal, perhaps with extensions behind it.
fn size_of(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?;
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    is_number.then(|| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Option<(Head, usize)> {
        Head::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_head_says_how_its_body_ends() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\nserver-timing: decide;dur=0.002, forward;dur=1.5\r\n\r\nbody";
        let (answer, size) = head(text).unwrap();
        assert_eq!(
            (answer.status, answer.framing, answer.closes),
            (200, Framing::Length(12), false)
        );
        assert_eq!(&text[size..], "body");
        assert_eq!(
            (answer.timing_ms("decide"), answer.timing_ms("forward")),
            (Some(0.002), Some(1.5))
        );
        assert_eq!(answer.timing_ms("read"), None);
        let (chunked, _) =
            head("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n")
                .unwrap();
        assert_eq!((chunked.framing, chunked.closes), (Framing::Chunked, true));
        let (nothing, _) = head("HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        assert_eq!((nothing.framing, nothing.closes), (Framing::Length(0), false));
        let (open, _) = head("HTTP/1.0 200 OK\r\n\r\n").unwrap();
        assert_eq!((open.framing, open.closes), (Framing::Close, true));
        assert_eq!(head("HTTP/1.1 200 OK\r\ncontent-le"), None);
    }

    #[test]
    fn what_is_no_head_is_refused() {
        for text in [
            "SSH-2.0\r\n\r\n",
            "HTTP/1.1 20\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n",
            &"x".repeat(HEAD_BYTES_MAX + 1),
        ] {
            assert!(Head::read(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    /// The body of `bytes` that come in two pieces, cut at `cut`.
    fn body(bytes: &[u8], cut: usize) -> Result<(Vec<u8>, bool), Malformed> {
        let (mut chunks, mut body) = (Chunks::default(), Vec::new());
        let used = chunks.take(&bytes[..cut], |piece| body.extend(piece))?;
        chunks.take(&bytes[used..], |piece| body.extend(piece))?;
        Ok((body, chunks.is_over()))
    }

    #[test]
    fn chunks_may_be_cut_anywhere() {
        let bytes = b"5\r\nhello\r\n1;x=y\r\n!\r\nA\r\n0123456789\r\n0\r\ntrailer: x\r\n\r\n";
        for cut in 0..=bytes.len() {
            assert_eq!(body(bytes, cut).unwrap(), (b"hello!0123456789".to_vec(), true), "{cut}");
        }
        assert_eq!(body(b"5\r\nhel", 2).unwrap(), (b"hel".to_vec(), false));
    }

    #[test]
    fn what_are_no_chunks_is_refused() {
        let long = "1".repeat(SIZE_LINE_MAX);
        for text in ["\r\n", "x\r\n", "-1\r\n", "1\r\nab\r\n", "11111111111111111\r\n", &long] {
            assert!(body(text.as_bytes(), 0).is_err(), "{text:?}");
        }
    }
}
