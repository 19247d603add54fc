"""Names and ids that exist, for much of what schemathesis makes up: with those by chance alone nothing but refusals would be seen."""

import os

import schemathesis

TOPIC = os.environ["TOPIC"]
CLUSTER = os.environ["CLUSTER"]
TICKET = os.environ["TICKET"]
INSTANCES = os.environ["INSTANCES"].split(",")


def is_replaced(name):
    """Whether this made-up name gives way: about two in three, always the same ones, and none that is wrong on purpose."""
    return isinstance(name, str) and 0 < len(name) < 256 and sum(name.encode(errors="replace")) % 3 > 0


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    if not path_parameters:
        return path_parameters
    known = dict(path_parameters)
    # Those of our document, and of the bridge's.
    for parameter, value in (("topic", TOPIC), ("topics", TOPIC), ("topicname", TOPIC), ("cluster", CLUSTER)):
        if parameter in known and is_replaced(known[parameter]):
            known[parameter] = value
    for parameter in ("partition", "partitionid"):
        partition = known.get(parameter)
        if type(partition) is int and 0 <= partition < 2**31 and partition % 3 > 0:
            known[parameter] = 0
    group = "group" if "group" in known else "groupid"
    if "name" in known and is_replaced(known["name"]) and is_replaced(known.get(group)):
        number = len(known[group]) % len(INSTANCES)
        known[group], known["name"] = "openapi", INSTANCES[number]
    return known


# An id is what the gateway sent with an event: no schema tells a whole one from a damaged one. In all three forms.
IDS = [f"{TOPIC}/0@0", f"{TOPIC}/1@-1", f'[{{"topic":"{TOPIC}","partition":0,"offset":1}}]', "AQ"]


@schemathesis.hook
def map_case(context, case):
    """A ticket is one that was given: any text fits the document, and one that is void hides all else. Where a request is to be
    served, its id is one that could have come."""
    if isinstance(case.query, dict) and isinstance(case.query.get("ticket"), str):
        case.query["ticket"] = TICKET
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return case
    if isinstance(case.query, dict) and isinstance(case.query.get("lastEventId"), str):
        case.query["lastEventId"] = IDS[len(case.query["lastEventId"]) % len(IDS)]
    if case.operation.path == "/groups/{group}/ack" and isinstance(case.body, str):
        case.body = IDS[len(case.body) % len(IDS)]
    return case
