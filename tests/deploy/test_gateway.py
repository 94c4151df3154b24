"""What clients get from several replicas: the server's answers and errors, also when one is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tiny_llm.deploy import gateway as gateway_module
from tiny_llm.errors import QueueFull

from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import Answer, RunningServer, running, wait_until
from .local import LocalReplicas, gateway

Started = tuple[RunningServer, LocalReplicas]


@pytest.fixture
def engines() -> dict[str, FakeEngine]:
    return {name: FakeEngine() for name in ("a", "b")}


@pytest.fixture
def started(engines: dict[str, FakeEngine]) -> Iterator[Started]:
    with gateway(engines) as both:
        yield both


def lose_next(replicas: LocalReplicas, after: int) -> None:
    """The replica that gets the next request, whichever it is."""
    replicas.lost_after = dict.fromkeys(replicas.apps, after)


def test_answers_are_those_of_the_server(started: Started) -> None:
    server, _ = started
    whole = server.chat()
    assert whole.status == 200
    events = server.chat(stream=True).events
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert text == whole.record["choices"][0]["message"]["content"]
    assert server.get("/v1/models").record["data"][0]["id"] == "fake"
    assert server.get("/health").status == 200
    assert server.get("/").status == 200


def test_turns_of_a_conversation_come_to_one_replica(started: Started) -> None:
    server, replicas = started
    for number in range(8):
        turns = [{"role": "user", "content": f"Question {number}"}]
        for _ in range(3):
            answer = server.chat(messages=turns).record["choices"][0]["message"]["content"]
            turns += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And then?"}]
        assert len(set(replicas.answered[-3:])) == 1
    assert set(replicas.answered) == {"a", "b"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_whose_replica_is_lost_before_its_answer_is_asked_again(
    started: Started, stream: bool
) -> None:
    server, replicas = started
    expected = server.chat(seed=1).record["choices"]
    replicas.lost_after = {replicas.answered[-1]: 1 if stream else 0}  # a stream: after its head
    answer = server.chat(stream=stream)
    assert answer.status == 200
    assert len(set(replicas.answered)) == 2
    if not stream:
        assert answer.record["choices"] == expected
    else:
        assert answer.events


def test_a_request_that_ends_two_replicas_is_answered_with_503(started: Started) -> None:
    server, replicas = started
    lose_next(replicas, after=0)
    answer = server.chat()
    assert answer.status == 503
    assert answer.record["error"]["code"] == "engine_failed"
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("path", "start"),
    [
        ("/v1/chat/completions", b'data: {"error":{"message":'),
        ("/v1/messages", b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"'),
        ("/v1/responses", b'event: error\ndata: {"error":{"message":'),
        ("/api/chat", b'{"error":"the replica'),
    ],
)
def test_a_stream_that_has_begun_ends_with_the_error_of_its_interface(
    engines: dict[str, FakeEngine], path: str, start: bytes
) -> None:
    for engine in engines.values():
        engine.delay = 0.02
    with gateway(engines) as (server, replicas):
        lose_next(replicas, after=4)
        asked = "input" if path == "/v1/responses" else "messages"
        body = {asked: [{"role": "user", "content": "Hello"}], "max_tokens": 20, "stream": True}
        answer = server.request("POST", path, body)
    assert answer.status == 200
    assert len(replicas.answered) == 1
    separator = b"\n" if path.startswith("/api") else b"\n\n"
    assert answer.body.rstrip().rsplit(separator, 1)[-1].startswith(start)


def test_a_client_that_leaves_ends_its_request(engines: dict[str, FakeEngine]) -> None:
    for engine in engines.values():
        engine.delay = 0.05
    with gateway(engines) as (server, _), server.connect() as connection:
        body = json.dumps({"prompt": "Once", "max_tokens": 500, "stream": True}).encode()
        head = ["POST /v1/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        head += [f"Content-Length: {len(body)}", "", ""]
        connection.sendall("\r\n".join(head).encode() + body)
        assert connection.recv(100)
        connection.close()
        wait_until(lambda: any(handle.cancelled for engine in engines.values() for handle in engine.handles))
        wait_until(lambda: not any(engine.running for engine in engines.values()))


def test_full_queues_are_answered_with_429(started: Started) -> None:
    server, replicas = started
    replicas.refusal = QueueFull(3)
    answer = server.chat()
    assert (answer.status, answer.record["error"]["code"]) == (429, "queue_full")


def test_an_unexpected_failure_is_not_told(started: Started) -> None:
    server, replicas = started
    replicas.refusal = RuntimeError("secret")
    answer = server.chat()
    assert (answer.status, answer.record["error"]["code"]) == (500, "internal_error")
    assert b"secret" not in answer.body
    assert server.get("/metrics").status == 500


def test_a_key_is_asked_for_before_a_body_is_read(engines: dict[str, FakeEngine]) -> None:
    with gateway(engines, api_keys=("a-long-secret",)) as (server, replicas):
        assert server.chat().status == 401
        assert replicas.answered == []
        assert server.get("/v1/models").status == server.get("/metrics").status == 401
        server.headers["authorization"] = "Bearer a-long-secret"
        assert server.chat().status == server.get("/metrics").status == 200


def test_a_large_body_and_another_type_come_to_no_replica(engines: dict[str, FakeEngine]) -> None:
    with gateway(engines, max_body=1000) as (server, replicas):
        large = server.chat(messages=[{"role": "user", "content": "a" * 1000}])
        assert (large.status, large.record["error"]["code"]) == (413, "body_too_large")
        typed = server.request("POST", "/v1/chat/completions", b"{}", {"content-type": "text/plain"})
        assert typed.status == 415
        assert replicas.answered == []


def test_wrong_requests_get_the_errors_of_the_server(started: Started) -> None:
    server, _ = started
    answer = server.chat(temperature=-1)
    assert (answer.status, answer.record["error"]["param"]) == (400, "temperature")
    assert server.request("POST", "/v1/chat/completions", b"{").record["error"]["code"] == "invalid_json"
    assert server.get("/nothing").status == 404


def test_metrics_have_a_label_of_their_replica(started: Started) -> None:
    server, replicas = started
    server.chat()
    lines = server.get("/metrics").body.decode().splitlines()
    samples = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in lines if not line.startswith("#")}
    (used,) = replicas.answered
    for name in ("a", "b"):
        labels = f'finished_reason="length",model_name="fake",replica="{name}"'
        assert float(samples[f"tiny_llm_request_success_total{{{labels}}}"]) == (name == used)
    assert len([line for line in lines if line.startswith("# TYPE tiny_llm_num_requests_running ")]) == 1


def test_a_replica_that_hangs_costs_the_page_of_metrics_its_own_samples_only(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, replicas = started
    monkeypatch.setattr(gateway_module, "METRICS_SECONDS", 0.3)
    replicas.hung = {"b"}
    start = time.perf_counter()
    page = server.get("/metrics").body.decode()
    assert time.perf_counter() - start < 5
    assert 'tiny_llm_replica_up{replica="a"} 1.0' in page
    assert 'tiny_llm_replica_up{replica="b"} 0.0' in page
    assert 'tiny_llm_num_requests_running{model_name="fake",replica="a"}' in page
    assert page.count('replica="b"') == 1


def test_metrics_of_no_replica_are_an_error(engines: dict[str, FakeEngine]) -> None:
    with gateway({}) as (server, _):
        assert server.get("/metrics").status == 503


def test_replicas_are_asked_for_metrics_after_the_key(engines: dict[str, FakeEngine]) -> None:
    with gateway(engines, api_keys=("a-long-secret",)) as (server, replicas):
        assert server.get("/metrics").status == 401
        assert replicas.asked == []
    with gateway(engines, api_keys=("a-long-secret",), open_metrics=True) as (server, replicas):
        assert server.get("/metrics").status == 200


def of_cors(answer: Answer) -> tuple[int, dict[str, str]]:
    kept = ("access-control-", "vary")
    return answer.status, {name: text for name, text in answer.headers.items() if name.startswith(kept)}


def answers_to_pages(server: RunningServer) -> list[tuple[int, dict[str, str]]]:
    """To an allowed page and another one: refused, answered, and before they ask."""
    path, hello = "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]}
    key, text, other_host = (("authorization", "Bearer k"), ("content-type", "text/plain"), ("host", "other"))
    preflight = {"access-control-request-method": "POST", "access-control-request-headers": "x-a"}
    found = []
    for page in ({"origin": "https://app.example"}, {"origin": "https://other.example"}, {}):
        found += [server.request("POST", path, hello, {**page, **dict(more)}) for more in (
            [], [key], [key, text], [key, other_host], [other_host],
        )]  # fmt: skip
        found.append(server.request("POST", path, b"a" * 2000, {**page, **dict([key])}))
        found.append(server.request("POST", path, {**hello, "temperature": -1}, {**page, **dict([key])}))
        found += [server.request("OPTIONS", path, None, {**page, **preflight, **dict(more)}) for more in (
            [], [other_host],
        )]  # fmt: skip
        found += [server.get(path, **page, **dict([key])) for path in ("/metrics", "/nothing")]
        found += [server.get(path, **page) for path in ("/metrics", "/health")]
    return [of_cors(answer) for answer in found]


def test_pages_of_other_origins_get_the_headers_of_the_server(engines: dict[str, FakeEngine]) -> None:
    settings = {"api_keys": ("k",), "allowed_origins": ("https://app.example",), "max_body": 1000}
    with running(FakeEngine(), **settings) as server:
        expected = answers_to_pages(server)
    with gateway(engines, **settings) as (server, replicas):
        assert answers_to_pages(server) == expected
        replicas.refusal = QueueFull(3)
        page = {"origin": "https://app.example", "authorization": "Bearer k"}
        full = server.request("POST", "/v1/completions", {"prompt": "a"}, page)
        assert of_cors(full) == (429, expected[0][1])
        replicas.refusal = None
        head = ["GET /health HTTP/1.1", "Host: localhost", "Origin: https://app.example", "Connection: close"]
        raw = server.send_raw("\r\n".join([*head, "", ""]).encode())
        assert raw.count(b"access-control-allow-origin") == 1
    assert {status for status, _ in expected} >= {200, 204, 400, 401, 403, 404, 413, 415}
