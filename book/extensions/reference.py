"""The directives `api` and `command`: docstrings of public names, and help texts of the command line.

Docstrings are plain text with shapes in brackets, so they are shown as they are.
"""

import importlib
import inspect
import os
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))


class ApiDirective(Directive):
    """```{api} MODULE [NAME ...]: the names, or those of __all__, with signature and docstring."""

    required_arguments = 1
    optional_arguments = 100

    def run(self) -> list[nodes.Node]:
        module = importlib.import_module(self.arguments[0])
        found: list[nodes.Node] = []
        for name in self.arguments[1:] or module.__all__:
            found += self._entry(self.arguments[0], name, getattr(module, name))
        return found

    def _entry(self, module: str, name: str, value: Any) -> list[nodes.Node]:
        text = inspect.getdoc(value)
        if not text:
            raise self.error(f"{module}.{name} has no docstring")
        section = nodes.section(ids=[nodes.make_id(f"{module}.{name}")])
        section += nodes.title("", "", nodes.literal(text=name))
        code = nodes.literal_block(text=f"{name}{signature(value)}", language="text")
        code["classes"].append("signature")
        section += [code, nodes.literal_block(text=text, language="text", classes=["docstring"])]
        return [section]


class CommandDirective(Directive):
    """```{command} serve: the help text of `tiny-llm serve`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        return [nodes.literal_block(text=help_text(self.arguments[0]), language="text")]


def signature(value: Any) -> str:
    try:
        found = inspect.signature(value)
    except ValueError:  # of an enumeration or an exception
        return ""
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values()]
    text = str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return text if len(text) < 90 else "(\n    " + ",\n    ".join(map(str, plain)) + ",\n)"


def help_text(name: str) -> str:
    from tiny_llm.cli import Parser, add_options

    os.environ["COLUMNS"] = "100"
    parser = Parser(prog=f"tiny-llm {name}")
    add_options(parser, name)
    return parser.format_help()


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("api", ApiDirective)
    app.add_directive("command", CommandDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
