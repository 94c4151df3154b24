"""Whatever ends a request leaves no place, no memory and no callback; a server at rest hears of its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tiny_llm.errors import ArgumentError, QueueFull
from tiny_llm.server import run

from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import RunningServer, running, wait_until
from .sockets.raw_requests import HEAD
from .test_disconnects import reset, send

CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """With little room for bodies and prompts, so that any that is not given back is missed."""
    limits: dict[str, Any] = {"max_body": 1000, "request_memory": 10 * 2**20, "max_prompts": 2}
    with running(FakeEngine(), inline_body=50, body_timeout=0.1, **limits) as started:
        yield started


def leave_early(server: RunningServer) -> None:
    with server.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 999\r\n\r\n" + b" " * 900)
        wait_until(lambda: server.server.lifecycle.in_flight == 1)


def leave(server: RunningServer) -> None:
    server.engine.delay = 0.01
    connection = send(server, prompt="a", max_tokens=2000)
    wait_until(lambda: server.engine.running)
    reset(connection)
    wait_until(lambda: not server.engine.running)


def fail(server: RunningServer, stream: bool) -> None:
    server.engine.failure = ValueError("a fault")
    # A thread may still have the bodies before, which have to leave room for this one: 503.
    wait_until(lambda: server.complete(stream=stream).status == (200 if stream else 500))


ENDS: dict[str, Callable[[RunningServer], object]] = {
    "answered": lambda server: server.complete(prompt="a " * 100),
    "streamed": lambda server: server.complete(prompt="a " * 100, stream=True),
    "not JSON": lambda server: server.request("POST", "/v1/completions", b"{" * 900),
    "a wrong value": lambda server: server.complete(n=0, user="a" * 100),
    "beyond the context": lambda server: server.complete(prompt=[5] * 100, max_tokens=9999),
    "an unknown model": lambda server: server.complete(prompt="a" * 100, model="b"),
    "too large": lambda server: server.send_raw(CHUNKED + b"%x\r\n%b\r\n" % (900, b" " * 900) * 2),
    "too slow": lambda server: server.send_raw(HEAD + b"Content-Length: 999\r\n\r\n" + b" " * 900),
    "left early": leave_early,
    "left": leave,
    "failed": lambda server: fail(server, stream=False),
    "failed in a stream": lambda server: fail(server, stream=True),
}


@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_left_of_a_request(server: RunningServer, end: str) -> None:
    for _ in range(4):
        ENDS[end](server)
    server.engine.delay, server.engine.failure = 0.0, None
    wait_until(lambda: server.server.lifecycle.in_flight == 0)
    assert server.server.lifecycle._cuts == []
    wait_until(lambda: server.complete(prompt="a" * 800).status == 200)


@pytest.mark.parametrize("refusal", [QueueFull(1), ArgumentError("submit", "max_tokens", 9, 8), ValueError()])
def test_all_prompts_of_a_request_run_or_none(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    engine = server.engine
    submit, before = engine.submit, len(engine.handles)

    def refuse_second(request: Any) -> Any:
        if len(engine.handles) > before:
            raise refusal
        return submit(request)

    monkeypatch.setattr(engine, "submit", refuse_second)
    # Until then, a thread may have the body of the last request: 503, before anything is submitted.
    wait_until(lambda: server.complete(prompt=["a", "b"]).status in (400, 429, 500))
    (handle,) = engine.handles[before:]
    assert handle.cancelled
    handle.ended = True


def test_freed_memory_goes_back_to_the_system_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    returned: list[bool] = []
    monkeypatch.setattr(run, "TICKS_OF_A_MINUTE", 2)
    monkeypatch.setattr(run, "return_freed_memory", lambda: returned.append(True))
    with running(FakeEngine()):
        wait_until(lambda: len(returned) > 1)


def test_a_server_at_rest_wakes_for_nothing_but_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[int] = []
    on_tick = run.Server.on_tick

    async def counted(server: run.Server, counter: int) -> bool:
        ticks.append(counter)
        return await on_tick(server, counter)

    monkeypatch.setattr(run.Server, "on_tick", counted)
    monkeypatch.setattr(run, "REST", 10**6)
    with running(FakeEngine()) as server:
        assert server.chat().status == 200
        time.sleep(0.3)  # three times as long as uvicorn's loop would sleep
        assert ticks == [0]
        server.server.stop()
        wait_until(lambda: server.server.should_exit)
