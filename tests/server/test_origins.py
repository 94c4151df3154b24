"""CORS: pages of other origins, before and after a preflight, with keys and hosts."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator

import pytest

from tiny_llm.server.errors import NO_RETRY, RETRY

from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import SECONDS, Answer, RunningServer, running

PAGE, OTHER = "https://app.example", "https://other.example"
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningServer]:
    origins = ("https://App.example", "app://desktop")
    with running(FakeEngine(), allowed_origins=origins, api_keys=("secret",)) as started:
        yield started


def preflight(server: RunningServer, origin: str, **headers: str) -> Answer:
    asked = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-os",
    }
    return server.request("OPTIONS", CHAT, headers={**asked, **headers})


def of_cors(answer: Answer) -> dict[str, str]:
    return {name: text for name, text in answer.headers.items() if name.startswith("access-control")}


@pytest.mark.parametrize("origin", [PAGE, "app://desktop", "HTTPS://APP.example"])
def test_an_allowed_page_is_answered_after_its_preflight(shared: RunningServer, origin: str) -> None:
    first = preflight(shared, origin)
    assert (first.status, first.body) == (204, b"")
    assert of_cors(first)["access-control-allow-origin"] == origin
    assert (of_cors(first)["access-control-max-age"], first.headers["vary"]) == ("600", "origin")
    assert "POST" in of_cors(first)["access-control-allow-methods"]
    allowed = of_cors(first)["access-control-allow-headers"].split(",")
    assert allowed == ["authorization", "content-type", "x-stainless-os"]
    key = {"origin": origin, "authorization": "Bearer secret"}
    for stream in (False, True):
        answer = shared.request("POST", CHAT, {**HELLO, "stream": stream, "max_tokens": 2}, key)
        assert answer.status == 200
        assert of_cors(answer)["access-control-allow-origin"] == origin
        assert "access-control-allow-credentials" not in answer.headers
        assert answer.headers["vary"] == "origin"


def test_a_preflight_and_its_request_come_on_one_connection(shared: RunningServer) -> None:
    with contextlib.closing(http.client.HTTPConnection(*shared.address, timeout=SECONDS)) as connection:
        connection.request("OPTIONS", CHAT, headers={"origin": PAGE, "access-control-request-method": "POST"})
        assert connection.getresponse().read() == b""
        socket = connection.sock
        connection.request("GET", "/health", headers={"origin": PAGE})
        assert (connection.getresponse().status, connection.sock) == (200, socket)


def test_an_allowed_page_can_read_errors_but_needs_the_key(shared: RunningServer) -> None:
    answer = shared.request("POST", CHAT, HELLO, {"origin": PAGE})
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
    assert of_cors(answer)["access-control-allow-origin"] == PAGE
    readable = of_cors(answer)["access-control-expose-headers"].split(", ")
    assert {"x-request-id", *(name for name, _ in (RETRY, NO_RETRY))} == set(readable)


@pytest.mark.parametrize("origin", [OTHER, "https://app.example.evil", "http://app.example", "null", ""])
def test_another_page_gets_no_header(shared: RunningServer, origin: str) -> None:
    assert preflight(shared, origin).status == 401
    assert of_cors(preflight(shared, origin)) == {}
    answer = shared.request("POST", CHAT, HELLO, {"origin": origin, "authorization": "Bearer secret"})
    assert of_cors(answer) == {}
    assert answer.headers["vary"] == "origin"  # or a cache may show it to an allowed page


def test_only_a_preflight_passes_without_a_key(shared: RunningServer) -> None:
    assert shared.request("OPTIONS", CHAT, headers={"origin": PAGE}).status == 401
    asked = {"origin": PAGE, "access-control-request-method": "POST"}
    assert shared.request("GET", "/v1/models", headers=asked).status == 401


def test_a_preflight_does_not_pass_a_foreign_host(shared: RunningServer) -> None:
    answer = preflight(shared, PAGE, host="app.example")
    assert (answer.status, answer.error["code"]) == (403, "host_not_allowed")
    assert of_cors(answer) == {}


def test_every_page_may_be_allowed() -> None:
    with running(FakeEngine(), allowed_origins=("*",)) as server:
        assert preflight(server, OTHER).status == 204
        assert of_cors(server.get("/v1/models", origin=OTHER))["access-control-allow-origin"] == OTHER


def test_without_the_option_nothing_is_shared(server: RunningServer) -> None:
    assert preflight(server, PAGE).status == 405
    answer = server.get("/v1/models", origin=PAGE)
    assert answer.status == 200
    assert of_cors(answer) == {}
    assert "vary" not in answer.headers
