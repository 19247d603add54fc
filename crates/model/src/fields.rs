//! Fields of messages between brokers: numbers are big-endian, what varies is counted before it.

/// Why the fields of a message cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// The message ends within one.
    #[error("the message ends within a field")]
    Short,
    /// One has a value that it cannot have.
    #[error("a field has a value that it cannot have: {0}")]
    Value(&'static str),
}

/// Reads fields off the front of a message. Nothing is allocated for what was only announced.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// What was not read yet.
    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// So many bytes as they are.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], FieldError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(FieldError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// An array of bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FieldError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(FieldError::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, FieldError> {
        self.array().map(u8::from_be_bytes)
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, FieldError> {
        self.array().map(u16::from_be_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, FieldError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Four bytes, with a sign.
    pub fn i32(&mut self) -> Result<i32, FieldError> {
        self.array().map(i32::from_be_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, FieldError> {
        self.array().map(u64::from_be_bytes)
    }

    /// A byte that is 0 or 1.
    pub fn flag(&mut self) -> Result<bool, FieldError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(FieldError::Value("a flag that is neither 0 nor 1")),
        }
    }

    /// A text with its length in two bytes.
    pub fn text(&mut self) -> Result<&'a str, FieldError> {
        let count = self.u16()?;
        let bytes = self.bytes(count.into())?;
        std::str::from_utf8(bytes).map_err(|_| FieldError::Value("a text that is not UTF-8"))
    }

    /// Bytes with their length in four bytes.
    pub fn counted(&mut self) -> Result<&'a [u8], FieldError> {
        let count = self.u32()?;
        self.bytes(count as usize)
    }

    /// Fails unless everything was read.
    pub fn end(self) -> Result<(), FieldError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(FieldError::Value("bytes behind the last field"))
    }
}

/// Writes what [`Reader`] reads.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
}

impl Writer {
    /// Writes behind `out`.
    pub fn after(out: Vec<u8>) -> Writer {
        Writer { out }
    }

    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    /// Four bytes, with a sign.
    pub fn i32(&mut self, value: i32) {
        self.bytes(&value.to_be_bytes());
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_be_bytes());
    }

    /// A byte that is 0 or 1.
    pub fn flag(&mut self, value: bool) {
        self.u8(value.into());
    }

    /// A text with its length in two bytes. What is longer than that allows is cut.
    pub fn text(&mut self, text: &str) {
        let text = cut(text, u16::MAX.into());
        self.u16(u16::try_from(text.len()).expect("it was cut"));
        self.bytes(text.as_bytes());
    }

    /// Bytes with their length in four bytes.
    ///
    /// # Panics
    /// If there are 4 GiB of them: no message is that large.
    pub fn counted(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).expect("no message has 4 GiB"));
        self.bytes(bytes);
    }
}

/// The first characters of a text that have at most `bytes_max` bytes.
pub fn cut(text: &str, bytes_max: usize) -> &str {
    if text.len() <= bytes_max {
        return text;
    }
    let mut end = bytes_max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_back() {
        let mut out = Writer::default();
        out.u8(7);
        out.u16(300);
        out.u32(70_000);
        out.i32(-1);
        out.u64(1 << 40);
        out.flag(true);
        out.text("Zürich");
        out.counted(&[1, 2, 3]);
        let bytes = out.into_bytes();
        let mut fields = Reader::new(&bytes);
        assert_eq!((fields.u8(), fields.u16(), fields.u32()), (Ok(7), Ok(300), Ok(70_000)));
        assert_eq!((fields.i32(), fields.u64(), fields.flag()), (Ok(-1), Ok(1 << 40), Ok(true)));
        assert_eq!((fields.text(), fields.counted()), (Ok("Zürich"), Ok(&[1, 2, 3][..])));
        assert_eq!(fields.end(), Ok(()));
    }

    #[test]
    fn what_is_missing_or_odd_is_an_error() {
        assert_eq!(Reader::new(&[0, 0, 0]).u32(), Err(FieldError::Short));
        assert_eq!(Reader::new(&[0xff; 8]).counted(), Err(FieldError::Short));
        assert_eq!(Reader::new(&[0, 9, b'a']).text(), Err(FieldError::Short));
        assert!(Reader::new(&[0, 1, 0xff]).text().is_err());
        assert!(Reader::new(&[2]).flag().is_err());
        assert!(Reader::new(&[2]).end().is_err());
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
        let mut out = Writer::default();
        out.text(&"é".repeat(40_000));
        let bytes = out.into_bytes();
        assert_eq!(Reader::new(&bytes).text().unwrap().chars().count(), 32_767);
    }
}
