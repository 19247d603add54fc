//! Requests of an operator that both releases serve: each writes metadata records that the other release must read.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use client::admin::{ConfigOperation, NewTopic, Resource};
use client::{Admin, Cluster, ClusterConfig};
use model::level::{HIGHWATER_JOURNAL, HIGHWATER_VERSION};
use model::{Offset, TopicPartition};
use peer::process;

use crate::requests::runtime;

/// Time that a command may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(90);

/// Finalized levels of a cluster: `highwater.version` and `highwater.journal`; 0 for none.
pub fn levels(bootstrap: &str) -> Result<(i16, i16)> {
    runtime()?.block_on(async {
        let admin = Admin::new(Cluster::connect(ClusterConfig::new(bootstrap)).await?);
        let features = admin.describe_features().await?.finalized_features;
        let level = |name: &str| {
            let found = features.iter().find(|feature| feature.name == name);
            found.map_or(0, |feature| feature.max_version_level)
        };
        Ok((level(HIGHWATER_VERSION), level(HIGHWATER_JOURNAL)))
    })
}

/// Highest levels that the broker with this id reads: `highwater.version` and `highwater.journal`.
pub fn newest_levels(bootstrap: &str, broker: i32) -> Result<(i16, i16)> {
    runtime()?.block_on(async {
        let admin = Admin::new(Cluster::connect(ClusterConfig::new(bootstrap)).await?);
        let features = admin.broker_features(broker).await?.supported_features;
        let level = |name: &str| {
            let found = features.iter().find(|feature| feature.name == name);
            found.map_or(0, |feature| feature.max_version)
        };
        Ok((level(HIGHWATER_VERSION), level(HIGHWATER_JOURNAL)))
    })
}

/// Node id of the active controller.
pub fn controller(bootstrap: &str) -> Result<Option<i32>> {
    runtime()?.block_on(async {
        let admin = Admin::new(Cluster::connect(ClusterConfig::new(bootstrap)).await?);
        Ok(admin.quorum_leader().await?)
    })
}

/// Creates, changes and deletes topics, configurations and records. `round` makes the names of one call unique.
pub fn exercise(bootstrap: &str, round: u32) -> Result<()> {
    let kept = format!("kept-{round}");
    let gone = format!("gone-{round}");
    runtime()?.block_on(async {
        let admin = Admin::new(Cluster::connect(ClusterConfig::new(bootstrap)).await?);
        admin.create_topic(&NewTopic::new(&kept, 2, 3)).await.context("create a topic")?;
        admin.create_topic(&NewTopic::new(&gone, 1, 3)).await.context("create a topic")?;
        admin.create_partitions(&kept, 3, None).await.context("add a partition")?;
        let change = ("retention.ms".to_owned(), ConfigOperation::Set("90000000".to_owned()));
        let topic = Resource::topic(&kept);
        admin.alter_configs(&topic, &[change], false).await.context("change a configuration")?;
        let before = HashMap::from([(TopicPartition::new(kept.as_str(), 0), Offset(0))]);
        for (_, deleted) in admin.delete_records(&before).await.context("delete records")? {
            deleted.context("delete records")?;
        }
        for (_, deleted) in admin.delete_topics(&[&gone]).await.context("delete a topic")? {
            deleted.context("delete a topic")?;
        }
        anyhow::Ok(())
    })
}

/// Runs `highwater cluster finalize` and checks the levels afterwards.
///
/// # Errors
/// The command fails, or a level is another one.
pub fn finalize(binary: &Path, bootstrap: &str, expected: (i16, i16)) -> Result<()> {
    let mut command = process::command(binary);
    command.args(["cluster", "finalize", "-b", bootstrap]);
    let outcome = process::run(&mut command, None, COMMAND_LIMIT)?;
    ensure!(outcome.success(), "cluster finalize failed: {}", outcome.story());
    let found = levels(bootstrap)?;
    if found != expected {
        bail!(
            "levels {expected:?} expected after cluster finalize, found {found:?}: {}",
            outcome.story()
        );
    }
    Ok(())
}
