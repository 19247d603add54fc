//! Tests of forwarded messages: there and back, the bytes as other releases know them, and what no peer says.

use super::ForwardedError;
use crate::decide::*;
use crate::record::{BrokerSoftware, ConfigResource, Endpoint, FeatureRange};
use model::level::newest_version;
use model::{
    BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionIndex, ProducerId, Uuid,
};
use std::collections::BTreeSet;

const ID: Uuid = Uuid(*b"0123456789abcdef");
const ID_HEX: &str = "30313233343536373839616263646566";
const REF: BrokerRef = BrokerRef { broker: BrokerId(1), epoch: BrokerEpoch(2) };
const REF_HEX: &str = "000000010000000000000002";

/// The number of a request. A variant that is new has to be added here, to the table and to [`requests`].
fn request_number(request: &Request) -> u8 {
    match request {
        Request::CreateCluster(_) => 1,
        Request::CreateTopics(_) => 2,
        Request::DeleteTopics(_) => 3,
        Request::CreatePartitions(_) => 4,
        Request::AlterConfigs(_) => 5,
        Request::IncrementalAlterConfigs(_) => 6,
        Request::AllocateProducerIds(_) => 7,
        Request::RegisterBroker(_) => 8,
        Request::FenceBroker(_) => 9,
        Request::UnfenceBroker(_) => 10,
        Request::BeginShutdown(_) => 11,
        Request::Sweep => 12,
        Request::ReportEmptyReplicas(_) => 13,
        Request::UnregisterBroker(_) => 14,
        Request::AlterPartition(_) => 15,
        Request::ElectLeaders(_) => 16,
        Request::UpdateFeatures(_) => 17,
        Request::RegisterBroker2(_) => 18,
        Request::GiveUpReplicas(_) => 19,
        Request::ReportEmptyReplicas2(_) => 20,
        Request::RegisterBroker3(_) => 21,
        Request::AlterPartition2(_) => 22,
        Request::RelieveReplicas(_) => 23,
        Request::ElectByEnds(_) => 24,
        Request::GiveUpMissing(_) => 25,
        Request::RegisterBroker4(_) => 26,
        Request::RaiseMarks(_) => 27,
        Request::ElectLeaders2(_) => 28,
        Request::ReportLeaderEpochs(_) => 29,
    }
}

/// The number of a response. A variant that is new has to be added here, to the table and to [`responses`].
fn response_number(response: &Response) -> u8 {
    match response {
        Response::CreateCluster(_) => 0x81,
        Response::CreateTopics(_) => 0x82,
        Response::DeleteTopics(_) => 0x83,
        Response::CreatePartitions(_) => 0x84,
        Response::AlterConfigs(_) => 0x85,
        Response::AllocateProducerIds(_) => 0x86,
        Response::RegisterBroker(_) => 0x87,
        Response::Broker(_) => 0x88,
        Response::Sweep(_) => 0x89,
        Response::EmptyReplicas(_) => 0x8a,
        Response::AlterPartition(_) => 0x8b,
        Response::ElectLeaders(_) => 0x8c,
        Response::UpdateFeatures(_) => 0x8d,
    }
}

fn resources() -> [ConfigResource; 5] {
    [
        ConfigResource::Topic("t".into()),
        ConfigResource::Broker(BrokerId(1)),
        ConfigResource::ClusterDefault,
        ConfigResource::Group("g".into()),
        ConfigResource::ClientMetrics("m".into()),
    ]
}

fn brokers(ids: &[i32]) -> Vec<BrokerId> {
    ids.iter().copied().map(BrokerId).collect()
}

/// Every request with all that it can have.
fn full_requests() -> Vec<Request> {
    let entries = vec![("k".into(), Some("v".into())), ("l".into(), None)];
    let changes = || {
        let operations = [
            (ConfigOperation::Set, Some("v".into())),
            (ConfigOperation::Delete, None),
            (ConfigOperation::Append, Some("w".into())),
            (ConfigOperation::Subtract, Some(String::new())),
        ];
        operations.map(|(operation, value)| ConfigChange { key: "k".into(), operation, value })
    };
    let topic = NewTopic {
        name: "Zürich".into(),
        id: ID,
        partitions: -1,
        replication_factor: -1,
        assignments: vec![(PartitionIndex(0), brokers(&[1, 2])), (PartitionIndex(1), brokers(&[]))],
        configs: entries.clone(),
    };
    let assignments = Some(vec![brokers(&[1, 2]), brokers(&[])]);
    let isr = NewIsr {
        topic_id: ID,
        partition: PartitionIndex(3),
        leader_epoch: LeaderEpoch(4),
        partition_epoch: 5,
        isr: vec![(BrokerId(1), BrokerEpoch(2)), (BrokerId(6), BrokerEpoch(7))],
        recovering: false,
        durable: true,
    };
    let features = [FeatureChange::Upgrade, FeatureChange::Downgrade, FeatureChange::Unknown(-4)]
        .map(|change| FeatureUpdate { name: "f".into(), level: -2, change });
    vec![
        Request::CreateCluster(CreateCluster {
            cluster_id: "c".into(),
            features: vec![("f".into(), 1), ("g".into(), -1)],
        }),
        Request::CreateTopics(CreateTopics {
            topics: vec![topic, NewTopic::default()],
            validate_only: true,
        }),
        Request::DeleteTopics(vec![TopicRef::Name("t".into()), TopicRef::Id(ID)]),
        Request::CreatePartitions(CreatePartitions {
            topics: vec![NewPartitions { topic: "t".into(), count: 3, assignments }],
            validate_only: true,
        }),
        Request::AlterConfigs(AlterConfigs {
            resources: resources().map(|resource| (resource, entries.clone())).into(),
            validate_only: true,
        }),
        Request::IncrementalAlterConfigs(IncrementalAlterConfigs {
            resources: resources().map(|resource| (resource, changes().into())).into(),
            validate_only: true,
        }),
        Request::AllocateProducerIds(REF),
        Request::RegisterBroker(registration()),
        Request::FenceBroker(REF),
        Request::UnfenceBroker(REF),
        Request::BeginShutdown(REF),
        Request::Sweep,
        Request::ReportEmptyReplicas(EmptyReplicas {
            broker: REF,
            partitions: vec![(ID, PartitionIndex(3)), (Uuid::ZERO, PartitionIndex(i32::MAX))],
        }),
        Request::UnregisterBroker(BrokerId(1)),
        Request::AlterPartition(AlterPartition { leader: REF, partitions: vec![isr] }),
        Request::ElectLeaders(ElectLeaders {
            kind: ElectionKind::Unclean,
            partitions: Some(vec![("t".into(), PartitionIndex(3))]),
        }),
        Request::UpdateFeatures(UpdateFeatures { updates: features.into(), validate_only: true }),
        Request::RegisterBroker2(RegisterBroker2 {
            register: registration(),
            directories: KnownDirectories {
                directories: vec![
                    KnownDirectory { stopped: Some(BrokerEpoch(5)), had_by: vec![ID] },
                    KnownDirectory::default(),
                ],
                instead_of: Some(BrokerEpoch(6)),
            },
        }),
        Request::GiveUpReplicas(GiveUpReplicas {
            broker: REF,
            partitions: vec![(ID, PartitionIndex(3))],
            offline: true,
        }),
        Request::ReportEmptyReplicas2(EmptyReplicas2 {
            broker: REF,
            partitions: vec![empty(PartitionIndex(3), Some(9)), empty(PartitionIndex(4), None)],
        }),
        Request::RegisterBroker3(RegisterBroker3 {
            request: RegisterBroker2 {
                register: registration(),
                directories: KnownDirectories::default(),
            },
            software: BrokerSoftware {
                release: "0.1.0".into(),
                levels: vec![FeatureRange { name: "f".into(), min: 1, max: 3 }],
            },
        }),
        Request::AlterPartition2(AlterPartition2 {
            alter: AlterPartition { leader: REF, partitions: Vec::new() },
            unfit: vec![BrokerId(4)],
        }),
        Request::RelieveReplicas(RelieveReplicas {
            broker: REF,
            partitions: Some(vec![(ID, PartitionIndex(3))]),
            healthy: vec![BrokerId(2), BrokerId(3)],
            hung_ms: 600,
        }),
        Request::ElectByEnds(ElectByEnds {
            partitions: vec![ReplicaEnds {
                topic_id: ID,
                partition: PartitionIndex(3),
                partition_epoch: 9,
                ends: vec![ReplicaEnd { broker: REF, last_epoch: LeaderEpoch(4), end: Offset(7) }],
            }],
        }),
        Request::GiveUpMissing(GiveUpMissing {
            broker: REF,
            partitions: vec![(ID, PartitionIndex(3))],
            heard: vec![BrokerId(2)],
        }),
        Request::RegisterBroker4(RegisterBroker4 {
            request: RegisterBroker3 {
                request: RegisterBroker2 {
                    register: registration(),
                    directories: KnownDirectories::default(),
                },
                software: BrokerSoftware { release: "0.1.0".into(), levels: Vec::new() },
            },
            marks: vec![5],
        }),
        Request::RaiseMarks(RaiseMarks {
            brokers: vec![BrokerMarks { broker: REF, marks: vec![(ID, 5)] }],
        }),
        Request::ElectLeaders2(ElectLeaders2 {
            request: ElectLeaders {
                kind: ElectionKind::Unclean,
                partitions: Some(vec![("t".into(), PartitionIndex(3))]),
            },
            ends: vec![ReplicaEnds {
                topic_id: ID,
                partition: PartitionIndex(3),
                partition_epoch: 9,
                ends: vec![ReplicaEnd { broker: REF, last_epoch: LeaderEpoch(4), end: Offset(7) }],
            }],
        }),
        Request::ReportLeaderEpochs(ReportLeaderEpochs {
            broker: REF,
            partitions: vec![FoundEpoch {
                topic_id: ID,
                partition: PartitionIndex(3),
                leader_epoch: LeaderEpoch(9),
            }],
        }),
    ]
}

fn empty(partition: PartitionIndex, partition_epoch: Option<i32>) -> EmptyReplica {
    EmptyReplica { topic_id: ID, partition, partition_epoch }
}

fn registration() -> RegisterBroker {
    let endpoint = Endpoint {
        listener: "L".into(),
        host: "h".into(),
        port: 9092,
        security_protocol: "SSL".into(),
    };
    RegisterBroker {
        broker: BrokerId(1),
        incarnation: ID,
        cluster_id: "c".into(),
        endpoints: vec![endpoint],
        rack: Some("r".into()),
        log_dirs: vec![ID],
        clean: true,
        fenced: false,
        earlier_incarnation_alive: true,
    }
}

fn nothing_registered() -> RegisterBroker {
    RegisterBroker {
        broker: BrokerId::NONE,
        incarnation: Uuid::ZERO,
        cluster_id: String::new(),
        endpoints: Vec::new(),
        rack: None,
        log_dirs: Vec::new(),
        clean: false,
        fenced: true,
        earlier_incarnation_alive: false,
    }
}

/// Every request that can have nothing, with nothing.
fn empty_requests() -> Vec<Request> {
    let isr = NewIsr {
        topic_id: Uuid::ZERO,
        partition: PartitionIndex(-1),
        leader_epoch: LeaderEpoch::NONE,
        partition_epoch: i32::MIN,
        isr: Vec::new(),
        recovering: true,
        durable: false,
    };
    vec![
        Request::CreateCluster(CreateCluster { cluster_id: String::new(), features: Vec::new() }),
        Request::CreateTopics(CreateTopics::default()),
        Request::DeleteTopics(Vec::new()),
        Request::CreatePartitions(CreatePartitions::default()),
        Request::CreatePartitions(CreatePartitions {
            topics: vec![NewPartitions::default()],
            validate_only: false,
        }),
        Request::AlterConfigs(AlterConfigs::default()),
        Request::IncrementalAlterConfigs(IncrementalAlterConfigs::default()),
        Request::RegisterBroker(nothing_registered()),
        Request::RegisterBroker2(RegisterBroker2 {
            register: nothing_registered(),
            directories: KnownDirectories::default(),
        }),
        Request::RegisterBroker3(RegisterBroker3 {
            request: RegisterBroker2 {
                register: nothing_registered(),
                directories: KnownDirectories::default(),
            },
            software: BrokerSoftware { release: String::new(), levels: Vec::new() },
        }),
        Request::RegisterBroker4(RegisterBroker4 {
            request: RegisterBroker3 {
                request: RegisterBroker2 {
                    register: nothing_registered(),
                    directories: KnownDirectories::default(),
                },
                software: BrokerSoftware { release: String::new(), levels: Vec::new() },
            },
            marks: Vec::new(),
        }),
        Request::RaiseMarks(RaiseMarks { brokers: Vec::new() }),
        Request::ElectLeaders2(ElectLeaders2 {
            request: ElectLeaders { kind: ElectionKind::Unclean, partitions: None },
            ends: Vec::new(),
        }),
        Request::GiveUpReplicas(GiveUpReplicas {
            broker: REF,
            partitions: Vec::new(),
            offline: false,
        }),
        Request::ReportEmptyReplicas(EmptyReplicas { broker: REF, partitions: Vec::new() }),
        Request::ReportEmptyReplicas2(EmptyReplicas2 { broker: REF, partitions: Vec::new() }),
        Request::AlterPartition(AlterPartition { leader: REF, partitions: Vec::new() }),
        Request::AlterPartition(AlterPartition { leader: REF, partitions: vec![isr] }),
        Request::ElectLeaders(ElectLeaders { kind: ElectionKind::Preferred, partitions: None }),
        Request::ElectLeaders(ElectLeaders {
            kind: ElectionKind::Preferred,
            partitions: Some(Vec::new()),
        }),
        Request::UpdateFeatures(UpdateFeatures::default()),
    ]
}

fn requests() -> Vec<Request> {
    [full_requests(), empty_requests()].concat()
}

fn refused<T>() -> Answer<T> {
    Err(Refusal::new(ErrorCode::InvalidConfig, "why"))
}

/// Every response with all that it can have, also refusals.
fn full_responses() -> Vec<Response> {
    let created = CreatedTopic {
        id: ID,
        partitions: 3,
        replication_factor: 2,
        configs: vec![("k".into(), "v".into())],
    };
    let altered = AlteredPartition {
        leader: BrokerId(1),
        leader_epoch: LeaderEpoch(4),
        isr: brokers(&[1, 2]),
        partition_epoch: 5,
        recovering: true,
        durable: false,
    };
    let at = PartitionIndex(3);
    vec![
        Response::CreateCluster(Ok(())),
        Response::CreateTopics(vec![("t".into(), Ok(created)), ("u".into(), refused())]),
        Response::DeleteTopics(vec![
            (TopicRef::Id(ID), Ok(DeletedTopic { name: "t".into(), id: ID })),
            (TopicRef::Name("u".into()), refused()),
        ]),
        Response::CreatePartitions(vec![("t".into(), Ok(())), ("u".into(), refused())]),
        Response::AlterConfigs(
            resources()
                .into_iter()
                .flat_map(|of| [(of.clone(), Ok(())), (of, refused())])
                .collect(),
        ),
        Response::AllocateProducerIds(Ok(ProducerIdBlock { first: ProducerId(9), count: 1000 })),
        Response::RegisterBroker(Ok(BrokerEpoch(7))),
        Response::Broker(Ok(())),
        Response::Sweep(Swept { changed: usize::MAX, more: true }),
        Response::EmptyReplicas(Ok(vec![(ID, at, Ok(())), (ID, at, refused())])),
        Response::AlterPartition(Ok(vec![(ID, at, Ok(altered)), (ID, at, refused())])),
        Response::ElectLeaders(vec![("t".into(), at, Ok(())), ("u".into(), at, refused())]),
        Response::UpdateFeatures(Ok(())),
    ]
}

/// Every response that can have nothing, with nothing, and every one that can be refused as a whole, refused.
fn empty_responses() -> Vec<Response> {
    let created =
        CreatedTopic { id: Uuid::ZERO, partitions: 0, replication_factor: 0, configs: Vec::new() };
    let altered = AlteredPartition {
        leader: BrokerId::NONE,
        leader_epoch: LeaderEpoch::NONE,
        isr: Vec::new(),
        partition_epoch: 0,
        recovering: false,
        durable: true,
    };
    let wordless = Refusal::new(ErrorCode::UnknownServerError, "");
    vec![
        Response::CreateCluster(Err(wordless)),
        Response::CreateTopics(Vec::new()),
        Response::CreateTopics(vec![(String::new(), Ok(created))]),
        Response::DeleteTopics(Vec::new()),
        Response::CreatePartitions(Vec::new()),
        Response::AlterConfigs(Vec::new()),
        Response::AllocateProducerIds(refused()),
        Response::RegisterBroker(refused()),
        Response::Broker(refused()),
        Response::Sweep(Swept::default()),
        Response::EmptyReplicas(Ok(Vec::new())),
        Response::EmptyReplicas(refused()),
        Response::AlterPartition(Ok(Vec::new())),
        Response::AlterPartition(Ok(vec![(Uuid::ZERO, PartitionIndex(0), Ok(altered))])),
        Response::AlterPartition(refused()),
        Response::ElectLeaders(Vec::new()),
        Response::UpdateFeatures(refused()),
    ]
}

fn responses() -> Vec<Response> {
    [full_responses(), empty_responses()].concat()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads bytes as both; whatever can be read is written as it was read.
fn read_as_both(bytes: &[u8]) -> bool {
    let request = Request::from_bytes(bytes);
    let response = Response::from_bytes(bytes);
    assert!(request.is_err() || response.is_err(), "both: {}", hex(bytes));
    let request = request.map(|request| assert_eq!(request.to_bytes(), bytes, "{request:?}"));
    let response = response.map(|response| assert_eq!(response.to_bytes(), bytes, "{response:?}"));
    request.is_ok() || response.is_ok()
}

fn messages() -> impl Iterator<Item = Vec<u8>> {
    let requests = requests().into_iter().map(|request| request.to_bytes());
    requests.chain(responses().into_iter().map(|response| response.to_bytes()))
}

#[test]
fn messages_and_back() {
    for request in requests() {
        let bytes = request.to_bytes();
        assert_eq!(bytes[..2], [1, request_number(&request)], "{request:?}");
        assert_eq!(Request::from_bytes(&bytes).as_ref(), Ok(&request));
        assert!(Response::from_bytes(&bytes).is_err(), "a request is not a response: {request:?}");
    }
    for response in responses() {
        let bytes = response.to_bytes();
        assert_eq!(bytes[..2], [1, response_number(&response)], "{response:?}");
        assert_eq!(Response::from_bytes(&bytes).as_ref(), Ok(&response));
        assert!(Request::from_bytes(&bytes).is_err(), "a response is not a request: {response:?}");
    }
}

#[test]
fn every_variant_is_among_the_samples() {
    let requests: BTreeSet<u8> = full_requests().iter().map(request_number).collect();
    assert!(requests.into_iter().eq(1..=29));
    let responses: BTreeSet<u8> = full_responses().iter().map(response_number).collect();
    assert!(responses.into_iter().eq(0x81..=0x8d));
    assert_eq!(Request::from_bytes(&[1, 30]), Err(invalid("kind of request", 30)), "a new one");
    assert_eq!(
        Response::from_bytes(&[1, 0x8e]),
        Err(invalid("kind of response", 0x8e)),
        "a new one"
    );
}

/// These bytes are what other releases send.
#[test]
fn the_bytes_of_requests_stay_what_they_are() {
    let registration = format!(
        "00000001{ID_HEX}0000000163 00000001000000014c00000001682384 0000000353534c\
         010000000172 00000001{ID_HEX}010001"
    );
    let golden = [
        "01010000000163000000020000000166000100000001 67ffff".into(),
        format!(
            "010200000002 000000075ac3bc72696368{ID_HEX}ffffffffffff\
             0000000200000000000000020000000100000002 0000000100000000\
             00000002000000016b010000000176 000000016c00\
             00000000{}00000000000000000000 00000000 01",
            "00".repeat(16)
        ),
        format!("0103000000020100000001 7402{ID_HEX}"),
        "0104000000010000000174000000030100000002 000000020000000100000002 00000000 01".into(),
        {
            let entries = "00000002000000016b010000000176000000016c00";
            format!(
                "010500000005010000000174{entries}0200000001{entries}03{entries}\
                 040000000167{entries}05000000016d{entries}01"
            )
        },
        {
            let changes = "00000004000000016b00010000000176 000000016b0100 \
                           000000016b02010000000177 000000016b030100000000";
            format!(
                "010600000005010000000174{changes}0200000001{changes}03{changes}\
                 040000000167{changes}05000000016d{changes}01"
            )
        },
        format!("0107{REF_HEX}"),
        format!("0108{registration}"),
        format!("0109{REF_HEX}"),
        format!("010a{REF_HEX}"),
        format!("010b{REF_HEX}"),
        "010c".into(),
        format!("010d{REF_HEX}00000002{ID_HEX}00000003{}7fffffff", "00".repeat(16)),
        "010e00000001".into(),
        format!(
            "010f{REF_HEX}00000001{ID_HEX}000000030000000400000005\
             00000002{REF_HEX}000000060000000000000007 0001"
        ),
        "01100101000000010000000174 00000003".into(),
        "0111000000030000000166fffe010000000166fffe020000000166fffe03fc01".into(),
        format!(
            "0112{registration}00000002 01000000000000000500000001{ID_HEX} 0000000000 010000000000000006"
        ),
        format!("0113{REF_HEX}00000001{ID_HEX}00000003 01"),
        format!("0114{REF_HEX}00000002{ID_HEX}00000003 0100000009{ID_HEX}00000004 00"),
        format!("0115{registration} 00000000 00 00000005302e312e30 00000001 0000000166 0001 0003"),
        format!("0116{REF_HEX}00000000 0000000100000004"),
        format!(
            "0117{REF_HEX}0100000001{ID_HEX}00000003 000000020000000200000003 0000000000000258"
        ),
        format!(
            "0118 00000001{ID_HEX}00000003 00000009 00000001{REF_HEX}00000004 0000000000000007"
        ),
        format!("0119{REF_HEX}00000001{ID_HEX}00000003 0000000100000002"),
        format!(
            "011a{registration} 00000000 00 00000005302e312e30 00000000 \
             00000001 0000000000000005"
        ),
        format!("011b 00000001{REF_HEX} 00000001{ID_HEX} 0000000000000005"),
        format!(
            "011c 01 01 00000001 00000001 74 00000003 \
             00000001{ID_HEX}00000003 00000009 00000001{REF_HEX}00000004 0000000000000007"
        ),
        format!("011d{REF_HEX} 00000001{ID_HEX}00000003 00000009"),
    ];
    compare(full_requests().iter().map(Request::to_bytes), &golden);
    let partitions =
        Request::ElectLeaders(ElectLeaders { kind: ElectionKind::Preferred, partitions: None });
    assert_eq!(hex(&partitions.to_bytes()), "01100000");
}

/// These bytes are what other releases send.
#[test]
fn the_bytes_of_responses_stay_what_they_are() {
    // Refused: 40, "why".
    let no = "01002800000003776879";
    let golden = [
        "018100".into(),
        format!(
            "0182000000020000000174 00{ID_HEX}000000030002 00000001000000016b0000000176\
             0000000175{no}"
        ),
        format!("01830000000202{ID_HEX}000000000174{ID_HEX}010000000175{no}"),
        format!("018400000002000000017400 0000000175{no}"),
        format!(
            "01850000000a 01000000017400 010000000174{no} 020000000100 0200000001{no} 0300 03{no}\
             04000000016700 040000000167{no} 05000000016d00 05000000016d{no}"
        ),
        "018600 0000000000000009 000003e8".into(),
        "018700 0000000000000007".into(),
        "018800".into(),
        "0189 ffffffffffffffff 01".into(),
        format!("018a0000000002{ID_HEX}0000000300{ID_HEX}00000003{no}"),
        format!(
            "018b0000000002{ID_HEX}00000003 00 0000000100000004 000000020000000100000002 000000050100\
             {ID_HEX}00000003{no}"
        ),
        format!("018c00000002 00000001740000000300 000000017500000003{no}"),
        "018d00".into(),
    ];
    compare(full_responses().iter().map(Response::to_bytes), &golden);
    let refused = Response::CreateCluster(Err(Refusal::new(ErrorCode::UnknownServerError, "")));
    assert_eq!(hex(&refused.to_bytes()), "018101ffff00000000");
}

#[test]
fn an_earlier_release_is_asked_in_the_form_that_it_knows() {
    let words = |kind: u8| format!("a forwarded message with the invalid kind of request {kind}");
    let mut asked_again = Vec::new();
    for request in full_requests() {
        let kind = request_number(&request);
        assert_eq!(request.for_earlier_release("it stops"), None, "{request:?}");
        assert_eq!(request.for_earlier_release(&words(kind + 1)), None, "{request:?}");
        let older = request.for_earlier_release(&words(kind));
        asked_again.extend(older.map(|older| (kind, request_number(&older))));
    }
    assert_eq!(asked_again, [(18, 8), (19, 13), (20, 13), (21, 18), (25, 19), (26, 21), (28, 16)]);
}

#[test]
fn a_request_above_the_level_is_sent_in_an_older_form_or_not_at_all() {
    let level_of = |request: &Request| i16::from(request_number(request));
    for request in full_requests() {
        let (number, mut forms) = (request_number(&request), BTreeSet::new());
        for level in 0..=29 {
            let form = request.form_at(level, level_of);
            assert!(form.as_ref().is_none_or(|form| level_of(form) <= level), "{form:?}");
            assert_eq!(form.as_ref() == Some(&request), level >= number.into(), "{form:?}");
            forms.extend(form.as_ref().map(request_number));
        }
        let expected: &[u8] = match number {
            18 => &[8, 18],
            19 => &[13, 19],
            20 => &[13, 20],
            21 => &[8, 18, 21],
            25 => &[13, 19, 25],
            26 => &[8, 18, 21, 26],
            28 => &[16, 28],
            other => &[other],
        };
        assert!(forms.iter().eq(expected), "{request:?}: {forms:?}");
    }
}

/// A broker sends nothing that this level does not have: see `Controller::ask` of `broker`.
#[test]
fn every_request_of_release_0_1_0_is_sent_at_every_level() {
    for request in requests() {
        let is_of_0_1_0 = request_number(&request) <= 21;
        assert_eq!(request.level() == 0, is_of_0_1_0, "{request:?}");
        assert!(request.level() <= newest_version(), "{request:?}");
        let sent = request.at_level(request.level());
        assert_eq!(sent.as_ref(), Some(&request));
    }
}

/// Spaces in what is expected are for the reader.
fn compare(messages: impl ExactSizeIterator<Item = Vec<u8>>, golden: &[String]) {
    assert_eq!(messages.len(), golden.len());
    for (message, golden) in messages.zip(golden) {
        assert_eq!(hex(&message), golden.replace(' ', ""));
    }
}

#[test]
fn every_part_of_a_message_from_its_front_is_refused() {
    for bytes in messages() {
        for cut in 0..bytes.len() {
            assert!(!read_as_both(&bytes[..cut]), "cut at {cut}: {}", hex(&bytes));
        }
        let behind = [&bytes[..], &[0]].concat();
        let error = match bytes[1] < 0x80 {
            true => Request::from_bytes(&behind).err(),
            false => Response::from_bytes(&behind).err(),
        };
        assert_eq!(error, Some(ForwardedError::Behind(1)));
    }
}

#[test]
fn every_changed_byte_is_an_error_or_another_message() {
    for mut bytes in messages() {
        for at in 0..bytes.len() {
            let was = bytes[at];
            for change in 1..=255 {
                bytes[at] = was ^ change;
                read_as_both(&bytes);
            }
            bytes[at] = was;
        }
    }
}

#[test]
fn every_error_code_is_sent_and_no_other() {
    let message = |code: i16| {
        let [high, low] = code.to_be_bytes();
        Response::from_bytes(&[1, 0x88, 1, high, low, 0, 0, 0, 0])
    };
    for code in i16::MIN..=i16::MAX {
        let expected = match ErrorCode::from_code(code) {
            Some(ErrorCode::None) => Err(invalid("error code of a refusal", 0)),
            Some(error) => Ok(Response::Broker(Err(Refusal::new(error, "")))),
            None => Err(invalid("error code", code.into())),
        };
        assert_eq!(message(code), expected);
    }
}

fn invalid(what: &'static str, number: i128) -> ForwardedError {
    ForwardedError::Value { what, number }
}

#[test]
fn what_no_broker_says_is_an_error_in_words() {
    let words = |bytes: &[u8]| match bytes.get(1).is_some_and(|kind| *kind >= 0x80) {
        true => Response::from_bytes(bytes).expect_err("not a response").to_string(),
        false => Request::from_bytes(bytes).expect_err("not a request").to_string(),
    };
    let cases: [(&[u8], &str); 10] = [
        (&[], "that is cut off: 1 bytes expected, 0 left"),
        (&[2, 12], "of version 2, and this release reads version 1"),
        (&[1, 99], "with the invalid kind of request 99"),
        (&[1, 12, 0, 0], "with 2 bytes behind the last field"),
        (&[1, 14, 0, 0, 0], "that is cut off: 4 bytes expected, 3 left"),
        (&[1, 16, 2], "with the invalid kind of election 2"),
        (&[1, 16, 0, 2], "with the invalid flag 2"),
        (&[1, 3, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0xff], "with a text that is not UTF-8"),
        (&[1, 0x88, 2], "with the invalid kind of answer 2"),
        (&[1, 0x88, 1, 0x7f, 0xff], "with the invalid error code 32767"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(words(bytes), format!("a forwarded message {expected}"));
    }
}

/// A list and a text are refused by their length alone, before memory is asked for.
#[test]
fn what_is_announced_has_to_be_there() {
    let announce = |kind: u8, count: u32, left: usize| {
        let mut bytes = vec![1, kind];
        bytes.extend_from_slice(&count.to_be_bytes());
        bytes.resize(bytes.len() + left, 0);
        bytes
    };
    let topics = |count, left| Request::from_bytes(&announce(3, count, left));
    let short = |needed, left| Err(ForwardedError::Short { needed, left });
    // A topic has five bytes at least: which kind, and a name's length.
    assert_eq!(topics(u32::MAX, 1 << 20), short(5 * u64::from(u32::MAX), 1 << 20));
    assert_eq!(topics(3, 14), short(15, 14));
    assert_eq!(topics(3, 15), Err(invalid("kind of topic reference", 0)), "enough for three");
    let cluster = Request::from_bytes(&announce(1, u32::MAX, 1 << 20));
    assert_eq!(cluster, short(u32::MAX.into(), 1 << 20));
    // The element of two bytes: the cluster's defaults, and that they were changed.
    let configs = |count, left| Response::from_bytes(&announce(0x85, count, left));
    assert_eq!(
        configs(1 << 19, (1 << 20) - 1).err(),
        Some(ForwardedError::Short { needed: 1 << 20, left: (1 << 20) - 1 })
    );
}
