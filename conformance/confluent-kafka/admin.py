"""confluent-kafka's AdminClient."""

import functools

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from harness import BOOTSTRAP, BROKERS, REPLICAS, Record, check, equal, eventually, name, scenario, wait_until
from records import make_topic

LIMIT = 40


@functools.cache
def admin():
    """One client for the whole scenario: its answers die with it."""
    return AdminClient({"bootstrap.servers": BOOTSTRAP})


def only(futures):
    """The result of the one future in an answer."""
    [future] = futures.values()
    return future.result(LIMIT)


def error_of(futures):
    try:
        only(futures)
    except KafkaException as error:
        return error.args[0].name()
    return None


@scenario("admin-topics")
def topics(client):
    topic = name("managed")
    only(admin().create_topics([NewTopic(topic, 2, REPLICAS, config={"retention.ms": "60000"})]))
    equal(error_of(admin().create_topics([NewTopic(topic, 2, REPLICAS)])), "TOPIC_ALREADY_EXISTS", "a second creation")
    refused = admin().create_topics([NewTopic(name("wide"), 1, 9)])
    equal(error_of(refused), "INVALID_REPLICATION_FACTOR", "nine replicas")
    checked = name("checked")
    only(admin().create_topics([NewTopic(checked, 1, REPLICAS)], validate_only=True))
    check(checked not in admin().list_topics(timeout=LIMIT).topics, "validate_only made the topic")
    only(admin().create_partitions([NewPartitions(topic, 4)]))
    described = lambda: only(admin().describe_topics(TopicCollection([topic])))
    eventually(lambda: len(described().partitions), 4, "partitions")
    described = described()
    leaders = {partition.leader.id for partition in described.partitions}
    check(leaders and leaders <= set(range(1, BROKERS + 1)), f"leaders: {leaders}")
    check(str(described.topic_id) not in ("", "AAAAAAAAAAAAAAAAAAAAAA"), "the topic has no id")
    only(admin().delete_topics([topic]))
    eventually(lambda: topic in admin().list_topics(timeout=LIMIT).topics, False, "the deleted topic is listed")
    equal(error_of(admin().delete_topics([topic])), "UNKNOWN_TOPIC_OR_PART", "a second deletion")


@scenario("admin-cluster")
def cluster(client):
    described = admin().describe_cluster().result(LIMIT)
    equal(len(described.nodes), BROKERS, "nodes")
    check(described.cluster_id, "the cluster has no id")
    check(described.controller is not None, "the cluster has no controller")


@scenario("admin-configs")
def configs(client):
    topic = make_topic(client, "configured")
    change = ConfigEntry("retention.ms", "77000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    only(admin().incremental_alter_configs([resource]))
    describe = lambda: only(admin().describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    eventually(lambda: describe()["retention.ms"].value, "77000", "retention.ms")
    described = describe()
    check(not described["retention.ms"].is_default, "a changed value is called a default")
    equal(described["segment.ms"].value, "604800000", "segment.ms")
    check(described["segment.ms"].is_default, "an untouched value is not called a default")
    back = ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)
    only(admin().incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[back])]))
    eventually(lambda: describe()["retention.ms"].value, "604800000", "retention.ms after its deletion")
    broker = only(admin().describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    check(broker["log.dirs"].value or broker["log.dir"].value, "the broker does not say where its logs are")


@scenario("admin-groups")
def groups(client):
    topic, group = make_topic(client, "grouped", 2), name("group")
    client.produce(topic, [Record(b"v")])
    member = client.member(topic, group)
    wait_until(lambda: len(member.owned()) == 2, "the member owns both partitions")
    listed = {found.group_id: found for found in admin().list_consumer_groups().result(LIMIT).valid}
    equal(listed[group].state.name, "STABLE", "the state in the list")
    described = only(admin().describe_consumer_groups([group]))
    equal(described.state.name, "STABLE", "the state")
    equal(len(described.members), 1, "members")
    assigned = {part.partition for part in described.members[0].assignment.topic_partitions}
    equal(assigned, {0, 1}, "the assignment")
    equal(error_of(admin().delete_consumer_groups([group])), "NON_EMPTY_GROUP", "deleting a group in use")
    member.close()
    wait_until(lambda: only(admin().describe_consumer_groups([group])).state.name == "EMPTY", "an empty group")
    only(admin().delete_consumer_groups([group]))
    equal(error_of(admin().delete_consumer_groups([group])), "GROUP_ID_NOT_FOUND", "a second deletion")


@scenario("admin-group-offsets")
def group_offsets(client):
    topic, group = make_topic(client, "moved", 2), name("group")
    client.produce(topic, [Record(b"%d" % i, partition=0) for i in range(10)])
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 0)])
    only(admin().alter_consumer_group_offsets([wanted]))
    answer = only(admin().list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    found = {part.partition: part.offset for part in answer.topic_partitions}
    equal(found, {0: 4, 1: 0}, "the group's offsets")
    member = client.member(topic, group)
    wait_until(lambda: len(member.seen()) == 6, "the six records from offset 4 on")
    refused = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])
    answer = only(admin().alter_consumer_group_offsets([refused]))
    error = answer.topic_partitions[0].error
    equal(error and error.name(), "UNKNOWN_MEMBER_ID", "moving offsets under a running member")
    member.close()


@scenario("admin-delete-records")
def delete_records(client):
    topic = make_topic(client, "cut")
    client.produce(topic, [Record(b"%d" % i) for i in range(10)])
    deleted = only(admin().delete_records([TopicPartition(topic, 0, 4)]))
    equal(deleted.low_watermark, 4, "the new start")
    equal(client.begin_and_end(topic, 0), (4, 10), "begin and end")
    equal(client.consume(topic, 1)[0].value, b"4", "the first record")
    beyond = admin().delete_records([TopicPartition(topic, 0, 99)])
    equal(error_of(beyond), "OFFSET_OUT_OF_RANGE", "deleting past the end")


@scenario("admin-list-offsets")
def list_offsets(client):
    topic = make_topic(client, "listed")
    client.produce(topic, [Record(b"%d" % i, timestamp=1_700_000_000_000 + i) for i in (0, 2, 1)])
    part = TopicPartition(topic, 0)

    def offset(spec):
        options = {"isolation_level": IsolationLevel.READ_UNCOMMITTED}
        return only(admin().list_offsets({part: spec}, **options)).offset

    equal(offset(OffsetSpec.earliest()), 0, "the earliest")
    equal(offset(OffsetSpec.latest()), 3, "the latest")
    equal(offset(OffsetSpec.max_timestamp()), 1, "the record with the greatest time stamp")
    equal(offset(OffsetSpec.for_timestamp(1_700_000_000_001)), 1, "the first at or after a time")
