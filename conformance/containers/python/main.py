"""Starts an image by the Kafka module of Testcontainers and sends a record through it, as often as the arguments say.

Arguments: IMAGE COUNT. Each start prints a line with the milliseconds until the module returned."""

import sys
import time

from confluent_kafka import Consumer, Producer
from docker.types import Ulimit
from testcontainers.kafka import KafkaContainer

# Seconds that a client or the module waits on a busy machine.
LIMIT = 120
# The engine runs in namespaces where limits cannot be raised, and takes no defaults from its own configuration here.
ULIMITS = [Ulimit(name="nofile", soft=1024, hard=4096), Ulimit(name="nproc", soft=4096, hard=4096)]


def exchange_record(bootstrap):
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("t", b"hello")
    if producer.flush(LIMIT) != 0:
        raise RuntimeError("the record is not acknowledged")
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe(["t"])
        message = consumer.poll(LIMIT)
        if message is None or message.error() or message.value() != b"hello":
            raise RuntimeError(f"not the record: {message and (message.error() or message.value())}")
    finally:
        consumer.close()


def main():
    image, count = sys.argv[1], int(sys.argv[2])
    for _ in range(count):
        container = KafkaContainer(image).with_kraft().with_kwargs(ulimits=ULIMITS)
        began = time.monotonic()
        try:
            container.start(timeout=LIMIT)
            print(f"ready {(time.monotonic() - began) * 1000:.0f}", flush=True)
            exchange_record(container.get_bootstrap_server())
        finally:
            container.stop()


main()
