"""/metrics: the names, and that they follow what happened."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tiny_llm.errors import NumericError

from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import RunningServer, running, wait_until

GAUGES = {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"}
COUNTERS = {
    "prefix_cache_queries", "prefix_cache_hits", "num_preemptions", "prompt_tokens", "generation_tokens",
    "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens",
    "request_success",
}  # fmt: skip
HISTOGRAMS = {
    "time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds", "request_queue_time_seconds", "iteration_tokens_total",
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


def test_an_answer_is_counted(server: RunningServer) -> None:
    assert scrape(server)["request_success_total", "length"] == 0
    server.chat(max_tokens=5)
    server.chat(max_tokens=5, stream=True, n=2)
    after = scrape(server)
    assert after["request_success_total", "length"] == 2
    assert after["generation_tokens_total", ""] == 15
    assert after["prompt_tokens_total", ""] == 2 * len(server.engine.requests[0].prompt_ids)
    assert after["time_to_first_token_seconds_count", ""] == 2
    assert after["inter_token_latency_seconds_count", ""] == 4 + 9
    assert after["e2e_request_latency_seconds_count", ""] == 2
    assert after["request_time_per_output_token_seconds_count", ""] == 2
    assert after["request_queue_time_seconds_count", ""] == 2
    assert after["iteration_tokens_total_count", ""] == 2
    assert after["iteration_tokens_total_sum", ""] == 15
    assert scrape(server)["iteration_tokens_total_count", ""] == 2, "a scrape counts no step again"


def test_other_ends_are_counted_apart(server: RunningServer) -> None:
    server.engine.failure = NumericError()
    server.chat()
    server.chat(stream=True)
    server.engine.failure = None
    server.engine.script = "said"
    server.chat()
    after = scrape(server)
    counts = {reason: after["request_success_total", reason] for reason in ("error", "stop", "length")}
    assert counts == {"error": 2, "stop": 1, "length": 0}


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
