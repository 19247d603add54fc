//! Administration: one call for every API that administrators use, sent to the broker that answers
//! it. Topics are in [`topics`], configurations in [`configs`], groups in [`groups`], replicas and
//! transactions in [`partitions`], a look at everything in [`survey`]; the cluster as a whole is here.
//!
//! What a call gives for several things at once is [`Each`]: one may fail where others succeed.

mod configs;
mod groups;
mod partitions;
pub mod survey;
mod topics;

pub use configs::{ConfigOperation, Resource, ResourceType};
pub use topics::NewTopic;

use crate::cluster::{Cluster, Lane};
use crate::error::{ClientError, check};
use crate::metadata::Metadata;
use model::ErrorCode;
use wire::api_versions::ApiVersion;
use wire::describe_acls::DescribeAclsResource;
use wire::describe_client_quotas::{ComponentData, EntryData};
use wire::describe_quorum::{RequestPartitionData, RequestTopicData};
use wire::update_features::FeatureUpdateKey;
use wire::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, DescribeAclsRequest,
    DescribeClientQuotasRequest, DescribeClusterRequest, DescribeClusterResponse,
    DescribeQuorumRequest, DescribeQuorumResponse, Request, UnregisterBrokerRequest,
    UpdateFeaturesRequest,
};

/// What became of each of several things, by name.
pub type Each<T> = Vec<(String, Result<T, ClientError>)>;

/// From this version on DescribeCluster tells of fenced brokers.
const FENCED_FROM_VERSION: i16 = 2;
/// How long the brokers may take over a change, in milliseconds.
const TIMEOUT_MS: i32 = 30_000;

/// The result of one thing.
fn each<T>(
    name: impl Into<String>,
    code: ErrorCode,
    message: Option<&str>,
    value: T,
) -> (String, Result<T, ClientError>) {
    let name = name.into();
    let result = check(code, message, || name.clone()).map(|()| value);
    (name, result)
}

/// An error for which a call is made again. Any other one is told with the broker's own words.
fn worth_another_try(code: ErrorCode) -> ErrorCode {
    if code.is_retriable() { code } else { ErrorCode::None }
}

/// The only result of a call for one thing.
fn only<T>(each: Each<T>) -> Result<T, ClientError> {
    let first = each.into_iter().next();
    first.map_or_else(|| Err(missing("an answer")), |(_, result)| result)
}

fn missing(what: &str) -> ClientError {
    ClientError::refused(format!("{what} is missing"), ErrorCode::UnknownServerError)
}

/// Asks for the one partition of the metadata log.
fn quorum_request() -> DescribeQuorumRequest {
    let topic = RequestTopicData {
        topic_name: "__cluster_metadata".to_owned(),
        partitions: vec![RequestPartitionData { partition_index: 0 }],
    };
    DescribeQuorumRequest { topics: vec![topic] }
}

/// An administrator's view of a cluster.
#[derive(Clone)]
pub struct Admin {
    cluster: Cluster,
}

impl Admin {
    /// An administrator of this cluster.
    pub fn new(cluster: Cluster) -> Admin {
        Admin { cluster }
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Sends any request to some broker.
    pub async fn call<R: Request>(&self, request: &R) -> Result<R::Response, ClientError> {
        self.cluster.call_any(request).await
    }

    /// Asks every broker the same.
    async fn call_all<R: Request>(
        &self,
        request: &R,
    ) -> Result<Vec<(i32, R::Response)>, ClientError> {
        self.cluster.retry(|| self.cluster.refresh()).await?;
        let mut brokers: Vec<i32> = self.cluster.metadata().brokers.keys().copied().collect();
        brokers.sort();
        let mut out = Vec::new();
        for broker in brokers {
            out.push((broker, self.cluster.call_broker(broker, request).await?));
        }
        Ok(out)
    }

    /// Asks the controller; an error as a whole ends the call.
    async fn change<R: Request>(
        &self,
        request: &R,
        error: impl Fn(&R::Response) -> ErrorCode,
    ) -> Result<R::Response, ClientError> {
        self.cluster.call_controller(request, error).await
    }

    /// Brokers and all topics with their partitions.
    pub async fn describe_all(&self) -> Result<Metadata, ClientError> {
        self.cluster.retry(|| self.cluster.describe_all()).await
    }

    /// The cluster's id, its controller and its brokers (KIP-700).
    pub async fn describe_cluster(&self) -> Result<DescribeClusterResponse, ClientError> {
        let request = DescribeClusterRequest::default();
        let response = self.call(&request).await?;
        let message = response.error_message.as_deref();
        check(response.error(), message, || "describing the cluster".to_owned())?;
        Ok(response)
    }

    /// As [`Admin::describe_cluster`], with the registered brokers that do not serve (KIP-1073), where the brokers
    /// know that.
    pub async fn describe_all_brokers(&self) -> Result<DescribeClusterResponse, ClientError> {
        self.cluster
            .retry(|| async {
                let connection = self.cluster.any().await?;
                let version = connection.version_of(ApiKey::DescribeCluster)?;
                let include_fenced_brokers = version >= FENCED_FROM_VERSION;
                let request =
                    DescribeClusterRequest { include_fenced_brokers, ..Default::default() };
                let response = connection.call_version(&request, version).await?;
                let message = response.error_message.as_deref();
                check(response.error(), message, || "describing the cluster".to_owned())?;
                Ok(response)
            })
            .await
    }

    /// Leader of the metadata quorum: the active controller. `None` if the quorum has none. Asks one broker once; a
    /// broker without a leader of the quorum may take seconds to answer.
    ///
    /// The controller in a cluster's metadata is a broker that takes a controller's requests, and not the active
    /// controller (KIP-500).
    pub async fn quorum_leader(&self) -> Result<Option<i32>, ClientError> {
        let response = self.call(&quorum_request()).await?;
        let is_none = response.error() == ErrorCode::NotLeaderOrFollower;
        if is_none {
            return Ok(None);
        }
        let message = response.error_message.as_deref();
        check(response.error(), message, || "describing the quorum".to_owned())?;
        let partition = response.topics.first().and_then(|topic| topic.partitions.first());
        Ok(partition.map(|partition| partition.leader_id).filter(|leader| *leader >= 0))
    }

    /// The metadata quorum: who leads, who votes, how far each is.
    pub async fn describe_quorum(&self) -> Result<DescribeQuorumResponse, ClientError> {
        let request = quorum_request();
        let response = self.change(&request, |r| worth_another_try(r.error())).await?;
        let message = response.error_message.as_deref();
        check(response.error(), message, || "describing the quorum".to_owned())?;
        let partitions = response.topics.iter().flat_map(|t| &t.partitions);
        let (code, message) = partitions
            .map(|p| (p.error(), p.error_message.as_deref()))
            .find(|(code, _)| !code.is_none())
            .unwrap_or((ErrorCode::None, None));
        check(code, message, || "describing the quorum".to_owned())?;
        Ok(response)
    }

    /// The features of the cluster (KIP-584) and the versions of all APIs, as some broker sees
    /// them.
    pub async fn describe_features(&self) -> Result<ApiVersionsResponse, ClientError> {
        let request = ApiVersionsRequest {
            client_software_name: "highwater".to_owned(),
            client_software_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Default::default()
        };
        let response = self.call(&request).await?;
        check(response.error(), None, || "describing features".to_owned())?;
        Ok(response)
    }

    /// The features of one broker (KIP-584): ranges that it supports, and levels that are finalized.
    pub async fn broker_features(&self, broker: i32) -> Result<ApiVersionsResponse, ClientError> {
        let request = ApiVersionsRequest {
            client_software_name: "highwater".to_owned(),
            client_software_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Default::default()
        };
        let connection = self.cluster.retry(|| self.cluster.broker(broker, Lane::Common)).await?;
        let response = connection.call(&request).await?;
        check(response.error(), None, || format!("describing features of broker {broker}"))?;
        Ok(response)
    }

    /// The versions of all APIs that this broker serves.
    pub async fn broker_versions(&self, broker: i32) -> Result<Vec<ApiVersion>, ClientError> {
        let connection = self.cluster.retry(|| self.cluster.broker(broker, Lane::Common)).await?;
        let versions = connection.versions();
        let mut rows: Vec<_> = versions
            .codes()
            .filter_map(|code| Some((code, versions.range(code)?)))
            .map(|(api_key, (min_version, max_version))| ApiVersion {
                api_key,
                min_version,
                max_version,
            })
            .collect();
        rows.sort_by_key(|row| row.api_key);
        Ok(rows)
    }

    /// Changes finalized features.
    pub async fn update_features(
        &self,
        updates: Vec<FeatureUpdateKey>,
        validate_only: bool,
    ) -> Result<Each<()>, ClientError> {
        let request = UpdateFeaturesRequest {
            timeout_ms: TIMEOUT_MS,
            feature_updates: updates,
            validate_only,
        };
        let response = self.change(&request, |r| worth_another_try(r.error())).await?;
        let message = response.error_message.as_deref();
        check(response.error(), message, || "updating features".to_owned())?;
        let row = |r: &wire::update_features::UpdatableFeatureResult| {
            each(r.feature.clone(), r.error(), r.error_message.as_deref(), ())
        };
        Ok(response.results.iter().map(row).collect())
    }

    /// Forgets a broker that will not come back.
    pub async fn unregister_broker(&self, broker_id: i32) -> Result<(), ClientError> {
        let request = UnregisterBrokerRequest { broker_id };
        let response = self.change(&request, |r| worth_another_try(r.error())).await?;
        let message = response.error_message.as_deref();
        check(response.error(), message, || format!("broker {broker_id}"))
    }

    /// The access rules that match; the filters are the protocol's.
    pub async fn describe_acls(
        &self,
        filter: &DescribeAclsRequest,
    ) -> Result<Vec<DescribeAclsResource>, ClientError> {
        let response = self.call(filter).await?;
        let message = response.error_message.as_deref();
        check(response.error(), message, || "describing ACLs".to_owned())?;
        Ok(response.resources)
    }

    /// The quotas of clients that match all components.
    pub async fn describe_client_quotas(
        &self,
        components: Vec<ComponentData>,
        strict: bool,
    ) -> Result<Vec<EntryData>, ClientError> {
        let request = DescribeClientQuotasRequest { components, strict };
        let response = self.call(&request).await?;
        let message = response.error_message.as_deref();
        check(response.error(), message, || "describing quotas".to_owned())?;
        Ok(response.entries.unwrap_or_default())
    }
}
