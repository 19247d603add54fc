"""A producer that goes on while brokers are killed, in the words of aiokafka."""

import asyncio

from aiokafka import AIOKafkaProducer

from client import LIMIT, Loop
from harness import BOOTSTRAP


class Steady:
    """Records wait in a queue for one coroutine, so that they reach the library in their order."""

    def __init__(self, topic, told):
        self._topic, self._told = topic, told
        self._loop = Loop()
        self._producer = self._loop.run(self._open())
        self._sending = self._loop.start(self._send_all())

    async def _open(self):
        self._queue = asyncio.Queue()
        producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all", enable_idempotence=True)
        await producer.start()
        await producer.partitions_for(self._topic)
        return producer

    async def _send_all(self):
        while (record := await self._queue.get()) is not None:
            sequence, partition, value = record
            try:
                future = await self._producer.send(self._topic, value, partition=partition)
                future.add_done_callback(lambda done, sequence=sequence: self._tell(sequence, done))
            except Exception as error:  # whatever it was, it is what the application is told
                self._told.failed(sequence, error)
        await self._producer.stop()

    def _tell(self, sequence, done):
        if done.cancelled() or done.exception():
            self._told.failed(sequence, "cancelled" if done.cancelled() else done.exception())
        else:
            sent = done.result()
            self._told.acknowledged(sequence, sent.partition, sent.offset)

    def _put(self, record):
        self._loop.call(self._queue.put_nowait, record)

    def send(self, sequence, partition, value):
        self._put((sequence, partition, value))

    def close(self):
        self._put(None)
        self._sending.result(LIMIT)


start = Steady
