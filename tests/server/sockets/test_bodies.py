"""Bodies of requests: their limits, alone and together, and where they are decoded."""

from __future__ import annotations

import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tiny_llm.engine import EngineRequest
from tiny_llm.errors import QueueFull
from tiny_llm.sampling.grammar import Grammar, compile_grammar
from tiny_llm.sampling.params import Sampling
from tiny_llm.server import app, endpoint
from tiny_llm.server.api.decode import decode
from tiny_llm.server.api.job import Job
from tiny_llm.server.middleware.body import RequestMemory, Share, decoded_size

from ...support.serving.fake_engine import FakeEngine
from ...support.serving.running import read_all, running, wait_until
from .raw_requests import HEAD, parse

NOTHING: Any = None


def test_a_large_body_is_decoded_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def note(body: bytes, fields: Any) -> Any:
        threads.append(threading.current_thread().name.partition("_")[0])
        return decode(body, fields)

    monkeypatch.setattr(endpoint, "decode", note)
    with running(FakeEngine(), inline_body=1000) as server:
        assert server.complete(prompt="a " * 20).status == 200
        assert server.complete(prompt="a " * 800).status == 200
        assert server.complete(prompt="a " * 800, n="two").error["param"] == "n"
    loop, *others = threads
    assert others == ["body", "body"]
    assert loop != "body"


def test_large_bodies_are_decoded_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes many times its size while it is decoded."""
    at_once, most = 0, 0

    def note(body: bytes, fields: Any) -> Any:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        time.sleep(0.05)
        at_once -= 1
        return decode(body, fields)

    monkeypatch.setattr(endpoint, "decode", note)
    with running(FakeEngine(), inline_body=1000) as server, ThreadPoolExecutor(4) as clients:
        answers = [clients.submit(server.complete, prompt="a " * 800) for _ in range(4)]
        assert [answer.result().status for answer in answers] == [200] * 4
    assert most == 1


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_may_be_as_large_as_its_limit(chunked: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Whether its size is known before or not."""
    with running(FakeEngine(), max_body=1000) as server:
        for size, status in ((1000, 200), (1001, 413)):
            body = msgspec.json.encode({"prompt": "a", "max_tokens": 1}).ljust(size)
            head = b"Content-Length: %d\r\n\r\n" % size
            if chunked:
                head, body = b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n%b\r\n0\r\n\r\n" % (size, body)
            assert parse(server.send_raw(HEAD + b"Connection: close\r\n" + head + body)).status == status
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


def test_what_is_not_http_behind_an_answer_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing more can be said: the answer has begun before the end of the body."""
    with running(FakeEngine(), max_body=1000) as server, server.connect() as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n7d0\r\n%b\r\n" % (b" " * 2000))
        assert connection.recv(65536).startswith(b"HTTP/1.1 413")
        connection.sendall(b"no chunk\r\n")
        assert b"HTTP" not in read_all(connection)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_all_bodies_together_have_a_limit() -> None:
    """A body counts twice, as its bytes and as its fields, until its prompt is made."""
    with running(FakeEngine(), request_memory=400_000) as server:
        large = {"prompt": "a" * 600, "max_tokens": 1, "metadata": {"a": "b" * 100_000}}
        assert server.complete(**large).status == 200
        never = server.complete(metadata={"a": "b" * 200_000})
        assert (never.status, never.error["code"]) == (413, "body_too_large")
        with server.connect() as connection:
            connection.sendall(HEAD + b"Content-Length: 300001\r\n\r\n" + b" " * 300_000)
            wait_until(lambda: server.server.lifecycle.in_flight == 1)
            refused = server.complete(**large)
            assert (refused.status, refused.error["code"]) == (503, "request_memory_full")
            assert server.complete(max_tokens=1).status == 200
        # A thread may have the fields of the last request for a moment longer than its client waits.
        wait_until(lambda: server.complete(**large).status == 200)


def test_an_answer_counts_until_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 260 bytes for each token of prompt and answer, of which at most 1024 count."""
    long, memory = {"prompt": "Once", "max_tokens": 1000}, RequestMemory(400_000)
    monkeypatch.setattr(app, "RequestMemory", lambda limit: memory)
    with running(FakeEngine(delay=0.02)) as server:
        with server.connect() as connection:
            body = msgspec.json.encode(long | {"stream": True})
            connection.sendall(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            wait_until(lambda: bool(server.engine.running))
            refused = server.complete(**long)
            assert (refused.status, refused.error["code"]) == (503, "request_memory_full")
            assert server.complete(max_tokens=1).status == 200
        wait_until(lambda: memory.held == 0)
        never = server.complete(**long, n=2)
        assert (never.status, never.error["code"]) == (413, "body_too_large")


def test_an_answer_that_grows_beyond_1024_tokens_ends_as_it_would_and_new_ones_have_less_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It begins although all its tokens would not fit, and they count when they come."""
    memory, grown, grow = RequestMemory(300_000), [], Share.grow

    def note(share: Share, size: int) -> None:
        grown.append(size)
        grow(share, size)

    monkeypatch.setattr(Share, "grow", note)
    monkeypatch.setattr(app, "RequestMemory", lambda limit: memory)
    long = {"prompt": "Once", "max_tokens": 1500}
    with running(FakeEngine(delay=0.001)) as server, ThreadPoolExecutor(1) as clients:
        assert server.complete(max_tokens=1).status == 200
        answer = clients.submit(server.complete, **long)
        wait_until(lambda: memory.held > memory.limit)
        refused = server.complete(max_tokens=1)
        assert (refused.status, refused.error["code"]) == (503, "request_memory_full")
        assert answer.result().record["usage"]["completion_tokens"] == 1500
        assert sum(grown) == (1500 - 1024) * 260
        wait_until(lambda: memory.held == 0)


def test_a_request_that_the_engine_refuses_counts_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = RequestMemory(400_000)
    monkeypatch.setattr(app, "RequestMemory", lambda limit: memory)
    with running(FakeEngine(refusal=QueueFull(1))) as server:
        assert server.complete().status == 429
        wait_until(lambda: memory.held == 0)


@pytest.mark.parametrize("form", ["new", "known"])
def test_a_grammar_counts_with_what_it_is_compiled_to(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = RequestMemory(400_000)
    monkeypatch.setattr(app, "RequestMemory", lambda limit: memory)
    schema = {"properties": {f"{form} {n}": {"type": "object"} for n in range(100)}}
    with running(FakeEngine()) as server:
        if form == "known":
            compile_grammar(server.engine.tokenizer, Grammar.json_schema(schema))
        never = server.complete(max_tokens=1, structured_outputs={"json": schema})
        assert (never.status, never.error["code"]) == (413, "body_too_large")
        wait_until(lambda: memory.held == 0)
        small = {"json": {"properties": {form: {"type": "string"}}}}
        assert server.complete(max_tokens=1, structured_outputs=small).status == 200
        assert server.complete(max_tokens=1, metadata=schema).status == 200
        wait_until(lambda: memory.held == 0)


@pytest.mark.parametrize(
    ("fields", "prompt", "token"),
    [
        ({}, 36 + 260, 260),
        ({"n": 3}, 36 + 3 * 260, 260),
        ({"grammar": Grammar.regex("a*")}, 36 + 260, 260 + 200),
        ({"logprobs": 2}, 36 + 260, 260 + 3 * 120),
        ({"prompt_logprobs": 0}, 36 + 260 + 120, 260),
    ],
)
def test_the_memory_of_tokens(fields: dict[str, Any], prompt: int, token: int) -> None:
    """Bytes of each token of a prompt and of an answer, of which 1024 count before they come."""
    each = EngineRequest(prompt_ids=(5,) * 10, sampling=Sampling(max_tokens=7), **fields)
    long = replace(each, sampling=Sampling(max_tokens=2000))
    for requests, most in ([each, each], 7), ([long, long], 1024):
        job = Job(
            model=NOTHING,
            requests=requests,
            choices=[],
            encoder=NOTHING,
            stream=False,
            prompt_tokens=0,
            id="",
        )
        tokens = 2 * each.n * most
        assert (job.token_memory, job.expected_tokens) == (token, tokens)
        assert job.memory == 2 * 10 * prompt + tokens * token


def test_a_body_counts_with_all_values_that_it_is_decoded_to() -> None:
    with running(FakeEngine(), request_memory=100_000) as server:
        assert server.complete(metadata={"a": "[],"} | {str(n): [] for n in range(10)}).status == 200
        refused = server.complete(metadata={"a": [[]] * 1000})
        assert (refused.status, refused.error["code"]) == (413, "body_too_large")
        assert server.complete(metadata={"a": "b" * 10_000}).status == 200


@pytest.mark.parametrize(
    "text",
    [
        "[[]" + ",[]" * 9999 + "]",
        "[{}" + ",{}" * 9999 + "]",
        '[{"a":1}' + ',{"a":1}' * 9999 + "]",
        "[1.5" + ",1.5" * 9999 + "]",
        '["ab1"' + ',"ab1"' * 9999 + "]",
        "{" + ",".join(f'"{n}":1' for n in range(9999)) + "}",
        "[" * 500 + "]" * 500,
        '"' + "a" * 9999 + '"',
        '"\N{GRINNING FACE}' + "a" * 9999 + '"',
    ],
)
def test_what_is_decoded_is_not_larger_than_is_counted(text: str) -> None:
    body = bytearray(text.encode())
    tracemalloc.start()
    try:
        decoded = msgspec.json.decode(body)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoded
    assert taken <= decoded_size(body) <= 6 * taken
