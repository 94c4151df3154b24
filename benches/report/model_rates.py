"""Rates of whole models on several machines, as bars."""

from __future__ import annotations

from typing import Any

from benches.names import LLAMA_CPP, OPENVINO, TINY_LLM
from tiny_llm_tools.benchmark.pictures import new_figure, svg_text

Record = dict[str, Any]
PANELS = {
    "qwen2-0.5b bf16 decode after 128 tokens": "decode after 128 tokens, tokens per second",
    "qwen2-0.5b bf16 prefill of 512 tokens": "prefill of 512 tokens, tokens per second",
}
LABELS = {TINY_LLM: "tiny-llm", LLAMA_CPP: "llama.cpp", OPENVINO: "OpenVINO"}
BAR = 0.38
TITLE = "qwen2-0.5b in 4 bits"


def model_rates(records: dict[str, Record]) -> str:
    """`records` of `bench peers` by machine: bars for its numbers of threads, but for one."""
    places = [
        (f"{machine}, {threads} threads", record, threads)
        for machine, record in records.items()
        for threads in record["threads"]
        if threads > 1
    ]
    with new_figure(8, 0.9 + 0.42 * len(places) * len(PANELS)) as figure:
        figure.suptitle(TITLE)
        for axes, (name, title) in zip(figure.subplots(len(PANELS), 1), PANELS.items(), strict=True):
            rates = [_rates(record, name, threads) for _, record, threads in places]
            _panel(axes, rates, [label for label, _, _ in places])
            axes.set_title(title, loc="left", fontsize=9)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", fontsize=8, ncols=len(labels))
        return svg_text(figure, TITLE)


def _panel(axes: Any, rates: list[dict[str, float]], machines: list[str]) -> None:
    names = [name for name in LABELS if any(name in found for found in rates)]
    height = 2 * BAR / len(names)
    for number, name in enumerate(names):
        places = [place - BAR + height * (number + 0.5) for place in range(len(machines))]
        found = [rate.get(name, 0.0) for rate in rates]
        bars = axes.barh(places, found, height, label=LABELS[name])
        axes.bar_label(bars, [f"{rate:.0f}" if rate else "" for rate in found], padding=3, fontsize=8)
    axes.set_yticks(range(len(machines)), machines)
    axes.set_ylim(len(machines) - 0.5, -0.5)
    axes.margins(x=0.1)
    axes.spines[["top", "right"]].set_visible(False)


def _rates(record: Record, name: str, threads: int) -> dict[str, float]:
    """Tokens per second by contestant."""
    rows = (row for row in record["rows"] if (row["row"], row["threads"]) == (name, threads))
    return {
        c["name"]: row["tokens"] / c["seconds"]["median"]
        for row in rows
        for c in row["contestants"]
        if c["seconds"]
    }
