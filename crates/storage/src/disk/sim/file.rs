//! One file of the simulated disk: what is seen, what is durable, and what lies between.

use std::io;
use std::sync::Arc;

use model::Timestamp;
use rustix::io::Errno;

use super::SECTOR_BYTES;
use super::seed::{Seed, mix};

/// A change since the last sync. Its number counts from 1; version 0 is the durable state.
#[derive(Clone, Debug)]
enum Change {
    Write { position: usize, bytes: Arc<[u8]> },
    Truncate { size: usize },
}

impl Change {
    fn size_after(&self, size: usize) -> usize {
        match self {
            Change::Write { position, bytes } => size.max(position + bytes.len()),
            Change::Truncate { size } => *size,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct SimContent {
    /// What a reader sees.
    content: Vec<u8>,
    /// What a power failure cannot take. May lack bytes of `content` that are not pending either:
    /// those that a failed sync lost.
    durable: Vec<u8>,
    /// What the next sync makes durable, oldest first.
    pending: Vec<Change>,
    /// Where preallocated room ends, if behind the content.
    reserved: usize,
    /// When the content was last changed, by the disk's clock.
    modified: Option<Timestamp>,
}

impl SimContent {
    pub(super) fn modified(&self) -> Timestamp {
        self.modified.unwrap_or(Timestamp::NONE)
    }

    pub(super) fn set_modified(&mut self, time: Timestamp) {
        self.modified = Some(time);
    }

    pub(super) fn content(&self) -> &[u8] {
        &self.content
    }

    /// Whether a power failure leaves it as it is.
    pub(super) fn is_durable(&self) -> bool {
        self.pending.is_empty() && self.reserved == 0 && self.content == self.durable
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.content.len().max(self.reserved) as u64
    }

    pub(super) fn read(&self, buffer: &mut [u8], position: u64) -> usize {
        let start = (position as usize).min(self.content.len());
        let available = &self.content[start..];
        let length = available.len().min(buffer.len());
        buffer[..length].copy_from_slice(&available[..length]);
        length
    }

    /// How many of `length` bytes at `position` may be written if the device has `room` bytes more.
    pub(super) fn fitting_bytes(&self, position: u64, length: usize, room: u64) -> usize {
        let end = self.allocated_bytes().saturating_add(room);
        length.min(end.saturating_sub(position) as usize)
    }

    pub(super) fn write(&mut self, bytes: &[u8], position: u64) {
        if bytes.is_empty() {
            return;
        }
        let position = position as usize;
        put(&mut self.content, position, bytes);
        self.pending.push(Change::Write { position, bytes: bytes.into() });
    }

    pub(super) fn truncate(&mut self, size: u64) {
        let size = size as usize;
        self.content.resize(size, 0);
        self.reserved = 0;
        self.pending.push(Change::Truncate { size });
    }

    pub(super) fn preallocate(&mut self, end: u64, room: u64) -> io::Result<()> {
        if end.saturating_sub(self.allocated_bytes()) > room {
            return Err(Errno::NOSPC.into());
        }
        self.reserved = self.reserved.max(end as usize);
        Ok(())
    }

    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            match change {
                Change::Write { position, bytes } => put(&mut self.durable, position, &bytes),
                Change::Truncate { size } => self.durable.resize(size, 0),
            }
        }
    }

    /// What a failed sync leaves: sizes are in the file system's journal and stay, data is gone.
    pub(super) fn lose_pending(&mut self) {
        for change in self.pending.drain(..) {
            let size = change.size_after(self.durable.len());
            self.durable.resize(size, 0);
        }
    }

    pub(super) fn flip_bit(&mut self, position: u64, bit: u8) {
        let position = position as usize;
        self.content[position] ^= 1 << bit;
        if let Some(byte) = self.durable.get_mut(position) {
            *byte ^= 1 << bit;
        }
    }

    /// The file as a machine finds it that comes up after a power failure.
    pub(super) fn after_crash(&self, seed: &mut Seed) -> SimContent {
        let survived = match seed.below(6) {
            _ if self.pending.is_empty() => self.durable.clone(),
            0 => self.durable.clone(),
            1 => self.with_changes(self.pending.len(), |_| self.pending.len()),
            2 | 3 => self.with_torn_end(seed),
            _ => self.with_any_sectors(seed),
        };
        let (content, modified) = (survived.clone(), self.modified);
        SimContent { content, durable: survived, modified, ..SimContent::default() }
    }

    /// Some changes, oldest first, and the first sectors of the next one.
    fn with_torn_end(&self, seed: &mut Seed) -> Vec<u8> {
        let whole = seed.below(self.pending.len());
        let Change::Write { position, bytes } = &self.pending[whole] else {
            return self.with_changes(whole, |_| whole);
        };
        let first = position / SECTOR_BYTES;
        let last = (position + bytes.len()).div_ceil(SECTOR_BYTES);
        let cut = (first + seed.below(last - first + 1)) * SECTOR_BYTES;
        let mut survived = self.with_changes(whole, |_| whole);
        let written = cut.saturating_sub(*position).min(bytes.len());
        if written > 0 {
            put(&mut survived, *position, &bytes[..written]);
        }
        survived
    }

    /// Every sector, and the size, as of a moment of its own.
    fn with_any_sectors(&self, seed: &mut Seed) -> Vec<u8> {
        let versions = self.pending.len() + 1;
        let (size_version, salt) = (seed.below(versions), seed.next());
        // Half of the time most sectors made it, so that single ones are missing.
        let mostly_new = seed.below(2) == 0;
        self.with_changes(size_version, |sector| {
            let choice = mix(salt ^ sector as u64);
            if mostly_new && !choice.is_multiple_of(8) {
                return versions - 1;
            }
            ((choice >> 8) % versions as u64) as usize
        })
    }

    /// The file with its size as of version `size_version` and each sector as of the version that
    /// `version` gives. Of what a truncation removed nothing comes back if the size is younger
    /// than the truncation: no file system hands out freed blocks.
    fn with_changes(&self, size_version: usize, version: impl Fn(usize) -> usize) -> Vec<u8> {
        let mut survived = self.durable.clone();
        let mut size = survived.len();
        for (change, number) in self.pending.iter().zip(1..) {
            match change {
                Change::Write { position, bytes } => {
                    put_sectors(&mut survived, *position, bytes, |s| number <= version(s));
                }
                Change::Truncate { size } => {
                    clear_sectors(&mut survived, *size, |s| number <= version(s).max(size_version));
                }
            }
            if number <= size_version {
                size = change.size_after(size);
            }
        }
        survived.resize(size, 0);
        survived
    }
}

/// Writes over `file`, with zeros in a gap before `position`.
fn put(file: &mut Vec<u8>, position: usize, bytes: &[u8]) {
    let end = position + bytes.len();
    if position == file.len() {
        file.extend_from_slice(bytes);
        return;
    }
    if file.len() < end {
        file.resize(end, 0);
    }
    file[position..end].copy_from_slice(bytes);
}

/// Writes those sectors of `bytes` that are `kept`.
fn put_sectors(file: &mut Vec<u8>, position: usize, bytes: &[u8], kept: impl Fn(usize) -> bool) {
    let (mut from, end) = (position, position + bytes.len());
    while from < end {
        let sector = from / SECTOR_BYTES;
        let to = ((sector + 1) * SECTOR_BYTES).min(end);
        if kept(sector) {
            put(file, from, &bytes[from - position..to - position]);
        }
        from = to;
    }
}

/// Zeroes what lies behind `size` in those sectors that are `cleared`.
fn clear_sectors(file: &mut [u8], size: usize, cleared: impl Fn(usize) -> bool) {
    let mut from = size;
    while from < file.len() {
        let sector = from / SECTOR_BYTES;
        let to = ((sector + 1) * SECTOR_BYTES).min(file.len());
        if cleared(sector) {
            file[from..to].fill(0);
        }
        from = to;
    }
}
