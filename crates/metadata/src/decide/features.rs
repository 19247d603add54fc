//! UpdateFeatures (KIP-584, KIP-778): which features this version has, and at which level each is
//! finalized. Clients change their behaviour by finalized levels, so only what wholly works is here.

use super::{
    Answer, ControllerSettings, Draft, FeatureChange, FeatureUpdate, Refusal, UpdateFeatures,
};
use crate::image::HIGHWATER_VERSION;
use crate::record::MetadataRecord;
use model::ErrorCode;

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
/// brokers cannot serve (KIP-858). Clients are told only where it is finalized: by the founder of a cluster of several
/// brokers, or by a person once every broker runs a version that knows it. An older one says so and does not start. It
/// never falls, because what was written stays in the log.
pub const CLUSTER_FEATURE: SupportedFeature =
    SupportedFeature { name: HIGHWATER_VERSION, level_min: 1, level_max: 2 };

/// The features of a new cluster of one broker, with their levels.
pub fn features_of_new_cluster() -> Vec<(String, i16)> {
    SUPPORTED_FEATURES.iter().map(|known| (known.name.to_owned(), known.level_max)).collect()
}

fn supported(name: &str) -> Option<&'static SupportedFeature> {
    SUPPORTED_FEATURES.iter().chain([&CLUSTER_FEATURE]).find(|known| known.name == name)
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
        }
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
            FeatureChange::Downgrade if *level < current && name == HIGHWATER_VERSION => {
                "This feature is never downgraded: what was written stays in the metadata log."
            }
            FeatureChange::Upgrade | FeatureChange::Downgrade => return Ok(()),
        };
        refuse(reason.to_owned())
    }
}
