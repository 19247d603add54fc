//! `cluster versions` and `cluster finalize`: releases of brokers, and levels of formats.
//!
//! Brokers of two releases run side by side, and each can run the earlier release again, until
//! `cluster finalize` raises the levels.

use std::collections::BTreeMap;
use std::process::ExitCode;

use client::{Admin, ClientError};
use model::ErrorCode;
use model::level::{HIGHWATER_JOURNAL, HIGHWATER_VERSION};
use serde::Serialize;
use wire::ApiVersionsResponse;
use wire::update_features::FeatureUpdateKey;

use crate::arguments::Connection;
use crate::commands::cluster_access::{PATIENCE, block_on, connect, failed};
use crate::failure::Failure;
use crate::output::{self, Format, Row};

/// Begin of the name of the supported feature that names a broker's release.
const RELEASE_FEATURE: &str = "highwater.release.";
/// UpdateFeatures: the level may only rise.
const UPGRADE: i8 = 1;
/// Features in the order in which they are raised: the journal needs the version.
const LEVELS: [&str; 2] = [HIGHWATER_VERSION, HIGHWATER_JOURNAL];

/// Lowest and highest level of one feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct LevelRange {
    min: i16,
    max: i16,
}

/// The release and the levels of one broker.
#[derive(Debug, Serialize)]
struct BrokerVersions {
    id: i32,
    /// `None` for a release before 0.1.0, and for a broker that does not answer.
    release: Option<String>,
    /// `false` for a broker that is registered and does not answer.
    reachable: bool,
    /// Ranges that the broker reads, by feature.
    reads: BTreeMap<String, LevelRange>,
}

impl BrokerVersions {
    fn from_answer(id: i32, answer: &ApiVersionsResponse) -> BrokerVersions {
        let supported = || answer.supported_features.iter();
        let range = |name: &str| {
            let found = supported().find(|feature| feature.name == name)?;
            Some((name.to_owned(), LevelRange { min: found.min_version, max: found.max_version }))
        };
        let release = supported().find_map(|feature| feature.name.strip_prefix(RELEASE_FEATURE));
        BrokerVersions {
            id,
            release: release.map(str::to_owned),
            reachable: true,
            reads: LEVELS.into_iter().filter_map(range).collect(),
        }
    }

    fn range_cell(&self, name: &str) -> String {
        let range = self.reads.get(name);
        range.map_or("-".to_owned(), |range| format!("{} to {}", range.min, range.max))
    }
}

impl Row for BrokerVersions {
    const HEADERS: &'static [&'static str] =
        &["ID", "RELEASE", "READS HIGHWATER.VERSION", "READS HIGHWATER.JOURNAL"];

    fn cells(&self) -> Vec<String> {
        let release = match (&self.release, self.reachable) {
            (Some(release), _) => release.clone(),
            (None, true) => "before 0.1.0".to_owned(),
            (None, false) => "unreachable".to_owned(),
        };
        let ranges = LEVELS.map(|name| self.range_cell(name));
        [self.id.to_string(), release].into_iter().chain(ranges).collect()
    }
}

/// Releases and levels of a cluster.
#[derive(Debug, Serialize)]
struct ClusterVersions {
    brokers: Vec<BrokerVersions>,
    /// Finalized level of each feature; 0 for none.
    finalized: BTreeMap<String, i16>,
    /// Highest level of each feature that every registered broker reads; absent if one broker reads none.
    common: BTreeMap<String, i16>,
}

impl ClusterVersions {
    async fn fetch(admin: &Admin) -> Result<ClusterVersions, ClientError> {
        let mut registered = admin.describe_all_brokers().await?.brokers;
        registered.sort_by_key(|broker| broker.broker_id);
        let mut brokers = Vec::new();
        for broker in registered {
            let id = broker.broker_id;
            let answer = match broker.is_fenced {
                true => None,
                false => admin.broker_features(id).await.ok(),
            };
            let unreachable =
                BrokerVersions { id, release: None, reachable: false, reads: BTreeMap::new() };
            brokers.push(
                answer.map_or(unreachable, |answer| BrokerVersions::from_answer(id, &answer)),
            );
        }
        let features = admin.describe_features().await?.finalized_features;
        let level = |name: &str| {
            let found = features.iter().find(|feature| feature.name == name);
            (name.to_owned(), found.map_or(0, |feature| feature.max_version_level))
        };
        let common =
            LEVELS.into_iter().filter_map(|name| Some((name.to_owned(), common(&brokers, name)?)));
        let common = common.collect();
        Ok(ClusterVersions { finalized: LEVELS.map(level).into(), brokers, common })
    }

    /// Features whose level every broker can read higher than the cluster has it.
    fn pending(&self) -> impl Iterator<Item = (&str, i16)> {
        let higher = |name: &&str| {
            let level = *self.common.get(*name)?;
            (level > self.finalized[*name]).then_some(level)
        };
        LEVELS.into_iter().filter_map(move |name| Some((name, higher(&name)?)))
    }

    fn finalized_text(&self) -> String {
        let level = |(name, level): (&String, &i16)| format!("{name} {level}");
        let levels: Vec<String> = self.finalized.iter().map(level).collect();
        format!("finalized: {}", levels.join(", "))
    }
}

/// The highest level of a feature that all brokers that answer read.
fn common(brokers: &[BrokerVersions], name: &str) -> Option<i16> {
    let reachable = brokers.iter().filter(|broker| broker.reachable);
    let highest = |broker: &BrokerVersions| broker.reads.get(name).map(|range| range.max);
    reachable.map(highest).collect::<Option<Vec<i16>>>()?.into_iter().min()
}

fn cannot_describe(error: &ClientError) -> Failure {
    failed("cannot describe the cluster's versions", error)
}

/// `cluster versions`
pub fn versions(format: Format, connection: &Connection) -> Result<ExitCode, Failure> {
    let versions = block_on(async {
        let admin = Admin::new(connect(connection, PATIENCE, false).await?);
        ClusterVersions::fetch(&admin).await.map_err(|error| cannot_describe(&error))
    })?;
    match format {
        Format::Json => output::print_one(format, &versions, |_| String::new())?,
        Format::Table => {
            let (text, pending) = (versions.finalized_text(), versions.pending().next().is_some());
            output::print(format, &versions.brokers)?;
            println!("{text}");
            if pending {
                println!("every broker reads higher levels: highwater cluster finalize");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `cluster finalize`
pub fn finalize(dry_run: bool, connection: &Connection) -> Result<ExitCode, Failure> {
    block_on(async {
        let admin = Admin::new(connect(connection, PATIENCE, false).await?);
        let versions = ClusterVersions::fetch(&admin).await;
        let versions = versions.map_err(|error| cannot_describe(&error))?;
        let updates: Vec<FeatureUpdateKey> = versions.pending().map(upgrade).collect();
        if updates.is_empty() {
            println!("nothing to raise; {}", versions.finalized_text());
            return Ok(ExitCode::SUCCESS);
        }
        let raised: Vec<String> = versions
            .pending()
            .map(|(name, level)| format!("{name} {} to {level}", versions.finalized[name]))
            .collect();
        let updated = admin.update_features(updates, dry_run).await;
        updated.map_err(|error| refused(&error))?;
        let verb = if dry_run { "can be raised" } else { "raised" };
        println!("{verb}: {}", raised.join(", "));
        if !dry_run {
            println!("earlier releases cannot run on these folders from now on");
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn upgrade((feature, level): (&str, i16)) -> FeatureUpdateKey {
    FeatureUpdateKey {
        feature: feature.to_owned(),
        max_version_level: level,
        upgrade_type: UPGRADE,
        ..Default::default()
    }
}

fn refused(error: &ClientError) -> Failure {
    let failure = failed("cannot raise the cluster's levels", error);
    match error {
        ClientError::Refused { code: ErrorCode::InvalidUpdateVersion, .. } => {
            failure.hint("`highwater cluster versions` shows the release of each broker")
        }
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker(id: i32, highest: Option<i16>) -> BrokerVersions {
        let reads = highest.map(|max| (HIGHWATER_VERSION.to_owned(), LevelRange { min: 1, max }));
        BrokerVersions { id, release: None, reachable: true, reads: reads.into_iter().collect() }
    }

    #[test]
    fn the_lowest_of_the_highest_levels_is_common() {
        let mut brokers = vec![broker(1, Some(4)), broker(2, Some(3))];
        assert_eq!(common(&brokers, HIGHWATER_VERSION), Some(3));
        brokers.push(BrokerVersions { reachable: false, ..broker(3, None) });
        assert_eq!(common(&brokers, HIGHWATER_VERSION), Some(3), "the controller knows its range");
        brokers.push(broker(4, None));
        assert_eq!(common(&brokers, HIGHWATER_VERSION), None);
    }
}
