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

/// A change of one finalized level.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct RaisedLevel {
    feature: String,
    from: i16,
    to: i16,
}

/// A broker that reads less than another one: the levels stay below until its program changes.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct HoldingBroker {
    id: i32,
    /// `None` for a release before 0.1.0.
    release: Option<String>,
    feature: String,
    /// Highest level that the broker reads; 0 if it reads none.
    reads: i16,
}

/// The result of `cluster finalize`, or of its dry run.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finalization {
    dry_run: bool,
    /// Levels that were raised, or can be raised.
    raised: Vec<RaisedLevel>,
    /// Finalized level of each feature afterwards; those of today in a dry run.
    finalized: BTreeMap<String, i16>,
    /// Brokers that keep a level below the highest one of another broker.
    held_by: Vec<HoldingBroker>,
}

impl Finalization {
    fn of(versions: &ClusterVersions, dry_run: bool) -> Finalization {
        let raise = |(feature, to): (&str, i16)| {
            let from = versions.finalized[feature];
            RaisedLevel { feature: feature.to_owned(), from, to }
        };
        let raised: Vec<RaisedLevel> = versions.pending().map(raise).collect();
        let mut finalized = versions.finalized.clone();
        if !dry_run {
            finalized.extend(raised.iter().map(|level| (level.feature.clone(), level.to)));
        }
        let held_by = LEVELS.into_iter().flat_map(|feature| held_by(&versions.brokers, feature));
        Finalization { dry_run, raised, finalized, held_by: held_by.collect() }
    }

    fn text(&self) -> String {
        let list = |levels: Vec<String>| levels.join(", ");
        let finalized = self.finalized.iter().map(|(name, level)| format!("{name} {level}"));
        let raised = self.raised.iter();
        let raised =
            raised.map(|RaisedLevel { feature, from, to }| format!("{feature} {from} to {to}"));
        let mut text = match (self.raised.is_empty(), self.dry_run) {
            (true, _) => format!("nothing to raise; finalized: {}\n", list(finalized.collect())),
            (false, true) => format!("can be raised: {}\n", list(raised.collect())),
            (false, false) => format!(
                "raised: {}\nearlier releases cannot run on these folders from now on\n",
                list(raised.collect())
            ),
        };
        for HoldingBroker { id, release, feature, reads } in &self.held_by {
            let release = release.as_deref().unwrap_or("before 0.1.0");
            text += &format!(
                "broker {id} (release {release}) reads {feature} up to {reads}: upgrade it\n"
            );
        }
        text
    }
}

/// Brokers that answer and read a lower level of a feature than another broker.
fn held_by(brokers: &[BrokerVersions], feature: &str) -> Vec<HoldingBroker> {
    let highest = |broker: &BrokerVersions| broker.reads.get(feature).map_or(0, |range| range.max);
    let newest = brokers.iter().map(highest).max().unwrap_or(0);
    let behind = brokers.iter().filter(|broker| broker.reachable && highest(broker) < newest);
    let holding = |broker: &BrokerVersions| HoldingBroker {
        id: broker.id,
        release: broker.release.clone(),
        feature: feature.to_owned(),
        reads: highest(broker),
    };
    behind.map(holding).collect()
}

/// `cluster finalize`
pub fn finalize(
    dry_run: bool,
    format: Format,
    connection: &Connection,
) -> Result<ExitCode, Failure> {
    block_on(async {
        let admin = Admin::new(connect(connection, PATIENCE, false).await?);
        let versions = ClusterVersions::fetch(&admin).await;
        let versions = versions.map_err(|error| cannot_describe(&error))?;
        let updates: Vec<FeatureUpdateKey> = versions.pending().map(upgrade).collect();
        if !updates.is_empty() {
            let updated = admin.update_features(updates, dry_run).await;
            updated.map_err(|error| refused(&error))?;
        }
        output::print_one(format, &Finalization::of(&versions, dry_run), Finalization::text)?;
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

    /// A cluster at level 3 with brokers that read up to these levels.
    fn versions(highest: &[i16]) -> ClusterVersions {
        let brokers = (1..).zip(highest).map(|(id, max)| broker(id, Some(*max)));
        let brokers: Vec<BrokerVersions> = brokers.collect();
        let level = |name: &str| Some((name.to_owned(), common(&brokers, name)?));
        let common = LEVELS.into_iter().filter_map(level).collect();
        let finalized = [(HIGHWATER_VERSION.to_owned(), 3), (HIGHWATER_JOURNAL.to_owned(), 1)];
        ClusterVersions { finalized: finalized.into(), brokers, common }
    }

    #[test]
    fn a_dry_run_shows_levels_that_can_be_raised_and_changes_none() {
        let dry = Finalization::of(&versions(&[4, 4]), true);
        assert_eq!(dry.text(), "can be raised: highwater.version 3 to 4\n");
        assert_eq!(dry.finalized[HIGHWATER_VERSION], 3);
        let done = Finalization::of(&versions(&[4, 4]), false);
        assert!(done.text().starts_with("raised: highwater.version 3 to 4\n"), "{}", done.text());
        assert_eq!(done.finalized[HIGHWATER_VERSION], 4);
        let json = serde_json::to_value(&dry).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "dry_run": true,
                "raised": [{ "feature": "highwater.version", "from": 3, "to": 4 }],
                "finalized": { "highwater.journal": 1, "highwater.version": 3 },
                "held_by": [],
            })
        );
    }

    #[test]
    fn a_broker_of_an_earlier_release_is_named() {
        let held = Finalization::of(&versions(&[4, 3]), true);
        assert_eq!(
            held.text(),
            "nothing to raise; finalized: highwater.journal 1, highwater.version 3\n\
             broker 2 (release before 0.1.0) reads highwater.version up to 3: upgrade it\n"
        );
        assert_eq!(held.held_by.len(), 1);
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
