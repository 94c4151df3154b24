"""Keys, hosts and request ids."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tiny_llm.server.middleware import callers
from tiny_llm.server.middleware.callers import HostGuard, host_name

from ..support.asgi import Sent
from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import RunningServer, running
from ..support.virtual_time import at_once

KEY = "a-long-secret"


@pytest.fixture(scope="module")
def closed() -> Iterator[RunningServer]:
    with running(FakeEngine(), api_keys=("other", KEY)) as started:
        yield started


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/fake", "/metrics", "/version", "/unknown"])
@pytest.mark.parametrize("key", [None, "", "wrong", KEY[:-1], KEY + "x", KEY.upper(), "Bearer"])
def test_every_path_needs_a_key(closed: RunningServer, path: str, key: str | None) -> None:
    answer = closed.get(path) if key is None else closed.get(path, authorization=f"Bearer {key}")
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "Bearer "])
@pytest.mark.parametrize("key", [KEY, "other"])
def test_each_key_opens(closed: RunningServer, scheme: str, key: str) -> None:
    assert closed.get("/v1/models", authorization=f"{scheme} {key}").status == 200


def test_the_header_of_anthropic_opens_too(closed: RunningServer) -> None:
    assert closed.get("/v1/models", x_api_key=KEY).status == 200
    assert closed.get("/v1/models", x_api_key="wrong").status == 401


@pytest.mark.parametrize("first", ["authorization", "x-api-key"])
def test_of_two_keys_the_last_one_counts(closed: RunningServer, first: str) -> None:
    names = [first, *({"authorization", "x-api-key"} - {first})]
    for known, status in ((0, 401), (1, 200)):
        keys = {name: KEY if number == known else "wrong" for number, name in enumerate(names)}
        headers = {name: f"Bearer {key}" if name == "authorization" else key for name, key in keys.items()}
        assert closed.request("GET", "/v1/models", headers=headers).status == status


def test_another_scheme_does_not_open(closed: RunningServer) -> None:
    assert closed.get("/v1/models", authorization=f"Basic {KEY}").status == 401


def test_health_and_readiness_need_no_key(closed: RunningServer) -> None:
    assert [closed.get(path).status for path in ("/health", "/ready")] == [200, 200]


@pytest.mark.parametrize(
    "path", ["/health/", "//health", "/health/../v1/models", "/health%2f..", "/v1/models?/health"]
)
def test_a_path_that_only_looks_open_needs_a_key(closed: RunningServer, path: str) -> None:
    assert closed.get(path).status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-Path": "/health"},
        {"X-Original-URL": "/health"},
        {"X-Forwarded-Prefix": "/health"},
        {"X-Rewrite-Url": "/health"},
    ],
)
def test_no_header_changes_the_path(closed: RunningServer, headers: dict[str, str]) -> None:
    assert closed.request("GET", "/v1/models", headers=headers).status == 401


def test_an_absolute_target_does_not_change_the_path(closed: RunningServer) -> None:
    head = b"GET http://localhost/health@/v1/models HTTP/1.1\r\nHost: localhost/health\r\nConnection: close"
    assert b" 200 " not in closed.send_raw(head + b"\r\n\r\n").split(b"\r\n")[0]


def test_keys_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch, closed: RunningServer) -> None:
    """Every key is, also after one has fitted."""
    compared = []

    def compare(given: bytes, known: bytes) -> bool:
        compared.append(known)
        return hmac.compare_digest(given, known)

    monkeypatch.setattr(callers, "hmac", SimpleNamespace(compare_digest=compare))
    assert closed.get("/v1/models", authorization="Bearer other").status == 200
    assert compared == [b"other", KEY.encode()]


def test_metrics_are_open_if_set_so() -> None:
    with running(FakeEngine(), api_keys=(KEY,), open_metrics=True) as server:
        assert server.get("/metrics").status == 200
        assert server.get("/v1/models").status == 401


@at_once
async def test_two_hosts_are_not_allowed() -> None:
    """uvicorn refuses them itself; another server might not."""

    async def never(*_: object) -> None:
        raise AssertionError("passed on")

    sent = Sent()
    hosts = [(b"host", b"localhost"), (b"host", b"evil.example")]
    scope = {"type": "http", "path": "/", "headers": hosts}
    await HostGuard(never, ["localhost"])(scope, never, sent)
    assert sent.messages[0]["status"] == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "LOCALHOST", "127.0.0.1:80", "[::1]:8000"])
def test_names_of_this_machine_are_allowed(server: RunningServer, host: str) -> None:
    assert server.get("/v1/models", host=host).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::2]"]
)
def test_other_names_are_not(server: RunningServer, host: str) -> None:
    answer = server.get("/v1/models", host=host)
    assert (answer.status, answer.error["code"]) == (403, "host_not_allowed")


def test_an_allowed_host_is_served_and_a_star_allows_all() -> None:
    with running(FakeEngine(), allowed_hosts=("LLM.example",)) as server:
        assert server.get("/v1/models", host="llm.example:8000").status == 200
        assert server.get("/v1/models", host="localhost").status == 403
    with running(FakeEngine(), allowed_hosts=("*",)) as server:
        assert server.get("/v1/models", host="any.example").status == 200


def test_the_name_in_a_host() -> None:
    hosts = ["a", "A:1", "[::1]", "[::1]:8"]
    assert [host_name(host) for host in hosts] == ["a", "a", "::1", "::1"]


@pytest.mark.parametrize("own", ["abc", "a.b_c-D9", "x" * 64])
def test_a_sane_request_id_is_taken_over(server: RunningServer, own: str) -> None:
    assert server.get("/health", x_request_id=own).headers["x-request-id"] == own


@pytest.mark.parametrize("own", ["", "x" * 65, "a b", "a\tb", "é", '"'])
def test_any_other_is_replaced(server: RunningServer, own: str) -> None:
    given = server.get("/health", x_request_id=own).headers["x-request-id"]
    assert given.startswith("req_")
    assert given != server.get("/health", x_request_id=own).headers["x-request-id"]


def test_answers_are_not_guessed_to_be_pages(server: RunningServer) -> None:
    assert server.get("/unknown").headers["x-content-type-options"] == "nosniff"
