"""A feature that a broker may lack: the client ends at once and shows the reason."""

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from harness import BOOTSTRAP, check, name, scenario

LIMIT = 40


@scenario("transactions-at-once")
def transactions(client):
    """`init_transactions` succeeds, or fails for good before its time is up."""
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": name("transactional")})
    try:
        producer.init_transactions(LIMIT)
    except KafkaException as failure:
        error = failure.args[0]
        check(error.fatal(), f"not fatal: {error}")
        check("transactions are not served" in error.str(), error.str())


@scenario("consumer-protocol-at-once")
def consumer_protocol(client):
    """`group.protocol=consumer` reads, or fails for good before its time is up."""
    settings = {
        "bootstrap.servers": BOOTSTRAP,
        "group.id": name("group"),
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    }
    topic = name("topic")
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    producer.produce(topic, b"value")
    check(producer.flush(LIMIT) == 0, "the record was not written")
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    message = consumer.poll(LIMIT)
    check(message is not None, "neither a record nor an error")
    error = message.error()
    if error is None:
        check(message.value() == b"value", message.value())
    else:
        check(error.code() == KafkaError._FATAL, f"not fatal: {error}")
        # librdkafka names the request, and leaves the broker's words out.
        check("ConsumerGroupHeartbeat" in error.str(), error.str())
    consumer.close()
