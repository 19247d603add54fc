//! One item, repeated in a request: the answer holds at most the answer for one item plus as many bytes
//! as the request. Every advertised API whose request has a list is tried here or in [`WITHOUT_REPETITION`].

use std::collections::BTreeSet;
use std::time::Instant;

use model::ErrorCode;
use wire::request_schemas::request_fields;
use wire::schema::FieldKind;
use wire::{ApiKey, Request, describe_configs, incremental_alter_configs};
use wire::{alter_configs, alter_partition_reassignments, create_acls, create_partitions};
use wire::{delete_acls, describe_log_dirs, describe_producers, describe_quorum};
use wire::{describe_topic_partitions, describe_user_scram_credentials, elect_leaders};
use wire::{leave_group, list_offsets, metadata, offset_commit, offset_delete, offset_fetch};
use wire::{offset_for_leader_epoch, update_features};

use crate::fixture::*;

/// Times that an item is repeated.
const REPEATS: usize = 3000;
/// The group and the topic of all requests.
pub const NAME: &str = "n";

/// APIs with an own test: Fetch (`a_fetch_of_more_partitions_than_there_can_be_closes_its_connection`), Produce (each item
/// carries a batch). The lists of the others have nothing in their answers, which `generated_repetition.rs` shows.
const WITHOUT_REPETITION: &[ApiKey] = &[
    ApiKey::Fetch,
    ApiKey::Produce,
    ApiKey::CreateDelegationToken,
    ApiKey::DescribeDelegationToken,
    ApiKey::JoinGroup,
    ApiKey::ListConfigResources,
    ApiKey::ListPartitionReassignments,
    ApiKey::PushTelemetry,
    ApiKey::SyncGroup,
];

fn name() -> String {
    NAME.to_owned()
}

/// Sends requests with one and with many repetitions of an item, and compares the sizes of the answers.
struct Repetition<'a> {
    broker: &'a Broker,
    seen: BTreeSet<i16>,
    too_large: Vec<String>,
}

impl Repetition<'_> {
    async fn check<R: Request>(&mut self, version: i16, request: impl Fn(usize) -> R) {
        // Boxed: the test awaits some fifty of these futures, which would not fit its stack.
        let (_, one) = Box::pin(self.exchange(&request(1), version)).await;
        let (sent, many) = Box::pin(self.exchange(&request(REPEATS), version)).await;
        if many > one + sent {
            self.too_large.push(format!(
                "{} {version}: {sent} bytes with {REPEATS} repetitions get {many}, one item {one}",
                R::API_KEY
            ));
        }
        self.seen.insert(R::API_KEY.code());
    }

    /// Bytes of the request, and of its answer.
    async fn exchange<R: Request>(&self, request: &R, version: i16) -> (usize, usize) {
        let frame = frame_of(request, version, 1);
        let mut conn = self.broker.connect().await;
        conn.write(&frame).await;
        let answer = conn.receive_frame().await.expect("the broker answers");
        (frame.len(), answer.len())
    }
}

/// A topic, a group with committed offsets and their longest metadata.
pub async fn populate(broker: &Broker) {
    let mut conn = broker.connect().await;
    conn.create_topic_of(NAME, 20, &[]).await;
    conn.append(NAME, batch(&["one"])).await;
    let find =
        wire::FindCoordinatorRequest { coordinator_keys: vec![name()], ..Default::default() };
    conn.call(&find, 4).await;
    let partitions = (0..20).map(|partition_index| offset_commit::OffsetCommitRequestPartition {
        partition_index,
        committed_metadata: Some("m".repeat(4000)),
        ..Default::default()
    });
    let topic = offset_commit::OffsetCommitRequestTopic {
        name: name(),
        partitions: partitions.collect(),
        ..Default::default()
    };
    let commit = wire::OffsetCommitRequest {
        group_id: name(),
        generation_id_or_member_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    };
    let began = Instant::now();
    loop {
        let committed = conn.call(&commit, 8).await;
        match committed.topics[0].partitions[0].error() {
            // The coordinator reads its partition of the internal topic first.
            ErrorCode::CoordinatorLoadInProgress => assert!(began.elapsed() < PATIENCE),
            code => break assert_eq!(code, ErrorCode::None),
        }
    }
}

#[tokio::test]
async fn a_repeated_item_gets_at_most_one_answer_and_the_size_of_the_request() {
    let broker = Broker::start(&[]).await;
    populate(&broker).await;
    let mut all = Repetition { broker: &broker, seen: BTreeSet::new(), too_large: Vec::new() };
    Box::pin(groups(&mut all)).await;
    Box::pin(offsets(&mut all)).await;
    Box::pin(topics(&mut all)).await;
    Box::pin(configurations(&mut all)).await;
    Box::pin(administration(&mut all)).await;
    assert!(all.too_large.is_empty(), "{:#?}", all.too_large);
    let has_list = |api: &ApiKey| {
        request_fields(*api).iter().any(|field| matches!(field.kind, FieldKind::Array(_)))
    };
    let known = |api: &ApiKey| {
        all.seen.contains(&api.code()) || WITHOUT_REPETITION.contains(api) || !has_list(api)
    };
    let advertised = broker::advertised().into_iter().map(|advertised| advertised.api);
    let missing: Vec<_> = advertised.filter(|api| !known(api)).collect();
    assert!(missing.is_empty(), "neither tried nor excepted: {missing:?}");
    broker.stop().await;
}

async fn groups(all: &mut Repetition<'_>) {
    all.check(4, |n| wire::FindCoordinatorRequest {
        coordinator_keys: vec![name(); n],
        ..Default::default()
    })
    .await;
    all.check(6, |n| wire::DescribeGroupsRequest { groups: vec![name(); n], ..Default::default() })
        .await;
    all.check(3, |n| wire::DeleteGroupsRequest { groups_names: vec!["absent".to_owned(); n] })
        .await;
    all.check(5, |n| wire::ListGroupsRequest {
        states_filter: vec!["Empty".to_owned(); n],
        ..Default::default()
    })
    .await;
    let member = leave_group::MemberIdentity { member_id: "m".to_owned(), ..Default::default() };
    all.check(5, |n| wire::LeaveGroupRequest {
        group_id: name(),
        members: vec![member.clone(); n],
        ..Default::default()
    })
    .await;
    let partition = offset_delete::OffsetDeleteRequestPartition::default();
    let topic = |n| offset_delete::OffsetDeleteRequestTopic {
        name: name(),
        partitions: vec![partition.clone(); n],
    };
    all.check(0, |n| wire::OffsetDeleteRequest {
        group_id: "g".to_owned(),
        topics: vec![topic(n)],
    })
    .await;
    all.check(0, |n| wire::OffsetDeleteRequest {
        group_id: "g".to_owned(),
        topics: vec![topic(1); n],
    })
    .await;
    all.check(0, |n| wire::DescribeTransactionsRequest { transactional_ids: vec![name(); n] })
        .await;
    all.check(1, |n| wire::ConsumerGroupHeartbeatRequest {
        subscribed_topic_names: Some(vec![name(); n]),
        ..Default::default()
    })
    .await;
    all.check(2, |n| wire::ListTransactionsRequest {
        state_filters: vec!["Odd".to_owned(); n],
        ..Default::default()
    })
    .await;
}

async fn offsets(all: &mut Repetition<'_>) {
    let group = |topics| offset_fetch::OffsetFetchRequestGroup {
        group_id: name(),
        topics,
        ..Default::default()
    };
    let topic = |n| offset_fetch::OffsetFetchRequestTopics {
        name: name(),
        partition_indexes: vec![3; n],
        ..Default::default()
    };
    for (groups, topics, partitions) in
        [(true, false, false), (false, true, false), (false, false, true)]
    {
        let times = |repeated: bool, n: usize| if repeated { n } else { 1 };
        all.check(9, |n| wire::OffsetFetchRequest {
            groups: vec![
                group(Some(vec![topic(times(partitions, n)); times(topics, n)]));
                times(groups, n)
            ],
            ..Default::default()
        })
        .await;
        all.check(5, |n| wire::OffsetFetchRequest {
            group_id: name(),
            topics: Some(vec![
                offset_fetch::OffsetFetchRequestTopic {
                    name: name(),
                    partition_indexes: vec![3; times(partitions, n)],
                };
                times(topics, n)
            ]),
            ..Default::default()
        })
        .await;
    }
    all.check(9, |n| wire::OffsetFetchRequest {
        groups: vec![group(None); n],
        ..Default::default()
    })
    .await;
    let commit = offset_commit::OffsetCommitRequestPartition {
        committed_leader_epoch: -1,
        ..Default::default()
    };
    all.check(8, |n| wire::OffsetCommitRequest {
        group_id: "c".to_owned(),
        generation_id_or_member_epoch: -1,
        topics: vec![offset_commit::OffsetCommitRequestTopic {
            name: name(),
            partitions: vec![commit.clone(); n],
            ..Default::default()
        }],
        ..Default::default()
    })
    .await;
    let list = |n| list_offsets::ListOffsetsTopic {
        name: name(),
        partitions: vec![
            list_offsets::ListOffsetsPartition {
                timestamp: -1,
                current_leader_epoch: -1,
                ..Default::default()
            };
            n
        ],
    };
    let replica_id = -1;
    all.check(7, |n| wire::ListOffsetsRequest {
        replica_id,
        topics: vec![list(n)],
        ..Default::default()
    })
    .await;
    all.check(7, |n| wire::ListOffsetsRequest {
        replica_id,
        topics: vec![list(1); n],
        ..Default::default()
    })
    .await;
    let epoch = |n| offset_for_leader_epoch::OffsetForLeaderTopic {
        topic: name(),
        partitions: vec![offset_for_leader_epoch::OffsetForLeaderPartition::default(); n],
    };
    all.check(4, |n| wire::OffsetForLeaderEpochRequest { replica_id, topics: vec![epoch(n)] })
        .await;
    all.check(4, |n| wire::OffsetForLeaderEpochRequest { replica_id, topics: vec![epoch(1); n] })
        .await;
}

async fn topics(all: &mut Repetition<'_>) {
    let named = || metadata::MetadataRequestTopic { name: Some(name()), ..Default::default() };
    for version in [1, 12] {
        all.check(version, |n| wire::MetadataRequest {
            topics: Some(vec![named(); n]),
            ..Default::default()
        })
        .await;
    }
    let topic = || describe_topic_partitions::TopicRequest { name: name() };
    all.check(0, |n| wire::DescribeTopicPartitionsRequest {
        topics: vec![topic(); n],
        response_partition_limit: 2000,
        cursor: None,
    })
    .await;
    let producers =
        |n| describe_producers::TopicRequest { name: name(), partition_indexes: vec![0; n] };
    all.check(0, |n| wire::DescribeProducersRequest { topics: vec![producers(n)] }).await;
    all.check(0, |n| wire::DescribeProducersRequest { topics: vec![producers(1); n] }).await;
    let dirs =
        |n| describe_log_dirs::DescribableLogDirTopic { topic: name(), partitions: vec![0; n] };
    all.check(4, |n| wire::DescribeLogDirsRequest { topics: Some(vec![dirs(n)]) }).await;
    all.check(4, |n| wire::DescribeLogDirsRequest { topics: Some(vec![dirs(1); n]) }).await;
    let created = wire::create_topics::CreatableTopic {
        name: name(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    all.check(7, |n| wire::CreateTopicsRequest {
        topics: vec![created.clone(); n],
        validate_only: true,
        ..Default::default()
    })
    .await;
    all.check(5, |n| wire::DeleteTopicsRequest {
        topic_names: vec!["absent".to_owned(); n],
        timeout_ms: 1000,
        ..Default::default()
    })
    .await;
    let grown =
        create_partitions::CreatePartitionsTopic { name: name(), count: 1, assignments: None };
    all.check(3, |n| wire::CreatePartitionsRequest {
        topics: vec![grown.clone(); n],
        timeout_ms: 1000,
        validate_only: true,
    })
    .await;
    let deleted = |n| wire::delete_records::DeleteRecordsTopic {
        name: name(),
        partitions: vec![wire::delete_records::DeleteRecordsPartition::default(); n],
    };
    all.check(2, |n| wire::DeleteRecordsRequest { topics: vec![deleted(n)], timeout_ms: 1000 })
        .await;
    all.check(2, |n| wire::DeleteRecordsRequest { topics: vec![deleted(1); n], timeout_ms: 1000 })
        .await;
}

async fn configurations(all: &mut Repetition<'_>) {
    for (resource_type, resource_name) in [(2, NAME), (4, "1"), (4, ""), (8, "1"), (32, NAME)] {
        all.check(4, |n| wire::DescribeConfigsRequest {
            resources: vec![
                describe_configs::DescribeConfigsResource {
                    resource_type,
                    resource_name: resource_name.to_owned(),
                    configuration_keys: None,
                };
                n
            ],
            include_synonyms: true,
            include_documentation: true,
        })
        .await;
    }
    // Other spellings of one broker.
    for resource_type in [4, 8] {
        all.check(4, |n| wire::DescribeConfigsRequest {
            resources: (0..n.min(300))
                .map(|zeros| describe_configs::DescribeConfigsResource {
                    resource_type,
                    resource_name: format!("+{}1", "0".repeat(zeros)),
                    configuration_keys: None,
                })
                .collect(),
            ..Default::default()
        })
        .await;
    }
    let config = alter_configs::AlterableConfig { name: "no.key".to_owned(), value: None };
    all.check(2, |n| wire::AlterConfigsRequest {
        resources: vec![
            alter_configs::AlterConfigsResource {
                resource_type: 2,
                resource_name: name(),
                configs: vec![config.clone()],
            };
            n
        ],
        validate_only: true,
    })
    .await;
    all.check(1, |n| wire::IncrementalAlterConfigsRequest {
        resources: vec![
            incremental_alter_configs::AlterConfigsResource {
                resource_type: 2,
                resource_name: name(),
                configs: Vec::new(),
            };
            n
        ],
        validate_only: true,
    })
    .await;
}

async fn administration(all: &mut Repetition<'_>) {
    let topics = |n| elect_leaders::TopicPartitions { topic: name(), partitions: vec![0; n] };
    all.check(2, |n| wire::ElectLeadersRequest {
        topic_partitions: Some(vec![topics(n)]),
        ..Default::default()
    })
    .await;
    all.check(2, |n| wire::ElectLeadersRequest {
        topic_partitions: Some(vec![topics(1); n]),
        ..Default::default()
    })
    .await;
    let moved = |n| alter_partition_reassignments::ReassignableTopic {
        name: name(),
        partitions: vec![
            alter_partition_reassignments::ReassignablePartition {
                partition_index: 0,
                replicas: Some(vec![7]),
            };
            n
        ],
    };
    all.check(0, |n| wire::AlterPartitionReassignmentsRequest {
        topics: vec![moved(n)],
        ..Default::default()
    })
    .await;
    all.check(3, |n| wire::CreateAclsRequest {
        creations: vec![create_acls::AclCreation::default(); n],
    })
    .await;
    all.check(3, |n| wire::DeleteAclsRequest {
        filters: vec![delete_acls::DeleteAclsFilter::default(); n],
    })
    .await;
    let component = wire::describe_client_quotas::ComponentData {
        entity_type: "user".to_owned(),
        match_type: 2,
        match_: None,
    };
    all.check(1, |n| wire::DescribeClientQuotasRequest {
        components: vec![component.clone(); n],
        strict: false,
    })
    .await;
    all.check(1, |n| wire::AlterClientQuotasRequest {
        entries: vec![wire::alter_client_quotas::RequestEntryData::default(); n],
        validate_only: true,
    })
    .await;
    all.check(0, |n| wire::DescribeUserScramCredentialsRequest {
        users: Some(vec![describe_user_scram_credentials::UserName { name: name() }; n]),
    })
    .await;
    all.check(0, |n| wire::AlterUserScramCredentialsRequest {
        deletions: vec![wire::alter_user_scram_credentials::ScramCredentialDeletion::default(); n],
        upsertions: Vec::new(),
    })
    .await;
    let partitions = |n| vec![describe_quorum::RequestPartitionData::default(); n];
    let quorum =
        |n| describe_quorum::RequestTopicData { topic_name: name(), partitions: partitions(n) };
    all.check(2, |n| wire::DescribeQuorumRequest { topics: vec![quorum(n)] }).await;
    all.check(2, |n| wire::DescribeQuorumRequest { topics: vec![quorum(1); n] }).await;
    let update = update_features::FeatureUpdateKey { feature: name(), ..Default::default() };
    all.check(1, |n| wire::UpdateFeaturesRequest {
        feature_updates: vec![update.clone(); n],
        ..Default::default()
    })
    .await;
}
