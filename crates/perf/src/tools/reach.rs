//! Reaching the cluster: what cannot be reached at once is tried for a while, and whoever waits is told
//! why.

use super::console::Console;
use client::{ClientError, Cluster, ClusterConfig};

/// Connects. If that does not succeed at once, says what is wrong and for how long it is tried.
pub async fn connect(config: ClusterConfig, console: &Console) -> Result<Cluster, ClientError> {
    let cluster = Cluster::new(config);
    match cluster.refresh().await {
        Err(error) if error.is_retriable() => {
            let seconds = cluster.config().call_timeout.as_secs_f64();
            console.notice(format_args!("WARN {error}; this is tried for {seconds} s"));
            cluster.retry(|| cluster.refresh()).await?;
        }
        result => result?,
    }
    Ok(cluster)
}
