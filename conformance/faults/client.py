"""Sends a and b to partition 0 of a topic with librdkafka, reads the topic, and prints the reports: `client.py BOOTSTRAP TOPIC`."""

import json
import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

SEND_MAX = 20
READ_MAX = 20


def send(producer, topic, value):
    reports = []
    try:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: reports.append(error))
    except KafkaException as error:
        return f"produce raises {error.args[0].name()}"
    producer.flush(SEND_MAX)
    if not reports:
        return f"no report within {SEND_MAX} s"
    return "ok" if reports[0] is None else reports[0].name()


def read(bootstrap, topic):
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    partition = TopicPartition(topic, 0, OFFSET_BEGINNING)
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=READ_MAX)
    consumer.assign([partition])
    values = []
    while len(values) < end:
        message = consumer.poll(READ_MAX)
        if message is None:
            values.append(f"no record within {READ_MAX} s")
            break
        values.append(message.error().name() if message.error() else message.value().decode())
    consumer.close()
    return values


def main():
    bootstrap, topic = sys.argv[1:]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "python",
            "enable.idempotence": True,
            "message.timeout.ms": 8000,
            "request.timeout.ms": 3000,
            "socket.timeout.ms": 3000,
            "linger.ms": 0,
        }
    )
    reports = [send(producer, topic, value) for value in ("a", "b")]
    print(json.dumps({"reports": reports, "read": read(bootstrap, topic)}))


if __name__ == "__main__":
    main()
