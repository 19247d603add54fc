"""Scenarios about records: what goes in comes out, whatever the codec, the key, the headers."""

import time

from harness import Record, Skip, check, equal, name, scenario


def make_topic(adapter, word, partitions=1, **configs):
    topic = name(word)
    adapter.create_topic(topic, partitions, configs)
    return topic


def essence(record):
    """What must be equal on both sides."""
    return (record.key, record.value, [(key, value) for key, value in record.headers])


def round_trip(adapter, topic, records, **options):
    """Produces, checks the acknowledged positions, consumes, compares; returns what came out."""
    acknowledged = adapter.produce(topic, records, **options)
    equal(len(acknowledged), len(records), "acknowledged records")
    found = adapter.consume(topic, len(records))
    by_position = {(record.partition, record.offset): record for record in found}
    equal(len(by_position), len(records), "records at different positions")
    for record, position in zip(records, acknowledged):
        if position[1] is not None and position[1] >= 0:
            equal(essence(by_position[position]), essence(record), f"the record at {position}")
    equal(sorted(map(repr, map(essence, found))), sorted(map(repr, map(essence, records))), "all records")
    return found


@scenario("round-trip")
def keys_values_partitions(adapter):
    topic = make_topic(adapter, "trip", 3)
    records = [Record(b"value %d" % i, b"key %d" % (i % 10), partition=i % 3) for i in range(300)]
    found = round_trip(adapter, topic, records)
    for partition in range(3):
        values = [record.value for record in found if record.partition == partition]
        equal(values, [b"value %d" % i for i in range(partition, 300, 3)], f"order in {partition}")


def codec_round_trip(adapter, codec):
    if codec not in adapter.codecs:
        raise Skip(f"this client has no {codec}")
    topic = make_topic(adapter, codec)
    records = [Record(b"record %d " % i + b"x" * 200, b"key %d" % i) for i in range(2000)]
    round_trip(adapter, topic, records, codec=codec)


for _codec in ["gzip", "snappy", "lz4", "zstd"]:
    scenario(f"codec-{_codec}")(lambda adapter, codec=_codec: codec_round_trip(adapter, codec))


@scenario("acks")
def every_level_of_acknowledgement(adapter):
    topic = make_topic(adapter, "acks")
    for acks in [0, 1, "all"]:
        adapter.produce(topic, [Record(b"acks %s" % str(acks).encode())], acks=acks)
    values = [record.value for record in adapter.consume(topic, 3)]
    equal(sorted(values), [b"acks 0", b"acks 1", b"acks all"], "what was written")


@scenario("idempotence")
def idempotent_producer(adapter):
    topic = make_topic(adapter, "once", 2)
    records = [Record(b"%d" % i, b"k", partition=i % 2) for i in range(5000)]
    found = round_trip(adapter, topic, records, idempotent=True)
    for partition in range(2):
        values = [int(record.value) for record in found if record.partition == partition]
        equal(values, list(range(partition, 5000, 2)), "once each, in order")


@scenario("headers")
def headers_keep_order_duplicates_and_nulls(adapter):
    topic = make_topic(adapter, "headers")
    headers = [("a", b"1"), ("b", b""), ("a", b"2"), ("utf8-\u00fc", b"\x00\xff")]
    if adapter.null_headers:
        headers.append(("none", None))
    round_trip(adapter, topic, [Record(b"v", headers=headers), Record(b"w"), Record(b"x", headers=[("", b"")])])


@scenario("null-and-empty")
def null_and_empty_are_two_things(adapter):
    topic = make_topic(adapter, "nulls")
    pairs = [(b"k", None), (None, b"v"), (b"", b""), (b"k", b""), (b"", b"v")]
    if adapter.both_null:
        pairs.append((None, None))
    round_trip(adapter, topic, [Record(value, key) for key, value in pairs])


@scenario("large-message")
def nine_hundred_kilobytes(adapter):
    topic = make_topic(adapter, "large")
    block = bytes((i * 2654435761 >> 24) & 0xFF for i in range(9_000))
    round_trip(adapter, topic, [Record(block * 100), Record(block * 90, b"k"), Record(b"small")])


@scenario("timestamps")
def time_stamps_are_kept(adapter):
    topic = make_topic(adapter, "stamps")
    now = int(time.time() * 1000)
    adapter.produce(topic, [Record(b"%d" % i, timestamp=now - 5000 + i) for i in range(10)])
    stamps = [record.timestamp for record in adapter.consume(topic, 10)]
    equal(stamps, [now - 5000 + i for i in range(10)], "time stamps")


@scenario("seek-by-time")
def offsets_for_times(adapter):
    topic = make_topic(adapter, "times")
    start = int(time.time() * 1000) - 100_000
    for i in range(10):
        # One batch each, and one batch of several: both are looked into.
        adapter.produce(topic, [Record(b"%d" % i, timestamp=start + i * 1000)])
    adapter.produce(topic, [Record(b"%d" % i, timestamp=start + i * 1000) for i in range(10, 20)])
    cases = [(start - 5, 0), (start, 0), (start + 1, 1), (start + 9000, 9), (start + 9001, 10)]
    cases += [(start + 15_000, 15), (start + 15_001, 16), (start + 19_001, None)]
    for timestamp, wanted in cases:
        equal(adapter.offset_at(topic, 0, timestamp), wanted, f"the offset at start + {timestamp - start}")
    first = adapter.consume(topic, 1, start=15)[0]
    equal(first.value, b"15", "the record after the seek")


@scenario("begin-and-end")
def begin_and_end_offsets(adapter):
    topic = make_topic(adapter, "ends")
    equal(adapter.begin_and_end(topic, 0), (0, 0), "an empty partition")
    adapter.produce(topic, [Record(b"%d" % i) for i in range(7)])
    equal(adapter.begin_and_end(topic, 0), (0, 7), "after seven records")


@scenario("auto-create")
def the_first_record_makes_the_topic(adapter):
    topic = name("auto")
    round_trip(adapter, topic, [Record(b"hello")])


@scenario("log-append-time")
def the_broker_stamps_records(adapter):
    topic = make_topic(adapter, "stamped", **{"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000) - 1
    adapter.produce(topic, [Record(b"v", timestamp=1000)])
    stamp = adapter.consume(topic, 1)[0].timestamp
    check(before <= stamp <= time.time() * 1000 + 1, f"{stamp} is not the time of the append")


@scenario("error-too-large")
def too_large_is_refused(adapter):
    topic = make_topic(adapter, "small", **{"max.message.bytes": "10000"})
    error = adapter.error_of(lambda: adapter.produce(topic, [Record(b"x" * 50_000)]))
    check(error in ("MSG_SIZE_TOO_LARGE", "MessageSizeTooLarge", "MessageSizeTooLargeError"), f"the error is {error}")
    round_trip(adapter, topic, [Record(b"fits")])


@scenario("error-unknown-topic")
def an_unknown_topic_is_an_error(adapter):
    error = adapter.unknown_topic_error(name("absent"))
    wanted = ("UNKNOWN_TOPIC_OR_PART", "UnknownTopicOrPartition", "UnknownTopicOrPartitionError")
    check(error in wanted, f"the error is {error}")
