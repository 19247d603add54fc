//! The generation of the quorum: a number that rises when an operator makes a new quorum of a survivor's metadata.
//!
//! ```text
//! {"version":1,"generation":1,"voters":[1,2,3],"crc":"9ae3b61f"}\n
//! ```
//!
//! The file `generation` in the metadata folder holds the number, and on the survivor the brokers that are to vote. Without the
//! file the number is 0. Nodes with metadata of different generations refuse each other.

use crate::store::checksum;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use storage::disk::Disk;

/// The newest version of the file that this code reads.
const VERSION: u16 = 1;
const NAME: &str = "generation";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GenerationFile {
    version: u16,
    /// Number of the generation.
    pub(crate) generation: u32,
    /// Brokers that vote once each of them has the metadata.
    pub(crate) voters: BTreeSet<i32>,
}

impl GenerationFile {
    pub(crate) fn new(generation: u32, voters: BTreeSet<i32>) -> GenerationFile {
        GenerationFile { version: VERSION, generation, voters }
    }

    /// Reads the file of a metadata folder; generation 0 without one. Fails if the file is damaged.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> io::Result<GenerationFile> {
        let path = dir.join(NAME);
        let bytes = match disk.read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(GenerationFile::default());
            }
            Err(error) => return Err(error),
        };
        let damaged = |reason: String| {
            let text = format!("{}: the file is damaged: {reason}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        checksum::check(&bytes, VERSION).map_err(damaged)?;
        serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))
    }

    /// Makes the file durable.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(self).map_err(io::Error::other)?;
        bytes.push(b'\n');
        checksum::seal(&mut bytes);
        disk.create_dir_all(dir)?;
        disk.write_atomically(&dir.join(NAME), &bytes)
    }
}

/// The generation of this node's metadata folder.
#[derive(Debug)]
pub struct Generation {
    /// [`UNDECIDED`] for a folder without metadata.
    number: AtomicU32,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

/// The generation that a node without metadata sends: it takes that of a node with metadata.
const UNDECIDED: u32 = link::ANY_GENERATION;

impl Generation {
    /// Reads the generation of the metadata folder `dir`, which need not exist.
    pub fn open(disk: Arc<dyn Disk>, dir: PathBuf) -> io::Result<Generation> {
        let has_metadata = match disk.list(&dir) {
            Ok(names) => names.iter().any(|name| {
                let is_log = name.ends_with(".log");
                name.ends_with(".checkpoint")
                    || (is_log && disk.size(&dir.join(name)).unwrap_or(1) > 0)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        let number = match GenerationFile::read(&*disk, &dir)?.generation {
            0 if !has_metadata => UNDECIDED,
            number => number,
        };
        Ok(Generation { number: AtomicU32::new(number), disk, dir })
    }

    /// The generation that this node sends. `has_entries`: the metadata log has an entry.
    pub fn number(&self, has_entries: bool) -> u32 {
        match self.number.load(Ordering::Acquire) {
            UNDECIDED if has_entries => 0,
            number => number,
        }
    }

    /// A node without metadata takes the generation of a node with metadata, durably. Nothing happens otherwise.
    pub fn adopt(&self, number: u32, has_entries: bool) -> io::Result<()> {
        if self.number(has_entries) != UNDECIDED || number == 0 || number == UNDECIDED {
            return Ok(());
        }
        GenerationFile::new(number, BTreeSet::new()).write(&*self.disk, &self.dir)?;
        self.number.store(number, Ordering::Release);
        Ok(())
    }

    /// The cluster id in messages between members: another one in each generation, so that none reaches a member of another.
    pub(crate) fn in_messages<'a>(&self, cluster_id: &'a str) -> Cow<'a, str> {
        match self.number.load(Ordering::Acquire) {
            0 | UNDECIDED => Cow::Borrowed(cluster_id),
            number => Cow::Owned(format!("{cluster_id} generation {number}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::disk::SimDisk;

    #[test]
    fn the_file_and_back_and_no_damaged_file_is_believed() {
        let disk = SimDisk::new();
        let dir = Path::new("/q");
        assert_eq!(GenerationFile::read(&disk, dir).unwrap().generation, 0);
        let file = GenerationFile::new(3, [1, 2].into());
        file.write(&disk, dir).unwrap();
        assert_eq!(GenerationFile::read(&disk, dir).unwrap(), file);
        let bytes = disk.read(&dir.join(NAME)).unwrap();
        for bit in 0..bytes.len() as u64 * 8 {
            let flipped = disk.snapshot();
            flipped.flip_bit(&dir.join(NAME), bit / 8, (bit % 8) as u8);
            assert!(GenerationFile::read(&flipped, dir).is_err(), "bit {bit}");
        }
    }
}
