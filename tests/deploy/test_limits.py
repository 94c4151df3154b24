"""How long requests wait for a replica, and how much memory their bodies take in the gateway."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.types import Message

from tiny_llm.deploy import gateway as gateway_module
from tiny_llm.deploy.gateway import COPIES, Gateway
from tiny_llm.server.middleware.body import RequestMemory, decoded_size
from tiny_llm.server.settings import Settings

from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import SECONDS, wait_until
from .local import gateway

CHAT = "/v1/chat/completions"
MIB, PART = 2**20, 2**16


@pytest.fixture
def engines() -> dict[str, FakeEngine]:
    return {name: FakeEngine() for name in ("a", "b")}


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/health"])
def test_a_request_that_no_replica_takes_gets_503_in_time(engines: dict[str, FakeEngine], path: str) -> None:
    with gateway(engines, taken_seconds=0.2) as (server, replicas):
        replicas.hung = {"a", "b"}
        start = time.perf_counter()
        body = {"messages": [{"role": "user", "content": "Hello"}]}
        answer = server.get(path) if path == "/health" else server.request("POST", path, body)
        assert 0.2 <= time.perf_counter() - start < 5
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert answer.record["error"]["message"] == "no replica has taken the request within 0.2 s"
        assert not any(replicas.loads.values())  # the router has forgotten it


def test_a_replica_that_is_being_started_gets_the_requests_that_wait(engines: dict[str, FakeEngine]) -> None:
    with gateway(engines) as (server, replicas), ThreadPoolExecutor() as threads:
        replicas.hung = {"a", "b"}
        waiting = threads.submit(server.chat)
        wait_until(lambda: replicas.answered)
        replicas.hung.clear()
        assert waiting.result().status == 200


def test_an_answer_may_take_longer_than_the_wait_for_a_replica(engines: dict[str, FakeEngine]) -> None:
    for engine in engines.values():
        engine.delay = 0.1
    with gateway(engines, taken_seconds=0.3) as (server, _):
        assert server.chat(max_tokens=6).status == 200


def test_no_request_waits_longer_than_its_own_time(engines: dict[str, FakeEngine]) -> None:
    with gateway(engines, request_timeout=0.2) as (server, replicas):
        replicas.hung = {"a", "b"}
        answer = server.chat()
    assert (answer.status, answer.record["error"]["code"]) == (503, "deadline")


class Silent:
    """Replicas that take all requests, and answer none."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    async def answer(self, _: Any, body: bytes, prefix: bytes | None) -> AsyncGenerator[list[Message], None]:
        self.taken.append(body)
        yield []
        await asyncio.Event().wait()

    def names(self) -> list[str]:
        return []

    async def answer_of(self, *_: Any) -> list[Message]:
        raise NotImplementedError


@dataclass
class Streamed:
    """A gateway, and requests to it whose bodies come in parts, made when they are read."""

    limit: int
    memory: RequestMemory
    replicas: Silent = field(default_factory=Silent)

    def __post_init__(self) -> None:
        self.gateway = Gateway(self.replicas, Settings(request_memory=self.limit))

    async def status(self, part: bytes, *headers: tuple[bytes, bytes]) -> int:
        """Of a body of a MiB of this text."""
        parts = itertools.chain([b'"'], (part * (PART // len(part)) for _ in range(MIB // PART)), [b'"', b""])
        statuses: list[int] = []

        async def receive() -> Message:
            if (part := next(parts, None)) is None:  # the client waits
                await asyncio.Event().wait()
            return {"type": "http.request", "body": part, "more_body": part != b""}

        async def send(message: Message) -> None:
            statuses.extend([message["status"]] if "status" in message else [])

        target = {"path": CHAT, "raw_path": CHAT.encode(), "query_string": b""}
        given = [(b"content-type", b"application/json"), (b"host", b"localhost"), *headers]
        await self.gateway({"type": "http", "method": "POST", **target, "headers": given}, receive, send)
        return statuses[0]

    @asynccontextmanager
    async def in_flight(self, number: int, part: bytes) -> AsyncIterator[None]:
        """So many requests, each after a replica has taken the one before."""
        asked: list[asyncio.Task[int]] = []
        try:
            for _ in range(number):
                asked.append(asyncio.create_task(self.status(part)))
                while len(self.replicas.taken) < len(asked):
                    assert not asked[-1].done(), asked[-1].result()
                    await asyncio.sleep(0)
            yield
        finally:
            for each in asked:
                each.cancel()
            await asyncio.gather(*asked, return_exceptions=True)


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Streamed]:
    def make(limit: int) -> Streamed:
        memory = RequestMemory(limit)
        monkeypatch.setattr(gateway_module, "RequestMemory", lambda _: memory)
        return Streamed(limit, memory)

    return make


@pytest.mark.parametrize("part", [b"a", "ä".encode(), b"1,[{"], ids=["ascii", "wide", "values"])
def test_no_more_is_held_than_requests_in_flight_times_their_bodies(
    streamed: Callable[[int], Streamed], part: bytes
) -> None:
    """Whatever they are decoded to, which the gateway needs once while it reads their beginning."""
    body = bytearray(b'"' + part * (MIB // len(part)) + b'"')
    size = len(body)
    alone = size + decoded_size(body)

    async def run() -> None:
        some = streamed(7 * COPIES * size + alone)
        async with some.in_flight(8, part):
            assert some.memory.held == 8 * COPIES * size
        assert some.memory.held == 0

    asyncio.run(asyncio.wait_for(run(), SECONDS))


def test_what_is_held_is_what_bodies_take(streamed: Callable[[int], Streamed]) -> None:
    async def run() -> None:
        some = streamed(512 * MIB)
        async with some.in_flight(8, b"a"):
            gc.collect()
            ours, of_ray = tracemalloc.get_traced_memory()[0], 8 * MIB
            assert ours + of_ray <= some.memory.held * 1.05

    tracemalloc.start()
    try:
        asyncio.run(asyncio.wait_for(run(), SECONDS))
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("headers", "limit", "status"),
    [([], MIB // 2, 503), ([(b"content-encoding", b"gzip")], 512 * MIB, 415)],
    ids=["without a length", "compressed"],
)
def test_a_body_whose_size_is_not_told_is_refused_in_time(
    streamed: Callable[[int], Streamed], headers: list[tuple[bytes, bytes]], limit: int, status: int
) -> None:
    some = streamed(limit)
    assert asyncio.run(asyncio.wait_for(some.status(b"a", *headers), SECONDS)) == status
    assert some.replicas.taken == []
    assert some.memory.held == 0
