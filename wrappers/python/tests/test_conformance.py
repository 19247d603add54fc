"""The behaviours of ../../conformance.json, each a test, with confluent-kafka."""

import json
import os
import signal
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from highwater_test import HighwaterError, TestBroker

BEHAVIOURS = json.loads((Path(__file__).parents[2] / "conformance.json").read_text())["behaviours"]
TIMEOUT = 60


def produce(broker, topic, *values):
    failures = []

    def report(error, _message):
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, on_delivery=report)
    assert producer.flush(TIMEOUT) == 0 and not failures, failures


def consume(broker, topic, count):
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": str(uuid.uuid4()),
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    values = []
    try:
        while len(values) < count:
            message = consumer.poll(TIMEOUT)
            assert message is not None and message.error() is None, message and message.error()
            values.append(message.value())
    finally:
        consumer.close()
    return sorted(values)


def partitions(broker, topic):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return len(admin.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions)


def serves():
    with TestBroker(["orders:3", "payments"]) as broker:
        assert [partitions(broker, topic) for topic in ("orders", "payments")] == [3, 1]
        produce(broker, "orders", b"a", b"b")
        assert consume(broker, "orders", 2) == [b"a", b"b"]


def fields():
    with TestBroker() as broker:
        assert broker.bootstrap_servers.startswith("127.0.0.1:")
        assert broker.http.startswith("http://127.0.0.1:")
        assert os.path.isdir(broker.data_dir)
        os.kill(broker.pid, 0)
        assert (broker.brokers, broker.version.count(".")) == (1, 2)


def finds_binary():
    named = os.environ["HIGHWATER_BIN"]
    os.environ["HIGHWATER_BIN"] = "/nowhere/highwater"
    try:
        with pytest.raises(HighwaterError, match="HIGHWATER_BIN.*/nowhere/highwater"):
            TestBroker()
    finally:
        os.environ["HIGHWATER_BIN"] = named


def stops():
    broker = TestBroker()
    assert broker.is_running()
    broker.stop()
    broker.stop()
    assert not broker.is_running() and not os.path.exists(broker.data_dir)
    with pytest.raises(ProcessLookupError):
        os.kill(broker.pid, 0)
    # A forked process has the pipe that ends the broker, too.
    broker = TestBroker()
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        broker.stop()
        assert not os.path.exists(broker.data_dir)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def refused_start():
    with pytest.raises(HighwaterError, match="NAME:PARTITIONS"):
        TestBroker(["a:0"])


def settings():
    with TestBroker(settings={"auto.create.topics.enable": "false"}) as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
        consumer = Consumer({**settings, "allow.auto.create.topics": "true"})
        try:
            consumer.subscribe(["new"])
            message = consumer.poll(TIMEOUT)
            assert message is not None and message.error().name() == "UNKNOWN_TOPIC_OR_PART"
        finally:
            consumer.close()


def sets_fault():
    with TestBroker(["orders"]) as broker:
        action = {"error": {"code": "NOT_LEADER_OR_FOLLOWER"}}
        rule = {"api": "Produce", "occurrence": "once", "action": action}
        broker.set_fault("refused", rule)
        produce(broker, "orders", b"a")
        assert broker.fault("refused")["faults"] == 1
        assert consume(broker, "orders", 1) == [b"a"]


def removes_fault():
    with TestBroker() as broker:
        for name in ("a", "b/c", "d"):
            broker.set_fault(name, {"action": "close", "api": "Produce"})
        broker.remove_fault("b/c")
        assert [rule["name"] for rule in broker.faults()] == ["a", "d"]
        broker.clear_faults()
        assert broker.faults() == []
        with pytest.raises(HighwaterError, match="unheard-of"):
            broker.remove_fault("unheard-of")


def refuses_fault():
    with TestBroker() as broker:
        with pytest.raises(HighwaterError, match="explode(.|\n)*drop_answer"):
            broker.set_fault("x", {"action": "explode"})


def faults_at_start():
    rule = {"name": "slow", "api": "Fetch", "action": {"delay": {"ms": 5}}}
    with TestBroker(faults=[rule], seed=11) as broker:
        assert [rule["name"] for rule in broker.faults()] == ["slow"]
        assert broker.seed() == 11


def two_at_once():
    with TestBroker(["t"]) as one, TestBroker(["t"]) as other:
        assert one.bootstrap_servers != other.bootstrap_servers
        assert one.data_dir != other.data_dir
        produce(one, "t", b"one")
        produce(other, "t", b"other")
        assert consume(one, "t", 1) == [b"one"]
        assert consume(other, "t", 1) == [b"other"]


def snapshots():
    with TestBroker(["t"]) as broker:
        produce(broker, "t", b"a")
        broker.snapshot("s")
        produce(broker, "t", b"b")
        with broker.fork("s") as fork:
            produce(fork, "t", b"c")
            assert consume(fork, "t", 2) == [b"a", b"c"]
            assert fork.is_running() and fork.bootstrap_servers != broker.bootstrap_servers
        fork.stop()
        assert not fork.is_running() and not os.path.exists(fork.data_dir)
        with pytest.raises(ProcessLookupError):
            os.kill(fork.pid, 0)
        assert consume(broker, "t", 2) == [b"a", b"b"]
        left = broker.fork("s")
    left.stop()
    assert not left.is_running() and not os.path.exists(left.data_dir)


def refuses_snapshot():
    with TestBroker() as broker:
        broker.snapshot("s")
        with pytest.raises(HighwaterError, match='"s"'):
            broker.snapshot("s")
        with pytest.raises(HighwaterError, match='"unheard-of".*"s"'):
            broker.fork("unheard-of")
        broker.remove_snapshot("s")
        broker.snapshot("s")


CHECKS = {
    "serves": serves,
    "fields": fields,
    "finds-binary": finds_binary,
    "stops": stops,
    "refused-start": refused_start,
    "settings": settings,
    "sets-fault": sets_fault,
    "removes-fault": removes_fault,
    "refuses-fault": refuses_fault,
    "faults-at-start": faults_at_start,
    "two-at-once": two_at_once,
    "snapshots": snapshots,
    "refuses-snapshot": refuses_snapshot,
}


@pytest.mark.parametrize("behaviour", [behaviour["id"] for behaviour in BEHAVIOURS])
def test_conformance(behaviour):
    CHECKS[behaviour]()


def test_malformed_arguments_are_refused():
    with pytest.raises(HighwaterError, match="'--faults', FILE"):
        TestBroker(faults="faults.toml")
    with pytest.raises(HighwaterError, match="topics=\\['orders:3'\\]"):
        TestBroker("orders:3")


def test_a_stop_sends_no_signal_to_a_broker_that_ends_by_itself(tmp_path):
    program = tmp_path / "highwater"
    ready = {name: "" for name in ("bootstrap_servers", "http", "data_dir", "version")}
    ready.update(pid=1, brokers=1)
    program.write_text(
        "#!/bin/sh\n"
        f"trap 'echo signal > \"{tmp_path}/signal\"' TERM\n"
        f"echo '{json.dumps(ready)}'\n"
        "cat > /dev/null\nsleep 1\n"
    )
    program.chmod(0o755)
    TestBroker(binary=str(program)).stop()
    assert not (tmp_path / "signal").exists()


@pytest.fixture
def highwater_options():
    return {"topics": ["fixture:2"]}


def test_the_fixture_is_a_broker_with_the_options_of_this_module(highwater):
    assert partitions(highwater, "fixture") == 2


def test_the_session_has_one_broker(highwater_session, highwater):
    assert highwater_session.is_running()
    assert highwater_session.bootstrap_servers != highwater.bootstrap_servers
