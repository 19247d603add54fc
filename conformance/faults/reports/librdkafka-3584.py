import confluent_kafka, highwater_test
with highwater_test.TestBroker(["t"]) as broker:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "log_level": 0})
    for nth, code in ((2, "NOT_LEADER_OR_FOLLOWER"), (3, "OUT_OF_ORDER_SEQUENCE_NUMBER")):
        broker.set_fault(code, {"api": "Produce", "occurrence": {"nth": nth}, "action": {"error": {"code": code}}})
    for value in ("a", "b", "c"):
        try:
            print(value, producer.produce("t", value) or producer.flush(10) or "sent")
        except confluent_kafka.KafkaException as error:
            print(value, error.args[0].name(), "fatal" if error.args[0].fatal() else "")
