//! Reaching a cluster from a command: a runtime of one thread, a connection, and failures in words.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::metadata::Topic;
use client::{ClientError, Cluster, ClusterConfig, ConnectionConfig};
use model::{ErrorCode, TopicPartition};

use crate::arguments::Connection;
use crate::command_config;
use crate::commands::outcome::{hint, said};
use crate::failure::Failure;

/// After so long without a broker the user is told that it is being waited for.
const QUIET_MAX: Duration = Duration::from_secs(1);
/// How long a topic may take to appear that is created by being written to.
const CREATION_MAX: Duration = Duration::from_millis(1500);
const CREATION_PAUSE: Duration = Duration::from_millis(200);
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
    let security = command_config::security(to.command_config.as_deref())?;
    let config = ClusterConfig {
        call_timeout: patience,
        allow_auto_create,
        connection: ConnectionConfig { security, ..ConnectionConfig::default() },
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
        let failure = Failure::new(format!("cannot reach the cluster at {}", to.bootstrap_server));
        let hint = match (&error, &to.command_config) {
            (ClientError::NotAdmitted { .. }, Some(file)) => {
                format!("the properties are in {}", file.display())
            }
            (ClientError::NotAdmitted { .. }, None) => {
                "say how to log in with --command-config FILE: a file of properties, as Kafka's tools take".to_owned()
            }
            _ => "start a broker with `highwater start`, or name one with --bootstrap-server".to_owned(),
        };
        let is_unreachable = is_silence(&error);
        failure.detail(error).hint(hint).unreachable(is_unreachable)
    })
}

/// Whether an error means that no broker answered.
fn is_silence(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Connect { .. }
            | ClientError::Closed { .. }
            | ClientError::TimedOut { .. }
            | ClientError::NoBroker(_)
    )
}

/// A topic that must be there. Other than `Cluster::topic`, it does not wait for it to appear.
pub async fn existing_topic(cluster: &Cluster, name: &str) -> Result<Arc<Topic>, Failure> {
    let metadata = cluster.retry(|| cluster.describe_all()).await;
    let metadata = metadata.map_err(|error| failed(format!("cannot look up {name}"), &error))?;
    metadata.topics.get(name).cloned().ok_or_else(|| no_topic(name))
}

/// The partitions that are named as TOPIC, which is all of its partitions, or as TOPIC:PARTITION.
pub async fn named_partitions(
    cluster: &Cluster,
    names: &[String],
) -> Result<Vec<TopicPartition>, Failure> {
    let mut partitions = Vec::new();
    for text in names {
        let (name, only) = match text.rsplit_once(':') {
            None => (text.as_str(), None),
            Some((name, partition)) => {
                let number = partition.parse::<i32>().map_err(|_| {
                    Failure::new(format!("invalid {text:?}: write TOPIC:PARTITION"))
                        .hint("write for example orders or orders:3")
                })?;
                (name, Some(number))
            }
        };
        let topic = existing_topic(cluster, name).await?;
        let wanted = topic.partitions.iter().filter(|p| only.is_none_or(|only| only == p.index));
        let before = partitions.len();
        partitions.extend(wanted.map(|p| TopicPartition::new(name, p.index)));
        if partitions.len() == before {
            return Err(Failure::new(format!("there is no partition {text}"))
                .hint(format!("`highwater topic describe {name}` shows which there are")));
        }
    }
    Ok(partitions)
}

/// The failure to find a topic.
pub fn no_topic(name: &str) -> Failure {
    Failure::new(format!("there is no topic {name}"))
        .hint("`highwater topic list` shows what is there")
}

/// Waits for a topic that is there, or that the cluster makes because it was asked for: not longer
/// than that takes, because a topic that is not made now is not made at all.
pub async fn topic_to_write(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    let asked = Instant::now();
    cluster.want([name]);
    loop {
        let refreshed = cluster.retry(|| cluster.refresh()).await;
        refreshed.map_err(|error| failed(format!("cannot look up {name}"), &error))?;
        let error = cluster.metadata().topics.get(name).map(|topic| topic.error);
        match error {
            None | Some(ErrorCode::UnknownTopicOrPartition) if asked.elapsed() > CREATION_MAX => {
                return Err(Failure::new(format!("there is no topic {name}"))
                    .detail("the cluster does not create topics that are written to")
                    .hint(format!("create it: highwater topic create {name}")));
            }
            None | Some(ErrorCode::UnknownTopicOrPartition) => {
                tokio::time::sleep(CREATION_PAUSE).await;
            }
            // Whatever else is wrong with it, the producer says, or waits until it is over.
            Some(_) => return Ok(()),
        }
    }
}

/// A call that failed: what was wanted, and the client's words, or those for what a broker refused.
pub fn failed(wanted: impl Into<String>, error: &ClientError) -> Failure {
    let failure = Failure::new(wanted);
    match error {
        ClientError::Refused { what, code, message } => {
            let failure = failure.detail(format!("{what}: {}", said(*code, message.as_deref())));
            match hint(*code) {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        }
        _ => failure.detail(error).unreachable(is_silence(error)),
    }
}
