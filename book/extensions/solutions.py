"""Code that a chapter includes and that course.toml leaves to the learner is folded: it is the solution."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tools.learner import native, starter  # noqa: E402
from tools.learner.tasks import all_tasks  # noqa: E402

ENOUGH = 2  # equal lines in a row, by which a block shows a part of a solution


class Solution(nodes.General, nodes.Element):
    """A block of code under a summary, closed at first."""


def fold(app: Sphinx, document: nodes.document) -> None:
    for block in list(document.findall(nodes.literal_block)):
        if "source" not in block or not Path(block["source"]).is_relative_to(ROOT / "src"):
            continue
        app.env.note_dependency(str(ROOT / "course.toml"))
        if shows_a_solution(block.astext(), Path(block["source"])):
            folded = Solution()
            block.replace_self(folded)
            folded += block


def shows_a_solution(text: str, path: Path) -> bool:
    shown = code_lines(text.splitlines())
    for body in map(code_lines, bodies(path)):
        length = min(ENOUGH, len(body))
        if runs(body, length) & runs(shown, length):
            return True
    return False


def bodies(path: Path) -> Iterator[list[str]]:
    """The lines of each place of a file, without its signature and docstring."""
    source = path.read_text()
    for task in all_tasks():
        for place in task.places:
            if path == ROOT / "src" / place.file:
                yield (starter if place.is_python else native).inside(source, place.name)


def runs(lines: list[str], length: int) -> set[tuple[str, ...]]:
    return {tuple(lines[row : row + length]) for row in range(len(lines) - length + 1)}


def code_lines(lines: list[str]) -> list[str]:
    """Without indentation, and without lines that have only brackets."""
    return [line.strip() for line in lines if any(map(str.isalnum, line))]


def visit_solution(writer: Any, node: Solution) -> None:
    writer.body.append('<details class="solution"><summary>Our code: try first</summary>')


def depart_solution(writer: Any, node: Solution) -> None:
    writer.body.append("</details>")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_node(Solution, html=(visit_solution, depart_solution))
    app.connect("doctree-read", fold)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
