//! Appending to the journal from several threads, with one sync for all who wait for one.
//!
//! Appending is a write under a short lock. Who needs an entry durable calls [`Journal::sync`]: one
//! of those who wait syncs for all, without that lock. No caller waits for [`Journal::note_synced`].
//!
//! A new snapshot is written beside, while frames are appended and synced; only when both files get their
//! names does everybody wait.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use model::{BrokerEpoch, LeaderEpoch, Offset, Timestamp, Uuid, later_release};
use parking_lot::{Mutex, MutexGuard};

use super::entry::{Entry, EntryWriter, Fact, Key};
use super::frames::{self, FRAME_BYTES, HEAD_BYTES};
use super::load::{JOURNAL, SNAPSHOT, load};
use super::snapshot;
use super::state::{PartitionState, State};
use crate::StorageError;
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{Context, found_no_room};
use crate::meta_properties::MetaProperties;

/// A journal below this size is not worth a new snapshot.
const JOURNAL_BYTES_MIN: u64 = 1 << 20;
/// Rounds of synced offsets share one frame while they are of no more partitions than this.
const SHARED_ROUND_MAX: usize = 64;

/// The journal of one log directory, open for writing. May be used by several threads.
#[derive(Debug)]
pub struct Journal {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    writer: Mutex<Writer>,
    /// Held by the thread that writes a snapshot; taken before the others.
    rewriting: Mutex<()>,
    /// Whether `writer` is held, or about to be, by a thread that waits for the disk.
    replacing: AtomicBool,
    /// Held by the thread that syncs; taken before `writer`.
    syncing: Mutex<()>,
    /// The last seq that is durable.
    durable: AtomicU64,
    /// Synced offsets that are not written yet.
    noted: Mutex<BTreeMap<Key, Offset>>,
    /// Leader epochs that began below them, and are not written yet.
    noted_epochs: Mutex<Vec<(Key, LeaderEpoch, Offset)>>,
}

#[derive(Debug)]
struct Writer {
    state: State,
    /// Level of the directory's journal. Invariant: at most the level in `meta.properties`.
    level: u8,
    /// Id of the log directory, which each frame names; `None` if `meta.properties` has no copy in the journal.
    directory: Option<Uuid>,
    file: Arc<dyn DiskFile>,
    /// Where the next frame goes.
    position: u64,
    /// The seq of the last frame.
    seq: u64,
    snapshot: Arc<dyn DiskFile>,
    snapshot_bytes: u64,
    /// Which slot of the snapshot is written next.
    slot: usize,
    /// The last frame, if it holds nothing but synced offsets and no sync has begun since: it may be
    /// written again with newer ones.
    round: Option<Round>,
    /// Why nothing is written any more, if so.
    failed: Option<String>,
}

#[derive(Debug)]
struct Round {
    position: u64,
    synced: BTreeMap<Key, Offset>,
}

impl Journal {
    /// Opens the journal of the log directory `dir`; `None` if there is none. `witnessed`: another
    /// file says that there is one.
    ///
    /// Fails with [`StorageError::Malformed`] if it is damaged or gone; nothing is changed then.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        witnessed: bool,
    ) -> Result<Option<Journal>, StorageError> {
        let Some(loaded) = load(&*disk, dir, witnessed)? else { return Ok(None) };
        if !loaded.continues {
            // Behind what is cut nothing may be written: old frames could follow new ones.
            return Journal::begin(disk, dir, loaded.state, loaded.seq + 1).map(Some);
        }
        // A process that died may have left names that only the page cache knows. What is synced from
        // here on must be found under them.
        disk.sync_dir(dir).during("sync", dir)?;
        let open = |name: &str| {
            let path = dir.join(name);
            disk.open_essential(&path, OpenMode::ReadWrite).during("open", &path)
        };
        let (file, snapshot) = (open(JOURNAL)?, open(SNAPSHOT)?);
        let (snapshot_bytes, position) = loaded.size_bytes;
        write_again(&*file, loaded.durable_bytes, position).during("write", &dir.join(JOURNAL))?;
        let writer = Writer {
            level: loaded.state.level(),
            directory: loaded.state.directory(),
            state: loaded.state,
            file,
            position,
            seq: loaded.seq,
            snapshot,
            snapshot_bytes,
            slot: 0,
            round: None,
            failed: None,
        };
        // Frames that a dead process left in the page cache are durable with the next sync.
        Ok(Some(Journal::of(disk, dir, writer, loaded.durable)))
    }

    /// Makes the journal of a log directory that has none, durably.
    pub fn create(disk: Arc<dyn Disk>, dir: &Path, state: State) -> Result<Journal, StorageError> {
        Journal::begin(disk, dir, state, 0)
    }

    fn begin(
        disk: Arc<dyn Disk>,
        dir: &Path,
        state: State,
        seq: u64,
    ) -> Result<Journal, StorageError> {
        let files = Files::prepare(&*disk, dir, &state, seq)?.publish(&*disk, dir)?;
        let writer = Writer {
            level: state.level(),
            directory: state.directory(),
            state,
            file: files.journal,
            position: HEAD_BYTES as u64,
            seq,
            snapshot: files.snapshot,
            snapshot_bytes: files.snapshot_bytes,
            slot: 0,
            round: None,
            failed: None,
        };
        Ok(Journal::of(disk, dir, writer, seq))
    }

    fn of(disk: Arc<dyn Disk>, dir: &Path, writer: Writer, durable: u64) -> Journal {
        Journal {
            disk,
            dir: dir.to_owned(),
            writer: Mutex::new(writer),
            rewriting: Mutex::default(),
            replacing: AtomicBool::new(false),
            syncing: Mutex::default(),
            durable: AtomicU64::new(durable),
            noted: Mutex::default(),
            noted_epochs: Mutex::default(),
        }
    }

    /// Lets `look` read what is known: what was appended, durable or not.
    pub fn with_state<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.writer.lock().state)
    }

    /// Level of the journal: entries above it are neither written nor applied.
    pub fn level(&self) -> u8 {
        self.writer.lock().level
    }

    /// Raises the level of the journal to that of `meta`, which must be durable in `meta.properties`
    /// before, and replaces the copy of that file in a new snapshot. The level never falls.
    pub fn raise_level(&self, meta: &MetaProperties) -> Result<(), StorageError> {
        {
            let mut writer = self.writer.lock();
            writer.level = writer.level.max(meta.journal_level);
            let copy = meta.encode().into_bytes();
            if writer.state.meta == copy {
                return Ok(());
            }
            writer.state.meta = copy;
        }
        self.rewrite()
    }

    /// What is known of one partition.
    pub fn partition(&self, key: &Key) -> Option<Arc<PartitionState>> {
        self.with_state(|state| state.partitions.get(key).cloned())
    }

    /// Appends entries, not durably: the next sync carries them. Entries about partitions that are
    /// not known (any more) are left out. Returns the seq to be given to [`Journal::sync`].
    ///
    /// Fails with [`StorageError::Io`]. On a full disk nothing was appended, and it may be tried
    /// again; any other failure is final.
    pub fn append(&self, entries: &[Entry]) -> Result<u64, StorageError> {
        let mut writer = self.writer.lock();
        self.write_noted(&mut writer)?;
        self.write(&mut writer, entries)?;
        Ok(writer.seq)
    }

    /// Appends entries and makes them durable, with all that was appended before.
    pub fn commit(&self, entries: &[Entry]) -> Result<(), StorageError> {
        let seq = self.append(entries)?;
        self.sync(seq)
    }

    /// Commits entries computed from the current state, under the writer's lock: no other entry comes in between. Does nothing for
    /// an empty list.
    pub fn commit_with(
        &self,
        entries: impl FnOnce(&State) -> Vec<Entry>,
    ) -> Result<(), StorageError> {
        match self.write_with(entries)? {
            Some(seq) => self.sync(seq),
            None => Ok(()),
        }
    }

    /// Appends entries computed likewise, not durably: the next sync carries them.
    pub fn append_with(
        &self,
        entries: impl FnOnce(&State) -> Vec<Entry>,
    ) -> Result<(), StorageError> {
        self.write_with(entries).map(drop)
    }

    /// Returns the seq of the last frame; `None` if there was nothing to write.
    fn write_with(
        &self,
        entries: impl FnOnce(&State) -> Vec<Entry>,
    ) -> Result<Option<u64>, StorageError> {
        let mut writer = self.writer.lock();
        self.write_noted(&mut writer)?;
        let entries = entries(&writer.state);
        if entries.is_empty() {
            return Ok(None);
        }
        self.write(&mut writer, &entries)?;
        Ok(Some(writer.seq))
    }

    /// Remembers that everything below these offsets is synced: written before those are told who waited
    /// for that, carried by the next sync of the journal. Cheap; never waits for the disk. While files get
    /// their names, which takes syncs, it is written behind that.
    pub fn note_synced(
        &self,
        synced: impl IntoIterator<Item = (Key, Offset)>,
    ) -> Result<(), StorageError> {
        self.noted.lock().extend(synced);
        let mut writer = match self.replacing.load(Ordering::Acquire) {
            false => self.writer.lock(),
            true => match self.writer.try_lock() {
                Some(writer) => writer,
                // The next one who writes takes it along.
                None => return Ok(()),
            },
        };
        self.write_noted(&mut writer)
    }

    /// Remembers where leader epochs began: written before the synced offsets that are noted next, and
    /// again if that fails.
    pub fn note_epochs(&self, epochs: impl IntoIterator<Item = (Key, LeaderEpoch, Offset)>) {
        self.noted_epochs.lock().extend(epochs);
    }

    /// Makes everything up to the frame `seq` durable. Waits for a sync that is under way, and then
    /// does one for all who wait.
    pub fn sync(&self, seq: u64) -> Result<(), StorageError> {
        while self.durable.load(Ordering::Acquire) < seq {
            let _turn = self.syncing.lock();
            if self.durable.load(Ordering::Acquire) < seq {
                self.sync_all()?;
            }
        }
        Ok(())
    }

    fn sync_all(&self) -> Result<(), StorageError> {
        let (file, up_to) = {
            let mut writer = self.usable()?;
            self.write_noted(&mut writer)?;
            // What this sync is to make durable must not be written over.
            writer.round = None;
            (Arc::clone(&writer.file), writer.seq)
        };
        let result = file.sync().during("sync", &self.dir.join(JOURNAL));
        let mut writer = self.usable()?;
        result.map_err(|error| writer.fail(error))?;
        self.durable.fetch_max(up_to, Ordering::AcqRel);
        self.note_durable(&mut writer, up_to)
    }

    /// Writes into the snapshot up to which frame the journal is durable.
    fn note_durable(&self, writer: &mut Writer, up_to: u64) -> Result<(), StorageError> {
        let (slot, path) = (writer.slot, self.dir.join(SNAPSHOT));
        writer.slot = slot + 1;
        let bytes = snapshot::encode_slot(slot, up_to);
        let noted = writer.snapshot.write_all_at(&bytes, snapshot::slot_position(slot));
        match noted.during("write", &path) {
            // An older number there notices less, and says nothing that is not true.
            Err(error) if is_full(&error) => Ok(()),
            result => result.map_err(|error| writer.fail(error)),
        }
    }

    /// What is to be done now and then, say once a second: syncs what was appended, and begins a new
    /// snapshot when the journal is larger than the last one and than 1 MiB.
    pub fn maintain(&self) -> Result<(), StorageError> {
        let (seq, due) = {
            let mut writer = self.writer.lock();
            self.write_noted(&mut writer)?;
            let due = writer.position > writer.snapshot_bytes.max(JOURNAL_BYTES_MIN);
            (writer.seq, due)
        };
        self.sync(seq)?;
        if due { self.rewrite() } else { Ok(()) }
    }

    /// Writes a snapshot of all that is known, durably, and begins a new journal behind it. Others append
    /// and commit meanwhile: their frames move into the new journal.
    pub fn rewrite(&self) -> Result<(), StorageError> {
        let _one = self.rewriting.lock();
        let (state, seq, position) = {
            let mut writer = self.usable()?;
            self.write_noted(&mut writer)?;
            // What the snapshot says must not be written over.
            writer.round = None;
            (writer.state.clone(), writer.seq, writer.position)
        };
        let prepared = Files::prepare_snapshot(&*self.disk, &self.dir, &state, seq);
        drop(state);
        let replaced = self.replace_journal(prepared, seq, position);
        if replaced.as_ref().is_err_and(StorageError::is_full) {
            // A disk without room is not to be filled by what came to nothing.
            for name in [SNAPSHOT, JOURNAL] {
                let _ = self.disk.remove_file(&aside(&self.dir, name));
            }
        }
        // What was noted meanwhile was left to the next one who writes.
        let written = self.write_noted(&mut self.writer.lock());
        replaced.and(written)
    }

    /// Begins a new journal behind a prepared snapshot, which holds what the frames up to `seq` say, with the frames from
    /// this position on.
    fn replace_journal(
        &self,
        prepared: Result<(Arc<dyn DiskFile>, u64), StorageError>,
        seq: u64,
        position: u64,
    ) -> Result<(), StorageError> {
        let _turn = self.syncing.lock();
        let _replacing = Replacing::begin(&self.replacing);
        let mut writer = self.usable()?;
        self.write_noted(&mut writer)?;
        let behind = frames_from(&writer, position).during("read", &self.dir.join(JOURNAL));
        let frames = behind.map_err(|error| writer.fail(error))?;
        let prepared = prepared.and_then(|(snapshot, snapshot_bytes)| {
            let bytes = [frames::encode_head(seq), frames].concat();
            let journal = write_aside(&*self.disk, &aside(&self.dir, JOURNAL), &bytes)?;
            Ok((Files { snapshot, snapshot_bytes, journal }, bytes.len() as u64))
        });
        let last = writer.seq;
        self.replace(&mut writer, prepared, last)?;
        self.note_durable(&mut writer, last)
    }

    /// Stops: takes the last entries in and writes the snapshot that says that the stop was clean.
    /// Nothing may be appended afterwards.
    pub fn close(
        &self,
        entries: &[Entry],
        broker_epoch: BrokerEpoch,
        at: Timestamp,
    ) -> Result<(), StorageError> {
        let _one = self.rewriting.lock();
        let _turn = self.syncing.lock();
        let _replacing = Replacing::begin(&self.replacing);
        let mut writer = self.usable()?;
        self.write_noted(&mut writer)?;
        for entry in writer.state.concerning(entries, writer.level) {
            writer.state.apply(entry).expect("the entry concerns what is known");
        }
        (writer.state.closed, writer.state.at) = (true, at);
        writer.state.broker_epoch = Some(broker_epoch);
        self.begin_anew(&mut writer)
    }

    fn begin_anew(&self, writer: &mut Writer) -> Result<(), StorageError> {
        // A seq of its own: frames of the old journal are never taken for news behind the snapshot.
        let seq = writer.seq + 1;
        let prepared = Files::prepare(&*self.disk, &self.dir, &writer.state, seq);
        self.replace(writer, prepared.map(|files| (files, HEAD_BYTES as u64)), seq)
    }

    /// Puts new files in the place of the old ones, and goes on behind the frame `seq`, where the new
    /// journal, which is durable, has so many bytes.
    fn replace(
        &self,
        writer: &mut Writer,
        prepared: Result<(Files, u64), StorageError>,
        seq: u64,
    ) -> Result<(), StorageError> {
        let (prepared, position) = match prepared {
            Ok(prepared) => prepared,
            Err(error) if is_full(&error) => return Err(error),
            Err(error) => return Err(writer.fail(error)),
        };
        let files = match prepared.publish(&*self.disk, &self.dir) {
            Ok(files) => files,
            // One of the two may have its name already: nothing may be appended to the old one.
            Err(error) => return Err(writer.fail(error)),
        };
        (writer.file, writer.position) = (files.journal, position);
        (writer.snapshot, writer.snapshot_bytes) = (files.snapshot, files.snapshot_bytes);
        (writer.seq, writer.slot, writer.round) = (seq, 0, None);
        self.durable.store(seq, Ordering::Release);
        Ok(())
    }

    fn usable(&self) -> Result<MutexGuard<'_, Writer>, StorageError> {
        let writer = self.writer.lock();
        writer.usable(&self.dir)?;
        Ok(writer)
    }

    /// Writes the synced offsets that were noted: over the last frame if that holds nothing else and
    /// nobody relies on it yet, so that a busy directory's journal does not grow with every round.
    fn write_noted(&self, writer: &mut Writer) -> Result<(), StorageError> {
        // An epoch is noted before the offsets above its start: taken the other way round, offsets that are
        // noted in between would be written without it.
        let mut synced = std::mem::take(&mut *self.noted.lock());
        if let Err(error) = self.write_noted_epochs(writer) {
            let mut noted = self.noted.lock();
            for (key, offset) in synced {
                noted.entry(key).or_insert(offset);
            }
            return Err(error);
        }
        synced.retain(|key, offset| writer.state.knows_less(key, *offset));
        if synced.is_empty() {
            return Ok(());
        }
        if let Some(round) = writer.round.take()
            && round.synced.len() + synced.len() <= SHARED_ROUND_MAX
        {
            for (key, offset) in round.synced {
                synced.entry(key).or_insert(offset);
            }
            (writer.position, writer.seq) = (round.position, writer.seq - 1);
        }
        let position = writer.position;
        let fact = |(key, offset): (&Key, &Offset)| Entry::Of(*key, Fact::Synced(*offset));
        let entries: Vec<Entry> = synced.iter().map(fact).collect();
        self.write(writer, &entries)?;
        if synced.len() <= SHARED_ROUND_MAX {
            writer.round = Some(Round { position, synced });
        }
        Ok(())
    }

    /// Writes the leader epochs that were noted. They stay noted if that fails: a synced offset that is
    /// written without them would say that those before them last.
    fn write_noted_epochs(&self, writer: &mut Writer) -> Result<(), StorageError> {
        let mut noted = std::mem::take(&mut *self.noted_epochs.lock());
        noted.retain(|(key, epoch, _)| writer.state.knows_no_such_epoch(key, *epoch));
        if noted.is_empty() {
            return Ok(());
        }
        let entry = |(key, epoch, start): &_| Entry::Of(*key, Fact::Epoch(*epoch, *start));
        let entries: Vec<Entry> = noted.iter().map(entry).collect();
        let written = self.write(writer, &entries);
        if written.is_err() {
            self.noted_epochs.lock().splice(0..0, noted);
        }
        written
    }

    /// Writes frames of these entries behind the last one, and takes them in once they are written.
    fn write(&self, writer: &mut Writer, entries: &[Entry]) -> Result<(), StorageError> {
        writer.usable(&self.dir)?;
        let entries = writer.state.concerning(entries, writer.level);
        if entries.is_empty() {
            return Ok(());
        }
        let durable = self.durable.load(Ordering::Acquire);
        let (bytes, seq) = writer.frames_of(&entries, durable);
        let path = self.dir.join(JOURNAL);
        if let Err(error) = writer.file.write_all_at(&bytes, writer.position).during("write", &path)
        {
            let cut = writer.file.truncate(writer.position);
            // A frame that was written whole, of those that were not, must not be read one day.
            return Err(if is_full(&error) && cut.is_ok() { error } else { writer.fail(error) });
        }
        writer.position += bytes.len() as u64;
        (writer.seq, writer.round) = (seq, None);
        for entry in entries {
            writer.state.apply(entry).expect("the entry concerns what is known");
        }
        Ok(())
    }
}

/// Writes what a file has between two positions over itself. After a sync that failed the kernel takes the pages of what a dead process
/// has written for clean: the next sync would succeed without them, and call frames durable that the device does not have.
fn write_again(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<()> {
    if from >= to {
        return Ok(());
    }
    file.write_all_at(&bytes_between(file, from, to)?, from)
}

fn bytes_between(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (to - from) as usize];
    match file.read_at(&mut bytes, from)? == bytes.len() {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// For as long as a thread that waits for the disk holds the writer.
struct Replacing<'a>(&'a AtomicBool);

impl Replacing<'_> {
    fn begin(replacing: &AtomicBool) -> Replacing<'_> {
        replacing.store(true, Ordering::Release);
        Replacing(replacing)
    }
}

impl Drop for Replacing<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Writer {
    fn usable(&self, dir: &Path) -> Result<(), StorageError> {
        match &self.failed {
            None => Ok(()),
            Some(reason) => {
                Err(StorageError::Failed { dir: dir.to_owned(), reason: reason.clone() })
            }
        }
    }

    /// Frames of these entries behind the last frame, and the number of the last one of them.
    fn frames_of(&self, entries: &[&Entry], durable: u64) -> (Vec<u8>, u64) {
        let begin = || EntryWriter::of_directory(self.directory);
        let (mut out, mut frame, mut seq) = (Vec::new(), begin(), self.seq);
        for (number, entry) in entries.iter().enumerate() {
            frame.put(entry);
            if frame.bytes.len() >= FRAME_BYTES || number + 1 == entries.len() {
                seq += 1;
                if later_release::is_played() {
                    frame.put_later(self.level);
                }
                frames::encode_frame(seq, durable, &frame.bytes, &mut out);
                frame = begin();
            }
        }
        (out, seq)
    }

    /// Makes a failure final: what the files hold is not known any more.
    fn fail(&mut self, error: StorageError) -> StorageError {
        self.failed.get_or_insert_with(|| error.to_string());
        error
    }
}

/// The bytes of the frames from a position on.
fn frames_from(writer: &Writer, position: u64) -> io::Result<Vec<u8>> {
    bytes_between(&*writer.file, position, writer.position)
}

fn is_full(error: &StorageError) -> bool {
    matches!(error, StorageError::Io { source, .. } if found_no_room(source))
}

/// A new snapshot and the empty journal behind it.
struct Files {
    snapshot: Arc<dyn DiskFile>,
    snapshot_bytes: u64,
    journal: Arc<dyn DiskFile>,
}

impl Files {
    /// Writes both under temporary names, durably.
    fn prepare(
        disk: &dyn Disk,
        dir: &Path,
        state: &State,
        seq: u64,
    ) -> Result<Files, StorageError> {
        let (snapshot, snapshot_bytes) = Files::prepare_snapshot(disk, dir, state, seq)?;
        let journal = write_aside(disk, &aside(dir, JOURNAL), &frames::encode_head(seq))?;
        Ok(Files { snapshot, snapshot_bytes, journal })
    }

    /// Writes a snapshot under a temporary name, durably. Returns the file and its bytes.
    fn prepare_snapshot(
        disk: &dyn Disk,
        dir: &Path,
        state: &State,
        seq: u64,
    ) -> Result<(Arc<dyn DiskFile>, u64), StorageError> {
        let bytes = snapshot::encode(state, seq);
        let file = write_aside(disk, &aside(dir, SNAPSHOT), &bytes)?;
        Ok((file, bytes.len() as u64))
    }

    /// Gives them their names. The snapshot's name is durable first: it holds all that the old
    /// journal says, but a new journal is worth nothing behind an old snapshot.
    fn publish(self, disk: &dyn Disk, dir: &Path) -> Result<Files, StorageError> {
        for name in [SNAPSHOT, JOURNAL] {
            let path = dir.join(name);
            disk.rename(&aside(dir, name), &path).during("rename", &path)?;
            disk.sync_dir(dir).during("sync", dir)?;
        }
        Ok(self)
    }
}

fn aside(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.tmp"))
}

fn write_aside(
    disk: &dyn Disk,
    path: &Path,
    bytes: &[u8],
) -> Result<Arc<dyn DiskFile>, StorageError> {
    let file = disk.open_essential(path, OpenMode::Create).during("open", path)?;
    file.truncate(0).during("truncate", path)?;
    file.write_all_at(bytes, 0).during("write", path)?;
    // A failure here is not that of a sync that somebody relies on: without room it is tried again.
    file.sync().during("write out", path)?;
    Ok(file)
}
