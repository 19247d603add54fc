//! UpdateFeatures (KIP-584, KIP-778): which features this version has, and at which level each is
//! finalized. Clients change their behaviour by finalized levels, so only what wholly works is here.

use super::{
    Answer, ControllerSettings, Draft, FeatureChange, FeatureUpdate, Refusal, UpdateFeatures,
};
use crate::record::{BrokerSoftware, FeatureRange, MetadataRecord};
use model::level::{
    HIGHWATER_JOURNAL, HIGHWATER_VERSION, HIGHWATER_VERSION_0_1_0, JOURNAL_LEVEL_MIN,
    newest_journal, newest_version,
};
use model::{BrokerId, ErrorCode};

/// A feature, and the levels that this version knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupportedFeature {
    /// Its name, as Kafka calls it.
    pub name: &'static str,
    /// The lowest level.
    pub level_min: i16,
    /// The highest level; a new cluster begins with it.
    pub level_max: i16,
}

/// Every feature. `metadata.version` 30 is Kafka 4.3: consoles show it as the cluster's version. There
/// is no way to behave like an earlier one, so no lower level is supported. Transactions and the
/// group protocols of KIP-848, KIP-932 and KIP-1071 are absent until they are served.
pub const SUPPORTED_FEATURES: &[SupportedFeature] =
    &[SupportedFeature { name: "metadata.version", level_min: 30, level_max: 30 }];

/// Which types of records may be written into the metadata log, and with them what several brokers
/// need: from level 1 on partitions have eligible leader replicas (KIP-966), from level 2 on it is known which replicas their
/// brokers cannot serve (KIP-858), from level 3 on (release 0.1.0) each broker registers with its release and levels. A new
/// cluster begins with the highest level; `highwater cluster finalize` raises the level once every broker reads the new
/// one. The level never falls: records of a level stay in the metadata log.
pub fn cluster_feature() -> SupportedFeature {
    SupportedFeature { name: HIGHWATER_VERSION, level_min: 1, level_max: newest_version() }
}

/// The level of the journals of log directories. A broker raises its directories when it applies the
/// metadata that names the level. The level never falls, because entries of a level stay in the journals.
pub fn journal_feature() -> SupportedFeature {
    SupportedFeature {
        name: HIGHWATER_JOURNAL,
        level_min: JOURNAL_LEVEL_MIN.into(),
        level_max: newest_journal().into(),
    }
}

/// Features of our own: clients see them, and only brokers depend on them.
pub fn broker_features() -> [SupportedFeature; 2] {
    [cluster_feature(), journal_feature()]
}

/// Every feature that clients see.
pub fn all_features() -> impl Iterator<Item = SupportedFeature> {
    SUPPORTED_FEATURES.iter().copied().chain(broker_features())
}

/// Release and levels of this program, as a broker registers with them.
pub fn software_of_this_release() -> BrokerSoftware {
    let range = |feature: SupportedFeature| FeatureRange {
        name: feature.name.to_owned(),
        min: feature.level_min,
        max: feature.level_max,
    };
    let release = env!("CARGO_PKG_VERSION").to_owned();
    BrokerSoftware { release, levels: broker_features().into_iter().map(range).collect() }
}

/// The features of a new cluster, each with its highest level.
pub fn features_of_new_cluster() -> Vec<(String, i16)> {
    all_features().map(|known| (known.name.to_owned(), known.level_max)).collect()
}

fn supported(name: &str) -> Option<SupportedFeature> {
    all_features().find(|known| known.name == name)
}

impl Draft {
    /// All or nothing: the first update that is refused refuses the request.
    pub(super) fn update_features(
        &mut self,
        settings: &ControllerSettings,
        request: &UpdateFeatures,
    ) -> Answer<()> {
        for update in &request.updates {
            self.check_feature(update)?;
            self.check_brokers_read(update)?;
        }
        self.check_journal_follows(request)?;
        let begins_to_have = !self.image().has_eligible_replicas()
            && request.updates.iter().any(|update| update.name == HIGHWATER_VERSION);
        if begins_to_have {
            self.check_no_broker_differs()?;
        }
        if request.validate_only {
            return Ok(());
        }
        for update in &request.updates {
            let current = self.image().features().get(&update.name).copied().unwrap_or(0);
            if current != update.level {
                let (name, level) = (update.name.clone(), update.level);
                self.push(MetadataRecord::FeatureLevelSet { name, level });
            }
        }
        if begins_to_have {
            self.agree_on_settings(settings);
        }
        Ok(())
    }

    fn check_feature(&self, update: &FeatureUpdate) -> Answer<()> {
        let FeatureUpdate { name, level, change } = update;
        let refuse = |reason: String| {
            let message = format!(
                "The update failed for all features since the following feature had an error: \
                 Invalid update version {level} for feature {name}. {reason}"
            );
            Err(Refusal::new(ErrorCode::InvalidUpdateVersion, message))
        };
        let Some(known) = supported(name) else {
            return refuse("This broker does not support this feature.".to_owned());
        };
        let (min, max) = (known.level_min, known.level_max);
        if *level < min || *level > max {
            return refuse(format!("This broker only supports versions {min}-{max}."));
        }
        let current = self.image().features().get(name).copied().unwrap_or(0);
        let reason = match change {
            FeatureChange::Unknown(_) => "The upgrade type is unknown.",
            FeatureChange::Upgrade if *level < current => {
                "Can't downgrade the version of this feature without setting the upgrade type to \
                 either safe or unsafe downgrade."
            }
            FeatureChange::Downgrade if *level > current => "Can't downgrade to a newer version.",
            FeatureChange::Downgrade if *level < current && is_broker_feature(name) => {
                "This feature is never downgraded: records and entries of a level stay on disk."
            }
            FeatureChange::Upgrade | FeatureChange::Downgrade => return Ok(()),
        };
        refuse(reason.to_owned())
    }

    /// Refuses a level that a registered broker cannot read, fenced brokers included: a broker that is
    /// down comes back with its program.
    fn check_brokers_read(&self, update: &FeatureUpdate) -> Answer<()> {
        let FeatureUpdate { name, level, .. } = update;
        if !is_broker_feature(name) {
            return Ok(());
        }
        let unable: Vec<String> = self
            .image()
            .brokers()
            .filter_map(|broker| unread(broker.id, broker.software.as_ref(), name, *level))
            .collect();
        if unable.is_empty() {
            return Ok(());
        }
        let message = format!(
            "Invalid update version {level} for feature {name}. {}. Upgrade and restart each of these \
             brokers, or unregister a broker that is gone.",
            unable.join("; ")
        );
        Err(Refusal::new(ErrorCode::InvalidUpdateVersion, message))
    }

    /// Journals have levels from `highwater.version` 3 on: earlier releases read no level of a directory.
    fn check_journal_follows(&self, request: &UpdateFeatures) -> Answer<()> {
        let level = |name: &str| {
            let update = request.updates.iter().find(|update| update.name == name);
            update.map(|update| update.level)
        };
        let version = level(HIGHWATER_VERSION).unwrap_or(self.image().highwater_version());
        if level(HIGHWATER_JOURNAL).is_none() || version >= HIGHWATER_VERSION_0_1_0 {
            return Ok(());
        }
        let message = format!(
            "{HIGHWATER_JOURNAL} needs {HIGHWATER_VERSION} {HIGHWATER_VERSION_0_1_0}: run highwater cluster finalize."
        );
        Err(Refusal::new(ErrorCode::InvalidUpdateVersion, message))
    }

    /// Refuses a process that cannot read a level that the cluster has.
    pub(super) fn check_levels_of(
        &self,
        broker: BrokerId,
        software: Option<&BrokerSoftware>,
    ) -> Answer<()> {
        let features = self.image().features().iter();
        let mut finalized = features.filter(|(name, _)| is_broker_feature(name));
        let unread = finalized.find_map(|(name, level)| unread(broker, software, name, *level));
        match unread {
            None => Ok(()),
            Some(reason) => {
                let message = format!(
                    "{reason}, and the cluster is finalized at that level: start a newer release."
                );
                Err(Refusal::new(ErrorCode::UnsupportedVersion, message))
            }
        }
    }
}

fn is_broker_feature(name: &str) -> bool {
    [HIGHWATER_VERSION, HIGHWATER_JOURNAL].contains(&name)
}

/// The reason why a broker cannot read a level of a feature; `None` if the broker can.
fn unread(
    broker: BrokerId,
    software: Option<&BrokerSoftware>,
    name: &str,
    level: i16,
) -> Option<String> {
    let Some(software) = software else {
        let is_old = level < HIGHWATER_VERSION_0_1_0 && name == HIGHWATER_VERSION;
        let reason = || {
            format!(
                "broker {broker} runs a release before 0.1.0, which does not read {name} {level}"
            )
        };
        return (!is_old).then(reason);
    };
    let range = software.range(name);
    if range.is_some_and(|range| (range.min..=range.max).contains(&level)) {
        return None;
    }
    let reads =
        range.map_or("no level".to_owned(), |range| format!("{} to {}", range.min, range.max));
    let release = &software.release;
    Some(format!("broker {broker} runs release {release}, which reads {name} {reads}, not {level}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterImage;
    use crate::decide::Response;
    use crate::record::BrokerRecord;
    use model::{BrokerEpoch, Timestamp, Uuid};

    /// A release that reads `highwater.version` up to a level; `None` for one before 0.1.0.
    fn image(level: i16, brokers: &[Option<i16>]) -> ClusterImage {
        let mut image = ClusterImage::default();
        let name = HIGHWATER_VERSION.to_owned();
        image.replay(&MetadataRecord::FeatureLevelSet { name, level }).unwrap();
        for (id, highest) in (1..).zip(brokers) {
            let record = BrokerRecord {
                broker: BrokerId(id),
                incarnation: Uuid([id as u8; 16]),
                epoch: BrokerEpoch(i64::from(id)),
                endpoints: Vec::new(),
                rack: None,
                log_dirs: Vec::new(),
                fenced: id == 1,
                software: highest.map(software),
            };
            let mut line = Vec::new();
            MetadataRecord::BrokerRegistered(record).encode(&mut line);
            image.replay(&MetadataRecord::decode(&line).unwrap()).unwrap();
        }
        image
    }

    fn software(max: i16) -> BrokerSoftware {
        let range = |name: &str| FeatureRange { name: name.to_owned(), min: 1, max };
        let levels = [HIGHWATER_VERSION, HIGHWATER_JOURNAL].map(range).into();
        BrokerSoftware { release: format!("0.{max}.0"), levels }
    }

    fn upgrade(image: &ClusterImage, updates: &[(&str, i16)]) -> Result<(), String> {
        let change = FeatureChange::Upgrade;
        let update = |(name, level): &(&str, i16)| FeatureUpdate {
            name: (*name).to_owned(),
            level: *level,
            change,
        };
        let updates = updates.iter().map(update).collect();
        let request = UpdateFeatures { updates, validate_only: false };
        let mut draft = Draft::new(image.clone());
        let request = crate::decide::Request::UpdateFeatures(request);
        match draft.decide(&ControllerSettings::default(), Timestamp(0), &request) {
            Response::UpdateFeatures(answer) => answer.map_err(|refusal| refusal.message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_level_is_refused_while_a_registered_broker_cannot_read_it() {
        let to_newest = [(HIGHWATER_VERSION, HIGHWATER_VERSION_0_1_0)];
        let all_new = image(2, &[Some(3), Some(3)]);
        assert_eq!(upgrade(&all_new, &to_newest), Ok(()));
        let mixed = image(2, &[Some(2), None, Some(3)]);
        let refused = upgrade(&mixed, &to_newest).unwrap_err();
        let words = [
            "broker 1 runs release 0.2.0, which reads highwater.version 1 to 2, not 3",
            "broker 2 runs a release before 0.1.0",
        ];
        assert!(words.iter().all(|words| refused.contains(words)), "{refused}");
        assert!(!refused.contains("broker 3"), "{refused}");
        assert_eq!(upgrade(&image(1, &[None]), &[(HIGHWATER_VERSION, 2)]), Ok(()));
    }

    #[test]
    fn the_journal_follows_the_version() {
        let journal = (HIGHWATER_JOURNAL, 1);
        let early = image(2, &[Some(3)]);
        let refused = upgrade(&early, &[journal]).unwrap_err();
        assert!(refused.contains("needs highwater.version 3"), "{refused}");
        assert_eq!(upgrade(&early, &[journal, (HIGHWATER_VERSION, 3)]), Ok(()));
        assert_eq!(upgrade(&image(3, &[Some(3)]), &[journal]), Ok(()));
    }

    #[test]
    fn a_process_that_cannot_read_the_level_does_not_register() {
        let at = |level, software: Option<&BrokerSoftware>| {
            let checked = Draft::new(image(level, &[])).check_levels_of(BrokerId(7), software);
            checked.map_err(|refusal| (refusal.error, refusal.message))
        };
        assert_eq!(at(2, None), Ok(()));
        assert_eq!(at(3, Some(&software(3))), Ok(()));
        assert_eq!(at(newest_version(), Some(&software_of_this_release())), Ok(()));
        for old in [None, Some(&software(3))] {
            let (error, message) = at(9, old).unwrap_err();
            assert_eq!(error, ErrorCode::UnsupportedVersion);
            assert!(message.contains("start a newer release"), "{message}");
        }
    }
}
