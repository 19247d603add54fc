//! `cluster elect`: leaderships go to preferred replicas, or, in partitions without a leader, to replicas that serve.

use std::process::ExitCode;

use client::{Admin, ClientError};
use model::ErrorCode;

use crate::arguments::Elect;
use crate::commands::cluster_access::{PATIENCE, block_on, connect, failed, named_partitions};
use crate::commands::outcome::Outcomes;
use crate::failure::Failure;

/// `cluster elect`
pub fn run(typed: &Elect) -> Result<ExitCode, Failure> {
    let outcomes = block_on(elect(typed))?;
    outcomes.finish("not every partition has the leader that was asked for")?;
    Ok(ExitCode::SUCCESS)
}

async fn elect(typed: &Elect) -> Result<Outcomes, Failure> {
    let admin = Admin::new(connect(&typed.connection, PATIENCE, false).await?);
    let partitions = match typed.all {
        true => None,
        false => Some(named_partitions(admin.cluster(), &typed.partitions).await?),
    };
    let elected = admin.elect_leaders(typed.unclean, partitions.as_deref()).await;
    let elected = elected.map_err(|error| failed("cannot have leaders elected", &error))?;
    if elected.is_empty() {
        println!("no partition needs an election");
    }
    let mut outcomes = Outcomes::default();
    for (partition, result) in elected {
        match result {
            Ok(()) => outcomes.take(&partition, "elected", ErrorCode::None, None),
            Err(ClientError::Refused { code: ErrorCode::ElectionNotNeeded, .. }) => {
                outcomes.take(&partition, "no election needed", ErrorCode::None, None);
            }
            Err(ClientError::Refused { code, message, .. }) => {
                outcomes.take(&partition, "", code, message.as_deref());
            }
            Err(error) => return Err(failed(format!("cannot elect for {partition}"), &error)),
        }
    }
    Ok(outcomes)
}
