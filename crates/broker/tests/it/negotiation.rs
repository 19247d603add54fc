//! What a client meets first: versions, metadata, topics by name and by id, coordinators.

use model::{ErrorCode, Uuid};
use wire::describe_configs::DescribeConfigsResource;
use wire::metadata::MetadataRequestTopic;
use wire::{ApiKey, MetadataRequest, Reader, Request, Writer, api_versions::ApiVersion, frame};

use crate::fixture::*;

fn topic_named(name: &str) -> MetadataRequestTopic {
    MetadataRequestTopic { name: Some(name.to_owned()), ..Default::default() }
}

fn metadata_of(name: &str, allow_auto_topic_creation: bool) -> MetadataRequest {
    MetadataRequest {
        topics: Some(vec![topic_named(name)]),
        allow_auto_topic_creation,
        ..Default::default()
    }
}

#[tokio::test]
async fn api_versions_of_an_unknown_version_is_answered_in_version_0_with_error_35() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let mut request = frame_of(&wire::ApiVersionsRequest::default(), 3, 77);
    request[6..8].copy_from_slice(&99i16.to_be_bytes());
    conn.write(&request).await;
    let bytes = conn.receive_frame().await.expect("an answer, not a hang-up");
    // A header of version 0: the body stands right behind the correlation id.
    assert_eq!(bytes[..6], [0, 0, 0, 77, 0, 35]);
    let (_, answer) = read_answer::<wire::ApiVersionsRequest>(&bytes, 0);
    assert!(answer.api_keys.iter().any(|api| api.api_key == ApiKey::ApiVersions.code()));
    // The connection goes on with a version that is served.
    assert_eq!(conn.call(&wire::ApiVersionsRequest::default(), 0).await.error(), ErrorCode::None);
    broker.stop().await;
}

#[tokio::test]
async fn the_header_of_a_flexible_api_versions_answer_has_no_tags() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let request = wire::ApiVersionsRequest {
        client_software_name: "test".to_owned(),
        client_software_version: "1".to_owned(),
        ..Default::default()
    };
    let correlation = conn.send(&request, 4).await;
    let bytes = conn.receive_frame().await.unwrap();
    assert_eq!(bytes[..4], correlation.to_be_bytes());
    assert_eq!(bytes[4..6], [0, 0], "the error stands right behind the correlation id");
    let (_, answer) = read_answer::<wire::ApiVersionsRequest>(&bytes, 4);
    assert!(!answer.api_keys.is_empty());
    broker.stop().await;
}

#[tokio::test]
async fn what_is_advertised_is_the_table_and_all_else_closes_the_connection() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let answer = conn.call(&wire::ApiVersionsRequest::default(), 0).await;
    let table: Vec<ApiVersion> = broker::advertised()
        .iter()
        .map(|advertised| ApiVersion {
            api_key: advertised.api.code(),
            min_version: advertised.min_version,
            max_version: advertised.max_version,
        })
        .collect();
    assert_eq!(answer.api_keys, table);
    for api in ApiKey::all().iter().filter(|api| !is_served(**api)) {
        let mut conn = broker.connect().await;
        conn.write(&head_alone(*api, api.max_version())).await;
        conn.assert_closed().await;
    }
    for advertised in broker::advertised().iter().filter(|one| one.api != ApiKey::ApiVersions) {
        let mut conn = broker.connect().await;
        conn.write(&head_alone(advertised.api, advertised.max_version + 1)).await;
        conn.assert_closed().await;
    }
    broker.assert_serves().await;
    broker.stop().await;
}

fn head_alone(api: ApiKey, version: i16) -> Vec<u8> {
    let mut writer = Writer::new();
    let start = frame::begin(&mut writer);
    frame::write_request_head(&mut writer, api, version, 1, None).unwrap();
    frame::end(&mut writer, start).unwrap();
    writer.into_bytes()
}

/// Asks in every version that is served, on one connection; what was asked is noted.
async fn ask<R: Request>(conn: &mut Conn, asked: &mut Vec<ApiKey>, request: R) {
    let table = broker::advertised();
    let found = table.iter().find(|advertised| advertised.api == R::API_KEY);
    let served = found.unwrap_or_else(|| panic!("{} is not advertised", R::API_KEY));
    for version in served.min_version.max(R::API_KEY.min_version())..=served.max_version {
        conn.call(&request, version).await;
    }
    asked.push(R::API_KEY);
}

macro_rules! ask_defaults {
    ($conn:expr, $asked:expr, $($request:ident),* $(,)?) => {
        $(ask($conn, $asked, wire::$request::default()).await;)*
    };
}

#[tokio::test]
async fn every_advertised_version_answers_a_minimal_request() {
    let broker = Broker::start(&[]).await;
    let conn = &mut broker.connect().await;
    let asked = &mut Vec::new();
    // Every answer is decoded in the version asked for, and nothing may be left over.
    ask(conn, asked, wire::ProduceRequest { acks: -1, ..Default::default() }).await;
    ask(conn, asked, wire::FetchRequest { replica_id: -1, ..Default::default() }).await;
    ask_defaults!(
        conn,
        asked,
        ListOffsetsRequest,
        MetadataRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        FindCoordinatorRequest,
        JoinGroupRequest,
        HeartbeatRequest,
        LeaveGroupRequest,
        SyncGroupRequest,
        DescribeGroupsRequest,
        ListGroupsRequest,
        SaslHandshakeRequest,
        ApiVersionsRequest,
        CreateTopicsRequest,
        DeleteTopicsRequest,
        DeleteRecordsRequest,
        InitProducerIdRequest,
        OffsetForLeaderEpochRequest,
        DescribeConfigsRequest,
        AlterConfigsRequest,
        DescribeLogDirsRequest,
        CreatePartitionsRequest,
        DeleteGroupsRequest,
        IncrementalAlterConfigsRequest,
        OffsetDeleteRequest,
        DescribeClusterRequest,
        DescribeProducersRequest,
        GetTelemetrySubscriptionsRequest,
        PushTelemetryRequest,
        ListConfigResourcesRequest,
        DescribeTopicPartitionsRequest,
        DescribeAclsRequest,
        CreateAclsRequest,
        DeleteAclsRequest,
        CreateDelegationTokenRequest,
        RenewDelegationTokenRequest,
        ExpireDelegationTokenRequest,
        DescribeDelegationTokenRequest,
        ElectLeadersRequest,
        AlterPartitionReassignmentsRequest,
        ListPartitionReassignmentsRequest,
        DescribeClientQuotasRequest,
        AlterClientQuotasRequest,
        DescribeUserScramCredentialsRequest,
        AlterUserScramCredentialsRequest,
        DescribeQuorumRequest,
        UpdateFeaturesRequest,
        UnregisterBrokerRequest,
        DescribeTransactionsRequest,
        ListTransactionsRequest,
        ConsumerGroupHeartbeatRequest,
    );
    asked.sort_by_key(|api| api.code());
    let advertised: Vec<ApiKey> = broker::advertised().iter().map(|one| one.api).collect();
    assert_eq!(*asked, advertised, "a new API is to be asked here as well");
    broker.stop().await;
}

#[tokio::test]
async fn metadata_creates_a_topic_if_the_client_allows_it() {
    let broker = Broker::start(&[("num.partitions", "2")]).await;
    let mut conn = broker.connect().await;
    let refused = conn.call(&metadata_of("made", false), 12).await;
    assert_eq!(refused.topics[0].error(), ErrorCode::UnknownTopicOrPartition);
    let made = conn.call(&metadata_of("made", true), 12).await;
    assert_eq!(made.topics[0].error(), ErrorCode::None, "the very answer has it");
    assert_eq!(made.topics[0].partitions.len(), 2);
    let again = conn.call(&metadata_of("made", false), 12).await;
    assert_eq!(again.topics[0].topic_id, made.topics[0].topic_id);
    assert_eq!(conn.append("made", batch(&["at once"])).await, 0);
    // Before version 4 a client cannot say, and is taken to allow it.
    let old = conn.call(&metadata_of("made-by-old", true), 1).await;
    assert_eq!(old.topics[0].error(), ErrorCode::None);
    broker.stop().await;
}

#[tokio::test]
async fn metadata_creates_nothing_where_the_broker_forbids_it() {
    let broker = Broker::start(&[("auto.create.topics.enable", "false")]).await;
    let mut conn = broker.connect().await;
    for version in [1, 4, 12] {
        let answer = conn.call(&metadata_of("unwanted", true), version).await;
        assert_eq!(answer.topics[0].error(), ErrorCode::UnknownTopicOrPartition);
    }
    let all = conn.call(&MetadataRequest { topics: None, ..Default::default() }, 12).await;
    assert_eq!(all.topics, []);
    broker.stop().await;
}

#[tokio::test]
async fn metadata_tells_the_very_address_that_the_client_reached() {
    let broker = Broker::start(&[]).await;
    let answer = broker.connect().await.call(&MetadataRequest::default(), 12).await;
    let [one] = &answer.brokers[..] else { panic!("{answer:?}") };
    assert_eq!((one.host.as_str(), one.port), ("127.0.0.1", i32::from(broker.address().port())));
    broker.stop().await;
}

#[tokio::test]
async fn an_unknown_id_is_error_100_and_an_unknown_name_error_3() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let unknown = Uuid::from_random([7; 16]);

    let by_id = MetadataRequestTopic { topic_id: unknown, ..Default::default() };
    let request = MetadataRequest { topics: Some(vec![by_id]), ..Default::default() };
    assert_eq!(conn.call(&request, 12).await.topics[0].error_code, 100);
    assert_eq!(conn.call(&metadata_of("absent", false), 12).await.topics[0].error_code, 3);

    assert_eq!(conn.fetch("absent", 0).await.error_code, 3);
    let mut fetch = fetch_request("", 0);
    fetch.topics[0].topic_id = unknown;
    let answer = conn.call(&fetch, 13).await;
    assert_eq!(answer.responses[0].partitions[0].error_code, 100);
    assert_eq!(answer.responses[0].topic_id, unknown);

    assert_eq!(conn.produce("absent", batch(&["lost"])).await.error_code, 3);
    let mut produce = produce_request("", -1, batch(&["lost"]));
    produce.topic_data[0].topic_id = unknown;
    let answer = conn.call(&produce, 13).await;
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 100);
    broker.stop().await;
}

#[tokio::test]
async fn a_deleted_topics_id_is_not_its_successors() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let first = conn.create_topic("reborn", &[]).await;
    conn.append("reborn", batch(&["old"])).await;
    let delete = wire::DeleteTopicsRequest {
        topic_names: vec!["reborn".to_owned()],
        timeout_ms: 30_000,
        ..Default::default()
    };
    assert_eq!(conn.call(&delete, 5).await.responses[0].error(), ErrorCode::None);
    let second = conn.create_topic("reborn", &[]).await;
    assert_ne!(first, second);
    let mut by_id = fetch_request("", 0);
    by_id.topics[0].topic_id = first;
    let answer = conn.call(&by_id, 13).await;
    assert_eq!(answer.responses[0].partitions[0].error(), ErrorCode::UnknownTopicId);
    assert_eq!(conn.end_offset("reborn").await, 0, "nothing of the old topic is left");
    broker.stop().await;
}

/// Reads a section of tagged fields, which must be empty.
fn no_tags(reader: &mut Reader<'_>) {
    assert_eq!(reader.uvarint().unwrap(), 0, "a tagged field that holds its default");
}

#[tokio::test]
async fn no_tagged_field_at_its_default_is_written() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let id = conn.create_topic("tags", &[]).await;
    conn.append("tags", batch(&["value"])).await;
    for version in 12..=ApiKey::Fetch.max_version() {
        let mut request = fetch_request("tags", 0);
        request.topics[0].topic_id = if version >= 13 { id } else { Uuid::ZERO };
        conn.send(&request, version).await;
        let bytes = conn.receive_frame().await.unwrap();
        walk_fetch_answer(&bytes, version);
    }
    for version in 9..=ApiKey::Metadata.max_version() {
        conn.send(&metadata_of("tags", false), version).await;
        let bytes = conn.receive_frame().await.unwrap();
        assert_eq!(bytes[4], 0, "the header's tags");
        assert_eq!(*bytes.last().unwrap(), 0, "the message's tags");
        // The generated code writes as Kafka's does, which its golden bytes prove.
        let (_, answer) = read_answer::<MetadataRequest>(&bytes, version);
        assert_eq!(wire::encode(&answer, version).unwrap(), bytes[5..]);
    }
    broker.stop().await;
}

/// By the protocol's text, not by this project's decoder.
fn walk_fetch_answer(bytes: &[u8], version: i16) {
    let reader = &mut Reader::new(bytes);
    reader.take(4).unwrap();
    no_tags(reader);
    // Throttle time, error, session.
    reader.take(4 + 2 + 4).unwrap();
    assert_eq!(reader.uvarint().unwrap(), 1 + 1, "one topic");
    if version >= 13 {
        reader.take(16).unwrap();
    } else {
        let length = reader.uvarint().unwrap() as usize - 1;
        reader.take(length).unwrap();
    }
    assert_eq!(reader.uvarint().unwrap(), 1 + 1, "one partition");
    // Index, error, high watermark, last stable offset, log start.
    reader.take(4 + 2 + 8 + 8 + 8).unwrap();
    assert!(reader.uvarint().unwrap() <= 1, "no aborted transactions");
    reader.take(4).unwrap();
    let records = reader.uvarint().unwrap() as usize - 1;
    assert!(records > 61);
    reader.take(records).unwrap();
    no_tags(reader);
    no_tags(reader);
    no_tags(reader);
    reader.finish().unwrap();
}

#[tokio::test]
async fn transactional_ids_are_refused_with_words() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let find = wire::FindCoordinatorRequest {
        key: "transactions".to_owned(),
        key_type: 1,
        coordinator_keys: vec!["transactions".to_owned()],
    };
    // librdkafka asks in versions up to 2, and ends at once after an error of authorization only.
    for version in 1..4 {
        let old = conn.call(&find_old(&find), version).await;
        assert_eq!(old.error(), ErrorCode::TransactionalIdAuthorizationFailed, "{version}");
        let words = old.error_message.unwrap_or_default();
        assert!(words.contains("transactions are not served"), "{words}");
    }
    for version in 4..7 {
        let new = conn.call(&find_new(&find), version).await;
        let found = &new.coordinators[0];
        assert_eq!(found.error(), ErrorCode::UnsupportedVersion, "{version}");
        let words = found.error_message.as_deref().unwrap_or_default();
        assert!(words.contains("transactions are not served"), "{words}");
    }
    let init = wire::InitProducerIdRequest {
        transactional_id: Some("transactions".to_owned()),
        transaction_timeout_ms: 1000,
        ..Default::default()
    };
    assert_eq!(conn.call(&init, 4).await.error(), ErrorCode::UnsupportedVersion);
    // Without one there is an id, and another one the next time.
    let plain = wire::InitProducerIdRequest { transactional_id: None, ..init };
    let (first, second) = (conn.call(&plain, 4).await, conn.call(&plain, 4).await);
    assert_eq!((first.error(), second.error()), (ErrorCode::None, ErrorCode::None));
    assert_ne!(first.producer_id, second.producer_id);
    broker.stop().await;
}

fn find_old(find: &wire::FindCoordinatorRequest) -> wire::FindCoordinatorRequest {
    wire::FindCoordinatorRequest { coordinator_keys: Vec::new(), ..find.clone() }
}

fn find_new(find: &wire::FindCoordinatorRequest) -> wire::FindCoordinatorRequest {
    wire::FindCoordinatorRequest { key: String::new(), ..find.clone() }
}

#[tokio::test]
async fn a_second_broker_on_the_same_directory_is_refused_by_name() {
    let broker = Broker::start(&[]).await;
    let Err(error) = broker.start_second().await else { panic!("two brokers write one log") };
    let words = error.to_string();
    assert!(words.contains("process") || words.contains("in use"), "{words}");
    broker.assert_serves().await;
    broker.stop().await;
}

#[tokio::test]
async fn an_address_in_use_is_said_so_and_leaves_the_directory_free() {
    let broker = Broker::start(&[]).await;
    let dir = tempfile::tempdir().unwrap();
    let taken = format!("PLAINTEXT://{}", broker.address());
    let settings = [("listeners".to_owned(), taken)];
    let Err(error) = run(dir.path(), &settings).await else { panic!("two listen on one port") };
    assert!(error.to_string().contains(&broker.address().to_string()), "{error}");
    let other = run(dir.path(), &[]).await.expect("the directory is free");
    other.stop().await;
    broker.stop().await;
}

#[tokio::test]
async fn describe_configs_lists_defaults_as_well() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("described", &[("retention.ms", "12345")]).await;
    const TOPIC: i8 = 2;
    const DYNAMIC_TOPIC: i8 = 1;
    const DEFAULT: i8 = 5;
    let request = wire::DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: TOPIC,
            resource_name: "described".to_owned(),
            configuration_keys: None,
        }],
        ..Default::default()
    };
    let answer = conn.call(&request, 4).await;
    assert_eq!(answer.results[0].error(), ErrorCode::None);
    let source = |name: &str| {
        let config = answer.results[0].configs.iter().find(|config| config.name == name);
        let config = config.unwrap_or_else(|| panic!("{name} is listed"));
        (config.value.clone().unwrap(), config.config_source)
    };
    assert_eq!(source("retention.ms"), ("12345".to_owned(), DYNAMIC_TOPIC));
    assert_eq!(source("cleanup.policy"), ("delete".to_owned(), DEFAULT));
    assert_eq!(source("max.message.bytes"), ("1048588".to_owned(), DEFAULT));
    broker.stop().await;
}
