"""aiokafka's AIOKafkaAdminClient."""

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from harness import BOOTSTRAP, BROKERS, REPLICAS, Record, check, equal, eventually, name, scenario, wait_until
from records import make_topic


def ask(client, action):
    """Awaits `action(admin)` with an admin client that is started before and closed after."""

    async def run():
        admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
        await admin.start()
        try:
            return await action(admin)
        finally:
            await admin.close()

    return client.loop.run(run())


@scenario("admin-topics")
def topics(client):
    topic = name("managed")
    ask(client, lambda admin: admin.create_topics([NewTopic(topic, 2, REPLICAS)]))
    again = ask(client, lambda admin: admin.create_topics([NewTopic(topic, 2, REPLICAS)]))
    equal(again.topic_errors[0][1], 36, "the error of a second creation")
    ask(client, lambda admin: admin.create_partitions({topic: NewPartitions(4)}))
    described = lambda: ask(client, lambda admin: admin.describe_topics([topic]))[0]
    eventually(lambda: len(described()["partitions"]), 4, "partitions")
    check(topic in ask(client, lambda admin: admin.list_topics()), "the topic is not listed")
    ask(client, lambda admin: admin.delete_topics([topic]))
    listed = lambda: topic in ask(client, lambda admin: admin.list_topics())
    eventually(listed, False, "the deleted topic is listed")


@scenario("admin-cluster")
def cluster(client):
    described = ask(client, lambda admin: admin.describe_cluster())
    equal(len(described["brokers"]), BROKERS, "brokers")


@scenario("admin-configs")
def configs(client):
    topic = make_topic(client, "configured")
    change = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "77000"})
    ask(client, lambda admin: admin.alter_configs([change]))
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)

    def value(key):
        [answer] = ask(client, lambda admin: admin.describe_configs([resource]))
        return {entry[0]: entry[1] for entry in answer.resources[0][4]}[key]

    eventually(lambda: value("retention.ms"), "77000", "retention.ms")
    equal(value("segment.ms"), "604800000", "segment.ms")


@scenario("admin-groups")
def groups(client):
    topic, group = make_topic(client, "grouped", 2), name("group")
    member = client.member(topic, group)
    wait_until(lambda: len(member.owned()) == 2, "the member owns both partitions")
    listed = ask(client, lambda admin: admin.list_consumer_groups())
    check((group, "consumer") in listed, f"the group is not listed: {listed}")
    [answer] = ask(client, lambda admin: admin.describe_consumer_groups([group]))
    equal(answer.groups[0][2], "Stable", "the state")
    member.close()
    [answer] = ask(client, lambda admin: admin.describe_consumer_groups([group]))
    equal(answer.groups[0][2], "Empty", "the state after the member left")


@scenario("admin-delete-records")
def delete_records(client):
    topic = make_topic(client, "cut")
    client.produce(topic, [Record(b"%d" % i) for i in range(10)])
    wanted = {TopicPartition(topic, 0): RecordsToDelete(before_offset=4)}
    ask(client, lambda admin: admin.delete_records(wanted))
    equal(client.begin_and_end(topic, 0), (4, 10), "begin and end")
