//! Copying from one leader: what a broker asks another one for, and what is done about the answer.
//!
//! One request is under way at a time. It asks for every partition that is followed there, and is sent when all that
//! came with the answer before is as durable as its topic wants: a fetch offset is an acknowledgement, so a round is
//! receive, check, write, sync, ask. While it runs, the leader gathers what comes next: batches grow by themselves.
//!
//! A partition that was answered with an error rests for a while, and the others go on: their request waits at the leader
//! for no longer than that. One whose log has to be cut first, or started over, is in the next request too: nothing is asked
//! before that is done.
//!
//! A leader with nothing new lets a request wait for half a second. A partition that comes to it meanwhile, because its old
//! leader has ended, cannot wait that long: nothing of it is acknowledged before it is copied here. So the request that
//! lacks it is given up, and another one takes its place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::{ErrorCode, LeaderEpoch, Moment, Offset, PartitionIndex, Timestamp, TopicId};
use partition::{
    Followed, Next, Partition, PartitionError, RefusedTruncation, ReplicaAnswer, ReplicaFetch,
    StartOverVerdict, Truncation,
};

use model::BrokerId;

use crate::mutants::{Mutant, is_planted};

/// How long a partition rests after an error.
const REST_AFTER_ERROR: Duration = Duration::from_millis(100);

/// How long a partition that is new to the leader waits for the answer to a request without it. Where records flow, it comes
/// sooner; and partitions come by the hundred, when a broker ends.
const NEW_PATIENCE: Duration = Duration::from_millis(10);

/// A partition, whatever its topic is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its topic.
    pub topic_id: TopicId,
    /// Its number there.
    pub partition: PartitionIndex,
}

/// A request to the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Rises with every request; the answer names it.
    pub number: u64,
    /// What is asked for.
    pub partitions: Vec<(Key, ReplicaFetch)>,
    /// How long it may wait at the leader for something new, at most: until the first partition that rests may be asked for
    /// again. `None`: nothing rests.
    pub wait_max: Option<Duration>,
}

/// Why a leader gives nothing of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaAnswerError {
    /// The offset is not within the leader's log, which begins and ends there.
    OutOfRange {
        /// The leader's first offset.
        log_start: Offset,
        /// The one behind its last.
        log_end: Offset,
    },
    /// Anything else: it is asked again, by and by.
    Other(ErrorCode),
}

/// What a leader answers for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The last leader epoch in common and where it ends, if the histories part.
    pub diverging: Option<(LeaderEpoch, Offset)>,
    /// The leader's high watermark.
    pub high_watermark: Offset,
    /// The leader's first offset.
    pub log_start: Offset,
    /// Batches.
    pub records: Bytes,
}

/// What can happen to a fetcher.
#[derive(Debug)]
pub enum Event {
    /// The partition follows this leader from now on, or does so in another leader epoch.
    Follow(Key, Arc<Partition>),
    /// It does not any more.
    Leave(Key),
    /// The leader answered the request of this number.
    Answered(u64, Vec<(Key, Result<Answered, ReplicaAnswerError>)>),
    /// There will be no answer: the connection ended, or its time is up.
    Lost,
    /// Something that was written may be durable now, a log was cut, or time went by.
    Look,
}

/// A log to be emptied, which resumes behind its end ([`Partition::start_over`]).
#[derive(Clone, Debug)]
pub struct StartOver {
    /// The partition.
    pub key: Key,
    /// Its replica here.
    pub partition: Arc<Partition>,
    /// The leader epoch in which the leader had deleted the records behind the end of this log, or the records that would prove both
    /// logs equal.
    pub leader_epoch: LeaderEpoch,
    /// Where the log starts then: the leader's log start, or the end of this log.
    pub start: Offset,
    /// A lost majority of the metadata quorum may have committed records of the log. To be reported.
    pub takes_committed: bool,
}

/// What a fetcher wants to be done.
#[derive(Debug, Default)]
pub struct Effects {
    /// To be sent to the leader. If one before has no answer yet, that one is not waited for any more: it may wait at the
    /// leader for long, and an answer to it is ignored.
    pub ask: Option<Ask>,
    /// To be synced before anything more is asked for; afterwards [`Event::Look`].
    pub syncs: Vec<Arc<Partition>>,
    /// Logs to be cut ([`Partition::cut`], once that is in the journal); afterwards [`Event::Look`].
    pub cuts: Vec<(Key, Arc<Partition>, Truncation)>,
    /// Partitions that are not fetched from this leader any more: it lacks committed records. To be reported.
    pub refused: Vec<(Key, Arc<Partition>, RefusedTruncation)>,
    /// Logs to be emptied, once that is in the journal; afterwards [`Event::Look`].
    pub start_overs: Vec<StartOver>,
    /// Logs that may have gaps from now on ([`Partition::allow_gaps`], once that is in the journal); afterwards
    /// [`Event::Look`].
    pub gaps: Vec<(Key, Arc<Partition>)>,
    /// Logs without records that cannot go on and have to be made anew, and why.
    pub anew: Vec<(Key, Arc<Partition>, String)>,
    /// Records to be deleted below these offsets, as the leader has, durably; afterwards [`Event::Look`].
    pub deletions: Vec<(Key, Arc<Partition>, Offset)>,
    /// What could not be appended, and why.
    pub failures: Vec<(Key, Arc<Partition>, PartitionError)>,
    /// When to look again although nothing has happened.
    pub look_at: Option<Moment>,
}

#[derive(Debug)]
struct Copied {
    partition: Arc<Partition>,
    rests_until: Moment,
    /// When a cut that is still to be made is asked for again: the one before failed.
    cut_again_at: Moment,
}

/// Who was asked what.
#[derive(Debug)]
pub struct Asked {
    number: u64,
    epochs: BTreeMap<Key, LeaderEpoch>,
}

/// The partitions that are copied from one leader.
#[derive(Debug)]
pub struct Fetcher {
    leader: BrokerId,
    copied: BTreeMap<Key, Copied>,
    asked: Option<Asked>,
    /// When the request that is under way is given up: it lacks a partition.
    given_up_at: Option<Moment>,
    numbered: u64,
}

impl Fetcher {
    /// One that copies nothing yet.
    pub fn new(leader: BrokerId) -> Fetcher {
        Fetcher { leader, copied: BTreeMap::new(), asked: None, given_up_at: None, numbered: 0 }
    }

    /// From whom it copies.
    pub fn leader(&self) -> BrokerId {
        self.leader
    }

    /// Whether nothing is copied.
    pub fn is_empty(&self) -> bool {
        self.copied.is_empty()
    }

    /// Takes one event. `clock` is what records are compared with.
    pub fn step(&mut self, now: Moment, clock: Timestamp, event: Event, effects: &mut Effects) {
        match event {
            Event::Follow(key, partition) => self.follow(now, key, partition),
            Event::Leave(key) => drop(self.copied.remove(&key)),
            Event::Answered(number, answers) => {
                let asked = self.asked.take_if(|asked| asked.number == number);
                if let Some(asked) = asked {
                    for (key, answer) in answers {
                        self.answered(now, clock, &asked, key, answer, effects);
                    }
                }
            }
            Event::Lost => self.asked = None,
            Event::Look => {}
        }
        self.ask(now, effects);
    }

    fn follow(&mut self, now: Moment, key: Key, partition: Arc<Partition>) {
        if let Some(asked) = &self.asked {
            let known = self.copied.get(&key).map(|copied| &copied.partition);
            let is_known = known.is_some_and(|known| Arc::ptr_eq(known, &partition));
            // Other replicas came or went, in the same leader epoch: what is asked for still holds.
            if is_known && asked.epochs.get(&key) == Some(&partition.epoch()) {
                return;
            }
            self.given_up_at.get_or_insert(now.plus(NEW_PATIENCE));
        }
        self.copied.insert(key, Copied { partition, rests_until: now, cut_again_at: now });
    }

    /// The partition that an answer is for: a partition of the same topic id.
    fn copied_key(&self, key: Key) -> Key {
        let has_number = |known: &&Key| known.partition == key.partition;
        match is_planted(Mutant::AnswersByNumber) {
            true => self.copied.keys().find(has_number).copied().unwrap_or(key),
            false => key,
        }
    }

    fn answered(
        &mut self,
        now: Moment,
        clock: Timestamp,
        asked: &Asked,
        key: Key,
        answer: Result<Answered, ReplicaAnswerError>,
        effects: &mut Effects,
    ) {
        let Some(epoch) = asked.epochs.get(&key) else { return };
        let key = self.copied_key(key);
        let Some(copied) = self.copied.get_mut(&key) else { return };
        let partition = Arc::clone(&copied.partition);
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                copied.rests_until = now.plus(REST_AFTER_ERROR);
                // Of what it asks for now, in the same leader epoch: it may have gone on.
                let fetch = partition.replica_fetch();
                let Some(asked) = fetch.filter(|fetch| fetch.from.leader_epoch == *epoch) else {
                    return;
                };
                if let Some(start) = begins_behind(&asked, error) {
                    start_over(key, partition, *epoch, start, effects);
                } else if let Some(reason) = is_empty_beyond(&asked, error) {
                    effects.anew.push((key, partition, reason));
                }
                return;
            }
        };
        let taken = partition.follow_answer(
            &ReplicaAnswer {
                asked_in: *epoch,
                diverging: answer.diverging,
                high_watermark: answer.high_watermark,
                log_start: answer.log_start,
                records: &answer.records,
            },
            clock,
        );
        match taken {
            Ok(Followed::Stale) => {}
            Ok(Followed::Cut(cut)) => {
                copied.cut_again_at = now.plus(REST_AFTER_ERROR);
                effects.cuts.push((key, partition, cut));
            }
            Ok(Followed::Refused(refused)) => effects.refused.push((key, partition, refused)),
            Ok(Followed::StartOver(end)) => {
                // Where that finds no room, the same answer would come again and again.
                copied.rests_until = now.plus(REST_AFTER_ERROR);
                start_over(key, partition, *epoch, end, effects);
            }
            Ok(Followed::Gaps) => {
                // Where that finds no room, the same records would be fetched again and again.
                copied.rests_until = now.plus(REST_AFTER_ERROR);
                effects.gaps.push((key, partition));
            }
            Ok(Followed::Appended { delete_below, .. }) => {
                effects.deletions.extend(delete_below.map(|start| (key, partition, start)));
            }
            Err(error) => {
                copied.rests_until = now.plus(REST_AFTER_ERROR);
                match cannot_begin(&partition, &error) {
                    Some(reason) => effects.anew.push((key, partition, reason)),
                    None => effects.failures.push((key, partition, error)),
                }
            }
        }
    }

    /// Asks for everything that may be asked for, unless a request is under way, something is not durable yet, or a log is
    /// to be changed first: a request without its partition might wait at the leader for long.
    fn ask(&mut self, now: Moment, effects: &mut Effects) {
        if self.asked.is_some() {
            match self.given_up_at {
                Some(at) if at <= now => self.asked = None,
                at => {
                    effects.look_at = at;
                    return;
                }
            }
        }
        self.given_up_at = None;
        let mut partitions = Vec::new();
        for (key, copied) in &mut self.copied {
            if copied.rests_until > now {
                let until = effects.look_at.get_or_insert(copied.rests_until);
                *until = (*until).min(copied.rests_until);
                continue;
            }
            match copied.partition.next() {
                Next::Sync => effects.syncs.push(Arc::clone(&copied.partition)),
                Next::Ask(from) if from.leader == self.leader => {
                    partitions.extend(copied.partition.replica_fetch().map(|fetch| (*key, fetch)));
                }
                Next::Cut(_) if copied.cut_again_at > now => {
                    let until = effects.look_at.get_or_insert(copied.cut_again_at);
                    *until = (*until).min(copied.cut_again_at);
                }
                // A cut failed that may succeed by now, for lack of room or of files.
                Next::Cut(to) => {
                    copied.cut_again_at = now.plus(REST_AFTER_ERROR);
                    let cut = Truncation { to, takes_committed: false };
                    effects.cuts.push((*key, Arc::clone(&copied.partition), cut));
                }
                // Its role has changed: who changed it says so.
                Next::Ask(_) | Next::Rest => {}
            }
        }
        // After a deletion, the next request reports the new log start: a client may wait for that (KIP-107).
        let changes_logs = !effects.cuts.is_empty()
            || !effects.start_overs.is_empty()
            || !effects.gaps.is_empty()
            || !effects.deletions.is_empty();
        if partitions.is_empty() || !effects.syncs.is_empty() || changes_logs {
            return;
        }
        self.numbered += 1;
        let epochs = partitions.iter().map(|(key, fetch)| (*key, fetch.from.leader_epoch));
        self.asked = Some(Asked { number: self.numbered, epochs: epochs.collect() });
        let wait_max = effects.look_at.map(|look_at| look_at.since(now));
        effects.ask = Some(Ask { number: self.numbered, partitions, wait_max });
    }
}

/// Has a log emptied that cannot be continued as it is, or reports that the follower keeps it.
fn start_over(
    key: Key,
    partition: Arc<Partition>,
    leader_epoch: LeaderEpoch,
    start: Offset,
    effects: &mut Effects,
) {
    match partition.judge_start_over(leader_epoch) {
        StartOverVerdict::Stale => {}
        StartOverVerdict::Due { takes_committed } => {
            let due = StartOver { key, partition, leader_epoch, start, takes_committed };
            effects.start_overs.push(due);
        }
        StartOverVerdict::Refused(refused) => effects.refused.push((key, partition, refused)),
    }
}

/// Where a follower starts anew whose leader has nothing of what comes next: records were deleted there while it was
/// away.
fn begins_behind(asked: &ReplicaFetch, error: ReplicaAnswerError) -> Option<Offset> {
    let ReplicaAnswerError::OutOfRange { log_start, .. } = error else { return None };
    (asked.from.offset < log_start).then_some(log_start)
}

/// Why a follower cannot go on whose log is beyond the end of its leader's. One that has records is told where the histories
/// part instead, and cuts. One that has none knows no epoch to ask by: all of its records were deleted, or cut, and there
/// is nothing in it that could be lost.
fn is_empty_beyond(asked: &ReplicaFetch, error: ReplicaAnswerError) -> Option<String> {
    let ReplicaAnswerError::OutOfRange { log_end, .. } = error else { return None };
    let (offset, is_empty) = (asked.from.offset, asked.from.offset == asked.log_start);
    (is_empty && offset > log_end).then(|| {
        format!(
            "the log has no records and begins at {offset}, and its leader's ends at {log_end}: it has to be made anew"
        )
    })
}

/// Why a follower without records cannot take what its leader has: it begins in the middle of a batch of its leader,
/// as after a deletion that another leader made.
fn cannot_begin(partition: &Partition, error: &PartitionError) -> Option<String> {
    let PartitionError::Replicated(reason) = error else { return None };
    let is_empty = partition.with_log(|log| log.log_start_offset() == log.log_end_offset());
    is_empty.then(|| format!("the log has no records: {reason}"))
}

#[cfg(test)]
mod tests {
    use partition::FetchFrom;

    use super::*;

    #[test]
    fn an_offset_out_of_range_is_gone_on_from_only_where_nothing_can_be_lost() {
        let asked = |offset, first| {
            let (leader, leader_epoch) = (BrokerId(1), LeaderEpoch(3));
            let from = FetchFrom { leader, leader_epoch, offset: Offset(offset) };
            ReplicaFetch { from, last_epoch: LeaderEpoch::NONE, log_start: Offset(first) }
        };
        let range = ReplicaAnswerError::OutOfRange { log_start: Offset(10), log_end: Offset(20) };
        // Whether it starts anew at the leader's start, and whether it is made anew.
        let answer = |asked: &ReplicaFetch| {
            (begins_behind(asked, range), is_empty_beyond(asked, range).is_some())
        };
        assert_eq!(answer(&asked(5, 0)), (Some(Offset(10)), false), "the leader has deleted it");
        assert_eq!(answer(&asked(30, 30)), (None, true), "without a record");
        assert_eq!(answer(&asked(30, 25)), (None, false), "with records that the leader lacks");
        assert_eq!(answer(&asked(15, 15)), (None, false), "within the leader's log");
        let other = ReplicaAnswerError::Other(ErrorCode::NotLeaderOrFollower);
        assert_eq!(begins_behind(&asked(30, 30), other), None);
        assert_eq!(is_empty_beyond(&asked(30, 30), other), None);
    }
}
