//! Reading the answers, of the versions that `request.rs` sends. Only what is asked about is kept.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};

/// A cursor over one response without its length.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads from the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        ensure!(count <= self.0.len(), "the response ends early");
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(taken)
    }

    fn i16(&mut self) -> Result<i16> {
        Ok(i16::from_be_bytes(self.take(2)?.try_into().expect("two bytes")))
    }

    /// The next four bytes as a number.
    pub fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    fn count(&mut self) -> Result<usize> {
        usize::try_from(self.i32()?).context("an array that may not be null is null")
    }

    fn string(&mut self) -> Result<&'a str> {
        let length = self.i16()?.max(0);
        let bytes = self.take(usize::try_from(length).expect("not negative"))?;
        Ok(std::str::from_utf8(bytes)?)
    }

    fn skip_i32s(&mut self) -> Result<()> {
        let count = self.count()?;
        self.take(count * 4).map(drop)
    }
}

/// The error code of a Produce response about one partition.
pub fn produce_error(reader: &mut Reader<'_>) -> Result<i16> {
    ensure!(reader.count()? == 1, "one topic was asked about");
    reader.string()?;
    ensure!(reader.count()? == 1, "one partition was asked about");
    reader.i32()?;
    reader.i16()
}

/// The error code of a DeleteRecords response about one partition.
pub fn delete_records_error(reader: &mut Reader<'_>) -> Result<i16> {
    reader.i32()?; // throttle time
    ensure!(reader.count()? == 1, "one topic was asked about");
    reader.string()?;
    ensure!(reader.count()? == 1, "one partition was asked about");
    reader.i32()?;
    reader.take(8)?;
    reader.i16()
}

/// How many partitions of each topic have a leader; topics with an error are left out.
pub fn led_partitions(reader: &mut Reader<'_>) -> Result<HashMap<String, usize>> {
    reader.i32()?; // throttle time
    for _ in 0..reader.count()? {
        reader.i32()?;
        reader.string()?;
        reader.i32()?;
        reader.string()?;
    }
    reader.string()?; // cluster id
    reader.i32()?; // controller
    let mut led = HashMap::new();
    for _ in 0..reader.count()? {
        let error = reader.i16()?;
        let name = reader.string()?.to_owned();
        reader.take(1)?;
        let count = led_of_topic(reader)?;
        if error == 0 {
            led.insert(name, count);
        }
    }
    Ok(led)
}

fn led_of_topic(reader: &mut Reader<'_>) -> Result<usize> {
    let mut led = 0;
    for _ in 0..reader.count()? {
        let error = reader.i16()?;
        reader.i32()?;
        let leader = reader.i32()?;
        reader.i32()?;
        (0..3).try_for_each(|_| reader.skip_i32s())?;
        led += usize::from(error == 0 && leader >= 0);
    }
    Ok(led)
}

/// `(topic, error code)` of a CreateTopics (`with_message`) or DeleteTopics response.
pub fn topic_errors(reader: &mut Reader<'_>, with_message: bool) -> Result<Vec<(String, i16)>> {
    reader.i32()?; // throttle time
    let mut errors = Vec::new();
    for _ in 0..reader.count()? {
        let name = reader.string()?.to_owned();
        let error = reader.i16()?;
        if with_message {
            reader.string()?;
        }
        errors.push((name, error));
    }
    Ok(errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_produce_error_is_found_behind_topic_and_partition() {
        let bytes = [0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 4, 0, 6, 0, 0];
        assert_eq!(produce_error(&mut Reader::new(&bytes)).unwrap(), 6);
    }

    #[test]
    fn a_cut_response_is_an_error() {
        let bytes = [0, 0, 0, 1, 0, 9, b't'];
        assert!(produce_error(&mut Reader::new(&bytes)).is_err());
    }

    #[test]
    fn a_null_message_reads_as_empty() {
        let bytes = [0, 0, 0, 0, 0, 0, 0, 1, 0, 1, b't', 0, 36, 255, 255];
        let errors = topic_errors(&mut Reader::new(&bytes), true).unwrap();
        assert_eq!(errors, vec![("t".to_owned(), 36)]);
    }
}
