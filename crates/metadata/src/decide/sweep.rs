//! The sweep: what the brokers' coming and going means for partitions, piece by piece.
//!
//! Fencing a broker is one record, because eligibility looks at it: from then on nobody elects the broker
//! or lets it join an ISR. That its partitions get other leaders, and ISRs without it, is work
//! for sweeps, in pieces, so that no entry of the metadata log is large and nothing else waits long.
//! A sweep looks at the facts only. It can be interrupted anywhere, repeated at will, and goes on under
//! another controller: each one begins with it.

use super::eligibility::{Loss, View};
use super::{Answer, Draft, Refusal, Swept};
use crate::image::PartitionImage;
use crate::mutants::{Mutant, is_planted};
use crate::record::MetadataRecord;
use model::{BrokerId, ErrorCode, PartitionIndex, TopicId};

/// Partitions that one decision changes at most in consequence of a broker's coming or going; replicas
/// that a broker may report at once.
pub const SWEEP_PARTITIONS_MAX: usize = 1_000;

/// A partition's next state.
type Found = (TopicId, PartitionIndex, PartitionImage);

/// A piece of what is to be changed, and whether there is more.
struct Piece {
    found: Vec<Found>,
    more: bool,
}

impl Draft {
    /// The next piece of what follows from who is registered, fenced or about to stop: first the
    /// partitions that are led by nobody or by a broker that may not lead, in the order of topics.
    pub(super) fn sweep(&mut self, partitions_max: usize) -> Swept {
        if !self.image().has_eligible_replicas() {
            // Every decision has done all of it itself.
            return Swept::default();
        }
        let piece = self.unsettled(None, partitions_max);
        self.change_piece(piece)
    }

    /// A sweep, which also moves the leader epochs of all partitions into the generation of a regenerated quorum. The elections of
    /// the sweep itself are not counted: a log of a greater election is of one that this metadata lacks.
    pub(super) fn sweep_in(&mut self, generation: u32, partitions_max: usize) -> Swept {
        let is_raised = generation > 0
            && self.image().detects_copies()
            && !is_planted(Mutant::EarlierGenerationsCount);
        if !is_raised {
            return self.sweep(partitions_max);
        }
        let mut piece = self.unsettled(None, partitions_max);
        for (topic, at, state) in &mut piece.found {
            let old = self.image().topic_by_id(*topic).and_then(|topic| topic.partition(*at));
            let before = old.map_or(state.leader_epoch, |old| old.leader_epoch);
            state.leader_epoch = before.in_generation(generation).max(before);
        }
        let Swept { changed, more } = self.change_piece(piece);
        if more || changed == partitions_max {
            return Swept { changed, more: true };
        }
        let room = partitions_max - changed;
        let raised = self.of_earlier_generations(generation, room + 1);
        let more = raised.len() > room;
        let found = raised.into_iter().take(room).collect();
        let raised = self.change_piece(Piece { found, more });
        Swept { changed: changed + raised.changed, more }
    }

    /// Partitions with leader epochs of generations before `generation`, with the same election in it.
    fn of_earlier_generations(&self, generation: u32, partitions_max: usize) -> Vec<Found> {
        let raised = |old: &PartitionImage| {
            let leader_epoch = old.leader_epoch.in_generation(generation);
            let partition_epoch = old.partition_epoch + 1;
            (leader_epoch > old.leader_epoch).then(|| PartitionImage {
                leader_epoch,
                partition_epoch,
                ..old.clone()
            })
        };
        let topics = self
            .image()
            .topics()
            .flat_map(|topic| topic.partitions().map(|(at, state)| (topic.id, at, state)));
        let found = topics.filter_map(|(topic, at, state)| Some((topic, at, raised(state)?)));
        found.take(partitions_max).collect()
    }

    /// Partitions in one piece. Where nobody shares the metadata log, everything is done at once.
    pub(super) fn piece_max(&self) -> usize {
        if self.image().brokers().count() > 1 { SWEEP_PARTITIONS_MAX } else { usize::MAX }
    }

    /// A broker starts again and has lost something: its replicas are out of everything that they
    /// are not fit for any more before it is given its epoch (KIP-966), and what it led is in another
    /// leader epoch. Refused with a retriable error as long as there is more to change.
    pub(super) fn withdraw(&mut self, broker: BrokerId, loss: Loss) -> Answer<()> {
        if self.image().is_active(broker) && !is_planted(Mutant::UncleanLeadsOn) {
            // Its earlier process is dead. Nobody elects it while this goes on.
            self.push(MetadataRecord::BrokerFenced { broker });
        }
        let piece = self.unsettled(Some((broker, loss)), self.piece_max());
        if self.change_piece(piece).more {
            let message = format!(
                "More replicas of broker {broker} have to be taken out of ISRs first: register again."
            );
            return Err(Refusal::new(ErrorCode::RequestTimedOut, message));
        }
        Ok(())
    }

    fn change_piece(&mut self, piece: Piece) -> Swept {
        let changed = piece.found.len();
        for (topic_id, partition, state) in piece.found {
            self.change(topic_id, partition, &state);
        }
        Swept { changed, more: piece.more }
    }

    /// Partitions whose state does not follow from the facts, or would not if a broker had lost
    /// something: those of `lost` only.
    fn unsettled(&self, lost: Option<(BrokerId, Loss)>, partitions_max: usize) -> Piece {
        let concerns = |topic: TopicId, index: PartitionIndex, state: &PartitionImage| match lost {
            Some((broker, _)) => counts_somehow(state, broker),
            None => !self.is_settled_at_sight(topic, index, state),
        };
        let (mut not_led, mut led): (Vec<Found>, Vec<Found>) = (Vec::new(), Vec::new());
        for topic in self.image().topics() {
            let mut view = None;
            let concerned = topic.partitions().filter(|(at, state)| concerns(topic.id, *at, state));
            for (index, old) in concerned {
                let make = || View { lost, ..View::of(self.image(), topic) };
                let Some(new) = view.get_or_insert_with(make).settled(index, old) else { continue };
                let is_led = self.image().is_eligible_replica(old.leader, topic.id, index);
                let list = if is_led { &mut led } else { &mut not_led };
                if list.len() <= partitions_max {
                    list.push((topic.id, index, new));
                }
            }
            if not_led.len() > partitions_max {
                break;
            }
        }
        let more = not_led.len() + led.len() > partitions_max;
        let found = not_led.into_iter().chain(led).take(partitions_max);
        Piece { found: found.collect(), more }
    }

    /// Whether nothing can follow: an eligible leader of an ISR of eligible members.
    fn is_settled_at_sight(
        &self,
        topic: TopicId,
        index: PartitionIndex,
        state: &PartitionImage,
    ) -> bool {
        let is_eligible = |id: BrokerId| self.image().is_eligible_replica(id, topic, index);
        is_eligible(state.leader) && state.isr.iter().all(|id| is_eligible(*id))
    }
}

/// Whether a broker's replica has any part in who may lead.
fn counts_somehow(state: &PartitionImage, broker: BrokerId) -> bool {
    state.is_complete(broker) || state.last_known_leader == broker
}
