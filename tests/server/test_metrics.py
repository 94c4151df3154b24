"""/metrics: the names, and that they follow what happened."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tiny_llm import server as server_package
from tiny_llm.engine import EngineStatistics
from tiny_llm.errors import EngineFailed, NumericError, QueueFull
from tiny_llm.server.errors import ApiError
from tiny_llm.server.metrics import LEFT, OTHER, REASONS, REFUSALS, Meter, Metrics
from tiny_llm.server.models import Models

from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import RunningServer, running, wait_until
from ..support.virtual_time import at_once

CODE = re.compile(r'code="([a-z_]+)"')
GAUGES = {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"}
COUNTERS = {
    "prefix_cache_queries", "prefix_cache_hits", "num_preemptions", "prompt_tokens", "generation_tokens",
    "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens",
    "request_success", "requests_refused",
}  # fmt: skip
HISTOGRAMS = {
    "time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds", "request_queue_time_seconds", "iteration_tokens",
}  # fmt: skip


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running(FakeEngine()) as started:
        yield started


def scrape(server: RunningServer) -> dict[tuple[str, str], float]:
    """The value of each sample, by its name without prefix and its reason or limit."""
    answer = server.get("/metrics")
    assert answer.status == 200
    samples = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            if family.name.startswith("tiny_llm_requests_refused"):
                continue
            assert set(sample.labels) <= {"model_name", "finished_reason", "le"}
            assert sample.labels["model_name"] == "fake"
            label = sample.labels.get("finished_reason", sample.labels.get("le", ""))
            samples[sample.name.removeprefix("tiny_llm_"), label] = sample.value
    return samples


def test_names_and_types(server: RunningServer) -> None:
    families = text_string_to_metric_families(server.get("/metrics").body.decode())
    types = {family.name.removeprefix("tiny_llm_"): family.type for family in families}
    created = {name for name in types if name.endswith("_created")}
    assert {name: kind for name, kind in types.items() if name not in created} == {
        **dict.fromkeys(GAUGES, "gauge"), **dict.fromkeys(COUNTERS, "counter"),
        **dict.fromkeys(HISTOGRAMS, "histogram"),
    }  # fmt: skip


def test_each_metric_is_its_own_number_of_the_engine(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = EngineStatistics(
        running=1, waiting=2, pages_total=40, pages_used=10, page_size=64, prefix_queries=3, prefix_hits=4,
        preemptions=5, prompt_tokens=6, generation_tokens=7, drafted_tokens=8, accepted_tokens=9,
        steps=11, step_tokens=(12, 4096, 100_000), last_step_at=0.0,
    )  # fmt: skip
    monkeypatch.setattr(server.engine, "statistics", lambda: numbers)
    samples = scrape(server)
    shown = {name: samples[name, ""] for name, _ in samples if name.startswith(("num_", "kv", "pre", "spec"))}
    assert shown == {
        "num_requests_running": 1, "num_requests_waiting": 2, "kv_cache_usage_perc": 0.25,
        "prefix_cache_queries_total": 3, "prefix_cache_hits_total": 4, "num_preemptions_total": 5,
        "spec_decode_num_draft_tokens_total": 8, "spec_decode_num_accepted_tokens_total": 9,
    }  # fmt: skip
    assert (samples["prompt_tokens_total", ""], samples["generation_tokens_total", ""]) == (6, 7)
    limits = [limit for name, limit in samples if name == "iteration_tokens_bucket"]
    counts = [samples["iteration_tokens_bucket", limit] for limit in limits]
    assert limits == [*(f"{2.0**power}" for power in range(14)), "+Inf"]
    assert counts == [0] * 4 + [1] * 8 + [2, 2, 3]


def test_an_answer_is_counted(server: RunningServer) -> None:
    assert scrape(server)["request_success_total", "length"] == 0
    server.chat(max_tokens=5)
    server.chat(max_tokens=5, stream=True, n=2)
    after = scrape(server)
    assert after["request_success_total", "length"] == 2
    assert after["generation_tokens_total", ""] == 15
    assert after["prompt_tokens_total", ""] == 2 * len(server.engine.requests[0].prompt_ids)
    assert after["time_to_first_token_seconds_count", ""] == 2
    assert after["inter_token_latency_seconds_count", ""] == 4 + 4 + 4
    assert after["e2e_request_latency_seconds_count", ""] == 2
    assert after["request_time_per_output_token_seconds_count", ""] == 1 + 2
    assert after["request_queue_time_seconds_count", ""] == 2
    assert after["iteration_tokens_count", ""] == 2
    assert after["iteration_tokens_sum", ""] == 15
    assert scrape(server)["iteration_tokens_count", ""] == 2, "a scrape counts no step again"


@at_once
async def test_the_times_of_an_answer_do_not_depend_on_how_many_a_request_has() -> None:
    """Three answers in turns, and one of them has two tokens at a time."""
    metrics = Metrics(Models({"fake": FakeEngine()}))
    meter = Meter(metrics, "fake")
    await asyncio.sleep(5)
    for _ in range(4):
        for choice, tokens in ((0, 1), (1, 1), (2, 2)):
            meter.event(choice, tokens)
        meter.event(0, 0)  # no token
        await asyncio.sleep(2)
    meter.finish("length")

    def total(name: str, kind: str) -> float | None:
        return metrics.registry.get_sample_value(f"tiny_llm_{name}_{kind}", {"model_name": "fake"})

    assert total("time_to_first_token_seconds", "sum") == 5
    assert total("time_to_first_token_seconds", "count") == 1
    assert total("inter_token_latency_seconds", "sum") == 3 * 3 * 2
    assert total("inter_token_latency_seconds", "count") == 3 * 3
    assert total("request_time_per_output_token_seconds", "sum") == pytest.approx(2 + 2 + 3 * 2 / 7)
    assert total("request_time_per_output_token_seconds", "count") == 3
    assert total("e2e_request_latency_seconds", "sum") == 5 + 4 * 2


def test_other_ends_are_counted_apart(server: RunningServer) -> None:
    server.engine.failure = NumericError()
    server.chat()
    server.chat(stream=True)
    server.engine.failure = None
    server.engine.script = "said"
    server.chat()
    server.engine.script = 5  # a fault
    server.chat()
    server.chat(stream=True)
    after = scrape(server)
    counts = {reason: after["request_success_total", reason] for reason in ("error", "stop", "length")}
    assert counts == {"error": 4, "stop": 1, "length": 0}


def test_what_takes_too_long_has_a_reason_of_its_own() -> None:
    with running(FakeEngine(delay=0.02), request_timeout=0.05) as server:
        for stream in (False, True):
            server.chat(stream=stream, max_tokens=1000)
        after = scrape(server)
        ends = {reason: after["request_success_total", reason] for reason in REASONS}
        assert ends == {**dict.fromkeys(REASONS, 0), "deadline": 2}


def refusals(server: RunningServer) -> dict[str, float]:
    """How many requests were refused for each reason, without zeros."""
    families = text_string_to_metric_families(server.get("/metrics").body.decode())
    (samples,) = [family.samples for family in families if family.name == "tiny_llm_requests_refused"]
    counts = {each.labels["reason"]: each.value for each in samples if each.name.endswith("_total")}
    assert counts.keys() == {*REFUSALS, OTHER}
    return {reason: count for reason, count in counts.items() if count}


def test_refused_requests_are_counted_by_their_reasons(server: RunningServer) -> None:
    assert refusals(server) == {}
    assert server.chat().status == 200
    server.chat(max_tokens=-1)
    server.chat(max_tokens=99999)
    server.get("/v1/nothing", x_request_id="a")
    server.get("/health", host="evil.example")
    server.send_raw(b"hello\r\n\r\n")
    server.engine.refusal = QueueFull(8)
    server.chat()
    server.engine.refusal = EngineFailed()
    server.chat()
    server.engine.refusal = KeyError("a failure of the server is not a refusal")
    server.chat()
    expected = ["context_length_exceeded", "engine_failed", "host_not_allowed", "invalid_http"]
    assert refusals(server) == dict.fromkeys([*expected, "invalid_value", "not_found", "queue_full"], 1)
    after = scrape(server)
    ends = {reason: after["request_success_total", reason] for reason in REASONS}
    assert ends == {**dict.fromkeys(REASONS, 0), "length": 1}, "none of them has ended"


def test_a_reason_without_a_name_is_another_one() -> None:
    """A series for each unknown word could be any number of them."""
    metrics = Metrics(Models({"fake": FakeEngine()}))
    metrics.refuse(ApiError(418, "no coffee", code="teapot"))
    name = "tiny_llm_requests_refused_total"
    assert metrics.registry.get_sample_value(name, {"reason": OTHER}) == 1
    assert metrics.registry.get_sample_value(name, {"reason": "teapot"}) is None


def test_who_leaves_is_refused_nothing() -> None:
    with running(FakeEngine(delay=0.01)) as server:
        with server.connect() as connection:
            head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(head + b"Content-Length: 99\r\n\r\n{")
            wait_until(lambda: server.server.lifecycle.in_flight == 1)
        wait_until(lambda: server.server.lifecycle.in_flight == 0)
        with server.connect() as connection:
            body = b'{"prompt": "a", "max_tokens": 2000}'
            connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            wait_until(lambda: server.engine.running)
        wait_until(lambda: server.server.lifecycle.in_flight == 0)
        assert refusals(server) == {}


def test_every_code_of_an_error_is_a_reason() -> None:
    """But those of failures inside the server."""
    folder = Path(server_package.__file__).parent
    written = {code for file in folder.rglob("*.py") for code in CODE.findall(file.read_text())}
    assert "draining" in written
    assert written - {"internal_error", "numeric_error", *LEFT} <= {*REFUSALS}


def test_running_requests_and_their_pages_are_shown() -> None:
    with running(FakeEngine(delay=0.01)) as server, server.connect() as connection:
        body = b'{"prompt": "a", "max_tokens": 2000}'
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: server.engine.running)
        during = scrape(server)
        assert (during["num_requests_running", ""], during["kv_cache_usage_perc", ""]) == (1, 0.1)
        connection.close()
        wait_until(lambda: not server.engine.running)
        wait_until(lambda: scrape(server)["request_success_total", "cancelled"] == 1)
        assert scrape(server)["num_requests_running", ""] == 0
