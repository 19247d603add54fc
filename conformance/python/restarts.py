"""A scenario for a cluster whose brokers are killed in turn and started again while it runs."""

import time
from collections import Counter

from harness import Record, check, equal, name, scenario, tell, wait_until

PARTITIONS = 3
# Long enough for three of them, one every ten seconds.
SECONDS = 35


def patiently(told, what, action, seconds=40):
    """What the action returns, as soon as it does not fail any more; what it said until then is told."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return action()
        except Exception as error:  # whatever the client tells its user
            check(time.monotonic() < deadline, f"{what}: {error!r}")
            told[f"{what}: {type(error).__name__}"] += 1
            time.sleep(0.2)


def create(adapter, told):
    topic = name("restarted")

    def make_or_find():
        try:
            adapter.create_topic(topic, PARTITIONS, {})
        except Exception as error:
            # The first attempt may have happened though nobody said so.
            if "exist" not in f"{error!r}".lower():
                raise

    patiently(told, "creating a topic", make_or_find)
    wait_until(lambda: not failure_of(lambda: adapter.begin_and_end(topic, 0)), "the topic is there")
    return topic


def failure_of(action):
    try:
        action()
    except Exception as error:
        return error
    return None


def numbers(records, partition):
    return [int(record.value) for record in records if record.partition == partition]


def first_of_each(found):
    return list(dict.fromkeys(found))


@scenario("restarts")
def what_is_acknowledged_stays_once_and_in_order(adapter):
    told = Counter()
    topic, group = create(adapter, told), name("group")
    member = adapter.member(topic, group)
    record_of = lambda number: Record(b"%d" % number, partition=number % PARTITIONS)
    answers, errors = adapter.stream(topic, record_of, SECONDS)
    acknowledged = {number for number, answer in enumerate(answers) if answer is not None}
    check(len(acknowledged) > 100, f"only {len(acknowledged)} of {len(answers)} records were acknowledged: {errors}")
    ends = lambda partition: patiently(told, "asking for the end", lambda: adapter.begin_and_end(topic, partition))
    count = sum(end - begin for begin, end in map(ends, range(PARTITIONS)))
    found = patiently(told, "reading", lambda: adapter.consume(topic, count))
    check_log(answers, acknowledged, found)
    check_member(member, acknowledged)
    told.update({f"producing: {what}": often for what, often in errors.items()})
    told.update({f"in the group: {what}": often for what, often in member.told().items()})
    again = len(member.seen()) - len(set(member.seen()))
    print(f"told: {tell(told)}; {len(acknowledged)} of {len(answers)} acknowledged, {again} read again by the group")
    member.close()


def check_log(answers, acknowledged, found):
    """Everything acknowledged is there once, in order, at the offset that the producer was told."""
    for partition in range(PARTITIONS):
        there = numbers(found, partition)
        equal(len(there), len(set(there)), f"different records of {partition}")
        equal(there, sorted(there), f"order in {partition}")
        lost = {number for number in acknowledged if number % PARTITIONS == partition} - set(there)
        check(not lost, f"lost in {partition}: {sorted(lost)[:20]} ({len(lost)})")
    places = {(record.partition, record.offset): int(record.value) for record in found}
    for number in acknowledged:
        # A broker that has had a batch already may not say where.
        partition, offset = answers[number]
        if offset is not None and offset >= 0:
            equal(places.get((partition, offset)), number, f"what is at {partition}:{offset}")


def check_member(member, acknowledged):
    """A group member sees everything; what it sees again, it sees behind the first time."""
    missing = lambda: acknowledged - set(map(int, member.seen()))
    wait_until(lambda: not missing(), lambda: f"not seen by the member: {sorted(missing())[:20]} ({len(missing())})", 80)
    for partition in range(PARTITIONS):
        seen = first_of_each([n for n in map(int, member.seen()) if n % PARTITIONS == partition])
        equal(seen, sorted(seen), f"order in which the member sees {partition}")
