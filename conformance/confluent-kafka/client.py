"""The scenarios' verbs in the words of confluent-kafka."""

import threading
import time
from collections import Counter

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from harness import BOOTSTRAP, REPLICAS, Record, check

LIMIT = 40


class Client:
    """One client library; the shared scenarios call nothing else."""

    codecs = ["gzip", "snappy", "lz4", "zstd"]
    null_headers = True
    both_null = True
    tells_fencing = True

    def __init__(self, version):
        self.version = version

    def create_topic(self, topic, partitions, configs):
        admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
        for future in admin.create_topics([NewTopic(topic, partitions, REPLICAS, config=configs)]).values():
            future.result(LIMIT)

    def produce(self, topic, records, codec="none", acks="all", idempotent=False):
        producer = Producer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "linger.ms": 5,
                "message.timeout.ms": LIMIT * 1000,
            }
        )
        positions, errors = {}, []

        def delivered(index, error, message):
            if error:
                errors.append(error)
            else:
                positions[index] = (message.partition(), message.offset())

        for index, record in enumerate(records):
            options = {"headers": record.headers} if record.headers else {}
            if record.partition is not None:
                options["partition"] = record.partition
            if record.timestamp is not None:
                options["timestamp"] = record.timestamp
            done = lambda error, message, index=index: delivered(index, error, message)
            producer.produce(topic, record.value, record.key, on_delivery=done, **options)
            producer.poll(0)
        check(producer.flush(LIMIT) == 0, "not everything was delivered in time")
        if errors:
            raise KafkaException(errors[0])
        if acks == 0:
            return [(0, None)] * len(records)
        return [positions[index] for index in range(len(records))]

    def stream(self, topic, record_of, seconds):
        """Sends one record after the other for so long, as an idempotent producer; returns what became of each (None: it
        failed), and what was told meanwhile."""
        answers, told = {}, Counter()
        settings = {"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "linger.ms": 5}
        producer = Producer({**settings, "error_cb": lambda error: told.update([error.name()])})

        def delivered(number, error, message):
            answers[number] = None if error else (message.partition(), message.offset())
            if error:
                told[error.name()] += 1

        number, deadline = 0, time.monotonic() + seconds
        while time.monotonic() < deadline:
            record = record_of(number)
            done = lambda error, message, number=number: delivered(number, error, message)
            producer.produce(topic, record.value, partition=record.partition, on_delivery=done)
            producer.poll(0.01)
            number += 1
        check(producer.flush(60) == 0, "not everything was delivered in time")
        return [answers[one] for one in range(number)], told

    def consume(self, topic, count, start=OFFSET_BEGINNING):
        consumer = self.consumer()
        partitions = consumer.list_topics(topic, LIMIT).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, start) for partition in partitions])
        found, deadline = [], time.monotonic() + LIMIT
        while len(found) < count:
            check(time.monotonic() < deadline, f"{len(found)} of {count} records came")
            message = consumer.poll(0.2)
            if message is not None:
                found.append(_record(message))
        consumer.close()
        return found

    def consumer(self, group="unused", **settings):
        base = {"bootstrap.servers": BOOTSTRAP, "group.id": group, "check.crcs": True}
        return Consumer({**base, "enable.auto.commit": False, **settings})

    def offset_at(self, topic, partition, timestamp):
        consumer = self.consumer()
        [answer] = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp)], LIMIT)
        consumer.close()
        return answer.offset if answer.offset >= 0 else None

    def begin_and_end(self, topic, partition):
        consumer = self.consumer()
        answer = consumer.get_watermark_offsets(TopicPartition(topic, partition), LIMIT)
        consumer.close()
        return answer

    def commit(self, group, topic, partition, offset, metadata):
        consumer = self.consumer(group)
        target = TopicPartition(topic, partition, offset, metadata)
        [answer] = consumer.commit(offsets=[target], asynchronous=False)
        check(answer.error is None, f"the commit failed: {answer.error}")
        consumer.close()

    def committed(self, group, topic, partition):
        consumer = self.consumer(group)
        [answer] = consumer.committed([TopicPartition(topic, partition)], LIMIT)
        consumer.close()
        return (answer.offset, answer.metadata or "") if answer.offset >= 0 else (None, None)

    def error_of(self, action):
        try:
            action()
        except KafkaException as error:
            return error.args[0].name()
        return None

    def unknown_topic_error(self, topic):
        consumer = self.consumer(**{"allow.auto.create.topics": False})
        consumer.subscribe([topic])
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error():
                consumer.close()
                return message.error().name()
        return None

    def member(self, topic, group, **options):
        return Member(self, topic, group, **options)


def _record(message):
    check(message.error() is None, f"the consumer reports {message.error()}")
    kind, stamp = message.timestamp()
    stamp = None if kind == TIMESTAMP_NOT_AVAILABLE else stamp
    headers = message.headers() or []
    return Record(message.value(), message.key(), headers, message.partition(), stamp, message.offset())


class Member:
    """A group member that polls on a thread of its own."""

    def __init__(self, client, topic, group, instance=None, cooperative=False):
        settings = {
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "enable.auto.commit": True,
            "auto.commit.interval.ms": 500,
        }
        if instance:
            settings["group.instance.id"] = instance
        if cooperative:
            settings["partition.assignment.strategy"] = "cooperative-sticky"
        self._cooperative = cooperative
        self._failed = None
        told = Counter()
        settings["error_cb"] = lambda error: told.update([error.name()])
        self._consumer = client.consumer(group, **settings)
        self._owned, self._seen, self._changes, self._revoked = set(), [], 0, 0
        self._told = told
        self._closing = threading.Event()
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._lost)
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _assigned(self, consumer, partitions):
        fresh = {partition.partition for partition in partitions}
        self._owned = self._owned | fresh if self._cooperative else fresh
        self._changes += 1

    def _lost(self, consumer, partitions):
        gone = {partition.partition for partition in partitions}
        if not self._closing.is_set():
            self._revoked += len(gone)
            self._changes += 1
        self._owned = self._owned - gone

    def _poll(self):
        while not self._closing.is_set():
            message = self._consumer.poll(0.05)
            if message is None:
                continue
            if message.error() is None:
                self._seen.append(message.value())
            else:
                self._told[message.error().name()] += 1
                if message.error().code() == KafkaError._FATAL:
                    self._failed = message.error().str()
        self._consumer.close()
        self._owned = set()

    def owned(self):
        return set(self._owned)

    def seen(self):
        return list(self._seen)

    def changes(self):
        return self._changes

    def revoked(self):
        return self._revoked

    def told(self):
        """The errors that the user heard of, each with how often."""
        return Counter(self._told)

    def failed(self):
        """The error that ended the membership; None while there is none."""
        return self._failed

    def close(self):
        self._closing.set()
        self._thread.join(LIMIT)
