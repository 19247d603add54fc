//! Sick disks: log directories that hang or are full, and the limits of moving leaderships because of them.
//!
//! A directory is sick while its oldest unfinished write or sync is too old, or while it has no room. Its broker then
//! requests relief, and the active controller grants it where a healthy member of the ISR can lead. The way back is slow:
//! preferred leaderships return after five minutes of health, and after twice the time with each further relief. A
//! sickness without relief has no probation: the device is slow for all brokers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metadata::ClusterImage;
use metadata::decide::SWEEP_PARTITIONS_MAX;
use model::{BrokerId, Moment, PartitionIndex, TopicId};
use partition::AppendAdmission;

use crate::mutants::{Mutant, is_planted};
use crate::probes::ProbeReport;

/// Age of an unfinished operation from which a directory is sick.
pub const SICK_FROM: Duration = Duration::from_millis(500);
/// Age of an unfinished write from which further appends to the directory are deferred. A write ends in the page cache: on a
/// healthy system that takes microseconds.
const DEFERRED_FROM: Duration = Duration::from_millis(300);
/// Age of an unfinished write from which appends are refused. By then other brokers have taken their replicas over.
const REFUSED_FROM: Duration = Duration::from_secs(2);
/// Age of an unfinished operation below which a broker may take leaderships of a sick one.
pub const HEALTHY_BELOW: Duration = Duration::from_millis(100);
/// Age of an unfinished operation from which idle disks of other brokers have to prove that they work.
const SUSPECT_FROM: Duration = Duration::from_millis(150);
/// First and longest period of health before preferred leaderships return.
const PROBATION: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(3_600));
/// Shortest time between two moves of one partition's leadership for sick disks.
const MOVES_APART: Duration = Duration::from_secs(30);

/// Whether a broker may take leaderships of a broker with a sick disk.
pub fn is_healthy(report: &ProbeReport) -> bool {
    report.oldest_operation < HEALTHY_BELOW && !report.lacks_room
}

/// Whether a disk of a broker hangs.
pub fn hangs(report: &ProbeReport) -> bool {
    report.oldest_operation >= SICK_FROM
}

/// Age of the oldest unfinished operation for a request for relief, in whole milliseconds; zero for an operation that does not
/// hang. A directory that lacks room needs no proof that other disks hang less.
pub fn reported_hang_ms(oldest: Duration) -> u64 {
    if oldest < SICK_FROM { 0 } else { oldest.as_millis() as u64 }
}

/// Whether a disk of a broker may hang soon: others must prove by then that they are not the same device.
pub fn may_hang(report: &ProbeReport) -> bool {
    report.oldest_operation >= SUSPECT_FROM
}

/// Turns of replicas in sick directories: a request for relief names at most [`SWEEP_PARTITIONS_MAX`] of them, and the next one
/// the others. A replica that the controller leaves where it is holds up no other one.
#[derive(Debug, Default)]
pub struct ReliefRound {
    /// Replicas that requests of this round have named.
    named: BTreeSet<(TopicId, PartitionIndex)>,
    has_more: bool,
}

impl ReliefRound {
    /// Replicas for the next request: those of `broker` among `there` that other brokers can take over and that had no turn,
    /// leaderships first. Begins the next round when all had their turn.
    pub fn next_request(
        &mut self,
        image: &ClusterImage,
        broker: BrokerId,
        mut there: Vec<(TopicId, PartitionIndex)>,
    ) -> Vec<(TopicId, PartitionIndex)> {
        let state_of = |(topic, at): &(TopicId, PartitionIndex)| {
            image.topic_by_id(*topic).and_then(|topic| topic.partition(*at))
        };
        there.retain(|replica| {
            image.relieves_sick_disks()
                && state_of(replica).is_some_and(|it| it.isr.len() > 1 && it.isr.contains(&broker))
        });
        if there.iter().all(|replica| self.named.contains(replica)) {
            self.named.clear();
        }
        there.retain(|replica| !self.named.contains(replica));
        there.sort_by_key(|replica| {
            (state_of(replica).is_none_or(|state| state.leader != broker), *replica)
        });
        self.has_more = there.len() > SWEEP_PARTITIONS_MAX;
        there.truncate(SWEEP_PARTITIONS_MAX);
        self.named.extend(&there);
        there
    }

    /// Whether replicas wait for their first turn in this round: the next request follows at once.
    pub fn has_more(&self) -> bool {
        self.has_more
    }
}

/// Admission of appends to a log directory whose oldest unfinished write has this age. `has_others`: the broker has another log
/// directory, whose partitions are served on the same connections.
pub fn append_admission(oldest_write: Duration, has_others: bool) -> AppendAdmission {
    if oldest_write < DEFERRED_FROM {
        AppendAdmission::Admitted
    } else if has_others && oldest_write >= REFUSED_FROM {
        AppendAdmission::Refused
    } else {
        AppendAdmission::Deferred
    }
}

/// Condition of a log directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryCondition {
    /// Operations end in time, and there is room.
    Healthy,
    /// An operation hangs, or there is no room.
    Sick,
    /// Healthy again, for too short a time to take preferred leaderships back.
    OnProbation,
}

/// Course of one log directory's condition.
#[derive(Debug)]
pub struct DirectoryHealth {
    /// Period of health that ends the next probation.
    probation: Duration,
    /// Last time at which the directory was sick and other brokers had taken over.
    relieved_at: Option<Moment>,
    is_sick: bool,
    /// Whether other brokers took over during this sickness.
    is_relieved: bool,
}

impl Default for DirectoryHealth {
    fn default() -> DirectoryHealth {
        DirectoryHealth {
            probation: PROBATION.0,
            relieved_at: None,
            is_sick: false,
            is_relieved: false,
        }
    }
}

impl DirectoryHealth {
    /// Takes the age of the oldest unfinished operation and whether the directory has no room.
    pub fn observe(&mut self, now: Moment, age: Duration, is_full: bool) -> DirectoryCondition {
        let since = self.relieved_at.map(|at| now.since(at));
        let hangs = age >= SICK_FROM && !is_planted(Mutant::HangsAreHealthy);
        if hangs || is_full {
            if self.is_relieved {
                self.relieved_at = Some(now);
            }
            self.is_sick = true;
            return DirectoryCondition::Sick;
        }
        (self.is_sick, self.is_relieved) = (false, false);
        match since {
            Some(since) if since < self.probation && !is_planted(Mutant::ReturnsAtOnce) => {
                DirectoryCondition::OnProbation
            }
            _ => DirectoryCondition::Healthy,
        }
    }

    /// Other brokers took over replicas of the directory because it was sick; it may have recovered since.
    pub fn relieved(&mut self, now: Moment) {
        if self.is_relieved {
            return;
        }
        self.probation = match self.relieved_at.map(|at| now.since(at)) {
            Some(since) if since <= PROBATION.1 => (self.probation * 2).min(PROBATION.1),
            _ => PROBATION.0,
        };
        (self.is_relieved, self.relieved_at) = (self.is_sick, Some(now));
    }
}

/// Leaderships that moved for sick disks, on the active controller.
#[derive(Debug, Default)]
pub struct DiskMoves {
    moved: BTreeMap<(TopicId, PartitionIndex), Moment>,
}

impl DiskMoves {
    /// Whether the leadership of a partition may move for a sick disk now.
    pub fn may_move(&self, now: Moment, topic: TopicId, partition: PartitionIndex) -> bool {
        let moved = self.moved.get(&(topic, partition));
        moved.is_none_or(|at| now.since(*at) >= MOVES_APART) || is_planted(Mutant::MovesAgainAtOnce)
    }

    /// The leadership of a partition moved.
    pub fn moved(&mut self, now: Moment, topic: TopicId, partition: PartitionIndex) {
        self.moved.retain(|_, at| now.since(*at) < MOVES_APART);
        self.moved.insert((topic, partition), now);
    }
}

#[cfg(test)]
mod tests {
    use metadata::MetadataRecord;
    use metadata::decide::RELIEF_LEVEL;
    use metadata::image::HIGHWATER_VERSION;
    use metadata::record::PartitionRecord;
    use model::{LeaderEpoch, Timestamp, Uuid};

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::START.plus(Duration::from_secs(seconds))
    }

    const QUICK: Duration = Duration::from_millis(40);
    const HUNG: Duration = Duration::from_millis(500);

    #[test]
    fn appends_wait_for_a_write_that_hangs_and_are_refused_where_another_directory_works() {
        use AppendAdmission::{Admitted, Deferred, Refused};
        let of = |millis, has_others| append_admission(Duration::from_millis(millis), has_others);
        for has_others in [false, true] {
            assert_eq!(of(0, has_others), Admitted);
            assert_eq!(of(299, has_others), Admitted);
            assert_eq!(of(300, has_others), Deferred);
            assert_eq!(of(1_999, has_others), Deferred);
        }
        assert_eq!((of(2_000, true), of(60_000, false)), (Refused, Deferred));
    }

    #[test]
    fn an_operation_that_does_not_hang_is_not_reported_with_a_full_directory() {
        assert_eq!(reported_hang_ms(Duration::from_millis(3)), 0);
        assert_eq!(reported_hang_ms(SICK_FROM - Duration::from_micros(1)), 0);
        assert_eq!(reported_hang_ms(HUNG), 500);
    }

    /// Conditions of a directory that hangs at 10 s and at 400 s.
    fn course() -> Vec<DirectoryCondition> {
        let mut health = DirectoryHealth::default();
        let mut look = |second, age| {
            let condition = health.observe(at(second), age, false);
            if condition == DirectoryCondition::Sick {
                health.relieved(at(second));
            }
            condition
        };
        vec![
            look(0, QUICK),
            look(10, HUNG),
            look(11, QUICK),
            look(309, QUICK),
            look(310, QUICK),
            look(400, HUNG),
            look(401, HUNG),
            look(1_000, QUICK),
            look(1_001, QUICK),
        ]
    }

    #[test]
    fn a_directory_is_sick_while_it_hangs_and_on_probation_for_a_doubling_time() {
        use DirectoryCondition::{Healthy, OnProbation, Sick};
        let expected =
            [Healthy, Sick, OnProbation, OnProbation, Healthy, Sick, Sick, OnProbation, Healthy];
        assert_eq!(course(), expected);
    }

    #[test]
    fn probation_lasts_an_hour_at_most_and_is_short_again_after_an_hour_of_health() {
        let mut health = DirectoryHealth::default();
        for second in 0..20 {
            health.observe(at(second * 2), HUNG, false);
            health.relieved(at(second * 2));
            health.observe(at(second * 2 + 1), QUICK, false);
        }
        assert_eq!(health.observe(at(3_637), QUICK, false), DirectoryCondition::OnProbation);
        assert_eq!(health.observe(at(3_638), QUICK, false), DirectoryCondition::Healthy);
        assert_eq!(health.observe(at(9_000), QUICK, true), DirectoryCondition::Sick);
        health.relieved(at(9_000));
        assert_eq!(health.observe(at(9_301), QUICK, false), DirectoryCondition::Healthy);
    }

    #[test]
    fn only_a_relief_begins_a_probation_be_it_late() {
        let mut health = DirectoryHealth::default();
        assert_eq!(health.observe(at(0), HUNG, false), DirectoryCondition::Sick);
        assert_eq!(health.observe(at(1), QUICK, false), DirectoryCondition::Healthy);
        health.relieved(at(1));
        assert_eq!(health.observe(at(2), QUICK, false), DirectoryCondition::OnProbation);
        assert_eq!(health.observe(at(301), QUICK, false), DirectoryCondition::Healthy);
    }

    /// A topic of which broker 2 leads the partitions below `led`, and follows in the others.
    fn image_of(partitions: usize, led: usize) -> (ClusterImage, Vec<(TopicId, PartitionIndex)>) {
        let topic_id = Uuid::from_random([1; 16]);
        let (one, two) = (BrokerId(1), BrokerId(2));
        let of = |at: usize| PartitionRecord {
            partition: PartitionIndex(at as i32),
            replicas: vec![one, two],
            isr: vec![one, two],
            elr: Vec::new(),
            restarted: Vec::new(),
            leader: if at < led { two } else { one },
            last_known_leader: BrokerId::NONE,
            leader_epoch: LeaderEpoch(4),
            partition_epoch: 9,
            recovering: false,
            durable: false,
        };
        let mut image = ClusterImage::default();
        let (name, level) = (HIGHWATER_VERSION.to_owned(), RELIEF_LEVEL);
        image.replay(&MetadataRecord::FeatureLevelSet { name, level }).unwrap();
        let partitions: Vec<PartitionRecord> = (0..partitions).map(of).collect();
        let all = partitions.iter().map(|it| (topic_id, it.partition)).collect();
        let (name, created) = ("t".into(), Timestamp(0));
        let created = MetadataRecord::TopicCreated2 { topic_id, name, created, partitions };
        image.replay(&created).unwrap();
        (image, all)
    }

    #[test]
    fn requests_for_relief_name_every_replica_although_the_controller_moves_none() {
        let (image, all) = image_of(2_500, 1_200);
        let mut round = ReliefRound::default();
        for _ in 0..2 {
            let mut requests = Vec::new();
            while requests.last().is_none_or(|_| round.has_more()) {
                requests.push(round.next_request(&image, BrokerId(2), all.clone()));
            }
            let sizes: Vec<usize> = requests.iter().map(Vec::len).collect();
            assert_eq!(sizes, [1_000, 1_000, 500]);
            let named = requests.concat();
            assert!(named[..1_200].iter().all(|(_, at)| at.0 < 1_200), "leaderships first");
            assert_eq!(named.into_iter().collect::<BTreeSet<_>>().len(), 2_500);
        }
        let moved = round.next_request(&image, BrokerId(2), all[..3].to_vec());
        assert_eq!((moved.as_slice(), round.has_more()), (&all[..3], false));
        assert!(round.next_request(&image, BrokerId(3), all).is_empty(), "it is in no ISR");
    }

    #[test]
    fn a_leadership_moves_once_in_thirty_seconds() {
        let (topic, partition) = (Uuid::from_random([1; 16]), PartitionIndex(3));
        let mut moves = DiskMoves::default();
        assert!(moves.may_move(at(0), topic, partition));
        moves.moved(at(0), topic, partition);
        assert!(!moves.may_move(at(29), topic, partition));
        assert!(moves.may_move(at(29), topic, PartitionIndex(4)));
        assert!(moves.may_move(at(30), topic, partition));
    }

    #[test]
    fn only_quick_disks_with_room_take_leaderships() {
        let of = |ms, lacks_room| ProbeReport {
            oldest_operation: Duration::from_millis(ms),
            lacks_room,
            ..ProbeReport::default()
        };
        assert!(is_healthy(&of(99, false)) && !is_healthy(&of(100, false)));
        assert!(!is_healthy(&of(0, true)) && !hangs(&of(499, true)) && hangs(&of(500, false)));
    }

    #[cfg(debug_assertions)]
    #[test]
    fn ping_pong_is_found() {
        crate::mutants::plant(Some(Mutant::ReturnsAtOnce));
        let course = course();
        crate::mutants::plant(Some(Mutant::MovesAgainAtOnce));
        let (topic, partition) = (Uuid::from_random([1; 16]), PartitionIndex(3));
        let mut moves = DiskMoves::default();
        moves.moved(at(0), topic, partition);
        let may_move = moves.may_move(at(1), topic, partition);
        crate::mutants::plant(None);
        assert!(may_move && course[2] == DirectoryCondition::Healthy);
    }
}
