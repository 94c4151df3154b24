"""The table and the picture of runs with one or several request rates."""

import io
from collections.abc import Sequence
from typing import Any

from ..pictures import new_figure, svg_text
from .metrics import METRICS, Record

ROWS = {
    "completed": "completed requests",
    "failed": "failed requests",
    "duration": "duration, s",
    "total_input_tokens": "input tokens",
    "total_output_tokens": "output tokens",
    "request_throughput": "requests per second",
    "request_goodput": "good requests per second",
    "output_throughput": "output tokens per second",
    "total_token_throughput": "input and output tokens per second",
    "max_output_tokens_per_s": "output tokens in the busiest second",
    "max_concurrent_requests": "most requests at a time",
}
PANELS = 2  # of a picture: the first latencies that were asked for
DOTS_PER_INCH = 150


def table(records: Sequence[Record]) -> str:
    """A column for each run, a row for each figure; then the reasons of failures."""
    first = records[0]
    keys = [key for key in ROWS if any(record[key] is not None for record in records)]
    lines = [["request rate", *(rate_text(record["request_rate"]) for record in records)]]
    lines += [[ROWS[key], *(cell(record[key]) for record in records)] for key in keys]
    for metric, title in METRICS.items():
        found = [key for key in first if key.endswith(f"_{metric}_ms")]
        if found:
            lines.append([f"{metric}: {title}, ms"])
        for key in found:
            name = key.removesuffix(f"_{metric}_ms")
            lines.append([f"  {name}", *(cell(record[key]) for record in records)])
    names = max(len(line[0]) for line in lines)
    width = max(len(text) for line in lines for text in line[1:])
    text = [line[0].ljust(names) + "".join(f"  {each:>{width}}" for each in line[1:]) for line in lines]
    for record in records:
        rate = f" at rate {rate_text(record['request_rate'])}" if len(records) > 1 else ""
        text += [f"{count} failed{rate}: {reason}" for reason, count in record["errors"].items()]
    return "\n".join(line.rstrip() for line in text)


def rate_text(rate: float | str) -> str:
    return f"{rate}" if isinstance(rate, str) else f"{rate:g}"


def cell(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def picture(records: Sequence[Record], title: str, kind: str) -> str | bytes:
    """Latency over throughput: a point for each request rate. `kind` is svg or png."""
    shown = [metric for metric in METRICS if f"median_{metric}_ms" in records[0]][:PANELS]
    with new_figure(4.5 * len(shown), 4) as figure:
        figure.suptitle(title)
        for axes, metric in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
            _draw(axes, metric, records)
        if kind == "svg":
            return svg_text(figure, title)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH)
        return buffer.getvalue()


def _draw(axes: Any, metric: str, records: Sequence[Record]) -> None:
    """The median and the highest percentile of a latency."""
    keys = [key for key in records[0] if key.endswith(f"_{metric}_ms")]
    for key in (f"median_{metric}_ms", keys[-1]):
        points = [
            (record["output_throughput"], record[key], record["request_rate"])
            for record in records
            if record[key] is not None
        ]
        xs, ys = [x for x, _, _ in points], [y for _, y, _ in points]
        axes.plot(xs, ys, marker="o", label=key.removesuffix(f"_{metric}_ms"))
    for x, y, rate in points:  # at the upper line
        text = "all at once" if rate == "inf" else f"{rate_text(rate)}/s"
        axes.annotate(text, (x, y), textcoords="offset points", xytext=(4, 4))
    axes.set_title(f"{METRICS[metric]}, ms", loc="left", fontsize=9)
    axes.set_xlabel("output tokens per second")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.12)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
