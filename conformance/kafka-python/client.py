"""The scenarios' verbs in the words of kafka-python."""

import threading
import time
from collections import Counter

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import KafkaError

from harness import BOOTSTRAP, REPLICAS, Record, check

LIMIT = 40


class Client:
    """One client library; the shared scenarios call nothing else."""

    codecs = ["gzip", "snappy", "lz4", "zstd"]
    null_headers = False
    both_null = False
    tells_fencing = True

    def __init__(self, version):
        self.version = version

    def create_topic(self, topic, partitions, configs):
        admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
        options = {"num_partitions": partitions, "replication_factor": REPLICAS, "configs": configs}
        admin.create_topics({topic: options})
        admin.close()

    def produce(self, topic, records, codec=None, acks="all", idempotent=False):
        producer = KafkaProducer(
            bootstrap_servers=BOOTSTRAP,
            compression_type=codec,
            acks=acks,
            enable_idempotence=idempotent,
            linger_ms=5,
            max_block_ms=LIMIT * 1000,
        )
        futures = [
            producer.send(
                topic,
                record.value,
                key=record.key,
                headers=record.headers or None,
                partition=record.partition,
                timestamp_ms=record.timestamp,
            )
            for record in records
        ]
        producer.flush(LIMIT)
        answers = [future.get(LIMIT) for future in futures]
        producer.close()
        return [(answer.partition, answer.offset) for answer in answers]

    def stream(self, topic, record_of, seconds):
        """Sends one record after the other for so long, as an idempotent producer; returns what became of each (None: it
        failed), and what was told meanwhile."""
        answers, told = [], Counter()
        producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, enable_idempotence=True, acks="all", linger_ms=5)
        futures, deadline = [], time.monotonic() + seconds
        while time.monotonic() < deadline:
            record = record_of(len(futures))
            futures.append(producer.send(topic, record.value, partition=record.partition))
            time.sleep(0.01)
        # The producer gives a record up after two minutes (delivery_timeout_ms).
        deadline = time.monotonic() + 130
        for future in futures:
            try:
                answer = future.get(max(0, deadline - time.monotonic()))
                answers.append((answer.partition, answer.offset))
            except KafkaError as error:
                told[type(error).__name__] += 1
                answers.append(None)
        undecided = sum(not future.is_done for future in futures)
        check(not undecided, f"the producer says nothing of {undecided} of {len(futures)} records: {dict(told)}")
        producer.close()
        return answers, told

    def consumer(self, *topics, **settings):
        base = {"bootstrap_servers": BOOTSTRAP, "check_crcs": True, "enable_auto_commit": False}
        return KafkaConsumer(*topics, **{**base, **settings})

    def consume(self, topic, count, start=None):
        consumer = self.consumer()
        parts = [TopicPartition(topic, part) for part in consumer.partitions_for_topic(topic)]
        consumer.assign(parts)
        for part in parts:
            if start is None:
                consumer.seek_to_beginning(part)
            else:
                consumer.seek(part, start)
        found, deadline = [], time.monotonic() + LIMIT
        while len(found) < count:
            check(time.monotonic() < deadline, f"{len(found)} of {count} records came")
            for batch in consumer.poll(200).values():
                found.extend(map(_record, batch))
        consumer.close()
        return found[:count] if start is not None else found

    def offset_at(self, topic, partition, timestamp):
        consumer = self.consumer()
        part = TopicPartition(topic, partition)
        answer = consumer.offsets_for_times({part: timestamp})[part]
        consumer.close()
        return answer.offset if answer else None

    def begin_and_end(self, topic, partition):
        consumer = self.consumer()
        part = TopicPartition(topic, partition)
        answer = (consumer.beginning_offsets([part])[part], consumer.end_offsets([part])[part])
        consumer.close()
        return answer

    def commit(self, group, topic, partition, offset, metadata):
        consumer = self.consumer(group_id=group)
        part = TopicPartition(topic, partition)
        consumer.assign([part])
        consumer.commit({part: OffsetAndMetadata(offset, metadata, -1)})
        consumer.close()

    def committed(self, group, topic, partition):
        consumer = self.consumer(group_id=group)
        part = TopicPartition(topic, partition)
        consumer.assign([part])
        answer = consumer.committed(part, metadata=True)
        consumer.close()
        return (answer.offset, answer.metadata) if answer else (None, None)

    def error_of(self, action):
        try:
            action()
        except KafkaError as error:
            return type(error).__name__
        return None

    def unknown_topic_error(self, topic):
        admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
        return self.error_of(lambda: admin.delete_topics([topic]))

    def member(self, topic, group, **options):
        return Member(self, topic, group, **options)


def _record(found):
    headers = [tuple(header) for header in found.headers]
    return Record(found.value, found.key, headers, found.partition, found.timestamp, found.offset)


class Member(ConsumerRebalanceListener):
    """A group member that polls on a thread of its own."""

    def __init__(self, client, topic, group, instance=None, cooperative=False):
        settings = {
            "group_id": group,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 500,
            "enable_auto_commit": True,
            "auto_commit_interval_ms": 500,
            "metadata_max_age_ms": 2000,
        }
        if instance:
            settings["group_instance_id"] = instance
        if cooperative:
            settings["partition_assignment_strategy"] = [CooperativeStickyAssignor]
        self._cooperative = cooperative
        self._consumer = client.consumer(**settings)
        self._owned, self._seen, self._changes, self._revoked = set(), [], 0, 0
        self._failed, self._told = None, Counter()
        self._closing = threading.Event()
        self._consumer.subscribe([topic], listener=self)
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def on_partitions_assigned(self, assigned):
        fresh = {part.partition for part in assigned}
        self._owned = self._owned | fresh if self._cooperative else fresh
        self._changes += 1

    def on_partitions_revoked(self, revoked):
        gone = {part.partition for part in revoked}
        if not self._closing.is_set():
            self._revoked += len(gone)
            self._changes += 1
        self._owned = self._owned - gone

    def _poll(self):
        while not self._closing.is_set():
            try:
                for batch in self._consumer.poll(50).values():
                    self._seen.extend(found.value for found in batch)
            except KafkaError as error:
                self._told[type(error).__name__] += 1
                if "Fenced" in type(error).__name__:
                    self._failed = type(error).__name__
                    break
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
