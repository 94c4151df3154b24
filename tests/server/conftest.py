"""Servers that are shared by all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tiny_llm.engine import Engine
from tiny_llm.server import app
from tiny_llm.server.waiting import Threads

from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import RunningServer, running

# Tests that look only at answers run with each of these engines.
ENGINES = {"fake": FakeEngine, "embedded": lambda: Engine("tiny")}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """With an engine that answers at once, and shows what it was asked."""
    with running(FakeEngine()) as started:
        yield started


@pytest.fixture(scope="module", params=ENGINES)
def any_server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """With each engine, under the name "fake"."""
    with ENGINES[request.param]() as engine, running(engine) as started:
        yield started


@pytest.fixture
def threads_of(monkeypatch: pytest.MonkeyPatch) -> dict[str, Threads]:
    """The threads of the next server, by the name of their line."""
    found: dict[str, Threads] = {}

    def note(name: str, *arguments: Any) -> Threads:
        found[name] = Threads(name, *arguments)
        return found[name]

    monkeypatch.setattr(app, "Threads", note)
    return found
