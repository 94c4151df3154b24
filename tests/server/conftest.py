"""A server with an engine that answers at once, shared by all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import RunningServer, running


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running(FakeEngine()) as started:
        yield started
