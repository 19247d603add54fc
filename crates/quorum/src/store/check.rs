//! The log's files as they are found, walked before anything is opened or changed.
//!
//! Every entry must be whole and follow its predecessor: index by index, of leaders that do not fall back.
//! Where the first one stands that does not, the log ends, if a crash can have cut it off there; and a
//! crash cannot have if that entry was synced. Three things prove that it was: the recovery point in
//! `vote`, the note in `synced`, and an entry behind it that says so. An entry that merely stands
//! behind a damaged one proves nothing: of several that were not synced yet, a power failure keeps any.

use super::{RESTORE, refused};
use crate::raft::{LeaderId, LogId};
use crate::translation::raft_place;
use ledger::{Members, entry};
use model::BatchHeader;
use model::batch::HEADER_BYTES;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use storage::disk::Disk;

/// Offsets further on than this are no entry that could follow.
const AHEAD_MAX: u64 = 1 << 20;

/// What the log's files hold.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The index at which the first file begins; `None` if there is no file.
    pub(super) first: Option<u64>,
    /// The index behind the last whole entry.
    pub(super) next: u64,
    /// Below it every entry was synced, as the caller says.
    pub(super) synced_below: u64,
    /// Index and size in bytes of each entry.
    pub(super) sizes: VecDeque<(u64, u32)>,
    /// The first index of each leader's entries, in order.
    leaders: Vec<(u64, LeaderId)>,
    /// The newest entry that says who the members are.
    pub(super) members: Option<(u64, Members)>,
}

impl Found {
    /// The id of an entry that is there.
    pub(super) fn id(&self, index: u64) -> Option<LogId> {
        if self.first.is_none_or(|first| index < first) || index >= self.next {
            return None;
        }
        let after = self.leaders.partition_point(|(first, _)| *first <= index);
        self.leaders[..after].last().map(|(_, leader)| LogId::new(*leader, index))
    }
}

struct Walk<'a> {
    disk: &'a dyn Disk,
    /// The files by the index at which they begin.
    files: Vec<(u64, PathBuf)>,
    found: Found,
}

/// Why the entries end in the middle of a file.
struct Stop {
    file: usize,
    position: usize,
    reason: String,
}

/// Walks the log's files in `dir`. Fails if an entry below `synced_below`, or one that a later entry
/// proves to have been synced, is damaged or missing. Changes nothing. A log that goes on behind a snapshot,
/// at `purged_next`, has no file before its first entry.
pub(super) fn check(
    disk: &dyn Disk,
    dir: &Path,
    synced_below: u64,
    purged_next: u64,
) -> io::Result<Found> {
    let files = files(disk, dir)?;
    let first = files.first().map(|(first, _)| *first);
    let found = Found { first, synced_below, ..Found::default() };
    let mut walk = Walk { disk, files, found };
    walk.found.next = walk.found.first.unwrap_or(purged_next);
    if let Some(stop) = walk.run()? {
        walk.check_cut(&stop)?;
    } else if walk.found.next < synced_below {
        let next = walk.found.next;
        let last = synced_below - 1;
        let reason =
            format_args!("the metadata log ends before entry {next}, and entry {last} was synced");
        return Err(refused(dir, reason, RESTORE));
    }
    Ok(walk.found)
}

pub(super) fn files(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let names = match disk.list(dir) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let base =
        |name: &String| name.strip_suffix(".log").filter(|digits| digits.len() == 20)?.parse().ok();
    Ok(names.iter().filter_map(|name| Some((base(name)?, dir.join(name)))).collect())
}

impl Walk<'_> {
    fn run(&mut self) -> io::Result<Option<Stop>> {
        for file in 0..self.files.len() {
            let (base, path) = &self.files[file];
            if *base != self.found.next {
                let reason = format!("the next file begins at entry {base}");
                let position = self.disk.size(&self.files[file - 1].1)? as usize;
                return Ok(Some(Stop { file: file - 1, position, reason }));
            }
            let bytes = self.disk.read(path)?;
            let mut position = 0;
            while position < bytes.len() {
                match self.take_in(&bytes[position..]) {
                    Ok(size_bytes) => position += size_bytes,
                    Err(reason) => return Ok(Some(Stop { file, position, reason })),
                }
            }
        }
        Ok(None)
    }

    /// Takes in the entry that is due; returns its bytes.
    fn take_in(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let header = BatchHeader::decode_checked(bytes).map_err(|error| error.to_string())?;
        let size = header.size_bytes;
        let stamp =
            entry::stamp(&header, &bytes[..size as usize]).map_err(|error| error.to_string())?;
        let id = raft_place(stamp.place);
        if id.index != self.found.next || header.next_offset().0 as u64 != self.found.next + 1 {
            return Err(format!("it says that it is entry {}", id.index));
        }
        let leader = id.leader_id;
        match self.found.leaders.last() {
            Some((_, last)) if *last == leader => {}
            Some((_, last)) if (last.term, last.node_id) > (leader.term, leader.node_id) => {
                return Err(format!("its leader {leader} follows leader {last}"));
            }
            _ => self.found.leaders.push((id.index, leader)),
        }
        self.found.sizes.push_back((id.index, size));
        if let Some(members) = stamp.members {
            self.found.members = Some((id.index, members));
        }
        self.found.next += 1;
        Ok(size as usize)
    }

    /// Fails if the entry that is damaged was synced.
    fn check_cut(&self, stop: &Stop) -> io::Result<()> {
        let index = self.found.next;
        let proof = match index < self.found.synced_below {
            true => Some("it was synced before the last stop".to_owned()),
            false => self
                .find_proof(stop)?
                .map(|later| format!("entry {later} behind it says that it was synced")),
        };
        let Some(proof) = proof else { return Ok(()) };
        let Stop { file, position, reason } = stop;
        let place =
            format_args!("entry {index} at byte {position} is damaged ({reason}), and {proof}");
        Err(refused(&self.files[*file].1, place, RESTORE))
    }

    /// A whole entry behind the damage that says that the damaged one was synced.
    fn find_proof(&self, stop: &Stop) -> io::Result<Option<u64>> {
        for (number, (_, path)) in self.files.iter().enumerate().skip(stop.file) {
            let bytes = self.disk.read(path)?;
            let mut from = if number == stop.file { stop.position + 1 } else { 0 };
            while let Some((position, stamp)) = self.next_whole(&bytes, from) {
                if !stamp.tells_synced || stamp.synced >= Some(self.found.next) {
                    return Ok(Some(stamp.place.index));
                }
                from = position + HEADER_BYTES;
            }
        }
        Ok(None)
    }

    /// A whole entry at or behind `from` that could stand behind those that were taken in.
    fn next_whole(&self, bytes: &[u8], from: usize) -> Option<(usize, entry::Stamp)> {
        let last = bytes.len().checked_sub(HEADER_BYTES)?;
        (from..=last).find_map(|position| {
            let rest = &bytes[position..];
            let index = u64::from_be_bytes(rest[..8].try_into().expect("eight bytes"));
            let ahead = self.found.next + 1..self.found.next.saturating_add(AHEAD_MAX);
            let header =
                ahead.contains(&index).then(|| BatchHeader::decode_checked(rest).ok())??;
            let stamp = entry::stamp(&header, &rest[..header.size_bytes as usize]).ok()?;
            Some((position, stamp))
        })
    }
}
