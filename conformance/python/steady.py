"""`main.py produce`: a producer that goes on at a steady rate while brokers are killed, for the laboratory's
x-failover. What it reads and writes is said in docs/lab.md.

Beside each client's `main.py` is a module `steady_producer` with one name, `start(topic, told)`. It gives an object
with `send(sequence, partition, value)`, called once a record in their order, and `close()`.
"""

import os
import sys
import threading
import time


class Told:
    """What the library told, as lines."""

    def __init__(self):
        self._lock = threading.Lock()

    def say(self, line):
        with self._lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def acknowledged(self, sequence, partition, offset):
        offset = -1 if offset is None else offset
        self.say(f"ack {sequence} {partition} {offset} {time.time_ns() // 1000}")

    def failed(self, sequence, error):
        self.say(f"error {sequence} {' '.join(repr(error).split())}")


class Input(threading.Thread):
    """Where to send, and whether to go on, as standard input says."""

    def __init__(self):
        super().__init__(daemon=True)
        self.partition = None
        self.ended = threading.Event()

    def run(self):
        for line in sys.stdin:
            self.partition = int(line.removeprefix("partition "))
        self.ended.set()


def serve(version, start):
    """The body of the process."""
    told = Told()
    producer = start(os.environ["TOPIC"], told)
    wanted = Input()
    wanted.start()
    told.say(f"ready {version}")
    pause, size = 1 / float(os.environ["RATE"]), int(os.environ["RECORD_BYTES"])
    due, sequence = time.monotonic(), 0
    while not wanted.ended.is_set():
        due += pause
        if (left := due - time.monotonic()) > 0:
            time.sleep(left)
        if wanted.partition is not None:
            producer.send(sequence, wanted.partition, f"{sequence} ".ljust(size, ".").encode())
            sequence += 1
    producer.close()
