"""Failures of the engine: which status they give, and that the next request is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import openai
import pytest

from tiny_llm.engine import Event
from tiny_llm.errors import (
    ArgumentError,
    Draining,
    EngineFailed,
    GrammarError,
    NumericError,
    QueueFull,
    StepFailed,
)

from ..support.serving.fake_engine import FakeEngine, FakeHandle
from ..support.serving.running import RunningServer, running, wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running(FakeEngine()) as started:
        yield started


@pytest.fixture(autouse=True)
def repaired(server: RunningServer) -> Iterator[None]:
    yield
    server.engine.failure = server.engine.refusal = None
    server.engine.healthy = True
    assert server.chat().status == 200


@pytest.mark.parametrize(
    ("refusal", "status", "code", "retry"),
    [
        (QueueFull(8), 429, "queue_full", "1"),
        (Draining(), 503, "draining", "1"),
        (EngineFailed(), 503, "engine_failed", "1"),
        (ArgumentError("submit", "prompt_ids", 900, "at most 800"), 400, "context_length_exceeded", None),
        (ArgumentError("submit", "grammar", "a", "b"), 400, "invalid_value", None),
        (KeyError("an internal detail"), 500, "internal_error", None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refused_request(
    server: RunningServer, refusal: Exception, status: int, code: str, retry: str | None, stream: bool
) -> None:
    server.engine.refusal = refusal
    answer = server.chat(stream=stream)
    assert (answer.status, answer.error["code"], answer.headers.get("retry-after")) == (status, code, retry)
    assert b"detail" not in answer.body


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (RuntimeError("an internal detail"), 500, "internal_error"),
        (ArgumentError("RoPE", "offset", "an internal detail", "another"), 500, "internal_error"),
        (StepFailed(ArgumentError("RoPE", "offset", "an internal detail", "another")), 500, "internal_error"),
        (NumericError(), 500, "numeric_error"),
        (GrammarError("a limit"), 400, "invalid_grammar"),
        (MemoryError(), 503, "out_of_memory"),
    ],
)
def test_a_request_that_fails_on_the_way(
    server: RunningServer, failure: Exception, status: int, code: str
) -> None:
    server.engine.failure = failure
    answer = server.complete()
    assert (answer.status, answer.error["code"]) == (status, code)
    assert b"detail" not in answer.body
    streamed = server.complete(stream=True)
    *tokens, last = streamed.body.decode().strip().split("\n\n")
    assert streamed.status == 200
    assert len(tokens) == server.engine.fail_after
    assert last.startswith('data: {"error":{"message":')
    assert f'"code":"{code}"' in last


def test_the_reason_of_a_failure_is_logged_once(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    for stream in (False, True):
        server.engine.failure = RuntimeError("an internal detail")
        server.complete(stream=stream)
        failures = [record for record in caplog.records if record.exc_info]
        assert len(failures) == 1
        assert failures[0].exc_info[1] is server.engine.failure
        caplog.clear()
    server.engine.refusal = Draining()  # no fault
    for stream in (False, True):
        server.complete(stream=stream)
    assert not [record for record in caplog.records if record.exc_info]


def test_clients_do_not_ask_again_for_what_took_too_long() -> None:
    """It would take as long each time."""
    limits: Any = {"model": "fake", "max_tokens": 1000, "messages": [{"role": "user", "content": "Hello"}]}
    with running(FakeEngine(delay=0.01), request_timeout=0.05) as server:
        gpt = openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=2)
        with pytest.raises(openai.APIStatusError) as caught:
            gpt.chat.completions.create(**limits)
        claude = anthropic.Anthropic(base_url=server.url, api_key="unused", max_retries=2)
        with pytest.raises(anthropic.APIStatusError):
            claude.messages.create(**limits)
        assert len(server.engine.requests) == 2
    headers = caught.value.response.headers
    assert (headers["x-should-retry"], headers.get("retry-after")) == ("false", None)


@pytest.mark.parametrize("stream", [False, True])
def test_if_one_answer_fails_the_others_are_cancelled(server: RunningServer, stream: bool) -> None:
    server.engine.failure = RuntimeError("an internal detail")
    server.complete(prompt=["a", "b"], stream=stream)
    assert [handle.cancelled for handle in server.engine.handles[-2:]] == [True, True]


def test_if_one_prompt_is_refused_the_others_are_cancelled(server: RunningServer) -> None:
    server.engine.max_running = 1
    answer = server.complete(prompt=["a", "b"])
    server.engine.max_running = 1000
    assert answer.status == 429
    assert server.engine.handles[-1].cancelled


@pytest.mark.parametrize(("argument", "param"), [("prompt_ids", "prompt"), ("max_tokens", "max_tokens")])
def test_what_never_fits_into_the_engine_is_about_a_field(
    server: RunningServer, argument: str, param: str
) -> None:
    server.engine.refusal = ArgumentError("submit", argument, 900, "at most 800")
    error = server.complete().error
    assert (error["param"], error["code"]) == (param, "context_length_exceeded")
    assert error["message"].startswith(f"{param}: ")


def test_health_and_readiness_follow_the_engine(server: RunningServer) -> None:
    assert [server.get(path).status for path in ("/health", "/ready")] == [200, 200]
    server.engine.healthy = False
    for path in ("/health", "/ready"):
        assert server.get(path).error["code"] == "engine_failed"
        assert server.get(path).status == 503


def test_the_server_ends_when_an_engine_has_failed() -> None:
    engine = FakeEngine()
    with running(engine) as server:
        assert not server.server.engine_failed
        engine.failed = True
        wait_until(lambda: server.server.should_exit)
        assert server.server.engine_failed


def test_a_fault_of_one_of_several_prompts_ends_the_request(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(handle: FakeHandle) -> AsyncIterator[Event]:
        raise ValueError("an internal detail")
        yield

    monkeypatch.setattr(FakeHandle, "__aiter__", fail)
    answer = server.complete(prompt=["a", "b"])
    monkeypatch.undo()
    assert (answer.status, answer.error["code"]) == (500, "internal_error")
    assert [handle.cancelled for handle in server.engine.handles[-2:]] == [True, True]
    server.engine.handles.clear()


def test_one_of_several_engines_is_enough_to_be_ill_and_to_end_the_server() -> None:
    engines = {"a": FakeEngine(), "b": FakeEngine(healthy=False)}
    with running(engines) as server:
        assert [server.get(path).status for path in ("/health", "/ready")] == [503, 503]
        engines["b"].healthy = True
        assert server.get("/health").status == 200
        engines["b"].failed = True
        wait_until(lambda: server.server.should_exit)


def test_an_engine_has_as_long_for_a_step_as_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, asked = FakeEngine(), []
    monkeypatch.setattr(engine, "alive", lambda max_age: asked.append(max_age) or True)
    with running(engine, heartbeat_timeout=7.5) as server:
        assert server.get("/ready").status == 200
    assert asked == [7.5]
