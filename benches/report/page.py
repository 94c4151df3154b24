"""docs/benchmarks.md and its pictures, from results files alone."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benches.report import picture, roofline
from benches.report.summary import summary
from benches.report.tables import Record, markdown

PROSE = Path(__file__).parent / "prose"
# In the order of the page; the prose of each stands in a file of that name.
CHAPTERS = {"peers": "Whole models", "kernels": "Kernels", "layers": "Layers", "attention": "Attention"}
PICTURES: dict[str, tuple[str, Callable[[Record], str]]] = {
    "kernels": ("Kernels under the roofline", roofline.picture),
    "attention": ("Share of the measured peak", picture.shares),
}


def page(records: Iterable[tuple[str, Record]]) -> str:
    """A summary, then one chapter for each benchmark, one section in it for every results file."""
    every = list(records)
    chapters = {
        benchmark: [(name, record) for name, record in every if record["benchmark"] == benchmark]
        for benchmark in CHAPTERS
    }
    sections = [(_title(name, record), record) for found in chapters.values() for name, record in found]
    parts = [(PROSE / "introduction.md").read_text(), "## At a glance", summary(sections)]
    for benchmark, found in chapters.items():
        parts.append((PROSE / f"{benchmark}.md").read_text())
        for name, record in found:
            parts.append(f"### {_title(name, record)}")
            if benchmark in PICTURES:
                parts.append(f"![{PICTURES[benchmark][0]}]({picture_file(name)})")
            parts.append(markdown(record).replace("\n### ", "\n#### "))  # a level below
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _title(name: str, record: Record) -> str:
    benchmark = record["benchmark"]
    return f"{CHAPTERS[benchmark]}, {name.removesuffix(f'-{benchmark}')}"


def picture_file(name: str) -> str:
    return f"benchmarks-{name}.svg"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benches.report.page",
        description="Writes the benchmark page and its pictures from results files.",
    )
    parser.add_argument("results", nargs="+", type=Path, help="files that `pdm bench ... --json` wrote")
    parser.add_argument(
        "--docs", type=Path, required=True, metavar="FILE.md", help="page to write, pictures beside it"
    )
    options = parser.parse_args(argv)
    records = [(path.stem, json.loads(path.read_text())) for path in options.results]
    for name, record in records:
        if record["benchmark"] in PICTURES:
            _, draw = PICTURES[record["benchmark"]]
            (options.docs.parent / picture_file(name)).write_text(draw(record))
    options.docs.write_text(page(records))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
