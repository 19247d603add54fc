//! The whole surface: every API that is advertised answers in every version, and a request that is cut
//! costs its connection and nothing else. And what the administrative APIs say on one broker without
//! quotas, access rules, passwords and transactions, in the words of Apache Kafka 4.3.1.

use std::collections::BTreeSet;

use model::ErrorCode;
use wire::{ApiKey, Request};

use crate::fixture::*;

/// A request of this API that a broker can answer at once: its defaults, and what they leave open.
trait Minimal: Request + Default {
    fn minimal(_: i16) -> Self {
        Self::default()
    }
}

/// The APIs whose defaults are enough.
macro_rules! by_default {
    ($($request:ident)*) => { $(impl Minimal for wire::$request {})* };
}

by_default! {
    AddOffsetsToTxnRequest AddPartitionsToTxnRequest AlterClientQuotasRequest AlterConfigsRequest
    AlterPartitionReassignmentsRequest AlterReplicaLogDirsRequest AlterUserScramCredentialsRequest
    ConsumerGroupDescribeRequest ConsumerGroupHeartbeatRequest CreateAclsRequest CreateDelegationTokenRequest
    CreatePartitionsRequest CreateTopicsRequest DeleteAclsRequest DeleteGroupsRequest
    DeleteRecordsRequest DeleteTopicsRequest DescribeAclsRequest DescribeClientQuotasRequest
    DescribeClusterRequest DescribeConfigsRequest DescribeDelegationTokenRequest
    DescribeGroupsRequest DescribeLogDirsRequest DescribeProducersRequest DescribeQuorumRequest
    DescribeShareGroupOffsetsRequest DescribeTopicPartitionsRequest DescribeTransactionsRequest
    DescribeUserScramCredentialsRequest ElectLeadersRequest EndTxnRequest
    ExpireDelegationTokenRequest FetchRequest FindCoordinatorRequest
    GetTelemetrySubscriptionsRequest HeartbeatRequest IncrementalAlterConfigsRequest
    InitProducerIdRequest JoinGroupRequest LeaveGroupRequest ListConfigResourcesRequest
    ListGroupsRequest ListOffsetsRequest ListPartitionReassignmentsRequest ListTransactionsRequest
    MetadataRequest OffsetCommitRequest OffsetDeleteRequest OffsetFetchRequest
    OffsetForLeaderEpochRequest PushTelemetryRequest RenewDelegationTokenRequest
    SaslAuthenticateRequest SaslHandshakeRequest ShareGroupDescribeRequest
    StreamsGroupDescribeRequest SyncGroupRequest TxnOffsetCommitRequest UnregisterBrokerRequest
    UpdateFeaturesRequest
}

impl Minimal for wire::ApiVersionsRequest {
    fn minimal(version: i16) -> Self {
        // From version 3 on a client says what it is.
        let said = |text: &str| if version >= 3 { text.to_owned() } else { String::new() };
        wire::ApiVersionsRequest {
            client_software_name: said("test"),
            client_software_version: said("1"),
            ..Default::default()
        }
    }
}

impl Minimal for wire::ProduceRequest {
    fn minimal(_: i16) -> Self {
        // With no acknowledgements wanted there would be no answer.
        wire::ProduceRequest { acks: -1, ..Default::default() }
    }
}

/// Sends the request of one API in every advertised version, whole and cut.
async fn ask<R: Minimal>(broker: &Broker, answered: &mut BTreeSet<(ApiKey, i16)>) {
    let advertised = broker::advertised();
    let Some(served) = advertised.iter().find(|served| served.api == R::API_KEY) else { return };
    for version in served.min_version.max(R::API_KEY.min_version())..=served.max_version {
        let request = R::minimal(version);
        let mut conn = broker.connect().await;
        conn.call(&request, version).await;
        answered.insert((R::API_KEY, version));
        let whole = frame_of(&request, version, 2);
        let body = wire::encode(&request, version).unwrap().len();
        if body == 0 {
            continue;
        }
        // The connection has just been answered: the cut costs exactly this connection.
        let mut cut = whole[..whole.len() - 1].to_vec();
        let length = i32::try_from(cut.len() - 4).unwrap();
        cut[..4].copy_from_slice(&length.to_be_bytes());
        conn.write(&cut).await;
        conn.assert_closed().await;
    }
}

macro_rules! ask_every_api {
    ($($api:ident $request:ident $response:ident,)*) => {
        async fn ask_all(broker: &Broker, answered: &mut BTreeSet<(ApiKey, i16)>) {
            $(ask::<wire::$request>(broker, answered).await;)*
        }
    };
}

wire::for_each_api!(ask_every_api);

#[tokio::test]
async fn every_api_answers_in_every_version_and_a_cut_request_costs_its_connection_only() {
    let broker = Broker::start(&[]).await;
    let mut answered = BTreeSet::new();
    ask_all(&broker, &mut answered).await;
    for served in broker::advertised() {
        let versions = served.min_version.max(served.api.min_version())..=served.max_version;
        let silent: Vec<i16> =
            versions.filter(|version| !answered.contains(&(served.api, *version))).collect();
        assert!(silent.is_empty(), "{} has no answer in versions {silent:?}", served.api);
    }
    broker.assert_serves().await;
    broker.stop().await;
}

fn text(text: &str) -> String {
    text.to_owned()
}

#[tokio::test]
async fn access_rules_are_security_disabled() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let rule = wire::create_acls::AclCreation {
        resource_type: 2,
        resource_name: text("t"),
        resource_pattern_type: 3,
        principal: text("User:a"),
        host: text("*"),
        operation: 3,
        permission_type: 3,
    };
    let filter = wire::delete_acls::DeleteAclsFilter::default();
    for version in 1..=3 {
        let described = conn.call(&wire::DescribeAclsRequest::default(), version).await;
        assert_eq!(described.error(), ErrorCode::SecurityDisabled);
        let create = wire::CreateAclsRequest { creations: vec![rule.clone(); 2] };
        let created = conn.call(&create, version).await;
        assert_eq!(created.results.len(), 2);
        let delete = wire::DeleteAclsRequest { filters: vec![filter.clone(); 3] };
        let deleted = conn.call(&delete, version).await;
        assert_eq!(deleted.filter_results.len(), 3);
        let codes = created.results.iter().map(|result| result.error());
        let codes = codes.chain(deleted.filter_results.iter().map(|result| result.error()));
        assert!(codes.into_iter().all(|code| code == ErrorCode::SecurityDisabled));
    }
    broker.stop().await;
}

#[tokio::test]
async fn delegation_tokens_are_not_handed_out_without_authentication() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    const REFUSED: ErrorCode = ErrorCode::DelegationTokenRequestNotAllowed;
    for version in 1..=3 {
        let made = conn.call(&wire::CreateDelegationTokenRequest::default(), version).await;
        assert_eq!((made.error(), made.principal_name.as_str()), (REFUSED, "ANONYMOUS"));
        let asked = conn.call(&wire::DescribeDelegationTokenRequest::default(), version).await;
        assert_eq!(asked.error(), REFUSED);
    }
    for version in 1..=2 {
        let renewed = conn.call(&wire::RenewDelegationTokenRequest::default(), version).await;
        assert_eq!(renewed.error(), REFUSED);
        let expired = conn.call(&wire::ExpireDelegationTokenRequest::default(), version).await;
        assert_eq!(expired.error(), REFUSED);
    }
    broker.stop().await;
}

fn component(
    kind: &str,
    how: i8,
    name: Option<&str>,
) -> wire::describe_client_quotas::ComponentData {
    wire::describe_client_quotas::ComponentData {
        entity_type: text(kind),
        match_type: how,
        match_: name.map(text),
    }
}

#[tokio::test]
async fn there_are_no_quotas_and_none_can_be_set() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let cases = [
        (vec![], ErrorCode::None),
        (vec![component("user", 0, Some("alice"))], ErrorCode::None),
        (vec![component("user", 2, None), component("client-id", 1, None)], ErrorCode::None),
        (vec![component("ip", 2, None)], ErrorCode::None),
        (vec![component("custom", 2, None)], ErrorCode::UnsupportedVersion),
        (vec![component("", 2, None)], ErrorCode::InvalidRequest),
        (vec![component("user", 9, None)], ErrorCode::InvalidRequest),
        (vec![component("user", 0, None)], ErrorCode::InvalidRequest),
        (vec![component("user", 1, Some("a"))], ErrorCode::InvalidRequest),
        (vec![component("user", 2, None), component("user", 2, None)], ErrorCode::InvalidRequest),
        (vec![component("user", 2, None), component("ip", 2, None)], ErrorCode::InvalidRequest),
    ];
    for (components, code) in cases {
        let request = wire::DescribeClientQuotasRequest { components, strict: false };
        let answer = conn.call(&request, 1).await;
        assert_eq!(answer.error(), code, "{request:?}");
        assert_eq!(answer.entries, code.is_none().then(Vec::new));
    }
    let alter = |kind: &str, name: &str, key: &str, remove: bool| wire::AlterClientQuotasRequest {
        entries: vec![wire::alter_client_quotas::RequestEntryData {
            entity: vec![wire::alter_client_quotas::RequestEntityData {
                entity_type: text(kind),
                entity_name: Some(text(name)),
            }],
            ops: vec![wire::alter_client_quotas::OpData { key: text(key), value: 1.0, remove }],
        }],
        validate_only: false,
    };
    let cases = [
        (alter("user", "bob", "consumer_byte_rate", true), ErrorCode::None),
        (alter("user", "bob", "consumer_byte_rate", false), ErrorCode::InvalidRequest),
        (alter("user", "bob", "nosuch", false), ErrorCode::InvalidRequest),
        (alter("ip", "::1", "connection_creation_rate", true), ErrorCode::None),
        (alter("custom", "bob", "consumer_byte_rate", true), ErrorCode::InvalidRequest),
        (alter("user", "", "consumer_byte_rate", true), ErrorCode::InvalidRequest),
    ];
    for (request, code) in cases {
        let answer = conn.call(&request, 1).await;
        assert_eq!(answer.entries[0].error(), code, "{request:?}");
        assert_eq!(answer.entries[0].error_message.is_none(), code.is_none());
    }
    broker.stop().await;
}

#[tokio::test]
async fn a_sasl_handshake_on_a_plaintext_listener_is_refused_with_its_reason() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let request = wire::SaslHandshakeRequest { mechanism: text("PLAIN") };
    for version in [0, 1] {
        let answer = conn.call(&request, version).await;
        assert_eq!((answer.error_code, answer.mechanisms), (34, vec![]));
    }
    broker.assert_serves().await;
    broker.stop().await;
}

#[tokio::test]
async fn there_are_no_passwords_and_none_can_be_set() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let name = |name: &str| wire::describe_user_scram_credentials::UserName { name: text(name) };
    for users in [None, Some(vec![])] {
        let request = wire::DescribeUserScramCredentialsRequest { users };
        let answer = conn.call(&request, 0).await;
        assert_eq!((answer.error(), answer.results), (ErrorCode::None, vec![]));
    }
    let users = Some(vec![name("twice"), name("alice"), name("twice")]);
    let request = wire::DescribeUserScramCredentialsRequest { users };
    let answer = conn.call(&request, 0).await;
    let codes: Vec<_> = answer.results.iter().map(|r| (r.user.as_str(), r.error())).collect();
    let expected =
        [("alice", ErrorCode::ResourceNotFound), ("twice", ErrorCode::DuplicateResource)];
    assert_eq!(codes, expected);

    let deletion = |user: &str, mechanism| {
        wire::alter_user_scram_credentials::ScramCredentialDeletion { name: text(user), mechanism }
    };
    let upsertion = |user: &str, mechanism, iterations| {
        wire::alter_user_scram_credentials::ScramCredentialUpsertion {
            name: text(user),
            mechanism,
            iterations,
            salt: vec![1; 16].into(),
            salted_password: vec![2; 32].into(),
        }
    };
    let request = wire::AlterUserScramCredentialsRequest {
        deletions: vec![deletion("a", 1), deletion("b", 9), deletion("", 1)],
        upsertions: vec![
            upsertion("a", 1, 4096),
            upsertion("c", 1, 4096),
            upsertion("d", 1, 1),
            upsertion("e", 9, 4096),
        ],
    };
    let answer = conn.call(&request, 0).await;
    let codes: Vec<_> = answer.results.iter().map(|r| (r.user.as_str(), r.error())).collect();
    let expected = [
        ("", ErrorCode::UnacceptableCredential),
        ("a", ErrorCode::ResourceNotFound),
        ("b", ErrorCode::UnsupportedSaslMechanism),
        ("c", ErrorCode::UnsupportedSaslMechanism),
        ("d", ErrorCode::UnacceptableCredential),
        ("e", ErrorCode::UnsupportedSaslMechanism),
    ];
    assert_eq!(codes, expected);
    broker.stop().await;
}

#[tokio::test]
async fn replicas_stay_where_they_are() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("stays", &[]).await;
    let list = wire::ListPartitionReassignmentsRequest { timeout_ms: 1000, topics: None };
    let listed = conn.call(&list, 0).await;
    assert_eq!((listed.error(), listed.topics), (ErrorCode::None, vec![]));
    let cases: [(&str, i32, Option<Vec<i32>>, ErrorCode); 8] = [
        ("stays", 0, Some(vec![1]), ErrorCode::None),
        ("stays", 0, None, ErrorCode::NoReassignmentInProgress),
        ("stays", 9, None, ErrorCode::UnknownTopicOrPartition),
        ("absent", 0, Some(vec![1]), ErrorCode::UnknownTopicOrPartition),
        ("stays", 0, Some(vec![]), ErrorCode::InvalidReplicaAssignment),
        ("stays", 0, Some(vec![1, 1]), ErrorCode::InvalidReplicaAssignment),
        ("stays", 0, Some(vec![1, 7]), ErrorCode::InvalidReplicaAssignment),
        ("stays", 0, Some(vec![-1]), ErrorCode::InvalidReplicaAssignment),
    ];
    for (topic, partition_index, replicas, code) in cases {
        let partition = wire::alter_partition_reassignments::ReassignablePartition {
            partition_index,
            replicas,
        };
        let request = wire::AlterPartitionReassignmentsRequest {
            timeout_ms: 1000,
            topics: vec![wire::alter_partition_reassignments::ReassignableTopic {
                name: text(topic),
                partitions: vec![partition],
            }],
            ..Default::default()
        };
        for version in 0..=1 {
            let answer = conn.call(&request, version).await;
            assert_eq!(answer.error(), ErrorCode::None);
            assert_eq!(answer.responses[0].partitions[0].error(), code, "{request:?}");
        }
    }
    broker.stop().await;
}

#[tokio::test]
async fn no_transaction_is_listed_and_none_is_found() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let states = ["Ongoing", "ongoing", "Foo", "Foo"];
    let list = wire::ListTransactionsRequest {
        state_filters: states.into_iter().map(text).collect(),
        ..Default::default()
    };
    for version in 0..=2 {
        let listed = conn.call(&list, version).await;
        assert_eq!((listed.error(), listed.transaction_states), (ErrorCode::None, vec![]));
        assert_eq!(listed.unknown_state_filters, ["Foo", "ongoing"]);
    }
    let ids = vec![text("absent"), String::new()];
    let describe = wire::DescribeTransactionsRequest { transactional_ids: ids };
    let described = conn.call(&describe, 0).await;
    let codes: Vec<_> = described.transaction_states.iter().map(|state| state.error()).collect();
    assert_eq!(codes, [ErrorCode::TransactionalIdNotFound, ErrorCode::InvalidRequest]);
    broker.stop().await;
}

#[tokio::test]
async fn heartbeats_of_the_consumer_protocol_are_refused_in_the_answer() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    for (version, group) in [(0, "g"), (0, ""), (1, "g"), (1, "")] {
        let heartbeat = wire::ConsumerGroupHeartbeatRequest {
            group_id: text(group),
            member_id: text("m"),
            subscribed_topic_names: Some(vec![text("t")]),
            ..Default::default()
        };
        let refused = conn.call(&heartbeat, version).await;
        assert_eq!(refused.error(), ErrorCode::UnsupportedVersion, "{refused:?}");
        let reason = refused.error_message.unwrap_or_default();
        assert!(reason.contains("group.protocol=classic"), "{reason}");
        assert_eq!((refused.member_id, refused.member_epoch, refused.assignment), (None, 0, None));
    }
    broker.stop().await;
}

#[tokio::test]
async fn one_broker_leads_all_it_can() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic_of("led", 2, &[]).await;
    let elect = |election_type, partitions: Option<Vec<(&str, Vec<i32>)>>| {
        let topics = |(topic, partitions): (&str, Vec<i32>)| wire::elect_leaders::TopicPartitions {
            topic: text(topic),
            partitions,
        };
        wire::ElectLeadersRequest {
            election_type,
            topic_partitions: partitions.map(|all| all.into_iter().map(topics).collect()),
            timeout_ms: 1000,
        }
    };
    for version in 0..=2 {
        let all = conn.call(&elect(0, None), version).await;
        assert_eq!((all.error(), all.replica_election_results), (ErrorCode::None, vec![]));
        let request = elect(0, Some(vec![("led", vec![0, 1, 7]), ("absent", vec![0])]));
        let named = conn.call(&request, version).await;
        assert_eq!(named.error(), ErrorCode::None);
        let topics: Vec<_> = named.replica_election_results.iter().map(|t| &*t.topic).collect();
        assert_eq!(topics, ["led", "absent"]);
        let codes = named.replica_election_results.iter().flat_map(|topic| &topic.partition_result);
        let codes: Vec<_> = codes.map(|partition| partition.error()).collect();
        let (led, absent) = (ErrorCode::ElectionNotNeeded, ErrorCode::UnknownTopicOrPartition);
        assert_eq!(codes, [led, led, absent, absent]);
    }
    let unclean = conn.call(&elect(1, Some(vec![("led", vec![0])])), 2).await;
    let result = &unclean.replica_election_results[0].partition_result[0];
    assert_eq!(result.error(), ErrorCode::ElectionNotNeeded);
    let unknown = conn.call(&elect(7, Some(vec![("led", vec![0])])), 2).await;
    assert_eq!(unknown.error(), ErrorCode::InvalidRequest);
    let result = &unknown.replica_election_results[0].partition_result[0];
    assert_eq!(result.error(), ErrorCode::InvalidRequest);
    broker.stop().await;
}

fn quorum_request(topic: &str, partition_index: i32) -> wire::DescribeQuorumRequest {
    let partition = wire::describe_quorum::RequestPartitionData { partition_index };
    let topic = wire::describe_quorum::RequestTopicData {
        topic_name: text(topic),
        partitions: vec![partition],
    };
    wire::DescribeQuorumRequest { topics: vec![topic] }
}

#[tokio::test]
async fn the_quorum_is_described_as_it_is() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let port = broker.address().port();
    let before_ms = now_ms();
    let mut ends = Vec::new();
    for version in 0..=2 {
        let answer = conn.call(&quorum_request("__cluster_metadata", 0), version).await;
        assert_eq!(answer.error(), ErrorCode::None);
        let log = &answer.topics[0].partitions[0];
        assert_eq!((log.error(), log.leader_id), (ErrorCode::None, 1));
        assert!(log.leader_epoch >= 1);
        let ([voter], []) = (&log.current_voters[..], &log.observers[..]) else {
            panic!("{answer:?}")
        };
        assert_eq!((voter.replica_id, voter.log_end_offset), (1, log.high_watermark));
        ends.push(log.high_watermark);
        if version >= 1 {
            assert!((before_ms..=now_ms()).contains(&voter.last_fetch_timestamp), "{voter:?}");
            assert_eq!(voter.last_caught_up_timestamp, voter.last_fetch_timestamp);
        }
        if version >= 2 {
            assert_ne!(voter.replica_directory_id, model::Uuid::ZERO);
            let listener = &answer.nodes[0].listeners[0];
            assert_eq!((answer.nodes[0].node_id, listener.port), (1, port));
            assert_eq!((&*listener.name, &*listener.host), ("PLAINTEXT", "127.0.0.1"));
        }
        conn.create_topic(&format!("moves-{version}"), &[]).await;
    }
    assert!(ends.is_sorted_by(|one, next| one < next), "every decision is in the log: {ends:?}");
    for request in [quorum_request("absent", 0), quorum_request("__cluster_metadata", 1)] {
        let answer = conn.call(&request, 2).await;
        assert_eq!(answer.error(), ErrorCode::None);
        let partition = &answer.topics[0].partitions[0];
        assert_eq!(partition.error(), ErrorCode::UnknownTopicOrPartition);
    }
    broker.stop().await;
}

fn feature(name: &str, level: i16) -> wire::UpdateFeaturesRequest {
    wire::UpdateFeaturesRequest {
        timeout_ms: 1000,
        feature_updates: vec![wire::update_features::FeatureUpdateKey {
            feature: text(name),
            max_version_level: level,
            ..Default::default()
        }],
        validate_only: false,
    }
}

#[tokio::test]
async fn features_are_published_and_only_supported_levels_are_finalized() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    for version in 0..=ApiKey::UpdateFeatures.max_version() {
        let cases = [
            (feature("metadata.version", 30), ErrorCode::None),
            (feature("metadata.version", 31), ErrorCode::InvalidUpdateVersion),
            (feature("metadata.version", 29), ErrorCode::InvalidUpdateVersion),
            (feature("transaction.version", 2), ErrorCode::InvalidUpdateVersion),
            (wire::UpdateFeaturesRequest::default(), ErrorCode::None),
        ];
        for (request, code) in cases {
            let answer = conn.call(&request, version).await;
            assert_eq!(answer.error(), code, "{request:?}: {answer:?}");
            let each = version <= 1 && code.is_none();
            assert_eq!(answer.results.len(), if each { request.feature_updates.len() } else { 0 });
        }
    }
    // Features survive a restart, and stand in every answer that has room for them.
    let broker = broker.restart().await;
    let mut conn = broker.connect().await;
    for version in 0..=ApiKey::ApiVersions.max_version() {
        let answer = conn.call(&wire::ApiVersionsRequest::minimal(version), version).await;
        assert_eq!(answer.error(), ErrorCode::None);
        if version < 3 {
            assert_eq!(answer.supported_features, []);
            continue;
        }
        // The last one names the release and not a level.
        let (release, supported) = answer.supported_features.split_last().unwrap();
        assert!(release.name.starts_with("highwater.release."), "{answer:?}");
        assert_eq!((&*supported[0].name, supported[0].max_version), ("metadata.version", 30));
        for feature in supported {
            let finalized = &answer.finalized_features;
            let found = finalized.iter().find(|finalized| finalized.name == feature.name);
            let level = found.map(|finalized| finalized.max_version_level);
            assert_eq!(level, Some(feature.max_version), "a new cluster: {feature:?}");
        }
        assert_eq!(answer.finalized_features.len(), supported.len());
        assert!(answer.finalized_features_epoch >= 0);
    }
    broker.stop().await;
}

const BROKER_LOGGER: i8 = 8;

#[tokio::test]
async fn loggers_belong_to_the_broker_that_is_asked() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    for (name, code) in [
        ("1", ErrorCode::None),
        ("2", ErrorCode::InvalidRequest),
        ("", ErrorCode::InvalidRequest),
        ("x", ErrorCode::InvalidRequest),
    ] {
        let resource = wire::describe_configs::DescribeConfigsResource {
            resource_type: BROKER_LOGGER,
            resource_name: text(name),
            configuration_keys: None,
        };
        let request =
            wire::DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
        let answer = conn.call(&request, 4).await;
        assert_eq!(answer.results[0].error(), code, "{name:?}");
        // The tests' process reports nothing, so it has no loggers.
        assert_eq!(answer.results[0].configs, []);
    }
    broker.stop().await;
}

#[tokio::test]
async fn a_special_time_of_a_later_kafka_is_an_unsupported_version() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("timeless", &[]).await;
    for version in ApiKey::ListOffsets.min_version()..=ApiKey::ListOffsets.max_version() {
        let partition = wire::list_offsets::ListOffsetsPartition {
            timestamp: -42,
            current_leader_epoch: -1,
            ..Default::default()
        };
        let topic = wire::list_offsets::ListOffsetsTopic {
            name: text("timeless"),
            partitions: vec![partition],
        };
        let request =
            wire::ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() };
        let answer = conn.call(&request, version).await;
        assert_eq!(answer.topics[0].partitions[0].error(), ErrorCode::UnsupportedVersion);
    }
    broker.stop().await;
}
