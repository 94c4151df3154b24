"""The tables and the picture of `pdm bench threads`: costs of the pool, steps by operation, efficiency."""

from __future__ import annotations

from typing import Any

from benches.cases.threads import COSTS
from benches.harness.ceilings import BANDWIDTH, PEAK
from benches.harness.row import MAX_SHARE
from benches.report.tables import Record, disturbed, origin, rate_text, seconds_text, table, tally
from tiny_llm_tools.benchmark.pictures import new_figure, svg_text

SCALES = 0.7  # an efficiency below it is marked
Rows = dict[str, dict[int, Record]]  # by name and number of threads


def page(record: Record) -> str:
    """A table of each group, and for each step of the model one of its operations."""
    found = {group: _rows(record, group) for group in record["groups"]}
    parts = [origin(record)]
    if found["pool"]:
        parts += [_heading(record, "pool"), pool_table(found["pool"])]
    for group in ("model", "large"):
        if found[group]:
            parts += [_heading(record, group), steps_table(found[group])]
        for name, rows in found[group].items():
            parts += [f"{name[0].upper()}{name[1:]}, by operation:", operations_table(rows)]
    timed = found["model"] | found["large"] | found["operations"]
    if any(1 in rows and len(rows) > 1 for rows in timed.values()):
        parts += ["### Efficiency", EFFICIENCY, efficiency_table(timed)]
    return "\n\n".join([*parts, tally(record)])


EFFICIENCY = (
    "The time, and its efficiency: the time of one thread over n times that of n threads; below "
    f"{SCALES:g} it is bold. The last columns are of the most threads: the same for what the hardware "
    "allows, its read bandwidth where memory is the limit, else the peak of its multiply units (more threads "
    "lower its clock, and share cores and memory; above 1 where what is read fits the caches of all cores "
    "together); and the share of that limit which the operation reached."
)


def pool_table(rows: Rows) -> str:
    """A line for each number of threads."""
    body = [
        [str(threads), *(_time(rows.get(name, {}).get(threads)) for name in COSTS.values())]
        for threads in _threads(rows)
    ]
    return table(["threads", *COSTS.values()], body)


def steps_table(rows: Rows) -> str:
    """A line for each step and number of threads: rate, regions, and bytes beside the bandwidth."""
    header = ["step", "threads", "rate", "time", "outside operations", "regions"]
    header += ["weights and cache read", "read bandwidth", "share"]
    return table(header, [_step(row) for found in rows.values() for row in found.values()])


def _step(row: Record) -> list[str]:
    seconds = median(row)
    regions = sum(each["regions"] for each in row["operations"])
    cells = [row["row"] + disturbed(row), str(row["threads"])]
    if seconds is None:
        return [*cells, *["not measured"] * 2, *[""] * 5]
    cells += [rate_text(row["tokens"] / seconds), seconds_text(seconds)]
    cells += [seconds_text(row["outside"]), f"{regions:.0f}"]
    if row["tokens"] > 1:  # a prefill is bound by arithmetic
        return [*cells, "", "", ""]
    read, bandwidth = row["bytes"] / seconds, row["ceilings"][BANDWIDTH]["median"]
    return [*cells, f"{read / 1e9:.1f} GB/s", f"{bandwidth / 1e9:.1f} GB/s", f"{read / bandwidth:.0%}"]


def operations_table(rows: dict[int, Record]) -> str:
    """A line for each operation: its time with each number of threads; the rest with the most."""
    most = max(rows)
    names = dict.fromkeys(each["operation"] for row in rows.values() for each in row["operations"])
    times = {threads: _by_operation(row) for threads, row in rows.items()}
    header = ["operation", *(_count(threads) for threads in rows)]
    header += [f"{what}, {_count(most)}" for what in ("in regions", "regions", "longest over mean")]
    body = []
    for name in names:
        last = times[most].get(name)
        body.append([name, *(_seconds(found.get(name)) for found in times.values()), *_details(last)])
    return table(header, body)


def _details(operation: Record | None) -> list[str]:
    if operation is None:
        return ["", "", ""]
    imbalance = operation["imbalance"]
    return [
        seconds_text(operation["in_regions"]),
        f"{operation['regions']:.1f}".removesuffix(".0"),
        f"{imbalance:.2f}" if imbalance else "",
    ]


def efficiency_table(rows: Rows) -> str:
    """A line for each row that has a time with one thread."""
    threads = _threads(rows)
    body = []
    for name, found in rows.items():
        alone = median(found[1]) if 1 in found else None
        if alone is None:
            continue
        most = found[max(found)]
        reached = most["contestants"][0]["share_of_peak"]
        share = reached if reached and reached <= MAX_SHARE else None  # the limit was measured too low
        cells = [_scaled(found.get(count), alone) for count in threads]
        alone_limit, limit = _limit(found[1]), _limit(most)  # 0 if the machine was too busy to measure it
        hardware = f"{limit / (most['threads'] * alone_limit):.2f}" if limit and alone_limit else ""
        body.append([name, *cells, hardware, f"{share:.0%}" if share else ""])
    return table(["operation", *map(_count, threads), "hardware", "share of its limit"], body)


def _limit(row: Record) -> float:
    """The bandwidth where a row reads more than it computes, else the peak."""
    bound_by_memory = row["bytes"] and row["tokens"] <= 1
    (rate,) = (
        samples["median"]
        for name, samples in row["ceilings"].items()
        if (name == BANDWIDTH if bound_by_memory else name.startswith(PEAK))
    )
    return float(rate)


def _scaled(row: Record | None, alone: float) -> str:
    """The time with n threads, and its efficiency."""
    seconds = median(row) if row else None
    if row is None or seconds is None:
        return ""
    text = _time(row)
    if row["threads"] == 1:
        return text
    value = efficiency(alone, seconds, row["threads"])
    return f"{text}, {value:.2f}" if value >= SCALES else f"{text}, **{value:.2f}**"


def efficiency(alone: float, seconds: float, threads: int) -> float:
    """The time of one thread over the time that all threads together spend."""
    return alone / (threads * seconds)


def picture(record: Record) -> str:
    """Three panels over the number of threads: costs of the pool, decode rates, and a step by operation."""
    title = f"threads: costs and decode steps, {record['cpu']}"
    pool, model = _rows(record, "pool"), _rows(record, "model")
    decode = {name: rows for name, rows in model.items() if name.startswith("decode")}
    with new_figure(9, 3.6) as figure:
        costs, rates, steps = figure.subplots(1, 3)
        for name, rows in pool.items():
            _line(costs, name, {n: _micro(row) for n, row in rows.items()})
        costs.set(yscale="log", ylabel="µs")
        for name, rows in decode.items():
            _line(rates, name, {n: 1 / s if (s := median(row)) else None for n, row in rows.items()})
        if decode:
            _line(rates, "limit of the bandwidth", _limits(next(iter(decode.values()))), "--")
            _stack(steps, next(iter(decode.values())))
        rates.set(ylabel="tok/s", ylim=(0, None))
        for axes in (costs, rates):
            axes.set_xscale("log", base=2)
            axes.set_xticks(record["threads"], list(map(str, record["threads"])))
        names = ["costs of the pool", "decode", f"a step: {next(iter(decode), '')}"]
        for axes, what in zip((costs, rates, steps), names, strict=True):
            axes.set_title(what, loc="left", fontsize=8)
            axes.set_xlabel("threads")
            axes.grid(axis="y", alpha=0.4)
            axes.set_axisbelow(True)
            if axes.get_legend_handles_labels()[0]:
                axes.legend(fontsize=6)
        figure.suptitle(title, x=0.01, ha="left", fontsize=9)
        return svg_text(figure, title)


def _line(axes: Any, name: str, values: dict[int, float | None], style: str = "o-") -> None:
    found = {n: value for n, value in values.items() if value is not None}
    axes.plot(list(found), list(found.values()), style, label=name, markersize=4)


def _limits(rows: dict[int, Record]) -> dict[int, float | None]:
    """Tokens a second that the read bandwidth allows."""
    return {n: row["ceilings"][BANDWIDTH]["median"] / row["bytes"] for n, row in rows.items()}


def _stack(axes: Any, rows: dict[int, Record]) -> None:
    """A bar for each number of threads, of the operations and of the time outside them, in ms."""
    names = dict.fromkeys(each["operation"] for row in rows.values() for each in row["operations"])
    places = range(len(rows))
    floor = [0.0] * len(rows)
    for name in [*names, "outside"]:
        seconds = [
            max(row["outside"], 0.0)
            if name == "outside"
            else _by_operation(row).get(name, {}).get("seconds", 0.0)
            for row in rows.values()
        ]
        heights = [value * 1e3 for value in seconds]
        axes.bar(places, heights, bottom=floor, label=name)
        floor = [below + height for below, height in zip(floor, heights, strict=True)]
    axes.set_xticks(places, list(map(str, rows)))
    axes.set_ylabel("ms")


def median(row: Record) -> float | None:
    """The median of the one contestant; None if its result was wrong, or if it did not take part."""
    timed = [each["seconds"] for each in row["contestants"] if each["seconds"]]
    return float(timed[0]["median"]) if timed else None


def _rows(record: Record, group: str) -> Rows:
    found: Rows = {}
    for row in record["rows"]:
        if row["group"] == group:
            found.setdefault(row["row"], {})[row["threads"]] = row
    return found


def _threads(rows: Rows) -> list[int]:
    return sorted({threads for found in rows.values() for threads in found})


def _by_operation(row: Record) -> dict[str, Record]:
    return {each["operation"]: each for each in row["operations"]}


def _heading(record: Record, group: str) -> str:
    return f"### {group}: {record['groups'][group]}"


def _count(threads: int) -> str:
    return f"{threads} thread{'s' if threads > 1 else ''}"


def _time(row: Record | None) -> str:
    seconds = median(row) if row else None
    return "" if row is None or seconds is None else seconds_text(seconds) + disturbed(row)


def _seconds(operation: Record | None) -> str:
    return seconds_text(operation["seconds"]) if operation else ""


def _micro(row: Record) -> float | None:
    seconds = median(row)
    return None if seconds is None else seconds * 1e6
