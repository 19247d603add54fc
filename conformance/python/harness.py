"""What every Python client's program shares: the registry of scenarios and the command line.

`main.py list` prints version and scenarios, `main.py run NAME` runs one (0: held, 77: cannot run, else:
did not hold), `main.py member TOPIC GROUP` is a group member in a process of its own, to be killed, and
`main.py produce` a producer under which brokers are killed.
Not a test framework: one scenario, one process.
"""

import os
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field

SKIP = 77
BOOTSTRAP = os.environ.get("BOOTSTRAP", "")
# How many brokers there are, and how many replicas a topic is to have.
BROKERS = int(os.environ.get("BROKERS", "1"))
REPLICAS = int(os.environ.get("REPLICAS", "1"))
SCENARIOS = {}
_names = 0


@dataclass
class Record:
    """A record on its way in (partition and timestamp may be None) or out."""

    value: bytes | None
    key: bytes | None = None
    headers: list = field(default_factory=list)
    partition: int | None = None
    timestamp: int | None = None
    offset: int | None = None


class Skip(Exception):
    """This scenario cannot run with this client."""


def scenario(name):
    """Registers a function under the name that the table shows."""

    def register(function):
        SCENARIOS[name] = function
        return function

    return register


def name(word):
    """A name for a topic or a group that nobody else uses."""
    global _names
    _names += 1
    return f"{os.environ.get('RUN', 'run')}-{os.getpid()}-{word}-{_names}"


def check(condition, message):
    """Fails with `message` unless `condition` holds."""
    if not condition:
        raise AssertionError(message)


def equal(found, wanted, what):
    """Fails unless both are equal."""
    check(found == wanted, f"{what}: {shortened(found)} instead of {shortened(wanted)}")


def tell(counted):
    """Says what the client told its user: what was said, and how often."""
    words = [f"{what} ({count})" if count > 1 else what for what, count in sorted(counted.items())]
    return ", ".join(words) or "nothing"


def shortened(value):
    text = repr(value)
    return text if len(text) < 400 else f"{text[:400]}… ({len(text)} characters)"


def wait_until(condition, what, seconds=40):
    """Waits until `condition()` is true; fails with `what` when it never is."""
    deadline = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < deadline, f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.02)


def eventually(read, wanted, what):
    """Waits until `read()` equals `wanted`: a broker of Kafka applies a change of metadata a moment
    after the controller has acknowledged it."""
    wait_until(lambda: read() == wanted, lambda: f"{what}: {shortened(read())} instead of {shortened(wanted)}")


class MemberProcess:
    """A group member in a process of its own; `kill` is a crash."""

    def __init__(self, topic, group):
        arguments = [sys.executable, sys.argv[0], "member", topic, group]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)

    def wait_for_partitions(self):
        """Returns once the process owns at least one partition."""
        for line in self.process.stdout:
            if line.startswith("owns ") and line.strip() != "owns":
                return
        raise AssertionError("the member process ended before it owned a partition")

    def kill(self):
        self.process.kill()
        self.process.wait()


def serve_member(adapter, topic, group):
    """The body of the member process: says what it owns until it is killed."""
    member = adapter.member(topic, group)
    said = None
    while True:
        owned = sorted(member.owned())
        if owned != said:
            print("owns", *owned, flush=True)
            said = owned
        time.sleep(0.05)


def serve_steady(adapter):
    """The body of a producer under which brokers are killed."""
    # Each client has a module of that name beside its main.py.
    import steady_producer
    import steady

    steady.serve(adapter.version, steady_producer.start)


def main(adapter):
    """The program's command line."""
    command, *rest = sys.argv[1:]
    if command == "list":
        print(adapter.version)
        print(*SCENARIOS, sep="\n")
        return
    if command == "member":
        serve_member(adapter, *rest)
    if command == "produce":
        serve_steady(adapter)
        return
    try:
        SCENARIOS[rest[0]](adapter)
        code = 0
    except Skip as why:
        print(why)
        code = SKIP
    except BaseException:  # whatever it was, the table shows it
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of a client that failed must not keep the process.
    os._exit(code)
