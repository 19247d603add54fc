"""confluent-kafka: librdkafka as Python programs use it."""

import confluent_kafka
import harness
import records  # noqa: F401  (registers its scenarios)
import groups  # noqa: F401
import restarts  # noqa: F401
import admin  # noqa: F401
import refusals  # noqa: F401
from client import Client

if __name__ == "__main__":
    harness.main(Client(confluent_kafka.__version__))
