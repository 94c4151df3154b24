"""The pages of the records: up to date, complete, and with links that exist."""

import re
from xml.etree import ElementTree

import pytest

from benches.names import LLAMA_CPP, MX_FAST, NO_WINDOW, TINY_LLM
from benches.report.glance import HEADLINES, behind, glance
from benches.report.pages import DOCS, front_page, load_records, machine_page, pages, pictures
from benches.report.summary import summary
from benches.report.tables import Record

LINE = re.compile(r"^\| \[(.+)\]\((#.+)\) \| (.+) \| (.+) \| (.+) \| (\d+) of (\d+) \|$", re.MULTILINE)
MACHINES = load_records()
LINK = re.compile(r"\]\(([^)#]+)")


def test_the_pages_are_up_to_date() -> None:
    stale = [path.name for path, text in pages(MACHINES, DOCS).items() if path.read_text() != text]
    assert stale == [], "run `python -m benches.report.pages`"


def test_a_changed_record_changes_its_page_and_the_front_page() -> None:
    record = load_records()["epyc-zen4"]["peers"]
    for contestant in record["rows"][0]["contestants"]:
        contestant["seconds"]["median"] *= 2
    for row in record["rows"]:
        row["contestants"] = row["contestants"] or record["rows"][0]["contestants"]
    changed = {**MACHINES, "epyc-zen4": {**MACHINES["epyc-zen4"], "peers": record}}
    assert machine_page("epyc-zen4", changed["epyc-zen4"]) != machine_page("epyc-zen4", MACHINES["epyc-zen4"])
    front = (DOCS / "benchmarks.md").read_text()
    assert front_page(front, changed) != front


def test_the_front_page_says_where_a_peer_is_level_or_faster_the_slowest_first() -> None:
    def row(threads: int, ours: float, theirs: float, peer: str = LLAMA_CPP) -> Record:
        timed = [(TINY_LLM, ours), (peer, theirs)]
        contestants = [{"name": name, "seconds": {"median": seconds}} for name, seconds in timed]
        return {
            "row": HEADLINES[0].row,
            "group": "g",
            "threads": threads,
            "tokens": 1,
            "contestants": contestants,
        }

    faster = {"benchmark": "peers", "rows": [row(2, 1.0, 1.06), row(16, 1.0, 1.2)]}
    slower = {"benchmark": "peers", "rows": [row(2, 1.0, 1.04), row(16, 1.0, 0.5), row(16, 1.0, 2.0)]}
    slower["rows"] += [row(2, 1.0, 0.9, MX_FAST), row(2, 1.0, 1.0, NO_WINDOW)]  # the latter is no peer
    table = behind({"quick": [faster], "slow": [slower]}, "{}.md").splitlines()
    assert table[2:] == [
        "| [slow](slow.md) | 16 | peers: g | llama.cpp | 0.50x | 1 of 2 |",
        "| [slow](slow.md) | 2 | peers: g | mx.fast | 0.90x | 1 of 1 |",
        "| [slow](slow.md) | 2 | peers: g | llama.cpp | 1.04x | 1 of 1 |",
    ]
    head, _, first, *_ = glance({"slow": [slower]}, "{}.md").splitlines()
    assert head == "| work | [slow](slow.md), 2 threads | [slow](slow.md), 16 threads |"
    assert first == f"| {HEADLINES[0].what} | 1.00 tok/s, 1.0x | 1.00 tok/s, 0.5x |"


def test_every_link_and_picture_of_the_pages_exists() -> None:
    for path, text in pages(MACHINES, DOCS).items():
        links = [link for link in LINK.findall(text) if "://" not in link]
        assert [link for link in links if not (path.parent / link).exists()] == []
    for path in pictures(MACHINES, DOCS):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")


@pytest.mark.parametrize("machine", MACHINES)
def test_the_summary_counts_every_verdict_and_links_to_its_section(machine: str) -> None:
    text = machine_page(machine, MACHINES[machine])
    titles = re.findall("^#+ (.+)$", text, re.MULTILINE)
    headings = {"#" + re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
    lines = LINE.findall(text)
    rows = [row for record in MACHINES[machine].values() for row in record["rows"]]
    verdicts = [target["met"] for row in rows for target in row["targets"]]
    assert sum(int(line[5]) for line in lines) == verdicts.count(True)
    assert sum(int(line[6]) for line in lines) == len(verdicts) - verdicts.count(None)
    assert {line[1] for line in lines} <= headings


def test_a_line_of_the_summary_spans_limits_and_values() -> None:
    speeds = [_row("decode", "x", 2.0, value) for value in (3.0, 1.5, None)]
    rows = [
        *speeds,
        _row("decode", "x", 4.0, 4.5),
        _row("short", "s", 3.0, 2.5),
        _row("short", "s", 2.0, 2.25),
    ]
    first, second, third = LINE.findall(summary([("Models, here", {"rows": rows})]))
    assert first == ("Models, here", "#models-here", "decode", "speed ≥ 2.00x", "1.50x to 3.00x", "1", "2")
    assert second[2:] == ("decode", "speed ≥ 4.00x", "4.50x", "1", "1")
    assert third[2:] == ("short", "speed ≥ 2 s to ≥ 3 s", "2.25 s to 2.5 s", "1", "2")


def _row(group: str, unit: str, limit: float, value: float | None) -> Record:
    met = None if value is None else value >= limit
    target = {"what": "speed", "relation": ">=", "limit": limit, "value": value, "unit": unit, "met": met}
    return {"group": group, "targets": [target]}
