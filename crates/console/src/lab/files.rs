//! The files of runs. Names come from requests: only plain ones are looked for. Links are not followed, so that a folder of
//! runs shows nothing but itself. What is opened is opened within its folder and without waiting, and then looked at: a name may
//! mean something else a moment later, a pipe for one, which would wait for ever.

use std::fs::{self, File, Metadata};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::UNIX_EPOCH;

use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::path::Arg;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Judged, Round, Run};

/// The longest name.
const NAME_MAX: usize = 128;
/// The largest document that is read, bytes.
const DOCUMENT_MAX: u64 = 64 << 20;
/// The largest chart.
const CHART_MAX: u64 = 4 << 20;
/// Of `rounds.jsonl`, so much is read.
const ROUNDS_BYTES_MAX: u64 = 256 << 20;
/// Folders that are looked at for runs.
const FOLDERS_MAX: usize = 10_000;

/// The folder of a run.
pub(super) struct Folder {
    /// Open, so that all that is read is of one folder.
    dir: File,
    name: String,
}

/// What is read of a plan.
#[derive(Deserialize)]
struct Plan {
    steps: Vec<IgnoredAny>,
}

/// Names of folders, and when they or their rounds changed last.
///
/// # Errors
/// The folder of runs cannot be read; in words.
pub(super) fn folders(dir: &Path) -> Result<Vec<(String, i64)>, String> {
    let entries = fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let names =
        entries.take(FOLDERS_MAX).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let folders = names.filter_map(|name| Folder::of(dir, &name));
    Ok(folders.map(|folder| (folder.name.clone(), folder.changed_ms())).collect())
}

/// Whether the folder of runs can be read.
///
/// # Errors
/// It cannot; in words.
pub(super) fn readable(dir: &Path) -> Result<(), String> {
    fs::read_dir(dir).map(drop).map_err(|error| format!("{}: {error}", dir.display()))
}

impl Folder {
    /// `None` if there is no folder of that name, or the name is not plain.
    pub(super) fn of(dir: &Path, name: &str) -> Option<Folder> {
        let dir = open_folder(CWD, dir.join(plain(name)?)).ok()?;
        Some(Folder { dir: dir.into(), name: name.to_owned() })
    }

    /// `None` if it holds neither a plan nor a report.
    pub(super) fn run(&self) -> Option<Run> {
        let has_report = self.file("report.html").is_some();
        let has_plan = self.file("plan.json").is_some();
        (has_plan || has_report).then(|| Run {
            name: self.name.clone(),
            changed_ms: self.changed_ms(),
            has_report,
            rounds: self.count_rounds(),
            planned: self.json::<Plan>("plan.json").ok().map(|plan| plan.steps.len()),
        })
    }

    pub(super) fn judged(&self) -> Result<Judged, String> {
        self.json("result.json")
    }

    /// The newest rounds. A line that is not one is left out: the last one may be under way.
    pub(super) fn rounds(&self, max: usize) -> Vec<Round> {
        let mut rounds = std::collections::VecDeque::new();
        for line in self.lines() {
            if let Ok(round) = serde_json::from_slice(&line) {
                if rounds.len() == max {
                    rounds.pop_front();
                }
                rounds.push_back(round);
            }
        }
        rounds.into()
    }

    /// Names of charts, without what all of them end in.
    pub(super) fn charts(&self, max: usize) -> Vec<String> {
        let folder = open_folder(&self.dir, "charts").ok();
        let entries = folder.and_then(|folder| Dir::new(folder).ok());
        let names = entries.into_iter().flatten().take(FOLDERS_MAX);
        let names =
            names.filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
        let mut charts: Vec<String> =
            names.filter_map(|name| plain(name.strip_suffix(".svg")?).map(str::to_owned)).collect();
        charts.sort_by_key(|name| natural(name));
        charts.truncate(max);
        charts
    }

    pub(super) fn report(&self) -> Option<Vec<u8>> {
        bytes(&self.dir, "report.html", DOCUMENT_MAX).ok()
    }

    pub(super) fn chart(&self, chart: &str) -> Option<Vec<u8>> {
        let name = format!("{}.svg", plain(chart)?);
        let folder = open_folder(&self.dir, "charts").ok()?;
        bytes(&folder, &name, CHART_MAX).ok()
    }

    fn changed_ms(&self) -> i64 {
        let files = ["rounds.jsonl", "report.html"].map(|name| self.file(name));
        let own = self.dir.metadata().ok();
        let changed = files.iter().flatten().map(changed_ms).max();
        changed.or_else(|| own.as_ref().map(changed_ms)).unwrap_or(0)
    }

    fn count_rounds(&self) -> Option<usize> {
        let mut file = open_file(&self.dir, "rounds.jsonl").ok()?.take(ROUNDS_BYTES_MAX);
        let (mut buffer, mut count) = (vec![0; 64 << 10], 0);
        loop {
            match file.read(&mut buffer).ok()? {
                0 => return Some(count),
                read => count += buffer[..read].iter().filter(|byte| **byte == b'\n').count(),
            }
        }
    }

    fn lines(&self) -> impl Iterator<Item = Vec<u8>> {
        let file =
            open_file(&self.dir, "rounds.jsonl").ok().map(|file| file.take(ROUNDS_BYTES_MAX));
        let lines = file.map(|file| BufReader::new(file).split(b'\n'));
        lines.into_iter().flatten().map_while(Result::ok)
    }

    fn json<T: for<'a> Deserialize<'a>>(&self, name: &str) -> Result<T, String> {
        let bytes =
            bytes(&self.dir, name, DOCUMENT_MAX).map_err(|error| format!("{name}: {error}"))?;
        serde_json::from_slice(&bytes).map_err(|error| format!("{name}: {error}"))
    }

    /// What is known of a file, if it is one and may be read.
    fn file(&self, name: &str) -> Option<Metadata> {
        open_file(&self.dir, name).ok()?.metadata().ok()
    }
}

/// Opens a folder, which is not a link.
fn open_folder(within: impl AsFd, name: impl Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(within, name, flags, Mode::empty())?)
}

/// Opens a file, which is not a link, nor anything that could wait.
fn open_file(within: impl AsFd, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(within, name, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a file")),
    }
}

/// All of a file.
fn bytes(within: impl AsFd, name: &str, max: u64) -> io::Result<Vec<u8>> {
    let (mut file, mut bytes) = (open_file(within, name)?.take(max + 1), Vec::new());
    file.read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::other(format!("larger than {max} bytes")));
    }
    Ok(bytes)
}

/// A name that is nothing but a name.
fn plain(name: &str) -> Option<&str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let fits = (1..=NAME_MAX).contains(&name.len()) && !name.starts_with('.');
    (fits && name.bytes().all(is_plain)).then_some(name)
}

fn changed_ms(of: &Metadata) -> i64 {
    let since = of.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| i64::try_from(since.as_millis()).ok()).unwrap_or(0)
}

/// Numbers in names count as numbers: 2 stands before 10.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts: Vec<(String, u64)> = vec![(String::new(), 0)];
    let mut was_digit = false;
    for c in name.chars() {
        let digit = c.to_digit(10);
        if digit.is_none() && was_digit {
            parts.push((String::new(), 0));
        }
        let (text, number) = parts.last_mut().expect("there is one from the beginning on");
        match digit {
            Some(digit) => *number = number.saturating_mul(10).saturating_add(u64::from(digit)),
            None => text.push(c),
        }
        was_digit = digit.is_some();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_names() {
        for name in ["run", "2-cores", "a.b_c", "0"] {
            assert_eq!(plain(name), Some(name));
        }
        let long = "a".repeat(NAME_MAX + 1);
        for name in ["", ".", "..", ".git", "a/b", "/etc", "a\\b", "a b", "ä", "a\0", &long] {
            assert_eq!(plain(name), None, "{name:?}");
        }
    }

    /// A pipe without a writer would hold whoever opens it; a link would lead elsewhere. Both may come between a look and the
    /// opening, so each name means something else again and again here.
    #[test]
    fn a_name_that_changes_its_meaning_never_leads_elsewhere_and_never_waits() {
        use std::os::unix::fs::symlink;
        use std::sync::atomic::{AtomicBool, Ordering};

        use rustix::fs::{FileType, mknodat};

        let (runs, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let run = runs.path().join("run");
        fs::create_dir(&run).unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        let at = |name: &str| outside.path().join(name);
        fs::write(at("file"), "own").unwrap();
        symlink(at("secret"), at("link")).unwrap();
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let dir = File::open(outside.path()).unwrap();
        assert!(open_file(&dir, "file").is_ok());
        for name in ["link", "pipe", "."] {
            assert!(open_file(&dir, name).is_err(), "{name}");
        }
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    for name in ["file", "pipe", "link"] {
                        // Another name of the same, put in the place of whatever is there.
                        fs::hard_link(at(name), at("next")).unwrap();
                        fs::rename(at("next"), run.join("report.html")).unwrap();
                    }
                }
            });
            let folder = Folder::of(runs.path(), "run").unwrap();
            let reports = std::iter::repeat_with(|| folder.report()).flatten();
            let reports: Vec<Vec<u8>> = reports.take(200).collect();
            is_done.store(true, Ordering::Relaxed);
            assert!(reports.iter().all(|report| report == b"own"));
        });
    }

    #[test]
    fn numbers_in_names_are_sorted_as_numbers() {
        let mut names =
            ["ali-10", "ali-2", "ali-1-published", "ali-1", "b", "ali-99999999999999999999"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(
            names,
            ["ali-1", "ali-1-published", "ali-2", "ali-10", "ali-99999999999999999999", "b"]
        );
    }
}
