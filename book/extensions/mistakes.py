"""The directive `mistakes`: what the tests of a chapter are known to find, from the tables that prove it."""

import importlib
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "tests" / "mistakes"
sys.path.insert(0, str(ROOT))


class MistakesDirective(Directive):
    """```{mistakes} week_2_day_4: a list of the mistakes that are planted for the tests of that day.

    Numbers after the day choose its tasks.
    """

    required_arguments = 1
    optional_arguments = 9

    def run(self) -> list[nodes.Node]:
        chapter, *tasks = self.arguments
        names = [
            mistake.name
            for table in _tables()
            for mistake in table.get(chapter, ())
            if not tasks or mistake.task.removeprefix("task_") in tasks
        ]
        if not names:
            raise self.error(f"there are no mistakes of {' '.join(self.arguments)} in {TABLES}")
        items = [nodes.list_item("", nodes.paragraph(text=name)) for name in names]
        return [nodes.bullet_list("", *items)]


def _tables() -> list[dict[str, Any]]:
    """Chapter -> its mistakes, of each module that has such a table."""
    files = [path for path in sorted(TABLES.glob("*.py")) if not path.name.startswith("test_")]
    names = [path.stem for path in files if "MISTAKES: Table" in path.read_text()]
    return [importlib.import_module(f"tests.mistakes.{name}").MISTAKES for name in names]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("mistakes", MistakesDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
