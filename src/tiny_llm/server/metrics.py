"""Prometheus metrics: vLLM's names with the prefix tiny_llm_. Labels are names of models and reasons only."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..engine import EngineStatistics
from .errors import ApiError
from .models import Models, ServedModel

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
REASONS = ("stop", "length", "cancelled", "deadline", "error")
# Codes of errors that clients may get instead of an answer; for other ones "other" is counted.
REFUSALS = (
    "body_too_large", "chat_template", "context_length_exceeded", "deadline", "draining", "engine_failed",
    "grammar_queue_busy", "grammar_queue_full", "header_too_large", "host_not_allowed", "invalid_api_key",
    "invalid_grammar", "invalid_http", "invalid_json", "invalid_value", "method_not_allowed",
    "model_not_found", "not_found", "out_of_memory", "prompt_queue_full", "queue_full", "request_memory_full",
    "request_timeout", "too_many_connections", "unsupported_media_type", "unsupported_value",
)  # fmt: skip
LEFT = ("cancelled", "client_closed")  # codes of requests whose client has gone
OTHER = "other"
MODEL = ("model_name",)

Readings = tuple[tuple[str, str, Callable[[EngineStatistics], float]], ...]
# Name after the prefix, its help, and the value in the statistics of an engine.
GAUGES: Readings = (
    ("num_requests_running", "Requests in the batch", lambda s: s.running),
    ("num_requests_waiting", "Requests in the queue", lambda s: s.waiting),
    (
        "kv_cache_usage_perc",
        "Used share of the KV pages, 0 to 1",
        lambda s: s.pages_used / max(s.pages_total, 1),
    ),
)
COUNTERS: Readings = (
    ("prefix_cache_queries", "Prompt tokens looked up in the prefix cache", lambda s: s.prefix_queries),
    ("prefix_cache_hits", "Prompt tokens found there", lambda s: s.prefix_hits),
    ("num_preemptions", "Requests that gave their pages to others for a while", lambda s: s.preemptions),
    ("prompt_tokens", "Prompt tokens processed", lambda s: s.prompt_tokens),
    ("generation_tokens", "Tokens generated", lambda s: s.generation_tokens),
    ("spec_decode_num_draft_tokens", "Drafts verified", lambda s: s.drafted_tokens),
    ("spec_decode_num_accepted_tokens", "Drafts that were right", lambda s: s.accepted_tokens),
)


class Metrics:
    """The metrics of one server. Histograms are filled as answers are sent; the rest is read at a scrape."""

    def __init__(self, models: Models):
        self.registry = CollectorRegistry()
        self._models = models
        self.success = Counter(
            "tiny_llm_request_success",
            "Finished requests",
            (*MODEL, "finished_reason"),
            registry=self.registry,
        )
        self._refused = Counter(
            "tiny_llm_requests_refused",
            "Requests that got an error instead of an answer, without failures inside the server",
            ("reason",),
            registry=self.registry,
        )
        for code in (*REFUSALS, OTHER):
            self._refused.labels(code)
        self.first_token = self._seconds("time_to_first_token_seconds", "From the request to the first token")
        self.between = self._seconds("inter_token_latency_seconds", "Between two events of an answer")
        self.per_token = self._seconds(
            "request_time_per_output_token_seconds", "Mean time of a token after the first"
        )
        self.whole = self._seconds("e2e_request_latency_seconds", "From the request to its last token")
        self.queue = self._seconds("request_queue_time_seconds", "From the engine's queue to the first step")
        self.registry.register(EngineCollector(models))
        for model in models:
            self._prepare(model)

    def refuse(self, error: ApiError) -> None:
        """Count a request that got this error instead of an answer. Who leaves is refused nothing."""
        if error.status != 500 and error.code not in LEFT:
            self._refused.labels(error.code if error.code in REFUSALS else OTHER).inc()

    def _seconds(self, name: str, text: str) -> Histogram:
        return Histogram(f"tiny_llm_{name}", text, MODEL, buckets=SECONDS, registry=self.registry)

    def _prepare(self, model: ServedModel) -> None:
        """Show every series from the start, and note queue times as requests finish."""
        queue = self.queue.labels(model.name)
        for reason in REASONS:
            self.success.labels(model.name, reason)
        for histogram in (self.first_token, self.between, self.per_token, self.whole):
            histogram.labels(model.name)
        model.engine.observe(lambda timings: queue.observe(timings.queue_seconds))


class EngineCollector(Collector):
    """Reads the engines' statistics at each scrape."""

    def __init__(self, models: Models):
        self._models = models
        name, text = "tiny_llm_iteration_tokens", "Tokens in a step"
        self._step_tokens = Histogram(name, text, MODEL, buckets=TOKENS, registry=None)
        for model in models:
            self._step_tokens.labels(model.name)
        self._steps: dict[str, int] = {}
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        statistics = {model.name: model.engine.statistics() for model in self._models}
        with self._lock:
            for name, now in statistics.items():
                self._note_steps(name, now)
        yield from self._step_tokens.collect()
        kinds: tuple[tuple[Any, Readings], ...] = (GaugeMetricFamily, GAUGES), (CounterMetricFamily, COUNTERS)
        for family_class, readings in kinds:
            for name, text, value in readings:
                family = family_class(f"tiny_llm_{name}", text, labels=MODEL)
                for model, now in statistics.items():
                    family.add_metric([model], value(now))
                yield family

    def describe(self) -> list[Metric]:
        """None, so that registering does not ask the engines."""
        return []

    def _note_steps(self, name: str, now: EngineStatistics) -> None:
        """Count the steps since the last scrape, as far as the engine still has their sizes."""
        new = now.steps - self._steps.get(name, 0)
        self._steps[name] = now.steps
        for size in list(now.step_tokens)[-new:] if new else []:
            self._step_tokens.labels(name).observe(size)


@dataclass(slots=True)
class AnswerProgress:
    """Of one answer: the times of its first and of its latest tokens, and how many it has."""

    first: float
    last: float
    tokens: int


class Meter:
    """The times of one request, from when its body is decoded. Each of its answers has tokens of its own."""

    def __init__(self, metrics: Metrics, model: str):
        self._metrics = metrics
        self._model = model
        self._start = time.perf_counter()
        self._answers: dict[int, AnswerProgress] = {}
        self._between = metrics.between.labels(model)

    def event(self, choice: int, tokens: int) -> None:
        """Some tokens came, of this answer."""
        if not tokens:
            return
        now = time.perf_counter()
        if not self._answers:
            self._metrics.first_token.labels(self._model).observe(now - self._start)
        answer = self._answers.get(choice)
        if answer is None:
            self._answers[choice] = AnswerProgress(now, now, tokens)
            return
        self._between.observe(now - answer.last)
        answer.last = now
        answer.tokens += tokens

    def finish(self, reason: str) -> None:
        """The request has ended."""
        self._metrics.success.labels(self._model, reason if reason in REASONS else "error").inc()
        self._metrics.whole.labels(self._model).observe(time.perf_counter() - self._start)
        for answer in self._answers.values():
            if answer.tokens > 1:
                per_token = (answer.last - answer.first) / (answer.tokens - 1)
                self._metrics.per_token.labels(self._model).observe(per_token)
