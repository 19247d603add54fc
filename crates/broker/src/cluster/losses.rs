//! Replicas that this broker cannot answer for: they are gone, or out of reach, or perhaps older than what the metadata
//! counts.

use metadata::decide::{EmptyReplica, FoundEpoch};
use metadata::{ClusterImage, PartitionImage};
use model::{BrokerId, LeaderEpoch, PartitionIndex, TopicId, Uuid};
use node::roles;
use storage::journal::Key;

use crate::logs::{Logs, OutOfReach, UnreachableCause};
use crate::replicas::Keys;

/// Replicas that a broker cannot answer for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Nothing is left of what was counted: they leave the in-sync and the eligible replicas.
    pub gone: Vec<EmptyReplica>,
    /// They leave them only where another replica is complete, by what the controller knows.
    pub doubtful: Keys,
    /// Whether the doubtful ones may be in a missing log directory, or were in one until now: the controller gives each up only
    /// while another in-sync replica is known to be there.
    pub missing: bool,
    /// Leader epochs of logs that the metadata does not have: a lost majority of the quorum decided them.
    pub found: Vec<FoundEpoch>,
    /// Whether the doubtful ones cannot be served before the broker is started again.
    pub offline: bool,
}

/// Those of these replicas that the cluster can do without, and still counts on.
pub fn given_up(
    image: &ClusterImage,
    replicas: &[(TopicId, PartitionIndex)],
    me: BrokerId,
) -> Keys {
    let is_given_up = |(id, index): &(TopicId, PartitionIndex)| {
        let state = image.topic_by_id(*id).and_then(|topic| topic.partition(*index));
        state.is_some_and(|state| roles::is_given_up(state, me))
    };
    replicas.iter().copied().filter(is_given_up).collect()
}

/// Whether the image may count this broker's replica, and there are others: a partition with a single replica has
/// nothing to gain from being told of its loss.
fn counts_elsewhere(state: &PartitionImage, me: BrokerId) -> bool {
    let may_lead = state.isr.contains(&me) || state.elr.contains(&me);
    let is_counted = may_lead || state.last_known_leader == me;
    is_counted && state.replicas.len() > 1
}

/// Replicas of this broker that the image may count and of which its log directories know nothing: they would be made
/// anew, empty. To be reported before that is done: after a crash in between they would pass for what they were.
///
/// Where a directory is missing, or cannot be opened, they may be in that one, and are refused: they are out of reach then. The
/// controller gets all of them before the broker serves, so that none of them is elected.
pub fn unknown_replicas(image: &ClusterImage, logs: &Logs, me: BrokerId) -> Losses {
    if logs.is_incomplete() && image.has_returning_replicas() {
        let doubtful = missing_replicas(image, logs, me);
        return Losses { doubtful, missing: true, ..Losses::default() };
    }
    let mut unknown = Vec::new();
    for topic in image.topics() {
        let counted = topic.partitions().filter(|(_, state)| counts_elsewhere(state, me));
        for (partition, state) in counted {
            let topic_id = topic.id;
            if !logs.knows(&Key { topic_id, partition }) {
                let partition_epoch = Some(state.partition_epoch);
                unknown.push(EmptyReplica { topic_id, partition, partition_epoch });
            }
        }
    }
    if logs.is_incomplete() {
        let unknown: Keys = unknown.iter().map(|of| (of.topic_id, of.partition)).collect();
        let doubtful = given_up(image, &unknown, me);
        return Losses { doubtful, missing: true, ..Losses::default() };
    }
    Losses { gone: unknown, ..Losses::default() }
}

/// Replicas of this broker whose journals note a leader epoch of an election that the metadata does not have. None below
/// `highwater.version` 4.
pub fn found_epochs(image: &ClusterImage, logs: &Logs, me: BrokerId) -> Losses {
    if !image.detects_copies() {
        return Losses::default();
    }
    let mut found = Vec::new();
    for topic in image.topics() {
        let mine = topic.partitions().filter(|(_, state)| state.replicas.contains(&me));
        for (partition, state) in mine {
            let topic_id = topic.id;
            let leader_epoch = logs.newest_epoch(&Key { topic_id, partition });
            let known = topic.found_epoch(partition).unwrap_or(LeaderEpoch::NONE);
            if state.lacks_election(leader_epoch) && leader_epoch.elections() > known.elections() {
                found.push(FoundEpoch { topic_id, partition, leader_epoch });
            }
        }
    }
    Losses { found, ..Losses::default() }
}

/// Replicas of this broker of which its log directories know nothing.
fn missing_replicas(image: &ClusterImage, logs: &Logs, me: BrokerId) -> Keys {
    let mut missing = Keys::new();
    for topic in image.topics() {
        let own = topic.partitions().filter(|(_, state)| state.replicas.contains(&me));
        let keys = own.map(|(partition, _)| Key { topic_id: topic.id, partition });
        let unknown = keys.filter(|key| !logs.knows(key));
        missing.extend(unknown.map(|key| (key.topic_id, key.partition)));
    }
    missing
}

/// Replicas that are in no directory but in such as were away when this broker was registered last, with the directories
/// `registered`: they may have been made anew elsewhere since then. If they were, that was in one of the directories that
/// were registered: if one of these is missing, they are not what is counted; if all are here, and none has them, they may be.
/// From `highwater.version` 4 on the controller gives each replica up only while it hears another in-sync replica: the metadata may
/// still name an in-sync replica that is lost.
///
/// To be said before the broker registers with what was away: after a crash in between it would pass for what it was.
pub fn away_replicas(
    image: &ClusterImage,
    logs: &Logs,
    me: BrokerId,
    registered: &[Uuid],
) -> Losses {
    if !logs.has_any_of(registered) {
        // Another disk: nothing of it is counted.
        return Losses::default();
    }
    let is_one_of_several = |key: &Key| {
        let topic = image.topic_by_id(key.topic_id);
        let state = topic.and_then(|topic| topic.partition(key.partition));
        state.is_some_and(|state| state.replicas.contains(&me) && state.replicas.len() > 1)
    };
    let away = logs.away(registered).into_iter().filter(is_one_of_several);
    if logs.has_all_of(registered) {
        let doubtful = away.map(|key| (key.topic_id, key.partition)).collect();
        // The directory is back, and its replica may be the last complete one: another one counts only if it is known to be there.
        let missing = image.has_returning_replicas();
        return Losses { doubtful, missing, ..Losses::default() };
    }
    // Whatever the state: the registration that they are reported for ends before anything is copied.
    let gone = away.map(|Key { topic_id, partition }| EmptyReplica {
        topic_id,
        partition,
        partition_epoch: None,
    });
    Losses { gone: gone.collect(), ..Losses::default() }
}

/// Replicas out of reach that are to be reported to the controller, in three lists: those that stay out of reach; those that
/// are copied again where another replica is complete, or that the level cannot record as out of reach; those that may be
/// in a missing directory.
pub fn to_give_up(image: &ClusterImage, out_of_reach: &[OutOfReach], me: BrokerId) -> [Losses; 3] {
    let (mut stay, mut copied, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    let is_noted_anywhere = image.has_offline_replicas();
    for OutOfReach { key: Key { topic_id, partition }, cause } in out_of_reach {
        let topic = image.topic_by_id(*topic_id);
        let state = topic.and_then(|topic| topic.partition(*partition));
        let Some(state) = state.filter(|state| state.replicas.contains(&me)) else { continue };
        let is_noted = !is_noted_anywhere || image.is_offline(me, *topic_id, *partition);
        let is_missing = matches!(cause, UnreachableCause::Missing { .. });
        if is_missing && image.has_returning_replicas() {
            let is_news = !is_noted || roles::is_given_up(state, me);
            missing.extend(is_news.then_some((*topic_id, *partition)));
            continue;
        }
        let is_failed = *cause == UnreachableCause::FailedDirectory;
        let may_be_copied = !is_failed || !is_noted_anywhere;
        if may_be_copied && roles::is_given_up(state, me) {
            let given_up = match cause {
                UnreachableCause::Missing { .. } => &mut missing,
                _ => &mut copied,
            };
            given_up.push((*topic_id, *partition));
        } else if !is_noted && (is_failed || state.is_complete(me)) {
            stay.push((*topic_id, *partition));
        }
    }
    [
        Losses { doubtful: stay, offline: true, ..Losses::default() },
        Losses { doubtful: copied, ..Losses::default() },
        Losses { doubtful: missing, missing: true, ..Losses::default() },
    ]
}

/// Replicas that the image calls out of reach and that this broker has made again, in another directory: the controller
/// learns that they may catch up. `is_open` says whether a partition is open in a directory that works.
pub fn made_again(
    image: &ClusterImage,
    out_of_reach: &[OutOfReach],
    me: BrokerId,
    is_open: impl Fn(&Key) -> bool,
) -> Losses {
    let known = image.broker(me).filter(|_| image.has_returning_replicas());
    let offline = known.into_iter().flat_map(|broker| broker.offline_replicas());
    let is_back = |key: &Key| is_open(key) && out_of_reach.iter().all(|lost| lost.key != *key);
    let mut gone = Vec::new();
    for (topic_id, partition) in
        offline.filter(|(id, at)| is_back(&Key { topic_id: *id, partition: *at }))
    {
        let topic = image.topic_by_id(topic_id);
        let Some(state) = topic.and_then(|topic| topic.partition(partition)) else { continue };
        let partition_epoch = Some(state.partition_epoch);
        gone.push(EmptyReplica { topic_id, partition, partition_epoch });
    }
    Losses { gone, ..Losses::default() }
}

/// Replicas out of reach that are to be copied anew: their directories can be used, nothing counts on them any more, and another
/// one has everything.
pub fn copied_anew(image: &ClusterImage, out_of_reach: &[OutOfReach], me: BrokerId) -> Keys {
    let may_be_copied = |lost: &&OutOfReach| match lost.cause {
        UnreachableCause::FailedDirectory => false,
        UnreachableCause::Refused => true,
        UnreachableCause::Missing { may_be_copied } => may_be_copied,
    };
    let keys = out_of_reach
        .iter()
        .filter(may_be_copied)
        .map(|lost| (lost.key.topic_id, lost.key.partition));
    let is_copied_anew = |(topic_id, partition): &(TopicId, PartitionIndex)| {
        let topic = image.topic_by_id(*topic_id);
        let state = topic.and_then(|topic| topic.partition(*partition));
        state.is_some_and(|state| roles::is_copied_anew(state, me))
    };
    keys.filter(is_copied_anew).collect()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use metadata::MetadataRecord;
    use metadata::image::HIGHWATER_VERSION;
    use metadata::record::{BrokerRecord, COPIES_LEVEL, PartitionRecord, TopicReplicas};
    use model::{BrokerEpoch, Durability, LeaderEpoch, Timestamp, TopicPartition};
    use storage::disk::SimDisk;

    use super::*;
    use crate::logs::{Assigned, Directory, Process, Wanted};

    const ME: BrokerId = BrokerId(1);
    const TOPIC: TopicId = Uuid([1; 16]);
    const FAILED: UnreachableCause = UnreachableCause::FailedDirectory;
    const REFUSED: UnreachableCause = UnreachableCause::Refused;

    fn partition(number: i32, isr: &[i32], elr: &[i32], replicas: &[i32]) -> PartitionRecord {
        let ids = |ids: &[i32]| ids.iter().copied().map(BrokerId).collect::<Vec<_>>();
        PartitionRecord {
            partition: PartitionIndex(number),
            replicas: ids(replicas),
            isr: ids(isr),
            elr: ids(elr),
            leader: isr.first().map_or(BrokerId::NONE, |id| BrokerId(*id)),
            restarted: Vec::new(),
            last_known_leader: BrokerId::NONE,
            leader_epoch: LeaderEpoch(3),
            partition_epoch: 0,
            recovering: false,
            durable: true,
        }
    }

    /// A topic: both are complete; only this broker is; only the other one is; this is the only replica; it has none.
    fn image(level: i16) -> ClusterImage {
        let mut image = ClusterImage::default();
        let registered = |id: i32| {
            MetadataRecord::BrokerRegistered(BrokerRecord {
                broker: BrokerId(id),
                incarnation: Uuid([id as u8; 16]),
                epoch: BrokerEpoch(i64::from(id)),
                endpoints: Vec::new(),
                rack: None,
                log_dirs: Vec::new(),
                fenced: false,
                software: None,
            })
        };
        let records = [
            MetadataRecord::FeatureLevelSet { name: HIGHWATER_VERSION.into(), level },
            registered(1),
            registered(2),
            MetadataRecord::TopicCreated2 {
                topic_id: TOPIC,
                name: "t".into(),
                created: Timestamp(0),
                partitions: vec![
                    partition(0, &[1, 2], &[], &[1, 2]),
                    partition(1, &[1], &[], &[1, 2]),
                    partition(2, &[2], &[], &[1, 2]),
                    partition(3, &[1], &[], &[1]),
                    partition(4, &[2], &[], &[2]),
                ],
            },
        ];
        records.iter().for_each(|record| image.replay(record).unwrap());
        image
    }

    fn note_offline(image: &mut ClusterImage, numbers: &[i32]) {
        let partitions = numbers.iter().map(|number| PartitionIndex(*number)).collect();
        let replicas = vec![TopicReplicas { topic_id: TOPIC, partitions }];
        image.replay(&MetadataRecord::ReplicasOffline { broker: ME, replicas }).unwrap();
    }

    #[test]
    fn a_replica_that_was_out_of_reach_and_is_open_again_is_reported_as_empty() {
        let again = |image: &ClusterImage, lost: &[OutOfReach], open: &[i32]| {
            let is_open = |key: &Key| open.contains(&key.partition.0);
            made_again(image, lost, ME, is_open).gone
        };
        let mut image = image(COPIES_LEVEL);
        assert_eq!(again(&image, &[], &[0, 1, 2, 3]), [], "none was out of reach");
        note_offline(&mut image, &[0, 2]);
        assert_eq!(again(&image, &[], &[]), []);
        assert_eq!(again(&image, &[], &[1, 2]), empty(&[2], Some(0)));
        let key = Key { topic_id: TOPIC, partition: PartitionIndex(2) };
        let damaged = OutOfReach { key, cause: REFUSED };
        assert_eq!(again(&image, &[damaged], &[0, 2]), empty(&[0], Some(0)));
    }

    fn keys(numbers: &[i32]) -> Keys {
        numbers.iter().map(|number| (TOPIC, PartitionIndex(*number))).collect()
    }

    fn empty(numbers: &[i32], partition_epoch: Option<i32>) -> Vec<EmptyReplica> {
        let of = |(topic_id, partition)| EmptyReplica { topic_id, partition, partition_epoch };
        keys(numbers).into_iter().map(of).collect()
    }

    #[test]
    fn a_refused_replica_is_copied_anew_as_soon_as_another_one_has_become_complete() {
        let anew = |image: &ClusterImage, cause| {
            let of = |number| Key { topic_id: TOPIC, partition: PartitionIndex(number) };
            let lost = (0..6).map(of).map(|key| OutOfReach { key, cause });
            copied_anew(image, &lost.collect::<Vec<_>>(), ME)
        };
        let mut image = image(2);
        assert_eq!(anew(&image, REFUSED), keys(&[2]));
        assert_eq!(anew(&image, FAILED), keys(&[]), "its disk has failed");
        let missing = |may_be_copied| UnreachableCause::Missing { may_be_copied };
        assert_eq!(anew(&image, missing(false)), keys(&[]), "its disk may come back");
        assert_eq!(anew(&image, missing(true)), keys(&[2]));
        // The other one has caught up and is complete, and this one is given up.
        let state = partition(1, &[2], &[], &[1, 2]);
        let leader_epoch = LeaderEpoch(4);
        let state = PartitionRecord { leader_epoch, partition_epoch: 1, ..state };
        image.replay(&MetadataRecord::PartitionChanged2 { topic_id: TOPIC, state }).unwrap();
        assert_eq!(anew(&image, REFUSED), keys(&[1, 2]));
    }

    #[test]
    fn what_goes_out_of_reach_is_told_once_and_again_when_another_one_has_become_complete() {
        let told = |image: &ClusterImage, cause| {
            let of = |number| Key { topic_id: TOPIC, partition: PartitionIndex(number) };
            let lost = (0..6).map(of).map(|key| OutOfReach { key, cause });
            let told = to_give_up(image, &lost.collect::<Vec<_>>(), ME);
            assert!(told[0].offline && !told[1].offline && told[2].missing);
            told.map(|losses| losses.doubtful)
        };
        let mut before = image(1);
        assert_eq!(told(&before, FAILED), [keys(&[]), keys(&[0]), keys(&[])]);
        // A leader that had asked for it before its disk failed.
        let state = partition(1, &[1, 2], &[], &[1, 2]);
        let state = PartitionRecord { partition_epoch: 1, ..state };
        before.replay(&MetadataRecord::PartitionChanged2 { topic_id: TOPIC, state }).unwrap();
        assert_eq!(told(&before, FAILED), [keys(&[]), keys(&[0, 1]), keys(&[])]);
        // From level 2 on it is written down of each on a failed disk, and of others that nothing can be copied from.
        let mut image = image(2);
        assert_eq!(told(&image, FAILED), [keys(&[0, 1, 2, 3]), keys(&[]), keys(&[])]);
        assert_eq!(told(&image, REFUSED), [keys(&[1, 3]), keys(&[0]), keys(&[])]);
        let missing = UnreachableCause::Missing { may_be_copied: false };
        assert_eq!(told(&image, missing), [keys(&[1, 3]), keys(&[]), keys(&[0])]);
        // From level 4 on a report of a missing replica is a note as well, and comes again for as long as it is counted.
        let mut newest = self::image(COPIES_LEVEL);
        assert_eq!(told(&newest, missing), [keys(&[]), keys(&[]), keys(&[0, 1, 2, 3])]);
        note_offline(&mut newest, &[0, 1, 2, 3]);
        assert_eq!(told(&newest, missing), [keys(&[]), keys(&[]), keys(&[0])]);
        note_offline(&mut image, &[0, 2, 3]);
        assert_eq!(told(&image, FAILED), [keys(&[1]), keys(&[]), keys(&[])]);
    }

    /// The directories with these names; in the one called `holds` there are all partitions.
    fn logs(disk: &SimDisk, names: &[&str], holds: Option<&str>) -> Logs {
        let process = Process { node_id: ME, incarnation: Uuid([8; 16]) };
        let open = |names: &[&str]| {
            let paths: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
            let (disk, cluster) = (Arc::new(disk.clone()), Some(Uuid([7; 16]).to_string()));
            let quorum = Path::new("quorum");
            Logs::open_directories(disk, &paths, process, cluster, quorum, Timestamp(1)).unwrap().0
        };
        if let Some(holds) = holds {
            let logs = open(&[holds]);
            logs.settle(Assigned::default()).unwrap();
            let wanted = |number| Wanted {
                name: TopicPartition::new("t", number),
                topic_id: TOPIC,
                config: Arc::default(),
                durability: Durability::Fsync,
                epoch: LeaderEpoch(3),
            };
            let wanted: Vec<Wanted> = (0..4).map(wanted).collect();
            assert!(logs.open(&wanted, 5, 1, Timestamp(1)).iter().all(Result::is_ok));
            logs.release();
        }
        open(names)
    }

    #[test]
    fn replicas_in_a_directory_that_was_away_are_doubtful_and_gone_if_another_one_is_missing() {
        let disk = SimDisk::new();
        let logs = logs(&disk, &["away", "stayed"], Some("away"));
        let ids: Vec<Uuid> = logs.directories().map(Directory::id).collect();
        let (away, stayed) = (ids[0], ids[1]);
        let told = |registered: &[Uuid]| away_replicas(&image(2), &logs, ME, registered);
        assert_eq!(told(&[away, stayed]), Losses::default(), "it was registered");
        assert_eq!(told(&[]), Losses::default(), "nothing was ever registered");
        // Whichever replicas the metadata here calls complete: the controller judges.
        let doubtful = Losses { doubtful: keys(&[0, 1, 2]), ..Losses::default() };
        assert_eq!(told(&[stayed]), doubtful);
        let gone = Losses { gone: empty(&[0, 1, 2], None), ..Losses::default() };
        assert_eq!(told(&[stayed, Uuid([9; 16])]), gone);
        // From level 4 on another replica counts only if it is known to be there: this one may be the last.
        let newest = away_replicas(&image(COPIES_LEVEL), &logs, ME, &[stayed]);
        assert_eq!(newest, Losses { missing: true, ..doubtful });
        assert_eq!(told(&[Uuid([9; 16])]), Losses::default(), "another disk: nothing is counted");
    }

    #[test]
    fn replicas_that_no_directory_knows_are_gone_and_doubtful_if_one_cannot_be_opened() {
        let disk = SimDisk::new();
        let known = logs(&disk, &["data", "more"], Some("data"));
        assert_eq!(unknown_replicas(&image(2), &known, ME), Losses::default());
        let without = logs(&SimDisk::new(), &["data", "more"], None);
        let gone = Losses { gone: empty(&[0, 1], Some(0)), ..Losses::default() };
        assert_eq!(unknown_replicas(&image(2), &without, ME), gone);
        known.release();
        drop(known);
        disk.flip_bit(Path::new("data/highwater-partitions"), 50, 1);
        let partly = logs(&disk, &["data", "more"], None);
        let doubtful = Losses { doubtful: keys(&[0]), missing: true, ..Losses::default() };
        assert_eq!(unknown_replicas(&image(2), &partly, ME), doubtful);
        let all = Losses { doubtful: keys(&[0, 1, 2, 3]), missing: true, ..Losses::default() };
        assert_eq!(unknown_replicas(&image(COPIES_LEVEL), &partly, ME), all);
    }
}
