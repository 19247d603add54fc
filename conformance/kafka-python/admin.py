"""kafka-python's KafkaAdminClient."""

import functools

from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec

from harness import BOOTSTRAP, BROKERS, REPLICAS, Record, check, equal, eventually, name, scenario, wait_until
from records import make_topic


@functools.cache
def admin():
    return KafkaAdminClient(bootstrap_servers=BOOTSTRAP)


@scenario("admin-topics")
def topics(client):
    topic = name("managed")
    options = {"num_partitions": 2, "replication_factor": REPLICAS, "configs": {"retention.ms": "60000"}}
    admin().create_topics({topic: options})
    error = client.error_of(lambda: admin().create_topics({topic: options}))
    equal(error, "TopicAlreadyExistsError", "a second creation")
    admin().create_partitions({topic: 4})
    eventually(lambda: len(admin().describe_topics([topic])[0]["partitions"]), 4, "partitions")
    check(topic in admin().list_topics(), "the topic is not listed")
    admin().delete_topics([topic])
    eventually(lambda: topic in admin().list_topics(), False, "the deleted topic is listed")


@scenario("admin-cluster")
def cluster(client):
    described = admin().describe_cluster()
    equal(len(described["brokers"]), BROKERS, "brokers")
    check(described["cluster_id"], "the cluster has no id")


def topic_configs(topic):
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    answer = admin().describe_configs([resource], config_filter="all")
    [names] = answer.values()
    return names[topic]


@scenario("admin-configs")
def configs(client):
    topic = make_topic(client, "configured")
    admin().alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "77000"})])
    value = lambda key: str(topic_configs(topic)[key]["value"])
    eventually(lambda: value("retention.ms"), "77000", "retention.ms")
    equal(value("segment.ms"), "604800000", "segment.ms")
    delete = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": ("DELETE", None)})
    admin().alter_configs([delete])
    eventually(lambda: value("retention.ms"), "604800000", "retention.ms after its deletion")


@scenario("admin-groups")
def groups(client):
    topic, group = make_topic(client, "grouped", 2), name("group")
    member = client.member(topic, group)
    wait_until(lambda: len(member.owned()) == 2, "the member owns both partitions")
    check(group in str(admin().list_groups()), "the group is not listed")
    described = admin().describe_groups([group])[group]
    equal(described["group_state"], "Stable", "the state")
    equal(len(described["members"]), 1, "members")
    member.close()
    wait_until(lambda: admin().describe_groups([group])[group]["group_state"] == "Empty", "an empty group")
    admin().delete_groups([group])
    check(group not in str(admin().list_groups()), "the deleted group is still listed")


@scenario("admin-group-offsets")
def group_offsets(client):
    topic, group = make_topic(client, "moved"), name("group")
    client.produce(topic, [Record(b"%d" % i) for i in range(10)])
    part = TopicPartition(topic, 0)
    admin().alter_group_offsets(group, {part: OffsetAndMetadata(4, "moved", -1)})
    equal(admin().list_group_offsets([group])[group][part].offset, 4, "the group's offset")
    member = client.member(topic, group)
    wait_until(lambda: len(member.seen()) == 6, "the six records from offset 4 on")
    member.close()
    admin().delete_group_offsets(group, [part])
    left = admin().list_group_offsets([group])[group]
    check(part not in left or left[part].offset < 0, f"the deleted offset is still there: {left}")


@scenario("admin-delete-records")
def delete_records(client):
    topic = make_topic(client, "cut")
    client.produce(topic, [Record(b"%d" % i) for i in range(10)])
    admin().delete_records({TopicPartition(topic, 0): 4})
    equal(client.begin_and_end(topic, 0), (4, 10), "begin and end")
    equal(client.consume(topic, 6)[0].value, b"4", "the first record")


@scenario("admin-list-offsets")
def list_offsets(client):
    topic = make_topic(client, "listed")
    stamps = [1_700_000_000_000 + i for i in (0, 2, 1)]
    client.produce(topic, [Record(b"v", timestamp=stamp) for stamp in stamps])
    part = TopicPartition(topic, 0)
    specs = [(OffsetSpec.EARLIEST, 0), (OffsetSpec.LATEST, 3), (OffsetSpec.MAX_TIMESTAMP, 1), (stamps[2], 1)]
    for spec, wanted in specs:
        equal(admin().list_partition_offsets({part: spec})[part].offset, wanted, f"the offset for {spec}")


@scenario("admin-log-dirs")
def log_dirs(client):
    topic = make_topic(client, "sized")
    client.produce(topic, [Record(b"v" * 1000)])
    check(topic in str(admin().describe_log_dirs()), "the topic is in no log directory")
