"""Records as tables in markdown."""

from __future__ import annotations

import math
from itertools import groupby
from typing import Any

from benches.harness.ceilings import OTHERS
from benches.names import FORMS, TINY_LLM

Record = dict[str, Any]


def markdown(record: Record) -> str:
    """One table for every group of rows in a results file."""
    parts = [origin(record)]
    for group, rows in groupby(record["rows"], key=lambda row: row["group"]):
        parts += [f"### {group}: {record['groups'][group]}", _table(list(rows))]
    parts.append(tally(record))
    return "\n\n".join(parts)


def progress(row: Record) -> str:
    """One line about a finished row."""
    threads = f"  {row['threads']} thread{'s' if row['threads'] > 1 else ''}: "
    times = ", ".join(f"{label(c)} {_time_cell(c, row.get('tokens', 0))}" for c in row["contestants"])
    return threads + " | ".join(filter(None, (times, targets_cell(row))))


def label(contestant: Record) -> str:
    return f"{contestant['name']} {contestant['isa']}" if contestant["isa"] else str(contestant["name"])


def seconds_text(seconds: float) -> str:
    """A time with three digits, in s, ms or µs."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def disturbed(row: Record) -> str:
    """A mark if other processes used the cores in a quarter of the rounds or more, else nothing."""
    others = row.get("ceilings", {}).get(OTHERS)
    return " (disturbed)" if others and others["high"] > 0 else ""


def rate_text(tokens_per_second: float) -> str:
    """Three digits without an exponent."""
    digits = max(0, 2 - math.floor(math.log10(tokens_per_second)))
    return f"{tokens_per_second:.{digits}f} tok/s"


def _table(rows: list[Record]) -> str:
    labels = list(dict.fromkeys(label(c) for row in rows for c in row["contestants"]))
    header = ["row", "threads", *labels, "share of peak", "targets"]
    body = []
    for row in rows:
        by_label = {label(c): c for c in row["contestants"]}
        tokens = row.get("tokens", 0)
        cells = [
            _time_cell(by_label[name], tokens) if name in by_label else _absent(row, name) for name in labels
        ]
        share = next((c["share_of_peak"] for c in row["contestants"] if c["name"] == TINY_LLM), None)
        share_text = f"{share:.0%}" if share else ""
        body.append([row["row"] + disturbed(row), str(row["threads"]), *cells, share_text, targets_cell(row)])
    for name, why in sorted({item for row in rows for item in row["missing"].items()}):
        body.append([f"{name} is missing: {why}", *[""] * (len(header) - 1)])
    return table(header, body)


def table(header: list[str], body: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _time_cell(contestant: Record, tokens: int) -> str:
    """The median, as a rate if the row has tokens, and half the distance of the quartiles, or "once"."""
    timed = contestant["seconds"]
    if timed is None:
        return f"wrong result (error {contestant['error']:.2g})"
    text = rate_text(tokens / timed["median"]) if tokens else seconds_text(timed["median"])
    form = f" with {contestant['variant']}" if contestant["name"] in FORMS else ""
    if timed["samples"] == 1:
        return f"{text}{form} (once)"
    return f"{text}{form} ± {(timed['high'] - timed['low']) / 2 / timed['median']:.0%}"


def _absent(row: Record, name: str) -> str:
    return "missing" if name in row["missing"] else ""


def targets_cell(row: Record) -> str:
    """All targets of a row, with what was measured."""
    return "; ".join(map(_verdict, row["targets"]))


def _verdict(target: Record) -> str:
    if target["met"] is None:
        return f"{target['what']}: not measured"
    verdict = "met" if target["met"] else "**missed**"
    return f"{target['what']} {quantity(target['value'], target['unit'])} ({bound(target)}): {verdict}"


def bound(target: Record) -> str:
    """The limit of a target."""
    sign = {">=": "≥", "<=": "≤"}[target["relation"]]
    return f"{sign} {quantity(target['limit'], target['unit'])}"


def quantity(value: float, unit: str) -> str:
    """A value in the unit of its target."""
    match unit:
        case "s":
            return seconds_text(value)
        case "share":
            return f"{value:.1%}"
        case "B":
            return f"{value / 2**20:.1f} MiB"
        case "tok/s":
            return rate_text(value)
    return f"{value:.2f}{unit}"


def origin(record: Record) -> str:
    """Machine, versions, commit and date of a record, and how the peers were built."""
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    state = " with uncommitted changes" if record["changed_files"] else ""
    measured = (
        f"{record['cpu']}, {record['cpus_allowed']} of {record['cpus_present']} CPUs, {record['system']}, "
        f"Python {record['python']}, {versions}. Commit {record['commit'][:12]}{state}, "
        f"{record['measured']}, median of {_rounds(record)} (± half the distance of the quartiles)."
    )
    return "\n\n".join([measured, *builds(record)])


def builds(record: Record) -> list[str]:
    """A line for each peer: how it was built and set."""
    return [f"{name}: {line}" for name, line in record.get("builds", {}).items()]


def _rounds(record: Record) -> str:
    """The number of samples of a median, as a range: parts of a record may come from different runs."""
    timed = [contestant["seconds"] for row in record["rows"] for contestant in row["contestants"]]
    rounds = {seconds["samples"] for seconds in timed if seconds and seconds["samples"] > 1}  # else "once"
    return " to ".join(map(str, sorted({min(rounds), max(rounds)}))) if rounds else str(record["repeats"])


def tally(record: Record) -> str:
    """How many targets were met."""
    verdicts = [target["met"] for row in record["rows"] for target in row["targets"]]
    met, missed, unknown = (verdicts.count(kind) for kind in (True, False, None))
    return f"Targets: {met} met, {missed} missed, {unknown} not measured."
