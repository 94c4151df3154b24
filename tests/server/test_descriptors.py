"""Connections beyond the descriptors of the process: it accepts no more, and says so once."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tiny_llm.server.connection import MOST_DESCRIPTORS, RESERVED, accept, connections_within

from ..support.serving.running import SECONDS, wait_until
from ..support.virtual_time import at_once, now
from .test_program import FAKE, Program, started

# A test asks and limits the process of the server.
pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux has prlimit")


@contextmanager
def clients(program: Program, number: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(number):
            stack.enter_context(socket.create_connection(("127.0.0.1", program.port), timeout=SECONDS))
        yield


def descriptors(program: Program) -> int:
    return len(list(Path(f"/proc/{program.process.pid}/fd").iterdir()))


def log_of(program: Program) -> list[str]:
    """The messages of the log, whose lines are JSON, when the program has been stopped."""
    program.process.send_signal(signal.SIGTERM)
    _, logged = program.process.communicate(timeout=SECONDS)
    assert program.process.returncode == 0
    return [json.loads(line)["message"] for line in logged.splitlines()]


def test_the_soft_limit_is_raised() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with started(*FAKE, "0", shell='ulimit -S -n 200; exec "$@"') as program:
        soft, _ = resource.prlimit(program.process.pid, resource.RLIMIT_NOFILE)
    assert soft == (MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS))


def test_there_are_fewer_connections_than_descriptors() -> None:
    """The longest idle ones make room, as at the limit of connections."""
    limit = RESERVED + 20
    shell = f'ulimit -n {limit}; exec "$@"'
    with started(*FAKE, "0", "--log-format", "json", shell=shell) as program:
        before = descriptors(program)
        with clients(program, 300):
            assert program.get("/ready") == 200
            assert descriptors(program) <= before + 20
        messages = log_of(program)
    assert messages[0] == f"the limit of open files, {limit}, allows 20 connections instead of 1024"
    assert len(messages) < 10


def test_without_a_descriptor_no_connection_is_accepted_and_one_line_says_so() -> None:
    with started(*FAKE, "0", "--log-format", "json") as program:
        assert program.get("/ready") == 200
        pid = program.process.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        limit = descriptors(program) + 5
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, hard))
        with clients(program, 300):
            wait_until(lambda: descriptors(program) == limit)
        assert program.get("/ready") == 200
        messages = log_of(program)
    assert [each for each in messages if "accept" in each] == [
        "no connection can be accepted: Too many open files"
    ]
    assert len(messages) < 10


def test_a_limit_that_is_too_low_for_the_server_allows_one_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for soft, allowed in ((RESERVED - 1, 1), (RESERVED + 5, 5), (resource.RLIM_INFINITY, 9)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert connections_within(9) == allowed


@at_once
async def test_a_client_that_has_gone_before_it_is_accepted_delays_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ends = [ConnectionAbortedError(), ConnectionAbortedError(), asyncio.CancelledError()]

    async def accept_none(_: socket.socket) -> None:
        raise ends.pop(0)

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_accept", accept_none)
    with socket.socket() as listener, pytest.raises(asyncio.CancelledError):
        await accept(listener, asyncio.Protocol)
    assert (now(), caplog.records) == (0, [])
