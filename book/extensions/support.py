"""The directive `support`: what the tree lists as supported, from the lists that the program itself reads."""

import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from tables import table

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "src/extensions")]
TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


class SupportDirective(Directive):
    """```{support} kernels: a table of TABLES."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in TABLES:
            raise self.error(f"got {name}, expected one of {', '.join(TABLES)}")
        return [TABLES[name]()]


def kernels() -> nodes.table:
    """The rows of support.def: a line for each back end and pass, a column for each type of elements."""
    import tiny_llm_ext

    sizes: dict[tuple[str, str], dict[str, str]] = {}
    for row in tiny_llm_ext.support():
        first, last = row["head_size"]
        sizes.setdefault((row["backend"], row["pass"]), {})[row["dtype"]] = f"head sizes {first} to {last}"
    rows = [
        [nodes.literal(text=backend), nodes.literal(text=kernel), *(found.get(each, "–") for each in TYPES)]
        for (backend, kernel), found in sizes.items()
    ]
    return table(["back end", "pass", *TYPES.values()], rows)


def models() -> nodes.table:
    from tiny_llm.models.names import FAMILIES

    rows = [
        [nodes.literal(text=kind), nodes.literal(text=shortcut), nodes.literal(text=name)]
        for kind, family in FAMILIES.items()
        for shortcut, name in family.shortcuts.items()
    ]
    return table(["model_type", "shortcut", "name on the hub"], rows)


def formats() -> nodes.table:
    from tiny_llm.loading.config import GROUP_SIZES, WIDTHS

    rows = [
        ["bits of a weight", ", ".join(map(str, WIDTHS))],
        ["size of a quantization group", ", ".join(map(str, GROUP_SIZES))],
    ]
    return table(["quantized weights", "supported"], rows)


TABLES = {"kernels": kernels, "models": models, "formats": formats}


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("support", SupportDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
