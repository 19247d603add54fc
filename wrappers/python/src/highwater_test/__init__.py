"""A Kafka broker for tests: starts ``highwater test-broker`` and ends it, with faults by rule."""

from .broker import HighwaterError, TestBroker, find_binary

__all__ = ["HighwaterError", "TestBroker", "find_binary"]
