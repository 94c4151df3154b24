"""What a request took is free when it has been answered: nothing waits for Python's collector of cycles."""

from __future__ import annotations

import gc
import http.client
import json
import re
import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tiny_llm.errors import QueueFull
from tiny_llm.server import app, run
from tiny_llm.server.api import decode
from tiny_llm.server.middleware.body import RequestMemory

from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import SECONDS, RunningServer, running, wait_until
from .sockets.raw_requests import HEAD
from .test_disconnects import LONG, reset, send
from .test_program import FAKE, started
from .test_waiting import LINES, fields_of, lines, slow_prompts

MIB = 2**20
POSTS = 48
SERVER = str(Path(run.__file__).parent)
STATUS = Path("/proc/self/status")
large = {"a": "b " * 100_000}
USER = {"role": "user", "content": "Once"}


@contextmanager
def without_the_collector() -> Iterator[None]:
    """Afterwards no frame of the server, and no error of one, is part of a cycle."""
    gc.freeze()  # what is there already is not looked through
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [place(each) for each in gc.garbage if isinstance(each, FrameType)]
        assert [each for each in left if each.startswith(SERVER)] == []
        assert [each for each in gc.garbage if isinstance(each, Exception)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}: {frame.f_code.co_name}"


def at_rest(server: RunningServer) -> None:
    wait_until(lambda: server.server.lifecycle.in_flight == 0)
    wait_until(lambda: not server.server.server_state.connections)


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": large},
        {"prompt": 5, "metadata": large},
        {"model": "none", "metadata": large},
        {"prompt": "a " * 3000},
        {"prompt": "a" * 9 * MIB},
        {"structured_outputs": {"regex": "(("}},
        {"metadata": {"a": [[]] * 100_000}},
    ],
    ids=[
        "answered",
        "a wrong field",
        "no such model",
        "too long",
        "too large",
        "no grammar",
        "too many values",
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_answered_request_leaves_no_cycle(fields: dict[str, Any], stream: bool) -> None:
    with running(FakeEngine(), request_memory=16 * MIB) as server:
        assert server.complete().status == 200
        with without_the_collector():
            server.complete(stream=stream, **fields)
            at_rest(server)


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_leaves_no_cycle(stream: bool) -> None:
    engine = FakeEngine()
    with running(engine) as server:
        assert server.complete().status == 200
        with without_the_collector():
            engine.failure = RuntimeError("broken")
            server.complete(stream=stream)
            engine.failure = None
            engine.refusal = QueueFull(1)
            assert server.complete(stream=stream).status == 429
            engine.refusal = None
            engine.handles.clear()
            at_rest(server)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_leaves_no_cycle(stream: bool) -> None:
    with running(FakeEngine(delay=0.01)) as server:
        assert server.complete(max_tokens=1).status == 200
        with without_the_collector():
            connection = send(server, prompt="Once", max_tokens=LONG, stream=stream)
            wait_until(lambda: server.engine.running)
            reset(connection)
            with server.connect() as part:
                part.sendall(HEAD + b'Content-Length: 50\r\n\r\n{"prompt":')
                wait_until(lambda: server.server.lifecycle.in_flight)
            at_rest(server)


@lines
def test_a_client_that_leaves_a_line_leaves_no_cycle(line: str) -> None:
    slow, _, _ = LINES[line]
    engine = FakeEngine()
    with running(engine) as server, slow(engine) as gate, without_the_collector():
        connection = send(server, metadata=large, **fields_of(line, 1))
        wait_until(lambda: gate.entered == 1)
        reset(connection)
        wait_until(lambda: server.server.lifecycle.in_flight == 0)
        gate.open()
        at_rest(server)


@lines
def test_time_limits_leave_no_cycle(line: str) -> None:
    slow, _, _ = LINES[line]
    engine = FakeEngine()
    with (
        running(engine, request_timeout=0.5, body_timeout=0.2) as server,
        slow(engine) as gate,
        without_the_collector(),
    ):
        assert server.complete(**fields_of(line, 1)).error["code"] == "deadline"
        assert b"request_timeout" in server.send_raw(HEAD + b"Content-Length: 50\r\n\r\n")
        gate.open()
        at_rest(server)


def test_a_drain_leaves_no_cycle() -> None:
    with without_the_collector(), running(FakeEngine(delay=0.01), drain_timeout=0.1) as server:
        streams = [send(server, prompt="Once", max_tokens=LONG, stream=stream) for stream in (False, True)]
        wait_until(lambda: len(server.engine.running) == 2)
        server.server.stop()
        for each in streams:
            while each.recv(65536):
                pass
            each.close()
        at_rest(server)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/completions", {"prompt": "Once", "max_tokens": LONG}),
        ("/v1/chat/completions", {"messages": [USER]}),
        ("/v1/messages", {"messages": [USER], "max_tokens": LONG}),
        ("/v1/responses", {"input": [USER, {"type": "reasoning", "name": "b" * 4 * MIB}], "metadata": {}}),
        ("/v1/responses", {"input": "Once", "metadata": {"a": [[]] * 60_000}}),  # which its answer repeats
        ("/api/chat", {"messages": [USER]}),
    ],
)
def test_a_body_and_its_fields_are_free_while_the_answer_streams(
    path: str, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = RequestMemory(512 * MIB)
    monkeypatch.setattr(app, "RequestMemory", lambda limit: bodies)
    fields = {"metadata": {"a": "b" * 4 * MIB}, **fields}
    with running(FakeEngine(delay=0.01)) as server:
        tracemalloc.start()
        try:
            connection = send(server, path, stream=True, **fields)
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
            wait_until(
                lambda: tracemalloc.get_traced_memory()[0] < 2 * MIB
            )  # a thread may still end its call
            wait_until(lambda: bodies.held < MIB)  # its tokens are left
            assert server.engine.running
        finally:
            tracemalloc.stop()
        connection.close()


def test_a_body_counts_while_a_thread_decodes_it_for_a_client_that_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bodies, begun, over = RequestMemory(512 * MIB), threading.Event(), threading.Event()

    def slow(names: set[str], given: dict[str, Any]) -> None:
        begun.set()
        assert over.wait(SECONDS)

    monkeypatch.setattr(app, "RequestMemory", lambda limit: bodies)
    monkeypatch.setattr(decode, "_check_unknown", slow)  # its last step
    with running(FakeEngine(), inline_body=1000) as server:
        connection = send(server, prompt="a" * 2000)
        assert begun.wait(SECONDS)
        reset(connection)
        wait_until(lambda: server.server.lifecycle.in_flight == 0)
        assert bodies.held >= 2000
        over.set()
        wait_until(lambda: bodies.held == 0)


def test_a_body_counts_while_a_thread_makes_its_prompt_for_a_client_that_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bodies, engine = RequestMemory(512 * MIB), FakeEngine()
    monkeypatch.setattr(app, "RequestMemory", lambda limit: bodies)
    with running(engine) as server, slow_prompts(engine) as gate:
        connection = send(server, prompt="Once", metadata=large)
        wait_until(lambda: gate.entered == 1)
        reset(connection)
        wait_until(lambda: server.server.lifecycle.in_flight == 0)
        assert bodies.held >= 200_000
        gate.open()
        wait_until(lambda: bodies.held == 0)


@pytest.mark.skipif(not STATUS.exists(), reason="this system has no /proc")
def test_refused_bodies_do_not_stay_in_memory() -> None:
    """Bursts of large bodies, on connections that stay open: resident memory stays near their limit."""
    wrong = json.dumps({"messages": 5, "metadata": {"a": "b" * 7 * MIB}}).encode()

    def post(port: int) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        connection.request("POST", "/v1/chat/completions", wrong, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status in (400, 503)
        answer.read()
        return connection

    with started(*FAKE, "0", shell='exec "$@" 2>/dev/null') as program, ThreadPoolExecutor(POSTS) as clients:
        before = resident(program.process.pid)
        for _ in range(2):
            connections = list(clients.map(post, [program.port] * POSTS))
            assert resident(program.process.pid) - before < 512 * MIB
            for each in connections:
                each.close()


def resident(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024
