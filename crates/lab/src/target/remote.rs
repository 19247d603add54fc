//! Brokers that run already, here or elsewhere. The lab uses them and never stops them.

use anyhow::{Context, Result, ensure};

use super::Cluster;
use super::started::Keeper;
use crate::admin;
use experiment::plan::Shape;

/// How many brokers the cluster has.
pub(super) fn brokers(address: &str) -> Result<u32> {
    let metadata = admin::block_on(async {
        let admin = admin::connect(address).await?;
        Ok(admin.describe_all().await?)
    });
    let metadata = metadata.with_context(|| {
        format!(
            "no Kafka broker answers at {address}; is the address right, and does it listen there?"
        )
    })?;
    Ok(metadata.brokers.len() as u32)
}

pub(super) fn cluster(address: &str, shape: &Shape) -> Result<Cluster> {
    ensure!(
        shape.settings.is_empty(),
        "this cell needs brokers started with {:?}, and the brokers at {address} are not the lab's to start",
        shape.settings
    );
    Ok(Cluster {
        bootstrap: address.to_owned(),
        brokers: brokers(address)?,
        pids: Vec::new(),
        data_folders: Vec::new(),
        keeper: Keeper::Others,
    })
}
