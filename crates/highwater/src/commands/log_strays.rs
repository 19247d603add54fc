//! `log strays`: folders that belong to no topic, and what can be done with them. Only folders that
//! are named are moved or deleted.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use broker::stopped::wanted_partitions;
use inspection::{StrayFolder, WhyStray};
use model::TopicPartition;
use serde::Serialize;
use storage::journal::Key;
use storage::stopped::Stopped;

use super::stopped_folder::{self, say};
use crate::arguments::Strays;
use crate::failure::Failure;
use crate::output::{self, Format, Row, cell};

/// Moves and deletes what was named, or lists the strays.
pub fn run(typed: &Strays) -> Result<ExitCode, Failure> {
    let stopped = stopped_folder::open(&typed.dir)?;
    let wanted = wanted(&stopped, typed)?;
    let found = inspection::strays(stopped.log_dir(), &stopped.state(), wanted.as_ref());
    let found = found.map_err(|error| Failure::new("cannot look for strays").detail(error))?;
    let named = typed.moves.iter().chain(&typed.deletes);
    named.clone().try_for_each(|name| check(&found, name, &typed.dir))?;
    if typed.moves.is_empty() && typed.deletes.is_empty() {
        return list(typed, &found);
    }
    for name in &typed.moves {
        let to = typed.to.as_ref().expect("--move needs --to");
        move_away(&stopped, name, to)?;
    }
    for name in &typed.deletes {
        let path = typed.dir.join(name);
        let removed = fs::remove_dir_all(&path);
        removed.map_err(|error| {
            Failure::new(format!("cannot delete {}", path.display())).detail(error)
        })?;
        say(format_args!("{name}: deleted"))?;
    }
    stopped
        .log_dir()
        .sync_names()
        .map_err(|error| Failure::new("cannot sync the folder").detail(error))?;
    Ok(ExitCode::SUCCESS)
}

/// What the metadata wants here; `None`, with a word, where there is no metadata to ask.
fn wanted(
    stopped: &Stopped,
    typed: &Strays,
) -> Result<Option<BTreeMap<Key, TopicPartition>>, Failure> {
    let metadata_dir = typed.metadata_dir.as_ref().unwrap_or(&typed.dir);
    let folder = metadata_dir.join(broker::stopped::METADATA_FOLDER);
    let Some((node, cluster_id)) = stopped.owner().filter(|_| folder.is_dir()) else {
        eprintln!(
            "{} is not there: partitions whose topic was deleted are not told from others; \
             --metadata-dir names the data folder that has it",
            folder.display()
        );
        return Ok(None);
    };
    let wanted = wanted_partitions(&stopped_folder::disk(), metadata_dir, cluster_id, node);
    let cannot = || Failure::new("cannot read the cluster's metadata");
    wanted.map(Some).map_err(|error| cannot().detail(error))
}

fn check(found: &[StrayFolder], name: &str, dir: &Path) -> Result<(), Failure> {
    let Some(stray) = found.iter().find(|stray| stray.name == name) else {
        return Err(Failure::new(format!(
            "{name} is not a stray of {}; nothing was changed",
            dir.display()
        ))
        .hint(format!("highwater log strays {} lists them", dir.display())));
    };
    if stray.why == WhyStray::Interrupted {
        return Err(Failure::new(format!("{name} is needed; nothing was changed"))
            .detail(stray.why.reason()));
    }
    Ok(())
}

fn move_away(stopped: &Stopped, name: &str, to: &Path) -> Result<(), Failure> {
    let (from, to) = (stopped.path().join(name), to.join(name));
    let failed = || Failure::new(format!("cannot move {} to {}", from.display(), to.display()));
    if to.exists() {
        return Err(failed()
            .detail("a folder of this name is there")
            .hint("choose another folder"));
    }
    if let Some(above) = to.parent() {
        fs::create_dir_all(above).map_err(|error| failed().detail(error))?;
    }
    fs::rename(&from, &to).map_err(|error| {
        failed().detail(error).hint("on another file system: copy the folder, then use --delete")
    })?;
    say(format_args!("{name}: moved to {}", to.display()))
}

#[derive(Serialize)]
struct Shown {
    folder: String,
    topic: String,
    partition: i32,
    topic_id: Option<String>,
    size_bytes: u64,
    /// Seconds since a file in it was last changed.
    age_seconds: Option<u64>,
    reason: &'static str,
}

impl Row for Shown {
    const HEADERS: &'static [&'static str] =
        &["FOLDER", "TOPIC", "PARTITION", "TOPIC-ID", "BYTES", "AGE-SECONDS", "REASON"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.folder.clone(),
            self.topic.clone(),
            self.partition.to_string(),
            cell(self.topic_id.as_ref()),
            self.size_bytes.to_string(),
            cell(self.age_seconds),
            self.reason.to_owned(),
        ]
    }
}

fn list(typed: &Strays, found: &[StrayFolder]) -> Result<ExitCode, Failure> {
    let rows: Vec<Shown> = found
        .iter()
        .map(|stray| Shown {
            folder: stray.name.clone(),
            topic: stray.partition.topic.to_string(),
            partition: stray.partition.partition.0,
            topic_id: stray.topic_id.map(|id| id.to_string()),
            size_bytes: stray.size_bytes,
            age_seconds: age_seconds(&typed.dir.join(&stray.name)),
            reason: stray.why.reason(),
        })
        .collect();
    output::print(typed.listing.format, &rows)?;
    if typed.listing.format == Format::Table {
        advise(&typed.dir, found)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn advise(dir: &Path, found: &[StrayFolder]) -> Result<(), Failure> {
    let usable = found.iter().find(|stray| stray.why != WhyStray::Interrupted);
    let Some(example) = usable else { return Ok(()) };
    let (dir, name) = (dir.display(), &example.name);
    let topic = &example.partition.topic;
    say("")?;
    say("The broker never removes these folders. For each of them, for example:")?;
    say(format_args!(
        "  bring its records back into an empty topic:  highwater log adopt {dir}/{name} --topic {topic} --into {dir}"
    ))?;
    say(format_args!(
        "  move it away:                                highwater log strays {dir} --move {name} --to ELSEWHERE"
    ))?;
    say(format_args!(
        "  delete it for good:                          highwater log strays {dir} --delete {name}"
    ))
}

/// Seconds since a file in the folder was last changed.
fn age_seconds(folder: &Path) -> Option<u64> {
    let files = fs::read_dir(folder).ok()?.flatten();
    let newest = files.filter_map(|file| file.metadata().ok()?.modified().ok()).max()?;
    Some(SystemTime::now().duration_since(newest).unwrap_or_default().as_secs())
}
