"""The tables of docs/scheduler.md: steps, prefill and preemptions beside others, and the time of a step."""

from __future__ import annotations

from fractions import Fraction

from benches.cases.scheduler import PAGES, WATERMARK, WATERMARKS
from benches.names import NANO_VLLM, PLAIN, TINY_LLM
from benches.report.marked import with_tables
from benches.report.tables import Record, seconds_text, table
from benches.targets import scheduler as targets


def scheduler_page(text: str, record: Record) -> str:
    """docs/scheduler.md with new tables."""
    tables = {
        "nano-vllm": nano_vllm_table(record),
        "watermarks": watermarks_table(record),
        "time": time_table(record),
    }
    return with_tables("scheduler_page", text, tables)


def nano_vllm_table(record: Record) -> str:
    """Both schedulers at each number of pages."""
    header = [
        "pages",
        "scheduler",
        "steps",
        "prefill tokens",
        "over the prompts",
        "preemptions",
        "mean decode batch",
        "",
    ]
    body = []
    for pages, ours in _rows(record, WATERMARK).items():
        theirs = targets.NANO_VLLM[pages]
        prompts = ours["prompt_tokens"]
        for name, counts in ((NANO_VLLM, theirs._asdict() | {"steps": theirs.steps}), (TINY_LLM, ours)):
            missed = ours["misses"]
            verdict = f"missed: {', '.join(missed)}" if missed else "met"
            body.append(
                [
                    str(pages),
                    name,
                    f"{counts['steps']:,}",
                    f"{counts['prefill_tokens']:,}",
                    f"+{counts['prefill_tokens'] / prompts - 1:.1%}",
                    str(counts["preemptions"]),
                    f"{counts['decode_batch']:.1f}",
                    verdict if counts is ours else "",
                ]
            )
    return table(header, body)


def watermarks_table(record: Record) -> str:
    """Steps / prefill tokens / preemptions, plain and ours, for each watermark."""
    header = ["pages", "scheduler", *(f"w = {watermark}" for watermark in WATERMARKS)]
    body = []
    for pages in PAGES:
        rows = {watermark: _rows(record, watermark) for watermark in WATERMARKS}
        if any(pages not in found for found in rows.values()):
            continue
        ours = [_triple(found[pages]) for found in rows.values()]
        body.append([str(pages), PLAIN, *(_text(each) for each in targets.PLAIN[pages])])
        body.append([str(pages), TINY_LLM, *(_text(each) for each in ours)])
    return table(header, body)


def time_table(record: Record) -> str:
    """The time of plan and commit."""
    body = []
    for row in record["times"]:
        seconds, limit = row["seconds"], row["limit"]
        verdict = ""
        if limit is not None:
            met = "met" if seconds["median"] <= limit else "missed"
            verdict = f"<= {seconds_text(limit)}: {met}"
        spread = f"{seconds_text(seconds['low'])} to {seconds_text(seconds['high'])}"
        body.append([str(row["running"]), seconds_text(seconds["median"]), spread, verdict])
    return table(["running requests", "plan and commit", "quartiles", "target"], body)


def _rows(record: Record, watermark: Fraction) -> dict[int, Record]:
    """The rows of a watermark, by number of pages."""
    return {row["pages"]: row for row in record["rows"] if row["watermark"] == str(watermark)}


def _triple(row: Record) -> tuple[int, int, int]:
    return row["steps"], row["prefill_tokens"], row["preemptions"]


def _text(counts: tuple[int, int, int]) -> str:
    return " / ".join(f"{count:,}" for count in counts)
