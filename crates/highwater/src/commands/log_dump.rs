//! `log dump`: what is in the files of a broker, line by line, and what is wrong with them.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use inspection::{Finding, Looking};
use serde_json::{Map, Value, json};
use storage::disk::RealDisk;

use super::stopped_folder;
use crate::amounts::counted;
use crate::failure::{Failure, on_output};
use crate::output::Format;
use crate::pattern::Bytes;

/// Writes everything that is found; fails if there is damage or nothing to look at.
pub fn run(paths: &[PathBuf], records: bool, format: Format) -> Result<ExitCode, Failure> {
    let mut dump = Dump {
        out: io::BufWriter::with_capacity(1 << 16, io::stdout().lock()),
        format,
        written: Ok(()),
        damage_count: 0,
    };
    for path in paths {
        let live = stopped_folder::is_live(path);
        if live {
            eprintln!(
                "a broker runs in {}: the end of what it writes may be unfinished",
                path.display()
            );
        }
        let looking = Looking { records, live };
        let found = inspection::inspect(&RealDisk, path, looking, &mut |path, finding| {
            dump.tell(path, &finding);
        });
        let unreadable = || Failure::new(format!("cannot look into {}", path.display()));
        if found.map_err(|error| unreadable().detail(error))? == 0 {
            return Err(unreadable()
                .detail("there is no segment, index, snapshot, checkpoint or journal")
                .hint("name such a file, a partition's folder, or a data folder"));
        }
    }
    dump.finish()
}

struct Dump<W: Write> {
    out: W,
    format: Format,
    /// The first failure to write; nothing is written after it.
    written: io::Result<()>,
    damage_count: u64,
}

impl<W: Write> Dump<W> {
    fn tell(&mut self, path: &Path, finding: &Finding<'_>) {
        self.damage_count += u64::from(matches!(finding, Finding::Damage { .. }));
        if self.written.is_ok() {
            self.written = self.write(path, finding);
        }
    }

    fn write(&mut self, path: &Path, finding: &Finding<'_>) -> io::Result<()> {
        let (name, fields) = fields(finding);
        match self.format {
            Format::Json => {
                let mut object = Map::new();
                object.insert("file".to_owned(), json!(path.to_string_lossy()));
                object.insert("finding".to_owned(), json!(name));
                object.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
                serde_json::to_writer(&mut self.out, &object)?;
                self.out.write_all(b"\n")
            }
            Format::Table => {
                match finding {
                    Finding::Begin(_) => write!(self.out, "{}", path.display())?,
                    _ => write!(self.out, "  {name}")?,
                }
                for (name, value) in fields {
                    match value {
                        Value::String(text) => write!(self.out, " {name}: {text}")?,
                        value => write!(self.out, " {name}: {value}")?,
                    }
                }
                self.out.write_all(b"\n")
            }
        }
    }

    fn finish(mut self) -> Result<ExitCode, Failure> {
        self.written.and_then(|()| self.out.flush()).map_err(on_output)?;
        match self.damage_count {
            0 => Ok(ExitCode::SUCCESS),
            count => Err(Failure::new(format!("damage in {}", counted(count, "place")))
                .detail("they are marked `damage` above")
                .hint("docs/log_format.md says what a start does about each")),
        }
    }
}

/// What a finding is called, and its parts in the order in which they are shown.
fn fields(finding: &Finding<'_>) -> (&'static str, Vec<(&'static str, Value)>) {
    match *finding {
        Finding::Begin(kind) => ("begin", vec![("kind", json!(kind))]),
        Finding::Batch { position, header } => ("batch", batch(position, header)),
        Finding::Record { offset, timestamp, ref record } => {
            ("record", fields_of_record(offset, timestamp, record))
        }
        Finding::OffsetEntry { offset, position } => {
            ("entry", vec![("offset", json!(offset)), ("position", json!(position))])
        }
        Finding::TimeEntry { timestamp, offset } => {
            ("entry", vec![("timestamp", json!(timestamp)), ("offset", json!(offset))])
        }
        Finding::Aborted { producer_id, first_offset, last_offset, last_stable_offset } => (
            "aborted",
            vec![
                ("producer_id", json!(producer_id)),
                ("first_offset", json!(first_offset)),
                ("last_offset", json!(last_offset)),
                ("last_stable_offset", json!(last_stable_offset)),
            ],
        ),
        Finding::Producer {
            producer_id,
            epoch,
            last_sequence,
            last_offset,
            timestamp,
            transaction_start,
        } => (
            "producer",
            vec![
                ("producer_id", json!(producer_id)),
                ("epoch", json!(epoch)),
                ("last_sequence", json!(last_sequence)),
                ("last_offset", json!(last_offset)),
                ("timestamp", json!(timestamp)),
                ("transaction_start", json!(transaction_start)),
            ],
        ),
        Finding::Epoch { epoch, start_offset } => {
            ("epoch", vec![("epoch", json!(epoch)), ("start_offset", json!(start_offset))])
        }
        Finding::Checkpointed { topic, partition, offset } => (
            "offset",
            vec![
                ("topic", json!(topic)),
                ("partition", json!(partition)),
                ("offset", json!(offset)),
            ],
        ),
        Finding::Journaled { .. } => ("partition", journaled(finding)),
        Finding::Line(line) => ("line", vec![("text", json!(line))]),
        Finding::Unfinished { position, reason } => {
            ("unfinished", vec![("position", json!(position)), ("reason", json!(reason))])
        }
        Finding::Damage { position, reason } => {
            ("damage", vec![("position", json!(position)), ("reason", json!(reason))])
        }
        Finding::End { size_bytes, entry_count, record_count } => (
            "end",
            vec![
                ("size_bytes", json!(size_bytes)),
                ("entries", json!(entry_count)),
                ("records", json!(record_count)),
            ],
        ),
    }
}

fn journaled(finding: &Finding<'_>) -> Vec<(&'static str, Value)> {
    let Finding::Journaled {
        topic,
        partition,
        topic_id,
        synced,
        log_start,
        recovery_point,
        closed_at,
        sealed_count,
        refused,
        deleted,
    } = *finding
    else {
        return Vec::new();
    };
    vec![
        ("topic", json!(topic)),
        ("partition", json!(partition)),
        ("topic_id", json!(topic_id.to_string())),
        ("synced", json!(synced)),
        ("log_start", json!(log_start)),
        ("recovery_point", json!(recovery_point)),
        ("closed_at", json!(closed_at)),
        ("sealed_segments", json!(sealed_count)),
        ("refused", json!(refused)),
        ("deleted", json!(deleted)),
    ]
}

fn batch(position: u64, header: &model::BatchHeader) -> Vec<(&'static str, Value)> {
    let log_append_time = header.timestamp_type() == model::TimestampType::LogAppendTime;
    vec![
        ("base_offset", json!(header.base_offset.0)),
        ("last_offset", json!(header.last_offset().0)),
        ("records", json!(header.record_count)),
        ("position", json!(position)),
        ("size_bytes", json!(header.size_bytes)),
        ("compression", json!(header.compression().name())),
        ("leader_epoch", json!(header.leader_epoch.0)),
        ("producer_id", json!(header.producer_id.0)),
        ("producer_epoch", json!(header.producer_epoch.0)),
        ("base_sequence", json!(header.base_sequence.0)),
        ("max_timestamp", json!(header.max_timestamp.0)),
        ("timestamp_type", json!(if log_append_time { "LogAppendTime" } else { "CreateTime" })),
        ("transactional", json!(header.is_transactional())),
        ("control", json!(header.is_control())),
        ("crc", json!(header.crc)),
    ]
}

fn fields_of_record(
    offset: i64,
    timestamp: i64,
    record: &model::record::Record<'_>,
) -> Vec<(&'static str, Value)> {
    let headers: Vec<Value> = record
        .headers()
        .map(|(name, value)| json!({ "key": name, "value": value.map(Bytes) }))
        .collect();
    vec![
        ("offset", json!(offset)),
        ("timestamp", json!(timestamp)),
        ("key", json!(record.key.map(Bytes))),
        ("value", json!(record.value.map(Bytes))),
        ("headers", json!(headers)),
    ]
}
