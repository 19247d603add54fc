//! The one table of APIs: what is served, and by which handler. What is not here is not advertised.

use model::ErrorCode;
use wire::ApiKey;
use wire::api_versions::{ApiVersion, ApiVersionsResponse};

use super::{Call, answer};
use crate::network::slot::{Hangup, Slot};

/// One API as it is advertised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertised {
    /// The API.
    pub api: ApiKey,
    /// The first version.
    pub min_version: i16,
    /// The last version.
    pub max_version: i16,
}

macro_rules! served {
    ($($api:ident => $module:ident :: $handler:ident,)*) => {
        /// The APIs that go through a future; Produce and Fetch have ways of their own.
        const SERVED: &[ApiKey] = &[ApiKey::Produce, ApiKey::Fetch, $(ApiKey::$api,)*];

        /// Makes a slot of a request that is not on the hot path.
        pub(super) fn dispatch(call: Call, body: &[u8]) -> Result<Slot, Hangup> {
            match call.api_key {
                $(ApiKey::$api => answer(call, body, super::$module::$handler),)*
                other => Err(Hangup(format!("{other} is not served"))),
            }
        }
    };
}

served! {
    ListOffsets => list_offsets::handle,
    Metadata => metadata::handle,
    OffsetCommit => offset_commit::handle,
    OffsetFetch => offset_fetch::handle,
    FindCoordinator => find_coordinator::handle,
    JoinGroup => join_group::handle,
    Heartbeat => heartbeat::handle,
    LeaveGroup => leave_group::handle,
    SyncGroup => sync_group::handle,
    DescribeGroups => describe_groups::handle,
    ListGroups => list_groups::handle,
    SaslHandshake => sasl_handshake::handle,
    ApiVersions => api_versions::handle,
    CreateTopics => create_topics::handle,
    DeleteTopics => delete_topics::handle,
    DeleteRecords => delete_records::handle,
    InitProducerId => init_producer_id::handle,
    OffsetForLeaderEpoch => offset_for_leader_epoch::handle,
    DescribeAcls => access_lists::describe,
    CreateAcls => access_lists::create,
    DeleteAcls => access_lists::delete,
    DescribeConfigs => describe_configs::handle,
    AlterConfigs => alter_configs::replace,
    DescribeLogDirs => describe_log_dirs::handle,
    CreatePartitions => create_partitions::handle,
    CreateDelegationToken => delegation_tokens::create,
    RenewDelegationToken => delegation_tokens::renew,
    ExpireDelegationToken => delegation_tokens::expire,
    DescribeDelegationToken => delegation_tokens::describe,
    DeleteGroups => delete_groups::handle,
    ElectLeaders => elect_leaders::handle,
    IncrementalAlterConfigs => alter_configs::change,
    AlterPartitionReassignments => reassignments::alter,
    ListPartitionReassignments => reassignments::list,
    OffsetDelete => offset_delete::handle,
    DescribeClientQuotas => client_quotas::describe,
    AlterClientQuotas => client_quotas::alter,
    DescribeUserScramCredentials => scram_credentials::describe,
    AlterUserScramCredentials => scram_credentials::alter,
    DescribeQuorum => describe_quorum::handle,
    UpdateFeatures => update_features::handle,
    DescribeCluster => describe_cluster::handle,
    DescribeProducers => describe_producers::handle,
    UnregisterBroker => unregister_broker::handle,
    DescribeTransactions => transactions::describe,
    ListTransactions => transactions::list,
    ConsumerGroupHeartbeat => consumer_group_heartbeat::handle,
    GetTelemetrySubscriptions => telemetry_subscriptions::get,
    PushTelemetry => telemetry_subscriptions::push,
    ListConfigResources => list_config_resources::handle,
    DescribeTopicPartitions => describe_topic_partitions::handle,
}

/// librdkafka does not use Produce at all unless it is offered from version 0 (KAFKA-18659).
const PRODUCE_ADVERTISED_FROM: i16 = 0;

/// What is advertised, in the order of the numbers.
pub fn advertised() -> Vec<Advertised> {
    let mut all: Vec<Advertised> = SERVED
        .iter()
        .map(|api| Advertised {
            api: *api,
            min_version: match api {
                ApiKey::Produce => PRODUCE_ADVERTISED_FROM,
                api => api.min_version(),
            },
            max_version: api.max_version(),
        })
        .collect();
    all.sort_by_key(|advertised| advertised.api.code());
    all
}

/// The answer to ApiVersions.
pub(super) fn api_versions(code: ErrorCode) -> ApiVersionsResponse {
    let api_keys = advertised()
        .into_iter()
        .map(|advertised| ApiVersion {
            api_key: advertised.api.code(),
            min_version: advertised.min_version,
            max_version: advertised.max_version,
        })
        .collect();
    ApiVersionsResponse { error_code: code.code(), api_keys, ..Default::default() }
}
