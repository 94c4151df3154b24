"""Requests in the lines before the engine: clients that leave, time limits, and a drain that ends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from tiny_llm.sampling.grammar import Grammar, start_grammar
from tiny_llm.sampling.grammar import compiler as grammar_compiler
from tiny_llm.sampling.grammar.compiler import TRIALS
from tiny_llm.server.app import GRAMMAR_THREADS, THREADS
from tiny_llm.server.waiting import Threads

from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import SECONDS, RunningServer, read_all, running, wait_until
from .sockets.raw_requests import HEAD, parse
from .test_disconnects import LONG, reset, send

NUMBERS = count()


class Gate:
    """Calls that wait until `open`; `entered` counts them, `passed` those that wait no longer."""

    def __init__(self) -> None:
        self.entered = self.passed = 0
        self._open = threading.Event()

    def wait(self) -> None:
        self.entered += 1
        is_open = self._open.wait(SECONDS)
        self.passed += 1
        assert is_open

    def open(self) -> None:
        self._open.set()


@contextmanager
def slow_prompts(engine: FakeEngine) -> Iterator[Gate]:
    """Every prompt is encoded when the gate opens."""
    gate, kind = Gate(), type(engine.tokenizer)
    encode = kind.encode

    def wait(*arguments: Any, **options: Any) -> Any:
        gate.wait()
        return encode(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "encode", wait)
        yield gate


@contextmanager
def slow_grammars(engine: FakeEngine) -> Iterator[Gate]:
    """Every new grammar is compiled when the gate opens; then it has the time that it would have alone."""
    start_grammar(engine.tokenizer, Grammar.regex("the process has started"))
    gate, run = Gate(), TRIALS.run

    def wait(*arguments: Any) -> Any:
        gate.wait()
        return run(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TRIALS, "run", wait)
        patch.setattr(grammar_compiler, "CROWDED_SECONDS", grammar_compiler.SECONDS)
        yield gate


@contextmanager
def slow_submit(engine: FakeEngine) -> Iterator[Gate]:
    """The engine gets every request when the gate opens."""
    gate, submit = Gate(), engine.submit

    def wait(request: Any) -> Any:
        gate.wait()
        return submit(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "submit", wait)
        yield gate


def fields_of(line: str, number: int) -> dict[str, Any]:
    """A request that has to wait in this line; no other has its grammar."""
    grammar = {"structured_outputs": {"regex": f"a|{next(NUMBERS)}"}}
    return {"prompt": f"text {number}", **(grammar if line == "grammar" else {})}


Slow = Callable[[FakeEngine], Any]
LINES = {"prompt": (slow_prompts, THREADS, THREADS), "grammar": (slow_grammars, GRAMMAR_THREADS, 1)}
lines = pytest.mark.parametrize("line", LINES)


@lines
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_a_line_is_dropped_at_once(
    line: str, stream: bool, threads_of: dict[str, Threads]
) -> None:
    """While all threads are busy: its place is free again, and nothing of it reaches the engine."""
    slow, threads, _ = LINES[line]
    engine = FakeEngine()
    most = threads + 1
    with running(engine, **{f"max_{line}s": most}) as server, slow(engine) as gate:
        lifecycle, calls = server.server.lifecycle, lambda: threads_of[line]._calls

        def ask(number: int) -> socket.socket:
            connection = send(server, max_tokens=3, stream=stream, **fields_of(line, number))
            wait_until(lambda: calls() == number + 1)
            return connection

        connections = [ask(number) for number in range(most)]
        assert server.complete(**fields_of(line, most)).status == 429
        reset(connections.pop())
        wait_until(lambda: lifecycle.in_flight == threads)
        assert calls() == threads
        with ThreadPoolExecutor(1) as clients:
            other = clients.submit(lambda: server.complete(**fields_of(line, most)).status)
            wait_until(lambda: calls() == most)
            gate.open()
            assert other.result() == 200
        for connection in connections:
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
            connection.close()
    assert texts_of(engine) == [f"text {number}" for number in (*range(threads), most)]


@lines
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_ready_after_its_client_has_left_goes_no_further(line: str, stream: bool) -> None:
    """Its thread cannot be interrupted and keeps its place, but what it makes is thrown away."""
    slow, _, _ = LINES[line]
    engine = FakeEngine()
    with running(engine, **{f"max_{line}s": 1}) as server, slow(engine) as gate:
        connection = send(server, max_tokens=3, stream=stream, **fields_of(line, 1))
        wait_until(lambda: gate.entered == 1)
        reset(connection)
        wait_until(lambda: server.server.lifecycle.in_flight == 0)
        assert server.complete(**fields_of(line, 3)).status == 429
        gate.open()
        wait_until(lambda: server.complete(prompt="text 2").status == 200)
    assert texts_of(engine) == ["text 2"]


@lines
def test_the_time_limit_ends_a_request_in_a_line(line: str) -> None:
    """Both the one that a thread works for, and those that wait for a thread."""
    slow, threads, busy = LINES[line]
    engine = FakeEngine()
    with running(engine, request_timeout=0.5) as server, slow(engine) as gate:
        with ThreadPoolExecutor(threads + 1) as clients:
            asked = [
                clients.submit(server.complete, **fields_of(line, number)) for number in range(threads + 1)
            ]
            for each in asked:
                answer = each.result()
                assert (answer.status, answer.error["code"]) == (503, "deadline")
        assert 1 <= gate.entered <= busy
        gate.open()
        wait_until(lambda: server.complete(prompt="text 9").status == 200)
    assert set(texts_of(engine)) == {"text 9"}


@lines
def test_a_request_in_a_line_is_told_when_a_drain_is_over(line: str) -> None:
    slow, _, _ = LINES[line]
    engine = FakeEngine()
    with (
        running(engine, drain_timeout=0.2) as server,
        slow(engine) as gate,
        ThreadPoolExecutor(1) as clients,
    ):
        asked = clients.submit(server.complete, **fields_of(line, 1))
        wait_until(lambda: gate.entered == 1)
        server.server.stop()
        answer = asked.result()
        assert (answer.status, answer.error["code"]) == (503, "draining")
        assert answer.error["message"] == "the server has shut down before the answer was complete"
        gate.open()
    assert engine.requests == []


def send_part(server: RunningServer) -> socket.socket:
    """A request whose body has begun."""
    connection = server.connect()
    connection.sendall(HEAD + b'Content-Length: 50\r\n\r\n{"prompt":')
    wait_until(lambda: server.server.lifecycle.in_flight == 1)
    return connection


def test_a_body_that_comes_in_is_told_when_a_drain_is_over() -> None:
    with running(FakeEngine(), drain_timeout=0.2) as server, send_part(server) as connection:
        server.server.stop()
        answer = parse(read_all(connection))
        assert (answer.status, answer.error["code"]) == (503, "draining")
        assert (answer.headers["retry-after"], answer.headers["connection"]) == ("1", "close")


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_reaches_the_engine_after_the_cut_is_told_too(stream: bool) -> None:
    engine = FakeEngine(delay=0.01)
    with (
        running(engine, drain_timeout=0.2) as server,
        slow_submit(engine) as gate,
        ThreadPoolExecutor(1) as clients,
    ):
        asked = clients.submit(server.complete, max_tokens=LONG, stream=stream)
        wait_until(lambda: gate.entered == 1)
        server.server.stop()
        wait_until(lambda: server.server.should_exit)
        gate.open()
        answer = asked.result()
        assert b'"code":"draining"' in answer.body
        assert answer.status == (200 if stream else 503)
    (handle,) = engine.handles
    assert handle.cancelled


def test_the_time_limit_of_a_request_includes_its_body() -> None:
    with running(FakeEngine(), request_timeout=0.2) as server, send_part(server) as connection:
        answer = parse(read_all(connection))
        assert (answer.status, answer.error["code"]) == (503, "deadline")
        assert answer.headers["connection"] == "close"
        assert answer.headers["x-should-retry"] == "false"
        assert "retry-after" not in answer.headers


@pytest.mark.parametrize("new", [True, False])
def test_the_engine_never_compiles_a_grammar(new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when others have come since its own was compiled: all requests would wait for its thread."""
    engine = FakeEngine()
    fields = fields_of("grammar", 1)
    if not new:
        start_grammar(engine.tokenizer, Grammar.regex(fields["structured_outputs"]["regex"]))
    with running(engine) as server, slow_submit(engine) as gate, ThreadPoolExecutor(1) as clients:
        asked = clients.submit(server.complete, **fields)
        wait_until(lambda: gate.entered == 1)
        monkeypatch.setattr(grammar_compiler, "MAX_COMPILED", 1)
        start_grammar(engine.tokenizer, Grammar.regex(f"other {next(NUMBERS)}"))
        monkeypatch.setattr(grammar_compiler, "TRIALS", None)
        gate.open()
        assert asked.result().status == 200


@lines
def test_the_engine_gets_the_time_that_the_lines_have_left(line: str) -> None:
    slow, _, _ = LINES[line]
    engine = FakeEngine()
    with (
        running(engine, request_timeout=100) as server,
        slow(engine) as gate,
        ThreadPoolExecutor(1) as clients,
    ):
        answer = clients.submit(server.complete, **fields_of(line, 1))
        wait_until(lambda: gate.entered == 1)
        begin = time.monotonic()
        wait_until(lambda: time.monotonic() >= begin + 0.05)
        gate.open()
        assert answer.result().status == 200
    (request,) = engine.requests
    assert 0 < request.deadline <= 100 - 0.05


def test_a_request_without_a_time_limit_has_none_in_the_engine(server: RunningServer) -> None:
    for answer in (server.chat(), server.complete()):
        assert answer.status == 200
        assert server.engine.requests[-1].deadline is None


def test_who_leaves_a_line_is_counted_as_cancelled() -> None:
    engine = FakeEngine()
    with running(engine) as server, slow_prompts(engine) as gate:
        connection = send(server, **fields_of("prompt", 1))
        wait_until(lambda: gate.entered == 1)
        reset(connection)
        sample = b'request_success_total{finished_reason="cancelled",model_name="fake"} 1.0'
        wait_until(lambda: sample in server.get("/metrics").body)
        assert b'refused_total{reason="other"} 0.0' in server.get("/metrics").body
        gate.open()


def texts_of(engine: FakeEngine) -> list[str]:
    """The prompts that have reached the engine, sorted."""
    return sorted(engine.tokenizer.decode(request.prompt_ids) for request in engine.requests)
