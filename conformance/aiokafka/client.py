"""The scenarios' verbs in the words of aiokafka; every verb runs on one event loop in a thread."""

import asyncio
import threading
import time
from collections import Counter

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from harness import BOOTSTRAP, REPLICAS, Record, Skip, check

LIMIT = 40


class Loop:
    """An event loop on a thread; `run` waits for a coroutine on it."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, coroutine, seconds=LIMIT):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(seconds)

    def start(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, function, *arguments):
        self._loop.call_soon_threadsafe(function, *arguments)


class Client:
    """One client library; the shared scenarios call nothing else."""

    codecs = ["gzip", "snappy", "lz4", "zstd"]
    null_headers = True
    both_null = False
    tells_fencing = False

    def __init__(self, version):
        self.version = version
        self.loop = Loop()

    def create_topic(self, topic, partitions, configs):
        async def create():
            admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
            await admin.start()
            await admin.create_topics([NewTopic(topic, partitions, REPLICAS, topic_configs=configs)])
            await admin.close()

        self.loop.run(create())

    def produce(self, topic, records, codec=None, acks="all", idempotent=False):
        return self.loop.run(self._produce(topic, records, codec, acks, idempotent))

    async def _produce(self, topic, records, codec, acks, idempotent):
        producer = AIOKafkaProducer(
            bootstrap_servers=BOOTSTRAP,
            compression_type=codec,
            acks=acks,
            enable_idempotence=idempotent,
            linger_ms=5,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    topic,
                    record.value,
                    record.key,
                    record.partition,
                    record.timestamp,
                    record.headers,
                )
                for record in records
            ]
            answers = [await future for future in futures]
        finally:
            await producer.stop()
        if acks == 0:
            return [(0, None)] * len(records)
        return [(answer.partition, answer.offset) for answer in answers]

    def stream(self, topic, record_of, seconds):
        """Sends one record after the other for so long, as an idempotent producer; returns what became of each (None: it
        failed), and what was told meanwhile."""
        return self.loop.run(self._stream(topic, record_of, seconds), seconds + 2 * LIMIT)

    async def _stream(self, topic, record_of, seconds):
        answers, told = [], Counter()
        producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, enable_idempotence=True, linger_ms=5)
        await producer.start()
        futures, deadline = [], time.monotonic() + seconds
        while time.monotonic() < deadline:
            record = record_of(len(futures))
            futures.append(await producer.send(topic, record.value, partition=record.partition))
            await asyncio.sleep(0.01)
        for future in futures:
            try:
                answer = await future
                answers.append((answer.partition, answer.offset))
            except KafkaError as error:
                told[type(error).__name__] += 1
                answers.append(None)
        await producer.stop()
        return answers, told

    def consumer(self, *topics, **settings):
        base = {"bootstrap_servers": BOOTSTRAP, "check_crcs": True, "enable_auto_commit": False}
        return AIOKafkaConsumer(*topics, **{**base, **settings})

    async def with_consumer(self, action, **settings):
        """Awaits `action(consumer)` with a consumer that is started before and stopped after."""
        consumer = self.consumer(**settings)
        await consumer.start()
        try:
            return await action(consumer)
        finally:
            await consumer.stop()

    def consume(self, topic, count, start=None):
        async def read(consumer):
            await consumer._client.force_metadata_update()
            parts = [TopicPartition(topic, part) for part in await self._partitions(consumer, topic)]
            consumer.assign(parts)
            for part in parts:
                if start is None:
                    await consumer.seek_to_beginning(part)
                else:
                    consumer.seek(part, start)
            found, deadline = [], time.monotonic() + LIMIT - 5
            while len(found) < count:
                check(time.monotonic() < deadline, f"{len(found)} of {count} records came")
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    found.extend(map(_record, batch))
            return found[:count] if start is not None else found

        # A partition whose broker is slow to answer must not begin at its end meanwhile.
        return self.loop.run(self.with_consumer(read, auto_offset_reset="earliest"))

    async def _partitions(self, consumer, topic):
        """The partitions of a topic, once the client has heard of it."""
        await consumer._client._maybe_wait_metadata()
        consumer._client.add_topic(topic)
        deadline = time.monotonic() + LIMIT
        while not consumer.partitions_for_topic(topic):
            check(time.monotonic() < deadline, "the topic never showed up")
            await consumer._client.force_metadata_update()
        return sorted(consumer.partitions_for_topic(topic))

    def offset_at(self, topic, partition, timestamp):
        part = TopicPartition(topic, partition)

        async def ask(consumer):
            consumer.assign([part])
            return (await consumer.offsets_for_times({part: timestamp}))[part]

        answer = self.loop.run(self.with_consumer(ask))
        return answer.offset if answer else None

    def begin_and_end(self, topic, partition):
        part = TopicPartition(topic, partition)

        async def ask(consumer):
            consumer.assign([part])
            begin, end = await consumer.beginning_offsets([part]), await consumer.end_offsets([part])
            return begin[part], end[part]

        return self.loop.run(self.with_consumer(ask))

    def commit(self, group, topic, partition, offset, metadata):
        part = TopicPartition(topic, partition)

        async def commit(consumer):
            consumer.assign([part])
            await consumer.commit({part: OffsetAndMetadata(offset, metadata)})

        self.loop.run(self.with_consumer(commit, group_id=group))

    def committed(self, group, topic, partition):
        async def ask():
            admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
            await admin.start()
            part = TopicPartition(topic, partition)
            answer = await admin.list_consumer_group_offsets(group, partitions=[part])
            await admin.close()
            return answer[part]

        answer = self.loop.run(ask())
        return (answer.offset, answer.metadata) if answer.offset >= 0 else (None, None)

    def error_of(self, action):
        try:
            action()
        except KafkaError as error:
            return type(error).__name__
        return None

    def unknown_topic_error(self, topic):
        async def delete():
            admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
            await admin.start()
            answer = await admin.delete_topics([topic])
            await admin.close()
            return answer.topic_error_codes[0][1]

        from aiokafka.errors import for_code

        return for_code(self.loop.run(delete())).__name__

    def member(self, topic, group, instance=None, cooperative=False):
        if cooperative:
            raise Skip("this client has no cooperative rebalances")
        return Member(self, topic, group, instance)


def _record(found):
    headers = [tuple(header) for header in found.headers]
    return Record(found.value, found.key, headers, found.partition, found.timestamp, found.offset)


class Member(ConsumerRebalanceListener):
    """A group member that polls as a task of the event loop."""

    def __init__(self, client, topic, group, instance):
        self._client = client
        self._owned, self._seen, self._changes, self._revoked = set(), [], 0, 0
        self._closing, self._told = False, Counter()
        self._task = client.loop.start(self._poll(topic, group, instance))

    async def on_partitions_assigned(self, assigned):
        self._owned = {part.partition for part in assigned}
        self._changes += 1

    async def on_partitions_revoked(self, revoked):
        if not self._closing:
            self._revoked += len(revoked)
            self._changes += 1
        self._owned = set()

    async def _poll(self, topic, group, instance):
        consumer = self._client.consumer(
            group_id=group,
            group_instance_id=instance,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
            enable_auto_commit=True,
            auto_commit_interval_ms=500,
            partition_assignment_strategy=[StickyPartitionAssignor],
        )
        consumer.subscribe([topic], listener=self)
        await consumer.start()
        try:
            while not self._closing:
                try:
                    for batch in (await consumer.getmany(timeout_ms=50)).values():
                        self._seen.extend(found.value for found in batch)
                except KafkaError as error:
                    self._told[type(error).__name__] += 1
        finally:
            await consumer.stop()
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

    def close(self):
        self._closing = True
        self._task.result(LIMIT)
