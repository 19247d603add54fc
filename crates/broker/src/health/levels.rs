//! Features that every registered broker supports above their finalized level.

use metadata::ClusterImage;
use metadata::decide::software_of_this_release;
use serving::health::broker::FeatureLag;

/// The features of this release that `highwater cluster finalize` would raise. Fenced brokers count: a broker that is down comes
/// back with its program.
pub(super) fn lags(image: &ClusterImage) -> Vec<FeatureLag> {
    let known = software_of_this_release().levels;
    known.iter().filter_map(|range| lag(image, &range.name)).collect()
}

fn lag(image: &ClusterImage, feature: &str) -> Option<FeatureLag> {
    let finalized = image.features().get(feature).copied().unwrap_or(0);
    // A release before 0.1.0 registers without software, and can raise nothing.
    let supported = |software: Option<&metadata::record::BrokerSoftware>| {
        software.and_then(|software| software.range(feature)).map_or(0, |range| range.max)
    };
    let supported = image.brokers().map(|broker| supported(broker.software.as_ref())).min()?;
    let feature = feature.to_owned();
    (supported > finalized).then_some(FeatureLag { feature, finalized, supported })
}

#[cfg(test)]
mod tests {
    use metadata::MetadataRecord;
    use metadata::record::{BrokerRecord, BrokerSoftware};
    use model::level::{HIGHWATER_JOURNAL, HIGHWATER_VERSION};
    use model::{BrokerEpoch, BrokerId, Uuid};

    use super::*;

    /// Brokers of these releases, of which each reads up to this level of `highwater.version`.
    fn image(brokers: &[Option<i16>], levels: &[(&str, i16)]) -> ClusterImage {
        let mut image = ClusterImage::default();
        for (name, level) in levels {
            let name = (*name).to_owned();
            image.replay(&MetadataRecord::FeatureLevelSet { name, level: *level }).unwrap();
        }
        for (id, level) in (1..).zip(brokers) {
            let software = level.map(|level| {
                let mut software: BrokerSoftware = software_of_this_release();
                let version = software.levels.iter_mut().find(|it| it.name == HIGHWATER_VERSION);
                version.unwrap().max = level;
                software
            });
            let record = BrokerRecord {
                broker: BrokerId(id),
                incarnation: Uuid::from_random([id as u8; 16]),
                epoch: BrokerEpoch(i64::from(id)),
                endpoints: Vec::new(),
                rack: None,
                log_dirs: Vec::new(),
                fenced: true,
                software,
            };
            image.replay(&MetadataRecord::BrokerRegistered(record)).unwrap();
        }
        image
    }

    #[test]
    fn a_level_lags_when_every_broker_supports_a_higher_one() {
        let lags_of = |brokers: &[Option<i16>], version| {
            let found =
                lags(&image(brokers, &[(HIGHWATER_VERSION, version), (HIGHWATER_JOURNAL, 9)]));
            found.into_iter().map(|it| (it.feature, it.finalized, it.supported)).collect::<Vec<_>>()
        };
        let version = |finalized, supported| {
            Vec::from([(HIGHWATER_VERSION.to_owned(), finalized, supported)])
        };
        assert_eq!(lags_of(&[Some(4), Some(4)], 3), version(3, 4));
        assert_eq!(lags_of(&[Some(4), Some(4)], 4), Vec::new());
        assert_eq!(lags_of(&[Some(4), Some(3)], 3), Vec::new(), "one broker is to be upgraded");
        assert_eq!(lags_of(&[Some(4), None], 0), Vec::new(), "a release before 0.1.0");
        assert_eq!(lags_of(&[Some(4)], 0), version(0, 4), "a broker that is alone");
        assert_eq!(lags_of(&[], 0), Vec::new());
    }
}
