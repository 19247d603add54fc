"""Names that exist, for half of what schemathesis makes up: with names by chance alone nothing but 404 would be seen."""

import os

import schemathesis

TOPIC = os.environ["TOPIC"]
CLUSTER = os.environ["CLUSTER"]
INSTANCES = os.environ["INSTANCES"].split(",")


def is_replaced(name):
    """Whether this made-up name gives way: about two in three, always the same ones, and none that is wrong on purpose."""
    return isinstance(name, str) and 0 < len(name) < 256 and sum(name.encode(errors="replace")) % 3 > 0


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    if not path_parameters:
        return path_parameters
    known = dict(path_parameters)
    for parameter, value in (("topic", TOPIC), ("topics", TOPIC), ("cluster", CLUSTER)):
        if parameter in known and is_replaced(known[parameter]):
            known[parameter] = value
    partition = known.get("partition")
    if type(partition) is int and 0 <= partition < 2**31 and partition % 3 > 0:
        known["partition"] = 0
    if "name" in known and is_replaced(known["name"]) and is_replaced(known.get("group")):
        number = len(known["group"]) % len(INSTANCES)
        known["group"], known["name"] = "openapi", INSTANCES[number]
    return known
