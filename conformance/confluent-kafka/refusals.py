"""A feature that a broker may lack: the client ends at once and shows the reason."""

from confluent_kafka import KafkaException, Producer

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
