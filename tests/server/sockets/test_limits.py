"""Limits of time and number for connections that send too little."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tiny_llm.server import app
from tiny_llm.server.connection import Connection
from tiny_llm.server.models import CHARS_PER_BYTE
from tiny_llm.server.settings import Settings
from tiny_llm.server.waiting import Threads

from ...support.serving import chat_models
from ...support.serving.fake_engine import FakeEngine
from ...support.serving.running import SECONDS, RunningServer, read_all, running, wait_until
from .raw_requests import HEAD, parse

GET = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    limits: dict[str, Any] = {
        "head_timeout": 0.2,
        "body_timeout": 0.2,
        "max_head": 4000,
        "max_connections": 20,
    }
    with running(FakeEngine(), **limits) as started:
        yield started


def test_a_header_that_does_not_end(server: RunningServer) -> None:
    assert parse(server.send_raw(HEAD)).error["code"] == "request_timeout"
    assert parse(server.send_raw(HEAD)).status == 408


@pytest.mark.parametrize("end", [b"", b"\r\nConnection: close\r\n\r\n"])
def test_a_header_that_is_too_large_is_refused_before_its_end_and_after_it(
    server: RunningServer, end: bytes
) -> None:
    answer = parse(server.send_raw(HEAD + b"X-Large: " + b"a" * 4000 + end))
    assert (answer.status, answer.error["code"]) == (431, "header_too_large")
    assert answer.error["message"].startswith("the header is too large")


def test_a_connection_that_is_lost_leaves_no_time_limit(server: RunningServer) -> None:
    """Or what was not sent would be refused later, and counted."""
    connections = server.server.server_state.connections
    wait_until(lambda: not connections)
    with server.connect() as client:
        client.sendall(HEAD)
        wait_until(lambda: connections)
        (protocol,) = connections
        protocol.loop.call_soon_threadsafe(protocol.pause_writing)
        wait_until(lambda: protocol._write_deadline)
    wait_until(lambda: not connections)
    assert (protocol._deadline, protocol._write_deadline) == (None, None)


def test_a_second_header_that_does_not_end(server: RunningServer) -> None:
    with server.connect() as connection:
        connection.sendall(GET)
        assert b"200 OK" in connection.recv(65536)
        connection.sendall(HEAD)
        assert parse(read_all(connection)).status == 408


def test_a_body_that_does_not_end(server: RunningServer) -> None:
    """Also one whose Content-Length is larger than what is sent."""
    answer = parse(server.send_raw(HEAD + b'Content-Length: 50\r\n\r\n{"prompt":'))
    assert (answer.status, answer.error["code"]) == (408, "request_timeout")


def test_a_connection_without_a_request_is_closed(server: RunningServer) -> None:
    assert server.send_raw(b"") == b""


def test_a_byte_at_a_time_does_not_extend_the_time_limit(server: RunningServer) -> None:
    with server.connect() as connection:
        answer = b""
        for byte in HEAD:
            try:
                connection.sendall(bytes([byte]))
            except OSError:  # closed
                break
            time.sleep(0.01)
        answer = read_all(connection)
    assert parse(answer).status == 408


def test_a_prompt_that_cannot_fit_is_refused_before_it_is_rendered_or_encoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A prompt of as many characters as the longest tokens of the context have is still encoded."""
    engine = FakeEngine()
    with running(engine) as server:
        most = engine.context * CHARS_PER_BYTE * engine.tokenizer.longest_token
        assert server.complete(prompt="a" * most).error["param"] == "prompt"
        for operation in ("encode", "apply_chat_template"):
            monkeypatch.setattr(type(engine.tokenizer), operation, forbidden)
        long = "a" * (most + 1)
        answers = [server.complete(prompt=long), server.chat(messages=[{"role": "user", "content": long}])]
        monkeypatch.undo()
        for answer in answers:
            assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
            sentence = f"the prompt is too long: expected at most {most} characters"
            assert answer.error["message"].endswith(sentence)
        assert server.chat().status == 200


def forbidden(*_: object, **__: object) -> None:
    raise AssertionError("the prompt is too long for this")


def test_prompts_that_wait_to_be_encoded_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, begun, over = FakeEngine(), threading.Event(), threading.Event()
    encode = type(engine.tokenizer).encode

    def wait(*arguments: Any, **options: Any) -> Any:
        begun.set()
        assert over.wait(SECONDS)
        return encode(*arguments, **options)

    with running(engine, max_prompts=1) as server, ThreadPoolExecutor(1) as clients:
        monkeypatch.setattr(type(engine.tokenizer), "encode", wait)
        slow = clients.submit(lambda: server.complete().status)
        assert begun.wait(SECONDS)
        refused = server.complete()
        assert (refused.status, refused.error["code"]) == (429, "prompt_queue_full")
        assert refused.headers["retry-after"] == "1"
        over.set()
        assert slow.result() == 200
        assert server.complete().status == 200


def test_a_thread_that_cannot_be_started_takes_no_place(threads_of: dict[str, Threads]) -> None:
    """The system may have no more threads for a moment."""
    with running(FakeEngine(), max_prompts=2) as server:
        threads = threads_of["prompt"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            for _ in range(app.THREADS + 1):
                assert server.complete().status == 500
        assert threads._calls == 0
        assert server.complete().status == 200


def refuse(*_: Any) -> None:
    raise RuntimeError("can't start new thread")


def test_half_open_connections_leave_room_for_requests() -> None:
    with running(FakeEngine(), head_timeout=300, max_connections=20) as server:
        half_open = [server.connect() for _ in range(100)]
        for connection in half_open:
            connection.sendall(HEAD)
        wait_until(lambda: len(server.server.server_state.connections) <= 20)
        assert server.chat().status == 200
        for connection in half_open:
            connection.close()


def test_a_connection_rests_since_its_last_answer() -> None:
    """Not since it was made: the one that makes room is the one that nobody used for the longest time."""

    def status(connection: http.client.HTTPConnection) -> int:
        connection.request("GET", "/version")
        with connection.getresponse() as response:
            assert response.read()
            return response.status

    with running(FakeEngine(), max_connections=2) as server, contextlib.ExitStack() as opened:
        connections = [http.client.HTTPConnection(*server.address, timeout=SECONDS) for _ in range(3)]
        for connection in connections:
            opened.callback(connection.close)
        oldest, resting, newest = connections
        assert [status(each) for each in (oldest, resting, oldest, newest, oldest)] == [200] * 5
        with pytest.raises(ConnectionError):
            status(resting)


def test_beyond_the_limit_of_requests_a_connection_is_refused() -> None:
    with running(FakeEngine(delay=0.01), max_connections=2) as server:
        body = b'{"prompt": "a", "max_tokens": 2000}'
        busy = [server.connect() for _ in range(2)]
        for connection in busy:
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: len(server.engine.running) == 2)
        answer = parse(server.send_raw(b""))
        assert (answer.status, answer.error["code"]) == (503, "too_many_connections")
        assert (answer.headers["retry-after"], answer.headers["connection"]) == ("1", "close")
        for connection in busy:
            connection.close()
        wait_until(lambda: server.engine.running == [])
        assert server.chat().status == 200


@pytest.mark.parametrize(
    ("route", "param", "fields_of"),
    [
        ("chat", "n", lambda size: {"n": size}),
        ("complete", "prompt", lambda size: {"prompt": ["a"] * size}),
        ("chat", "top_logprobs", lambda size: {"logprobs": True, "top_logprobs": size}),
        ("complete", "logprobs", lambda size: {"logprobs": size}),
        ("chat", "messages", lambda size: {"messages": [{"role": "user", "content": "a"}] * size}),
        ("chat", "tools", lambda size: {"tools": [{"type": "function", "function": {"name": "f"}}] * size}),
    ],
)
def test_a_limit_of_a_number_is_the_most_that_is_accepted(
    small_server: RunningServer, route: str, param: str, fields_of: Any
) -> None:
    ask = getattr(small_server, route)
    assert ask(**fields_of(2)).status == 200
    refused = ask(**fields_of(3))
    assert (refused.status, refused.error["param"]) == (400, param)


@pytest.fixture(scope="module")
def small_server() -> Iterator[RunningServer]:
    names = ("choices", "logprobs", "tools", "messages")
    engine = FakeEngine(tokenizer=chat_models.tokenizer_with(chat_models.TOOLS + chat_models.MESSAGES))
    with running(engine, **{f"max_{name}": 2 for name in names}, max_prompt_chars=1000) as started:
        yield started


def test_texts_that_a_template_drops_have_a_limit_too() -> None:
    engine = FakeEngine(tokenizer=chat_models.tokenizer_with("{{ messages[0].content }}"))
    with running(engine, max_prompt_chars=1000) as server:
        for size, status in ((998, 200), (999, 400)):
            turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "a" * size}]
            assert server.chat(messages=turns).status == status


def test_what_a_template_makes_of_texts_has_a_limit_too() -> None:
    engine = FakeEngine(tokenizer=chat_models.tokenizer_with("{{ messages[0].content * 2 }}"))
    with running(engine, max_prompt_chars=1000) as server:
        for size, status in ((500, 200), (501, 400)):
            assert server.chat(messages=[{"role": "user", "content": "a" * size}]).status == status


def test_tools_are_a_part_of_the_prompt_and_of_its_limit(small_server: RunningServer) -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "a" * 1000}}
    refused = small_server.chat(tools=[tool])
    assert (refused.status, refused.error["param"]) == (400, "tools")


def test_each_of_several_prompts_may_have_as_many_characters(small_server: RunningServer) -> None:
    assert small_server.complete(prompt=["a" * 600] * 2).status == 200


def test_what_a_template_drops_needs_no_room_in_the_context() -> None:
    """Such as space, and an answer of an earlier turn."""
    tokenizer = chat_models.tokenizer_with("{{ messages[0].content | trim }}")
    most = 16 * CHARS_PER_BYTE * tokenizer.longest_token
    with running(FakeEngine(tokenizer=tokenizer, context=16)) as server:
        turns = [("user", "Hi" + " " * most), ("assistant", "a" * (most + 1))]
        messages = [{"role": role, "content": text} for role, text in turns]
        assert server.chat(messages=messages).status == 200


@pytest.mark.parametrize(("closing", "closed"), [(True, []), (False, ["second"])])
def test_connections_that_close_already_are_not_too_many(closing: bool, closed: list[str]) -> None:
    """Else one more than necessary would lose its place. The longest idle one does."""
    aborted: list[str] = []

    def connection(name: str, idle_since: float, is_closing: bool = False) -> Connection:
        made = Connection.__new__(Connection)
        made.settings, made.cycle, made._idle_since = Settings(max_connections=2), None, idle_since
        abort = partial(aborted.append, name)
        made.transport = SimpleNamespace(is_closing=lambda: is_closing, abort=abort)  # type: ignore[assignment]
        return made

    newest = connection("newest", 3)
    newest.connections = {connection("first", 2, closing), connection("second", 1), newest}
    newest._make_room()
    assert aborted == closed
