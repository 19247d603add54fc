//! When a cluster serves: every broker answers, and lists all of them. Brokers list those that are registered
//! and not fenced.

use std::time::Duration;

use client::{Cluster, ClusterConfig};
use peer::procfs;

use super::plan::Node;

/// How often a broker that does not serve yet is looked at again.
const LOOK: Duration = Duration::from_millis(2);

/// A broker that is being started.
#[derive(Debug, Clone)]
pub struct Starting {
    /// Its place in the plan.
    pub node: Node,
    /// Its process.
    pub pid: u32,
}

/// Waits until all of them serve, for as long as it takes: logs may be recovered first.
pub async fn all_serve(starting: &[Starting]) {
    for broker in starting {
        // The kernel is asked before anybody connects: what listens there is our own child, and a connection
        // to a port where nobody listens may be given that very port for its own end.
        while !procfs::listens_on(broker.pid, broker.node.port).unwrap_or(false) {
            tokio::time::sleep(LOOK).await;
        }
        while !lists_all(broker, starting).await {
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// False also when the broker does not answer, or no longer.
async fn lists_all(broker: &Starting, all: &[Starting]) -> bool {
    let cluster = Cluster::new(ClusterConfig::new(&broker.node.address()));
    while cluster.refresh().await.is_ok() {
        let metadata = cluster.metadata();
        if all.iter().all(|other| metadata.brokers.contains_key(&i32::from(other.node.id))) {
            return true;
        }
        tokio::time::sleep(LOOK).await;
    }
    false
}
