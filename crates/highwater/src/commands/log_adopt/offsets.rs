//! `log adopt` of `__consumer_offsets`: each group goes to the partition where this cluster's formula places it,
//! whatever formula and number of partitions the source has.

use std::collections::BTreeMap;
use std::process::ExitCode;

use broker::stopped::{
    METADATA_FOLDER, OFFSETS_TOPIC, OffsetsTopic, adopted_group_record, group_of_record,
    offsets_topic,
};
use model::{Offset, PartitionIndex, Timestamp, TopicPartition};
use storage::stopped::{KeyedAdoption, Source, Stopped, StoppedError};
use storage::{KeyedRecord, LatestRecord};

use super::{check_alone, create_hint, partitions_here, refused, sources};
use crate::amounts::counted;
use crate::arguments::Adopt;
use crate::commands::stopped_folder::{self, failed, losses, say};
use crate::failure::Failure;

/// A key's newest record, and the partition of the source that holds it.
struct Newest {
    partition: PartitionIndex,
    record: LatestRecord,
}

/// Adopts what the sources have of the groups.
pub fn run(typed: &Adopt) -> Result<ExitCode, Failure> {
    let sources = sources(typed)?;
    let into: Vec<Stopped> =
        typed.into.iter().map(|path| stopped_folder::open(path)).collect::<Result<_, _>>()?;
    let here = partitions_here(&into, OFFSETS_TOPIC);
    if here.is_empty() {
        let primary = format!("the topic {OFFSETS_TOPIC} does not exist here");
        return Err(Failure::new(primary).hint(create_hint(OFFSETS_TOPIC, 0)));
    }
    let topic = described(typed, &into)?;
    if let Some(missing) = (0..topic.partitions).find(|n| !here.contains_key(&PartitionIndex(*n))) {
        let primary = format!("{OFFSETS_TOPIC}-{missing} is not in the folders of --into");
        return Err(Failure::new(primary).hint("name all of the broker's data folders with --into"));
    }
    check_alone(typed, &into)?;
    let newest = newest(&into[0], &sources, typed)?;
    let now = stopped_folder::now();
    let mut records = placed(newest, topic, now)?;
    let mut work: Vec<Vec<KeyedAdoption>> = into.iter().map(|_| Vec::new()).collect();
    for (number, at) in &here {
        let target = TopicPartition::new(OFFSETS_TOPIC, number.0);
        let due = records.remove(number).unwrap_or_default();
        let examined = into[*at].examine_keyed(&target, due);
        work[*at].push(examined.map_err(|error| not_empty(error, typed))?);
    }
    for (stopped, adoptions) in into.iter().zip(&work) {
        if !typed.dry_run {
            let adopted = stopped.adopt_keyed(adoptions, now, stopped_folder::unique()?);
            adopted.map_err(|error| failed(format!("cannot adopt {OFFSETS_TOPIC}"), error))?;
        }
        adoptions.iter().try_for_each(|adoption| report(adoption, typed))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The formula and the number of partitions, from the cluster's metadata in one of the folders.
fn described(typed: &Adopt, into: &[Stopped]) -> Result<OffsetsTopic, Failure> {
    for (dir, stopped) in typed.into.iter().zip(into) {
        let Some((node, cluster_id)) = stopped.owner() else { continue };
        if dir.join(METADATA_FOLDER).is_dir() {
            let found = offsets_topic(&stopped_folder::disk(), dir, cluster_id, node);
            let found = found.map_err(|error| {
                Failure::new("cannot read the cluster's metadata").detail(error)
            })?;
            return found.ok_or_else(|| {
                let primary = format!("the cluster's metadata has no topic {OFFSETS_TOPIC}");
                Failure::new(primary).hint(create_hint(OFFSETS_TOPIC, 0))
            });
        }
    }
    Err(Failure::new("none of the folders of --into has the cluster's metadata")
        .detail("the metadata says in which partition a group is")
        .hint("name the folder with metadata.log.dir with --into, too"))
}

/// Of each key the newest record of all sources. A group has one partition, in which the log order decides. If a key
/// is in two partitions all the same, the record with the later timestamp counts.
fn newest(
    stopped: &Stopped,
    sources: &BTreeMap<PartitionIndex, Source>,
    typed: &Adopt,
) -> Result<BTreeMap<Vec<u8>, Newest>, Failure> {
    let mut newest: BTreeMap<Vec<u8>, Newest> = BTreeMap::new();
    for (number, source) in sources {
        let read = stopped.read_keyed(source).map_err(|error| refused(source, error, typed))?;
        for line in losses(&read.lost) {
            say(format_args!("{}: left out: {line}", source.dir.display()))?;
        }
        if read.tail_bytes > 0 {
            let (dir, bytes) = (source.dir.display(), read.tail_bytes);
            say(format_args!("{dir}: left out: {bytes} bytes of an incomplete write at the end"))?;
        }
        for (key, record) in read.records {
            let is_newer = |known: &Newest| {
                (record.timestamp, *number) > (known.record.timestamp, known.partition)
            };
            if newest.get(&key).is_none_or(is_newer) {
                newest.insert(key, Newest { partition: *number, record });
            }
        }
    }
    Ok(newest)
}

/// The records of each partition here, in the order in which the source has them. Tombstones have done their work.
fn placed(
    newest: BTreeMap<Vec<u8>, Newest>,
    topic: OffsetsTopic,
    now: Timestamp,
) -> Result<BTreeMap<PartitionIndex, Vec<KeyedRecord>>, Failure> {
    type Ordered = ((PartitionIndex, Offset), KeyedRecord);
    let mut placed: BTreeMap<PartitionIndex, Vec<Ordered>> = BTreeMap::new();
    for (key, Newest { partition, record }) in newest {
        let Some(value) = record.value else { continue };
        let Some(group) = group_of_record(&key) else {
            let (offset, topic) = (record.offset, OFFSETS_TOPIC);
            let primary =
                format!("the key at offset {offset} of {topic}-{partition} names no group");
            return Err(Failure::new(primary).detail("nothing was changed"));
        };
        let value = adopted_group_record(Some(&key), Some(&value), now).unwrap_or(value);
        let target = PartitionIndex(topic.placement.partition_of(&group, topic.partitions));
        let order = (partition, record.offset);
        placed.entry(target).or_default().push((order, (record.timestamp, key, value)));
    }
    let ordered = placed.into_iter().map(|(target, mut records)| {
        records.sort_by_key(|(order, _)| *order);
        (target, records.into_iter().map(|(_, record)| record).collect())
    });
    Ok(ordered.collect())
}

fn report(adoption: &KeyedAdoption, typed: &Adopt) -> Result<(), Failure> {
    let (target, count) = (&adoption.target, adoption.records.len());
    let what = counted(count as u64, "record");
    match (adoption.is_done, typed.dry_run) {
        (true, _) if count == 0 => Ok(()),
        (true, _) => say(format_args!("{target}: has the {what} of its groups already")),
        (false, true) => say(format_args!("{target}: would get {what} of its groups")),
        (false, false) => say(format_args!("{target}: has {what} of its groups")),
    }
}

fn not_empty(error: StoppedError, typed: &Adopt) -> Failure {
    let primary = format!("cannot adopt {}; nothing was changed", typed.topic);
    let failure = Failure::new(primary).detail(&error);
    match error {
        StoppedError::HasRecords { .. } => {
            failure.hint("adopt the offsets of groups before the groups use this cluster")
        }
        _ => failure,
    }
}
