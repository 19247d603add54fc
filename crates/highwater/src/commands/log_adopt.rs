//! `log adopt`: copying partitions that another broker wrote into an empty topic of a stopped broker.
//! All partitions are looked at before the first one is copied.

mod offsets;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use broker::stopped::{METADATA_FOLDER, OFFSETS_TOPIC, replicas_of};
use model::{PartitionIndex, TopicPartition};
use storage::log_dir::{Aside, partition_of};
use storage::stopped::{Adoption, Source, Stopped, StoppedError};

use super::stopped_folder::{self, failed, losses, say};
use crate::amounts::counted;
use crate::arguments::Adopt;
use crate::failure::Failure;

/// Topics whose records mean nothing outside of their cluster.
const NOT_TO_ADOPT: [&str; 3] =
    ["__cluster_metadata", "__transaction_state", "__share_group_state"];

/// Adopts what the sources have of the topic.
pub fn run(typed: &Adopt) -> Result<ExitCode, Failure> {
    if NOT_TO_ADOPT.contains(&&*typed.topic) {
        return Err(Failure::new(format!("{} cannot be adopted", typed.topic)).detail(
            "it holds the state of another cluster: its members, transactions and sessions end with it",
        ));
    }
    if *typed.topic == *OFFSETS_TOPIC {
        return offsets::run(typed);
    }
    let sources = sources(typed)?;
    let into: Vec<Stopped> =
        typed.into.iter().map(|path| stopped_folder::open(path)).collect::<Result<_, _>>()?;
    let here = partitions_here(&into, &typed.topic);
    check_counts(typed, &sources, &here)?;
    check_alone(typed, &into)?;
    let mut work = Vec::new();
    for (number, source) in &sources {
        let target = TopicPartition::new(&*typed.topic, number.0);
        let stopped = &into[here[number]];
        let adoption = stopped.examine_adoption(source, &target);
        work.push((stopped, adoption.map_err(|error| refused(source, error, typed))?));
    }
    for (stopped, adoption) in &work {
        adopt(stopped, adoption, typed)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The folders that the sources have of the topic, by partition.
fn sources(typed: &Adopt) -> Result<BTreeMap<PartitionIndex, Source>, Failure> {
    let topic = typed.source_topic.as_ref().unwrap_or(&typed.topic);
    let mut found: BTreeMap<PartitionIndex, Source> = BTreeMap::new();
    for path in &typed.sources {
        check_stopped(path)?;
        let mut add = |number: PartitionIndex, source: Source| {
            let twice = |before: &Source| {
                Failure::new(format!("partition {number} stands in two sources"))
                    .detail(format!("{} and {}", before.dir.display(), path.display()))
                    .hint("name only the one that is to be adopted")
            };
            match found.insert(number, source) {
                Some(before) => Err(twice(&before)),
                None => Ok(()),
            }
        };
        let accepts_losses = typed.accept_losses;
        if let Some(name) = named(path) {
            add(name.partition, Source { dir: path.clone(), name, accepts_losses })?;
            continue;
        }
        for (dir, name) in folders(path)? {
            if *name.topic == **topic {
                add(name.partition, Source { dir, name, accepts_losses })?;
            }
        }
    }
    if found.is_empty() {
        return Err(Failure::new(format!("no partition of {topic} is in the sources"))
            .detail(topics_in(&typed.sources)?)
            .hint("--source-topic is the topic's name there, --topic its name here"));
    }
    Ok(found)
}

/// The partition whose folder this is, or was before it was put aside.
fn named(path: &Path) -> Option<TopicPartition> {
    let path = path.canonicalize().ok()?;
    let name = path.file_name()?.to_str()?;
    Aside::parse(name).map(|aside| aside.partition).or_else(|| partition_of(name))
}

fn folders(path: &Path) -> Result<Vec<(PathBuf, TopicPartition)>, Failure> {
    let cannot = |error| Failure::new(format!("cannot read {}", path.display())).detail(error);
    let mut folders = Vec::new();
    for entry in fs::read_dir(path).map_err(cannot)? {
        let dir = entry.map_err(cannot)?.path();
        let name = dir.file_name().and_then(|name| partition_of(name.to_str()?));
        folders.extend(name.filter(|_| dir.is_dir()).map(|name| (dir, name)));
    }
    Ok(folders)
}

fn topics_in(sources: &[PathBuf]) -> Result<String, Failure> {
    let mut topics = std::collections::BTreeSet::new();
    for path in sources.iter().filter(|path| named(path).is_none()) {
        topics.extend(folders(path)?.into_iter().map(|(_, name)| name.topic.to_string()));
    }
    Ok(match topics.is_empty() {
        true => "there are no folders of partitions".to_owned(),
        false => format!("topics there: {}", Vec::from_iter(topics).join(", ")),
    })
}

/// A broker that still writes would go on behind what is copied.
fn check_stopped(path: &Path) -> Result<(), Failure> {
    if stopped_folder::is_live(path) {
        return Err(Failure::new(format!("a broker runs in {}", path.display()))
            .hint("stop that broker first; nothing was changed"));
    }
    Ok(())
}

/// In which of the folders each partition of the topic is.
fn partitions_here(into: &[Stopped], topic: &str) -> BTreeMap<PartitionIndex, usize> {
    let mut here = BTreeMap::new();
    for (at, stopped) in into.iter().enumerate() {
        let state = stopped.state();
        let live = state.partitions.iter().filter(|(_, known)| known.deleted.is_none());
        let of_topic = live.filter(|(_, known)| *known.opened.topic == *topic);
        here.extend(of_topic.map(|(key, _)| (key.partition, at)));
    }
    here
}

fn check_counts(
    typed: &Adopt,
    sources: &BTreeMap<PartitionIndex, Source>,
    here: &BTreeMap<PartitionIndex, usize>,
) -> Result<(), Failure> {
    let topic = &typed.topic;
    let needed = sources.keys().last().map_or(0, |last| last.0 + 1);
    let wrong = |primary: String| Err(Failure::new(primary));
    if here.is_empty() {
        return wrong(format!("the topic {topic} does not exist here"))
            .map_err(|failure| failure.hint(create_hint(topic, needed)));
    }
    match sources.keys().find(|number| !here.contains_key(number)) {
        None => Ok(()),
        Some(missing) => wrong(format!("the topic {topic} has no partition {missing} here")).map_err(|failure| {
            failure.hint(format!(
                "start the broker, run `highwater topic add-partitions {topic} --total {needed}`, stop the broker; \
                 or name all of the broker's data folders with --into"
            ))
        }),
    }
}

/// How the topic that takes the records is made.
fn create_hint(topic: &str, partitions: i32) -> String {
    match topic {
        OFFSETS_TOPIC => {
            "start the broker, run `highwater group describe any`, which makes the topic, stop the \
                          broker, and run this again"
                .to_owned()
        }
        topic => format!(
            "start the broker, run `highwater topic create {topic} --partitions {partitions}` with the configuration \
             that the topic is to have (retention.ms: old records are deleted by their time), stop the \
             broker, and run this again"
        ),
    }
}

/// Records are adopted into one replica: where there are others, an empty one might lead instead, and this one would be cut to
/// nothing. Known where the metadata is in one of the folders.
fn check_alone(typed: &Adopt, into: &[Stopped]) -> Result<(), Failure> {
    let topic = &typed.topic;
    for (dir, stopped) in typed.into.iter().zip(into) {
        let folder = dir.join(METADATA_FOLDER);
        let Some((node, cluster_id)) = stopped.owner().filter(|_| folder.is_dir()) else {
            continue;
        };
        let count = replicas_of(&stopped_folder::disk(), dir, cluster_id, node, topic);
        let count = count
            .map_err(|error| Failure::new("cannot read the cluster's metadata").detail(error))?;
        if let Some(count) = count.filter(|count| *count > 1) {
            let primary = format!(
                "the topic {topic} has {count} replicas of a partition; nothing was changed"
            );
            return Err(Failure::new(primary)
                .detail("the records would be in one of them only, and an empty one might lead")
                .hint(
                    "adopt them into a topic that was created with --replication-factor 1 on this broker, and copy \
                     them from there",
                ));
        }
    }
    Ok(())
}

fn refused(source: &Source, error: StoppedError, typed: &Adopt) -> Failure {
    let primary = format!("cannot adopt {}; nothing was changed", source.dir.display());
    let failure = Failure::new(primary);
    match &error {
        StoppedError::Incomplete { lost, .. } => {
            let lines: Vec<String> =
                std::iter::once(error.to_string()).chain(losses(lost)).collect();
            failure.detail(lines.join("\n")).hint("--accept-losses adopts the rest")
        }
        StoppedError::Gap { .. } => failure
            .detail(&error)
            .hint("if the topic was compacted nothing is lost: add --accept-losses"),
        StoppedError::HasRecords { .. } => failure.detail(&error).hint(format!(
            "records are adopted into an empty topic only: create another one, and name it with --topic \
             and this one with --source-topic {}",
            typed.source_topic.as_ref().unwrap_or(&typed.topic)
        )),
        StoppedError::OwnFolder { dir, name } => {
            let into = dir.parent().unwrap_or(dir).display();
            failure.detail(&error).hint(format!(
                "if the broker refuses the partition, `highwater log mend {into} --partition {name}` goes on \
                 with what is there"
            ))
        }
        _ => failure.detail(&error),
    }
}

fn adopt(stopped: &Stopped, adoption: &Adoption, typed: &Adopt) -> Result<(), Failure> {
    let Adoption { target, source, survey, is_done, .. } = adoption;
    if *is_done {
        return say(format_args!("{target}: has the records of {} already", source.dir.display()));
    }
    let what = format!(
        "{} in {}, {} bytes, from {}",
        counted(survey.records, "record"),
        counted(survey.batches, "batch"),
        survey.bytes,
        source.dir.display()
    );
    for line in losses(&survey.lost) {
        say(format_args!("{target}: left out: {line}"))?;
    }
    if survey.tail_bytes > 0 {
        let bytes = survey.tail_bytes;
        say(format_args!("{target}: left out: {bytes} bytes of an incomplete write at the end"))?;
    }
    if typed.dry_run {
        return say(format_args!("{target}: would get {what}"));
    }
    let now = stopped_folder::now();
    let adopted = stopped.adopt(adoption, now, stopped_folder::unique()?);
    let adopted = adopted.map_err(|error| failed(format!("cannot adopt {target}"), error))?;
    let (start, end) = adopted.range;
    say(format_args!("{target}: has {what}: offsets from {start} up to {end}"))?;
    if adopted.aborted > 0 {
        let count = adopted.aborted;
        say(format_args!("{target}: {count} transactions were open; they count as aborted"))?;
    }
    Ok(())
}
