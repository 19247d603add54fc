//! Reading the batches of a segment's file one after the other: headers only, or with every byte
//! checked.
//!
//! Not here: what to do about bytes that are no batch. A reader stops there and says why.

use std::io;

use model::batch::HEADER_BYTES;
use model::{BatchError, BatchHeader};

use crate::disk::DiskFile;

/// Bytes read at once when only headers matter.
const WALK_BYTES: usize = 4096;
/// Bytes read at once when everything is checked.
const SCAN_BYTES: usize = 1 << 20;

/// Why a reader stops before the end of the file.
#[derive(Debug)]
pub(crate) enum ScanError {
    /// The bytes at this position are no batch.
    Batch(BatchError),
    /// They cannot be read.
    Io(io::Error),
}

/// A batch met by a scan: its position, its header and all its bytes.
pub(crate) type Scanned<'a> = (u64, BatchHeader, &'a [u8]);

/// The headers of the batches between two positions of a file. Payloads are skipped, unread where
/// they are long.
pub(crate) struct HeaderWalk<'a> {
    file: &'a dyn DiskFile,
    /// Where the next batch begins.
    position: u64,
    /// Where the batches end.
    end: u64,
    buffer: [u8; WALK_BYTES],
    /// What part of the file is in the buffer.
    buffered: std::ops::Range<u64>,
}

impl<'a> HeaderWalk<'a> {
    /// Walks from the batch that begins at `position` to the one that ends at `end`.
    pub(crate) fn new(file: &'a dyn DiskFile, position: u64, end: u64) -> HeaderWalk<'a> {
        HeaderWalk { file, position, end, buffer: [0; WALK_BYTES], buffered: 0..0 }
    }

    /// Where the batch begins that [`HeaderWalk::next`] would read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next batch's position and header; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, BatchHeader)>, ScanError> {
        if self.position >= self.end {
            return Ok(None);
        }
        self.fill().map_err(ScanError::Io)?;
        let from = (self.position - self.buffered.start) as usize;
        let until = (self.buffered.end - self.buffered.start) as usize;
        let header = BatchHeader::decode(&self.buffer[from..until]).map_err(ScanError::Batch)?;
        let at = self.position;
        let available = self.end - at;
        if header.size_bytes as u64 > available {
            let needed = header.size_bytes as usize;
            let error = BatchError::Truncated { needed, available: available as usize };
            return Err(ScanError::Batch(error));
        }
        self.position += header.size_bytes as u64;
        Ok(Some((at, header)))
    }

    fn fill(&mut self) -> io::Result<()> {
        let header = self.position..(self.position + HEADER_BYTES as u64).min(self.end);
        if self.buffered.start <= header.start && header.end <= self.buffered.end {
            return Ok(());
        }
        let wanted = (self.end - self.position).min(WALK_BYTES as u64) as usize;
        let got = self.file.read_at(&mut self.buffer[..wanted], self.position)?;
        self.buffered = self.position..self.position + got as u64;
        Ok(())
    }
}

/// The batches between two positions of a file, whole, each checked against its checksum.
pub(crate) struct BatchScan<'a> {
    file: &'a dyn DiskFile,
    position: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Where in the file the buffer begins.
    buffer_at: u64,
}

impl<'a> BatchScan<'a> {
    /// Scans from the batch that begins at `position` up to `end`.
    pub(crate) fn new(file: &'a dyn DiskFile, position: u64, end: u64) -> BatchScan<'a> {
        BatchScan { file, position, end, buffer: Vec::new(), buffer_at: position }
    }

    /// Where the batch begins that [`BatchScan::next`] would read: after an error, where it is.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next batch with its position and bytes; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Scanned<'_>>, ScanError> {
        let Some(header) = self.buffer_next()? else { return Ok(None) };
        let from = (self.position - self.buffer_at) as usize;
        BatchHeader::decode_checked(&self.buffer[from..]).map_err(ScanError::Batch)?;
        Ok(Some(self.pass(header)))
    }

    /// As [`BatchScan::next`], but does not end at a batch whose checksum fails: it comes with that
    /// error, and nothing of it may be believed but where it ends.
    pub(crate) fn next_even_damaged(
        &mut self,
    ) -> Result<Option<(Scanned<'_>, Option<BatchError>)>, ScanError> {
        let Some(header) = self.buffer_next()? else { return Ok(None) };
        let from = (self.position - self.buffer_at) as usize;
        let damage = BatchHeader::decode_checked(&self.buffer[from..]).err();
        Ok(Some((self.pass(header), damage)))
    }

    /// Reads the whole next batch; its checksum is not looked at.
    fn buffer_next(&mut self) -> Result<Option<BatchHeader>, ScanError> {
        if self.position >= self.end {
            return Ok(None);
        }
        self.fill(HEADER_BYTES)?;
        let header = BatchHeader::decode(self.at_position()).map_err(ScanError::Batch)?;
        self.fill(header.size_bytes as usize)?;
        Ok(Some(header))
    }

    fn pass(&mut self, header: BatchHeader) -> Scanned<'_> {
        let at = self.position;
        let from = (at - self.buffer_at) as usize;
        self.position += u64::from(header.size_bytes);
        (at, header, &self.buffer[from..from + header.size_bytes as usize])
    }

    fn at_position(&self) -> &[u8] {
        &self.buffer[(self.position - self.buffer_at) as usize..]
    }

    /// Makes `needed` bytes from the position on available, or as many as there are. A length that
    /// goes beyond the file is refused before anything is allocated for it.
    fn fill(&mut self, needed: usize) -> Result<(), ScanError> {
        let have = (self.buffer_at + self.buffer.len() as u64).saturating_sub(self.position);
        if have >= needed as u64 {
            return Ok(());
        }
        let available = self.end - self.position;
        if needed as u64 > available {
            let available = available as usize;
            return Err(ScanError::Batch(BatchError::Truncated { needed, available }));
        }
        let wanted = available.min(needed.max(SCAN_BYTES) as u64) as usize;
        self.buffer.resize(wanted, 0);
        let got = self.file.read_at(&mut self.buffer, self.position).map_err(ScanError::Io)?;
        self.buffer.truncate(got);
        self.buffer_at = self.position;
        if got < needed {
            return Err(ScanError::Batch(BatchError::Truncated { needed, available: got }));
        }
        Ok(())
    }
}

/// Whether nothing but zeros stands between two positions of a file: written ahead of the batches, or a
/// write that never arrived.
pub(crate) fn only_zeros(file: &dyn DiskFile, position: u64, end: u64) -> io::Result<bool> {
    let mut buffer = [0u8; WALK_BYTES];
    let mut at = position;
    while at < end {
        let wanted = (end - at).min(WALK_BYTES as u64) as usize;
        let got = file.read_at(&mut buffer[..wanted], at)?;
        if got == 0 || buffer[..got].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += got as u64;
    }
    Ok(true)
}

/// Whether a valid batch begins anywhere in the file behind `position`: the difference between a
/// torn tail and damage in the middle.
pub(crate) fn valid_batch_behind(file: &dyn DiskFile, position: u64, end: u64) -> io::Result<bool> {
    Ok(next_batch_behind(file, position, end)?.is_some())
}

/// Where the next valid batch begins behind `position`; `None` if there is none before `end`.
pub(crate) fn next_batch_behind(
    file: &dyn DiskFile,
    position: u64,
    end: u64,
) -> io::Result<Option<u64>> {
    let mut from = position + 1;
    let mut buffer = vec![0u8; SCAN_BYTES];
    while from + HEADER_BYTES as u64 <= end {
        let wanted = (end - from).min(SCAN_BYTES as u64) as usize;
        let got = file.read_at(&mut buffer[..wanted], from)?;
        if got < HEADER_BYTES {
            break;
        }
        let starts = got - HEADER_BYTES + 1;
        for start in 0..starts {
            // The magic byte and the length first: they rule out nearly every position.
            let Ok(header) = BatchHeader::decode(&buffer[start..got]) else { continue };
            let at = from + start as u64;
            if at + header.size_bytes as u64 <= end && BatchScan::new(file, at, end).next().is_ok()
            {
                return Ok(Some(at));
            }
        }
        from += starts as u64;
    }
    Ok(None)
}
