//! `cluster unregister`: a broker that will not come back is forgotten.

use std::process::ExitCode;

use client::{Admin, ClientError};
use model::ErrorCode;

use crate::arguments::Connection;
use crate::commands::cluster_access::{PATIENCE, block_on, connect, failed};
use crate::failure::Failure;

/// `cluster unregister`
pub fn run(broker: i32, connection: &Connection) -> Result<ExitCode, Failure> {
    block_on(async {
        let admin = Admin::new(connect(connection, PATIENCE, false).await?);
        admin.unregister_broker(broker).await.map_err(|error| refused(broker, &error))?;
        let metadata = admin.describe_all().await;
        let metadata = metadata.map_err(|error| failed("cannot describe the cluster", &error))?;
        println!("broker {broker} was unregistered");
        let partitions = metadata.topics.values().flat_map(|topic| &topic.partitions);
        let assigned = partitions.filter(|partition| partition.replicas.contains(&broker)).count();
        if assigned > 0 {
            anstream::eprintln!(
                "{assigned} partitions still count a replica on it: they stay under-replicated until it is \
                 started again (as one that holds nothing), or the replicas are moved"
            );
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn refused(broker: i32, error: &ClientError) -> Failure {
    let failure = failed(format!("broker {broker} cannot be unregistered"), error);
    match error {
        ClientError::Refused { code: ErrorCode::BrokerIdNotRegistered, .. } => {
            failure.hint("`highwater cluster info` shows the brokers that are registered")
        }
        ClientError::Refused { code: ErrorCode::InvalidRequest, .. } => {
            failure.hint("`highwater cluster info` says fenced of a broker that has stopped")
        }
        _ => failure,
    }
}
