//! The one cluster behind the gateway, in the words of version 3 of Confluent's REST proxy.

use hyper::http::request::Parts;
use serving::error::{ApiError, Kind};
use tokio::time::timeout;

use crate::answer::{Answer, text};
use crate::front::host;
use crate::produce::{LOOKUP_MAX, unavailable};
use crate::state::Shared;

/// The cluster's id.
pub(crate) async fn cluster_id(shared: &Shared) -> Result<String, ApiError> {
    let cluster = shared.topics.cluster();
    if let Some(id) = &cluster.metadata().cluster_id {
        return Ok(id.clone());
    }
    let described = timeout(LOOKUP_MAX, cluster.describe([])).await;
    let described = described
        .map_err(|_| unavailable(&"no broker answered within 5 s"))?
        .map_err(|error| unavailable(&error))?;
    described.cluster_id.clone().ok_or_else(|| unavailable(&"its brokers tell no cluster id"))
}

/// The answer to a path that names another cluster than the one that is here.
pub(crate) fn other_cluster(said: &str, id: &str) -> ApiError {
    let words = format!("there is no cluster {said:?} behind this gateway: its cluster is {id:?}");
    ApiError::new(Kind::NotFound, words)
}

/// The list with the cluster; or the cluster, if `said` is its id.
pub(crate) async fn clusters(
    shared: &Shared,
    said: Option<&str>,
    parts: &Parts,
) -> Result<Answer, ApiError> {
    let id = cluster_id(shared).await?;
    let all = format!("{}://{}/v3/clusters", shared.settings.scheme(), host(parts));
    let cluster = format!(
        "{{\"kind\":\"KafkaCluster\",\"metadata\":{{\"self\":{},\"resource_name\":{}}},\"cluster_id\":{}}}",
        text(&format!("{all}/{id}")),
        text(&format!("crn:///kafka={id}")),
        text(&id),
    );
    match said {
        None => Ok(Answer::json(format!(
            "{{\"kind\":\"KafkaClusterList\",\"metadata\":{{\"self\":{},\"next\":null}},\"data\":[{cluster}]}}",
            text(&all),
        ))),
        Some(said) if said == id => Ok(Answer::json(cluster)),
        Some(said) => Err(other_cluster(said, &id)),
    }
}
