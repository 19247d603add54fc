"""A producer that goes on while brokers are killed, in the words of confluent-kafka."""

import threading

from confluent_kafka import KafkaException, Producer

from harness import BOOTSTRAP

LIMIT = 20


class Steady:
    """Delivery reports are asked for on a thread of their own."""

    def __init__(self, topic, told):
        settings = {"bootstrap.servers": BOOTSTRAP, "acks": "all", "enable.idempotence": True}
        self._topic, self._told = topic, told
        self._producer = Producer(settings)
        self._producer.list_topics(topic, LIMIT)
        threading.Thread(target=self._poll, daemon=True).start()

    def _poll(self):
        while True:
            self._producer.poll(1)

    def send(self, sequence, partition, value):
        def delivered(error, message):
            if error:
                self._told.failed(sequence, error)
            else:
                self._told.acknowledged(sequence, partition, message.offset())

        try:
            self._producer.produce(self._topic, value, partition=partition, on_delivery=delivered)
        except (BufferError, KafkaException) as error:
            self._told.failed(sequence, error)

    def close(self):
        self._producer.flush(LIMIT)


start = Steady
