//! Reaching a cluster from a command: a runtime of one thread, a connection, and failures in words.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use client::metadata::Topic;
use client::{ClientError, Cluster, ClusterConfig};

use crate::arguments::Connection;
use crate::failure::Failure;

/// After so long without a broker the user is told that it is being waited for.
const QUIET_MAX: Duration = Duration::from_secs(2);
/// How long a command tries to get an answer.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Runs what a command does to its end.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::new("cannot start").detail(error))?.block_on(work)
}

/// Connects, for at most `patience`, which is also what each later call may take.
pub async fn connect(
    to: &Connection,
    patience: Duration,
    allow_auto_create: bool,
) -> Result<Cluster, Failure> {
    let config = ClusterConfig {
        call_timeout: patience,
        allow_auto_create,
        ..ClusterConfig::new(&to.bootstrap_server)
    };
    let connecting = Cluster::connect(config);
    tokio::pin!(connecting);
    let connected = tokio::select! {
        connected = &mut connecting => connected,
        () = tokio::time::sleep(QUIET_MAX.min(patience)) => {
            let (at, seconds) = (&to.bootstrap_server, patience.as_secs_f64());
            anstream::eprintln!("no broker answers at {at} yet; trying for {seconds} s");
            connecting.await
        }
    };
    connected.map_err(|error| {
        Failure::new(format!("cannot reach the cluster at {}", to.bootstrap_server))
            .detail(error)
            .hint("start a broker with `highwater start`, or name one with --bootstrap-server")
    })
}

/// A topic that must be there. Other than `Cluster::topic`, it does not wait for it to appear.
pub async fn existing_topic(cluster: &Cluster, name: &str) -> Result<Arc<Topic>, Failure> {
    let metadata = cluster.retry(|| cluster.describe_all()).await;
    let metadata = metadata.map_err(|error| failed(format!("cannot look up {name}"), &error))?;
    metadata.topics.get(name).cloned().ok_or_else(|| {
        Failure::new(format!("there is no topic {name}"))
            .hint("`highwater topic list` shows what is there")
    })
}

/// A call that failed: what was wanted, and the client's words.
pub fn failed(wanted: impl Into<String>, error: &ClientError) -> Failure {
    Failure::new(wanted).detail(error)
}
