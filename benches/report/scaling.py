"""The tables and the picture of docs/scaling.md: simulated replicas, and real ones beside them."""

from __future__ import annotations

from benches.report.marked import with_tables
from benches.report.tables import Record, seconds_text, table
from tiny_llm_tools.benchmark.pictures import new_figure, svg_text

LIMIT = 0.15
ROUTING = {True: "by prefix", False: "least loaded"}
COLOURS = {True: "tab:blue", False: "tab:orange"}


def scaling_page(text: str, record: Record) -> str:
    """docs/scaling.md with new tables."""
    tables = {"simulated": simulated_table(record), "real": real_table(record), "hits": hits_table(record)}
    return with_tables("scaling_page", text, tables)


def simulated_table(record: Record) -> str:
    header = ["requests/s", "replicas", "routing", "answered/s", "hit rate", "TTFT p50", "TTFT p99", "errors"]
    body = []
    for row in record["rows"]:
        changed = row["replicas"] != row["replicas_at_end"]
        replicas = f"{row['replicas']:,} → {row['replicas_at_end']:,}" if changed else f"{row['replicas']:,}"
        body.append(
            [
                f"{row['rate']:,}",
                replicas,
                ", ".join(filter(None, (ROUTING[row["routed"]], row["what"]))),
                f"{row['requests_per_second']:,.0f}",
                f"{row['hit_rate']:.0%}",
                seconds_text(row["first_token_p50"]),
                seconds_text(row["first_token_p99"]),
                f"{row['refused'] + row['broken']:,}",
            ]
        )
    return table(header, body)


def real_table(record: Record) -> str:
    body = []
    for name, text in (
        ("requests_per_second", "answered/s"),
        ("hit_rate", "hit rate"),
        ("first_token_p50", "TTFT p50"),
        ("first_token_p99", "TTFT p99"),
    ):
        simulated, real = record["simulated"][name], record["real"][name]
        ratio = simulated / real
        within = "yes" if abs(ratio - 1) <= LIMIT else "no"
        shown = [seconds_text(each) if "token" in name else f"{each:.2f}" for each in (simulated, real)]
        body.append([text, *shown, f"{ratio:.2f}", within])
    return table(["", "simulated", "real", "ratio", f"within {LIMIT:.0%}"], body)


def hits_table(record: Record) -> str:
    routed, random = record["hits"]["routed"], record["hits"]["random"]
    body = [
        [name, f"{each['hit_rate']:.0%}", seconds_text(each["first_token_p50"])]
        for name, each in ((ROUTING[True], routed), (ROUTING[False], random))
    ]
    body.append(["ratio", f"{routed['hit_rate'] / random['hit_rate']:.1f}", ""])
    return table(["routing", "hit rate", "TTFT p50"], body)


def scaling_picture(record: Record) -> str:
    """The time to the first token by the rate, with and without routing by prefixes."""
    title = f"scaling: time to the first token, simulated with step times of {record['engine']['cpu']}"
    with new_figure(7, 3.4) as figure:
        axes = figure.subplots()
        for routed, name in ROUTING.items():
            rows = [row for row in record["rows"] if row["routed"] == routed and not row["what"]]
            rates = [row["rate"] for row in rows]
            for quantile, line in (("p50", "o-"), ("p99", "o--")):
                values = [row[f"first_token_{quantile}"] for row in rows]
                axes.plot(
                    rates, values, line, color=COLOURS[routed], label=f"{name}, {quantile}", markersize=4
                )
        axes.set(xscale="log", yscale="log", xlabel="requests a second", ylabel="seconds")
        axes.grid(which="major", alpha=0.4)
        axes.legend(fontsize=8, loc="center left")
        figure.suptitle(title, x=0.01, ha="left", fontsize=9)
        return svg_text(figure, title)
