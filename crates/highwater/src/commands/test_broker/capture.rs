//! Copy of a broker's folder at one moment, while the broker runs.
//!
//! The capture opens every file and notes its size. It is complete if no file has changed meanwhile; otherwise it begins
//! again. A capture takes no copies: published bytes of a log never change in place, so the copies are made later, from the
//! open files.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, linkat};

/// Files that belong to the process that uses the folder: locks, and room that each broker reserves.
const LEFT_OUT: &[&str] =
    &[".lock", ".test-broker.lock", "highwater-ballast", "highwater-ballast-essential"];
/// Folder of the metadata log. Its files besides the log are written over, like those of the folder above.
const METADATA: &str = "__cluster_metadata-0";
/// Bytes that are searched for zeros at once, at first and later.
const FIRST_BLOCK: u64 = 4 << 10;
const BLOCK: u64 = 64 << 10;
/// Permissions of a mode.
const PERMISSIONS: u32 = 0o777;

/// A file or folder as the file system lists it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    /// Relative to the captured folder.
    path: PathBuf,
    is_folder: bool,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

/// All files and folders below `root`, sorted.
fn list(root: &Path) -> io::Result<Vec<Listed>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name();
            if LEFT_OUT.iter().any(|left_out| name == OsStr::new(left_out)) {
                continue;
            }
            let (path, status) = (folder.join(name), entry.metadata()?);
            if status.is_dir() {
                folders.push(path.clone());
            }
            found.push(Listed {
                path,
                is_folder: status.is_dir(),
                inode: status.ino(),
                bytes: if status.is_dir() { 0 } else { status.len() },
                modified: (status.mtime(), status.mtime_nsec()),
            });
        }
    }
    found.sort();
    Ok(found)
}

/// Content of a captured file.
#[derive(Debug)]
enum Content {
    /// A file that the broker writes over.
    Bytes(Vec<u8>),
    /// A file that grows only.
    Prefix {
        file: File,
        /// Bytes that do not change any more.
        bytes: u64,
        /// Zeros behind them; the broker may write over these.
        zeros: u64,
        /// Whether the broker writes nothing more to the file.
        is_sealed: bool,
    },
}

#[derive(Debug)]
struct CapturedFile {
    path: PathBuf,
    mode: u32,
    content: Content,
}

/// The files of a folder at one moment.
#[derive(Debug)]
pub struct Capture {
    folders: Vec<PathBuf>,
    files: Vec<CapturedFile>,
}

impl Capture {
    /// Captures the files below `root`. Files that change meanwhile are captured again, until `deadline`.
    ///
    /// # Errors
    /// A file cannot be read, or the files do not stop changing.
    pub fn of(root: &Path, deadline: Instant) -> io::Result<Capture> {
        loop {
            match Capture::attempt(root, || {}) {
                Ok(Some(capture)) => return Ok(capture),
                Ok(None) => {}
                // Deleted since it was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            if Instant::now() >= deadline {
                let message = "the files of the broker do not stop changing";
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
        }
    }

    /// `None` if a file has changed meanwhile. `before_check` runs between the capture and the comparison.
    fn attempt(root: &Path, before_check: impl FnOnce()) -> io::Result<Option<Capture>> {
        let listed = list(root)?;
        let mut capture = Capture { folders: Vec::new(), files: Vec::new() };
        // Notes refer to logs: they are read first and compared last.
        for note in listed.iter().filter(|it| !it.is_folder && is_note(&it.path)) {
            capture.files.push(read_note(root, &note.path)?);
        }
        for (at, entry) in listed.iter().enumerate() {
            if entry.is_folder {
                capture.folders.push(entry.path.clone());
            } else if !is_note(&entry.path) {
                let is_sealed = is_log(&entry.path) && has_later_log(&listed[at + 1..], entry);
                capture.files.push(open_prefix(root, entry, is_sealed)?);
            }
        }
        before_check();
        let is_unchanged = list(root)? == listed && capture.has_same_notes(root)?;
        Ok(is_unchanged.then_some(capture))
    }

    fn has_same_notes(&self, root: &Path) -> io::Result<bool> {
        for captured in &self.files {
            if let Content::Bytes(bytes) = &captured.content
                && fs::read(root.join(&captured.path))? != *bytes
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        let bytes = self.files.iter().map(|captured| match &captured.content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Prefix { bytes, zeros, .. } => bytes + zeros,
        });
        bytes.sum()
    }

    /// Writes the files below `target`, an existing folder. Sealed segments of logs are linked, if the file system can.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, target: &Path) -> io::Result<()> {
        for folder in &self.folders {
            fs::create_dir(target.join(folder))?;
        }
        for captured in &self.files {
            let path = target.join(&captured.path);
            let is_linked = match &captured.content {
                Content::Prefix { file, zeros: 0, is_sealed: true, .. } => link(file, &path),
                _ => false,
            };
            if !is_linked {
                captured.copy(&path)?;
            }
        }
        Ok(())
    }
}

impl CapturedFile {
    fn copy(&self, path: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut copy = options.write(true).create_new(true).mode(self.mode).open(path)?;
        match &self.content {
            Content::Bytes(bytes) => io::Write::write_all(&mut copy, bytes),
            Content::Prefix { file, bytes, zeros, .. } => {
                let copied = io::copy(&mut file.take(*bytes), &mut copy)?;
                if copied < *bytes {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
                }
                copy.set_len(bytes + zeros)
            }
        }
    }
}

fn is_log(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("log"))
}

/// Whether the broker writes over the file.
fn is_note(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(Path::new(""));
    (folder == Path::new("") || folder == Path::new(METADATA)) && !is_log(path)
}

/// Whether a log with a later base offset is in the folder of `entry`. `behind` follows `entry` in the sorted list.
fn has_later_log(behind: &[Listed], entry: &Listed) -> bool {
    let is_metadata = entry.path.starts_with(METADATA);
    let folder = entry.path.parent();
    let mut same = behind.iter().take_while(|other| other.path.parent() == folder);
    !is_metadata && same.any(|other| !other.is_folder && is_log(&other.path))
}

fn read_note(root: &Path, path: &Path) -> io::Result<CapturedFile> {
    let mut file = File::open(root.join(path))?;
    let mode = file.metadata()?.mode() & PERMISSIONS;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(CapturedFile { path: path.to_owned(), mode, content: Content::Bytes(bytes) })
}

fn open_prefix(root: &Path, entry: &Listed, is_sealed: bool) -> io::Result<CapturedFile> {
    let file = File::open(root.join(&entry.path))?;
    let mode = file.metadata()?.mode() & PERMISSIONS;
    // Behind a log's end the broker may have written zeros, over which it will write records.
    let zeros = if is_log(&entry.path) { trailing_zeros(&file, entry.bytes)? } else { 0 };
    let content = Content::Prefix { file, bytes: entry.bytes - zeros, zeros, is_sealed };
    Ok(CapturedFile { path: entry.path.clone(), mode, content })
}

/// Zeros at the end of the first `bytes` bytes of a file.
fn trailing_zeros(file: &File, bytes: u64) -> io::Result<u64> {
    let mut end = bytes;
    let mut block = Vec::new();
    while end > 0 {
        let size = if end == bytes { FIRST_BLOCK } else { BLOCK }.min(end);
        block.resize(size as usize, 0);
        file.read_exact_at(&mut block, end - size)?;
        if let Some(last) = block.iter().rposition(|byte| *byte != 0) {
            return Ok(bytes - (end - size + last as u64 + 1));
        }
        end -= size;
    }
    Ok(bytes)
}

/// Gives an open file a further name. False if the file system cannot, or if the file has no name any more.
fn link(file: &File, path: &Path) -> bool {
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, open, CWD, path, AtFlags::SYMLINK_FOLLOW).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::Duration;

    fn written(root: &Path, path: &str, bytes: &[u8]) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn capture(root: &Path) -> Capture {
        Capture::of(root, Instant::now() + Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn later_writes_are_not_in_the_copy() {
        let (root, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (root, target) = (root.path(), target.path());
        written(root, "highwater-partitions.journal", b"journal");
        written(root, ".lock", b"");
        written(root, "t-0/00000000000000000000.log", b"sealed");
        written(root, "t-0/00000000000000000007.log", b"active\0\0\0\0");
        written(root, "t-0/00000000000000000007.index", b"index\0");
        written(root, "empty-0/00000000000000000000.log", &[0; 100_000]);
        let capture = capture(root);
        assert_eq!(capture.bytes(), 7 + 6 + 10 + 6 + 100_000);
        // The broker writes records over zeros, appends, writes notes over, and deletes segments.
        written(root, "highwater-partitions.journal", b"another");
        let active = OpenOptions::new().write(true).open(root.join("t-0/00000000000000000007.log"));
        active.unwrap().write_all_at(b"record", 6).unwrap();
        let empty =
            OpenOptions::new().write(true).open(root.join("empty-0/00000000000000000000.log"));
        empty.unwrap().write_all(b"record").unwrap();
        fs::remove_file(root.join("t-0/00000000000000000007.index")).unwrap();
        capture.write(target).unwrap();
        let read = |path: &str| fs::read(target.join(path)).unwrap();
        assert_eq!(read("highwater-partitions.journal"), b"journal");
        assert_eq!(read("t-0/00000000000000000000.log"), b"sealed");
        assert_eq!(read("t-0/00000000000000000007.log"), b"active\0\0\0\0");
        assert_eq!(read("t-0/00000000000000000007.index"), b"index\0");
        assert_eq!(read("empty-0/00000000000000000000.log"), [0; 100_000]);
        assert!(!target.join(".lock").exists());
    }

    #[test]
    fn only_sealed_segments_are_linked() {
        let (root, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for path in ["t-0/00.log", "t-0/07.log", "t-0/00.index", "__cluster_metadata-0/00.log"] {
            written(root.path(), path, b"x");
        }
        written(root.path(), "__cluster_metadata-0/09.log", b"x");
        capture(root.path()).write(target.path()).unwrap();
        let names = |path: &str| target.path().join(path).metadata().unwrap().nlink();
        assert_eq!(names("t-0/00.log"), 2);
        for path in ["t-0/07.log", "t-0/00.index", "__cluster_metadata-0/00.log"] {
            assert_eq!(names(path), 1, "{path}");
        }
    }

    #[test]
    fn a_segment_that_is_deleted_meanwhile_is_copied() {
        let (root, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        written(root.path(), "t-0/00.log", b"x");
        written(root.path(), "t-0/01.log", b"y");
        let capture = capture(root.path());
        fs::remove_dir_all(root.path().join("t-0")).unwrap();
        capture.write(target.path()).unwrap();
        assert_eq!(fs::read(target.path().join("t-0/00.log")).unwrap(), b"x");
    }

    #[test]
    fn a_change_meanwhile_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for path in ["note", "__cluster_metadata-0/synced", "t-0/00.log", "u-0/00.index"] {
            written(root, path, b"before");
        }
        let append = |path: &str| {
            let mut file = OpenOptions::new().append(true).open(root.join(path)).unwrap();
            file.write_all(b"x").unwrap();
        };
        let changes: [&dyn Fn(); 6] = [
            &|| written(root, "note", b"bafter"),
            &|| written(root, "__cluster_metadata-0/synced", b"bafter"),
            &|| append("t-0/00.log"),
            &|| append("u-0/00.index"),
            &|| written(root, "t-0/01.log", b""),
            &|| fs::remove_file(root.join("u-0/00.index")).unwrap(),
        ];
        assert!(Capture::attempt(root, || {}).unwrap().is_some());
        for (number, change) in changes.iter().enumerate() {
            assert!(Capture::attempt(root, change).unwrap().is_none(), "change {number}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_read_is_an_error_at_the_deadline() {
        let root = tempfile::tempdir().unwrap();
        let error = Capture::of(&root.path().join("none"), Instant::now()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
