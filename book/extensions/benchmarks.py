"""The directives `headlines` and `machine`: tables and pictures of benches/results, made at build."""

import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "src/extensions")]
RESULTS = ROOT / "benches" / "results"
# matplotlib's colours of paper and ink become those of the page, which has a light and a dark form.
PAGE_COLOURS = {
    "#ffffff": "var(--color-background-primary)",
    "#000000": "var(--color-foreground-primary)",
    "#262626": "var(--color-foreground-primary)",
    "#595959": "var(--color-foreground-secondary)",
    "#b0b0b0": "var(--color-foreground-border)",
    "#cccccc": "var(--color-background-border)",
}


class RecordsDirective(Directive):
    """What the directives share: the text of a report becomes a part of the page."""

    def markdown(self, text: str) -> list[nodes.Node]:
        """The nodes of a text; MyST appends its sections to the section of the page itself."""
        holder = nodes.Element()
        lines = StringList(text.splitlines(), source=str(RESULTS))
        self.state.nested_parse(lines, self.content_offset, holder, match_titles=True)
        return holder.children

    def uses(self, paths: Iterable[Path]) -> None:
        """A change of these files builds the page again."""
        for path in paths:
            self.state.document.settings.env.note_dependency(str(path))


class HeadlinesDirective(RecordsDirective):
    """```{headlines}: a dozen results on each machine, where peers are faster, a picture of whole models."""

    def run(self) -> list[nodes.Node]:
        from benches.report.glance import LEVEL, behind, glance
        from benches.report.model_rates import model_rates

        self.uses(RESULTS.glob("*/*.json"))
        found = {machine: list(each.values()) for machine, each in records().items()}
        peers = {machine: each["peers"] for machine, each in records().items() if "peers" in each}
        slower = f"Where a peer is level (we are at most {LEVEL}x as fast) or faster, the slowest first:"
        tables = [glance(found, "{}.md"), slower, behind(found, "{}.md")]
        return self.markdown("\n\n".join([*tables, picture(model_rates(peers))]))


class MachineDirective(RecordsDirective):
    """```{machine} NAME: the targets of a machine, then a picture or a table of each record."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in records():
            raise self.error(f"got {name}, expected one of {', '.join(records())}")
        self.uses((RESULTS / name).glob("*.json"))
        return self.markdown("\n\n".join(machine_sections(records()[name])))


def machine_sections(found: dict[str, Any]) -> Iterator[str]:
    from benches.report.pages import PICTURES, TABLES, TITLES
    from benches.report.summary import summary
    from benches.report.tables import markdown, origin, tally

    titles = {name: TITLES.get(name, name) for name in found}
    yield "## Targets"
    yield without_links(summary((titles[name], record) for name, record in found.items()))
    for name, record in found.items():
        yield f"## {titles[name]}"
        if record["benchmark"] in PICTURES:
            yield picture(PICTURES[record["benchmark"]](record))
            yield f"{origin(record)} {tally(record)}"
        else:
            yield TABLES.get(record["benchmark"], markdown)(record)


@cache
def records() -> dict[str, dict[str, Any]]:
    from benches.report.pages import load_records

    return load_records()


def without_links(text: str) -> str:
    """The contents beside the page leads to the sections already."""
    return re.sub(r"\[([^\]]+)\]\(#[^)]*\)", r"\1", text)


def picture(svg: str) -> str:
    """The picture as a block of HTML, which has no empty line, in the colours of the page."""
    lines = [line for line in svg[svg.index("<svg") :].splitlines() if line]
    text = "\n".join(lines)
    for colour, variable in PAGE_COLOURS.items():
        text = text.replace(colour, variable)
    title = re.search(r"<title>(.*?)</title>", text)
    label = f'<svg role="img" aria-label="{title[1] if title else ""}"'
    return f'<div class="chart" tabindex="0">{text.replace("<svg", label, 1)}</div>'


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("headlines", HeadlinesDirective)
    app.add_directive("machine", MachineDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
