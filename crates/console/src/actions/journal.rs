//! The log of actions: what was done, by whom, as which command, and how it ended. The last ones are in memory; all of them in a
//! file, where the console has a folder, and in the log of the program.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde_json::{Value, json};
use serving::operation::Kind;
use serving::rights::{Deed, Rights};
use tracing::{info, warn};

/// Actions that are shown.
const KEPT: usize = 1000;
/// Lines of one action that are kept.
const LINES_MAX: usize = 200;
/// A file of this size is put aside, and the one before it forgotten.
const FILE_BYTES_MAX: u64 = 16 << 20;
const FILE: &str = "actions.jsonl";

/// How an action ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It has not.
    UnderWay,
    /// As it was meant.
    Done,
    /// It was refused, or failed, at least in part.
    Failed,
    /// The program stopped before it was over.
    Unknown,
}

impl End {
    pub(crate) fn name(self) -> &'static str {
        match self {
            End::UnderWay => "under way",
            End::Done => "done",
            End::Failed => "failed",
            End::Unknown => "unknown",
        }
    }
}

/// One action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    /// When it began, in milliseconds since 1970.
    pub(crate) at_ms: i64,
    pub(crate) who: String,
    /// The name of the operation.
    pub(crate) kind: String,
    /// The topic or group.
    pub(crate) subject: String,
    pub(crate) command: String,
    pub(crate) end: End,
    /// What came of it, in words.
    pub(crate) lines: Vec<String>,
}

impl Entry {
    /// The entry as a user with these rights sees it: the command of a produce contains a record, which is shown only to users
    /// who may read the topic.
    pub(crate) fn told_to(mut self, rights: &Rights) -> Entry {
        if self.has_record() && rights.may(Deed::Read(&self.subject)).is_err() {
            self.command =
                "# not shown: there is a record of this topic in it, which you may not read"
                    .to_owned();
        }
        self
    }

    fn has_record(&self) -> bool {
        self.kind == Kind::Produce.name()
    }

    /// The command for the process's own reports, which go where records do not belong.
    fn reported(&self) -> &str {
        if self.has_record() { "# not reported: there is a record in it" } else { &self.command }
    }
}

#[derive(Debug, Default)]
struct Kept {
    entries: VecDeque<Entry>,
    last_id: u64,
}

/// All actions of a console.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    kept: Mutex<Kept>,
    file: Option<PathBuf>,
    /// Held while the file is written: whether the last line of it is whole. The process before may have ended within one, and
    /// a disk may have been full in the middle of one.
    writing: Mutex<bool>,
}

impl Journal {
    /// One that goes on from what is in this folder; in memory alone without one.
    pub(crate) fn open(dir: Option<&Path>) -> Journal {
        let file = dir.map(|dir| dir.join(FILE));
        let mut kept = Kept::default();
        if let Some(file) = &file {
            // Two files hold more than is kept in memory.
            for file in [aside(file), file.clone()] {
                match File::open(&file) {
                    Ok(file) => read(BufReader::new(file), &mut kept),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => {
                        warn!(file = %file.display(), %error, "the log of actions cannot be read")
                    }
                }
            }
        }
        for entry in kept.entries.iter_mut().filter(|entry| entry.end == End::UnderWay) {
            entry.end = End::Unknown;
        }
        Journal { kept: Mutex::new(kept), file, writing: Mutex::default() }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().expect("no code under it panics")
    }

    /// Writes down that an action begins; gives its number.
    ///
    /// # Errors
    /// The file cannot be written: then nothing is to be done.
    pub(crate) fn begin(&self, mut entry: Entry) -> Result<u64, String> {
        {
            let mut kept = self.kept();
            kept.last_id += 1;
            entry.id = kept.last_id;
        }
        self.write(&entry)
            .map_err(|error| format!("the log of actions cannot be written: {error}"))?;
        info!(who = %entry.who, action = %entry.kind, subject = %entry.subject, command = %entry.reported(), "an action begins");
        let id = entry.id;
        self.kept().put(entry);
        Ok(id)
    }

    /// Writes down how it ended.
    pub(crate) fn end(&self, id: u64, end: End, mut lines: Vec<String>) {
        if lines.len() > LINES_MAX {
            let more = lines.len() - LINES_MAX;
            lines.truncate(LINES_MAX);
            lines.push(format!("… and {more} more"));
        }
        let entry = {
            let mut kept = self.kept();
            let Some(entry) = kept.entries.iter_mut().find(|entry| entry.id == id) else { return };
            (entry.end, entry.lines) = (end, lines);
            entry.clone()
        };
        info!(who = %entry.who, action = %entry.kind, subject = %entry.subject, end = end.name(), "an action ended");
        if let Err(error) = self.write(&entry) {
            warn!(%error, "the log of actions cannot be written");
        }
    }

    /// The newest first.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.kept().entries.iter().rev().cloned().collect()
    }

    pub(crate) fn get(&self, id: u64) -> Option<Entry> {
        self.kept().entries.iter().find(|entry| entry.id == id).cloned()
    }

    /// A line for the file, on the disk before this returns.
    fn write(&self, entry: &Entry) -> io::Result<()> {
        let Some(path) = &self.file else { return Ok(()) };
        let mut is_whole = self.writing.lock().expect("no code under it panics");
        if fs::metadata(path).is_ok_and(|file| file.len() > FILE_BYTES_MAX) {
            fs::rename(path, aside(path))?;
        }
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        let begin = if std::mem::replace(&mut *is_whole, false) { "" } else { "\n" };
        file.write_all(format!("{begin}{}\n", value(entry)).as_bytes())?;
        *is_whole = true;
        file.sync_data()
    }
}

impl Kept {
    /// Takes an entry; a later one of the same number stands for the earlier.
    fn put(&mut self, entry: Entry) {
        self.last_id = self.last_id.max(entry.id);
        if let Some(known) = self.entries.iter_mut().find(|known| known.id == entry.id) {
            return *known = entry;
        }
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }
}

fn aside(file: &Path) -> PathBuf {
    file.with_extension("old.jsonl")
}

/// An action as JSON: in the file, and for programs.
pub(crate) fn value(entry: &Entry) -> Value {
    json!({
        "id": entry.id, "at_ms": entry.at_ms, "who": entry.who, "action": entry.kind, "subject": entry.subject,
        "command": entry.command, "end": entry.end.name(), "lines": entry.lines,
    })
}

/// Lines that cannot be read are passed over: a loss of power may leave half of one.
fn read(lines: impl BufRead, kept: &mut Kept) {
    for line in lines.split(b'\n').map_while(Result::ok) {
        if let Some(entry) =
            serde_json::from_slice(&line).ok().and_then(|value: Value| entry(&value))
        {
            kept.put(entry);
        }
    }
}

fn entry(value: &Value) -> Option<Entry> {
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    Some(Entry {
        id: value["id"].as_u64()?,
        at_ms: value["at_ms"].as_i64()?,
        who: text("who")?,
        kind: text("action")?,
        subject: text("subject")?,
        command: text("command")?,
        end: match value["end"].as_str()? {
            "done" => End::Done,
            "failed" => End::Failed,
            "unknown" => End::Unknown,
            _ => End::UnderWay,
        },
        lines: value["lines"]
            .as_array()?
            .iter()
            .filter_map(|line| Some(line.as_str()?.to_owned()))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(subject: &str) -> Entry {
        Entry {
            id: 0,
            at_ms: 1000,
            who: "ann".to_owned(),
            kind: "delete-topic".to_owned(),
            subject: subject.to_owned(),
            command: "highwater topic delete\n".to_owned(),
            end: End::UnderWay,
            lines: Vec::new(),
        }
    }

    #[test]
    fn a_restart_knows_what_was_done_and_what_it_does_not_know() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(Some(dir.path()));
        let first = journal.begin(begun("a")).unwrap();
        journal.end(first, End::Failed, vec!["no\nsuch topic".to_owned()]);
        journal.begin(begun("b")).unwrap();
        // A loss of power in the middle of a line.
        let mut file = OpenOptions::new().append(true).open(dir.path().join(FILE)).unwrap();
        file.write_all(b"{\"id\":3,\"at_ms\":\xff").unwrap();
        let again = Journal::open(Some(dir.path()));
        let told: Vec<_> =
            again.entries().iter().map(|entry| (entry.id, entry.end, entry.lines.len())).collect();
        assert_eq!(told, [(2, End::Unknown, 0), (1, End::Failed, 1)]);
        assert_eq!(again.get(1).unwrap().command, "highwater topic delete\n");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_line_that_found_no_room_spoils_none_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(FILE);
        let journal = Journal::open(Some(dir.path()));
        journal.begin(begun("a")).unwrap();
        // A disk that is full within a line, and is not any more.
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/dev/full", &file).unwrap();
        journal.begin(begun("b")).unwrap_err();
        fs::remove_file(&file).unwrap();
        fs::write(&file, "{\"id\":2,\"at_ms\":10").unwrap();
        journal.begin(begun("c")).unwrap();
        let told = Journal::open(Some(dir.path())).entries();
        assert_eq!(told.iter().map(|entry| &*entry.subject).collect::<Vec<_>>(), ["c"]);
    }

    #[test]
    fn nothing_is_done_that_cannot_be_written_down() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(Some(&dir.path().join("not-there")));
        assert!(journal.begin(begun("a")).unwrap_err().contains("cannot be written"));
        assert!(journal.entries().is_empty());
    }

    #[test]
    fn memory_and_lines_are_bounded() {
        let journal = Journal::open(None);
        for _ in 0..KEPT + 5 {
            journal.begin(begun("t")).unwrap();
        }
        let entries = journal.entries();
        assert_eq!((entries.len(), entries[0].id), (KEPT, KEPT as u64 + 5));
        journal.end(entries[0].id, End::Done, vec![String::new(); LINES_MAX + 9]);
        assert_eq!(journal.get(entries[0].id).unwrap().lines.last().unwrap(), "… and 9 more");
    }

    #[test]
    fn the_process_reports_no_record() {
        let entry = begun("t");
        assert_eq!(entry.reported(), entry.command);
        let kind = Kind::Produce.name().to_owned();
        let entry = Entry { kind, command: "highwater produce --value secret".to_owned(), ..entry };
        assert!(!entry.reported().contains("secret"));
    }
}
