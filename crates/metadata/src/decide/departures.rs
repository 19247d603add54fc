//! What a broker's coming and going means for partitions where there are no eligible replicas
//! (`highwater.version` 0): clusters made by the first releases.
//!
//! All of it is decided at once. A broker that is fenced or may have lost something leaves every ISR that
//! has another member. The last member stays, because only its place in the ISR says that it has every
//! acknowledged record: its partition waits for it without a leader.

use super::eligibility::next;
use super::{ControllerSettings, Draft};
use crate::image::{ClusterImage, PartitionImage};
use crate::topic_config;
use model::{BrokerId, PartitionIndex, TopicId};
use std::sync::Arc;

/// Why a broker leaves the ISRs it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// It no longer serves.
    Fenced,
    /// It serves, but may have lost the end of its logs.
    Unclean,
}

impl Draft {
    /// Every partition that `matters` says, with its topic.
    pub(super) fn partitions_where(
        &self,
        matters: impl Fn(&PartitionImage) -> bool,
    ) -> Vec<(TopicId, Arc<str>, PartitionIndex, PartitionImage)> {
        let image = self.image();
        let of_topic = |topic: &Arc<crate::image::TopicImage>| {
            let found = topic.partitions().filter(|(_, state)| matters(state));
            found.map(|(i, p)| (topic.id, topic.name.clone(), i, p.clone())).collect::<Vec<_>>()
        };
        image.topics().flat_map(of_topic).collect()
    }

    /// A broker leaves the ISRs it is in, and leads nothing any more.
    pub(super) fn depart(
        &mut self,
        settings: &ControllerSettings,
        broker: BrokerId,
        why: Departure,
    ) {
        for (id, name, index, old) in self.partitions_where(|p| p.isr.contains(&broker)) {
            if let Some(new) = self.without(settings, &name, &old, broker, why) {
                self.change(id, index, &new);
            }
        }
    }

    /// A replica that was made anew leaves an ISR that has another member; what it led alone is in
    /// another leader epoch at least.
    pub(super) fn without_lost(
        &self,
        topic: &str,
        old: &PartitionImage,
        broker: BrokerId,
    ) -> Option<PartitionImage> {
        let settings = ControllerSettings::default();
        let counted = old.isr.contains(&broker);
        counted.then(|| self.without(&settings, topic, old, broker, Departure::Unclean)).flatten()
    }

    fn without(
        &self,
        settings: &ControllerSettings,
        topic: &str,
        old: &PartitionImage,
        broker: BrokerId,
        why: Departure,
    ) -> Option<PartitionImage> {
        let rest: Vec<BrokerId> = old.isr.iter().copied().filter(|id| *id != broker).collect();
        let led = old.leader == broker;
        let mut new = next(old, led);
        if rest.is_empty() {
            return match why {
                Departure::Unclean => led.then_some(new),
                Departure::Fenced if led => {
                    new.leader = BrokerId::NONE;
                    Some(self.elect(settings, topic, &new, false).unwrap_or(new))
                }
                Departure::Fenced => None,
            };
        }
        new.isr = rest;
        if led {
            new.leader = BrokerId::NONE;
            new = self.elect(settings, topic, &new, false).unwrap_or(new);
        }
        Some(new)
    }

    /// A broker serves: partitions that waited for it have a leader again.
    pub(super) fn arrive(&mut self, settings: &ControllerSettings, broker: BrokerId) {
        let waits = |p: &PartitionImage| !p.has_leader() && p.replicas.contains(&broker);
        for (id, name, index, old) in self.partitions_where(waits) {
            if let Some(new) = self.elect(settings, &name, &next(&old, true), false) {
                self.change(id, index, &new);
            }
        }
    }

    /// Chooses a leader: the first assigned replica that is in sync and serves; or, where records
    /// may be lost, the first that serves. The caller has raised the epochs.
    pub(super) fn elect(
        &self,
        settings: &ControllerSettings,
        topic: &str,
        state: &PartitionImage,
        force_unclean: bool,
    ) -> Option<PartitionImage> {
        let image = self.image();
        let serves = |id: &&BrokerId| image.is_active(**id);
        let clean = state.replicas.iter().filter(serves).find(|id| state.isr.contains(id));
        if let Some(leader) = clean {
            return Some(PartitionImage { leader: *leader, ..state.clone() });
        }
        if !force_unclean && !unclean_allowed(image, settings, topic) {
            return None;
        }
        let leader = *state.replicas.iter().find(serves)?;
        Some(PartitionImage { leader, isr: vec![leader], recovering: true, ..state.clone() })
    }
}

fn unclean_allowed(image: &ClusterImage, settings: &ControllerSettings, topic: &str) -> bool {
    topic_config::Resolver::new(image, &settings.static_configs, None)
        .settings(topic)
        .unclean_leader_election
}
