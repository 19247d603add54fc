"""Scenarios about consumer groups: several members, rebalances, crashes, static and sticky members."""

import time

from harness import MemberProcess, Record, Skip, check, equal, name, scenario, wait_until
from records import make_topic

PARTITIONS = 6
ALL = set(range(PARTITIONS))


def fair(members):
    """All partitions are owned, none twice, and the load is even."""
    owned = [member.owned() for member in members]
    whole = sum(len(part) for part in owned) == PARTITIONS and set().union(*owned) == ALL
    return whole and max(map(len, owned)) - min(map(len, owned)) <= 1


def wait_for_fair(*members):
    wait_until(lambda: fair(members), lambda: f"fair shares, but {[sorted(member.owned()) for member in members]}")


def produce_everywhere(adapter, topic, word):
    records = [Record(b"%s %d" % (word, i), partition=i % PARTITIONS) for i in range(60)]
    adapter.produce(topic, records)
    return {record.value for record in records}


def wait_for_values(members, wanted):
    seen = lambda: set().union(*(set(member.seen()) for member in members))
    wait_until(lambda: wanted <= seen(), lambda: f"missing: {sorted(wanted - seen())[:5]}")


@scenario("group-rebalance")
def members_join_and_leave(adapter):
    topic, group = make_topic(adapter, "shared", PARTITIONS), name("group")
    first = adapter.member(topic, group)
    wait_until(lambda: first.owned() == ALL, "the first member owns everything")
    second, third = adapter.member(topic, group), adapter.member(topic, group)
    wait_for_fair(first, second, third)
    wait_for_values([first, second, third], produce_everywhere(adapter, topic, b"three"))
    third.close()
    wait_for_fair(first, second)
    wait_for_values([first, second, third], produce_everywhere(adapter, topic, b"two"))
    first.close()
    wait_until(lambda: second.owned() == ALL, "the last member owns everything")
    wait_for_values([first, second, third], produce_everywhere(adapter, topic, b"one"))
    second.close()


@scenario("group-crash")
def a_crashed_member_is_replaced(adapter):
    topic, group = make_topic(adapter, "crashed", PARTITIONS), name("group")
    victim = MemberProcess(topic, group)
    victim.wait_for_partitions()
    survivor = adapter.member(topic, group)
    wait_until(lambda: 0 < len(survivor.owned()) < PARTITIONS, "the two share")
    start = time.monotonic()
    victim.kill()
    wait_until(lambda: survivor.owned() == ALL, "the survivor owns everything")
    check(time.monotonic() - start > 2, "a crash was noticed before the session ended: the member left")
    wait_for_values([survivor], produce_everywhere(adapter, topic, b"after"))
    survivor.close()


@scenario("static-members")
def a_static_member_returns_without_a_rebalance(adapter):
    topic, group = make_topic(adapter, "static", PARTITIONS), name("group")
    stays = adapter.member(topic, group, instance="stays")
    returns = adapter.member(topic, group, instance="returns")
    wait_for_fair(stays, returns)
    owned, changes = returns.owned(), stays.changes()
    returns.close()
    again = adapter.member(topic, group, instance="returns")
    wait_until(lambda: again.owned() == owned, lambda: f"the same partitions {owned}, but {again.owned()}")
    wait_for_values([stays, again], produce_everywhere(adapter, topic, b"after"))
    equal(stays.changes(), changes, "changes of the other member's assignment")
    stays.close()
    again.close()


@scenario("static-fenced")
def of_two_members_with_one_instance_id_the_older_is_fenced(adapter):
    if not adapter.tells_fencing:
        raise Skip("this client does not tell its user that it was fenced")
    topic, group = make_topic(adapter, "fenced", PARTITIONS), name("group")
    older = adapter.member(topic, group, instance="one")
    wait_until(lambda: older.owned() == ALL, "the first member owns everything")
    newer = adapter.member(topic, group, instance="one")
    wait_until(lambda: newer.owned() == ALL, "the second member owns everything")
    wait_until(older.failed, "the first member has failed")
    check("FENCED" in older.failed().upper(), f"the first member's error is {older.failed()}")
    newer.close()


@scenario("cooperative-sticky")
def partitions_that_stay_are_not_revoked(adapter):
    topic, group = make_topic(adapter, "sticky", PARTITIONS), name("group")
    first = adapter.member(topic, group, cooperative=True)
    wait_until(lambda: first.owned() == ALL, "the first member owns everything")
    second = adapter.member(topic, group, cooperative=True)
    wait_for_fair(first, second)
    equal(first.revoked(), PARTITIONS // 2, "partitions revoked from the first member")
    wait_for_values([first, second], produce_everywhere(adapter, topic, b"two"))
    second.close()
    wait_until(lambda: first.owned() == ALL, "the first member owns everything again")
    equal(first.revoked(), PARTITIONS // 2, "partitions revoked from the first member at the end")
    first.close()


@scenario("committed-offsets")
def commits_are_kept_with_their_metadata(adapter):
    topic, group = make_topic(adapter, "committed", 2), name("group")
    equal(adapter.committed(group, topic, 0), (None, None), "before any commit")
    adapter.commit(group, topic, 0, 17, "a note")
    adapter.commit(group, topic, 1, 3, "")
    equal(adapter.committed(group, topic, 0), (17, "a note"), "partition 0")
    equal(adapter.committed(group, topic, 1), (3, ""), "partition 1")
    adapter.commit(group, topic, 0, 5, "")
    equal(adapter.committed(group, topic, 0), (5, ""), "a later commit, though lower")


@scenario("group-resumes")
def a_group_goes_on_where_it_stopped(adapter):
    topic, group = make_topic(adapter, "resumed", 1), name("group")
    adapter.produce(topic, [Record(b"%d" % i) for i in range(10)])
    first = adapter.member(topic, group)
    wait_until(lambda: len(first.seen()) == 10, "all ten records")
    first.close()
    adapter.produce(topic, [Record(b"%d" % i) for i in range(10, 15)])
    second = adapter.member(topic, group)
    wait_until(lambda: len(second.seen()) >= 5, "the five new records")
    equal(second.seen(), [b"%d" % i for i in range(10, 15)], "what the second member reads")
    second.close()
