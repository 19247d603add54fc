"""A producer that goes on while brokers are killed, in the words of kafka-python."""

from kafka import KafkaProducer
from kafka.errors import KafkaError

from harness import BOOTSTRAP

LIMIT = 20


class Steady:
    """Its callbacks run on the library's own thread."""

    def __init__(self, topic, told):
        self._topic, self._told = topic, told
        self._producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all", enable_idempotence=True)
        self._producer.partitions_for(topic)

    def send(self, sequence, partition, value):
        try:
            future = self._producer.send(self._topic, value, partition=partition)
        except KafkaError as error:
            self._told.failed(sequence, error)
            return
        future.add_callback(lambda sent: self._told.acknowledged(sequence, sent.partition, sent.offset))
        future.add_errback(lambda error: self._told.failed(sequence, error))

    def close(self):
        self._producer.flush(LIMIT)
        self._producer.close(LIMIT)


start = Steady
