"""The client of `bench serve` beside servers that are slow or wrong: what it counts, and what it says."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from itertools import count
from typing import Any

import pytest

from tiny_llm.errors import ArgumentError
from tiny_llm_tools.benchmark.serving.answer import STOPPED, Answer
from tiny_llm_tools.benchmark.serving.client import Client, ServeRequest
from tiny_llm_tools.benchmark.serving.events import EventReader
from tiny_llm_tools.benchmark.serving.http import CUT_OFF, Address, Site
from tiny_llm_tools.benchmark.serving.load import LoadRun, run_load
from tiny_llm_tools.benchmark.serving.metrics import failures, most_in_flight

from ...support.serving.scripted import DONE, END, HEAD, Script, chunk, event, plain, scripted, token, usage

REQUEST = ServeRequest([5, 6, 7], 3, 2)
GOOD = [HEAD, token("a"), token("b", "length"), usage(4, 2), chunk(DONE), END]


def ask(*script: bytes | float, **options: Any) -> Answer:
    """The answer that a client makes of one response. Its clock ticks at each piece, and starts at 0."""
    with scripted(script) as server:
        clock = map(float, count()).__next__
        client = Client(Site.at(server.url), "m", clock=clock, **options)
        answer = Answer(REQUEST.prompt_tokens, -1.0)
        asyncio.run(client.ask(REQUEST, answer))
        return answer


def test_a_good_answer() -> None:
    answer = ask(HEAD, token("a"), token("b"), token("", "stop"), usage(4, 5), chunk(DONE), END)
    assert answer.failure is None
    assert (answer.prompt_tokens, answer.output_tokens, answer.has_usage) == (4, 5, True)
    assert (answer.begin, answer.times, answer.end) == (0, [1, 2], 3)  # the last event has no text
    assert (answer.ttft, answer.gaps, answer.latency, answer.tpot) == (1, [1], 3, 0.5)


def test_what_is_sent() -> None:
    with scripted(GOOD) as server:
        for endpoint, prompt in (("completions", [5, 6]), ("chat", "some words")):
            site = Site.at(f"{server.url}/v1/", key="secret")
            client = Client(site, "m", endpoint, ignore_eos=endpoint == "completions")
            answer = Answer(2, 0.0)
            asyncio.run(client.ask(ServeRequest(prompt, 2, 9), answer))
            assert answer.failure is None
    shared = {"model": "m", "max_tokens": 9, "temperature": 0, "stream": True}
    shared["stream_options"] = {"include_usage": True}
    (ids_head, ids_body), (chat_head, chat_body) = server.received
    assert ids_head.startswith(b"POST /v1/completions HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer secret\r\n" in ids_head
    assert json.loads(ids_body) == {**shared, "prompt": [5, 6], "ignore_eos": True}
    assert chat_head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert json.loads(chat_body) == {**shared, "messages": [{"role": "user", "content": "some words"}]}


def test_the_role_of_a_chat_is_not_a_token_and_reasoning_is() -> None:
    deltas = [{"role": "assistant", "content": ""}, {"reasoning_content": "x"}, {"content": "y"}]
    events = [event({"choices": [{"delta": delta, "finish_reason": None}]}) for delta in deltas]
    answer = ask(HEAD, *events, chunk(DONE), END, endpoint="chat")
    assert (answer.failure, answer.times) == (None, [2, 3])


def test_without_usage_events_are_counted_and_it_is_said() -> None:
    answer = ask(HEAD, token("a"), token("b"), token("c", "length"), chunk(DONE), END)
    assert (answer.failure, answer.output_tokens, answer.has_usage) == (None, 3, False)
    assert answer.prompt_tokens == 3


def test_an_answer_without_text_has_its_end_as_first_token() -> None:
    answer = ask(HEAD, token(""), token("", "length"), usage(3, 1), chunk(DONE), END)
    assert (answer.failure, len(answer.times), answer.output_tokens) == (None, 1, 1)


def test_several_events_in_a_chunk_and_an_event_in_several() -> None:
    data = b'data: {"choices": [{"text": "a"}]}\r\n\r\n: comment\n\nevent: x\ndata: [DONE]\n\n'
    for size in (1, 7, len(data)):
        pieces = [data[place : place + size] for place in range(0, len(data), size)]
        answer = ask(HEAD, *map(chunk, pieces), END)
        assert (answer.failure, answer.output_tokens) == (None, 1)
    assert EventReader().feed(b"data: a\ndata: b\n\n") == [b"a\nb"]


def test_a_body_with_a_length_or_until_the_connection_closes() -> None:
    body = b'data: {"choices": [{"text": "a"}]}\n\ndata: [DONE]\n\n'
    assert ask(plain("200 OK", body, "text/event-stream")).failure is None
    assert ask(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + body).failure is None
    early = b"HTTP/1.1 100 Continue\r\n\r\n"
    assert ask(early + plain("200 OK", body, "text/event-stream")).failure is None


HTML = plain("200 OK", b"<html>", "text/html")
REFUSED = plain("429 Too Many Requests", b'{"error": {"message": "queue full", "code": 1}}')


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ([REFUSED], "HTTP 429: queue full"),
        ([plain("500 Internal Server Error", b"\x1b[31moops\n")], "HTTP 500:  [31moops"),
        ([plain("404 Not Found", b"")], "HTTP 404: no text"),
        ([HTML], "expected a stream of events, got text/html"),
        ([HEAD, token("a")], CUT_OFF),
        ([HEAD, token("a"), b"5\r\nda"], CUT_OFF),
        ([HEAD, token("a"), END], CUT_OFF),  # neither a finish_reason nor [DONE]
        ([HEAD, chunk(DONE), END], CUT_OFF),  # no choice
        ([], "the connection was closed without an answer"),
        ([b"HTTP/1.1 200 OK\r\nContent-"], "the connection was closed without an answer"),
        ([b"SSH-2.0\r\n\r\n"], "the answer begins with 'SSH-2.0', which is not HTTP"),
        ([HEAD, b"zz\r\n"], "a chunk begins with b'zz' instead of its size"),
        ([HEAD, chunk(b"data: {\n\n"), END], "an event is not JSON: {"),
        ([HEAD, chunk(b"data: [1]\n\n"), END], "an event does not have OpenAI's shape: [1]"),
        ([HEAD, event({"choices": [{"text": "a"}], "usage": {"x": 1}})], "an event does not have OpenAI's"),
        ([HEAD, token("a"), event({"error": {"message": "no memory"}})], "an error in the stream: no memory"),
        ([HEAD, b"200000\r\n", b"x" * 2**21, b"\r\n"], "an event is longer than"),
    ],
)  # fmt: skip
def test_a_fault_is_a_failure_with_its_reason(script: Script, reason: str) -> None:
    answer = ask(*script)
    assert answer.failure is not None
    assert answer.failure.startswith(reason)


@pytest.mark.parametrize("script", [[1.0], [HEAD, token("a"), 1.0, END]])
def test_a_slow_server_has_failed_after_the_timeout(script: Script) -> None:
    assert ask(*script, timeout=0.2).failure == "no complete answer within 0.2 s"


def test_a_server_that_does_not_listen() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        client = Client(Site.at(f"http://127.0.0.1:{closed.getsockname()[1]}"), "m")
        answer = Answer(3, 0.0)
        asyncio.run(client.ask(REQUEST, answer))
    assert answer.failure == "connection: Connection refused"


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://x", "http://", "http://x:99999", "http://x/v1?y=1", "http://["]
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ArgumentError, match=r"^Address.of: url: got .+, expected a URL such as"):
        Address.of(url)


def test_urls() -> None:
    assert Address.of("http://localhost:1/v1/") == Address("localhost", 1)
    assert Address.of("https://x/openai/v1") == Address("x", 443, "/openai", secure=True)
    assert str(Address.of("http://[::1]:8000")) == "http://[::1]:8000"


# Loads


def load(offsets: list[float], limit: int | None = None, *scripts: Script) -> LoadRun:
    with scripted(*scripts) as server:
        client = Client(Site.at(server.url), "m")
        return asyncio.run(run_load(client, [REQUEST] * len(offsets), offsets, limit))


SLOW = [HEAD, token("a"), 0.05, token("b", "length"), usage(3, 2), chunk(DONE), END]


def test_failures_do_not_end_a_run_and_none_is_lost() -> None:
    run = load([0.0] * 4, None, GOOD, [REFUSED], [HEAD, token("a")], GOOD)
    assert failures(run.answers) == {"HTTP 429: queue full": 1, CUT_OFF: 1}
    assert sum(answer.failure is None for answer in run.answers) == 2


def test_requests_are_sent_at_their_times() -> None:
    begin, offsets = time.perf_counter(), [0.0, 0.05, 0.12]
    run = load(offsets, None, SLOW)
    assert all(each.begin - begin >= offset for each, offset in zip(run.answers, offsets, strict=True))
    assert run.duration >= 0.12 + 0.05


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (2, 2), (None, 6)])
def test_concurrency_is_limited_and_waiting_is_not_part_of_the_times(limit: int | None, most: int) -> None:
    run = load([0.0] * 6, limit, SLOW)
    assert most_in_flight(run.answers) == most
    assert run.duration >= 0.05 * 6 / most
    if limit == 1:
        assert sum(answer.latency for answer in run.answers) <= run.duration


def test_a_cancelled_run_keeps_what_was_measured() -> None:
    ended = []

    async def stop_later(server: Any) -> LoadRun:
        client = Client(Site.at(server.url), "m")
        run = run_load(client, [REQUEST] * 3, [0.0, 0.0, 600.0], report=lambda done, _: ended.append(done))
        task = asyncio.create_task(run)
        while 1 not in ended or len(server.received) < 2:
            await asyncio.sleep(0.01)
        task.cancel()
        return await task

    with scripted(GOOD, [HEAD, token("a"), 1.0]) as server:
        run = asyncio.run(stop_later(server))
    assert run.interrupted
    assert sorted(str(answer.failure) for answer in run.answers) == ["None", STOPPED]


def test_of_several_addresses_one_that_listens_is_taken(monkeypatch):
    """As of localhost, which is ::1 first on many machines, where nothing may listen."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        places = [("127.0.0.2", port), ("127.0.0.1", port)]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        assert Address("some.name", port).resolved() == "127.0.0.1"
