"""From answers to the figures of `vllm bench serve`, under its names."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import pstdev
from typing import Any

from ..clock import Samples
from .answer import Answer
from .load import LoadRun

METRICS = {
    "ttft": "time to first token",
    "tpot": "time per output token after the first",
    "itl": "time between two events of a stream",
    "e2el": "time of a whole answer",
}
GOODPUT_METRICS = ("ttft", "tpot", "e2el")  # those that a request has one of
Record = dict[str, Any]


def results(
    run: LoadRun,
    goodput: Mapping[str, float] | None = None,
    metrics: Sequence[str] = tuple(METRICS),
    percentiles: Sequence[float] = (99.0,),
) -> Record:
    """Counts, rates and latencies. `goodput` has the most milliseconds that a good request may take.

    Rates and latencies are those of complete answers; a latency that no answer has is None.
    """
    done = [answer for answer in run.answers if answer.failure is None]
    inputs, outputs = (sum(getattr(a, f"{kind}_tokens") for a in done) for kind in ("prompt", "output"))
    good = sum(is_good(answer, goodput) for answer in done) if goodput else None
    record: Record = {
        "duration": run.duration,
        "completed": len(done),
        "failed": len(run.answers) - len(done),
        "total_input_tokens": inputs,
        "total_output_tokens": outputs,
        "request_throughput": len(done) / run.duration,
        "request_goodput": None if good is None else good / run.duration,
        "output_throughput": outputs / run.duration,
        "total_token_throughput": (inputs + outputs) / run.duration,
        "max_output_tokens_per_s": busiest_second(done),
        "max_concurrent_requests": most_in_flight(done),
    }
    for name in metrics:
        record |= _latencies(name, values_of(name, done), percentiles)
    return record


def values_of(metric: str, answers: Sequence[Answer]) -> list[float]:
    """Seconds of all answers that have this metric; the gaps of all answers for itl."""
    if metric == "itl":
        return [gap for answer in answers for gap in answer.gaps]
    name = "latency" if metric == "e2el" else metric
    return [value for answer in answers if (value := getattr(answer, name)) is not None]


def is_good(answer: Answer, goodput: Mapping[str, float]) -> bool:
    """Whether each of its times is within its milliseconds."""
    times = {"ttft": answer.ttft, "tpot": answer.tpot or 0.0, "e2el": answer.latency}
    return all(times[name] * 1000 <= limit for name, limit in goodput.items())


def busiest_second(answers: Sequence[Answer]) -> float:
    """Output tokens in the busiest of the seconds from the first request on.

    The tokens of an answer are spread over its events evenly.
    """
    start = min((answer.begin for answer in answers), default=0.0)
    tokens: dict[int, float] = {}
    for answer in answers:
        for at in answer.times:
            second = int(at - start)
            tokens[second] = tokens.get(second, 0.0) + answer.output_tokens / len(answer.times)
    return max(tokens.values(), default=0.0)


def most_in_flight(answers: Sequence[Answer]) -> int:
    """The largest number of requests at one time."""
    changes = [(answer.begin, 1) for answer in answers] + [(answer.end, -1) for answer in answers]
    now = most = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def failures(answers: Sequence[Answer]) -> dict[str, int]:
    """How many requests failed for each reason, the most frequent first."""
    return dict(Counter(a.failure for a in answers if a.failure is not None).most_common())


def percentile_name(percentile: float) -> str:
    """As in vLLM's keys: p99, p99.9."""
    return f"p{percentile:g}"


def _latencies(name: str, seconds: Sequence[float], percentiles: Sequence[float]) -> Record:
    """Mean, median, standard deviation and percentiles in milliseconds."""
    keys = ["mean", "median", "std", *map(percentile_name, percentiles)]
    values: list[float | None] = [None] * len(keys)
    if seconds:
        samples = Samples(tuple(1000 * each for each in seconds))
        mean = sum(samples.values) / len(samples.values)
        values = [mean, samples.median, pstdev(samples.values)]
        values += [samples.quantile(percentile / 100) for percentile in percentiles]
    return {f"{key}_{name}_ms": value for key, value in zip(keys, values, strict=True)}
