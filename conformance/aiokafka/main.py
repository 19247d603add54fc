"""aiokafka: a Kafka client written in Python."""

import aiokafka
import harness
import records  # noqa: F401  (registers its scenarios)
import groups  # noqa: F401
import restarts  # noqa: F401
import admin  # noqa: F401
from client import Client

if __name__ == "__main__":
    harness.main(Client(aiokafka.__version__))
