"""pytest fixtures: a broker for each test, or for the whole run."""

from __future__ import annotations

from typing import Any, Iterator

import pytest

from .broker import TestBroker


@pytest.fixture
def highwater_options() -> dict[str, Any]:
    """Arguments of :class:`TestBroker` for ``highwater``; override it in a test module or class."""
    return {}


@pytest.fixture
def highwater(highwater_options: dict[str, Any]) -> Iterator[TestBroker]:
    """A broker of this test alone."""
    with TestBroker(**highwater_options) as broker:
        yield broker


@pytest.fixture(scope="session")
def highwater_session() -> Iterator[TestBroker]:
    """One broker for all tests of the run."""
    with TestBroker() as broker:
        yield broker
