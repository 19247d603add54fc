//! What a step of the metadata means for the counters: elections and fencings, which the active controller counts, and
//! ISR changes, which the partition's leader counts. So sums over all brokers count everything once. Every broker counts the
//! unclean elections besides, and reports them: the controller that decides one may be the next to die.
//!
//! A broker that takes many steps at once sees what they come to together, but for unclean elections: the step names each.

use std::collections::BTreeSet;

use metadata::decide::UncleanElection;
use metadata::{ClusterImage, ImageUpdate, PartitionImage, TopicChange};
use model::BrokerId;
use tracing::error;

use crate::counters::{ClusterCounters, Election, Fencing, Shrink};

/// Who counts.
pub struct Counts<'a> {
    /// This broker.
    pub me: BrokerId,
    /// Whether it is the active controller.
    pub decides: bool,
    /// Why a broker was fenced, if that was this controller's doing.
    pub fenced_for: &'a dyn Fn(BrokerId) -> Option<Fencing>,
}

impl Counts<'_> {
    /// Counts what a step changed. The first step of a broker's life, from the empty image, changed nothing.
    pub fn step(&self, counters: &ClusterCounters, update: &ImageUpdate) {
        if update.before.cluster_id().is_none() {
            return;
        }
        counters.unclean_seen.add(update.delta.unclean.len() as u64);
        tell_unclean(update);
        let unclean = update.delta.unclean.iter().map(|of| (of.topic_id, of.partition));
        let unclean: BTreeSet<_> = unclean.collect();
        for broker in update.delta.brokers.iter().filter(|_| self.decides) {
            self.fencing(counters, update, *broker);
        }
        for (id, change) in &update.delta.topics {
            let TopicChange::Changed(partitions) = change else { continue };
            let (before, after) = (update.before.topic_by_id(*id), update.after.topic_by_id(*id));
            for index in partitions {
                let before = before.and_then(|topic| topic.partition(*index));
                let after = after.and_then(|topic| topic.partition(*index));
                if let (Some(before), Some(after)) = (before, after) {
                    let is_unclean = unclean.contains(&(*id, *index));
                    self.partition(counters, update, is_unclean, before, after);
                }
            }
        }
    }

    fn fencing(&self, counters: &ClusterCounters, update: &ImageUpdate, broker: BrokerId) {
        let (before, after) = (update.before.broker(broker), update.after.broker(broker));
        let Some(before) = before.filter(|known| !known.fenced) else { return };
        // Whoever registers anew says that the process before has ended.
        let is_another = after.is_some_and(|after| after.epoch != before.epoch);
        if is_another || after.is_none_or(|known| known.fenced) {
            let default = if is_another { Fencing::Link } else { Fencing::Stop };
            counters.fencings.count((self.fenced_for)(broker).unwrap_or(default));
        }
    }

    fn partition(
        &self,
        counters: &ClusterCounters,
        update: &ImageUpdate,
        is_unclean: bool,
        before: &PartitionImage,
        after: &PartitionImage,
    ) {
        let image = &update.after;
        if self.decides && after.leader_epoch > before.leader_epoch {
            counters.elections.count(match is_unclean && after.has_leader() {
                true => Election::Unclean,
                false => election(update, before, after),
            });
        }
        if after.leader != self.me {
            return;
        }
        for left in before.isr.iter().filter(|id| !after.isr.contains(id)) {
            counters.shrinks.count(shrink(image, *left));
        }
        // Who leads has joined nothing.
        let is_new = |id: &&BrokerId| !before.isr.contains(id) && **id != after.leader;
        let joined = after.isr.iter().filter(is_new).count();
        counters.expansions.add(joined as u64);
    }
}

/// Reports unclean elections, many at once in one line: acknowledged records may be lost.
fn tell_unclean(update: &ImageUpdate) {
    let unclean = &update.delta.unclean;
    let Some(UncleanElection { topic_id, partition, leader, leader_epoch }) = unclean.first()
    else {
        return;
    };
    let topic = update.after.topic_by_id(*topic_id);
    let first = topic.map_or_else(String::new, |topic| format!("{}-{partition}", topic.name));
    error!(
        partitions = unclean.len(),
        first,
        leader = leader.0,
        leader_epoch = leader_epoch.0,
        "leaders were elected that may lack acknowledged records"
    );
}

fn election(update: &ImageUpdate, before: &PartitionImage, after: &PartitionImage) -> Election {
    let image = &update.after;
    if !after.has_leader() {
        return Election::NoLeader;
    }
    if before.leader == after.leader {
        let registered = |image: &ClusterImage| image.broker(after.leader).map(|it| it.epoch);
        let has_led_on = registered(&update.before) == registered(image)
            && after.leader_epoch.0 == before.leader_epoch.0 + 1;
        return if has_led_on { Election::ReplicaLost } else { Election::LeaderRestarted };
    }
    if !before.has_leader() {
        return Election::LeaderBack;
    }
    let old = image.broker(before.leader);
    match old {
        _ if !image.is_active(before.leader) => Election::LeaderFenced,
        Some(old) if old.in_controlled_shutdown => Election::LeaderStops,
        _ if !after.isr.contains(&before.leader) => Election::LeaderRestarted,
        _ if after.leader == after.preferred_leader() => Election::Preferred,
        _ => Election::Other,
    }
}

fn shrink(image: &ClusterImage, left: BrokerId) -> Shrink {
    match image.broker(left).filter(|known| !known.fenced) {
        None => Shrink::Fenced,
        Some(known) if known.in_controlled_shutdown => Shrink::Stops,
        Some(_) => Shrink::Lag,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use metadata::record::{BrokerRecord, MetadataRecord, PartitionRecord};
    use metadata::{ImageDelta, record};
    use model::{BrokerEpoch, LeaderEpoch, PartitionIndex, Timestamp, TopicId, Uuid};

    use super::*;
    use crate::counters::{ByReason, Reason};

    fn topic() -> TopicId {
        TopicId::from_random([1; 16])
    }

    fn state(leader: i32, isr: &[i32], elr: &[i32], epoch: i32) -> PartitionRecord {
        PartitionRecord {
            partition: PartitionIndex(0),
            replicas: [1, 2, 3].map(BrokerId).to_vec(),
            isr: isr.iter().copied().map(BrokerId).collect(),
            elr: elr.iter().copied().map(BrokerId).collect(),
            leader: BrokerId(leader),
            restarted: Vec::new(),
            last_known_leader: BrokerId::NONE,
            leader_epoch: LeaderEpoch(epoch),
            partition_epoch: epoch,
            recovering: false,
            durable: false,
        }
    }

    fn changed(state: PartitionRecord) -> MetadataRecord {
        MetadataRecord::PartitionChanged2 { topic_id: topic(), state }
    }

    fn registered(id: i32, epoch: i64) -> MetadataRecord {
        MetadataRecord::BrokerRegistered(BrokerRecord {
            broker: BrokerId(id),
            incarnation: Uuid::from_random([epoch as u8; 16]),
            epoch: BrokerEpoch(epoch),
            endpoints: Vec::<record::Endpoint>::new(),
            rack: None,
            log_dirs: Vec::new(),
            fenced: false,
            software: None,
        })
    }

    fn cluster(state: PartitionRecord) -> ClusterImage {
        let mut records = vec![MetadataRecord::ClusterCreated { cluster_id: "c".into() }];
        records.extend((1..=3).map(|id| registered(id, i64::from(id))));
        let (topic_id, name) = (topic(), "t".to_owned());
        let (created, partitions) = (Timestamp(0), vec![state]);
        records.push(MetadataRecord::TopicCreated2 { topic_id, name, created, partitions });
        let mut image = ClusterImage::default();
        records.iter().for_each(|record| image.replay(record).unwrap());
        image
    }

    fn step(before: &ClusterImage, records: &[MetadataRecord]) -> ImageUpdate {
        let (mut after, mut delta) = (before.clone(), ImageDelta::default());
        for record in records {
            delta.note(&after, record);
            after.replay(record).unwrap();
        }
        let (before, after) = (Arc::new(before.clone()), Arc::new(after));
        ImageUpdate { index: 1, before, after, delta: Arc::new(delta) }
    }

    fn counted<R: Reason>(counters: &ByReason<R>) -> BTreeMap<&'static str, u64> {
        counters.each().filter(|(_, count)| *count > 0).collect()
    }

    /// What the leader of the partition counts, which is the active controller as well.
    fn count(me: i32, update: &ImageUpdate) -> ClusterCounters {
        let fenced_for = |broker| (broker == BrokerId(2)).then_some(Fencing::Link);
        let counts = Counts { me: BrokerId(me), decides: true, fenced_for: &fenced_for };
        let counters = ClusterCounters::default();
        counts.step(&counters, update);
        counters
    }

    #[test]
    fn each_reason_of_an_election_is_told_from_the_others() {
        let fenced = |id| MetadataRecord::BrokerFenced { broker: BrokerId(id) };
        let stops = |id| MetadataRecord::ControlledShutdownBegun { broker: BrokerId(id) };
        let all = state(2, &[1, 2, 3], &[], 0);
        for (before, records, reason) in [
            (all.clone(), vec![fenced(2), changed(state(1, &[1, 3], &[], 1))], "leader_fenced"),
            (all.clone(), vec![stops(2), changed(state(1, &[1, 3], &[], 1))], "leader_stops"),
            (all.clone(), vec![changed(state(1, &[1, 3], &[], 1))], "leader_restarted"),
            (
                all.clone(),
                vec![changed(state(2, &[2], &[], 1)), registered(2, 9)],
                "leader_restarted",
            ),
            (all.clone(), vec![changed(state(2, &[2], &[], 1))], "replica_lost"),
            (all.clone(), vec![changed(state(1, &[1, 2, 3], &[], 1))], "preferred"),
            (all.clone(), vec![changed(state(3, &[1, 2, 3], &[], 1))], "other"),
            (all, vec![fenced(2), changed(state(-1, &[], &[2], 1))], "no_leader"),
            (state(-1, &[], &[2], 0), vec![changed(state(2, &[2], &[], 1))], "leader_back"),
            (state(-1, &[], &[2], 0), vec![changed(state(3, &[3], &[], 1))], "unclean"),
            (state(2, &[2], &[], 0), vec![fenced(2), changed(state(3, &[3], &[], 1))], "unclean"),
        ] {
            let update = step(&cluster(before), &records);
            let counters = count(9, &update);
            assert_eq!(counted(&counters.elections), [(reason, 1)].into(), "{records:?}");
            assert_eq!(counters.shrinks.total() + counters.expansions.get(), 0, "not its leader");
        }
    }

    #[test]
    fn the_leader_counts_who_leaves_and_joins_its_isr_and_why() {
        let before = cluster(state(1, &[1, 2, 3], &[], 0));
        let of = |isr: &[i32]| {
            let mut state = state(1, isr, &[], 0);
            state.partition_epoch = 1;
            changed(state)
        };
        let fenced = MetadataRecord::BrokerFenced { broker: BrokerId(2) };
        let stops = MetadataRecord::ControlledShutdownBegun { broker: BrokerId(3) };
        let counters = count(1, &step(&before, &[fenced, stops, of(&[1])]));
        assert_eq!(counted(&counters.shrinks), [("fenced", 1), ("stops", 1)].into());
        assert_eq!(counted(&counters.fencings), [("link", 1)].into());
        assert_eq!(counters.elections.total(), 0, "the leader epoch is the same");
        let counters = count(1, &step(&before, &[of(&[1, 2])]));
        assert_eq!(counted(&counters.shrinks), [("lag", 1)].into());
        let counters = count(1, &step(&cluster(state(1, &[1], &[], 0)), &[of(&[1, 2, 3])]));
        assert_eq!((counters.expansions.get(), counters.shrinks.total()), (2, 0));
        let back = changed(state(1, &[1], &[], 1));
        let counters = count(1, &step(&cluster(state(-1, &[], &[1], 0)), &[back]));
        assert_eq!(counters.expansions.get(), 0, "it was elected");
        let counters = count(3, &step(&before, &[of(&[1, 2])]));
        assert_eq!(counters.shrinks.total(), 0, "it does not lead");
    }

    #[test]
    fn an_unclean_election_is_counted_by_whoever_sees_it_be_it_followed_by_whatever() {
        let all = state(2, &[2], &[], 0);
        // It is over before this broker looks: the leader before leads again.
        let fenced = |id| MetadataRecord::BrokerFenced { broker: BrokerId(id) };
        let records = [
            fenced(2),
            changed(state(3, &[3], &[], 1)),
            MetadataRecord::BrokerUnfenced { broker: BrokerId(2) },
            changed(state(3, &[2, 3], &[], 2)),
            changed(state(2, &[2, 3], &[], 3)),
        ];
        let update = step(&cluster(all), &records);
        let fenced_for = |_| None;
        for (decides, elections) in [(true, 1), (false, 0)] {
            let counts = Counts { me: BrokerId(9), decides, fenced_for: &fenced_for };
            let counters = ClusterCounters::default();
            counts.step(&counters, &update);
            assert_eq!(counters.unclean_seen.get(), 1, "{decides}");
            assert_eq!(counters.elections.of(Election::Unclean), elections);
        }
    }

    #[test]
    fn what_a_broker_finds_when_it_starts_is_not_counted() {
        let after = cluster(state(1, &[1], &[], 7));
        let delta = ImageDelta::between(&ClusterImage::default(), &after);
        let (before, after, delta) = (Arc::default(), Arc::new(after), Arc::new(delta));
        let counters = count(1, &ImageUpdate { index: 1, before, after, delta });
        assert_eq!(counters.expansions.get() + counters.elections.total(), 0);
    }
}
