//! `meta.properties`, version 1: the owner of a log directory and the level of its journal.
//!
//! ```text
//! version=1
//! node.id=1
//! cluster.id=Kl4P4BNNY0Yeh5QjLiMGbA
//! directory.id=__rVH8Hg9BOWWzBeqBKfIg
//! highwater.journal=1
//! highwater.version=3
//! ```
//!
//! The last two lines are the finalized levels of the journal here, and of the cluster's metadata. A release
//! refuses a directory above its own levels before it reads or changes anything else.
//!
//! The file has the syntax of Java's `Properties`, because Kafka's tools read it: a cluster id is any
//! text, so values are escaped. Kafka skips keys that it does not know; this module keeps them
//! (KAFKA-18442: an older release must not lose the lines of a newer one).

use std::iter::Peekable;
use std::path::Path;
use std::str::Chars;

use model::level::{HIGHWATER_JOURNAL, HIGHWATER_VERSION, newest_journal, newest_version};
use model::{BrokerId, Uuid};

use crate::StorageError;

/// Keys that this module reads.
const VERSION: &str = "version";
const NODE_ID: &str = "node.id";
const CLUSTER_ID: &str = "cluster.id";
const DIRECTORY_ID: &str = "directory.id";
const JOURNAL_LEVEL: &str = HIGHWATER_JOURNAL;
const METADATA_LEVEL: &str = HIGHWATER_VERSION;
/// Key of the line with ids of log directories without which the broker last started. Earlier releases keep the line.
const MISSING_DIRECTORIES: &str = "highwater.missing.directories";
/// Key of the line about a directory that was put back from a copy: its mark then, and the recorded one. Earlier releases keep the line.
const RESTORED_COPY: &str = "highwater.restored.copy";
const KNOWN_KEYS: [&str; 6] =
    [VERSION, NODE_ID, CLUSTER_ID, DIRECTORY_ID, JOURNAL_LEVEL, METADATA_LEVEL];

/// The owner of a log directory, and the format of its journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    /// The broker, `node.id`.
    pub node_id: BrokerId,
    /// The cluster, `cluster.id`: any text, compared byte for byte.
    pub cluster_id: String,
    /// The directory, `directory.id` (KIP-858).
    pub directory_id: Uuid,
    /// Level of the directory's journal, from 1 (`highwater.journal`); 0 for a directory without a
    /// journal. From 1 on, a missing journal is damage. No entry above the level is ever written.
    pub journal_level: u8,
    /// Finalized level of the cluster's metadata that the broker has applied (`highwater.version`); 0
    /// where none is known.
    pub metadata_level: u8,
    /// Lines with keys of newer releases, in the order of the file.
    pub unknown_lines: Vec<String>,
}

impl MetaProperties {
    /// Returns the file's content.
    pub fn encode(&self) -> String {
        let MetaProperties { node_id, directory_id, .. } = self;
        let cluster_id = escape(&self.cluster_id);
        let mut text = format!(
            "version=1\nnode.id={node_id}\ncluster.id={cluster_id}\ndirectory.id={directory_id}\n"
        );
        for (key, level) in
            [(JOURNAL_LEVEL, self.journal_level), (METADATA_LEVEL, self.metadata_level)]
        {
            if level > 0 {
                text.push_str(&format!("{key}={level}\n"));
            }
        }
        for line in &self.unknown_lines {
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    /// Parses the file's content. Returns the reason if a key is missing or its value is invalid.
    pub fn decode(text: &str) -> Result<MetaProperties, String> {
        let entries = entries(text)?;
        let value = |key: &str| {
            let mut values = entries.iter().filter(|entry| entry.key == key);
            let found = values.next().map(|entry| entry.value.as_str());
            found.ok_or_else(|| format!("{key} is missing"))
        };
        if value(VERSION)?.trim() != "1" {
            return Err("only version 1 is known".to_owned());
        }
        let node_id = value(NODE_ID)?.trim().parse();
        let node_id = node_id.map_err(|_| "node.id is not a number".to_owned())?;
        let directory_id = value(DIRECTORY_ID)?.trim().parse();
        let directory_id = directory_id.map_err(|cause| format!("{DIRECTORY_ID}: {cause}"))?;
        let level = |key: &'static str| match value(key) {
            Ok(level) => parse_level(key, level.trim()),
            Err(_) => Ok(0),
        };
        let (journal_level, metadata_level) = (level(JOURNAL_LEVEL)?, level(METADATA_LEVEL)?);
        let cluster_id = value(CLUSTER_ID)?.to_owned();
        let unknown = entries.iter().filter(|entry| !KNOWN_KEYS.contains(&entry.key.as_str()));
        let unknown_lines = unknown.map(|entry| entry.line.to_owned()).collect();
        let node_id = BrokerId(node_id);
        Ok(MetaProperties {
            node_id,
            cluster_id,
            directory_id,
            journal_level,
            metadata_level,
            unknown_lines,
        })
    }

    /// Refuses levels above those of this release. `path` is the file's.
    pub(crate) fn check_levels(&self, path: &Path) -> Result<(), StorageError> {
        let metadata_newest = newest_version() as u8;
        let levels = [
            (JOURNAL_LEVEL, self.journal_level, newest_journal()),
            (METADATA_LEVEL, self.metadata_level, metadata_newest),
        ];
        match levels.into_iter().find(|(_, found, newest)| found > newest) {
            None => Ok(()),
            Some((format, found, newest)) => {
                let path = path.to_owned();
                Err(StorageError::NewerFormat { path, format, found, newest })
            }
        }
    }

    /// Ids of log directories without which the broker last started, and in which partitions may be.
    pub fn missing_directories(&self) -> Vec<Uuid> {
        let lines = self.values(MISSING_DIRECTORIES);
        lines.flat_map(|ids| ids.split(',')).filter_map(|id| id.trim().parse().ok()).collect()
    }

    /// The same file with these missing directories.
    #[must_use]
    pub fn with_missing_directories(self, ids: &[Uuid]) -> MetaProperties {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let value = (!ids.is_empty()).then(|| ids.join(","));
        self.with_line(MISSING_DIRECTORIES, value)
    }

    /// The mark of a directory that was put back from a copy, and the mark that was recorded then, until its replicas have caught up.
    pub fn restored_copy(&self) -> Option<(u64, u64)> {
        let (mark, recorded) = self.values(RESTORED_COPY).next()?.split_once(',')?;
        Some((mark.trim().parse().ok()?, recorded.trim().parse().ok()?))
    }

    /// The same file with this note of a directory that was put back from a copy.
    #[must_use]
    pub fn with_restored_copy(self, marks: Option<(u64, u64)>) -> MetaProperties {
        self.with_line(RESTORED_COPY, marks.map(|(mark, recorded)| format!("{mark},{recorded}")))
    }

    /// Values of the lines with a key that [`MetaProperties::with_line`] writes.
    fn values(&self, key: &'static str) -> impl Iterator<Item = &str> {
        self.unknown_lines.iter().filter_map(move |line| value_of(line, key))
    }

    fn with_line(mut self, key: &str, value: Option<String>) -> MetaProperties {
        self.unknown_lines.retain(|line| value_of(line, key).is_none());
        self.unknown_lines.extend(value.map(|value| format!("{key}={value}")));
        self
    }

    /// Whether both files name one broker, cluster and directory.
    pub fn has_same_owner(&self, other: &MetaProperties) -> bool {
        let owner = |meta: &MetaProperties| (meta.node_id, meta.directory_id);
        owner(self) == owner(other) && self.cluster_id == other.cluster_id
    }
}

/// The value of a line with this key, as this module writes it.
fn value_of<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.strip_prefix(key)?.strip_prefix('=')
}

/// A level above 255 is as unreadable as 255 is.
fn parse_level(key: &str, text: &str) -> Result<u8, String> {
    match text.parse::<u64>() {
        Ok(0) | Err(_) => Err(format!("invalid level {text} of {key}")),
        Ok(level) => Ok(u8::try_from(level).unwrap_or(u8::MAX)),
    }
}

/// One line with a key.
struct MetaEntry<'a> {
    line: &'a str,
    key: String,
    value: String,
}

/// Parses all lines but comments and blank lines.
fn entries(text: &str) -> Result<Vec<MetaEntry<'_>>, String> {
    let lines = text.lines().map(|line| line.trim_start_matches(is_blank));
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with(['#', '!']));
    lines.map(parse_line).collect()
}

fn parse_line(line: &str) -> Result<MetaEntry<'_>, String> {
    let mut rest = line.chars().peekable();
    let key = unescape(&mut rest, |c| is_blank(c) || matches!(c, '=' | ':'));
    while rest.next_if(|c| is_blank(*c)).is_some() {}
    if rest.next_if(|c| matches!(c, '=' | ':')).is_some() {
        while rest.next_if(|c| is_blank(*c)).is_some() {}
    }
    let value = unescape(&mut rest, |_| false);
    match (key, value) {
        (Some(key), Some(value)) => Ok(MetaEntry { line, key, value }),
        _ => Err(format!("invalid escape in the line {line:?}")),
    }
}

/// Reads up to the first unescaped character that `ends` accepts. `None` for an invalid escape.
fn unescape(rest: &mut Peekable<Chars<'_>>, ends: impl Fn(char) -> bool) -> Option<String> {
    let mut text = String::new();
    while let Some(c) = rest.next_if(|c| !ends(*c)) {
        text.push(match c {
            '\\' => match rest.next()? {
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                'f' => '\x0c',
                'u' => unescape_unicode(rest)?,
                other => other,
            },
            other => other,
        });
    }
    Some(text)
}

/// Reads four hexadecimal digits, and the second half of a surrogate pair if there is one.
fn unescape_unicode(rest: &mut Peekable<Chars<'_>>) -> Option<char> {
    let unit = |rest: &mut Peekable<Chars<'_>>| {
        (0..4).try_fold(0, |unit, _| Some(unit * 16 + rest.next()?.to_digit(16)?))
    };
    let first = unit(rest)?;
    if !(0xd800..0xdc00).contains(&first) {
        return char::from_u32(first);
    }
    let is_pair = rest.next() == Some('\\') && rest.next() == Some('u');
    let second = unit(rest).filter(|second| is_pair && (0xdc00..0xe000).contains(second))?;
    char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))
}

/// Escapes a value as Java's `Properties.store` does, non-ASCII characters included: Kafka writes
/// them as UTF-8 and reads them as Latin-1.
fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for (at, c) in value.char_indices() {
        match c {
            ' ' if at == 0 => out.push_str("\\ "),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\x0c' => out.push_str("\\f"),
            '\\' | '=' | ':' | '#' | '!' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            other => {
                let mut units = [0; 2];
                for unit in other.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04X}"));
                }
            }
        }
    }
    out
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0c')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(cluster_id: &str) -> MetaProperties {
        MetaProperties {
            node_id: BrokerId(7),
            cluster_id: cluster_id.to_owned(),
            directory_id: Uuid([9; 16]),
            journal_level: 1,
            metadata_level: 3,
            unknown_lines: Vec::new(),
        }
    }

    #[test]
    fn any_cluster_id_survives_the_file() {
        let long = "x".repeat(249);
        let ids = ["MkU3OEVBNTcwNTJENDM2Qk", "c", " x y ", "a=b:c#d!e\\f", "a\nb\tc", "é𝄞", &long];
        for id in ids {
            let text = meta(id).encode();
            assert!(text.is_ascii() && text.lines().count() == 6, "{text}");
            assert_eq!(MetaProperties::decode(&text), Ok(meta(id)), "{text}");
        }
    }

    /// The lines that `kafka-storage format` of Kafka 4.3.1 writes for these ids.
    #[test]
    fn a_cluster_id_is_escaped_as_kafka_escapes_it() {
        let lines = [
            ("MkU3OEVBNTcwNTJENDM2Qk", "cluster.id=MkU3OEVBNTcwNTJENDM2Qk"),
            (" x y ", "cluster.id=\\ x y "),
            ("a=b:c#d", "cluster.id=a\\=b\\:c\\#d"),
            ("a\nb", "cluster.id=a\\nb"),
            ("not-a-uuid", "cluster.id=not-a-uuid"),
        ];
        for (id, line) in lines {
            assert!(meta(id).encode().lines().any(|found| found == line), "{id:?}");
        }
    }

    #[test]
    fn unknown_lines_are_kept() {
        let text = "# a comment\nversion=1\nnew.key = \\u0041\ncluster.id=c\nnode.id=7\n\
                    directory.id=CQkJCQkJCQkJCQkJCQkJCQ\nhighwater.journal=1\nhighwater.other=2\n";
        let read = MetaProperties::decode(text).unwrap();
        assert_eq!(read.unknown_lines, ["new.key = \\u0041", "highwater.other=2"]);
        assert_eq!(MetaProperties::decode(&read.encode()), Ok(read));
    }

    #[test]
    fn a_restored_copy_is_noted_beside_other_lines_and_removed() {
        let missing = meta("c").with_missing_directories(&[Uuid([1; 16])]);
        let noted = missing.clone().with_restored_copy(Some((3, u64::MAX)));
        let read = MetaProperties::decode(&noted.encode()).unwrap();
        assert_eq!(read.restored_copy(), Some((3, u64::MAX)));
        assert_eq!(read.missing_directories(), [Uuid([1; 16])]);
        assert_eq!(read.with_restored_copy(None), missing);
    }

    #[test]
    fn missing_directories_are_noted_and_removed() {
        let ids = [Uuid([1; 16]), Uuid([2; 16])];
        let noted = meta("c").with_missing_directories(&ids);
        let read = MetaProperties::decode(&noted.encode()).unwrap();
        assert_eq!(read.missing_directories(), ids);
        assert_eq!(read.clone().with_missing_directories(&ids), read);
        assert_eq!(read.with_missing_directories(&[]), meta("c"));
    }

    #[test]
    fn invalid_files_are_refused() {
        let with =
            |from: &str, to: &str| MetaProperties::decode(&meta("c").encode().replace(from, to));
        assert!(with("version=1", "version=0").is_err());
        assert!(with("node.id=7", "").unwrap_err().contains("node.id is missing"));
        assert!(with("node.id=7", "node.id=x").is_err());
        assert!(with("cluster.id=c", "cluster.id=\\u00").unwrap_err().contains("invalid escape"));
        assert!(with("cluster.id=c", "cluster.id=\\uD834x").is_err());
        assert!(with("journal=1", "journal=0").is_err());
        assert_eq!(with("journal=1", "journal=7").unwrap().journal_level, 7);
        assert_eq!(with("highwater.journal=1\n", "").unwrap().journal_level, 0);
    }
}
