"""The record of `tiny-llm bench` and its table."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from tiny_llm.runtime.gpu import gpu_line

from .rates import Run

COLUMNS = {
    "wall_seconds": "wall time s",
    "output_tokens_per_second": "output tok/s",
    "total_tokens_per_second": "total tok/s",
    "prefill_tokens_per_second": "prefill tok/s",
    "decode_tokens_per_second": "decode tok/s",
}


def totals(runs: Sequence[Run]) -> dict[str, Any]:
    """Counts and rates over all requests of one backend."""
    prompt, output = sum(run.prompt_tokens for run in runs), sum(run.output_tokens for run in runs)
    seconds, first = sum(run.seconds for run in runs), sum(run.first for run in runs)
    after_first = output - len(runs)
    return {
        "requests": len(runs),
        "prompt_tokens": prompt,
        "output_tokens": output,
        "wall_seconds": seconds,
        "output_tokens_per_second": output / seconds,
        "total_tokens_per_second": (prompt + output) / seconds,
        "prefill_tokens_per_second": prompt / first,
        "decode_tokens_per_second": after_first / (seconds - first) if after_first else None,
    }


def ratio(runs: Sequence[Run], others: Sequence[Run]) -> dict[str, float | None]:
    """Medians over requests of the speed of `runs` relative to `others`."""
    pairs = list(zip(runs, others, strict=True))
    decode = [
        run.decode_rate / other.decode_rate for run, other in pairs if run.decode_rate and other.decode_rate
    ]
    return {
        "prefill": median(run.prefill_rate / other.prefill_rate for run, other in pairs),
        "decode": median(decode) if decode else None,
        "whole": median(other.seconds / run.seconds for run, other in pairs),
    }


def results(runs: dict[str, list[Run]], differences: dict[str, float]) -> dict[str, Any]:
    """The measured part of a record. Ratios compare the first backend with each of the others."""
    (first, first_runs), *others = runs.items()
    return {
        "contestants": [
            {
                "name": name,
                **totals(timed),
                "runs": [
                    {
                        "prompt_tokens": run.prompt_tokens,
                        "output_tokens": run.output_tokens,
                        "time_to_first_token": run.first,
                        "seconds": run.seconds,
                    }
                    for run in timed
                ],
            }
            for name, timed in runs.items()
        ],
        "ratios": [
            {"of": first, "to": name, "difference": differences[name], **ratio(first_runs, timed)}
            for name, timed in others
        ],
    }


def table(record: dict[str, Any]) -> str:
    """The results in aligned columns, and a line for each ratio."""
    contestants = record["contestants"]
    first = contestants[0]
    rows = [["", *COLUMNS.values()]]
    rows += [[each["name"], *(cell(each[key]) for key in COLUMNS)] for each in contestants]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    ]
    gpu = record["installation"]["gpu"] if record["device"] == "gpu" else None
    setting = record["setting"] if gpu is None else f"{record['setting']}\n{gpu_line(gpu)}"
    head = (
        f"{setting}\n{first['requests']} requests, {first['prompt_tokens']} prompt tokens, "
        f"{first['output_tokens']} output tokens, one request at a time, greedy"
    )
    return "\n".join([head, "", *lines, *map(comparison, record["ratios"])])


def comparison(ratio: dict[str, Any]) -> str:
    parts = [f"{name} {times(ratio[name])}" for name in ("prefill", "decode", "whole")]
    return f"{ratio['of']} against {ratio['to']}: {', '.join(parts)} (speed ratios, medians over requests)"


def times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
